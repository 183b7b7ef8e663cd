//! The board of a farm: Windlass's pages for browsers, and what they read of OpenCue's tables.
//!
//! - Nothing is written: sessions of the board's connections are read-only.
//! - No statement counts frames. Counts are those that OpenCue keeps, lists have pages, and a page of frames is looked
//!   up by their names. So what an answer costs does not follow the number of frames.
//! - Cores are numbers of cores, memory is bytes, times are milliseconds of Unix time. What is not known is null.
//! - PostgreSQL makes the JSON of an answer. A statement says by name what its entries have, and no other form of them
//!   exists here.

mod frames;
mod hosts;
mod jobs;
mod overview;
mod shows;
mod trouble;
mod whys;

use crate::scheduler::metrics::Metrics;
use crate::scheduler::snapshot::Scope;
use crate::scheduler::{Instance, Launcher, Reasons};
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::routing::get;
use axum::{Extension, Json, Router};
use deadpool_postgres::{Object, Pool};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use tokio_postgres::Row;
use trouble::BoardTrouble;
use windlass_api::{BoardMe, Page, Role, SignedInBy};

/// Connections to the database at a time.
pub const CONNECTIONS_MAX: usize = 3;
/// Entries of one page of a list.
pub const PAGE_MAX: usize = 1_000;
/// Entries of a page where the request names no number.
const PAGE_DEFAULT: usize = 100;
/// Characters of a filter, of a name and of a cursor.
const TEXT_CHARS_MAX: usize = 512;
/// How long a request waits for a connection, or for its turn.
const WAIT_TIME: Duration = Duration::from_secs(5);
/// Settings of the board's sessions, whatever they were before: read-only, and 5 s for a statement.
const SESSION: &str = "SET default_transaction_read_only = on; SET statement_timeout = 5000";
/// A host that reports and counts as up, in a statement about rows `s` of `host_stat`. `$1` is the age in seconds at
/// which a host counts as silent.
const IS_UP: &str = "coalesce(s.str_state = 'UP' AND s.ts_ping > now() - make_interval(secs => $1), false)";
/// Frames by state as OpenCue counts them, in a statement about rows `s` of counts.
const COUNTS: &str = "json_build_object('waiting', s.int_waiting_count, 'running', s.int_running_count,
    'depend', s.int_depend_count, 'dead', s.int_dead_count, 'succeeded', s.int_succeeded_count,
    'eaten', s.int_eaten_count, 'checkpoint', s.int_checkpoint_count)";

/// The data that the board's requests are answered from.
pub struct Board {
    pool: Pool,
    scope: Scope,
    metrics: Arc<Metrics>,
    launcher: Launcher,
    reasons: Reasons,
    /// A question why something waits plans the whole farm once. One is answered at a time.
    explaining: Semaphore,
}

impl Board {
    /// The board of the farm that an instance schedules, with connections of its own.
    pub fn new(pool: Pool, instance: &Instance) -> Board {
        Board {
            pool,
            scope: instance.scope().clone(),
            metrics: instance.metrics(),
            launcher: instance.launcher(),
            reasons: instance.reasons(),
            explaining: Semaphore::new(1),
        }
    }

    /// The routes of its requests. All are GET. The server that serves them says among the extensions of each request
    /// how the caller is known.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/api/v1/board/me", get(me))
            .route("/api/v1/opencue/overview", get(overview::show))
            .route("/api/v1/opencue/shows", get(shows::list))
            .route("/api/v1/opencue/jobs", get(jobs::list))
            .route("/api/v1/opencue/jobs/{id}", get(jobs::show))
            .route("/api/v1/opencue/jobs/{id}/layers", get(jobs::layers))
            .route("/api/v1/opencue/jobs/{id}/frames", get(frames::list))
            .route("/api/v1/opencue/jobs/{id}/why", get(whys::show))
            .route("/api/v1/opencue/hosts", get(hosts::list))
            .route("/api/v1/opencue/hosts/{name}", get(hosts::show))
            .with_state(Arc::new(self))
    }

    /// A connection that only reads.
    async fn client(&self) -> Result<Object, BoardTrouble> {
        let client = tokio::time::timeout(WAIT_TIME, self.pool.get()).await;
        let client = client.map_err(|_| BoardTrouble::Busy)??;
        client.batch_execute(SESSION).await?;
        Ok(client)
    }
}

/// The caller, and the farm whose views the page shows.
#[derive(Serialize)]
struct GatewayMe {
    #[serde(flatten)]
    me: BoardMe,
    /// The page shows this farm's views in the place of a server's.
    farm: &'static str,
}

