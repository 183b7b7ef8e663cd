//! Frames of a layer by number, a page at a time.
//!
//! No index of OpenCue's gives the frames of a layer in order. But the layer's range says the numbers of its frames,
//! the numbers give their names, and the names have an index. So a page costs the same in a layer of ten frames and
//! of a hundred thousand. Frames in a rare state are found by the index of states.

use super::jobs::key;
use super::trouble::BoardTrouble;
use super::{Board, COUNTS, FrameCounts, bytes, cores, page_size, text};
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio_postgres::{Client, Error, Row};
use windlass_api::Page;
use windlass_cuebot::frames::chunk_starts;

/// Numbers of a range that one request looks at for frames in a state.
const LOOKED_AT_MAX: usize = 2_000;
/// Frames in a state that are sorted.
const SORTED_MAX: i64 = 10_000;

const FRAME: &str =
    "SELECT f.pk_frame, f.str_name, f.int_number::bigint, f.str_state, f.str_host, f.int_cores::bigint,
        f.int_mem_reserved::bigint, nullif(f.int_mem_used, 0)::bigint, nullif(f.int_mem_max_used, 0)::bigint,
        f.int_retries::bigint, f.int_exit_status::bigint, f.int_depend_count::bigint,
        (extract(epoch FROM f.ts_started) * 1e3)::bigint, (extract(epoch FROM f.ts_stopped) * 1e3)::bigint";
const BY_NAME: &str =
    "FROM unnest($1::text[]) AS asked(name) JOIN frame f ON f.str_name = asked.name AND f.pk_job = $2
    WHERE f.pk_layer = $3 AND ($4::text IS NULL OR f.str_state = $4) ORDER BY f.int_number LIMIT $5";
const BY_STATE: &str =
    "FROM frame f WHERE f.pk_job = $1 AND f.pk_layer = $2 AND ($3::text IS NULL OR f.str_state = $3)
        AND f.int_number > $4 ORDER BY f.int_number LIMIT $5";
/// The columns of a layer, with 7 counts of frames from column 3 on.
const LAYER: &str = "SELECT l.pk_layer, l.str_range, l.int_chunk_size::bigint, {counts}
    FROM layer l JOIN layer_stat s ON s.pk_layer = l.pk_layer WHERE l.pk_job = $1 AND l.str_name = $2";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FramesQuery {
    layer: String,
    state: Option<FrameChoice>,
    /// The number of the last frame of the page before.
    cursor: Option<i64>,
    limit: Option<usize>,
}

/// A state of frames.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FrameChoice {
    Waiting,
    Running,
    Depend,
    Dead,
    Succeeded,
    Eaten,
    Checkpoint,
}

impl FrameChoice {
    fn word(self) -> &'static str {
        match self {
            FrameChoice::Waiting => "WAITING",
            FrameChoice::Running => "RUNNING",
            FrameChoice::Depend => "DEPEND",
            FrameChoice::Dead => "DEAD",
            FrameChoice::Succeeded => "SUCCEEDED",
            FrameChoice::Eaten => "EATEN",
            FrameChoice::Checkpoint => "CHECKPOINT",
        }
    }

    fn count(self, counts: &FrameCounts) -> i64 {
        match self {
            FrameChoice::Waiting => counts.waiting,
            FrameChoice::Running => counts.running,
            FrameChoice::Depend => counts.depend,
            FrameChoice::Dead => counts.dead,
            FrameChoice::Succeeded => counts.succeeded,
            FrameChoice::Eaten => counts.eaten,
            FrameChoice::Checkpoint => counts.checkpoint,
        }
    }
}

#[derive(Serialize)]
pub(super) struct FrameFigures {
    id: String,
    name: String,
    number: i64,
    /// OpenCue's word in lower case.
    state: String,
    /// The host of its present or last run.
    host: Option<String>,
    /// Of its last run, if it had one.
    cores: Option<f64>,
    reserved_bytes: Option<i64>,
    /// What it holds, and the most that it held.
    used_bytes: Option<i64>,
    peak_bytes: Option<i64>,
    retries: i64,
    /// Null before it ended once.
    exit_status: Option<i64>,
    /// Frames that it waits for.
    depends: i64,
    started_ms: Option<i64>,
    stopped_ms: Option<i64>,
}

