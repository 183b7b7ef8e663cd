//! Versions, health, numbers, and the end.

use super::{App, scaling};
use crate::api_error::ApiError;
use crate::auth::{Caller, Peer};
use crate::figures::worker_metrics::{METRIC_WORKERS_MAX, write_jobserver_processes, write_token_ends};
use crate::metrics::{Gauges, write_scaling};
use crate::view::jobserver_processes;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use windlass_api::Version;
use windlass_core::{Engine, WorkerId};

/// Says who answers.
#[utoipa::path(get, path = "/api/v1/version", tag = "server", responses((status = 200, body = Version)))]
pub async fn version(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    connection: Option<Extension<ConnectInfo<Peer>>>,
) -> Json<Version> {
    let is_user_s = connection.is_some_and(|Extension(ConnectInfo(peer))| peer.local.is_some());
    // The server's own user has the name that the client says.
    let shown = is_user_s || caller.token.is_some();
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
    (status = 200, description = "It does", body = String),
    (status = 503, description = "It does not", body = windlass_api::ErrorBody)))]
pub async fn healthz(State(app): State<App>) -> Result<&'static str, ApiError> {
    if app.request_client().is_some() {
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
    let mut entries = app.entries();
    let gauges = match app.request_client() {
        // The owner's metrics have what the engine knows.
        Some(_) => None,
        None => {
            entries.extend(app.handle.entries().await?);
            Some((app.handle.query(Gauges::read).await?, scaling::seen(&app).await?))
        }
    };
    let sessions = app.shared.sessions.count(app.handle.now());
    let parts = app.handle.parts();
    let mut text = parts.metrics.encode(parts.disk.free_bytes(), sessions, &entries);
    if let Some((gauges, seen)) = gauges {
        gauges.write(&mut text);
        let (ends, said) = (parts.links.token_ends(), parts.jobservers.all());
        let named = move |engine: &Engine| {
            let name = |worker: WorkerId| Some(engine.workers().get(worker)?.record.name.clone());
            let ends = ends.into_iter().take(METRIC_WORKERS_MAX);
            let ends = ends.filter_map(|(worker, end)| Some((name(worker)?, end.at.as_ms() as f64 / 1000.0)));
            (ends.collect::<Vec<_>>(), jobserver_processes(engine, &said))
        };
        let (ends, processes) = app.handle.query(named).await?;
        write_token_ends(&mut text, &ends);
        write_jobserver_processes(&mut text, &processes);
        write_scaling(&mut text, &seen.scaling);
    }
    for gateway in app.shared.gateways.iter() {
        text += &gateway.metrics().await;
    }
    if let Some(files) = app.files() {
        text += &files.metrics();
    }
    text += "# EOF\n";
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Ends the server in good order; running tasks go on and are taken over by the next one.
#[utoipa::path(post, path = "/api/v1/shutdown", tag = "server",
    responses((status = 202, description = "It ends")))]
pub async fn shutdown(State(app): State<App>) -> StatusCode {
    app.handle.close();
    StatusCode::ACCEPTED
}
