//! Workers: list, show, drain, resume.

use super::App;
use super::extract::{Path, Query};
use super::jobs::unexpected;
use super::lists::{page_size, part};
use super::peers::ChangeRequest;
use crate::api_error::{ApiError, read_body};
use crate::auth;
use crate::view;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use serde::Deserialize;
use utoipa::IntoParams;
use windlass_api::{DrainRequest, ErrorCode, Page, Worker, WorkerState as WorkerWord, WorkerWhy};
use windlass_core::engine::Event;
use windlass_core::tags::Need;
use windlass_core::worker::{self, WorkerState};
use windlass_core::{Engine, WorkerId};

/// Which workers to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct WorkersQuery {
    /// Only workers in this state.
    #[param(inline)]
    state: Option<WorkerWord>,
    /// Whose name holds this text.
    name: Option<String>,
    /// Also those that an administrator said are gone.
    #[serde(default)]
    all: bool,
    /// That are this: `key`, `key=value` or `key=a|b`.
    tag: Option<String>,
    /// Entries of the answer: 100 by default, 1000 at most.
    limit: Option<usize>,
    /// `next` of the part before.
    cursor: Option<u64>,
}

/// Lists the workers by id.
#[utoipa::path(get, path = "/api/v1/workers", tag = "workers", params(WorkersQuery),
    responses((status = 200, description = "A part of the list", body = Page<Worker>)))]
pub async fn list(
    State(app): State<App>,
    Query(query): Query<WorkersQuery>,
) -> Result<Json<Page<Worker>>, ApiError> {
    let limit = page_size(query.limit)?;
    let need = query.tag.as_deref().map(Need::parse);
    let list = move |engine: &Engine| {
        let gone = query.all || query.state == Some(WorkerWord::Forgotten);
        let all = engine.workers().iter().filter(|w| gone || w.record.state != WorkerState::Forgotten);
        let some = all.filter(|w| query.cursor.is_none_or(|after| w.record.id.0 > after));
        let some =
            some.filter(|w| query.name.as_ref().is_none_or(|name| w.record.name.contains(name.as_str())));
        let some = some.filter(|w| need.as_ref().is_none_or(|need| need.met_by(&w.record.attributes)));
        let some = some.map(Worker::from_core).filter(|w| query.state.is_none_or(|state| w.state == state));
        some.take(limit + 1).collect::<Vec<_>>()
    };
    let mut workers = app.handle.query(list).await?;
    workers.iter_mut().for_each(|worker| add_connection(&app, worker));
    Ok(Json(part(workers, limit, |worker| worker.id.to_string())))
}

/// Shows a worker.
#[utoipa::path(get, path = "/api/v1/workers/{name}", tag = "workers", params(("name" = String, Path)), responses(
    (status = 200, body = Worker)))]
pub async fn show(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Worker>, ApiError> {
    find(&app, name).await.map(Json)
}

/// Says why a worker gets no work.
#[utoipa::path(get, path = "/api/v1/workers/{name}/why", tag = "workers", params(("name" = String, Path)),
    responses((status = 200, body = WorkerWhy)))]
pub async fn why(State(app): State<App>, Path(name): Path<String>) -> Result<Json<WorkerWhy>, ApiError> {
    look(&app, name, |engine, worker| view::worker_why(engine, worker.record.id)).await.map(Json)
}

/// Lets a worker take no new work; what it runs goes on. The body may have a note for people, and may be empty.
#[utoipa::path(post, path = "/api/v1/workers/{name}/drain", tag = "workers", params(("name" = String, Path)),
    request_body = Option<DrainRequest>,
    responses((status = 200, body = Worker),
              (status = 400, description = "The note is too long", body = windlass_api::ErrorBody)))]
pub async fn drain(
    State(app): State<App>,
    request: ChangeRequest,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Worker>, ApiError> {
    let is_empty = body.as_ref().is_ok_and(Bytes::is_empty);
    let DrainRequest { note } = if is_empty { DrainRequest::default() } else { read_body(body)? };
    set(&app, request, name, true, note).await
}

/// Lets a drained worker take work again.
#[utoipa::path(post, path = "/api/v1/workers/{name}/resume", tag = "workers", params(("name" = String, Path)),
    responses((status = 200, body = Worker)))]
pub async fn resume(
    State(app): State<App>,
    request: ChangeRequest,
    Path(name): Path<String>,
) -> Result<Json<Worker>, ApiError> {
    set(&app, request, name, false, None).await
}

/// How a worker is forgotten.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ForgetQuery {
    /// Even while it is connected.
    #[serde(default)]
    force: bool,
}

/// Says that a worker is gone for good, with all that ran there: what it ran is run elsewhere. One that is connected
/// is forgotten only by force; it may come back, and what it still has of before is ended then.
#[utoipa::path(post, path = "/api/v1/workers/{name}/forget", tag = "workers",
    params(("name" = String, Path), ForgetQuery),
    responses((status = 200, body = Worker),
              (status = 409, description = "It is connected", body = windlass_api::ErrorBody)))]
pub async fn forget(
    State(app): State<App>,
    request: ChangeRequest,
    Path(name): Path<String>,
    Query(ForgetQuery { force }): Query<ForgetQuery>,
) -> Result<Json<Worker>, ApiError> {
    let mut link = None;
    let event = async {
        let found = find(&app, name).await?;
        let worker = WorkerId(found.id);
        link = app.handle.parts().links.get(worker).filter(|_| force);
        Ok::<_, ApiError>((move |request| Event::Forget { request, worker, force }, found))
    };
    let forgotten = request.forget(&app, event).await?.map_err(unexpected)?;
    if let Some(link) = link {
        link.begin_again();
    }
    Ok(Json(forgotten))
}

async fn set(
    app: &App,
    request: ChangeRequest,
    name: String,
    draining: bool,
    note: Option<String>,
) -> Result<Json<Worker>, ApiError> {
    let event = async {
        let worker = WorkerId(find(app, name.clone()).await?.id);
        Ok::<_, ApiError>(move |request| Event::Drain { request, worker, draining, note })
    };
    request.ask(app, event).await?.map_err(unexpected)?;
    find(app, name).await.map(Json)
}

async fn find(app: &App, name: String) -> Result<Worker, ApiError> {
    let mut worker = look(app, name, |_, worker| Some(Worker::with_tasks(worker))).await?;
    add_connection(app, &mut worker);
    Ok(worker)
}

/// What is seen of a worker. One that is forgotten is not found.
pub(super) async fn look<T: Send + 'static>(
    app: &App,
    name: String,
    see: impl FnOnce(&Engine, &worker::Worker) -> Option<T> + Send + 'static,
) -> Result<T, ApiError> {
    let wanted = name.clone();
    let question = move |engine: &Engine| {
        let known = engine.workers().by_name(&wanted).filter(|w| w.record.state != WorkerState::Forgotten)?;
        see(engine, known)
    };
    app.handle.query(question).await?.ok_or_else(|| {
        let none = format!("there is no worker '{name}'");
        ApiError::new(ErrorCode::NotFound, none).hint("'windlass worker list' lists them")
    })
}

/// Only the connection knows which release is at its other end, and which token it was shown.
fn add_connection(app: &App, worker: &mut Worker) {
    let Some(link) = app.handle.parts().links.get(WorkerId(worker.id)) else { return };
    let end = link.token_end();
    worker.version = link.version();
    worker.token_expires_ms = end.map(|end| end.at.as_ms());
    worker.token_ends_soon = end.is_some_and(|end| end.is_told(auth::now()));
}
