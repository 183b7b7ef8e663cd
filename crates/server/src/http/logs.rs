//! Output of tasks.

use super::extract::{Path, Query};
use super::peers::{OnePart, PART_ATTEMPT_HEADER, PART_NEXT_HEADER};
use super::{App, tasks};
use crate::api_error::ApiError;
use crate::link::{LogChunk, LogFile, LogRequest};
use crate::reader::{Reader, Whole};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use std::io;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use utoipa::IntoParams;
use windlass_api::{ErrorCode, LOG_OFFSET_HEADER, LogStream, Task};
use windlass_core::{Engine, TaskId, WorkerId};

/// Bytes read at a time.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// How often a file that grows is looked at.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// How long a part of output that grows may be waited for, where it is asked for part by part.
const PART_PATIENCE: Duration = Duration::from_secs(10);

/// Which part of the output.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// Standard output by default.
    #[serde(default = "stdout")]
    #[param(inline)]
    stream: LogStream,
    /// The last attempt by default.
    attempt: Option<u32>,
    /// Bytes to leave out at the beginning; negative counts from the end.
    #[serde(default)]
    offset: i64,
    /// Go on until the attempt ends.
    #[serde(default)]
    follow: bool,
}

fn stdout() -> LogStream {
    LogStream::Stdout
}

/// Gives what an attempt wrote, as bytes. A log over its limit has lost its middle.
#[utoipa::path(get, path = "/api/v1/tasks/{id}/log", tag = "tasks", params(("id" = String, Path), LogQuery),
    responses((status = 200, description = "The bytes", content_type = "application/octet-stream",
                  headers(("windlass-log-offset" = u64,
                      description = "The place of the first byte, where a negative `offset` asked from the end"))),
              (status = 403, description = "The job belongs to another user", body = windlass_api::ErrorBody),
              (status = 404, description = "No such task or attempt", body = windlass_api::ErrorBody),
              (status = 503, description = "The worker that has the output is not connected, or the server is ending",
                  body = windlass_api::ErrorBody)))]
