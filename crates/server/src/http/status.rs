//! Queues, health, numbers, and the end.

use super::error::ApiError;
use super::{App, page_size, part};
use crate::auth::Caller;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use std::collections::BTreeMap;
use utoipa::IntoParams;
use windlass_api::{Page, Queue, Version};
use windlass_core::Engine;
use windlass_core::worker::WorkerState;

/// Says who answers.
#[utoipa::path(get, path = "/api/v1/version", tag = "server", responses((status = 200, body = Version)))]
pub async fn version(State(app): State<App>, Extension(caller): Extension<Caller>) -> Json<Version> {
    let shown = caller.token.is_some();
    Json(Version {
        name: "windlass".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: app.shared.store.clone(),
        pid: std::process::id(),
        user: shown.then_some(caller.user),
        role: shown.then_some(caller.role),
        worker: caller.worker,
    })
}

/// Which queues to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct QueuesQuery {
    /// Of this band.
    band: Option<u8>,
    /// Whose name holds this text.
    name: Option<String>,
    /// At most so many; 100 by default, 1000 at most.
    limit: Option<usize>,
    /// `next` of the part before.
    cursor: Option<String>,
}

/// Lists the queues that had work since the server started, by name.
#[utoipa::path(get, path = "/api/v1/queues", tag = "queues", params(QueuesQuery),
    responses((status = 200, description = "A part of the list", body = Page<Queue>)))]
pub async fn queues(
    State(app): State<App>,
    query: Result<Query<QueuesQuery>, QueryRejection>,
) -> Result<Json<Page<Queue>>, ApiError> {
    let Query(query) = query?;
    let limit = page_size(query.limit)?;
    let list = move |engine: &Engine| {
        let some = engine.queues().by_name().filter(|queue| {
            query.cursor.as_ref().is_none_or(|after| queue.name > *after)
                && query.band.is_none_or(|band| queue.band == band)
                && query.name.as_ref().is_none_or(|name| queue.name.contains(name.as_str()))
        });
        let queues = some.map(|queue| Queue {
            name: queue.name.clone(),
            band: queue.band,
            weight: queue.share.weight(),
            running: queue.active,
            ready_steps: queue.steps(),
            booked: queue.share.tasks(),
        });
        queues.take(limit + 1).collect()
    };
    Ok(Json(part(app.handle.query(list).await?, limit, |queue: &Queue| queue.name.clone())))
}

/// Says whether the engine answers.
#[utoipa::path(get, path = "/healthz", tag = "server", responses(
    (status = 200, description = "It does"), (status = 503, description = "It does not")))]
pub async fn healthz(State(app): State<App>) -> Result<&'static str, ApiError> {
    app.handle.query(|_| ()).await?;
    Ok("ok\n")
}

/// Gives the numbers as OpenMetrics text.
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, description = "The numbers", content_type = "application/openmetrics-text")))]
pub async fn metrics(State(app): State<App>) -> Result<Response, ApiError> {
    let look = |engine: &windlass_core::Engine| {
        let mut states = BTreeMap::from([("up", 0), ("draining", 0), ("suspect", 0), ("expired", 0)]);
        for worker in engine.workers().present() {
            let word = match worker.state {
                WorkerState::Up => "up",
                WorkerState::Draining => "draining",
                WorkerState::Suspect => "suspect",
                WorkerState::Expired => "expired",
                WorkerState::Forgotten => continue,
            };
            *states.entry(word).or_default() += 1;
        }
        (engine.counts(), states.into_iter().collect::<Vec<_>>())
    };
    let (counts, workers) = app.handle.query(look).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], app.handle.metrics().encode(&counts, &workers)).into_response())
}

/// Ends the server in good order; running tasks go on and are taken over by the next one.
#[utoipa::path(post, path = "/api/v1/shutdown", tag = "server",
    responses((status = 202, description = "It ends")))]
pub async fn shutdown(State(app): State<App>) -> StatusCode {
    app.handle.close();
    StatusCode::ACCEPTED
}
