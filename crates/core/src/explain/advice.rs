//! What would make a task run. Whatever may help is a candidate; [`Trial`] says which of them do.

use super::explanation::{Advice, Change, Edit, Explanation, Reason, Starts};
use super::gangs::{leader_of, missing_mates, request_of};
use super::survey::{Obstacles, obstacles};
use super::trial::{Goal, Trial};
use crate::bounds;
use crate::class::Class;
use crate::engine::Engine;
use crate::ids::{QueueId, StepKey, TaskId};
use crate::job::Job;
use crate::plan;
use crate::plan::placement::{self, BuildTurn, Ineligible, PlacementRequest};
use crate::queues::{BAND_MAX, Queue};
use crate::tags::asks_executor;
use crate::time::Time;
use crate::worker::Worker;
use std::collections::BTreeSet;

/// Changes that are tried for one explanation, each on a copy of the engine.
const TRIALS_MAX: usize = 16;
/// Workers whose room is looked at for what waits for room.
const ROOMS_MAX: usize = 2;
/// Steps of a queue whose priorities are compared.
const STEPS_MAX: usize = 1_000;
/// Factors by which a larger weight is tried.
const FACTORS: [u32; 3] = [2, 10, 100];

/// A change, and the worker whose room the task would get once there is some.
type Candidate = (Change, Option<String>);

/// What would make a waiting task run, smallest first.
pub(super) fn for_task(engine: &Engine, task: TaskId, explanation: &Explanation) -> Vec<Advice> {
    let Some(job) = engine.job(task.job) else { return Vec::new() };
    let key = StepKey { job: task.job, step: job.step_of(task.index) };
    let reason = &explanation.reason;
    if matches!(reason, Reason::Held(_)) {
        return tried(engine, Goal::Task(task), vec![(Change::Release(job.id), None)]);
    }
    let (Some(request), Some(whole)) = (request_of(engine, job, key), engine.class_of(leader_of(job, key)))
    else {
        return Vec::new();
    };
    let is_gang = whole.is_gang();
    let rooms = if is_gang { Vec::new() } else { rooms(engine, request.class) };
    let room = rooms.first().cloned();
    let mut candidates: Vec<Candidate> = Vec::new();
    match reason {
        Reason::Ended
        | Reason::Placed { .. }
        | Reason::Stopped(_)
        | Reason::Held(_)
        | Reason::AfterJobs(_)
        | Reason::FirstTask { .. }
        | Reason::Steps(_)
        | Reason::Mates { .. }
        | Reason::Probing { .. }
        | Reason::MaxRunning(_)
        | Reason::Parked { .. } => return Vec::new(),
        Reason::Paused(_) | Reason::BackOff { .. } | Reason::Quota { .. } | Reason::Limit { .. } => {
            let ahead = explanation.turn.as_ref().map_or(0, |turn| turn.tasks_ahead);
            let changes = of_settings(engine, reason, (job.queue, whole), ahead);
            candidates.extend(changes.into_iter().map(|change| (change, room.clone())));
        }
        Reason::Full | Reason::Behind(_) | Reason::BehindUser(_) | Reason::Turn => {
            candidates.extend(rooms.iter().map(|room| (Change::Wait, Some(room.clone()))));
            let changes = of_turns(engine, job, reason);
            candidates.extend(changes.into_iter().map(|change| (change, room.clone())));
            candidates.extend(of_workers(engine, &request, is_gang));
        }
        Reason::NoWorkers | Reason::FitsNowhere | Reason::Closed(_) | Reason::Together { .. } => {
            let kept_off =
                matches!(reason, Reason::Closed(Ineligible::UnderPressure(_) | Ineligible::Vetoed { .. }));
            if let Reason::Closed(Ineligible::BuildTurn(build)) = reason {
                let changes = of_build_turn(engine, job.queue, build);
                candidates.extend(changes.into_iter().map(|change| (change, None)));
            }
            if kept_off && !is_gang {
                candidates.extend(next_to_end(engine, request.class).map(|room| (Change::Wait, Some(room))));
            }
            candidates
                .extend(of_mates(engine, key, leader_of(job, key)).into_iter().map(|mates| (mates, None)));
            candidates.extend(too_few(engine, &request, whole).into_iter().map(|change| (change, None)));
            candidates.extend(of_workers(engine, &request, is_gang));
            candidates.extend(Change::connect(&request.class.needs).map(|change| (change, None)));
        }
    }
    tried(engine, Goal::Task(task), candidates)
}

