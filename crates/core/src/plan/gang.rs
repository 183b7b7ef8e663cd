//! Placing tasks that start together: each on a worker with room, those of one step on different workers, or none.

use super::attempt::{Round, is_capped, record_booking};
use super::booking::Booking;
use super::checked::BeforeBooking;
use super::forecast::room_when;
use super::matching::{Part, match_tasks};
use super::placement::{self, Ineligible, PlacementRequest};
use super::planner::Planner;
use super::request::placement_request;
use super::work::{GangBooking, GangPart, Work};
use crate::class::Class;
use crate::ids::{ClassId, QueueId, StepKey, WorkerId};
use crate::job::QueuedStep;
use crate::resources::Resources;
use crate::time::Time;
use crate::worker::Worker;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Where tasks go that start together.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum GangOutcome {
    /// Each has a worker.
    Placed(Vec<GangBooking>),
    /// Some have no worker.
    Short {
        /// Tasks that have a worker with room.
        placed: u32,
        tasks: u32,
        /// The first veto of a rule on a worker with room, and how many workers were judged.
        veto: Option<(Ineligible, u32)>,
    },
}

/// Chooses workers for the tasks that start when it is the step's turn; `None` if there are none.
pub fn place_gang<W: Work>(work: &W, leader: StepKey, queue: QueueId) -> Option<GangOutcome> {
    let parts = work.gang(leader)?;
    let class = work.facts(leader)?.class;
    let context = work.plan().match_context();
    let tasks: usize = parts.iter().map(|part| part.tasks.len()).sum();
    let mut candidates = Vec::with_capacity(parts.len());
    let (mut veto, mut looks) = (None, 0);
    for GangPart { step, tasks: own } in &parts {
        let request = part_request(work, *step, queue, class)?;
        let ranking = placement::rank(&request, &context, None, tasks);
        veto = veto.or(ranking.held);
        looks += ranking.looks;
        let workers = ranking.ranked.iter().map(|ranked| ranked.worker).collect();
        candidates.push(Part { class: request.class, workers, tasks: own.len() });
    }
    work.plan().searched(looks);
    let has_room =
        |worker, sum: &Resources| context.workers.get(worker).is_some_and(|worker| worker.has_room(sum));
    let chosen = match_tasks(&candidates, &has_room);
    let placed = chosen.iter().flatten().count();
    if placed < tasks {
        let veto = veto.map(|why| (why, looks));
        return Some(GangOutcome::Short { placed: placed as u32, tasks: tasks as u32, veto });
    }
    let mut chosen = chosen.into_iter().flatten();
    let mut placed = Vec::with_capacity(tasks);
    for GangPart { step, tasks } in parts {
        let own = tasks.into_iter().zip(chosen.by_ref());
        placed.extend(own.map(|(index, worker)| GangBooking { step, index, worker }));
    }
    Some(GangOutcome::Placed(placed))
}

/// What a task of a gang asks of workers; `None` if the job has no step of that number. `class` is the class
/// of the gang's first step.
///
/// Workers that are reserved for the gang are reserved under that class. Where a task failed the last time is not
/// avoided: the others may need the worker, and none starts without all.
pub fn part_request<W: Work>(
    work: &W,
    step: StepKey,
    queue: QueueId,
    class: ClassId,
) -> Option<PlacementRequest<'_>> {
    let request = placement_request(work, step, queue)?;
    Some(PlacementRequest { class_id: class, avoids: None, ..request })
}

/// The gang's turn: books all of its tasks, or none. Returns how many it booked.
pub(super) fn book_gang<W: Work>(
    work: &mut W,
    (queue, queued_step, class): (QueueId, QueuedStep, ClassId),
    round: &mut Round,
    out: &mut W::Out,
) -> usize {
    if is_capped(work, queue, class, round) {
        return 0;
    }
    let key = queued_step.step();
    let tasks = match place_gang(work, key, queue) {
        Some(GangOutcome::Placed(tasks)) => tasks,
        Some(GangOutcome::Short { veto: Some(veto), .. }) => {
            let since = work.facts(key).map(|facts| facts.ready_since).unwrap_or_default();
            round.set_aside(work, (queue, class, queued_step), since, veto);
            return 0;
        }
        Some(GangOutcome::Short { veto: None, .. }) | None => {
            round.has_no_room(work, class);
            return 0;
        }
    };
    let mut notes = Vec::with_capacity(tasks.len());
    for GangBooking { step, index, worker } in &tasks {
        let booking =
            Booking { queue, queued_step: queued_step.of_step(*step), worker: *worker, is_ahead: false };
        record_booking(work, &booking, Some(*index), std::iter::once(*worker));
        let facts = work.facts(*step);
        let before = BeforeBooking::look(work.plan(), *worker, queue);
        notes.push((booking, before, facts.map(|facts| (facts.class, facts.longest_ms()))));
    }
    work.book_gang(&tasks, queued_step, queue, &mut round.filter, out);
    for (booking, before, facts) in notes {
        before.assert_within_worker(work.plan());
        before.assert_within_quota(work.plan(), round.in_burst);
        let Some((part, longest_ms)) = facts else { continue };
        // The turn was the leader's.
        let booking = Booking { queued_step, ..booking };
        round.note_placement(work.plan_mut(), &booking, (class, part), longest_ms);
    }
    tasks.len()
}

