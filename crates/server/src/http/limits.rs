//! Limits, such as licences: list, show, set, remove. The guard lets administrators alone set them.

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
use windlass_api::{Limit, Page, SetLimit};
use windlass_core::Engine;
use windlass_core::engine::{Event, Refusal};
use windlass_core::licences;

/// Which limits to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LimitsQuery {
    /// Entries of the answer: 100 by default, 1000 at most.
    limit: Option<usize>,
    /// `next` of the part before.
    cursor: Option<String>,
}

/// Lists the limits by name.
#[utoipa::path(get, path = "/api/v1/limits", tag = "limits", params(LimitsQuery),
    responses((status = 200, description = "A part of the list", body = Page<Limit>)))]
pub async fn list(
    State(app): State<App>,
    Query(query): Query<LimitsQuery>,
) -> Result<Json<Page<Limit>>, ApiError> {
    let limit = page_size(query.limit)?;
    let list = move |engine: &Engine| {
        let all = engine.licences().limits().iter();
        let some = all.filter(|(name, _)| query.cursor.as_ref().is_none_or(|after| *name > after));
        some.take(limit + 1).filter_map(|(name, _)| view::limit(engine, name)).collect()
    };
    Ok(Json(part(app.handle.query(list).await?, limit, |limit: &Limit| limit.name.clone())))
}

/// Shows a limit, and up to 20 tasks and 20 turns that hold it.
#[utoipa::path(get, path = "/api/v1/limits/{name}", tag = "limits", params(("name" = String, Path)), responses(
    (status = 200, body = Limit)))]
pub async fn show(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Limit>, ApiError> {
    let wanted = name.clone();
    let limit = app.handle.query(move |engine| view::held_limit(engine, &wanted)).await?;
    let Some(mut limit) = limit else { return Err(Refusal::NoLimit(name).into()) };
    if limit.used > 0 {
        limit.turns = app.shared.client_turns.holding(&name, view::HOLDERS_MAX);
    }
    Ok(Json(limit))
}

/// Sets a limit: how many tasks may hold one at a time, over the farm and on one worker, and how a task says that
/// there was none for it. What is left out stays as it is. Steps that found it busy are tried again at once.
#[utoipa::path(put, path = "/api/v1/limits/{name}", tag = "limits", params(("name" = String, Path)),
    request_body = SetLimit, responses(
    (status = 200, description = "Set and durable", body = Limit),
    (status = 403, description = "For administrators alone", body = windlass_api::ErrorBody)))]
pub async fn set(
    State(app): State<App>,
    request: ChangeRequest,
    Path(name): Path<String>,
    JsonBody(change_wanted): JsonBody<SetLimit>,
) -> Result<Json<Limit>, ApiError> {
    let wanted = name.clone();
    let over = move |engine: &Engine| change_wanted.over(engine.licences().limits().get(&wanted));
    let limit = async { Ok::<_, ApiError>(Some(app.handle.query(over).await?.map_err(Refusal::from)?)) };
    change(&app, request, name.clone(), limit).await?;
    find(&app, name).await.map(Json)
}

/// Takes a limit away: steps that name it are not held back by it.
#[utoipa::path(delete, path = "/api/v1/limits/{name}", tag = "limits", params(("name" = String, Path)), responses(
    (status = 204, description = "Gone"),
    (status = 403, description = "For administrators alone", body = windlass_api::ErrorBody)))]
pub async fn remove(
    State(app): State<App>,
    request: ChangeRequest,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    change(&app, request, name, async { Ok::<_, ApiError>(None) }).await.map(|()| StatusCode::NO_CONTENT)
}

async fn find(app: &App, name: String) -> Result<Limit, ApiError> {
    let wanted = name.clone();
    let limit = app.handle.query(move |engine| view::limit(engine, &wanted)).await?;
    limit.ok_or_else(|| Refusal::NoLimit(name).into())
}

async fn change(
    app: &App,
    request: ChangeRequest,
    name: String,
    limit: impl Future<Output = Result<Option<licences::Limit>, ApiError>>,
) -> Result<(), ApiError> {
    let event = async {
        let limit = limit.await?;
        Ok::<_, ApiError>(move |request| Event::SetLimit { request, name, limit })
    };
    request.ask(app, event).await?.map(|_| ()).map_err(unexpected)
}
