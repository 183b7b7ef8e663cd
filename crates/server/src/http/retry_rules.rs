//! Whether a job may be retried that comes after others. A job that was skipped because of another one would run on what
//! that one did not make, so a retry of it is refused until that one is retried too, or the caller insists.

use super::App;
use crate::api_error::ApiError;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use utoipa::IntoParams;
use windlass_api::ErrorCode;
use windlass_core::JobId;
use windlass_core::job::{AfterEnd, JobState, Stop};
use windlass_core::ranges::RangeSet;
use windlass_store::JobView;

/// How a retry is made.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct RetryQuery {
    /// Even if a job that it comes after did not end as it asks for.
    #[serde(default)]
    pub force: bool,
}

/// Refuses a retry of a job that could not start as things are. A job that is not there is for the engine to refuse.
pub(super) async fn check_retry(app: &App, id: JobId, query: RetryQuery) -> Result<(), ApiError> {
    let store = app.handle.store();
    let Some(view) = store.job(id).await?.filter(|_| !query.force) else { return Ok(()) };
    if let Some(Stop::After(_)) = view.stop {
        let mut ends = BTreeMap::new();
        for first in &view.spec.after {
            if let Some(first) = store.job(*first).await? {
                ends.insert(first.id, first.state);
            }
        }
        return kept_by(&view, &ends).map_or(Ok(()), |first| Err(comes_after(&view, first)));
    }
    if let Some(first) = view.spec.after_tasks.filter(|_| was_only_skipped(&view)) {
        let found = store.records(BTreeSet::from([first])).await?.pop();
        let is_active = found.as_ref().is_some_and(|record| record.state == JobState::Active);
        let succeeded = found.map_or_else(RangeSet::default, |record| record.succeeded());
        if !is_active && succeeded.len() <= view.first_succeeded.len() {
            return Err(comes_after_tasks(id, first));
        }
    }
    Ok(())
}

/// The first job whose end still keeps this one from starting. Of a job that is gone only the reason for the stop is
/// known.
fn kept_by(view: &JobView, ends: &BTreeMap<JobId, JobState>) -> Option<JobId> {
    let keeps = |first: &&JobId| match ends.get(first) {
        Some(JobState::Active) => false,
        Some(end) => !view.spec.may_follow(**first, *end),
        None => view.stop == Some(Stop::After(**first)),
    };
    view.spec.after.iter().find(keeps).copied()
}

/// True if each task of an ended job succeeded, or was skipped because the task that it comes after did not succeed.
fn was_only_skipped(view: &JobView) -> bool {
    let is_so = view.counts.is_some_and(|counts| counts.failed == 0 && counts.canceled == 0);
    view.state == JobState::Failed && view.stop.is_none() && is_so
}

fn comes_after(view: &JobView, first: JobId) -> ApiError {
    let id = view.id;
    let force = format!("'windlass job retry {id} --force' runs it all the same");
    let (message, hint) = match view.spec.after_ends.get(&first).copied().unwrap_or_default() {
        AfterEnd::NotOk => (format!("job {id} comes after a failure of job {first}, which succeeded"), force),
        AfterEnd::Ok | AfterEnd::Any => (
            format!("job {id} comes after job {first}, which did not succeed"),
            format!("'windlass job retry {first} {id}' runs both, one after the other; {force}"),
        ),
    };
    ApiError::new(ErrorCode::Conflict, message).hint(hint)
}

fn comes_after_tasks(id: JobId, first: JobId) -> ApiError {
    let message = format!("tasks of job {id} come after those of job {first}, which did not succeed");
    let hint = format!("'windlass job retry {first} {id}' runs both, task by task");
    ApiError::new(ErrorCode::Conflict, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use windlass_core::Time;
    use windlass_core::job::{Counts, JobSpec};

    const FIRST: JobId = JobId(3);

    /// A job that comes after jobs 3 and 4, and was stopped because of job 3.
    fn stopped(end: AfterEnd) -> JobView {
        let spec = JobSpec {
            after: vec![FIRST, JobId(4)],
            after_ends: BTreeMap::from([(FIRST, end)]),
            ..JobSpec::default()
        };
        JobView {
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
        }
    }

    fn kept(end: AfterEnd, ends: &[(u64, JobState)]) -> Option<JobId> {
        let ends = ends.iter().map(|(id, state)| (JobId(*id), *state)).collect();
        kept_by(&stopped(end), &ends)
    }

    #[test]
    fn a_job_that_was_skipped_waits_until_the_first_one_is_retried() {
        let fourth = (4, JobState::Succeeded);
        assert_eq!(kept(AfterEnd::Ok, &[(3, JobState::Failed), fourth]), Some(FIRST));
        assert_eq!(kept(AfterEnd::Ok, &[(3, JobState::Canceled), fourth]), Some(FIRST));
        assert_eq!(kept(AfterEnd::Ok, &[fourth]), Some(FIRST), "it is gone");
        assert_eq!(kept(AfterEnd::Ok, &[(3, JobState::Active), fourth]), None, "it waits for the retry");
        assert_eq!(kept(AfterEnd::Ok, &[(3, JobState::Succeeded), fourth]), None);
        assert_eq!(kept(AfterEnd::NotOk, &[(3, JobState::Succeeded), fourth]), Some(FIRST));
        assert_eq!(kept(AfterEnd::NotOk, &[(3, JobState::Failed), fourth]), None);
        let failed = [(3, JobState::Active), (4, JobState::Failed)];
        assert_eq!(kept(AfterEnd::Ok, &failed), Some(JobId(4)), "another one failed besides");
    }

    #[test]
    fn a_refusal_says_what_to_retry_first() {
        let detail = comes_after(&stopped(AfterEnd::Ok), FIRST).to_string();
        assert_eq!(detail, "job 5 comes after job 3, which did not succeed");
        assert!(was_only_skipped(&JobView { stop: None, ..stopped(AfterEnd::Ok) }));
    }
}