/// The workers to reserve for a gang.
pub(super) enum GangTarget {
    /// These, one for each task, or for several that fit one.
    Workers(BTreeSet<WorkerId>),
    /// Some of those that it needs are reserved for others.
    Taken,
    /// On some of those that it needs, tasks wait for jobs of their own.
    Lending,
    /// The farm has too few that take work.
    TooFew,
}

/// The workers that are expected to have room for the gang first.
pub(super) fn target<W: Work>(work: &W, class: &Class) -> GangTarget {
    match choose(work, class, |holder| holder.is_none()) {
        Some(workers) => GangTarget::Workers(workers),
        None if choose(work, class, |_| true).is_some() => GangTarget::Taken,
        None if could_start_all(work.plan(), class, Worker::takes_work) => GangTarget::Lending,
        None => GangTarget::TooFew,
    }
}

/// The workers for a gang of which some are no longer reserved: the others, as far as they go with some that are reserved
/// for no class. `None` if there are too few of these.
pub(super) fn replacement<W: Work>(work: &W, id: ClassId, class: &Class) -> Option<BTreeSet<WorkerId>> {
    choose(work, class, |holder| holder.is_none_or(|holder| holder == id))
}

/// The workers for a gang, of those that `may` be taken from the class that they are reserved for. Reserved ones come
/// first.
fn choose<W: Work>(
    work: &W,
    class: &Class,
    may: impl Fn(Option<ClassId>) -> bool,
) -> Option<BTreeSet<WorkerId>> {
    let plan = work.plan();
    let holder = |worker: &Worker| plan.reservations.holder(worker.record.id);
    let may = |worker: &Worker| worker.takes_work() && worker.booked.lending() == 0 && may(holder(worker));
    let rank = |part: &Class, worker: &Worker| {
        let starts: Option<Time> = room_when(work, part, worker, |running| running.ends_by).map(|(at, _)| at);
        let is_free = holder(worker).is_none();
        (is_free, starts.is_none(), starts, Reverse(worker.free().cpu), worker.record.name.clone())
    };
    when_empty(plan, class, may, rank).into_iter().collect()
}

/// Why tasks that start together never could, although each alone could.
pub fn too_few_at_a_time(plan: &Planner, class: &Class) -> Option<Ineligible> {
    if !class.is_gang() {
        return None;
    }
    let chosen = when_empty(plan, class, |_| true, |_, worker| worker.record.id);
    let (could, tasks) = (chosen.iter().flatten().count() as u32, chosen.len() as u32);
    (could < tasks).then_some(Ineligible::TooFew { tasks, could })
}

/// True if workers for which `may` returns true could run all tasks that start together, were they empty.
pub fn could_start_all(plan: &Planner, class: &Class, may: impl Fn(&Worker) -> bool) -> bool {
    when_empty(plan, class, may, |_, worker| worker.record.id).iter().all(Option::is_some)
}

/// The worker of each task that starts together with others, were all workers empty: of those that `may` have one,
/// the first by `rank`.
fn when_empty<K: Ord>(
    plan: &Planner,
    class: &Class,
    may: impl Fn(&Worker) -> bool,
    rank: impl Fn(&Class, &Worker) -> K,
) -> Vec<Option<WorkerId>> {
    let tasks = class.tasks_at_a_time() as usize;
    let parts = class.parts().map(|part| {
        let could = plan.workers.present().filter(|worker| may(worker));
        let could = could.filter(|worker| placement::eligible_when_idle(part, worker));
        let mut ranked: Vec<(K, WorkerId)> =
            could.map(|worker| (rank(part, worker), worker.record.id)).collect();
        ranked.sort_unstable();
        // More than there are tasks need not be known: each could have one of its own.
        ranked.truncate(tasks);
        let workers = ranked.into_iter().map(|(_, id)| id).collect();
        Part { class: part, workers, tasks: part.nodes.unwrap_or(1) as usize }
    });
    let parts: Vec<Part> = parts.collect();
    let has_room = |worker, sum: &Resources| {
        plan.workers.get(worker).is_some_and(|worker| sum.fits(&worker.record.capacity))
    };
    match_tasks(&parts, &has_room)
}