/// What would give an outside client its place, smallest first.
pub(super) fn for_place(
    engine: &Engine,
    request: &PlacementRequest,
    queue: QueueId,
    reason: &Reason,
) -> Vec<Advice> {
    let rooms = rooms(engine, request.class);
    let changes = of_settings(engine, reason, (queue, request.class), 0);
    let mut candidates: Vec<Candidate> =
        changes.into_iter().map(|change| (change, rooms.first().cloned())).collect();
    if let Reason::Closed(Ineligible::BuildTurn(build)) = reason {
        let changes = of_build_turn(engine, queue, build);
        candidates.extend(changes.into_iter().map(|change| (change, None)));
    }
    candidates.extend(rooms.into_iter().map(|room| (Change::Wait, Some(room))));
    candidates.extend(of_workers(engine, request, true));
    tried(engine, Goal::Place(request.step), candidates)
}

/// The candidates that start it, in their order.
fn tried(engine: &Engine, goal: Goal, candidates: Vec<Candidate>) -> Vec<Advice> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let base = Trial::of(engine, goal);
    // It is about to start.
    if base.is_placed() {
        return Vec::new();
    }
    let mut all: Vec<Advice> = Vec::new();
    for (change, room) in candidates.into_iter().take(TRIALS_MAX) {
        // Of several sizes of one change the first that helps is enough.
        if all.iter().any(|known| is_needless(&change, &known.change)) {
            continue;
        }
        let mut trial = base.clone();
        trial.make(&change);
        let starts = match room {
            _ if trial.is_placed() => Some(Starts::AtOnce),
            Some(room) => trial.placed_when_free(&room),
            None => None,
        };
        let Some(starts) = starts else { continue };
        all.push(Advice { change, starts });
        if all.len() == bounds::EXAMPLES_MAX {
            break;
        }
    }
    all
}

/// True if a change is more of the same, or would bring forward what is next by itself.
fn is_needless(change: &Change, known: &Change) -> bool {
    if matches!(known, Change::Wait) {
        return change.is_of_turns();
    }
    matches!(
        (change, known),
        (Change::Quota(..), Change::Quota(..))
            | (Change::Limit(..), Change::Limit(..))
            | (Change::Weight(..), Change::Weight(..))
            | (Change::UserWeight { .. }, Change::UserWeight { .. })
    )
}

/// Workers that could run the class, those first that are expected to have room first.
fn rooms(engine: &Engine, class: &Class) -> Vec<String> {
    let could = engine.workers().present();
    let could = could.filter(|worker| worker.takes_work() && placement::eligible_when_idle(class, worker));
    let mut rooms: Vec<(Time, &str)> = could
        .map(|worker| {
            let at = plan::starts_at(engine, class, worker).unwrap_or(Time(u64::MAX));
            (at, &*worker.record.name)
        })
        .collect();
    rooms.sort_unstable();
    rooms.into_iter().take(ROOMS_MAX).map(|(_, name)| name.to_owned()).collect()
}

/// The worker that could run the class, and whose tasks are expected to have ended first: pressure or a rule keeps it off
/// until then.
fn next_to_end(engine: &Engine, class: &Class) -> Option<String> {
    let runs = engine.workers().present().filter(|worker| {
        (worker.takes_work() || worker.reported.last_resort)
            && !worker.booked.running().is_empty()
            && placement::eligible_when_idle(class, worker)
    });
    let ended = |worker: &Worker| {
        let ends = worker.booked.running().iter().map(|task| engine.expected_end(*task));
        // An end that is not known is the last one.
        ends.map(|end| end.unwrap_or(Time(u64::MAX))).max()
    };
    let first = runs.min_by_key(|worker| (ended(worker), worker.record.name.clone()))?;
    Some(first.record.name.clone())
}