fn frame(row: &Row) -> FrameFigures {
    let exit_status: i64 = row.get(10);
    let (cores_held, reserved): (i64, i64) = (row.get(5), row.get(6));
    FrameFigures {
        id: row.get(0),
        name: row.get(1),
        number: row.get(2),
        state: row.get::<_, String>(3).to_lowercase(),
        host: row.get::<_, Option<String>>(4).filter(|host| !host.is_empty()),
        cores: (cores_held > 0).then(|| cores(cores_held)),
        reserved_bytes: (reserved > 0).then(|| bytes(reserved)),
        used_bytes: row.get::<_, Option<i64>>(7).map(bytes),
        peak_bytes: row.get::<_, Option<i64>>(8).map(bytes),
        retries: row.get(9),
        // OpenCue's value before the first end.
        exit_status: Some(exit_status).filter(|status| *status != -1),
        depends: row.get(11),
        started_ms: row.get(12),
        stopped_ms: row.get(13),
    }
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

/// Lists frames of a layer by number. A page may have few frames, or none, and still not be the last one.
pub(super) async fn list(
    State(board): State<Arc<Board>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<FramesQuery>, QueryRejection>,
) -> Result<Json<Page<FrameFigures>>, BoardTrouble> {
    let (job, Query(asked)) = (key(id)?, query?);
    let size = page_size(asked.limit)?;
    let layer_name = text("layer", Some(asked.layer))?.unwrap_or_default();
    let client = board.client().await?;
    let row = client.query_opt(&LAYER.replace("{counts}", COUNTS), &[&job, &layer_name]).await?;
    let row = row.ok_or_else(|| BoardTrouble::Missing(format!("layer '{layer_name}' of job '{job}'")))?;
    let (range, chunk_size): (String, i64) = (row.get(1), row.get(2));
    let search = Search {
        job: &job,
        layer_name: &layer_name,
        layer: row.get(0),
        state: asked.state.map(FrameChoice::word),
        after: asked.cursor.unwrap_or(i64::MIN),
        size,
    };
    let counts = FrameCounts::of(&row, 3);
    let is_rare = asked.state.is_some_and(|state| state.count(&counts) <= SORTED_MAX);
    let numbers = chunk_starts(&range, usize::try_from(chunk_size).unwrap_or(1));
    let page = match numbers {
        Ok(numbers) if !is_rare => search.by_name(&client, numbers).await?,
        // A range that only OpenCue can read leaves the order to the database.
        _ => search.by_state(&client).await?,
    };
    Ok(Json(page))
}

impl Search<'_> {
    async fn by_state(&self, client: &Client) -> Result<Page<FrameFigures>, Error> {
        let Search { job, layer, state, after, size, .. } = self;
        let most = *size as i64 + 1;
        let rows = client.query(&format!("{FRAME} {BY_STATE}"), &[job, layer, state, after, &most]).await?;
        let frames = rows.iter().map(frame).collect();
        Ok(super::part(frames, *size, |frame: &FrameFigures| frame.number.to_string()))
    }

    async fn by_name(&self, client: &Client, numbers: Vec<i32>) -> Result<Page<FrameFigures>, Error> {
        let Search { job, layer, state, size, .. } = self;
        let looked_at = if state.is_some() { LOOKED_AT_MAX } else { *size };
        let (window, is_last) = window_of(numbers, self.after, looked_at);
        let names: Vec<String> =
            window.iter().map(|number| format!("{number:04}-{}", self.layer_name)).collect();
        let most = *size as i64 + 1;
        let rows = client.query(&format!("{FRAME} {BY_NAME}"), &[&names, job, layer, state, &most]).await?;
        let frames = rows.iter().map(frame).collect();
        let mut page = super::part(frames, *size, |frame: &FrameFigures| frame.number.to_string());
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
