//! Frames: lists, and what people do with them.

use super::fields::{Answer, ROWS_MAX, few, id};
use crate::cuebot::Cuebot;
use crate::depends::{self, Done};
use crate::frames::parse;
use crate::generated::job::*;
use crate::hosts::Victim;
use crate::locks::lock_jobs;
use crate::report::{OPEN_FRAMES, finish_job, stop};
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use deadpool_postgres::Transaction;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Frames of a page where the client names no number.
const PAGE: i32 = 1_000;

pub(super) fn routes(routes: Routes) -> Routes {
    actions(changes(answers(routes)))
        .route("/job.JobInterface/GetUpdatedFrames", unary(updated))
        .route("/job.JobInterface/Kill", unary(kill_job))
        .route("/job.FrameInterface/FindFrame", unary(find))
        .route("/job.FrameInterface/GetFrames", unary(list_by_name))
        .route("/job.FrameInterface/MarkAsDepend", unary(mark_frame_depend))
}

/// Frames with their use of resources. A condition is appended.
const FRAMES: &str = "
SELECT frame.pk_frame, frame.str_name, layer.str_name AS layer, int_number::int AS number, str_state,
       int_retries::int AS retries, int_exit_status::int AS exit_status, frame.int_dispatch_order::int AS turn,
       floor(extract(epoch FROM ts_started))::int AS started, floor(extract(epoch FROM ts_stopped))::int AS stopped,
       floor(extract(epoch FROM ts_llu))::int AS last_line, int_mem_max_used, int_mem_used, int_mem_reserved,
       int_gpu_mem_reserved, int_gpu_mem_max_used, int_gpu_mem_used, coalesce(int_pss_max_used, 0) AS pss_max,
       coalesce(int_pss_used, 0) AS pss, str_checkpoint_state, int_checkpoint_count::int AS checkpoints, str_host,
       floor(extract(epoch FROM frame.ts_eligible))::int AS eligible, int_cores, int_total_past_core_time,
       int_total_past_gpu_time
  FROM frame JOIN layer ON layer.pk_layer = frame.pk_layer";

/// Seconds since 1970; 0 where the column is empty.
fn seconds(row: &Row, name: &str) -> i32 {
    row.get::<_, Option<i32>>(name).unwrap_or(0)
}

/// The host and the cores of a frame's present or last run.
fn resource(row: &Row) -> String {
    let host = row.get::<_, Option<String>>("str_host").unwrap_or_default();
    let cores = f64::from(row.get::<_, i32>("int_cores")) / 100.0;
    if host.is_empty() { host } else { format!("{host}/{cores:.2}") }
}

fn state(row: &Row) -> FrameState {
    FrameState::from_str_name(row.get("str_state")).unwrap_or(FrameState::Setup)
}

fn frame(row: &Row) -> Frame {
    let checkpoint = CheckpointState::from_str_name(row.get("str_checkpoint_state"));
    Frame {
        id: row.get("pk_frame"),
        name: row.get("str_name"),
        layer_name: row.get("layer"),
        number: row.get("number"),
        state: state(row).into(),
        retry_count: row.get("retries"),
        exit_status: row.get("exit_status"),
        dispatch_order: row.get("turn"),
        start_time: seconds(row, "started"),
        stop_time: seconds(row, "stopped"),
        llu_time: seconds(row, "last_line"),
        max_rss: row.get("int_mem_max_used"),
        used_memory: row.get("int_mem_used"),
        reserved_memory: row.get("int_mem_reserved"),
        reserved_gpu_memory: row.get("int_gpu_mem_reserved"),
        max_gpu_memory: row.get("int_gpu_mem_max_used"),
        used_gpu_memory: row.get("int_gpu_mem_used"),
        last_resource: resource(row),
        checkpoint_state: checkpoint.unwrap_or(CheckpointState::Disabled).into(),
        checkpoint_count: row.get("checkpoints"),
        total_core_time: row.get("int_total_past_core_time"),
        total_gpu_time: row.get("int_total_past_gpu_time"),
        max_pss: row.get("pss_max"),
        used_pss: row.get("pss"),
        eligible_time: seconds(row, "eligible"),
        ..Default::default()
    }
}

