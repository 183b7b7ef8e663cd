//! Why jobs are where they are, in one sentence each: how the first failed task of a failed job did, and why the first
//! waiting task of another waits.

use crate::api_error::ApiError;
use crate::handle::Handle;
use crate::reader::Whole;
use std::time::{Duration, Instant};
use windlass_api::{Failure, Job, JobReason, JobState};
use windlass_core::explain::{self, Cause, FailedAttempt, Known, Reason};
use windlass_core::job::{self as core, StepSpec};
use windlass_core::{Engine, JobId, TaskId, WorkerId};
use windlass_store::StoredTask;

/// Jobs of one answer of which the reason is looked up, and how long that may take; the others have none. As many jobs are
/// in a table without `--limit`.
const REASONS_MAX: usize = 50;
const REASONS_TIME: Duration = Duration::from_millis(300);
/// Tasks of one job among which the first failed one is looked for.
const FIRST_FAILED_TASKS_MAX: u32 = 1 << 18;
/// Tasks of one step among which the first waiting one is looked for, on the engine's thread.
const FIRST_WAITING_TASKS_MAX: usize = 1_000;

/// Adds the reasons of jobs that failed or wait.
pub(super) async fn add(handle: &Handle, jobs: &mut [Whole<Job>]) -> Result<(), ApiError> {
    let (begun, mut looked_up) = (Instant::now(), 0);
    for job in jobs {
        if looked_up == REASONS_MAX || begun.elapsed() >= REASONS_TIME {
            break;
        }
        let reason = match job.state {
            JobState::Failed => Some(of_failed(handle, job).await?),
            JobState::Pending | JobState::Held => of_waiting(handle, JobId(job.id)).await?,
            JobState::Running | JobState::Succeeded | JobState::Canceled => continue,
        };
        job.reason = reason;
        looked_up += 1;
    }
    Ok(())
}

/// How a task failed, as its row says; the last lines of its output are not in it.
pub(super) fn failure_of(task: TaskId, step: &StepSpec, stored: &StoredTask) -> Failure {
    Failure::from_core(&FailedAttempt {
        task,
        result: stored.result.as_ref(),
        memory_bytes: stored.row.amounts.map(|(_, memory)| memory),
        step,
    })
}

/// How the first failed task of a job did.
async fn of_failed(handle: &Handle, job: &Whole<Job>) -> Result<JobReason, ApiError> {
    let id = JobId(job.id);
    let found = windlass_store::failed_tasks(handle.store(), id, 0..FIRST_FAILED_TASKS_MAX, 1).await?;
    let first = found.first().and_then(|stored| {
        let task = TaskId { job: id, index: stored.row.index };
        Some(failure_of(task, step_at(&job.spec().steps, stored.row.index)?, stored))
    });
    Ok(match (first, &job.stopped) {
        (Some(failure), _) => JobReason { word: failure.cause.as_str().to_owned(), message: failure.summary },
        (None, Some(stopped)) if job.counts.failed == 0 => {
            JobReason { word: Cause::Dependency.as_str().to_owned(), message: stopped.clone() }
        }
        (None, _) => JobReason {
            word: Cause::Other.as_str().to_owned(),
            message: match job.counts.total {
                1 => "its only task failed".to_owned(),
                total => format!("{} of its {total} tasks failed", job.counts.failed),
            },
        },
    })
}

fn step_at(steps: &[StepSpec], index: u32) -> Option<&StepSpec> {
    let mut base = 0;
    steps.iter().find(|step| {
        base += step.tasks;
        index < base
    })
}

/// Why the first task of a job that waits does, if one does.
async fn of_waiting(handle: &Handle, id: JobId) -> Result<Option<JobReason>, ApiError> {
    let explain = move |engine: &Engine| {
        let job = engine.job(id)?;
        let task = TaskId { job: id, index: first_waiting(job)? };
        Some(explain::brief(engine, task, &mut Known::default()).map(|reason| said(engine, &reason)))
    };
    if let Some(reason) = handle.query(explain).await? {
        return Ok(reason);
    }
    // The engine does not hold it: it is parked, or has just ended.
    let Some(parked) = handle.store().parked(id).await? else { return Ok(None) };
    let explain = move |engine: &Engine| {
        let task = TaskId { job: id, index: 0 };
        let why = explain::parked_task(engine, task, &parked.spec, &parked.parked, parked.ahead)?;
        Some(said(engine, &why.reason))
    };
    Ok(handle.query(explain).await?)
}

/// A task that is ready, or else one that waits for others.
fn first_waiting(job: &core::Job) -> Option<u32> {
    if let Some(ready) = job.steps.iter().find_map(|step| step.ready.first()) {
        return Some(ready);
    }
    job.steps.iter().zip(&job.spec.steps).find_map(|(step, spec)| {
        let mut tasks = (step.base..step.base + spec.tasks).take(FIRST_WAITING_TASKS_MAX);
        tasks.find(|index| job.state_of(*index) == core::TaskState::Waiting)
    })
}

fn said(engine: &Engine, reason: &Reason) -> JobReason {
    let name_of = |worker: WorkerId| {
        engine.workers().get(worker).map(|worker| worker.record.name.clone()).unwrap_or_default()
    };
    let (word, message) = reason.say(name_of);
    JobReason { word: word.as_str().to_owned(), message }
}
