//! Why a task is where it is.

use super::entitlement::pool;
use super::explanation::{Change, Explanation, Reason, Turn};
use super::gangs::{leader_of, request_of, say_missing, say_too_few, too_little_room, unready_mates};
use super::survey::{Survey, look_over};
use super::waits::over_quota;
use crate::bounds;
use crate::class::Class;
use crate::engine::Engine;
use crate::ids::{QueueId, StepKey, TaskId};
use crate::job::{BackOff, DependencyKind, Job, QueuedStep, TaskState};
use crate::plan::placement::{self, PlacementRequest};
use crate::plan::{self, Decision};
use crate::time::Time;

/// Explains a task of an active job; `None` if the engine does not hold the job or it has no such
/// task.
pub fn task(engine: &Engine, task: TaskId) -> Option<Explanation> {
    let job = engine.job(task.job)?;
    let total: u32 = job.spec.steps.iter().map(|s| s.tasks).sum();
    if task.index >= total {
        return None;
    }
    if let Some(attempt) = engine.attempt(task) {
        let state = if attempt.started.is_some() { TaskState::Running } else { TaskState::Booked };
        // Whether an adopted attempt waits or runs, only its worker knows.
        let heard = engine.workers().get(attempt.worker).is_some_and(|worker| worker.link.connected);
        let reason = Reason::Placed {
            worker: attempt.worker,
            started: attempt.started,
            queued: attempt.queued && heard,
        };
        return Some(with_decision(engine, task, Explanation::bare(state, reason)));
    }
    let state = job.state_of(task.index);
    let key = StepKey { job: task.job, step: job.step_of(task.index) };
    let reason = match state {
        TaskState::Succeeded | TaskState::Failed => Reason::Ended,
        TaskState::Canceled | TaskState::Skipped => job.stop.map_or(Reason::Ended, Reason::Stopped),
        _ if job.held => Reason::Held,
        _ if !job.after.is_empty() => Reason::AfterJobs(job.after.iter().copied().collect()),
        TaskState::Waiting => waiting_for(engine, key, task.index),
        _ => return Some(explain_ready(engine, key, task, state)),
    };
    let mut explanation = Explanation::bare(state, reason);
    if explanation.reason == Reason::Held {
        explanation.changes.push(Change::Release);
    }
    Some(with_decision(engine, task, explanation))
}

/// The decision that placed the task last, if it is remembered.
pub fn decision(engine: &Engine, task: TaskId) -> Option<&Decision> {
    engine.planner().decisions().find(|decision| decision.task == task)
}

fn with_decision(engine: &Engine, task: TaskId, mut explanation: Explanation) -> Explanation {
    if let Some(decision) = decision(engine, task) {
        explanation.judged = decision.ranked();
        explanation.decided = Some(decision.at);
    }
    explanation
}

fn waiting_for(engine: &Engine, key: StepKey, index: u32) -> Reason {
    let Some(job) = engine.job(key.job) else { return Reason::Ended };
    if let Some(mates) = unready_mates(job, index).filter(|_| job.is_unlocked_alone(key.step.into(), index)) {
        return mates;
    }
    let (step, spec) = (&job.steps[usize::from(key.step)], &job.spec.steps[usize::from(key.step)]);
    let open = spec.depends.iter().filter_map(|dependency| {
        let on = usize::from(dependency.on);
        let (first, name) = (&job.steps[on], job.spec.steps[on].name.clone());
        match dependency.kind {
            DependencyKind::Step => {
                let left = job.spec.steps[on].tasks - first.succeeded.len();
                (left > 0).then(|| (name, left, first.failed.len()))
            }
            DependencyKind::Task => {
                let first_index = index - step.base + first.base;
                let failed = u32::from(first.failed.contains(first_index));
                (!first.succeeded.contains(first_index)).then_some((name, 1, failed))
            }
        }
    });
    Reason::Steps(open.collect())
}

fn explain_ready(engine: &Engine, key: StepKey, task: TaskId, state: TaskState) -> Explanation {
    let mut explanation = Explanation::bare(state, Reason::Turn);
    let Some(job) = engine.job(key.job) else { return explanation };
    // What starts together is held back together.
    let leader = leader_of(job, key);
    let Some(request) = request_of(engine, job, key) else { return explanation };
    let found = look_over(engine, &request, &mut explanation);
    let Some(whole) = engine.class_of(leader) else { return explanation };
    let too_few = plan::too_few_at_a_time(engine.planner(), whole).filter(|_| found.could > 0);
    if let Some(why) = &too_few {
        say_too_few(engine, &request, why, &mut explanation);
        say_missing(engine, key, leader, &mut explanation);
    }
    explanation.reason = if found.workers == 0 {
        Reason::NoWorkers
    } else if found.could == 0 || too_few.is_some() {
        Reason::FitsNowhere
    } else if let Some((reason, change)) = held_back(engine, job, leader, whole) {
        explanation.changes.splice(0..0, change);
        reason
    } else {
        waits_for_room(engine, job, leader, task, found, &mut explanation)
    };
    explanation.changes.truncate(bounds::EXAMPLES_MAX);
    explanation.turn = turn_of(engine, &request, task, &explanation.reason);
    explanation
}