/// What an administrator could set, where a setting is in the way.
fn of_settings(
    engine: &Engine,
    reason: &Reason,
    (queue, class): (QueueId, &Class),
    ahead: u32,
) -> Vec<Change> {
    let queue = engine.queues().get(engine.queues().whole(queue));
    let name = queue.name().to_owned();
    match reason {
        Reason::Paused(_) => vec![Change::Resume(name)],
        Reason::BackOff { name, .. } => {
            let busy = engine.licences().limits().get(name).and_then(|limit| limit.busy.as_ref());
            let back_off_ms = busy.map_or(bounds::BACK_OFF_MS_DEFAULT, |busy| busy.back_off_ms);
            vec![Change::TryAgain(name.clone(), back_off_ms)]
        }
        Reason::Quota { booked_cpu, .. } => {
            let own = u64::from(class.cpu_at_a_time());
            let amounts = [own, own * (u64::from(ahead) + 1), ready_cpu(engine, &name)];
            let amounts: BTreeSet<u64> = amounts.into_iter().map(|cpu| booked_cpu + cpu.max(own)).collect();
            amounts.into_iter().map(|cpu| Change::Quota(name.clone(), cpu)).collect()
        }
        Reason::Limit { name, max, .. } => {
            let own = class.tasks_at_a_time();
            let numbers = [own, own.saturating_add(ahead), ready_tasks(engine, name)];
            let numbers: BTreeSet<u32> =
                numbers.into_iter().map(|number| max.saturating_add(number.max(own))).collect();
            numbers.into_iter().map(|number| Change::Limit(name.clone(), number)).collect()
        }
        _ => Vec::new(),
    }
}

/// Hundredths of a core that the ready tasks of a queue ask for.
fn ready_cpu(engine: &Engine, queue: &str) -> u64 {
    let jobs = engine.jobs().filter(|job| job.spec.queue == queue);
    let steps = jobs.flat_map(|job| job.steps.iter());
    let cpu = steps.map(|step| {
        let cpu = engine.class(step.class).map_or(0, |class| class.request.cpu);
        u64::from(cpu) * u64::from(step.ready.len())
    });
    cpu.sum()
}

/// Ready tasks that take one of a limit.
fn ready_tasks(engine: &Engine, limit: &str) -> u32 {
    let steps = engine.jobs().flat_map(|job| job.steps.iter());
    let limited =
        steps.filter(|step| engine.class(step.class).is_some_and(|class| class.limits.contains(limit)));
    limited.fold(0, |sum: u32, step| sum.saturating_add(step.ready.len()))
}

/// What would bring a task forward.
fn of_turns(engine: &Engine, job: &Job, reason: &Reason) -> Vec<Change> {
    let mut changes = Vec::new();
    let part = engine.queues().get(job.queue);
    let priorities = part.in_order().take(STEPS_MAX).filter_map(|(step, _)| engine.job(step.job()));
    let most = priorities.map(|other| other.spec.priority).max().unwrap_or(job.spec.priority);
    if let Some(more) = most.checked_add(1) {
        changes.push(Change::Priority(job.id, more));
    }
    let own = engine.queues().get(engine.queues().whole(job.queue));
    match reason {
        Reason::Behind(ahead) => {
            let band = engine.queues().id(ahead).map_or(0, |id| engine.queues().get(id).band());
            if band == own.band() {
                let weights =
                    larger(own.record.weight).map(|weight| Change::Weight(own.name().to_owned(), weight));
                changes.extend(weights);
            } else {
                changes.push(Change::Band(own.name().to_owned(), band.saturating_add(1).min(BAND_MAX)));
            }
            changes.push(Change::Pause(ahead.clone()));
        }
        Reason::BehindUser(_) => {
            let weights = larger(own.record.weight_of(&job.spec.user));
            changes.extend(weights.map(|weight| user_weight(own, &job.spec.user, weight)));
        }
        _ => {}
    }
    changes
}

/// What would bring the turn of a part of a queue before that of a build.
fn of_build_turn(engine: &Engine, part: QueueId, build: &BuildTurn) -> Vec<Change> {
    let own = engine.queues().get(engine.queues().whole(part));
    if own.name() == build.queue {
        let user = engine.queues().get(part).user().unwrap_or_default();
        return larger(own.record.weight_of(user)).map(|weight| user_weight(own, user, weight)).collect();
    }
    let weights = larger(own.record.weight).map(|weight| Change::Weight(own.name().to_owned(), weight));
    weights.chain([Change::Pause(build.queue.clone())]).collect()
}

fn user_weight(queue: &Queue, user: &str, weight: u32) -> Change {
    Change::UserWeight { queue: queue.name().to_owned(), user: user.to_owned(), weight }
}

