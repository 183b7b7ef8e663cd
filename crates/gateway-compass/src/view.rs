//! The view of a job: its submitted fields, and its progress.

use crate::format::{
    Fields, Health, Readiness, Stage, cluster_jobs, has_name, is_compass, public_fields, result_root, text_of,
};
use crate::number::{KnownTask, number_of, step_of, task_of};
use crate::record::Record;
use crate::time::time_text;
use serde_json::Value;
use std::sync::Arc;
use windlass_api::StepBody;
use windlass_core::job::{JobSpec, JobState, TaskState};
use windlass_core::{JobId, TaskId};
use windlass_server::{Handle, Reader, Unavailable};
use windlass_store::JobView;

/// Submitted fields that every caller that may look at jobs sees: the names of tests and machines, and times.
const OUTLINE: &str = "suite category os os_version os_arch arch osv testbox tbox_group tbox_type \
    cluster submit_date submit_time timeout_seconds";

/// A job, or the job of one node of a cluster.
pub(crate) struct View {
    pub spec: Arc<JobSpec>,
    pub submitted: Fields,
    pub record: Record,
}

impl View {
    /// Finds a job by its number; `None` if no job of this interface has it.
    pub async fn find(handle: &Handle, id: JobId) -> Result<Option<View>, Unavailable> {
        let failed = |error| Unavailable::from_store(&error);
        let task = task_of(id);
        let Some(job) = handle.store().job(task.job).await.map_err(failed)? else { return Ok(None) };
        View::of(handle, job, task.index).await
    }

    /// The view of a stored job's node; `None` if the job is not of this interface or has no such node.
    pub async fn of(handle: &Handle, mut job: JobView, node: u32) -> Result<Option<View>, Unavailable> {
        let failed = |error| Unavailable::from_store(&error);
        let task = TaskId { job: job.id, index: node };
        if !is_compass(&job.spec) || node as usize >= job.spec.steps.len() {
            return Ok(None);
        }
        let (mut state, mut open) = (job.state, None);
        if job.state == JobState::Active {
            let known = handle.query(move |engine| KnownTask::of(engine, task)).await?;
            match known {
                // The task may still run. Its attempt tells which host has it.
                Some(KnownTask { attempt, end: None }) => open = Some(attempt),
                Some(KnownTask { end: Some(end), .. }) => state = ended(end),
                None => {
                    // The job ended between the two reads. The store has its end now.
                    job = handle.store().job(task.job).await.map_err(failed)?.unwrap_or(job);
                    state = job.state;
                }
            }
        }
        if job.state != JobState::Active && job.spec.steps.len() > 1 {
            let rows = handle.store().tasks(task.job, node..node + 1).await.map_err(failed)?;
            let own = rows.first().map(|stored| ended(stored.row.state));
            state = own.filter(|own| *own != JobState::Active).unwrap_or(state);
        }
        let body = handle.store().body(task.job, step_of(task)).await.map_err(failed)?;
        let body = body.and_then(|raw| serde_json::from_slice::<StepBody>(&raw).ok());
        let submitted = body.and_then(|body| body.compass).unwrap_or_default();
        let record = effective(Record::kept(handle, number_of(task)).await?, state, open);
        Ok(Some(View { spec: job.spec, submitted, record }))
    }

    /// The numbers of a job's nodes.
    pub fn numbers(job: &JobView) -> impl Iterator<Item = JobId> + use<> {
        let id = job.id;
        (0..job.spec.steps.len() as u32).map(move |index| number_of(TaskId { job: id, index }))
    }

    /// The directory of the job's results.
    pub fn result_root(&self, id: JobId) -> String {
        let date = text_of(&self.submitted, "submit_date").unwrap_or_default();
        result_root(id, &self.submitted, &date)
    }

    /// The fields that a reader may see or wait for: all public ones of a job that the reader may read, otherwise the
    /// outline, which has nothing that the machine runs or reports.
    pub fn fields(&self, id: JobId, reader: &Reader) -> Fields {
        let is_whole = reader.may_read(&self.spec.user);
        let mut fields = self.submitted.clone();
        match is_whole {
            true => fields.extend(self.record.filled.clone().unwrap_or_default()),
            false => fields.retain(|key, _| has_name(OUTLINE, key)),
        }
        let mut put = |key: &str, value: Value| _ = fields.insert(key.to_owned(), value);
        let Record { stage, health, readiness, last_success_stage, .. } = &self.record;
        put("id", id.to_string().into());
        put("job_id", id.to_string().into());
        put("my_account", self.spec.user.clone().into());
        put("queue", self.spec.queue.clone().into());
        put("priority", self.spec.priority.into());
        put("job_stage", stage.as_str().into());
        put("istage", stage.number().into());
        put("job_data_readiness", readiness.as_str().into());
        put("idata_readiness", readiness.number().into());
        if let Some(health) = health {
            put("job_health", health.as_str().into());
            put("ihealth", health.number().into());
        }
        if let Some(stage) = last_success_stage {
            put("last_success_stage", stage.as_str().into());
        }
        // Older clients read one word for stage and health.
        let state = health.filter(|health| *health >= Health::Fail).map_or(stage.as_str(), Health::as_str);
        put("job_state", state.into());
        self.put_times(&mut fields);
        if is_whole {
            self.put_private(id, &mut fields);
        }
        public_fields(fields, None)
    }

