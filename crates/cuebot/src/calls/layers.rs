//! Layers: lists, and what people set.

use super::fields::{Answer, ROWS_MAX, cores, fitting, hundredths, name, tags};
use super::limits;
use crate::cuebot::Cuebot;
use crate::generated::job::*;
use crate::locks::lock_jobs;
use crate::names::{self, words};
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;

/// Characters of a layer's tags together: their column.
const TAGS_CHARS_MAX: usize = 4_000;
/// Characters of a path that a layer writes: its column.
const PATH_CHARS_MAX: usize = 2_048;
/// Memory that a layer may request, in KiB: a PiB.
const MEMORY_KIB_MAX: i64 = 1 << 40;
/// The least memory that a frame gets, in KiB: 256 MiB, as in OpenCue.
const MEMORY_KIB_MIN: i64 = 256 << 10;
/// The last second that a time may name: the end of the year 9999.
const TIME_S_MAX: i64 = 253_402_300_799;
/// Cores that a layer may request, or leave free on a host.
const CORES_MAX: f32 = 1e5;

pub(super) fn routes(routes: Routes) -> Routes {
    setters(answers(routes))
        .route("/job.JobInterface/GetLayers", unary(list))
        .route("/job.LayerInterface/FindLayer", unary(find))
        .route("/job.LayerInterface/SetDispatchOrder", unary(set_dispatch_order))
        .route("/job.LayerInterface/SetStartAfter", unary(set_start_after))
        .route("/job.LayerInterface/AddLimit", unary(add_limit))
        .route("/job.LayerInterface/GetOutputPaths", unary(paths))
        .route("/job.LayerInterface/RegisterOutputPath", unary(add_path))
}

/// Layers with their figures. A condition is appended.
const LAYERS: &str = "
SELECT layer.pk_layer, layer.pk_job, layer.str_name, str_range, str_tags, int_cores_min::int AS cores_min, int_cores_max,
       b_threadable, int_mem_min, int_gpu_mem_min, int_chunk_size::int AS chunk, int_dispatch_order::int AS turn,
       upper(str_type) AS kind, str_services, b_optimize, int_timeout, int_timeout_llu, str_cmd,
       int_gpus_min::int AS gpus_min, int_gpus_max::int AS gpus_max,
       floor(extract(epoch FROM layer.ts_eligible))::int AS eligible,
       floor(extract(epoch FROM layer.ts_start_after))::bigint AS start_after,
       coalesce(str_start_after_reason, '') AS reason, floor(extract(epoch FROM s.ts_started))::int AS started,
       floor(extract(epoch FROM s.ts_stopped))::int AS stopped,
       ARRAY(SELECT known.str_name::text FROM layer_limit held JOIN limit_record known USING (pk_limit_record)
              WHERE held.pk_layer = layer.pk_layer ORDER BY 1) AS limits,
       s.int_total_count::int AS total, s.int_waiting_count::int AS waiting, s.int_running_count::int AS running,
       s.int_dead_count::int AS dead, s.int_eaten_count::int AS eaten, s.int_depend_count::int AS depend,
       s.int_succeeded_count::int AS succeeded, r.int_cores::int AS cores, r.int_gpus AS gpus, m.int_max_rss,
       m.int_gpu_mem_max, coalesce(m.int_max_pss, 0) AS int_max_pss, u.int_gpu_time_success, u.int_gpu_time_fail,
       u.int_core_time_success, u.int_core_time_fail, u.int_frame_success_count::bigint AS rendered,
       u.int_frame_fail_count::bigint AS failed, u.int_clock_time_success::bigint AS clock_s, u.int_clock_time_high,
       u.int_clock_time_low
  FROM layer JOIN layer_stat s ON s.pk_layer = layer.pk_layer JOIN layer_resource r ON r.pk_layer = layer.pk_layer
  JOIN layer_usage u ON u.pk_layer = layer.pk_layer JOIN layer_mem m ON m.pk_layer = layer.pk_layer";