/// The criteria of a search, in the form of the statements. An empty list matches all. Each search names a job, a
/// layer or frames.
#[derive(Default)]
pub(super) struct Wanted {
    job: Option<String>,
    ids: Vec<String>,
    names: Vec<String>,
    layers: Vec<String>,
    states: Vec<&'static str>,
    numbers: Vec<i64>,
    layer_ids: Vec<String>,
}

const WANTED: &str = "($1::text IS NULL OR frame.pk_job = $1::text)
   AND (cardinality($2::text[]) = 0 OR frame.pk_frame::text = ANY($2::text[]))
   AND (cardinality($3::text[]) = 0 OR frame.str_name::text = ANY($3::text[]))
   AND (cardinality($4::text[]) = 0 OR layer.str_name::text = ANY($4::text[]))
   AND (cardinality($5::text[]) = 0 OR frame.str_state::text = ANY($5::text[]))
   AND (cardinality($6::bigint[]) = 0 OR frame.int_number = ANY($6::bigint[]))
   AND (cardinality($7::text[]) = 0 OR frame.pk_layer::text = ANY($7::text[]))";

impl Wanted {
    pub(super) fn of_job(job: Option<&Job>, r: Option<FrameSearchCriteria>) -> Result<Wanted, CallError> {
        let job = id("job", job.map(|job| &job.id))?.to_owned();
        Ok(Wanted { job: Some(job), ..Wanted::read(r.unwrap_or_default())? })
    }

    pub(super) fn of_layer(
        layer: Option<&Layer>,
        r: Option<FrameSearchCriteria>,
    ) -> Result<Wanted, CallError> {
        let layer = id("layer", layer.map(|layer| &layer.id))?.to_owned();
        Ok(Wanted { layer_ids: vec![layer], ..Wanted::read(r.unwrap_or_default())? })
    }

    fn of_frame(frame: Option<&Frame>) -> Result<Wanted, CallError> {
        Ok(Wanted::of_ids(vec![id("frame", frame.map(|frame| &frame.id))?.to_owned()]))
    }

    /// These frames, of which there is at least one.
    pub(super) fn of_ids(ids: Vec<String>) -> Wanted {
        Wanted { ids, ..Wanted::default() }
    }

    fn read(r: FrameSearchCriteria) -> Result<Wanted, CallError> {
        few("frames or layers", r.ids.len() + r.frames.len() + r.layers.len())?;
        let numbers = match r.frame_range.as_str() {
            "" => Vec::new(),
            range => parse(range)?,
        };
        let states = r.states.map(|states| states.frame_states).unwrap_or_default();
        let states = states.into_iter().filter_map(|state| FrameState::try_from(state).ok());
        Ok(Wanted {
            job: None,
            ids: r.ids,
            names: r.frames,
            layers: r.layers,
            states: states.map(|state| state.as_str_name()).collect(),
            numbers: numbers.into_iter().map(i64::from).collect(),
            layer_ids: Vec::new(),
        })
    }

    fn values(&self) -> [&(dyn ToSql + Sync); 7] {
        [&self.job, &self.ids, &self.names, &self.layers, &self.states, &self.numbers, &self.layer_ids]
    }
}

/// A page of the frames of a search.
async fn page(
    cuebot: &Cuebot,
    wanted: &Wanted,
    (page, limit, offset): (i32, i32, i32),
) -> Result<FrameSeq, CallError> {
    let rows = i64::from(if limit > 0 { limit } else { PAGE }).min(ROWS_MAX);
    let skipped = i64::from(page.max(1) - 1) * rows + i64::from(offset.max(0));
    let statement = format!(
        "{FRAMES} WHERE {WANTED} ORDER BY frame.int_layer_order, frame.int_dispatch_order LIMIT {rows} OFFSET {skipped}"
    );
    let rows = cuebot.pool.get().await?.query(&statement, &wanted.values()).await?;
    Ok(FrameSeq { frames: rows.iter().map(frame).collect() })
}

fn place(r: Option<&FrameSearchCriteria>) -> (i32, i32, i32) {
    r.map_or((1, 0, 0), |r| (r.page, r.limit, r.offset))
}

