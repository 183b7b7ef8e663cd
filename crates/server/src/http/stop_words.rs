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

/// What the store says of a job after which others come.
#[derive(Clone, Copy)]
struct FirstJob {
    state: JobState,
    /// Its first failed task.
    failed: Option<u32>,
}

/// The jobs after which others come. Each is read once for an answer.
#[derive(Default)]
pub(super) struct FirstJobs {
    by_job: BTreeMap<JobId, Option<FirstJob>>,
}

impl FirstJobs {
    /// Why a job was stopped, with the task that failed of the job that it comes after, or what became of that job since.
    pub async fn say_stopped(&mut self, store: &Store, view: &JobView) -> Result<Option<String>, StoreError> {
        let Some(why) = say_stopped(view) else { return Ok(None) };
        let Some(first) = first_of(view) else { return Ok(Some(why)) };
        if !self.by_job.contains_key(&first) && self.by_job.len() < FIRSTS_MAX {
            let found = look_at(store, first).await?;
            self.by_job.insert(first, found);
        }
        let found = self.by_job.get(&first).copied().flatten();
        Ok(Some(found.map_or_else(|| why.clone(), |found| with_first(&why, view, (first, found)))))
    }
}

/// `None` of a job that is gone.
async fn look_at(store: &Store, job: JobId) -> Result<Option<FirstJob>, StoreError> {
    let Some(state) = store.job(job).await?.map(|view| view.state) else { return Ok(None) };
    let failed = match state {
        JobState::Active | JobState::Succeeded => None,
        JobState::Failed | JobState::Canceled => windlass_store::failed_tasks(store, job, TASKS_MAX, 1)
            .await?
            .first()
            .map(|stored| stored.row.index),
    };
    Ok(Some(FirstJob { state, failed }))
}

/// The job whose end skipped this one, or tasks of it.
fn first_of(view: &JobView) -> Option<JobId> {
    match view.stop {
        Some(Stop::After(first)) => Some(first),
        Some(Stop::Canceled | Stop::FailFast) => None,
        None => view.spec.after_tasks,
    }
}

/// Why a job was skipped, and what the one that it comes after is now. That one may have been retried since, and this one
/// stays skipped until it is retried, too.
fn with_first(why: &str, view: &JobView, (first, found): (JobId, FirstJob)) -> String {
    let may_start = match view.stop {
        Some(_) => view.spec.may_follow(first, found.state),
        None => found.state == JobState::Succeeded,
    };
    let since = match found.state {
        JobState::Active => return format!("{why}; job {first} was retried since"),
        JobState::Succeeded => "succeeded",
        JobState::Failed => "failed",
        JobState::Canceled => "been cancelled",
    };
    match found.failed {
        _ if may_start => {
            format!(
                "{why}; job {first} has {since} since, and 'windlass job retry {}' runs this one",
                view.id
            )
        }
        Some(index) => format!("{why}: task {} failed", TaskId { job: first, index }),
        None => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use windlass_core::Time;
    use windlass_core::job::{AfterEnd, Counts};
    use windlass_core::ranges::RangeSet;

    const FIRST: JobId = JobId(3);

    /// Job 5 as it is shown, which was skipped because of job 3.
    fn shown(end: AfterEnd, state: JobState, failed: Option<u32>) -> String {
        let after_ends = BTreeMap::from_iter((end != AfterEnd::Ok).then_some((FIRST, end)));
        let spec = JobSpec { after: vec![FIRST], after_ends, ..JobSpec::default() };
        let view = JobView {
            id: JobId(5),
            spec: Arc::new(spec),
            created: Time(0),
            state: JobState::Failed,
            stop: Some(Stop::After(FIRST)),
            held: false,
            ended: Some(Time(1)),
            counts: Some(Counts { total: 1, skipped: 1, ..Counts::default() }),
            cancels: RangeSet::default(),
            first_succeeded: RangeSet::default(),
        };
        with_first(&say_stopped(&view).unwrap(), &view, (FIRST, FirstJob { state, failed }))
    }

    #[test]
    fn what_became_of_the_first_job_since_is_told() {
        let ok = |state, failed| shown(AfterEnd::Ok, state, failed);
        let failed = "job 3, which it comes after, did not succeed";
        assert_eq!(ok(JobState::Failed, Some(2)), format!("{failed}: task 3.2 failed"));
        assert_eq!(ok(JobState::Canceled, None), failed);
        assert_eq!(ok(JobState::Active, None), format!("{failed}; job 3 was retried since"));
        let since = "; job 3 has succeeded since, and 'windlass job retry 5' runs this one";
        assert_eq!(ok(JobState::Succeeded, None), format!("{failed}{since}"));
        let not_ok = |state, failed| shown(AfterEnd::NotOk, state, failed);
        let succeeded = "job 3 succeeded, and it comes after a failure of that job";
        assert_eq!(not_ok(JobState::Succeeded, None), succeeded);
        assert!(not_ok(JobState::Failed, Some(0)).contains("job 3 has failed since"));
    }
}