fn layer(row: &Row) -> Layer {
    let seconds = |name: &str| row.get::<_, Option<i32>>(name).unwrap_or(0);
    let stats =
        frame_stats!(LayerStats of row { total_frames: "total", low_frame_sec: "int_clock_time_low" });
    Layer {
        id: row.get("pk_layer"),
        name: row.get("str_name"),
        range: row.get("str_range"),
        tags: words(row.get("str_tags"), &['|']).collect(),
        min_cores: row.get::<_, i32>("cores_min") as f32 / 100.0,
        max_cores: cores(row.get("int_cores_max")),
        is_threadable: row.get("b_threadable"),
        min_memory: row.get("int_mem_min"),
        min_gpu_memory: row.get("int_gpu_mem_min"),
        chunk_size: row.get("chunk"),
        dispatch_order: row.get("turn"),
        r#type: LayerType::from_str_name(row.get("kind")).unwrap_or(LayerType::Render).into(),
        services: words(row.get("str_services"), &[',']).collect(),
        memory_optimizer_enabled: row.get("b_optimize"),
        layer_stats: Some(stats),
        parent_id: row.get("pk_job"),
        timeout: row.get("int_timeout"),
        timeout_llu: row.get("int_timeout_llu"),
        command: row.get("str_cmd"),
        limits: row.get("limits"),
        min_gpus: row.get::<_, i32>("gpus_min") as f32,
        max_gpus: row.get::<_, i32>("gpus_max") as f32,
        eligible_time: seconds("eligible"),
        start_time: seconds("started"),
        stop_time: seconds("stopped"),
        start_after: row.get::<_, Option<i64>>("start_after").unwrap_or(0),
        start_after_reason: row.get("reason"),
    }
}

/// The layers of a job, in order of dispatch.
async fn list(cuebot: Arc<Cuebot>, ask: JobGetLayersRequest) -> Answer<JobGetLayersResponse> {
    let job = key!(ask.job)?;
    let statement =
        format!("{LAYERS} WHERE layer.pk_job = $1 ORDER BY layer.int_dispatch_order LIMIT {ROWS_MAX}");
    let rows = cuebot.pool.get().await?.query(&statement, &[&job]).await?;
    Ok(JobGetLayersResponse { layers: Some(LayerSeq { layers: rows.iter().map(layer).collect() }) })
}

pub(super) async fn by_id(cuebot: &Cuebot, key: &str) -> Result<Layer, CallError> {
    let statement = format!("{LAYERS} WHERE layer.pk_layer = $1");
    let row = cuebot.pool.get().await?.query_opt(&statement, &[&key]).await?;
    let row = row.ok_or_else(|| CallError::Missing { what: "layer", name: key.to_owned() })?;
    Ok(layer(&row))
}

const LIMITS_OF_LAYER: &str =
    "l.pk_limit_record IN (SELECT pk_limit_record FROM layer_limit WHERE pk_layer = $1)";

answers! { |cuebot, ask|
    "/job.LayerInterface/GetLayer": LayerGetLayerRequest => LayerGetLayerResponse {
        layer: Some(by_id(&cuebot, &ask.id).await?)
    };
    "/job.LayerInterface/GetLimits": LayerGetLimitsRequest => LayerGetLimitsResponse {
        limits: limits::list(&cuebot, LIMITS_OF_LAYER, &[&key!(ask.layer)?]).await?
    };
}

/// A layer of a pending job, by the names of both.
async fn find(cuebot: Arc<Cuebot>, ask: LayerFindLayerRequest) -> Answer<LayerFindLayerResponse> {
    let statement = format!(
        "{LAYERS} WHERE layer.str_name = $2
            AND layer.pk_job = (SELECT pk_job FROM job WHERE str_visible_name = $1)"
    );
    let row = cuebot.pool.get().await?.query_opt(&statement, &[&ask.job, &ask.layer]).await?;
    let row =
        row.ok_or_else(|| CallError::Missing { what: "layer", name: format!("{}/{}", ask.job, ask.layer) })?;
    Ok(LayerFindLayerResponse { layer: Some(layer(&row)) })
}