fn larger(weight: u32) -> impl Iterator<Item = u32> {
    let weights: BTreeSet<u32> =
        FACTORS.into_iter().map(|factor| weight.saturating_mul(factor).min(bounds::WEIGHT_MAX)).collect();
    weights.into_iter().filter(move |more| *more > weight)
}

/// What would have to change on workers, or in the submission for a worker.
fn of_workers(engine: &Engine, request: &PlacementRequest, as_it_is: bool) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for Obstacles { worker, unmet } in obstacles(engine, request) {
        let is_other = asks_executor(&request.class.needs)
            && unmet.iter().any(|why| matches!(why, Ineligible::Attribute(_)));
        // Nobody gives an ordinary worker what makes it a host of another system.
        if is_other {
            continue;
        }
        if unmet.iter().all(has_remedy) {
            let lasting: Vec<Ineligible> =
                unmet.iter().filter(|why| !matches!(why, Ineligible::Busy(_))).cloned().collect();
            if !lasting.is_empty() {
                let change = Change::Worker { worker: worker.clone(), unmet: lasting };
                candidates.push((change, Some(worker.clone())));
            }
        }
        let edits: Option<Vec<Edit>> = unmet.iter().map(|why| edit(why, &worker)).collect();
        if let Some(edits) = edits.filter(|_| !as_it_is) {
            candidates.push((Change::Resubmit { worker, edits }, None));
        }
    }
    candidates
}

/// True if something can be done about it on the worker.
fn has_remedy(why: &Ineligible) -> bool {
    match why {
        Ineligible::Attribute(_)
        | Ineligible::Suspect
        | Ineligible::Draining(_)
        | Ineligible::LowSpace { .. }
        | Ineligible::UnderPressure(_)
        | Ineligible::Limit { .. }
        | Ineligible::Busy(_)
        | Ineligible::Foreign(_) => true,
        Ineligible::NotTarget
        | Ineligible::Executor
        | Ineligible::OtherQueues(_)
        | Ineligible::GpusLate
        | Ineligible::TooSmall(_)
        | Ineligible::TooFew { .. }
        | Ineligible::Quarantined { .. }
        | Ineligible::NetworkInUse
        | Ineligible::Reserved(_)
        | Ineligible::BuildTurn(_) => false,
        Ineligible::Vetoed { .. } => why.vetoed_use().is_some(),
    }
}

/// What a submission would have to ask for instead.
fn edit(why: &Ineligible, worker: &str) -> Option<Edit> {
    match why {
        Ineligible::NotTarget => Some(Edit::Target(worker.to_owned())),
        Ineligible::OtherQueues(queues) => Some(Edit::Queue(queues.first()?.clone())),
        Ineligible::Attribute(need) => Some(Edit::Without(need.clone())),
        // The step did not ask for what was learned, so asking for less does not help.
        Ineligible::TooSmall(short) | Ineligible::Busy(short) if short.have > 0 && short.learned == 0 => {
            Some(Edit::Less(short.resource.to_string(), short.have))
        }
        _ => None,
    }
}

/// Workers for the steps that start with this one and fit none, and with them those of the gang that are not heard from.
fn of_mates(engine: &Engine, key: StepKey, leader: StepKey) -> Vec<Change> {
    let mates = missing_mates(engine, key, leader);
    let (Some(whole), false) = (engine.class_of(leader), mates.is_empty()) else { return Vec::new() };
    let absent = engine.workers().present().filter(|worker| {
        placement::could_take_part(whole, worker)
            && placement::worker_blockers(worker).next() == Some(Ineligible::Suspect)
    });
    let absent = absent.take(bounds::EXAMPLES_MAX).map(|worker| Change::Worker {
        worker: worker.record.name.clone(),
        unmet: vec![Ineligible::Suspect],
    });
    let with_absent: Vec<Change> = mates.iter().cloned().chain(absent).collect();
    if with_absent.len() == mates.len() {
        return vec![Change::All(mates)];
    }
    vec![Change::All(mates), Change::All(with_absent)]
}

/// More workers, for tasks that start together on more than there are.
fn too_few(engine: &Engine, request: &PlacementRequest, whole: &Class) -> Option<Change> {
    let why = plan::too_few_at_a_time(engine.planner(), whole)?;
    let mut present = engine.workers().present();
    let like = present.find(|worker| placement::eligible_when_idle(request.class, worker))?;
    Some(Change::Worker { worker: like.record.name.clone(), unmet: vec![why] })
}
