//! The fields of a job that its machine reads.

use crate::format::{Fields, add_scripts, cluster_jobs, result_root, text_of};
use crate::record::Record;
use crate::time::time_text;
use serde_json::Value;
use windlass_core::JobId;

/// The fields that a machine may read, without the job's secrets: the submitted and the filled-in ones, and those of
/// this attempt.
pub(crate) fn machine_fields(job: JobId, submitted: &Fields, record: &Record) -> Fields {
    let mut fields = submitted.clone();
    fields.extend(record.filled.clone().unwrap_or_default());
    fields.extend(cluster_jobs(submitted, job).map(|nodes| ("cluster_jobs".to_owned(), nodes.into())));
    add_scripts(&mut fields, job);
    let mut put = |key: &str, value: Value| _ = fields.insert(key.to_owned(), value);
    put("id", job.to_string().into());
    put("job_id", job.to_string().into());
    put("job_stage", "dispatch".into());
    let date = text_of(submitted, "submit_date").unwrap_or_default();
    put("result_root", result_root(job, submitted, &date).into());
    if let Some(place) = &record.place {
        put("job_token", place.token.clone().into());
        put("host_machine", place.host.clone().into());
        let dispatched = record.times.get("dispatch").copied().unwrap_or(0);
        put("dispatch_time", time_text(dispatched).into());
        put("deadline_utc", (dispatched + place.timeout_s).into());
    }
    fields
}
