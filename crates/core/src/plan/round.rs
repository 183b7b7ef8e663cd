//! One bounded scheduling round: bookings in turn until nothing fits, then a little work ahead for workers whose
//! tasks are short.

use super::decision::{BlockedWork, Decision};
use super::placement::{self, Ineligible, MatchContext, PlacementOutcome, PlacementRequest, ScoredWorker};
use super::reserving;
use super::rivals::{KnownRivals, prefer_rival};
use super::work::{Booking, StepFacts, Work};
use super::{Planner, gang, prefetch};
use crate::ids::{ClassId, QueueId, StepKey, WorkerId};
use crate::job::QueuedStep;
use crate::queues::RoundFilter;
use crate::score::context::JobContext;
use crate::score::windows::Metric;
use crate::time::{NS_PER_MS, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What a round finds out.
#[derive(Default)]
pub(super) struct Round {
    pub(super) filter: RoundFilter,
    blocked: BlockedWork,
    /// Workers that have more room than when the last full round ended.
    gained: Vec<WorkerId>,
    placed: BTreeSet<ClassId>,
    /// Classes for which too little room was found.
    crowded: BTreeSet<ClassId>,
    /// Steps of each queue and class that a rule was found to veto.
    misses: BTreeMap<(QueueId, ClassId), usize>,
    /// Steps of some queue and class were left for the next round.
    unjudged: bool,
    /// Classes that wait for a reservation and were not seen to be overtaken.
    watched: Vec<ClassId>,
    /// Workers whose reservation ended because the holder started there.
    freed: Vec<WorkerId>,
    /// Queues may exceed their quotas, up to their burst: no other queue can use what is left.
    pub(super) in_burst: bool,
    pub(super) rivals: KnownRivals,
}

/// A step and the workers that are best for its next task, best first.
type Placement = (QueuedStep, ClassId, Vec<ScoredWorker>);

/// Books up to `budget` tasks, and returns how many it booked. A class that fits nowhere is passed over for the whole
/// round, and is not looked at again before some worker has more room. So the cost of a round follows classes and
/// bookings, and not the backlog.
///
/// The caller sets the time first ([`Planner::set_now`]), and brings the means up to date
/// ([`Planner::refresh_statistics`]).
pub fn round<W: Work>(work: &mut W, budget: usize, out: &mut W::Out) -> usize {
    let plan = work.plan_mut();
    plan.instance.idle_workers = plan.workers.idle_count();
    plan.instance.total_workers = plan.workers.open_count();
    if !plan.needs_round {
        return 0;
    }
    reserving::update_reservation_starts(work);
    work.plan_mut().workers.resort();
    readmit_for_gains(work);
    let mut round = work.plan_mut().begin_round();
    let mut booked = 0;
    while booked < budget {
        let Some((queue, queued_step, class)) = work.plan_mut().next_step(&mut round) else {
            if work.plan_mut().allow_burst(&mut round) {
                continue;
            }
            break;
        };
        if work.plan().classes.get(class).is_gang() {
            booked += gang::book_gang(work, (queue, queued_step, class), &mut round, out);
            continue;
        }
        let Some((queued_step, class, ranked)) = find_placement(work, queue, queued_step, class, &mut round)
        else {
            continue;
        };
        let worker = ranked[0].worker;
        let booking = Booking { queue, queued_step, worker, is_ahead: false };
        let judged = ranked.iter().map(|ranked| ranked.worker);
        let longest_ms = record_booking(work, &booking, None, judged);
        booked += work.book(&booking, &mut round.filter, out);
        work.plan_mut().note_placement(&booking, (class, class), longest_ms, &mut round);
    }
    let plan = work.plan_mut();
    plan.queues.resume_exhausted(&mut round.filter);
    // What starts together may be more than the budget.
    plan.needs_round = booked >= budget || round.unjudged;
    if booked < budget {
        work.widen(out);
        if !work.plan().full.is_empty() && work.has_short_steps() {
            booked += prefetch::prefetch(work, budget - booked, out);
            work.plan_mut().needs_round |= booked >= budget;
        }
        end_round(work, round);
    }
    booked
}

/// Records what a task that is about to be booked waited for and must fetch, and, where workers were `judged` for it,
/// the decision. The task is that of this `index`, or else the step's first. Returns how many milliseconds it runs at
/// most, as far as that is known.
pub(super) fn record_booking<W: Work>(
    work: &mut W,
    booking: &Booking,
    index: Option<u32>,
    judged: impl ExactSizeIterator<Item = WorkerId>,
) -> Option<f64> {
    let room = std::mem::take(&mut work.plan_mut().seen_room);
    let (key, plan) = (booking.queued_step.step(), work.plan());
    let facts = work.facts(key)?;
    let (wait_s, dependents) = (plan.now.since(facts.ready_since) as f64 / 1e9, facts.dependents);
    let request = request_with(work, key, booking.queue, facts);
    // Steps that read nothing say nothing about fetching.
    let worker = plan.workers.get(booking.worker).filter(|_| !facts.reads.is_empty());
    let missing = worker.and_then(|worker| plan.match_context().missing(&request, worker));
    let index = index.or(facts.first_ready).filter(|_| judged.len() > 0);
    let decision = index.map(|index| Decision::new(plan, &request, index, judged, room));
    let longest_ms = facts.longest_ms();
    let plan = work.plan_mut();
    plan.record(Metric::WaitS, wait_s);
    plan.record(Metric::Dependents, dependents);
    if let Some(missing) = missing {
        plan.record(Metric::MissingKeys, missing.keys.into());
        plan.record(Metric::MissingBytes, missing.bytes as f64);
    }
    if let Some(decision) = decision {
        plan.remember(decision);
    }
    longest_ms
}

impl Planner {
    /// What did not fit when the last full round ended still does not fit, except where a worker gained room.
    fn begin_round(&mut self) -> Round {
        let gained = self.workers.gained_workers();
        if gained.is_none() {
            // Too many to look at: the index says what fits.
            self.full.clear();
        }
        let gained = gained.unwrap_or_default();
        Round { watched: self.reservations.unsuspecting(), gained, ..Round::default() }
    }

    /// The step whose turn it is, of those whose class may fit.
    fn next_step(&mut self, round: &mut Round) -> Option<(QueueId, QueuedStep, ClassId)> {
        self.forget_vanished(&mut round.filter);
        let (full, classes, blocked_classes) = (&self.full, &self.classes, &round.filter.blocked_classes);
        let both = blocked_classes.iter().filter(|class| full.contains(**class)).count();
        let some_open = self.queues.class_count() > full.len() + blocked_classes.len() - both;
        let workers = &self.workers;
        let gained = || round.gained.iter().filter_map(|id| workers.get(*id));
        if !some_open && !full.fitting(classes, gained()).any(|class| !blocked_classes.contains(&class)) {
            return None;
        }
        let fits =
            |class: ClassId| gained().any(|worker| placement::takes_part_now(classes.get(class), worker));
        self.queues.next(&mut round.filter, &|class| !full.contains(class) || fits(class))
    }

    /// Drops classes of which nothing waits any more.
    pub(super) fn forget_vanished(&mut self, filter: &mut RoundFilter) {
        for class in self.queues.take_vanished() {
            self.full.remove(class);
            filter.blocked_classes.remove(&class);
        }
    }

    /// No other queue can use what is left, so queues that were stopped by their quota may go on to their burst.
    /// Returns false if none may.
    fn allow_burst(&mut self, round: &mut Round) -> bool {
        if round.in_burst || round.blocked.over_quota.is_empty() {
            return false;
        }
        round.in_burst = true;
        let bursting = |queue: QueueId| self.queues.get(queue).record.burst_cpu.is_some();
        let before = round.blocked.over_quota.len();
        round.blocked.over_quota.retain(|(queue, _), _| !bursting(*queue));
        round.filter.blocked_in_queue.retain(|(queue, _)| !bursting(*queue));
        self.queues.resume_exhausted(&mut round.filter);
        before > round.blocked.over_quota.len()
    }

    /// After a placement: classes that were passed over by it are marked as overtaken. A reservation whose holder was
    /// placed ends. A task that will still run when another holder starts uses up what is spare beside that holder.
    /// `part` is the class of the task, and `class` that whose turn it was; they differ where tasks start together.
    pub(super) fn note_placement(
        &mut self,
        booking: &Booking,
        (class, part): (ClassId, ClassId),
        longest_ms: Option<f64>,
        round: &mut Round,
    ) {
        let Booking { queue, queued_step, worker, .. } = *booking;
        round.placed.insert(class);
        if self.reservations.holder(worker) == Some(class) {
            self.reservations.release(worker);
            self.reserved.remove(&worker);
            round.freed.push(worker);
        }
        let ends = longest_ms.map(|ms| self.now.after((ms * NS_PER_MS as f64) as u64));
        if let Some(reserved) = self.reserved.get_mut(&worker).filter(|reserved| reserved.is_met_by(ends))
            && let Some(taken) = self.classes.find(part)
        {
            reserved.spare.sub(&taken.request);
        }
        let Some(worker) = self.workers.get(worker) else { return };
        let (classes, queues, reservations) = (&self.classes, &self.queues, &mut self.reservations);
        round.watched.retain(|waiting| {
            let passed = *waiting != class
                && classes.find(*waiting).is_some_and(|waiting| placement::could_take_part(waiting, worker))
                && queues.overtakes(queue, &queued_step, *waiting);
            if passed {
                reservations.overtaken(*waiting);
            }
            !passed
        });
    }
}

/// The choice among workers for the step whose turn it is, or among its queue's steps for the worker found; `None` if
/// it cannot be placed. `round` notes the reason.
fn find_placement<W: Work>(
    work: &mut W,
    queue: QueueId,
    queued_step: QueuedStep,
    class: ClassId,
    round: &mut Round,
) -> Option<Placement> {
    if is_capped(work, queue, class, round) {
        return None;
    }
    let (key, plan) = (queued_step.step(), work.plan());
    // A full class fits no worker but those that gained room.
    let among = plan.full.contains(class).then_some(&*round.gained);
    let request = placement_request(work, key, queue)?;
    let (outcome, looks) = placement::search(&request, &plan.match_context(), among);
    plan.searched(looks);
    match outcome {
        PlacementOutcome::Best(ranked) => {
            Some(prefer_rival(work, queue, (queued_step, class), ranked, round))
        }
        PlacementOutcome::NoRoom => {
            round.has_no_room(work, class);
            None
        }
        PlacementOutcome::Vetoed(why, looks) => {
            let since = work.facts(key)?.ready_since;
            round.set_aside(work, (queue, class, queued_step), since, (why, looks));
            None
        }
    }
}

/// True if the queue's quota or a farm-wide limit keeps the class from being started. `round` notes which.
pub(super) fn is_capped<W: Work>(work: &W, queue: QueueId, class: ClassId, round: &mut Round) -> bool {
    let plan = work.plan();
    let cpu = plan.classes.get(class).cpu_at_a_time();
    if let Some(quota) = plan.queues.over_quota(queue, cpu, round.in_burst) {
        let whole = plan.queues.whole(queue);
        round.filter.blocked_in_queue.insert((whole, class));
        round.blocked.over_quota.insert((whole, class), quota);
        return true;
    }
    if work.is_limit_reached(plan.classes.get(class)) {
        round.filter.blocked_classes.insert(class);
        round.blocked.out_of_licences.insert(class);
        return true;
    }
    false
}

impl Round {
    /// No worker has room for the class, or too few have for tasks that start together.
    pub(super) fn has_no_room<W: Work>(&mut self, work: &mut W, class: ClassId) {
        self.filter.blocked_classes.insert(class);
        self.crowded.insert(class);
        let Planner { full, classes, .. } = work.plan_mut();
        full.insert(class, classes.get(class));
    }

    /// A rule vetoes the step on the workers with room; how many of these were judged.
    pub(super) fn set_aside<W: Work>(
        &mut self,
        work: &mut W,
        (queue, class, queued_step): (QueueId, ClassId, QueuedStep),
        since: Time,
        veto: (Ineligible, u32),
    ) {
        work.plan_mut().set_aside((queue, class, queued_step), since, veto);
        let misses = self.misses.entry((queue, class)).or_default();
        *misses += 1;
        if *misses >= work.plan().step_misses_max {
            self.filter.blocked_in_queue.insert((queue, class));
            self.unjudged = true;
        }
    }
}

/// What a task of a step asks of workers; `None` if there is no such step.
pub fn placement_request<W: Work>(work: &W, key: StepKey, queue: QueueId) -> Option<PlacementRequest<'_>> {
    Some(request_with(work, key, queue, work.facts(key)?))
}

