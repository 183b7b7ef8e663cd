//! Frames: lists, and what people do with them.

use super::{ROWS_MAX, id};
use crate::cuebot::depends::{self, Done};
use crate::cuebot::frames::parse;
use crate::cuebot::kill::{self as kills, Victim};
use crate::cuebot::report::{finish_job, stop};
use crate::cuebot::server::Cuebot;
use crate::cuebot::trouble::CallError;
use crate::generated::job as wire;
use std::sync::Arc;
use tokio_postgres::{Row, Transaction};

/// Frames on a page, where a client does not say.
const PAGE: i32 = 1_000;

const FRAMES: &str = "
SELECT frame.pk_frame, frame.str_name, layer.str_name AS layer, int_number::int AS number, str_state,
       int_retries::int AS retries, int_exit_status::int AS exit_status, frame.int_dispatch_order::int AS turn,
       extract(epoch FROM ts_started)::int AS started, extract(epoch FROM ts_stopped)::int AS stopped,
       extract(epoch FROM ts_llu)::int AS last_line, int_mem_max_used, int_mem_used, int_mem_reserved, str_host,
       int_cores, int_total_past_core_time
  FROM frame JOIN layer ON layer.pk_layer = frame.pk_layer";

fn frame(row: &Row) -> wire::Frame {
    let host = row.get::<_, Option<String>>("str_host").unwrap_or_default();
    let cores = f64::from(row.get::<_, i32>("int_cores")) / 100.0;
    wire::Frame {
        id: row.get("pk_frame"),
        name: row.get("str_name"),
        layer_name: row.get("layer"),
        number: row.get("number"),
        state: wire::FrameState::from_str_name(row.get("str_state"))
            .unwrap_or(wire::FrameState::Setup)
            .into(),
        retry_count: row.get("retries"),
        exit_status: row.get("exit_status"),
        dispatch_order: row.get("turn"),
        start_time: row.get::<_, Option<i32>>("started").unwrap_or(0),
        stop_time: row.get::<_, Option<i32>>("stopped").unwrap_or(0),
        llu_time: row.get::<_, Option<i32>>("last_line").unwrap_or(0),
        max_rss: row.get("int_mem_max_used"),
        used_memory: row.get("int_mem_used"),
        reserved_memory: row.get("int_mem_reserved"),
        last_resource: if host.is_empty() { host } else { format!("{host}/{cores:.2}") },
        total_core_time: row.get("int_total_past_core_time"),
        ..Default::default()
    }
}

/// What a client looks for, as the statements have it.
struct Wanted {
    ids: Vec<String>,
    names: Vec<String>,
    layers: Vec<String>,
    states: Vec<&'static str>,
    numbers: Vec<i64>,
}

const WANTED: &str = "frame.pk_job = $1
   AND (cardinality($2::text[]) = 0 OR frame.pk_frame::text = ANY($2::text[]))
   AND (cardinality($3::text[]) = 0 OR frame.str_name::text = ANY($3::text[]))
   AND (cardinality($4::text[]) = 0 OR layer.str_name::text = ANY($4::text[]))
   AND (cardinality($5::text[]) = 0 OR frame.str_state::text = ANY($5::text[]))
   AND (cardinality($6::bigint[]) = 0 OR frame.int_number = ANY($6::bigint[]))";

fn wanted(r: &wire::FrameSearchCriteria) -> Result<Wanted, CallError> {
    let numbers = match r.frame_range.as_str() {
        "" => Vec::new(),
        range => parse(range).map_err(|error| CallError::Value(error.to_string()))?,
    };
    let states = r.states.as_ref().map_or(&[][..], |states| &states.frame_states[..]);
    Ok(Wanted {
        ids: r.ids.clone(),
        names: r.frames.clone(),
        layers: r.layers.clone(),
        states: states
            .iter()
            .filter_map(|state| wire::FrameState::try_from(*state).ok())
            .map(|state| state.as_str_name())
            .collect(),
        numbers: numbers.into_iter().map(i64::from).collect(),
    })
}

/// The frames of a job, a page at a time.
pub(crate) async fn list(
    cuebot: Arc<Cuebot>,
    ask: wire::JobGetFramesRequest,
) -> Result<wire::JobGetFramesResponse, CallError> {
    let job = id("job", ask.job.as_ref().map(|job| &job.id))?;
    let r = ask.req.unwrap_or_default();
    let w = wanted(&r)?;
    let rows = i64::from(if r.limit > 0 { r.limit } else { PAGE }).min(ROWS_MAX);
    let skipped = i64::from(r.page.max(1) - 1) * rows + i64::from(r.offset.max(0));
    let statement = format!(
        "{FRAMES} WHERE {WANTED} ORDER BY frame.int_layer_order, frame.int_dispatch_order LIMIT {rows} OFFSET {skipped}"
    );
    let client = cuebot.pool.get().await?;
    let rows = client.query(&statement, &[&job, &w.ids, &w.names, &w.layers, &w.states, &w.numbers]).await?;
    Ok(wire::JobGetFramesResponse {
        frames: Some(wire::FrameSeq { frames: rows.iter().map(frame).collect() }),
    })
}

/// A frame by its id.
pub(crate) async fn get(
    cuebot: Arc<Cuebot>,
    ask: wire::FrameGetFrameRequest,
) -> Result<wire::FrameGetFrameResponse, CallError> {
    let statement = format!("{FRAMES} WHERE frame.pk_frame = $1");
    let row = cuebot.pool.get().await?.query_opt(&statement, &[&ask.id]).await?;
    let row = row.ok_or(CallError::Missing { what: "frame", name: ask.id })?;
    Ok(wire::FrameGetFrameResponse { frame: Some(frame(&row)) })
}

