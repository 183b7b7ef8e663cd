//! Jobs, and the layers of one.

use super::data::Board;
use super::pages::{entry, key, page, page_size, read_cursor, statement, text};
use super::trouble::BoardTrouble;
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use windlass_api::Page;

/// A cursor of a later time is one of the year 2112, which PostgreSQL can still compute with.
const CURSOR_US_MAX: i64 = 1 << 52;

/// Jobs. The cursor is the time of the start in microseconds, and the key. A maximum below 1 means that there is none.
const JOBS: &str = "SELECT json_build_object('id', j.pk_job, 'name', j.str_name, 'show', w.str_name,
        'user', j.str_user, 'shot', j.str_shot, 'group', o.str_name,
        'state', CASE WHEN j.str_state = 'PENDING' AND j.b_paused THEN 'paused' ELSE lower(j.str_state) END,
        'priority', r.int_priority, 'counts', {counts}, 'frames', j.int_frame_count, 'layers', j.int_layer_count,
        'cores', r.int_cores / 100.0, 'cores_min', r.int_min_cores / 100.0,
        'cores_max', CASE WHEN r.int_max_cores > 0 THEN r.int_max_cores / 100.0 END,
        'started_ms', floor(extract(epoch FROM j.ts_started) * 1e3)::bigint,
        'stopped_ms', (extract(epoch FROM j.ts_stopped) * 1e3)::bigint)::text,
        (extract(epoch FROM j.ts_started) * 1e6)::bigint || '.' || j.pk_job
    FROM job j JOIN show w ON w.pk_show = j.pk_show JOIN folder o ON o.pk_folder = j.pk_folder
        JOIN job_stat s ON s.pk_job = j.pk_job JOIN job_resource r ON r.pk_job = j.pk_job";
/// The newest first. `$4` and `$5` are the last one of the page before: microseconds and key.
const LISTED: &str = "($1::text IS NULL OR w.str_name = $1) AND ($2::text IS NULL OR j.str_user = $2)
        AND ($3::text IS NULL OR strpos(lower(j.str_name), lower($3)) > 0)
        AND ($4::bigint IS NULL
            OR (j.ts_started, j.pk_job) < (timestamptz 'epoch' + $4::bigint * interval '1 microsecond', $5::text))
    ORDER BY j.ts_started DESC, j.pk_job DESC LIMIT $6";
/// Layers, and what a frame of each asks for. Cores above 0 are a minimum, 0 is a whole host, and below 0 it is a whole
/// host without that number. The mean is one of frames that succeeded.
const LAYERS: &str = "SELECT json_build_object('id', l.pk_layer, 'name', l.str_name, 'kind', lower(l.str_type),
        'tags', ARRAY(SELECT btrim(word) FROM unnest(string_to_array(l.str_tags, '|')) WITH ORDINALITY AS t(word, place)
            WHERE btrim(word) <> '' ORDER BY place),
        'services', ARRAY(SELECT btrim(word) FROM unnest(string_to_array(l.str_services, ',')) WITH ORDINALITY
            AS t(word, place) WHERE btrim(word) <> '' ORDER BY place),
        'range', l.str_range, 'cores_min', l.int_cores_min / 100.0, 'memory_bytes', l.int_mem_min::numeric * 1024,
        'gpus', l.int_gpus_min, 'threadable', l.b_threadable, 'counts', {counts}, 'frames', s.int_total_count,
        'cores', r.int_cores / 100.0,
        'mean_ms', u.int_clock_time_success * 1e3 / nullif(u.int_frame_success_count, 0))::text,
        l.int_dispatch_order || '.' || l.pk_layer
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

/// Lists jobs, the newest first.
pub(super) async fn list(
    State(board): State<Arc<Board>>,
    query: Result<Query<JobsQuery>, QueryRejection>,
) -> Result<Json<Page<Value>>, BoardTrouble> {
    let Query(asked) = query?;
    let size = page_size(asked.limit)?;
    let (show, user, name) =
        (text("show", asked.show)?, text("user", asked.user)?, text("name", asked.name)?);
    let (before_us, before) = read_cursor(asked.cursor)?;
    let before_us = before_us.map(|us| us.clamp(0, CURSOR_US_MAX));
    let statement = format!("{} WHERE {} AND {LISTED}", statement(JOBS), asked.state.condition());
    let client = board.client().await?;
    let rows =
        client.query(&statement, &[&show, &user, &name, &before_us, &before, &(size as i64 + 1)]).await?;
    Ok(Json(page(&rows, size)))
}

/// Answers with one job.
pub(super) async fn show(
    State(board): State<Arc<Board>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, BoardTrouble> {
    let id = key(id)?;
    let statement = format!("{} WHERE j.pk_job = $1", statement(JOBS));
    let row = board.client().await?.query_opt(&statement, &[&id]).await?;
    Ok(Json(entry(&row.ok_or_else(|| BoardTrouble::Missing(format!("job '{id}'")))?)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayersQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// Lists the layers of a job in their order.
pub(super) async fn layers(
    State(board): State<Arc<Board>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<LayersQuery>, QueryRejection>,
) -> Result<Json<Page<Value>>, BoardTrouble> {
    let (id, Query(asked)) = (key(id)?, query?);
    let size = page_size(asked.limit)?;
    let (after_order, after) = read_cursor(asked.cursor)?;
    let client = board.client().await?;
    let most = size as i64 + 1;
    let rows = client.query(&statement(LAYERS), &[&id, &after_order, &after, &most]).await?;
    Ok(Json(page(&rows, size)))
}
