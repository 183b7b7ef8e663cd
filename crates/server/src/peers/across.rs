//! What the owner of the first shard passes on to the owners of other shards: requests about their workers, and about tasks
//! that run there. A shard's owner runs such a request with the handlers and the engine of that shard ([`desk`]). Requests
//! that every shard answers are in [`joined`].
//!
//! [`desk`]: super::desk
//! [`joined`]: super::joined

use super::forward::{PATIENCE, head_of, unanswered};
use super::joined::JOINED;
use super::log_parts::{self, LOG_PATTERN};
use super::packed::RequestHead;
use super::{OnePart, Postbox};
use crate::auth::Caller;
use crate::http::{ApiError, App};
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_api::{ErrorCode, TaskState, Why, Worker};
use windlass_core::ids::{ShardId, WHOLE_FARM};
use windlass_core::{Engine, TaskId};
use windlass_store::FarmWorker;

pub(super) const WORKERS_PATTERN: &str = "/api/v1/workers";
const WHY_PATTERN: &str = "/api/v1/tasks/{id}/why";
/// A worker over time. The first shard has the series of all workers; what a worker is, its own shard says.
const SERIES_PATTERN: &str = "/api/v1/workers/{name}/series";
/// Requests about one worker that its shard's owner answers.
const WORKER_PATTERNS: [&str; 5] = [
    "/api/v1/workers/{name}",
    "/api/v1/workers/{name}/why",
    "/api/v1/workers/{name}/drain",
    "/api/v1/workers/{name}/resume",
    "/api/v1/workers/{name}/forget",
];
/// How long a shard may take to say why a task waits there, or what a worker is.
const WHY_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked where a task begins whose output is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it may be waited for where output is asked for part by part.
const PART_PATIENCE: Duration = Duration::from_secs(10);

/// A worker of another shard. In the extensions of a request for its series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerElsewhere {
    /// Its number.
    pub id: u64,
    /// Cpus that it declares.
    pub cpus: f64,
}

/// Passes a request on where another shard must answer it.
pub(crate) async fn to_shard(
    State(app): State<App>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let Some(across) = app.across().cloned() else { return next.run(request).await };
    let pattern = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let caller = request.extensions().get::<Caller>().cloned();
    let (Some(pattern), Some(caller)) = (pattern, caller) else { return next.run(request).await };
    let named = params.ok().and_then(|params| params.iter().next().map(|(_, value)| value.to_owned()));
    let named = named.unwrap_or_default();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let is_one_part = request.extensions().get::<OnePart>().is_some();
    let shard = match pattern.as_str() {
        LOG_PATTERN => of_output(&app, &named, &query, is_one_part).await,
        WHY_PATTERN => return why(&app, &across, (caller, named.as_str()), request, next).await,
        SERIES_PATTERN => return series(&app, &across, (caller, named.as_str()), request, next).await,
        pattern if let Some(joined) = JOINED.iter().find(|joined| joined.pattern == pattern) => {
            let (parts, body) = request.into_parts();
            let head = head_of(&app, &parts, pattern, caller);
            return joined.answer(&app, &across, &head, Request::from_parts(parts, body), next).await;
        }
        pattern if WORKER_PATTERNS.contains(&pattern) => of_worker(&app, &named).await,
        _ => Ok(WHOLE_FARM),
    };
    let shard = match shard {
        Ok(WHOLE_FARM) => return next.run(request).await,
        Ok(shard) => shard,
        Err(error) => return error.into_response(),
    };
    let (parts, body) = request.into_parts();
    // The body was taken in before, within its limit.
    let body = match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => return ApiError::new(ErrorCode::BadRequest, error.to_string()).into_response(),
    };
    let head = RequestHead { one_part: pattern == LOG_PATTERN, ..head_of(&app, &parts, &pattern, caller) };
    if head.one_part && !is_one_part {
        return log_parts::read(app, across, shard, head).await;
    }
    match across.ask_shard(shard, &head, &body, PATIENCE).await {
        Ok(answer) => answer.map(Body::from).into_response(),
        Err(why) => unanswered(why).into_response(),
    }
}

async fn of_worker(app: &App, name: &str) -> Result<ShardId, ApiError> {
    let found = app.handle.store().farm_worker(name).await?;
    // One that no shard has, the first one's handler says so.
    Ok(known_shard(app, found.as_ref()))
}

/// The shard of a worker, as far as the farm has it; else the first one.
fn known_shard(app: &App, worker: Option<&FarmWorker>) -> ShardId {
    let shards = app.shards().shards();
    worker.map(|worker| worker.shard).filter(|shard| shards.contains(shard)).unwrap_or(WHOLE_FARM)
}

/// Explains a task. Of one that is with another shard, that one says why it waits. It does not know a task that is on its way
/// there or back: then its home says with which shard it is.
async fn why(
    app: &App,
    across: &Arc<Postbox>,
    (caller, id): (Caller, &str),
    request: Request,
    next: Next,
) -> Response {
    let Some(shard) = of_waiting(app, id).await else { return next.run(request).await };
    let (parts, body) = request.into_parts();
    let head = head_of(app, &parts, WHY_PATTERN, caller);
    let request = Request::from_parts(parts, body);
    let answer = across.ask_shard(shard, &head, b"", WHY_PATIENCE).await;
    let why = answer.ok().filter(|answer| answer.status().is_success());
    match why.and_then(|answer| serde_json::from_slice::<Why>(answer.body()).ok()) {
        Some(mut why) => {
            if matches!(why.state, TaskState::Ready | TaskState::Waiting) {
                why.message = format!("in shard {shard}: {}", why.message);
            }
            Json(why).into_response()
        }
        None => next.run(request).await,
    }
}

