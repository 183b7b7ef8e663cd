//! The clusters of a laboratory: named sets of machines for jobs that run on several nodes.

use crate::access::{check_admin, check_look};
use crate::answer::{Refused, say, tell};
use crate::app::App;
use crate::caller::{Who, who};
use crate::format::{ClusterSpec, check_cluster_name};
use crate::lab::Ask;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Bytes of one cluster's specification.
const SPEC_BYTES_MAX: usize = 256 << 10;

/// Registers a cluster's machines, from YAML or JSON. For administrators.
pub(super) async fn register(
    State(app): State<App>,
    caller: Who,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    check_admin(who(&caller))?;
    let bad = |why: String| Refused::from(say(StatusCode::BAD_REQUEST, why));
    let body = body.map_err(|rejection| rejection.into_response())?;
    check_cluster_name(&name).map_err(bad)?;
    if body.len() > SPEC_BYTES_MAX {
        return Err(bad(format!("a cluster's specification has {SPEC_BYTES_MAX} bytes at most")));
    }
    let spec = app.front.parse(body, |body| ClusterSpec::of_text(&String::from_utf8_lossy(body))).await;
    let spec = spec.map_err(|why| bad(format!("cluster '{name}': {why}")))?;
    let ask = |reply| Ask::Cluster { name: name.clone(), spec, reply };
    app.compass.ask(ask).await?.map_err(bad)?;
    Ok(say(StatusCode::OK, format!("Cluster registered successfully: {name}")))
}

/// Shows a cluster's specification.
pub(super) async fn show(
    State(app): State<App>,
    caller: Who,
    Path(name): Path<String>,
) -> Result<Response, Refused> {
    check_look(who(&caller))?;
    let wanted = name.clone();
    let found = app.compass.look(move |lab| lab.clusters.get(&wanted).cloned()).await;
    Ok(match found? {
        Some(spec) => Json(spec).into_response(),
        None => tell(StatusCode::NOT_FOUND, json!({"error": "Cluster not found", "cluster": name})),
    })
}
