//! Jobs: lists, and what people set.

use super::fields::{self, Answer, ROWS_MAX, few, hundredths};
use crate::cuebot::Cuebot;
use crate::generated::job::*;
use crate::locks::lock_jobs;
use crate::report::{OPEN_FRAMES, finish_job};
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;

pub(super) fn routes(routes: Routes) -> Routes {
    setters(answers(routes))
        .route("/job.JobInterface/FindJob", unary(find))
        .route("/job.JobInterface/SetMaxRetries", unary(set_max_retries))
        .route("/job.JobInterface/ShutdownIfCompleted", unary(finish_if_done))
}

/// Jobs with their figures. A condition is appended.
const JOBS: &str = "
SELECT job.pk_job, job.str_state, job.str_name, job.str_shot, show.str_name AS show, job.str_user,
       folder.str_name AS folder, facility.str_name AS facility, coalesce(job.str_os, '') AS os, job.int_uid::int AS uid,
       r.int_priority, r.int_min_cores, r.int_max_cores, job.str_log_dir, job.b_paused, job.b_comment, job.b_autoeat,
       extract(epoch FROM job.ts_started)::int AS started, extract(epoch FROM job.ts_stopped)::int AS stopped,
       r.int_min_gpus, r.int_max_gpus, job.int_layer_count, job.int_frame_count, s.int_waiting_count::int AS waiting,
       s.int_running_count::int AS running, s.int_dead_count::int AS dead, s.int_eaten_count::int AS eaten,
       s.int_depend_count::int AS depend, s.int_succeeded_count::int AS succeeded,
       (r.int_cores + r.int_local_cores)::int AS cores, (r.int_gpus + r.int_local_gpus)::int AS gpus,
       m.int_max_rss, m.int_gpu_mem_max, coalesce(m.int_max_pss, 0) AS int_max_pss,
       floor(extract(epoch FROM job.ts_eligible))::int AS eligible, coalesce(job.str_loki_url, '') AS loki_url,
       job.pk_folder, u.int_core_time_success, u.int_core_time_fail, u.int_gpu_time_success, u.int_gpu_time_fail,
       u.int_frame_success_count::bigint AS rendered, u.int_frame_fail_count::bigint AS failed,
       u.int_clock_time_success::bigint AS clock_s, u.int_clock_time_high
  FROM job JOIN show USING (pk_show) JOIN folder ON folder.pk_folder = job.pk_folder
  JOIN facility ON facility.pk_facility = job.pk_facility
  JOIN job_stat s ON s.pk_job = job.pk_job JOIN job_resource r ON r.pk_job = job.pk_job
  JOIN job_usage u ON u.pk_job = job.pk_job JOIN job_mem m ON m.pk_job = job.pk_job";

fn cores(hundredths: i32) -> f32 {
    hundredths as f32 / 100.0
}

pub(super) fn job(row: &Row) -> Job {
    let state = JobState::from_str_name(row.get("str_state")).unwrap_or(JobState::Pending);
    let stats =
        frame_stats!(JobStats of row { total_layers: "int_layer_count", total_frames: "int_frame_count" });
    Job {
        id: row.get("pk_job"),
        state: state.into(),
        name: row.get("str_name"),
        shot: row.get("str_shot"),
        show: row.get("show"),
        user: row.get("str_user"),
        group: row.get("folder"),
        facility: row.get("facility"),
        os: row.get("os"),
        uid_optional: row.get::<_, Option<i32>>("uid").map(job::UidOptional::Uid),
        priority: row.get("int_priority"),
        min_cores: cores(row.get("int_min_cores")),
        max_cores: cores(row.get("int_max_cores")),
        log_dir: row.get("str_log_dir"),
        is_paused: row.get("b_paused"),
        has_comment: row.get("b_comment"),
        auto_eat: row.get("b_autoeat"),
        start_time: row.get::<_, Option<i32>>("started").unwrap_or(0),
        stop_time: row.get::<_, Option<i32>>("stopped").unwrap_or(0),
        job_stats: Some(stats),
        min_gpus: row.get::<_, i32>("int_min_gpus") as f32,
        max_gpus: row.get::<_, i32>("int_max_gpus") as f32,
        loki_url: row.get("loki_url"),
        eligible_time: row.get("eligible"),
    }
}

