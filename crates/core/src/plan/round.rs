//! One bounded scheduling round: bookings in turn until nothing fits, then a little work ahead for workers whose
//! tasks are short.

use super::attempt::{Round, is_capped, record_booking};
use super::booking::Booking;
use super::checked::BeforeBooking;
use super::placement::{self, Ineligible, MatchContext, PlacementOutcome, ScoredWorker};
use super::planner::Planner;
use super::request::placement_request;
use super::rivals::prefer_rival;
use super::work::Work;
use super::{gang, prefetch, reserving};
use crate::ids::{ClassId, QueueId, StepKey};
use crate::job::QueuedStep;

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
        let before = BeforeBooking::look(work.plan(), worker, queue);
        booked += work.book(&booking, &mut round.filter, out);
        before.assert_within_worker(work.plan());
        before.assert_within_quota(work.plan(), round.in_burst);
        round.note_placement(work.plan_mut(), &booking, (class, class), longest_ms);
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

impl Planner {
    /// What did not fit when the last full round ended still does not fit, except where a worker gained room.
    fn begin_round(&mut self) -> Round {
        let gained = self.workers.gained_workers();
        if gained.is_none() {
            // Too many to look at: the index says what fits.
            self.full.clear();
        }
        let gained = gained.unwrap_or_default();
        self.yielding_cpu.clear();
        self.yields_until = None;
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
            let Round { rivals, filter, in_burst, .. } = round;
            Some(prefer_rival(work, queue, (queued_step, class), ranked, rivals, (filter, *in_burst)))
        }
        PlacementOutcome::NoRoom => {
            round.has_no_room(work, class);
            None
        }
        PlacementOutcome::Vetoed(Ineligible::BuildTurn(build), _) => {
            round.yields(work, (queue, class), build);
            None
        }
        PlacementOutcome::Vetoed(why, looks) => {
            let since = work.facts(key)?.ready_since;
            round.set_aside(work, (queue, class, queued_step), since, (why, looks));
            None
        }
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
    for id in plan.vetoed.by_class.keys() {
        let class = plan.classes.get(*id);
        let roomy: Option<Vec<_>> =
            gained.as_ref().map(|gained| gained.iter().filter(|w| placement::fits_now(class, w)).collect());
        if roomy.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        let (first, in_turn) = plan.vetoed.to_look_at(*id, plan.step_misses_max);
        for key in first.chain(in_turn) {
            if roomy.as_ref().is_none_or(|roomy| is_taken_by_some(work, key, roomy, &context)) {
                back.push(key);
            }
        }
        looked_last.extend(in_turn.map(|key| (*id, key)));
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