/// Tags as the column has them.
fn joined(given: &[String]) -> Result<String, CallError> {
    tags(given)?;
    fitting("list of tags", &given.join(" | "), TAGS_CHARS_MAX)
}

/// Hundredths of cores of a frame. 0 is a whole host, and a negative number is a whole host without that number.
fn cores_of_frame(cores: f32) -> Result<i64, CallError> {
    if cores.is_finite() && (-CORES_MAX..=CORES_MAX).contains(&cores) {
        return Ok((f64::from(cores) * 100.0).round() as i64);
    }
    Err(CallError::Value(format!("{cores} is not a valid number of cores of a frame")))
}

fn memory_kib(given: i64) -> Result<i64, CallError> {
    if (1..=MEMORY_KIB_MAX).contains(&given) {
        return Ok(given.max(MEMORY_KIB_MIN));
    }
    Err(CallError::Value(format!(
        "{given} KiB is not a valid memory of a frame; give 1 to {MEMORY_KIB_MAX} KiB"
    )))
}

setters!("job.LayerInterface", layer {
    "SetTags": LayerSetTagsRequest, |ask| joined(&ask.tags)?,
        "UPDATE layer SET str_tags = $2 WHERE pk_layer = $1";
    "SetMinCores": LayerSetMinCoresRequest, |ask| cores_of_frame(ask.cores)?,
        "UPDATE layer SET int_cores_min = $2 WHERE pk_layer = $1";
    "SetMaxCores": LayerSetMaxCoresRequest, |ask| hundredths(ask.cores)?.max(0),
        "UPDATE layer SET int_cores_max = $2 WHERE pk_layer = $1";
    "SetMinMemory": LayerSetMinMemoryRequest, |ask| memory_kib(ask.memory)?,
        "UPDATE layer SET int_mem_min = $2 WHERE pk_layer = $1";
    "SetMinGpuMemory": LayerSetMinGpuMemoryRequest, |ask| ask.gpu_memory.clamp(0, MEMORY_KIB_MAX),
        "UPDATE layer SET int_gpu_mem_min = $2 WHERE pk_layer = $1";
    "SetMinGpus": LayerSetMinGpusRequest, |ask| i64::from(ask.min_gpus.max(0)),
        "UPDATE layer SET int_gpus_min = $2 WHERE pk_layer = $1";
    "SetMaxGpus": LayerSetMaxGpusRequest, |ask| i64::from(ask.max_gpus.max(0)),
        "UPDATE layer SET int_gpus_max = $2 WHERE pk_layer = $1";
    "SetThreadable": LayerSetThreadableRequest, |ask| ask.threadable,
        "UPDATE layer SET b_threadable = $2 WHERE pk_layer = $1";
    "EnableMemoryOptimizer": LayerEnableMemoryOptimizerRequest, |ask| ask.value,
        "UPDATE layer SET b_optimize = $2 WHERE pk_layer = $1";
    "SetTimeout": LayerSetTimeoutRequest, |ask| ask.timeout.max(0),
        "UPDATE layer SET int_timeout = $2 WHERE pk_layer = $1";
    "SetTimeoutLLU": LayerSetTimeoutLluRequest, |ask| ask.timeout_llu.max(0),
        "UPDATE layer SET int_timeout_llu = $2 WHERE pk_layer = $1";
    "DropLimit": LayerDropLimitRequest, |ask| ask.limit_id.clone(),
        "DELETE FROM layer_limit WHERE pk_layer = $1 AND pk_limit_record = $2";
});

