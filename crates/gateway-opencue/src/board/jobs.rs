//! Jobs, and the layers of one.

use super::trouble::BoardTrouble;
use super::{
    Board, COUNTS, FrameCounts, bytes, cores, cores_max, cursor, page_size, part, read_cursor, text,
};
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio_postgres::Row;
use windlass_api::Page;
use windlass_cuebot::names::words;

/// A cursor of a later time is one of the year 2112, which PostgreSQL can still compute with.
const CURSOR_US_MAX: i64 = 1 << 52;

/// The columns of a job, with 7 counts of frames from column 9 on.
const JOBS: &str = "SELECT j.pk_job, j.str_name, w.str_name, j.str_user, j.str_shot, o.str_name, j.str_state,
        j.b_paused, r.int_priority::bigint, {counts}, j.int_frame_count::bigint, j.int_layer_count::bigint,
        r.int_cores::bigint, r.int_min_cores::bigint, r.int_max_cores::bigint, (extract(epoch FROM j.ts_started) * 1e6)::bigint,
        (extract(epoch FROM j.ts_stopped) * 1e3)::bigint
    FROM job j JOIN show w ON w.pk_show = j.pk_show JOIN folder o ON o.pk_folder = j.pk_folder
        JOIN job_stat s ON s.pk_job = j.pk_job JOIN job_resource r ON r.pk_job = j.pk_job";
/// The newest first. `$4` and `$5` are the last one of the page before: microseconds and key.
const LISTED: &str = "($1::text IS NULL OR w.str_name = $1) AND ($2::text IS NULL OR j.str_user = $2)
        AND ($3::text IS NULL OR strpos(lower(j.str_name), lower($3)) > 0)
        AND ($4::bigint IS NULL
            OR (j.ts_started, j.pk_job) < (timestamptz 'epoch' + $4::bigint * interval '1 microsecond', $5::text))
    ORDER BY j.ts_started DESC, j.pk_job DESC LIMIT $6";
/// The columns of a layer, with 7 counts of frames from column 11 on.
const LAYERS: &str = "SELECT l.pk_layer, l.str_name, l.str_type, l.str_tags, l.str_services, l.str_range,
        l.int_dispatch_order::bigint, l.int_cores_min::bigint, l.int_mem_min::bigint, l.int_gpus_min::bigint,
        l.b_threadable, {counts}, s.int_total_count::bigint, r.int_cores::bigint,
        u.int_clock_time_success::float8 / nullif(u.int_frame_success_count, 0)
    FROM layer l JOIN layer_stat s ON s.pk_layer = l.pk_layer JOIN layer_resource r ON r.pk_layer = l.pk_layer
        LEFT JOIN layer_usage u ON u.pk_layer = l.pk_layer
    WHERE l.pk_job = $1 AND ($2::bigint IS NULL OR (l.int_dispatch_order, l.pk_layer) > ($2::bigint, $3::text))
    ORDER BY l.int_dispatch_order, l.pk_layer LIMIT $4";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobsQuery {
    #[serde(default)]
    state: JobChoice,
    show: Option<String>,
    user: Option<String>,
    /// A part of the name.
    name: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

/// A choice of jobs by their state.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JobChoice {
    /// Those that have not ended.
    #[default]
    Open,
    /// Those whose frames are booked.
    Pending,
    Paused,
    /// Those that ended, as long as OpenCue keeps them.
    Finished,
}

impl JobChoice {
    fn condition(self) -> &'static str {
        match self {
            JobChoice::Open => "j.str_state = 'PENDING'",
            JobChoice::Pending => "j.str_state = 'PENDING' AND NOT j.b_paused",
            JobChoice::Paused => "j.str_state = 'PENDING' AND j.b_paused",
            JobChoice::Finished => "j.str_state = 'FINISHED'",
        }
    }
}

#[derive(Serialize)]
pub(super) struct JobFigures {
    id: String,
    name: String,
    show: String,
    user: String,
    shot: String,
    group: String,
    /// `pending`, `paused`, `finished`, or another word of OpenCue's.
    state: String,
    priority: i64,
    counts: FrameCounts,
    frames: i64,
    layers: i64,
    cores: f64,
    cores_min: f64,
    /// Null without a maximum.
    cores_max: Option<f64>,
    started_ms: i64,
    stopped_ms: Option<i64>,
    #[serde(skip)]
    started_us: i64,
}

