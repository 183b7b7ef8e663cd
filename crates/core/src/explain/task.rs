//! Why a task is where it is.

use super::advice;
use super::entitlement::pool;
use super::explanation::{Explanation, Reason, Turn};
use super::forecast::{forecast_range, forecast_start};
use super::gangs::{leader_of, request_of, say_too_few, unready_mates};
use super::reasons::{self, Known};
use super::survey::look_over;
use super::trial::Goal;
use crate::class::Class;
use crate::engine::Engine;
use crate::ids::{ClassId, QueueId, StepKey, TaskId};
use crate::job::{DependencyKind, QueuedStep, TaskState};
use crate::plan::placement::{self, Ineligible, PlacementRequest};
use crate::plan::{self, Decision};
use crate::time::Time;

/// Explains a task of an active job, with what would make it run and when it is expected to start; `None` if the engine
/// does not hold the job or it has no such task. Copies the engine, more than once: it is not for the engine's thread, nor
/// for lists.
pub fn task(engine: &Engine, task: TaskId) -> Option<Explanation> {
    let mut explanation = reason(engine, task)?;
    if !matches!(explanation.state, TaskState::Ready | TaskState::Waiting) {
        return Some(explanation);
    }
    let goal = Goal::Task(task);
    explanation.changes = advice::for_task(engine, task, &explanation);
    if let Some(turn) = explanation.turn.as_mut().filter(|_| ends_by_itself(engine, &explanation.reason)) {
        let forecast = forecast_range(engine, goal);
        turn.starts = forecast.map(|(at, _)| at);
        turn.starts_between = forecast.and_then(|(_, between)| between);
    }
    Some(explanation)
}

/// When a ready task of an active job is expected to start, as [`task`] says it; `None` where nothing tells. Copies the
/// engine: it is not for the engine's thread.
pub fn expected_start(engine: &Engine, task: TaskId) -> Option<Time> {
    let explanation = reason(engine, task)?;
    explanation.turn.filter(|_| ends_by_itself(engine, &explanation.reason))?;
    forecast_start(engine, Goal::Task(task))
}

/// True if the task waits for others to end, and not for a person or a machine.
fn ends_by_itself(engine: &Engine, reason: &Reason) -> bool {
    let of_others = |why: &Ineligible| match why {
        Ineligible::Reserved(_) | Ineligible::Vetoed { .. } | Ineligible::Limit { .. } => true,
        // A farm of which all workers are under pressure goes on with one task at a time on each.
        Ineligible::UnderPressure(_) => engine.workers().present().any(|worker| worker.reported.last_resort),
        _ => false,
    };
    match reason {
        Reason::Closed(why) => of_others(why),
        Reason::Limit { waiting_holder, .. } => waiting_holder.is_none(),
        Reason::Quota { .. } | Reason::MaxRunning(_) | Reason::Together { .. } => true,
        reason => reason.is_of_room(),
    }
}

/// Explains a task as [`task`] does, without what would make it run and without a forecast.
pub fn reason(engine: &Engine, task: TaskId) -> Option<Explanation> {
    let (state, known) = state_of(engine, task)?;
    match known {
        Some(reason) => Some(with_decision(engine, task, Explanation::bare(state, reason))),
        None => Some(explain_ready(engine, task, state)),
    }
}

/// The one reason for which a task is where it is, for lists: without a look at every worker.
pub fn brief(engine: &Engine, task: TaskId, known: &mut Known) -> Option<Reason> {
    let (_, reason) = state_of(engine, task)?;
    if reason.is_some() {
        return reason;
    }
    let job = engine.job(task.job)?;
    let key = StepKey { job: task.job, step: job.step_of(task.index) };
    reasons::of_ready(engine, job, key, task.index, known)
}