/// The frames of a pending job by its name.
async fn list_by_name(cuebot: Arc<Cuebot>, ask: FrameGetFramesRequest) -> Answer<FrameGetFramesResponse> {
    let statement = "SELECT pk_job FROM job WHERE str_visible_name = $1";
    let row = cuebot.pool.get().await?.query_opt(statement, &[&ask.job]).await?;
    let job = row.ok_or(CallError::Missing { what: "pending job", name: ask.job })?.get(0);
    let place = place(ask.r.as_ref());
    let wanted = Wanted { job: Some(job), ..Wanted::read(ask.r.unwrap_or_default())? };
    Ok(FrameGetFramesResponse { frames: Some(page(&cuebot, &wanted, place).await?) })
}

pub(super) async fn by_id(cuebot: &Cuebot, key: &str) -> Result<Frame, CallError> {
    let statement = format!("{FRAMES} WHERE frame.pk_frame = $1");
    let row = cuebot.pool.get().await?.query_opt(&statement, &[&key]).await?;
    let row = row.ok_or_else(|| CallError::Missing { what: "frame", name: key.to_owned() })?;
    Ok(frame(&row))
}

answers! { |cuebot, ask|
    "/job.JobInterface/GetFrames": JobGetFramesRequest => JobGetFramesResponse {
        frames: {
            let place = place(ask.req.as_ref());
            Some(page(&cuebot, &Wanted::of_job(ask.job.as_ref(), ask.req)?, place).await?)
        }
    };
    "/job.LayerInterface/GetFrames": LayerGetFramesRequest => LayerGetFramesResponse {
        frames: {
            let place = place(ask.s.as_ref());
            Some(page(&cuebot, &Wanted::of_layer(ask.layer.as_ref(), ask.s)?, place).await?)
        }
    };
    "/job.FrameInterface/GetFrame": FrameGetFrameRequest => FrameGetFrameResponse {
        frame: Some(by_id(&cuebot, &ask.id).await?)
    };
}

/// A frame of a pending job by job, layer and number.
async fn find(cuebot: Arc<Cuebot>, ask: FrameFindFrameRequest) -> Answer<FrameFindFrameResponse> {
    let statement = format!(
        "{FRAMES} WHERE layer.str_name = $2 AND frame.int_number = $3
            AND frame.pk_job = (SELECT pk_job FROM job WHERE str_visible_name = $1)"
    );
    let number = i64::from(ask.frame);
    let row = cuebot.pool.get().await?.query_opt(&statement, &[&ask.job, &ask.layer, &number]).await?;
    let name = format!("{}/{} {number}", ask.job, ask.layer);
    let row = row.ok_or(CallError::Missing { what: "frame", name })?;
    Ok(FrameFindFrameResponse { frame: Some(frame(&row)) })
}

/// The frames of a job that changed since a second, that second included. A client asks again with the time of the
/// last answer, and so misses none.
const UPDATED: &str = "
SELECT frame.pk_frame, str_state, int_retries::int AS retries, int_exit_status::int AS exit_status,
       floor(extract(epoch FROM ts_started))::int AS started, floor(extract(epoch FROM ts_stopped))::int AS stopped,
       floor(extract(epoch FROM ts_llu))::int AS last_line, int_mem_max_used, int_mem_used, int_gpu_mem_max_used,
       int_gpu_mem_used, coalesce(int_pss_max_used, 0) AS pss_max, str_host, int_cores
  FROM frame WHERE pk_job = $1 AND ts_updated >= to_timestamp($2)
   AND (cardinality($3::text[]) = 0 OR pk_layer::text = ANY($3::text[]))
 ORDER BY ts_updated, pk_frame LIMIT $4";

/// The frames that changed since a client's last look.
async fn updated(
    cuebot: Arc<Cuebot>,
    ask: JobGetUpdatedFramesRequest,
) -> Answer<JobGetUpdatedFramesResponse> {
    let job = key!(ask.job)?;
    let layers = ask.layer_filter.map(|seq| seq.layers).unwrap_or_default();
    few("layers", layers.len())?;
    let layers: Vec<String> = layers.into_iter().map(|layer| layer.id).collect();
    let client = cuebot.pool.get().await?;
    // The time is read first: what changes after it is told by the next answer.
    let known =
        "SELECT str_state, floor(extract(epoch FROM clock_timestamp()))::int FROM job WHERE pk_job = $1";
    let row = client.query_opt(known, &[&job]).await?;
    let row = row.ok_or_else(|| CallError::Missing { what: "job", name: job.to_owned() })?;
    let since = f64::from(ask.last_check);
    let rows = client.query(UPDATED, &[&job, &since, &layers, &ROWS_MAX]).await?;
    Ok(JobGetUpdatedFramesResponse {
        state: JobState::from_str_name(row.get(0)).unwrap_or(JobState::Pending).into(),
        server_time: row.get(1),
        updated_frames: Some(UpdatedFrameSeq { updated_frames: rows.iter().map(updated_frame).collect() }),
    })
}

