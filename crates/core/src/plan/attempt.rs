//! What one round has found out so far, and what is noted of each task that it tries to place.

use super::booking::Booking;
use super::decision::{BlockedWork, Decision};
use super::placement::{self, BuildTurn, Ineligible};
use super::planner::Planner;
use super::request::request_with;
use super::rivals::KnownRivals;
use super::work::Work;
use crate::ids::{ClassId, QueueId, WorkerId};
use crate::job::QueuedStep;
use crate::queues::{RoundFilter, again_ms, behind_build, limit_credit};
use crate::score::windows::Metric;
use crate::time::{NS_PER_MS, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What a round finds out.
#[derive(Default)]
pub(super) struct Round {
    pub(super) filter: RoundFilter,
    pub(super) blocked: BlockedWork,
    /// Workers that have more room than when the last full round ended.
    pub(super) gained: Vec<WorkerId>,
    pub(super) placed: BTreeSet<ClassId>,
    /// Classes for which too little room was found.
    pub(super) crowded: BTreeSet<ClassId>,
    /// Steps of each queue and class that a rule was found to veto.
    pub(super) misses: BTreeMap<(QueueId, ClassId), usize>,
    /// Steps of some queue and class were left for the next round.
    pub(super) unjudged: bool,
    /// Classes that wait for a reservation and were not seen to be overtaken.
    pub(super) watched: Vec<ClassId>,
    /// Workers whose reservation ended because the holder started there.
    pub(super) freed: Vec<WorkerId>,
    /// Queues may exceed their quotas, up to their burst: no other queue can use what is left.
    pub(super) in_burst: bool,
    pub(super) rivals: KnownRivals,
}

impl Round {
    /// No worker has room for the class, or too few have for tasks that start together.
    pub(super) fn has_no_room<W: Work>(&mut self, work: &mut W, class: ClassId) {
        self.filter.blocked_classes.insert(class);
        self.crowded.insert(class);
        let Planner { full, classes, .. } = work.plan_mut();
        full.insert(class, classes.get(class));
    }

    /// A task of the class would take cpus from a build whose turn comes first. This round asks the class of this part of
    /// the queue no more, and another round is due when its turn may have come.
    pub(super) fn yields<W: Work>(
        &mut self,
        work: &mut W,
        (queue, class): (QueueId, ClassId),
        build: BuildTurn,
    ) {
        self.filter.blocked_in_part.insert((queue, class));
        let plan = work.plan_mut();
        // There is room. Its turn comes with time, and then no worker gains any.
        plan.full.remove(class);
        let asked = plan.yielding_cpu.entry(queue).or_default();
        *asked = plan.classes.get(class).request.cpu.max(*asked);
        let cpu = *asked;
        let known = plan.workers.get(build.worker).and_then(|worker| {
            Some((worker.booked.jobservers().get(&build.task)?.queue, worker.record.capacity.cpu))
        });
        if let Some((holder, worker_cpu)) = known
            && let Some(gap) = behind_build(&plan.queues, queue, holder, cpu)
        {
            let again = plan.now.after(again_ms(&plan.queues, queue, holder, gap) * NS_PER_MS);
            plan.yields_until = Some(plan.yields_until.map_or(again, |until| until.min(again)));
            limit_credit(&mut plan.queues, (queue, holder), gap, worker_cpu);
        }
        self.blocked.build_turns.insert((queue, class), build);
    }

    /// A rule vetoes the step on the workers with room; how many of these were judged.
    pub(super) fn set_aside<W: Work>(
        &mut self,
        work: &mut W,
        (queue, class, queued_step): (QueueId, ClassId, QueuedStep),
        since: Time,
        veto: (Ineligible, u32),
    ) {
        let Planner { vetoed, queues, now, .. } = work.plan_mut();
        vetoed.set_aside(queues, *now, (queue, class, queued_step), since, veto);
        let misses = self.misses.entry((queue, class)).or_default();
        *misses += 1;
        if *misses >= work.plan().step_misses_max {
            self.filter.blocked_in_part.insert((queue, class));
            self.unjudged = true;
        }
    }

    /// After a placement: classes that were passed over by it are marked as overtaken. A reservation whose holder was
    /// placed ends. A task that will still run when another holder starts uses up what is spare beside that holder.
    /// `part` is the class of the task, and `class` that whose turn it was; they differ where tasks start together.
    pub(super) fn note_placement(
        &mut self,
        plan: &mut Planner,
        booking: &Booking,
        (class, part): (ClassId, ClassId),
        longest_ms: Option<f64>,
    ) {
        let Booking { queue, queued_step, worker, .. } = *booking;
        self.placed.insert(class);
        if plan.reservations.holder(worker) == Some(class) {
            plan.reservations.release(worker);
            plan.reserved.remove(&worker);
            self.freed.push(worker);
        }
        let ends = longest_ms.map(|ms| plan.now.after((ms * NS_PER_MS as f64) as u64));
        if let Some(reserved) = plan.reserved.get_mut(&worker).filter(|reserved| reserved.is_met_by(ends))
            && let Some(taken) = plan.classes.find(part)
        {
            reserved.spare.sub(&taken.request);
        }
        let Some(worker) = plan.workers.get(worker) else { return };
        let (classes, queues, reservations) = (&plan.classes, &plan.queues, &mut plan.reservations);
        self.watched.retain(|waiting| {
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
    let decision = index.map(|index| Decision::new(&plan.match_context(), &request, index, judged, room));
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