/// The jobs of a search. An empty list of names matches all.
pub(super) async fn search(cuebot: &Cuebot, r: &JobSearchCriteria) -> Result<Vec<Job>, CallError> {
    let lists = [&r.ids, &r.jobs, &r.regex, &r.substr, &r.users, &r.shots, &r.shows];
    few("jobs, users, shots or shows", lists.iter().map(|list| list.len()).sum())?;
    let statement = format!(
        "{JOBS}
         WHERE ($8 OR job.str_state = 'PENDING')
           AND (cardinality($1::text[]) = 0 OR job.pk_job::text = ANY($1::text[]))
           AND (cardinality($2::text[]) = 0 OR job.str_name::text = ANY($2::text[]))
           AND (cardinality($3::text[]) = 0 OR job.str_name ~* ANY($3::text[]))
           AND (cardinality($4::text[]) = 0
                OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS part WHERE strpos(lower(job.str_name), lower(part)) > 0))
           AND (cardinality($5::text[]) = 0 OR job.str_user::text = ANY($5::text[]))
           AND (cardinality($6::text[]) = 0 OR job.str_shot::text = ANY($6::text[]))
           AND (cardinality($7::text[]) = 0 OR show.str_name::text = ANY($7::text[]))
         ORDER BY job.ts_started, job.str_name LIMIT {ROWS_MAX}"
    );
    let rows = cuebot
        .pool
        .get()
        .await?
        .query(
            &statement,
            &[&r.ids, &r.jobs, &r.regex, &r.substr, &r.users, &r.shots, &r.shows, &r.include_finished],
        )
        .await?;
    Ok(rows.iter().map(job).collect())
}

/// The rows of the pending jobs that `which` picks by a key. `which` is part of the statement.
pub(super) async fn pending(cuebot: &Cuebot, which: &'static str, key: &str) -> Result<Vec<Row>, CallError> {
    let statement = format!(
        "{JOBS} WHERE {which} AND job.str_state = 'PENDING' ORDER BY job.ts_started, job.str_name LIMIT {ROWS_MAX}"
    );
    Ok(cuebot.pool.get().await?.query(&statement, &[&key]).await?)
}

/// The pending jobs that `which` picks by a key.
pub(super) async fn pending_jobs(
    cuebot: &Cuebot,
    which: &'static str,
    key: &str,
) -> Result<Vec<Job>, CallError> {
    Ok(pending(cuebot, which, key).await?.iter().map(job).collect())
}

/// A job by its id, finished ones included.
pub(super) async fn by_id(cuebot: &Cuebot, key: &str) -> Result<Job, CallError> {
    let statement = format!("{JOBS} WHERE job.pk_job = $1");
    let row = cuebot.pool.get().await?.query_opt(&statement, &[&key]).await?;
    let row = row.ok_or_else(|| CallError::Missing { what: "job", name: key.to_owned() })?;
    Ok(job(&row))
}

/// The pending job of this name, if there is one. Finished jobs may share a name.
async fn pending_of_name(cuebot: &Cuebot, name: &str) -> Result<Option<Job>, CallError> {
    let r = JobSearchCriteria { jobs: vec![name.to_owned()], ..Default::default() };
    Ok(search(cuebot, &r).await?.into_iter().next())
}