/// Sets the place of a layer among those of its job. Its frames have it, too.
async fn set_dispatch_order(cuebot: Arc<Cuebot>, ask: LayerSetDispatchOrderRequest) -> Answer<()> {
    let layer = key!(ask.layer)?;
    let changed = cuebot
        .transact((layer, i64::from(ask.order)), |tx, (layer, order)| {
            Box::pin(async move {
                lock_jobs(tx, "SELECT pk_job FROM layer WHERE pk_layer = $1", &[layer]).await?;
                let frames = "UPDATE frame SET int_layer_order = $2::bigint WHERE pk_layer = $1";
                tx.execute(frames, &[layer, order]).await?;
                let own = "UPDATE layer SET int_dispatch_order = $2::bigint WHERE pk_layer = $1";
                Ok(tx.execute(own, &[layer, order]).await?)
            })
        })
        .await?;
    CallError::unless_found(changed, "layer", layer)
}

/// Sets the time before which no frame of a layer starts; 0 is none.
async fn set_start_after(cuebot: Arc<Cuebot>, ask: LayerSetStartAfterRequest) -> Answer<()> {
    let layer = key!(ask.layer)?;
    name("user", &ask.username, names::width::USER)?;
    if !(0..=TIME_S_MAX).contains(&ask.start_after) {
        let why =
            format!("{} is not a valid time; give seconds since 1970, or 0 for at once", ask.start_after);
        return Err(CallError::Value(why));
    }
    let reason = format!("set by {}", ask.username);
    let statement =
        "UPDATE layer SET ts_start_after = CASE WHEN $2::bigint > 0 THEN to_timestamp($2::bigint) END,
            str_start_after_reason = CASE WHEN $2::bigint > 0 THEN $3::text END WHERE pk_layer = $1";
    let changed = cuebot.pool.get().await?.execute(statement, &[&layer, &ask.start_after, &reason]).await?;
    CallError::unless_found(changed, "layer", layer)
}

/// Puts frames of a layer under a limit.
async fn add_limit(cuebot: Arc<Cuebot>, ask: LayerAddLimitRequest) -> Answer<()> {
    let layer = key!(ask.layer)?;
    let client = cuebot.pool.get().await?;
    let known = "SELECT 1 FROM layer CROSS JOIN limit_record WHERE pk_layer = $1 AND pk_limit_record = $2";
    if client.query_opt(known, &[&layer, &ask.limit_id]).await?.is_none() {
        return Err(CallError::Missing { what: "layer or limit", name: ask.limit_id });
    }
    let statement = "INSERT INTO layer_limit (pk_layer_limit, pk_layer, pk_limit_record)
        SELECT gen_random_uuid()::text, $1::text, $2::text
         WHERE NOT EXISTS (SELECT 1 FROM layer_limit WHERE pk_layer = $1::text AND pk_limit_record = $2::text)";
    client.execute(statement, &[&layer, &ask.limit_id]).await?;
    Ok(())
}

async fn paths(cuebot: Arc<Cuebot>, ask: LayerGetOutputPathsRequest) -> Answer<LayerGetOutputPathsResponse> {
    let layer = key!(ask.layer)?;
    let statement = format!(
        "SELECT str_filespec FROM layer_output WHERE pk_layer = $1 ORDER BY ser_order LIMIT {ROWS_MAX}"
    );
    let rows = cuebot.pool.get().await?.query(&statement, &[&layer]).await?;
    Ok(LayerGetOutputPathsResponse { output_paths: rows.iter().map(|row| row.get(0)).collect() })
}

async fn add_path(cuebot: Arc<Cuebot>, ask: LayerRegisterOutputPathRequest) -> Answer<()> {
    let layer = key!(ask.layer)?;
    name("path", &ask.spec, PATH_CHARS_MAX)?;
    let statement = "INSERT INTO layer_output (pk_layer_output, pk_layer, pk_job, str_filespec)
        SELECT gen_random_uuid()::text, pk_layer, pk_job, $2::text FROM layer WHERE pk_layer = $1
        ON CONFLICT DO NOTHING";
    cuebot.pool.get().await?.execute(statement, &[&layer, &ask.spec]).await?;
    Ok(())
}
