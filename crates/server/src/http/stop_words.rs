//! Why no further task of a job starts, in words.

use std::collections::BTreeMap;
use std::ops::Range;
use windlass_core::job::{FailLimit, JobSpec, JobState, Stop};
use windlass_core::{JobId, TaskId};
use windlass_store::{JobView, Store, StoreError};

/// Jobs of one answer of which the first failed task is looked up; of the others it is not said.
const FIRSTS_MAX: usize = 50;
/// Tasks of a job among which the first failed one is looked for.
const TASKS_MAX: Range<u32> = 0..1 << 16;

/// Why a job was stopped, or some of its tasks were skipped; `None` if neither is so.
pub(super) fn say_stopped(view: &JobView) -> Option<String> {
    match view.stop {
        Some(Stop::Canceled) => Some("cancelled".to_owned()),
        Some(Stop::FailFast) => Some(failed_enough(view.spec.fail_limit)),
        Some(Stop::After(first)) => Some(say_after(&view.spec, first)),
        None => lacks_first(view),
    }
}

/// Why a job is skipped that comes after another one.
pub(super) fn say_after(spec: &JobSpec, first: JobId) -> String {
    match spec.after_ends.contains_key(&first) {
        true => format!("job {first} succeeded, and it comes after a failure of that job"),
        false => format!("job {first}, which it comes after, did not succeed"),
    }
}

fn failed_enough(limit: FailLimit) -> String {
    match limit {
        FailLimit::Tasks(1) => "a task of the job failed (--fail-fast)".to_owned(),
        FailLimit::Tasks(tasks) => format!("{tasks} tasks of the job failed (--fail-fast {tasks})"),
        FailLimit::Percent(percent) => {
            format!("more than {percent}% of the job's tasks failed (--fail-fast {percent}%)")
        }
    }
}

/// Why a task of a job was cancelled.
pub(super) fn why_canceled(view: &JobView, index: u32) -> String {
    match view.stop.filter(|_| !view.cancels.contains(index)) {
        Some(Stop::FailFast) => format!("it was cancelled: {}", failed_enough(view.spec.fail_limit)),
        Some(Stop::Canceled) => "its job was cancelled".to_owned(),
        Some(Stop::After(_)) | None => "it was cancelled".to_owned(),
    }
}

/// Why tasks of a job were skipped that come after those of another job.
fn lacks_first(view: &JobView) -> Option<String> {
    let first = view.spec.after_tasks.filter(|_| view.state == JobState::Failed)?;
    view.counts.filter(|counts| counts.skipped > 0)?;
    let missing = view.spec.tasks().saturating_sub(view.first_succeeded.len());
    match missing {
        0 => None,
        1 => Some(format!("a task of job {first}, after which one of its own comes, did not succeed")),
        _ => Some(format!("{missing} tasks of job {first}, after which its own come, did not succeed")),
    }
}

/// The first failed tasks of jobs after which others come. Each job is read once for an answer.
#[derive(Default)]
pub(super) struct FirstFailures {
    by_job: BTreeMap<JobId, Option<u32>>,
}

impl FirstFailures {
    /// Why a job was stopped, with the task that failed of the job that it comes after.
    pub async fn say_stopped(&mut self, store: &Store, view: &JobView) -> Result<Option<String>, StoreError> {
        let Some(why) = say_stopped(view) else { return Ok(None) };
        let failed = match failed_first(view) {
            Some(first) => self.task_of(store, first).await?,
            None => None,
        };
        Ok(Some(match failed {
            Some(task) => format!("{why}: task {task} failed"),
            None => why,
        }))
    }

    async fn task_of(&mut self, store: &Store, job: JobId) -> Result<Option<TaskId>, StoreError> {
        if !self.by_job.contains_key(&job) && self.by_job.len() < FIRSTS_MAX {
            let found = windlass_store::failed_tasks(store, job, TASKS_MAX, 1).await?;
            self.by_job.insert(job, found.first().map(|stored| stored.row.index));
        }
        let index = self.by_job.get(&job).copied().flatten();
        Ok(index.map(|index| TaskId { job, index }))
    }
}

/// The job whose failure skipped this one, or tasks of it.
fn failed_first(view: &JobView) -> Option<JobId> {
    match view.stop {
        Some(Stop::After(first)) => Some(first).filter(|first| !view.spec.after_ends.contains_key(first)),
        Some(Stop::Canceled | Stop::FailFast) => None,
        None => view.spec.after_tasks,
    }
}