/// The state of a task, and the reason if it does not wait for a worker.
fn state_of(engine: &Engine, task: TaskId) -> Option<(TaskState, Option<Reason>)> {
    let job = engine.job(task.job)?;
    let total: u32 = job.spec.steps.iter().map(|s| s.tasks).sum();
    if task.index >= total {
        return None;
    }
    if let Some(attempt) = engine.attempt(task) {
        let state = if attempt.started.is_some() { TaskState::Running } else { TaskState::Booked };
        // Whether an adopted attempt waits or runs, only its worker knows.
        let heard = engine.workers().get(attempt.worker).is_some_and(|worker| worker.link.connected);
        let queued = attempt.queued && heard;
        let reason = Reason::Placed { worker: attempt.worker, started: attempt.started, queued };
        return Some((state, Some(reason)));
    }
    let state = job.state_of(task.index);
    let key = StepKey { job: task.job, step: job.step_of(task.index) };
    let reason = match state {
        TaskState::Succeeded | TaskState::Failed => Reason::Ended,
        TaskState::Canceled | TaskState::Skipped => job.stop.map_or(Reason::Ended, Reason::Stopped),
        _ if job.held => Reason::Held(job.id),
        _ if !job.after.is_empty() => Reason::AfterJobs(job.after.iter().copied().collect()),
        TaskState::Waiting => waiting_for(engine, key, task.index),
        _ => return Some((state, None)),
    };
    Some((state, Some(reason)))
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
    if let Some(first) = job.spec.after_tasks.filter(|_| !job.is_let_by_first(index)) {
        let task = TaskId { job: first, index };
        return Reason::FirstTask { task, is_over: is_over(engine, task) };
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

/// True if a task of another job cannot succeed any more, unless it is retried.
fn is_over(engine: &Engine, task: TaskId) -> bool {
    let Some(job) = engine.job(task.job).filter(|job| job.ended.is_none()) else { return true };
    engine.attempt(task).is_none()
        && matches!(job.state_of(task.index), TaskState::Failed | TaskState::Canceled | TaskState::Skipped)
}

fn explain_ready(engine: &Engine, task: TaskId, state: TaskState) -> Explanation {
    let mut explanation = Explanation::bare(state, Reason::Turn);
    let Some(job) = engine.job(task.job) else { return explanation };
    let key = StepKey { job: task.job, step: job.step_of(task.index) };
    let Some(request) = request_of(engine, job, key) else { return explanation };
    look_over(engine, &request, &mut explanation);
    let mut known = Known::default();
    let whole = engine.class_of(leader_of(job, key));
    if let Some(why) = whole.and_then(|whole| plan::too_few_at_a_time(engine.planner(), whole))
        && engine.workers().present().any(|worker| placement::eligible_when_idle(request.class, worker))
    {
        say_too_few(engine, request.class, &why, &mut explanation);
    }
    if let Some(reason) = reasons::of_ready(engine, job, key, task.index, &mut known) {
        explanation.reason = reason;
    }
    explanation.turn = turn_of(engine, &request, task, &explanation.reason, &mut known);
    explanation
}

/// Where a task's step, or the one with which it starts, stands in its queue; `None` if it does not.
fn turn_of(
    engine: &Engine,
    request: &PlacementRequest,
    task: TaskId,
    reason: &Reason,
    known: &mut Known,
) -> Option<Turn> {
    let (step, job) = (engine.ledger().step(request.step)?, engine.job(task.job)?);
    let queued_step = engine.ledger().step(leader_of(job, request.step))?.enlisted.as_ref()?;
    let tasks_ahead = step.ready.ranges().map(|r| r.end.min(task.index).saturating_sub(r.start)).sum();
    let turn = turn_in_queue(engine, job.queue, queued_step, (step.class, request.class), reason, known);
    Some(Turn { tasks_ahead, ..turn })
}

/// Where a step stands in a queue, without the tasks before its own.
pub(super) fn turn_in_queue(
    engine: &Engine,
    part: QueueId,
    queued: &QueuedStep,
    (id, class): (ClassId, &Class),
    reason: &Reason,
    known: &mut Known,
) -> Turn {
    let queue = engine.queues().get(engine.queues().whole(part));
    let ahead = reasons::ahead_of(engine, part, (id, class), known);
    let waits_for_room = reason.is_of_room() && *reason != Reason::Turn;
    Turn {
        queue: queue.name().to_owned(),
        band: queue.band(),
        queues_ahead: ahead.queues.len(),
        users_ahead: ahead.users.len(),
        steps_ahead: engine.queues().get(part).position(queued),
        tasks_ahead: 0,
        may_be_overtaken: waits_for_room
            && reasons::may_be_overtaken(engine, part, queued, (id, class), known),
        weight: queue.share().weight(),
        pool: pool(engine, class, queue.name()),
        starts: None,
        starts_between: None,
    }
}