fn updated_frame(row: &Row) -> UpdatedFrame {
    UpdatedFrame {
        id: row.get("pk_frame"),
        state: state(row).into(),
        retry_count: row.get("retries"),
        exit_status: row.get("exit_status"),
        start_time: seconds(row, "started"),
        stop_time: seconds(row, "stopped"),
        llu_time: seconds(row, "last_line"),
        max_rss: row.get("int_mem_max_used"),
        used_memory: row.get("int_mem_used"),
        max_gpu_memory: row.get("int_gpu_mem_max_used"),
        used_gpu_memory: row.get("int_gpu_mem_used"),
        max_pss: row.get("pss_max"),
        last_resource: resource(row),
        ..Default::default()
    }
}

/// Locks the jobs of the frames of a search, and the jobs that wait for these.
async fn lock_wanted(tx: &Transaction<'_>, w: &Wanted) -> Result<(), CallError> {
    let jobs = format!(
        "WITH own AS MATERIALIZED (
             SELECT DISTINCT frame.pk_job FROM frame JOIN layer ON layer.pk_layer = frame.pk_layer WHERE {WANTED}
             UNION SELECT $1::text
         )
         SELECT pk_job FROM own
         UNION ALL SELECT pk_job_depend_er FROM depend WHERE b_active AND pk_job_depend_on IN (SELECT pk_job FROM own)"
    );
    Ok(lock_jobs(tx, &jobs, &w.values()).await?)
}

/// What a client has done to frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Running frames end, and wait again.
    Kill,
    /// Frames of any state run again, with all their retries.
    Retry,
    /// Frames count as done.
    Eat,
}

/// Applies an action to frames of pending jobs. Returns the commands to be ended on hosts. It comes first in its
/// transaction.
pub(super) async fn apply(
    tx: &Transaction<'_>,
    w: &Wanted,
    action: Action,
) -> Result<Vec<Victim>, CallError> {
    let statement = format!(
        "SELECT frame.pk_frame, frame.str_state, coalesce(frame.str_host, ''), frame.pk_job FROM frame
           JOIN layer ON layer.pk_layer = frame.pk_layer JOIN job ON job.pk_job = frame.pk_job
          WHERE job.str_state = 'PENDING' AND {WANTED} ORDER BY frame.pk_frame FOR UPDATE OF frame"
    );
    lock_wanted(tx, w).await?;
    let frames = tx.query(&statement, &w.values()).await?;
    let running = frames.iter().filter(|row| row.get::<_, &str>(1) == "RUNNING");
    let running: Vec<&str> = running.map(|row| row.get(0)).collect();
    let procs = "SELECT 1 FROM proc WHERE pk_frame = ANY($1::text[]) ORDER BY pk_proc FOR UPDATE";
    tx.query(procs, &[&running]).await?;
    let (mut victims, mut changed) = (Vec::new(), Vec::new());
    let mut jobs: BTreeSet<String> = w.job.iter().cloned().collect();
    let state = if action == Action::Eat { "EATEN" } else { "WAITING" };
    for row in &frames {
        let (frame, before, host): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        jobs.insert(row.get(3));
        if before == "RUNNING" {
            stop(tx, &frame, state, 1, 0).await?;
            // The proc keeps its share of the host until the command ended there, but the frame is free.
            let left = "UPDATE proc SET pk_frame = NULL WHERE pk_frame = $1 RETURNING pk_proc";
            let proc_id = tx.query_opt(left, &[&frame]).await?.map(|row| row.get(0));
            victims.push(Victim { host, frame: frame.clone(), proc_id });
        } else if action == Action::Kill {
            continue;
        }
        changed.push(frame);
    }
    if action != Action::Kill {
        let statement = "UPDATE frame SET str_state = $2::text, ts_updated = current_timestamp, int_version = int_version + 1
              WHERE pk_frame = ANY($1::text[]) AND str_state <> $2::text";
        tx.execute(statement, &[&changed, &state]).await?;
    }
    if action == Action::Retry {
        let statement =
            "UPDATE frame SET int_retries = 0, int_exit_status = -1 WHERE pk_frame = ANY($1::text[])";
        tx.execute(statement, &[&changed]).await?;
    }
    if action == Action::Eat {
        for job in &jobs {
            settle(tx, job).await?;
        }
    }
    Ok(victims)
}