pub(super) fn request_with<'a, W: Work>(
    work: &'a W,
    key: StepKey,
    queue: QueueId,
    facts: StepFacts<'a>,
) -> PlacementRequest<'a> {
    let plan = work.plan();
    let class = plan.classes.get(facts.class);
    let has_arch = class.needs.iter().any(|need| need.key == "arch");
    let mut context = JobContext::of(facts.hints, has_arch, (&class.request).into());
    context.waited_ms = plan.now.since(facts.ready_since) / NS_PER_MS;
    context.dependents = facts.dependents;
    context.prediction = facts.prediction.copied();
    // What was booked is as much of the prediction as any worker has.
    context.largest_memory = Some(class.request.memory);
    PlacementRequest {
        step: key,
        class_id: facts.class,
        class,
        band: plan.queues.get(queue).band(),
        job: context,
        reads: facts.reads,
        kind: facts.profile,
        avoids: facts.avoids,
        longest_ms: facts.longest_ms(),
        others_wait: plan.queues.has_choice(queue),
        locality: !facts.reads.is_empty() || facts.hints.prefer_local,
        prefers: &facts.hints.prefers,
    }
}

/// Steps that a worker with new room would take are judged again by this round. Of each class no more are looked at
/// than a round may find vetoed.
fn readmit_for_gains<W: Work>(work: &mut W) {
    let plan = work.plan();
    if plan.vetoed.is_empty() {
        return;
    }
    let gained = plan.workers.gained_workers();
    if gained.as_ref().is_some_and(Vec::is_empty) {
        return;
    }
    let gained = gained.map(|ids| ids.into_iter().filter_map(|id| plan.workers.get(id)).collect::<Vec<_>>());
    let context = plan.match_context();
    let (mut back, mut looked_last) = (Vec::new(), Vec::new());
    for id in plan.vetoed.by_class().keys() {
        let class = plan.classes.get(*id);
        let roomy: Option<Vec<_>> =
            gained.as_ref().map(|gained| gained.iter().filter(|w| placement::fits_now(class, w)).collect());
        if roomy.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        for (looks, key) in plan.vetoed.in_rotation(*id, plan.step_misses_max).enumerate() {
            if roomy.as_ref().is_none_or(|roomy| is_taken_by_some(work, key, roomy, &context)) {
                back.push(key);
            }
            if looks + 1 == plan.step_misses_max {
                looked_last.push((*id, key));
            }
        }
    }
    let plan = work.plan_mut();
    looked_last.into_iter().for_each(|(class, key)| plan.vetoed.looked_at(class, key));
    back.into_iter().for_each(|key| plan.take_back(key));
}