async fn me(Extension(by): Extension<SignedInBy>) -> Json<GatewayMe> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let me = BoardMe {
        // OpenCue has no users here: all look with the same right.
        name: "OpenCue".to_owned(),
        role: Role::Viewer,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time_ms: now.as_millis() as u64,
        signed_in_by: by,
    };
    Json(GatewayMe { me, farm: "opencue" })
}

/// A statement with the parts that several have.
fn statement(text: &str) -> String {
    text.replace("{counts}", COUNTS).replace("{is_up}", IS_UP)
}

/// The first column of a row, which is JSON as text.
fn entry(row: &Row) -> Value {
    serde_json::from_str(row.get(0)).unwrap_or_default()
}

/// A page of rows, of which one more was read than it has. Each row is an entry and its cursor.
fn page(rows: &[Row], size: usize) -> Page<Value> {
    part(rows.iter().map(|row| (entry(row), row.get(1))).collect(), size)
}

fn part(mut entries: Vec<(Value, String)>, size: usize) -> Page<Value> {
    let more = entries.len() > size;
    entries.truncate(size);
    let next = entries.last().filter(|_| more).map(|(_, cursor)| cursor.clone());
    Page { items: entries.into_iter().map(|(entry, _)| entry).collect(), next }
}

/// The number of entries of a page.
fn page_size(asked: Option<usize>) -> Result<usize, BoardTrouble> {
    match asked {
        None => Ok(PAGE_DEFAULT),
        Some(size) if (1..=PAGE_MAX).contains(&size) => Ok(size),
        Some(size) => Err(BoardTrouble::Asked(format!("limit must be from 1 to {PAGE_MAX}, not {size}"))),
    }
}

/// The key in a path.
fn key(path: Result<Path<String>, PathRejection>) -> Result<String, BoardTrouble> {
    let Path(shown) = path?;
    text("the path", Some(shown))?.ok_or_else(|| BoardTrouble::Asked("the path has no name".to_owned()))
}

/// A text of a request, which PostgreSQL can hold. An empty one is `None`.
fn text(name: &str, text: Option<String>) -> Result<Option<String>, BoardTrouble> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.contains('\0') {
        return Err(BoardTrouble::Asked(format!("{name} must not contain the character NUL")));
    }
    if text.chars().count() > TEXT_CHARS_MAX {
        return Err(BoardTrouble::Asked(format!("{name} has more than {TEXT_CHARS_MAX} characters")));
    }
    Ok(Some(text))
}

/// A cursor of a number, a dot and a key.
fn read_cursor(shown: Option<String>) -> Result<(Option<i64>, Option<String>), BoardTrouble> {
    let Some(shown) = text("cursor", shown)? else { return Ok((None, None)) };
    let parts = shown.split_once('.').and_then(|(number, key)| Some((number.parse().ok()?, key.to_owned())));
    let (number, key) =
        parts.ok_or_else(|| BoardTrouble::Asked(format!("'{shown}' is not a valid cursor")))?;
    Ok((Some(number), Some(key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_has_as_many_entries_as_asked_for_within_bounds() {
        assert_eq!(page_size(None).unwrap(), PAGE_DEFAULT);
        assert_eq!(page_size(Some(PAGE_MAX)).unwrap(), PAGE_MAX);
        for size in [0, PAGE_MAX + 1] {
            assert!(page_size(Some(size)).is_err(), "{size}");
        }
        let entries = |numbers: &[i32]| {
            numbers.iter().map(|number| (Value::from(*number), number.to_string())).collect::<Vec<_>>()
        };
        let all = part(entries(&[1, 2, 3]), 2);
        assert_eq!((all.items, all.next), (vec![Value::from(1), Value::from(2)], Some("2".to_owned())));
        let last = part(entries(&[3]), 2);
        assert_eq!((last.items, last.next), (vec![Value::from(3)], None));
    }

    proptest! {
        #[test]
        fn a_cursor_is_read_as_it_was_written(number: i64, key in "[!-~]{1,36}") {
            let (read, read_key) = read_cursor(Some(format!("{number}.{key}"))).unwrap();
            prop_assert_eq!((read, read_key), (Some(number), Some(key)));
        }

        #[test]
        fn any_text_is_taken_or_refused(shown in "(?s).{0,600}") {
            let taken = text("name", Some(shown.clone()));
            prop_assert_eq!(taken.is_err(), shown.contains('\0') || shown.chars().count() > TEXT_CHARS_MAX);
            let _ = read_cursor(Some(shown));
        }
    }
}