/// Follows up on eaten frames: what waited for whole layers may run, and the job may be finished.
async fn settle(tx: &Transaction<'_>, job: &str) -> Result<(), CallError> {
    let done = format!("SELECT pk_layer FROM layer_stat WHERE pk_job = $1 AND {OPEN_FRAMES} <= 0");
    for layer in tx.query(&done, &[&job]).await? {
        depends::satisfy(tx, Done::Layer(layer.get(0))).await?;
    }
    let open = format!("SELECT 1 FROM job_stat WHERE pk_job = $1 AND {OPEN_FRAMES} > 0");
    if tx.query_opt(&open, &[&job]).await?.is_none() {
        finish_job(tx, job).await?;
    }
    Ok(())
}

async fn act(cuebot: &Cuebot, wanted: Wanted, action: Action, why: &str) -> Result<(), CallError> {
    let victims = cuebot.transact(wanted, move |tx, wanted| Box::pin(apply(tx, wanted, action))).await?;
    cuebot.hosts.end(victims, why.to_owned());
    Ok(())
}

const RETRIED: &str = "a client retried the frame";
const EATEN: &str = "a client ate the frame";

/// The calls that apply an action to the frames that their requests pick: path, request, action, frames, and the reason
/// that hosts get.
macro_rules! actions {
    ($($path:literal: $ask:ty, $action:ident, |$given:ident| $wanted:expr, $why:expr;)*) => {
        fn actions(routes: Routes) -> Routes {
            routes$(.route($path, {
                async fn call(cuebot: Arc<Cuebot>, $given: $ask) -> Answer<()> {
                    act(&cuebot, $wanted?, Action::$action, $why).await
                }
                unary(call)
            }))*
        }
    };
}

actions! {
    "/job.JobInterface/KillFrames": JobKillFramesRequest, Kill,
        |ask| Wanted::of_job(ask.job.as_ref(), ask.req), &ask.reason;
    "/job.JobInterface/RetryFrames": JobRetryFramesRequest, Retry,
        |ask| Wanted::of_job(ask.job.as_ref(), ask.req), RETRIED;
    "/job.JobInterface/EatFrames": JobEatFramesRequest, Eat,
        |ask| Wanted::of_job(ask.job.as_ref(), ask.req), EATEN;
    "/job.LayerInterface/KillFrames": LayerKillFramesRequest, Kill,
        |ask| Wanted::of_layer(ask.layer.as_ref(), None), &ask.reason;
    "/job.LayerInterface/RetryFrames": LayerRetryFramesRequest, Retry,
        |ask| Wanted::of_layer(ask.layer.as_ref(), None), RETRIED;
    "/job.LayerInterface/EatFrames": LayerEatFramesRequest, Eat,
        |ask| Wanted::of_layer(ask.layer.as_ref(), None), EATEN;
    "/job.FrameInterface/Kill": FrameKillRequest, Kill,
        |ask| Wanted::of_frame(ask.frame.as_ref()), &ask.reason;
    "/job.FrameInterface/Retry": FrameRetryRequest, Retry,
        |ask| Wanted::of_frame(ask.frame.as_ref()), RETRIED;
    "/job.FrameInterface/Eat": FrameEatRequest, Eat, |ask| Wanted::of_frame(ask.frame.as_ref()), EATEN;
}