/// The shard that has a task now; `None` of one that is at home, or not known.
async fn of_waiting(app: &App, id: &str) -> Option<ShardId> {
    let task = id.parse::<TaskId>().ok()?;
    let look = move |engine: &Engine| engine.delegated_to(task).map(|(shard, _)| shard);
    app.handle.query(look).await.ok()?
}

/// Shows a worker over time. Of a worker of another shard its number and its cpus are found out first.
async fn series(
    app: &App,
    across: &Arc<Postbox>,
    (caller, name): (Caller, &str),
    request: Request,
    next: Next,
) -> Response {
    let shard = match of_worker(app, name).await {
        Ok(WHOLE_FARM) => return next.run(request).await,
        Ok(shard) => shard,
        Err(error) => return error.into_response(),
    };
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    // The path of the worker, with its name as it came.
    let worker = path.strip_suffix("/series").unwrap_or(path).to_owned();
    let head = RequestHead { uri: worker, ..head_of(app, &parts, SERIES_PATTERN, caller) };
    let mut request = Request::from_parts(parts, body);
    let answer = match across.ask_shard(shard, &head, b"", WHY_PATIENCE).await {
        Ok(answer) if answer.status().is_success() => answer,
        Ok(other) => return other.map(Body::from).into_response(),
        Err(why) => return unanswered(why).into_response(),
    };
    if let Ok(worker) = serde_json::from_slice::<Worker>(answer.body()) {
        let known = WorkerElsewhere { id: worker.id, cpus: worker.capacity.cpus };
        request.extensions_mut().insert(known);
    }
    next.run(request).await
}

/// Where a task is, as far as the engine of its home knows.
enum Place {
    /// It runs in this shard.
    Here,
    /// It is with another one.
    Away(ShardId),
    /// It has not begun.
    Waits,
    /// It has ended, or its job is not in memory.
    Unknown,
}

/// The shard whose worker has the output that is asked for. Where a task that has not begun is followed, it is waited for.
async fn of_output(app: &App, id: &str, query: &str, is_one_part: bool) -> Result<ShardId, ApiError> {
    let Ok(task) = id.parse::<TaskId>() else { return Ok(WHOLE_FARM) };
    let asked = value_of(query, "attempt").and_then(|attempt| attempt.parse::<u32>().ok());
    let follows = value_of(query, "follow") == Some("true");
    let until = is_one_part.then(|| Instant::now() + PART_PATIENCE);
    let mut closing = app.handle.closing();
    while asked.is_none() {
        match place_of(app, task).await? {
            Place::Here => return Ok(WHOLE_FARM),
            Place::Away(shard) => return Ok(shard),
            Place::Waits if follows => {}
            Place::Waits | Place::Unknown => break,
        }
        if until.is_some_and(|until| until <= Instant::now()) || *closing.borrow() {
            return Ok(WHOLE_FARM);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }
    of_attempt(app, task, asked).await
}

async fn place_of(app: &App, task: TaskId) -> Result<Place, ApiError> {
    let look = move |engine: &Engine| {
        let Some(job) = engine.job(task.job) else { return Place::Unknown };
        let total: u32 = job.spec.steps.iter().map(|step| step.tasks).sum();
        if engine.attempt(task).is_some() {
            return Place::Here;
        }
        match engine.delegated_to(task) {
            Some((shard, _)) => Place::Away(shard),
            None if task.index >= total || job.ended.is_some() => Place::Unknown,
            None if windlass_api::TaskState::from(job.state_of(task.index)).is_end() => Place::Unknown,
            None => Place::Waits,
        }
    };
    let place = app.handle.query(look).await?;
    let may_wait = matches!(place, Place::Unknown);
    if may_wait && app.handle.store().parked(task.job).await?.is_some() {
        return Ok(Place::Waits);
    }
    Ok(place)
}

/// The shard of the worker on which an attempt ran, by default the last one.
async fn of_attempt(app: &App, task: TaskId, asked: Option<u32>) -> Result<ShardId, ApiError> {
    let store = app.handle.store();
    let last = store.tasks(task.job, task.index..task.index.saturating_add(1)).await?;
    let last = last.first().map(|stored| (stored.row.attempt, stored.row.worker));
    let worker = match (asked, last) {
        (Some(asked), Some((attempt, _))) if asked != attempt => {
            let before = store.history(task).await?;
            before.into_iter().find(|attempt| attempt.attempt == asked).map(|attempt| attempt.worker)
        }
        (_, last) => last.map(|(_, worker)| worker),
    };
    let Some(worker) = worker else { return Ok(WHOLE_FARM) };
    let mut found = store.farm_workers(vec![worker]).await?.pop();
    if let Some(before) = found.take_if(|worker| worker.is_forgotten) {
        // Its output is on its machine, which may be in another shard now.
        found = store.farm_worker(&before.name).await?.or(Some(before));
    }
    Ok(known_shard(app, found.as_ref()))
}

/// What a query says for a name that needs no decoding.
pub(super) fn value_of<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_are_in_the_table_of_requests() {
        let document: serde_json::Value = serde_json::from_str(&crate::http::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        for path in WORKER_PATTERNS.iter().chain([&SERIES_PATTERN, &WHY_PATTERN]) {
            assert!(paths.contains_key(*path), "{path}");
        }
    }

    #[test]
    fn a_value_of_a_query_is_found_by_its_whole_name() {
        assert_eq!(value_of("a=1&follow=true&b", "follow"), Some("true"));
        assert_eq!(value_of("following=true&a=", "follow"), None);
        assert_eq!(value_of("", "limit"), None);
        assert_eq!(value_of("limit=", "limit"), Some(""));
    }
}
