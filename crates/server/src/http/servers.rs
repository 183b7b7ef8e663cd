//! The servers of a farm: which one owns it, which ones stand by, and which are to give it up.

use super::App;
use super::extract::Path;
use crate::api_error::ApiError;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use windlass_api::{ErrorCode, FarmOwnership, FarmServer};
use windlass_store::{OwnerRow, ServerRow};

/// Lists the servers that share the database. Empty where the server has a store of its own.
#[utoipa::path(get, path = "/api/v1/scheduler/servers", tag = "server", responses(
    (status = 200, description = "By the time of their start", body = Vec<FarmServer>)))]
pub async fn list(State(app): State<App>) -> Result<Json<Vec<FarmServer>>, ApiError> {
    let store = app.handle.store();
    let (servers, owner) = (store.servers().await?, store.owner().await?);
    let own = app.own_number();
    let shown = servers.into_iter().map(|server| {
        let is_this = Some(server.id) == own;
        show(server, owner.as_ref(), is_this)
    });
    Ok(Json(shown.collect()))
}

fn show(server: ServerRow, owner: Option<&OwnerRow>, is_this: bool) -> FarmServer {
    let owned = owner.filter(|owner| owner.server == Some(server.id));
    let owns = owned.map(|owner| FarmOwnership {
        epoch: owner.epoch,
        since_ms: owner.age.map(|age| age.as_millis() as u64),
    });
    FarmServer {
        id: server.id.0,
        owns,
        name: server.name,
        addresses: server.addresses,
        release: server.release,
        is_this,
        draining: server.is_draining,
        up_ms: server.age.as_millis() as u64,
        silent_ms: server.silent.as_millis() as u64,
    }
}

/// Makes a server give up the farm as soon as another one can take it, and not take it until it is resumed or
/// started again. Its clients stay with it.
#[utoipa::path(post, path = "/api/v1/scheduler/servers/{name}/drain", tag = "server",
    params(("name" = String, Path)), responses(
    (status = 204, description = "It was told")))]
pub async fn drain(State(app): State<App>, Path(name): Path<String>) -> Result<StatusCode, ApiError> {
    set(&app, &name, true).await
}

/// Lets a drained server own the farm again, when it is free.
#[utoipa::path(post, path = "/api/v1/scheduler/servers/{name}/resume", tag = "server",
    params(("name" = String, Path)), responses(
    (status = 204, description = "It was told")))]
pub async fn resume(State(app): State<App>, Path(name): Path<String>) -> Result<StatusCode, ApiError> {
    set(&app, &name, false).await
}

async fn set(app: &App, name: &str, drain: bool) -> Result<StatusCode, ApiError> {
    let store = app.handle.store();
    let known = match store.ownership().is_some() || app.request_client().is_some() {
        true => store.drain_servers(name, drain).await?,
        false => 0,
    };
    match known {
        0 => Err(ApiError::new(ErrorCode::NotFound, format!("no server of this farm is named '{name}'"))
            .hint("'windlass scheduler list' lists them")),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}