    /// Adds the host and the times of stages.
    fn put_times(&self, fields: &mut Fields) {
        let mut put = |key: &str, value: Value| _ = fields.insert(key.to_owned(), value);
        let Record { times, renew_to, place, .. } = &self.record;
        for (name, at) in times {
            put(&format!("{name}_time"), time_text(*at).into());
        }
        let seconds = |from: &str, to: &str| times.get(to)?.checked_sub(*times.get(from)?);
        for (key, from, to) in [("boot_seconds", "boot", "running"), ("run_seconds", "running", "finish")] {
            if let Some(seconds) = seconds(from, to) {
                put(key, seconds.to_string().into());
            }
        }
        if let Some(place) = place {
            put("host_machine", place.host.clone().into());
        }
        if let Some(until) = renew_to {
            put("renew_to_utc", (*until).into());
        }
    }

    /// Adds the machine's reports and address, and the directory of results, whose name has the job's parameters.
    fn put_private(&self, id: JobId, fields: &mut Fields) {
        let mut put = |key: &str, value: Value| _ = fields.insert(key.to_owned(), value);
        let Record { step, milestones, ssh_port, ip, waited, .. } = &self.record;
        put("result_root", self.result_root(id).into());
        if let Some(nodes) = cluster_jobs(&self.submitted, id) {
            put("cluster_jobs", nodes.into());
        }
        if !milestones.is_empty() {
            put("milestones", milestones.clone().into());
        }
        let words = [("job_step", step.clone()), ("ssh_port", ssh_port.clone()), ("ip", ip.clone())];
        for (key, text) in words.into_iter().filter_map(|(key, text)| Some((key, text?))) {
            put(key, text.into());
        }
        if let Some(why) = &self.record.why {
            put("job_error", why.clone().into());
        }
        if let Some(waited) = waited {
            put("waited_jobs", Value::Object(waited.clone()));
        }
    }
}

/// The state of a job whose only task is in this state.
fn ended(state: TaskState) -> JobState {
    match state {
        TaskState::Succeeded => JobState::Succeeded,
        TaskState::Failed => JobState::Failed,
        TaskState::Canceled | TaskState::Skipped => JobState::Canceled,
        TaskState::Waiting | TaskState::Ready | TaskState::Booked | TaskState::Running => JobState::Active,
    }
}

/// A job's progress: its record, as far as it belongs to the engine's present attempt. `open` is the attempt of a job
/// that may still run.
fn effective(kept: Option<Record>, state: JobState, open: Option<Option<u32>>) -> Record {
    let (stage, health, readiness) = Stage::of_untold(state);
    let Some(mut record) = kept else { return Record::untold(stage, health, readiness) };
    let attempt = record.place.as_ref().map(|place| place.attempt);
    if open.is_some_and(|booked| booked != attempt) {
        // The record belongs to an earlier attempt. The job is back in its queue, or goes to another host.
        let waited = record.waited.take();
        return Record { waited, ..Record::default() };
    }
    match state {
        _ if record.stage.is_end() || state == JobState::Active => {}
        _ if record.stage == Stage::Submit => {
            (record.stage, record.health, record.readiness) = (stage, health, readiness);
        }
        // The host was declared gone.
        _ => {
            record.health = record.health.or(Some(Health::Terminate));
            (record.stage, record.readiness) = (Stage::Finish, Readiness::Incomplete);
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BookedHost;

    fn at_host(attempt: u32) -> Record {
        let place = BookedHost { host: "h".to_owned(), dc: true, attempt, ..BookedHost::default() };
        Record::dispatched(place, None, 1)
    }

    #[test]
    fn a_job_is_where_the_engine_has_it() {
        let stage = |kept, state, open| effective(kept, state, open).stage;
        assert_eq!(stage(None, JobState::Active, Some(None)), Stage::Submit);
        assert_eq!(stage(None, JobState::Canceled, None), Stage::Cancel);
        assert_eq!(stage(Some(at_host(1)), JobState::Active, Some(Some(1))), Stage::Dispatch);
        assert_eq!(stage(Some(at_host(1)), JobState::Active, Some(None)), Stage::Submit);
        assert_eq!(stage(Some(at_host(1)), JobState::Active, Some(Some(2))), Stage::Submit);
        // The end is reported and the engine has it, but not the store yet. Then the job runs again.
        let mut ended = at_host(1);
        ended.enter(Stage::Finish, 2);
        assert_eq!(stage(Some(ended.clone()), JobState::Active, None), Stage::Finish);
        assert_eq!(stage(Some(ended), JobState::Active, Some(None)), Stage::Submit);
        let gone = effective(Some(at_host(1)), JobState::Canceled, None);
        assert_eq!((gone.stage, gone.health), (Stage::Finish, Some(Health::Terminate)));
    }
}