fn is_taken_by_some<W: Work>(
    work: &W,
    key: StepKey,
    workers: &[&&crate::worker::Worker],
    context: &MatchContext,
) -> bool {
    let queue = work.plan().vetoed.get(key).map(|vetoed| vetoed.queue);
    let request = queue.and_then(|queue| placement_request(work, key, queue));
    request.is_some_and(|request| workers.iter().any(|worker| context.judge(&request, worker).is_ok()))
}

/// The round came to its end: notes what waits for what, and gives reservations to the classes that earned one.
fn end_round<W: Work>(work: &mut W, round: Round) {
    let plan = work.plan_mut();
    // Something else than room kept these off a worker that has room: the next step of the class is tried.
    let gained = round.gained.iter().filter_map(|id| plan.workers.get(*id));
    let fitting = plan.full.fitting(&plan.classes, gained);
    // Tasks that start together may have found too few such workers.
    let is_open = |class: &ClassId| !plan.classes.get(*class).is_gang() || !round.crowded.contains(class);
    let fitting: Vec<ClassId> = fitting.filter(is_open).collect();
    fitting.into_iter().for_each(|class| plan.full.remove(class));
    plan.workers.settle_gains();
    plan.blocked = round.blocked;
    // What the reservation kept off them was passed over in this round.
    plan.needs_round |= !round.freed.is_empty();
    round.freed.into_iter().for_each(|worker| plan.workers.gained(worker));
    reserving::reserve(work, &round.placed);
}