fn job(row: &Row) -> JobFigures {
    let (state, is_paused): (String, bool) = (row.get(6), row.get(7));
    let started_us: i64 = row.get(21);
    JobFigures {
        id: row.get(0),
        name: row.get(1),
        show: row.get(2),
        user: row.get(3),
        shot: row.get(4),
        group: row.get(5),
        state: match state.as_str() {
            "PENDING" if is_paused => "paused".to_owned(),
            other => other.to_lowercase(),
        },
        priority: row.get(8),
        counts: FrameCounts::of(row, 9),
        frames: row.get(16),
        layers: row.get(17),
        cores: cores(row.get(18)),
        cores_min: cores(row.get(19)),
        cores_max: cores_max(row.get(20)),
        started_ms: started_us.div_euclid(1_000),
        stopped_ms: row.get(22),
        started_us,
    }
}

/// Lists jobs, the newest first.
pub(super) async fn list(
    State(board): State<Arc<Board>>,
    query: Result<Query<JobsQuery>, QueryRejection>,
) -> Result<Json<Page<JobFigures>>, BoardTrouble> {
    let Query(asked) = query?;
    let size = page_size(asked.limit)?;
    let (show, user, name) =
        (text("show", asked.show)?, text("user", asked.user)?, text("name", asked.name)?);
    let (before_us, before) = read_cursor(asked.cursor)?;
    let before_us = before_us.map(|us| us.clamp(0, CURSOR_US_MAX));
    let statement =
        format!("{} WHERE {} AND {LISTED}", JOBS.replace("{counts}", COUNTS), asked.state.condition());
    let client = board.client().await?;
    let rows =
        client.query(&statement, &[&show, &user, &name, &before_us, &before, &(size as i64 + 1)]).await?;
    let jobs = rows.iter().map(job).collect();
    Ok(Json(part(jobs, size, |job: &JobFigures| cursor(job.started_us, &job.id))))
}

/// Answers with one job.
pub(super) async fn show(
    State(board): State<Arc<Board>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<JobFigures>, BoardTrouble> {
    let id = key(id)?;
    let statement = format!("{} WHERE j.pk_job = $1", JOBS.replace("{counts}", COUNTS));
    let client = board.client().await?;
    let row = client.query_opt(&statement, &[&id]).await?;
    let row = row.ok_or_else(|| BoardTrouble::Missing(format!("job '{id}'")))?;
    Ok(Json(job(&row)))
}

/// The key in a path.
pub(super) fn key(path: Result<Path<String>, PathRejection>) -> Result<String, BoardTrouble> {
    let Path(shown) = path?;
    text("the path", Some(shown))?.ok_or_else(|| BoardTrouble::Asked("the path has no name".to_owned()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayersQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// A layer, and what a frame of it asks for.
#[derive(Serialize)]
pub(super) struct LayerFigures {
    id: String,
    name: String,
    /// `render`, `util`, `pre` or `post`.
    kind: String,
    tags: Vec<String>,
    services: Vec<String>,
    range: String,
    /// Above 0 a minimum, 0 a whole host, below 0 a whole host without that number.
    cores_min: f64,
    memory_bytes: i64,
    gpus: i64,
    threadable: bool,
    counts: FrameCounts,
    frames: i64,
    /// Held by its frames.
    cores: f64,
    /// Of its frames that succeeded; null before one did.
    mean_ms: Option<f64>,
    #[serde(skip)]
    order: i64,
}

/// Lists the layers of a job in their order.
pub(super) async fn layers(
    State(board): State<Arc<Board>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<LayersQuery>, QueryRejection>,
) -> Result<Json<Page<LayerFigures>>, BoardTrouble> {
    let (id, Query(asked)) = (key(id)?, query?);
    let size = page_size(asked.limit)?;
    let (after_order, after) = read_cursor(asked.cursor)?;
    let statement = LAYERS.replace("{counts}", COUNTS);
    let client = board.client().await?;
    let rows = client.query(&statement, &[&id, &after_order, &after, &(size as i64 + 1)]).await?;
    let layers = rows.iter().map(layer).collect();
    Ok(Json(part(layers, size, |layer: &LayerFigures| cursor(layer.order, &layer.id))))
}

fn layer(row: &Row) -> LayerFigures {
    LayerFigures {
        id: row.get(0),
        name: row.get(1),
        kind: row.get::<_, String>(2).to_lowercase(),
        tags: words(row.get(3), &['|']).collect(),
        services: words(row.get(4), &[',']).collect(),
        range: row.get(5),
        order: row.get(6),
        cores_min: cores(row.get(7)),
        memory_bytes: bytes(row.get(8)),
        gpus: row.get(9),
        threadable: row.get(10),
        counts: FrameCounts::of(row, 11),
        frames: row.get(18),
        cores: cores(row.get(19)),
        mean_ms: row.get::<_, Option<f64>>(20).map(|mean_s| mean_s * 1e3),
    }
}