/// Ends a job. It is finished at once, and hosts end its commands.
async fn kill_job(cuebot: Arc<Cuebot>, ask: JobKillRequest) -> Answer<()> {
    let job = key!(ask.job)?;
    let all = Wanted::of_job(ask.job.as_ref(), None)?;
    let victims = cuebot
        .transact((job, all), |tx, (job, all)| {
            Box::pin(async move {
                let victims = apply(tx, all, Action::Kill).await?;
                finish_job(tx, job).await?;
                Ok(victims)
            })
        })
        .await?;
    cuebot.hosts.end(victims, ask.reason);
    Ok(())
}

/// Lets frames in the state DEPEND wait for hosts.
async fn free(cuebot: &Cuebot, wanted: Wanted) -> Result<(), CallError> {
    let statement = format!(
        "UPDATE frame SET int_depend_count = 0, str_state = 'WAITING', ts_updated = current_timestamp,
                int_version = int_version + 1
          WHERE str_state = 'DEPEND' AND pk_frame IN (
              SELECT frame.pk_frame FROM frame JOIN layer ON layer.pk_layer = frame.pk_layer
                JOIN job ON job.pk_job = frame.pk_job WHERE job.str_state = 'PENDING' AND {WANTED})"
    );
    cuebot
        .transact((wanted, statement), |tx, (wanted, statement)| {
            Box::pin(async move {
                lock_wanted(tx, wanted).await?;
                tx.execute(statement.as_str(), &wanted.values()).await?;
                Ok(())
            })
        })
        .await
}

/// Counts the open dependencies of a frame again. A trigger lets it wait for them.
const WAIT_AGAIN: &str = "
UPDATE frame SET int_depend_count = own.times FROM (
    SELECT count(*) AS times FROM depend JOIN frame f ON f.pk_job = depend.pk_job_depend_er
     WHERE f.pk_frame = $1 AND b_active AND NOT b_composite
       AND (pk_layer_depend_er IS NULL OR pk_layer_depend_er = f.pk_layer)
       AND (pk_frame_depend_er IS NULL OR pk_frame_depend_er = f.pk_frame)) own
 WHERE frame.pk_frame = $1 AND frame.str_state = 'WAITING' AND own.times > 0";

/// Lets a frame wait again for what it depends on.
async fn mark_frame_depend(cuebot: Arc<Cuebot>, ask: FrameMarkAsDependRequest) -> Answer<()> {
    let frame = key!(ask.frame)?;
    cuebot
        .transact(frame, |tx, frame| {
            Box::pin(async move {
                lock_jobs(tx, "SELECT pk_job FROM frame WHERE pk_frame = $1", &[frame]).await?;
                tx.execute(WAIT_AGAIN, &[frame]).await?;
                Ok(())
            })
        })
        .await
}

/// Closes the dependencies on frames, and, of a layer, those on the whole layer: they count as done for others.
async fn done_for_others(cuebot: &Cuebot, wanted: Wanted) -> Result<(), CallError> {
    let which = format!(
        "NOT b_composite AND (pk_frame_depend_on IN (SELECT frame.pk_frame FROM frame
              JOIN layer ON layer.pk_layer = frame.pk_layer WHERE {WANTED})
            OR pk_frame_depend_on IS NULL AND pk_layer_depend_on::text = ANY($7::text[]))"
    );
    cuebot
        .transact((wanted, which), |tx, (wanted, which)| {
            Box::pin(async move {
                lock_wanted(tx, wanted).await?;
                depends::close(tx, which, &wanted.values()).await?;
                Ok(())
            })
        })
        .await
}

changes! { |cuebot, ask|
    // Frames wait for hosts, whatever they depend on.
    "/job.JobInterface/MarkAsWaiting": JobMarkAsWaitingRequest =>
        free(&cuebot, Wanted::of_job(ask.job.as_ref(), ask.req)?).await;
    "/job.FrameInterface/MarkAsWaiting": FrameMarkAsWaitingRequest =>
        free(&cuebot, Wanted::of_frame(ask.frame.as_ref())?).await;
    "/job.JobInterface/MarkDoneFrames": JobMarkDoneFramesRequest =>
        done_for_others(&cuebot, Wanted::of_job(ask.job.as_ref(), ask.req)?).await;
    "/job.LayerInterface/MarkdoneFrames": LayerMarkdoneFramesRequest =>
        done_for_others(&cuebot, Wanted::of_layer(ask.layer.as_ref(), None)?).await;
}