/// What people do with frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Running frames end, and wait again.
    Kill,
    /// Frames of any state run again, with all their retries.
    Retry,
    /// Frames count as done.
    Eat,
}

/// Does it to the frames of a pending job. Returns the commands that hosts shall end.
async fn apply(tx: &Transaction<'_>, job: &str, w: &Wanted, deed: Deed) -> Result<Vec<Victim>, CallError> {
    let statement = format!(
        "SELECT frame.pk_frame, frame.str_state, coalesce(frame.str_host, '') FROM frame
           JOIN layer ON layer.pk_layer = frame.pk_layer JOIN job ON job.pk_job = frame.pk_job
          WHERE job.str_state = 'PENDING' AND {WANTED} ORDER BY frame.pk_frame FOR UPDATE OF frame"
    );
    let frames = tx.query(&statement, &[&job, &w.ids, &w.names, &w.layers, &w.states, &w.numbers]).await?;
    let mut victims = Vec::new();
    let state = if deed == Deed::Eat { "EATEN" } else { "WAITING" };
    for row in frames {
        let (frame, before, host): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        if before == "RUNNING" {
            stop(tx, &frame, state, 1, 0).await?;
            // The proc keeps its share of the host until the command ended there, but the frame is free.
            tx.execute("UPDATE proc SET pk_frame = NULL WHERE pk_frame = $1", &[&frame]).await?;
            victims.push(Victim { host, frame: frame.clone() });
        } else if deed != Deed::Kill && before != state {
            tx.execute(
                "UPDATE frame SET str_state = $2, ts_updated = current_timestamp, int_version = int_version + 1
                  WHERE pk_frame = $1",
                &[&frame, &state],
            )
            .await?;
        }
        if deed == Deed::Retry {
            tx.execute(
                "UPDATE frame SET int_retries = 0, int_exit_status = -1 WHERE pk_frame = $1",
                &[&frame],
            )
            .await?;
        }
    }
    if deed == Deed::Eat {
        settle(tx, job).await?;
    }
    Ok(victims)
}

/// After frames were eaten: what waited for whole layers may run, and the job may be finished.
async fn settle(tx: &Transaction<'_>, job: &str) -> Result<(), CallError> {
    let open =
        "int_waiting_count + int_running_count + int_dead_count + int_depend_count + int_checkpoint_count";
    let layers = tx
        .query(&format!("SELECT pk_layer FROM layer_stat WHERE pk_job = $1 AND {open} <= 0"), &[&job])
        .await?;
    for layer in layers {
        depends::satisfy(tx, Done::Layer(layer.get(0))).await?;
    }
    let left =
        tx.query_opt(&format!("SELECT 1 FROM job_stat WHERE pk_job = $1 AND {open} > 0"), &[&job]).await?;
    if left.is_none() {
        finish_job(tx, job).await?;
    }
    Ok(())
}

async fn act(
    cuebot: &Cuebot,
    job: Option<&wire::Job>,
    r: Option<wire::FrameSearchCriteria>,
    deed: Deed,
    why: &str,
) -> Result<(), CallError> {
    let job = Arc::new(id("job", job.map(|job| &job.id))?.to_owned());
    let wanted = Arc::new(wanted(&r.unwrap_or_default())?);
    let victims = cuebot
        .transact(move |tx| {
            let (job, wanted) = (job.clone(), wanted.clone());
            Box::pin(async move { apply(tx, &job, &wanted, deed).await })
        })
        .await?;
    kills::end(victims, why.to_owned());
    Ok(())
}

/// Ends running frames, which then wait again.
pub(crate) async fn kill(
    cuebot: Arc<Cuebot>,
    ask: wire::JobKillFramesRequest,
) -> Result<wire::JobKillFramesResponse, CallError> {
    act(&cuebot, ask.job.as_ref(), ask.req, Deed::Kill, &ask.reason).await?;
    Ok(wire::JobKillFramesResponse {})
}

/// Lets frames run again.
pub(crate) async fn retry(
    cuebot: Arc<Cuebot>,
    ask: wire::JobRetryFramesRequest,
) -> Result<wire::JobRetryFramesResponse, CallError> {
    act(&cuebot, ask.job.as_ref(), ask.req, Deed::Retry, "somebody retried the frame").await?;
    Ok(wire::JobRetryFramesResponse {})
}

/// Lets frames count as done.
pub(crate) async fn eat(
    cuebot: Arc<Cuebot>,
    ask: wire::JobEatFramesRequest,
) -> Result<wire::JobEatFramesResponse, CallError> {
    act(&cuebot, ask.job.as_ref(), ask.req, Deed::Eat, "somebody ate the frame").await?;
    Ok(wire::JobEatFramesResponse {})
}

/// Ends a job: it is finished at once, and hosts end what runs of it.
pub(crate) async fn kill_job(
    cuebot: Arc<Cuebot>,
    ask: wire::JobKillRequest,
) -> Result<wire::JobKillResponse, CallError> {
    let job = Arc::new(id("job", ask.job.as_ref().map(|job| &job.id))?.to_owned());
    let all = Arc::new(wanted(&wire::FrameSearchCriteria::default())?);
    let victims = cuebot
        .transact(move |tx| {
            let (job, all) = (job.clone(), all.clone());
            Box::pin(async move {
                let victims = apply(tx, &job, &all, Deed::Kill).await?;
                finish_job(tx, &job).await?;
                Ok(victims)
            })
        })
        .await?;
    kills::end(victims, ask.reason);
    Ok(wire::JobKillResponse {})
}