/// What keeps a step from being started whatever room there is, and what would change that.
fn held_back(engine: &Engine, job: &Job, leader: StepKey, whole: &Class) -> Option<(Reason, Option<Change>)> {
    let queue = engine.queues().get(engine.queues().whole(job.queue));
    if let Some(note) = &queue.record.paused {
        return Some((Reason::Paused(note.clone()), Some(Change::Resume(queue.name().to_owned()))));
    }
    // What keeps one of those with which it starts keeps it, too.
    let mates = || job.gang_steps(leader.step.into());
    let back_off =
        mates().find_map(|step| engine.licences().back_off(StepKey { step: step as u16, ..leader }));
    if let Some(known) = back_off {
        let reason = Reason::BackOff { name: known.limit.clone(), until: known.until, times: known.times };
        return Some((reason, Some(try_again_now(engine, known))));
    }
    if let Some(cap) = job.cap_reached(leader.step.into()) {
        return Some((Reason::MaxRunning(cap), None));
    }
    if let Some(running) = mates().find_map(|step| engine.profiles().throttled(job.steps[step].profile)) {
        return Some((Reason::Probing { running }, None));
    }
    if let Some(quota_cpu) = over_quota(engine, job.queue, leader) {
        let booked_cpu = queue.booked_cpu;
        let needed = booked_cpu + u64::from(whole.cpu_at_a_time());
        let change = Change::Quota(queue.name().to_owned(), needed);
        return Some((Reason::Quota { quota_cpu, booked_cpu }, Some(change)));
    }
    let (name, max, _) = engine.licences().reached(whole)?;
    Some((Reason::Limit { name: name.to_owned(), max }, Some(Change::Limit(name.to_owned(), max + 1))))
}

/// Why no worker starts a task that nothing else holds back.
fn waits_for_room(
    engine: &Engine,
    job: &Job,
    leader: StepKey,
    task: TaskId,
    found: Survey,
    explanation: &mut Explanation,
) -> Reason {
    if let Some(reason) = unready_mates(job, task.index).or_else(|| too_little_room(engine, job, leader)) {
        return reason;
    }
    if explanation.open_workers > 0 {
        // Without a veto, what vetoed it has changed since it was judged last: it is judged again soon.
        let vetoed = engine.planner().vetoed.get(leader);
        return vetoed.map_or(Reason::Turn, |vetoed| Reason::Closed(vetoed.why.clone()));
    }
    if let Some(closed) = found.closed {
        return Reason::Closed(closed);
    }
    let Some(ahead) = engine.queues().first_ahead(job.queue) else { return Reason::Full };
    explanation.changes.push(Change::behind(ahead, &job.spec.queue, &job.spec.user));
    Reason::behind(ahead)
}

/// Where a task's step, or the one with which it starts, stands in its queue; `None` if it does not.
fn turn_of(engine: &Engine, request: &PlacementRequest, task: TaskId, reason: &Reason) -> Option<Turn> {
    let (step, job) = (engine.ledger().step(request.step)?, engine.job(task.job)?);
    let queued_step = engine.ledger().step(leader_of(job, request.step))?.enlisted.as_ref()?;
    let steps_ahead = engine.queues().get(job.queue).position(queued_step);
    let tasks_ahead = step.ready.ranges().map(|r| r.end.min(task.index).saturating_sub(r.start)).sum();
    // When a queue, a licence or a kind is let go on is not for workers to say.
    let by_room = reason.is_of_room() || matches!(reason, Reason::Closed(_));
    // When all workers of a gang have room at once is not known.
    let by_room = by_room && !job.is_in_gang(request.step.step.into());
    Some(Turn {
        tasks_ahead,
        starts: by_room.then(|| expected_start(engine, request, tasks_ahead, steps_ahead)).flatten(),
        ..turn_in_queue(engine, job.queue, queued_step, request.class)
    })
}

/// Where a step stands in a queue, without the tasks before its own.
pub(super) fn turn_in_queue(engine: &Engine, part: QueueId, queued: &QueuedStep, class: &Class) -> Turn {
    let queue = engine.queues().get(engine.queues().whole(part));
    Turn {
        queue: queue.name().to_owned(),
        band: queue.band(),
        queues_ahead: engine.queues().queues_ahead(part),
        users_ahead: engine.queues().users_ahead(part),
        steps_ahead: engine.queues().get(part).position(queued),
        tasks_ahead: 0,
        weight: queue.share().weight(),
        pool: pool(engine, class, queue.name()),
        starts: None,
    }
}

fn try_again_now(engine: &Engine, known: &BackOff) -> Change {
    let rule = engine.licences().limits().get(&known.limit).and_then(|limit| limit.busy.as_ref());
    Change::TryAgain(known.limit.clone(), rule.map_or(bounds::BACK_OFF_MS_DEFAULT, |busy| busy.back_off_ms))
}

/// When a task is expected to start that has `tasks_ahead` others of its step before it. Each running task that ends on
/// a worker of its class makes room for one of them.
fn expected_start(
    engine: &Engine,
    request: &PlacementRequest,
    tasks_ahead: u32,
    steps_ahead: usize,
) -> Option<Time> {
    let mut starts = Vec::new();
    for worker in engine
        .workers()
        .present()
        .filter(|w| w.takes_work() && placement::eligible_when_idle(request.class, w))
    {
        starts.push(plan::starts_at(engine, request.class, worker)?);
        starts.extend(worker.booked.running().iter().filter_map(|task| plan::ends_at(engine, *task)));
    }
    starts.sort_unstable();
    // Nobody knows how long the steps before it will hold what becomes free.
    starts.get(tasks_ahead as usize).copied().filter(|_| steps_ahead == 0)
}
