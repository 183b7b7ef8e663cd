//! Workers, queues, health, numbers, and the end.

use super::App;
use super::error::ApiError;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use windlass_api::{Page, Queue, Version, Worker};
use windlass_core::worker::WorkerState;

/// Says who answers.
#[utoipa::path(get, path = "/api/v1/version", tag = "server", responses((status = 200, body = Version)))]
pub async fn version(State(app): State<App>) -> Json<Version> {
    Json(Version {
        name: "windlass".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: app.shared.store.clone(),
        pid: std::process::id(),
    })
}

/// Lists the workers.
#[utoipa::path(get, path = "/api/v1/workers", tag = "workers", responses((status = 200, body = Page<Worker>)))]
pub async fn workers(State(app): State<App>) -> Result<Json<Page<Worker>>, ApiError> {
    let all = |engine: &windlass_core::Engine| engine.workers().iter().map(Worker::from_core).collect();
    Ok(Json(Page { items: app.handle.query(all).await?, next: None }))
}

/// Lists the queues that had work since the server started.
#[utoipa::path(get, path = "/api/v1/queues", tag = "queues", responses((status = 200, body = Page<Queue>)))]
pub async fn queues(State(app): State<App>) -> Result<Json<Page<Queue>>, ApiError> {
    let all = |engine: &windlass_core::Engine| {
        let queues = engine.queues().iter().map(|queue| Queue {
            name: queue.name.clone(),
            band: queue.band,
            weight: queue.share.weight(),
            running: queue.active,
            ready_steps: queue.steps(),
            booked: queue.share.tasks(),
        });
        queues.collect()
    };
    Ok(Json(Page { items: app.handle.query(all).await?, next: None }))
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
        let mut states = BTreeMap::from([("up", 0), ("draining", 0), ("suspect", 0)]);
        for worker in engine.workers().iter() {
            let word = match worker.state {
                WorkerState::Up => "up",
                WorkerState::Draining => "draining",
                WorkerState::Suspect => "suspect",
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
