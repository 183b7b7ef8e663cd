//! Why a task is where it is.

use super::entitlement::pool;
use super::explanation::{Change, Explanation, Reason, Turn};
use super::gangs::{leader_of, request_of, say_missing, say_too_few, too_little_room, unready_mates};
use super::survey::look_over;
use super::waits::over_quota;
use crate::bounds;
use crate::engine::Engine;
use crate::ids::{StepKey, TaskId};
use crate::job::{BackOff, DependencyKind, TaskState};
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
            queued: attempt.is_queued() && heard,
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
    let queue = engine.queues().get(engine.queues().whole(job.queue));
    let (found, ahead) =
        (look_over(engine, &request, &mut explanation), engine.queues().first_ahead(job.queue));
    let Some(whole) = engine.class_of(leader) else { return explanation };
    let too_few = plan::too_few_at_a_time(engine.planner(), whole).filter(|_| found.could > 0);
    if let Some(why) = &too_few {
        say_too_few(engine, &request, why, &mut explanation);
        say_missing(engine, key, leader, &mut explanation);
    }
    // What keeps one of those with which it starts keeps it, too.
    let mates = || job.gang_steps(leader.step.into());
    let throttled = mates().find_map(|step| engine.profiles().throttled(job.steps[step].profile));
    let back_off = mates().find_map(|step| engine.licences().back_off(StepKey { step: step as u16, ..key }));
    let limit = engine.licences().reached(whole).map(|(name, max, _)| (name.to_owned(), max));
    explanation.reason = match () {
        () if found.workers == 0 => Reason::NoWorkers,
        () if found.could == 0 || too_few.is_some() => Reason::FitsNowhere,
        () if queue.record.paused.is_some() => {
            explanation.changes.insert(0, Change::Resume(queue.name().to_owned()));
            Reason::Paused(queue.record.paused.clone().unwrap_or_default())
        }
        () if let Some(known) = back_off => {
            explanation.changes.insert(0, try_again_now(engine, known));
            Reason::BackOff { name: known.limit.clone(), until: known.until, times: known.times }
        }
        () if let Some(cap) = job.cap_reached(leader.step.into()) => Reason::MaxRunning(cap),
        () if throttled.is_some() => Reason::Probing { running: throttled.unwrap_or(0) },
        () => match (over_quota(engine, job.queue, leader), limit, found.closed) {
            (Some(quota_cpu), ..) => {
                let booked_cpu = queue.booked_cpu;
                let needed = booked_cpu + u64::from(whole.cpu_at_a_time());
                explanation.changes.insert(0, Change::Quota(queue.name().to_owned(), needed));
                Reason::Quota { quota_cpu, booked_cpu }
            }
            (None, Some((name, max)), _) => {
                explanation.changes.insert(0, Change::Limit(name.clone(), max + 1));
                Reason::Limit { name, max }
            }
            _ if let Some(mates) = unready_mates(job, task.index) => mates,
            _ if let Some(together) = too_little_room(engine, job, leader) => together,
            // What its hold hung on has changed since it was judged last: it is judged again soon.
            _ if explanation.open_workers > 0 => match engine.planner().vetoed_step(leader) {
                Some(held) => Reason::Closed(held.why.clone()),
                None => Reason::Turn,
            },
            (_, _, Some(closed)) => Reason::Closed(closed),
            _ => match ahead {
                Some(ahead) => {
                    explanation.changes.push(Change::behind(ahead, queue.name(), &job.spec.user));
                    Reason::behind(ahead)
                }
                None => Reason::Full,
            },
        },
    };
    explanation.changes.truncate(bounds::EXAMPLES_MAX);
    explanation.turn = turn_of(engine, &request, task, &explanation.reason);
    explanation
}

/// Where a task's step, or the one with which it starts, stands in its queue; `None` if it does not.
fn turn_of(engine: &Engine, request: &PlacementRequest, task: TaskId, reason: &Reason) -> Option<Turn> {
    let (step, job) = (engine.ledger().step(request.step)?, engine.job(task.job)?);
    let queued_step = engine.ledger().step(leader_of(job, request.step))?.enlisted.as_ref()?;
    let queue = engine.queues().get(engine.queues().whole(job.queue));
    let steps_ahead = engine.queues().get(job.queue).position(queued_step);
    let tasks_ahead = step.ready.ranges().map(|r| r.end.min(task.index).saturating_sub(r.start)).sum();
    // When a queue, a licence or a kind is let go on is not for workers to say.
    let by_room = reason.is_of_room() || matches!(reason, Reason::Closed(_));
    // When all workers of a gang have room at once is not known.
    let by_room = by_room && !job.is_in_gang(request.step.step.into());
    Some(Turn {
        queue: queue.name().to_owned(),
        band: queue.band(),
        queues_ahead: engine.queues().queues_ahead(job.queue),
        users_ahead: engine.queues().users_ahead(job.queue),
        steps_ahead,
        tasks_ahead,
        weight: queue.share().weight(),
        pool: pool(engine, request.class, queue.name()),
        starts: by_room.then(|| expected_start(engine, request, tasks_ahead, steps_ahead)).flatten(),
    })
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