pub async fn log(
    State(app): State<App>,
    reader: Reader,
    one_part: Option<Extension<OnePart>>,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Response, ApiError> {
    let id = tasks::parse_id(&id)?;
    let task = readable(&app, &reader, id, query.attempt).await?;
    let attempt = query.attempt.unwrap_or(task.attempt.attempt).max(u32::from(query.follow));
    let worker = worker_of(&task, attempt);
    let request = LogRequest {
        task: id,
        attempt,
        file: LogFile::Output(query.stream),
        offset: query.offset,
        bytes_max: CHUNK_BYTES,
    };
    let mut output = OutputReader {
        worker: None,
        request,
        app: app.clone(),
        follow: query.follow,
        closing: app.handle.closing(),
        first: None,
        until: one_part.is_some().then(|| Instant::now() + PART_PATIENCE),
    };
    if let Some(name) = worker {
        output.worker = app.handle.worker_id(&name).await?;
        if !query.follow && output.worker.and_then(|id| app.handle.parts().links.get(id)).is_none() {
            return Err(away(id, &name));
        }
    }
    let begins = output.begin().await;
    if one_part.is_some() {
        return output.one_part(begins).await;
    }
    let body = stream::try_unfold(output, |mut output| async move {
        Ok::<_, io::Error>(output.next().await?.map(|bytes| (bytes, output)))
    });
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    let begins = begins.map(|place| [(LOG_OFFSET_HEADER, place.to_string())]);
    Ok((kind, begins, Body::from_stream(body)).into_response())
}

/// The task, for a caller who may read the output of its attempt; by default of the last one.
pub(super) async fn readable(
    app: &App,
    reader: &Reader,
    id: TaskId,
    attempt: Option<u32>,
) -> Result<Whole<Task>, ApiError> {
    let task = tasks::find(app, reader, id).await?;
    if !reader.may_read_job(task.spec()) {
        let message = format!("the output of task {id} belongs to another user");
        return Err(ApiError::new(ErrorCode::Forbidden, message).hint("ask its user or an administrator"));
    }
    let last = task.attempt.attempt;
    match attempt {
        Some(asked) if asked == 0 || asked > last => {
            let message = format!("task {id} has no attempt {asked}; it has {last}");
            Err(ApiError::new(ErrorCode::NotFound, message))
        }
        _ => Ok(task),
    }
}

/// The name of the worker of an attempt, once it was booked.
pub(super) fn worker_of(task: &Task, attempt: u32) -> Option<String> {
    let tried = std::iter::once(&task.attempt).chain(&task.history);
    tried.filter(|tried| tried.attempt == attempt).find_map(|tried| tried.worker.clone())
}

/// The output is on a worker that cannot be asked.
pub(super) fn away(task: TaskId, worker: &str) -> ApiError {
    let message = format!("the output of task {task} is on worker '{worker}', which is not connected");
    ApiError::new(ErrorCode::WorkerAway, message)
        .hint("try again when it is back; 'windlass worker list' shows it")
}

struct OutputReader {
    /// The worker that has the output, once the task was booked.
    worker: Option<WorkerId>,
    request: LogRequest,
    app: App,
    follow: bool,
    closing: watch::Receiver<bool>,
    /// The bytes that were read before the answer began.
    first: Option<Vec<u8>>,
    /// When an empty part is given, where output is asked for part by part.
    until: Option<Instant>,
}

impl OutputReader {
    /// The next bytes and where those after them begin, for a server that passes them on.
    async fn one_part(mut self, begins: Option<u64>) -> Result<Response, ApiError> {
        let read = self.next().await;
        let part = read.map_err(|error| ApiError::new(ErrorCode::Unavailable, error.to_string()))?;
        let mut response = part.clone().unwrap_or_default().into_response();
        let headers = response.headers_mut();
        headers.extend(begins.map(|place| (HeaderName::from_static(LOG_OFFSET_HEADER), place.into())));
        if part.is_some() {
            let next = u64::try_from(self.request.offset).unwrap_or(0);
            headers.insert(PART_NEXT_HEADER, next.into());
            headers.insert(PART_ATTEMPT_HEADER, self.request.attempt.into());
        }
        Ok(response)
    }

    /// Where the output begins that was asked for from the end: with what is there now. `None` if it was not, or if its
    /// worker does not say.
    async fn begin(&mut self) -> Option<u64> {
        if self.request.offset >= 0 {
            return None;
        }
        let LogChunk { next, bytes } = self.read().await.ok()?.unwrap_or_default();
        let begins = next.checked_sub(bytes.len() as u64)?;
        self.request.offset = i64::try_from(next).ok()?;
        self.first = Some(bytes).filter(|bytes| !bytes.is_empty());
        Some(begins)
    }

    /// The next bytes, once there are some; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some(bytes) = self.first.take() {
            return Ok(Some(bytes));
        }
        loop {
            // Asked before the file is read: what is written before the end is not missed.
            let over = !self.follow || *self.closing.borrow() || self.is_over().await;
            match self.read().await {
                Ok(Some(LogChunk { next, bytes })) => {
                    // A place that is not after this one would be read for ever.
                    match i64::try_from(next) {
                        Ok(next) if next >= self.request.offset => self.request.offset = next,
                        _ => return Err(io::Error::other("its worker says that the file goes backwards")),
                    }
                    if !bytes.is_empty() {
                        return Ok(Some(bytes));
                    }
                }
                Ok(None) => {}
                // Its worker may be back before the attempt ends.
                Err(_) if !over => {}
                Err(e) => return Err(e),
            }
            if over {
                return Ok(None);
            }
            if self.until.is_some_and(|until| until <= Instant::now()) {
                return Ok(Some(Vec::new()));
            }
            tokio::select! {
                () = tokio::time::sleep(FOLLOW_INTERVAL) => {}
                _ = self.closing.wait_for(|closing| *closing) => {}
            }
        }
    }

    async fn read(&mut self) -> io::Result<Option<LogChunk>> {
        if self.worker.is_none() {
            let LogRequest { task, attempt, .. } = self.request;
            let look = move |engine: &Engine| {
                engine.attempt(task).filter(|current| current.number == attempt).map(|current| current.worker)
            };
            self.worker = self.app.handle.query(look).await.ok().flatten();
        }
        let Some(worker) = self.worker else { return Ok(None) };
        match self.app.handle.parts().links.get(worker) {
            Some(link) => link.read_log(self.request.clone()).await,
            None => Err(io::Error::new(io::ErrorKind::NotConnected, "the task's worker is not connected")),
        }
    }

    /// True once the attempt writes no more.
    async fn is_over(&self) -> bool {
        let LogRequest { task, attempt, .. } = self.request;
        let look = move |engine: &Engine| waits_or_runs(engine, task, attempt);
        match self.app.handle.query(look).await {
            Ok(Some(goes_on)) => !goes_on,
            // The engine does not hold its job: it has ended, or is parked.
            Ok(None) => !matches!(self.app.handle.store().parked(task.job).await, Ok(Some(_))),
            Err(_) => true,
        }
    }
}

/// `None` if the engine does not hold the job.
fn waits_or_runs(engine: &Engine, task: TaskId, attempt: u32) -> Option<bool> {
    let job = engine.job(task.job)?;
    Some(match engine.attempt(task) {
        Some(current) => current.number <= attempt,
        None => !windlass_api::TaskState::from(job.state_of(task.index)).is_end() && job.ended.is_none(),
    })
}
