//! Queues: list, show, set, remove. The guard lets administrators alone set and remove them.

use super::App;
use super::extract::{JsonBody, Path, Query};
use super::jobs::unexpected;
use super::lists::{page_size, part};
use super::peers::ChangeRequest;
use crate::api_error::ApiError;
use crate::view;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use windlass_api::{ErrorCode, Page, Queue, SetQueue};
use windlass_core::Engine;
use windlass_core::engine::Event;

/// Which queues to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct QueuesQuery {
    /// Only queues of this band.
    band: Option<u8>,
    /// Whose name holds this text.
    name: Option<String>,
    /// Entries of the answer: 100 by default, 1000 at most.
    limit: Option<usize>,
    /// `next` of the part before.
    cursor: Option<String>,
}

/// Lists the queues that had work since the server started, by name.
#[utoipa::path(get, path = "/api/v1/queues", tag = "queues", params(QueuesQuery),
    responses((status = 200, description = "A part of the list", body = Page<Queue>)))]
pub async fn list(
    State(app): State<App>,
    Query(query): Query<QueuesQuery>,
) -> Result<Json<Page<Queue>>, ApiError> {
    let limit = page_size(query.limit)?;
    let list = move |engine: &Engine| {
        view::queues(engine, limit + 1, |queue| {
            query.cursor.as_ref().is_none_or(|after| queue.name() > after.as_str())
                && query.band.is_none_or(|band| queue.band() == band)
                && query.name.as_ref().is_none_or(|name| queue.name().contains(name.as_str()))
        })
    };
    Ok(Json(part(app.handle.query(list).await?, limit, |queue: &Queue| queue.name.clone())))
}

/// Shows a queue.
#[utoipa::path(get, path = "/api/v1/queues/{name}", tag = "queues", params(("name" = String, Path)), responses(
    (status = 200, body = Queue)))]
pub async fn show(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Queue>, ApiError> {
    find(&app, name).await.map(Json)
}

/// Sets a queue: band, weight, quota, burst, pause; what is left out stays as it is. The queue is made if there
/// is none.
#[utoipa::path(put, path = "/api/v1/queues/{name}", tag = "queues", params(("name" = String, Path)),
    request_body = SetQueue, responses(
    (status = 200, description = "Set and durable", body = Queue),
    (status = 403, description = "For administrators alone", body = windlass_api::ErrorBody)))]
pub async fn set(
    State(app): State<App>,
    request: ChangeRequest,
    Path(name): Path<String>,
    JsonBody(change): JsonBody<SetQueue>,
) -> Result<Json<Queue>, ApiError> {
    let of_file = app.shared.file_queues.get(&name).map(SetQueue::fields).unwrap_or_default();
    if let Some(field) = change.fields().into_iter().find(|field| of_file.contains(field)) {
        let why = format!("{field} of queue '{name}' is set in the server's settings file");
        let hint = format!("change it under [queues.{name}] in that file, and restart the server");
        return Err(ApiError::new(ErrorCode::Conflict, why).hint(hint));
    }
    apply(&app, request, &name, change).await?;
    find(&app, name).await.map(Json)
}

/// Takes away what was set of a queue. It leaves the lists, and the next job that names it makes it again as one that
/// was never set.
#[utoipa::path(delete, path = "/api/v1/queues/{name}", tag = "queues", params(("name" = String, Path)), responses(
    (status = 204, description = "Gone"),
    (status = 404, description = "There is none", body = windlass_api::ErrorBody),
    (status = 403, description = "For administrators alone", body = windlass_api::ErrorBody),
    (status = 409, description = "It has unfinished jobs, or the settings file sets it",
        body = windlass_api::ErrorBody)))]
pub async fn remove(
    State(app): State<App>,
    request: ChangeRequest,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    if app.shared.file_queues.contains_key(&name) {
        let why = format!("queue '{name}' is set in the server's settings file");
        let hint = format!("remove [queues.{name}] from that file, and restart the server");
        return Err(ApiError::new(ErrorCode::Conflict, why).hint(hint));
    }
    let event = async { Ok::<_, ApiError>(move |request| Event::RemoveQueue { request, name }) };
    request.ask(&app, event).await?.map(|_| StatusCode::NO_CONTENT).map_err(unexpected)
}

async fn apply(app: &App, request: ChangeRequest, name: &str, change: SetQueue) -> Result<(), ApiError> {
    let wanted = name.to_owned();
    let over = move |engine: &Engine| {
        let now = engine.queues().id(&wanted).map(|id| engine.queues().get(id));
        change.over(&wanted, now)
    };
    let event = async {
        let queue = app.handle.query(over).await?;
        let queue = queue.map_err(|e| ApiError::new(ErrorCode::BadRequest, e.to_string()))?;
        Ok::<_, ApiError>(move |request| Event::SetQueue { request, queue })
    };
    request.ask(app, event).await?.map(|_| ()).map_err(unexpected)
}

/// Sets the queues of the server's settings file. The weights of users in the file replace those that were set before.
pub async fn set_from_file(app: &App) -> Result<(), ApiError> {
    for (name, change) in &app.shared.file_queues {
        let mut change = change.clone();
        if !change.user_weights.is_empty() {
            let wanted = name.clone();
            let weights = move |engine: &Engine| {
                let now = engine.queues().id(&wanted).map(|id| engine.queues().get(id));
                now.map(|queue| queue.record.user_weights.clone()).unwrap_or_default()
            };
            let before = app.handle.query(weights).await?;
            let removed = before.into_keys().map(|user| (user, None));
            change.user_weights = removed.chain(change.user_weights).collect();
        }
        apply(app, ChangeRequest::default(), name, change).await?;
    }
    Ok(())
}

async fn find(app: &App, name: String) -> Result<Queue, ApiError> {
    let wanted = name.clone();
    let look = move |engine: &Engine| view::queues(engine, 1, |queue| queue.name() == wanted).pop();
    app.handle.query(look).await?.ok_or_else(|| {
        ApiError::new(ErrorCode::NotFound, format!("there is no queue '{name}'"))
            .hint("'windlass queue list' lists them")
    })
}