answers! { |cuebot, ask|
    "/job.JobInterface/GetJobs": JobGetJobsRequest => JobGetJobsResponse {
        jobs: Some(JobSeq { jobs: search(&cuebot, &ask.r.unwrap_or_default()).await? })
    };
    "/job.JobInterface/GetJobNames": JobGetJobNamesRequest => JobGetJobNamesResponse {
        names: search(&cuebot, &ask.r.unwrap_or_default()).await?.into_iter().map(|job| job.name).collect()
    };
    "/job.JobInterface/GetJob": JobGetJobRequest => JobGetJobResponse {
        job: Some(by_id(&cuebot, &ask.id).await?)
    };
    "/job.JobInterface/GetCurrent": JobGetCurrentRequest => JobGetCurrentResponse {
        job: Some(by_id(&cuebot, key!(ask.job)?).await?)
    };
    "/job.JobInterface/IsJobPending": JobIsJobPendingRequest => JobIsJobPendingResponse {
        value: pending_of_name(&cuebot, &ask.name).await?.is_some()
    };
}

async fn find(cuebot: Arc<Cuebot>, ask: JobFindJobRequest) -> Answer<JobFindJobResponse> {
    let found = pending_of_name(&cuebot, &ask.name).await?;
    let missing = CallError::Missing { what: "job", name: ask.name };
    Ok(JobFindJobResponse { job: Some(found.ok_or(missing)?) })
}

setters!("job.JobInterface", job {
    "Pause": JobPauseRequest, |ask| true, "UPDATE job SET b_paused = $2 WHERE pk_job = $1";
    "Resume": JobResumeRequest, |ask| false, "UPDATE job SET b_paused = $2 WHERE pk_job = $1";
    "SetPriority": JobSetPriorityRequest, |ask| ask.val,
        "UPDATE job_resource SET int_priority = $2 WHERE pk_job = $1";
    "SetMinCores": JobSetMinCoresRequest, |ask| hundredths(ask.val)?,
        "UPDATE job_resource SET int_min_cores = $2 WHERE pk_job = $1";
    "SetMaxCores": JobSetMaxCoresRequest, |ask| hundredths(ask.val)?,
        "UPDATE job_resource SET int_max_cores = $2 WHERE pk_job = $1";
    "SetMinGpus": JobSetMinGpusRequest, |ask| ask.val.max(0),
        "UPDATE job_resource SET int_min_gpus = $2 WHERE pk_job = $1";
    "SetMaxGpus": JobSetMaxGpusRequest, |ask| ask.val.max(-1),
        "UPDATE job_resource SET int_max_gpus = $2 WHERE pk_job = $1";
    "SetAutoEat": JobSetAutoEatRequest, |ask| ask.value, "UPDATE job SET b_autoeat = $2 WHERE pk_job = $1";
});

/// Sets the retries of a job's frames, up to the operator's maximum.
async fn set_max_retries(cuebot: Arc<Cuebot>, ask: JobSetMaxRetriesRequest) -> Answer<()> {
    let retries = ask.max_retries.clamp(0, cuebot.settings.retries_max) as i16;
    let statement = "UPDATE job SET int_max_retries = $2 WHERE pk_job = $1";
    fields::set(&cuebot, statement, "job", ask.job.as_ref().map(|job| &job.id), &retries).await
}

/// Ends a job of which no frame is left to run.
async fn finish_if_done(cuebot: Arc<Cuebot>, ask: JobShutdownIfCompletedRequest) -> Answer<()> {
    let job = key!(ask.job)?;
    cuebot
        .transact(job, |tx, job| {
            Box::pin(async move {
                let waiting = "SELECT $1::text UNION ALL
                    SELECT pk_job_depend_er FROM depend WHERE b_active AND pk_job_depend_on = $1";
                lock_jobs(tx, waiting, &[job]).await?;
                let counts = format!("SELECT {OPEN_FRAMES} FROM job_stat WHERE pk_job = $1");
                let left = tx.query_opt(&counts, &[job]).await?;
                let left = left.ok_or_else(|| CallError::Missing { what: "job", name: job.to_string() })?;
                if left.get::<_, i64>(0) == 0 {
                    finish_job(tx, job).await?;
                }
                Ok(())
            })
        })
        .await
}
