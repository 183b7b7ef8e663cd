//! Running tasks of a job that are with other shards than its home. When they began and when they may end, the engine of
//! their own shard knows. How far they are, they tell the server that owns that shard.

use super::App;
use super::error::ApiError;
use super::readable::Whole;
use crate::handle::Handle;
use crate::peers::ATTEMPTS_PATH;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_api::{Task, TaskState};
use windlass_core::engine::Engine;
use windlass_core::ids::ShardId;
use windlass_core::{JobId, TaskId, Time};

/// Attempts that one answer tells of. A list of tasks has at most as many.
const ATTEMPTS_MAX: usize = 1_000;

/// Of which tasks of a job a shard is asked.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptsQuery {
    job: u64,
    /// The index of the first one.
    first: u32,
    /// The index of the last one.
    last: u32,
}

/// An attempt that runs.
#[derive(Serialize, Deserialize)]
pub struct RunningAttempt {
    task: u32,
    /// Its number.
    attempt: u32,
    started_ms: u64,
    expected_end_ms: Option<u64>,
    /// In percent.
    progress: Option<f64>,
    status: Option<String>,
}

/// Tells the attempts of this shard that run. No client can ask for it.
pub async fn of_shard(
    State(app): State<App>,
    query: Result<Query<AttemptsQuery>, QueryRejection>,
) -> Result<Json<Vec<RunningAttempt>>, ApiError> {
    let Query(asked) = query?;
    Ok(Json(read(&app.handle, asked).await?))
}

async fn read(handle: &Handle, asked: AttemptsQuery) -> Result<Vec<RunningAttempt>, ApiError> {
    let AttemptsQuery { job, first, last } = asked;
    let job = JobId(job);
    let look = move |engine: &Engine| {
        let mut found = Vec::new();
        for (task, attempt) in engine.attempts_from(job, first) {
            if task.index > last || found.len() == ATTEMPTS_MAX {
                break;
            }
            let Some(started) = attempt.started else { continue };
            found.push(RunningAttempt {
                task: task.index,
                attempt: attempt.number,
                started_ms: started.as_ms(),
                expected_end_ms: engine.expected_end(task).map(Time::as_ms),
                progress: None,
                status: None,
            });
        }
        found
    };
    let mut found = handle.query(look).await?;
    for attempt in &mut found {
        if let Some(said) = handle.progress(TaskId { job, index: attempt.task }, attempt.attempt) {
            (attempt.progress, attempt.status) = (said.percent, said.status);
        }
    }
    Ok(found)
}

/// Adds to running tasks of a job, sorted by index, what only other shards know of them. A shard that does not answer in time
/// is left out.
pub(super) async fn add_from_other_shards(
    app: &App,
    job: JobId,
    tasks: &mut [Whole<Task>],
) -> Result<(), ApiError> {
    let running = |task: &Whole<Task>| task.state == TaskState::Running && task.attempt.started_ms.is_none();
    let indices: Vec<u32> = tasks.iter().filter(|task| running(task)).map(|task| task.index).collect();
    let Some(others) = app.others().filter(|_| !indices.is_empty()) else { return Ok(()) };
    let look = move |engine: &Engine| {
        let mut spans: BTreeMap<ShardId, AttemptsQuery> = BTreeMap::new();
        for index in indices {
            if let Some((shard, _)) = engine.delegated_to(TaskId { job, index }) {
                let span = AttemptsQuery { job: job.0, first: index, last: index };
                spans.entry(shard).or_insert(span).last = index;
            }
        }
        spans
    };
    let spans = app.handle.query(look).await?;
    let told = spans.into_iter().map(async |(shard, asked)| match app.shards().handle(shard) {
        Some(handle) => read(&handle, asked).await.ok(),
        None => others.ask(shard, path(asked)).await,
    });
    for attempt in join_all(told).await.into_iter().flatten().flatten() {
        let Ok(place) = tasks.binary_search_by_key(&attempt.task, |task| task.index) else { continue };
        let task = &mut tasks[place];
        // It may have ended since it was read, and another attempt may run.
        if running(task) && task.attempt.attempt == attempt.attempt {
            task.attempt.started_ms = Some(attempt.started_ms);
            task.expected_end_ms = attempt.expected_end_ms;
            (task.progress, task.status) = (attempt.progress, attempt.status);
        }
    }
    Ok(())
}

/// The path by which another shard is asked.
fn path(AttemptsQuery { job, first, last }: AttemptsQuery) -> String {
    format!("{ATTEMPTS_PATH}?job={job}&first={first}&last={last}")
}
