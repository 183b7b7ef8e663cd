//! Frames of a layer by number, a page at a time.
//!
//! No index of OpenCue's gives the frames of a layer in order. But the layer's range says the numbers of its frames,
//! the numbers give their names, and the names have an index. So a page costs the same in a layer of ten frames and
//! of a hundred thousand. Frames in a rare state are found by the index of states.

use super::data::Board;
use super::pages::{key, page, page_size, statement, text};
use super::trouble::BoardTrouble;
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tokio_postgres::{Client, Error};
use windlass_api::Page;
use windlass_cuebot::frames::chunk_starts;
use windlass_cuebot::generated::job::FrameState;

/// Numbers of a range that one request looks at for frames in a state.
const LOOKED_AT_MAX: usize = 2_000;
/// Frames in a state that are sorted.
const SORTED_MAX: i64 = 10_000;

/// Frames, with their numbers as cursors. The host, the cores and the memory are those of a frame's present or last run.
/// OpenCue's exit status before the first end is -1.
const FRAME: &str = "SELECT json_build_object('id', f.pk_frame, 'name', f.str_name, 'number', f.int_number,
        'state', lower(f.str_state), 'host', nullif(f.str_host, ''),
        'cores', CASE WHEN f.int_cores > 0 THEN f.int_cores / 100.0 END,
        'reserved_bytes', CASE WHEN f.int_mem_reserved > 0 THEN f.int_mem_reserved::numeric * 1024 END,
        'used_bytes', nullif(f.int_mem_used, 0)::numeric * 1024,
        'peak_bytes', nullif(f.int_mem_max_used, 0)::numeric * 1024, 'retries', f.int_retries,
        'exit_status', nullif(f.int_exit_status, -1), 'depends', f.int_depend_count,
        'started_ms', (extract(epoch FROM f.ts_started) * 1e3)::bigint,
        'stopped_ms', (extract(epoch FROM f.ts_stopped) * 1e3)::bigint)::text, f.int_number::text";
const BY_NAME: &str =
    "FROM unnest($1::text[]) AS asked(name) JOIN frame f ON f.str_name = asked.name AND f.pk_job = $2
    WHERE f.pk_layer = $3 AND ($4::text IS NULL OR f.str_state = $4) ORDER BY f.int_number LIMIT $5";
const BY_STATE: &str =
    "FROM frame f WHERE f.pk_job = $1 AND f.pk_layer = $2 AND ($3::text IS NULL OR f.str_state = $3)
        AND f.int_number > $4 ORDER BY f.int_number LIMIT $5";
/// A layer, with the number of its frames in the state `$3`.
const LAYER: &str = "SELECT l.pk_layer, l.str_range, l.int_chunk_size::bigint,
        coalesce(({counts} ->> lower($3::text))::bigint, 0)
    FROM layer l JOIN layer_stat s ON s.pk_layer = l.pk_layer WHERE l.pk_job = $1 AND l.str_name = $2";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FramesQuery {
    layer: String,
    state: Option<String>,
    /// The number of the last frame of the page before.
    cursor: Option<i64>,
    limit: Option<usize>,
}

/// A layer's frames as they are looked for.
struct Search<'a> {
    job: &'a str,
    layer_name: &'a str,
    layer: String,
    state: Option<&'static str>,
    after: i64,
    size: usize,
}

/// OpenCue's word for a state of frames.
fn state(asked: &str) -> Result<&'static str, BoardTrouble> {
    match FrameState::from_str_name(&asked.to_ascii_uppercase()) {
        Some(state) => Ok(state.as_str_name()),
        None => Err(BoardTrouble::Asked(format!("'{asked}' is not a state of frames"))),
    }
}

/// Lists frames of a layer by number. A page may have few frames, or none, and still not be the last one.
pub(super) async fn list(
    State(board): State<Arc<Board>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<FramesQuery>, QueryRejection>,
) -> Result<Json<Page<Value>>, BoardTrouble> {
    let (job, Query(asked)) = (key(id)?, query?);
    let size = page_size(asked.limit)?;
    let state = asked.state.as_deref().map(state).transpose()?;
    let layer_name = text("layer", Some(asked.layer))?.unwrap_or_default();
    let client = board.client().await?;
    let row = client.query_opt(&statement(LAYER), &[&job, &layer_name, &state]).await?;
    let row = row.ok_or_else(|| BoardTrouble::Missing(format!("layer '{layer_name}' of job '{job}'")))?;
    let (range, chunk_size, in_state): (String, i64, i64) = (row.get(1), row.get(2), row.get(3));
    let search = Search {
        job: &job,
        layer_name: &layer_name,
        layer: row.get(0),
        state,
        after: asked.cursor.unwrap_or(i64::MIN),
        size,
    };
    let is_rare = state.is_some() && in_state <= SORTED_MAX;
    let numbers = chunk_starts(&range, usize::try_from(chunk_size).unwrap_or(1));
    let page = match numbers {
        Ok(numbers) if !is_rare => search.by_name(&client, numbers).await?,
        // A range that only OpenCue can read leaves the order to the database.
        _ => search.by_state(&client).await?,
    };
    Ok(Json(page))
}

impl Search<'_> {
    async fn by_state(&self, client: &Client) -> Result<Page<Value>, Error> {
        let Search { job, layer, state, after, size, .. } = self;
        let most = *size as i64 + 1;
        let rows = client.query(&format!("{FRAME} {BY_STATE}"), &[job, layer, state, after, &most]).await?;
        Ok(page(&rows, *size))
    }

    async fn by_name(&self, client: &Client, numbers: Vec<i32>) -> Result<Page<Value>, Error> {
        let Search { job, layer, state, size, .. } = self;
        let looked_at = if state.is_some() { LOOKED_AT_MAX } else { *size };
        let (window, is_last) = window_of(numbers, self.after, looked_at);
        let names: Vec<String> =
            window.iter().map(|number| format!("{number:04}-{}", self.layer_name)).collect();
        let most = *size as i64 + 1;
        let rows = client.query(&format!("{FRAME} {BY_NAME}"), &[&names, job, layer, state, &most]).await?;
        let mut page = page(&rows, *size);
        if page.next.is_none() && !is_last {
            page.next = window.last().map(i32::to_string);
        }
        Ok(page)
    }
}

/// The first numbers after one, in their order, and whether these are the last.
fn window_of(mut numbers: Vec<i32>, after: i64, most: usize) -> (Vec<i32>, bool) {
    numbers.sort_unstable();
    let first = numbers.partition_point(|number| i64::from(*number) <= after);
    let end = numbers.len().min(first + most);
    let is_last = end == numbers.len();
    (numbers[first..end].to_vec(), is_last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_each_other_and_leave_nothing_out() {
        let numbers = chunk_starts("10-1,-3,20-30x5", 1).unwrap();
        let (mut after, mut seen) = (i64::MIN, Vec::new());
        loop {
            let (window, is_last) = window_of(numbers.clone(), after, 4);
            assert!(window.len() <= 4);
            seen.extend(window);
            if is_last {
                break;
            }
            after = i64::from(*seen.last().unwrap());
        }
        assert_eq!(seen, [-3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 25, 30]);
        assert_eq!(window_of(numbers, i64::MAX, 4), (Vec::new(), true));
    }
}
