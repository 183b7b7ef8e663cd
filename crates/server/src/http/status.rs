//! Versions, health, numbers, and the end.

use super::App;
use super::error::ApiError;
use crate::auth::Caller;
use crate::figures::worker_metrics::{self, WorkerGauges};
use crate::handle::Handle;
use crate::metrics::Gauges;
use crate::scrape::{LAST_LINE, Origin, Scrape};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use windlass_api::Version;
use windlass_core::Engine;
use windlass_core::ids::WHOLE_FARM;

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

/// Says whether the engine answers. Where the server stands by, whether its store does.
#[utoipa::path(get, path = "/healthz", tag = "server", responses(
    (status = 200, description = "It does"), (status = 503, description = "It does not")))]
pub async fn healthz(State(app): State<App>) -> Result<&'static str, ApiError> {
    if app.postbox().is_some() {
        app.handle.store().servers().await?;
        return Ok("ok, standing by\n");
    }
    app.handle.query(|_| ()).await?;
    Ok("ok\n")
}

/// Gives the numbers as OpenMetrics text.
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, description = "The numbers", content_type = "application/openmetrics-text")))]
pub async fn metrics(State(app): State<App>) -> Result<Response, ApiError> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = if app.shards().is_divided() { of_shards(&app).await? } else { own_metrics(&app).await? };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Of a server whose farm is not divided.
async fn own_metrics(app: &App) -> Result<String, ApiError> {
    let own = own_text(app).await?;
    let mut text = own.strip_suffix(LAST_LINE).unwrap_or(&own).to_owned();
    for gateway in app.shared.gateways.iter() {
        text += &gateway.metrics().await;
    }
    Ok(text + LAST_LINE)
}

/// Of a server that may run engines of several shards.
async fn of_shards(app: &App) -> Result<String, ApiError> {
    let mut scrape = Scrape::default();
    let origin = match app.postbox() {
        Some(_) => Origin::Process,
        None => Origin::ShardAndProcess(WHOLE_FARM),
    };
    scrape.add(&own_text(app).await?, origin);
    for (shard, handle) in app.shards().handles().into_iter().filter(|(shard, _)| *shard != WHOLE_FARM) {
        // One that ends says nothing more.
        if let Ok(read) = handle.query(read_gauges).await {
            scrape.add(&text_of(&handle, Some(read), None, 0), Origin::Shard(shard));
        }
    }
    for gateway in app.shared.gateways.iter() {
        scrape.add(&gateway.metrics().await, Origin::Gateway);
    }
    Ok(scrape.finish())
}

/// What the process and its first engine have. A server that stands by has none of an engine.
async fn own_text(app: &App) -> Result<String, ApiError> {
    let read = match app.postbox() {
        Some(_) => None,
        None => Some(app.handle.query(read_gauges).await?),
    };
    let mut entries = app.entries();
    if read.is_some() {
        entries.extend(app.handle.entries().await?);
    }
    app.handle.metrics().set_entries(&entries);
    let sessions = app.shared.sessions.count(app.handle.now());
    Ok(text_of(&app.handle, read, app.handle.disk().free_bytes(), sessions))
}

fn read_gauges(engine: &Engine) -> (Gauges, Vec<WorkerGauges>) {
    (Gauges::read(engine), worker_metrics::read(engine))
}

fn text_of(
    handle: &Handle,
    read: Option<(Gauges, Vec<WorkerGauges>)>,
    free_bytes: Option<u64>,
    sessions: usize,
) -> String {
    let (now, workers) = read.unzip();
    let own = handle.metrics().encode(now.as_ref(), free_bytes, sessions);
    let mut text = own.strip_suffix(LAST_LINE).unwrap_or(&own).to_owned();
    worker_metrics::write(&mut text, workers.as_deref().unwrap_or_default());
    text + LAST_LINE
}

/// Ends the server in good order; running tasks go on and are taken over by the next one.
#[utoipa::path(post, path = "/api/v1/shutdown", tag = "server",
    responses((status = 202, description = "It ends")))]
pub async fn shutdown(State(app): State<App>) -> StatusCode {
    app.handle.close();
    StatusCode::ACCEPTED
}
