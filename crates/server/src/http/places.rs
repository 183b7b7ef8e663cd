//! Places that outside clients hold or wait for.

use super::App;
use super::extract::Path;
use crate::api_error::ApiError;
use axum::Json;
use axum::extract::State;
use windlass_api::Why;
use windlass_core::WorkerId;
use windlass_core::explain::{held_place, waiting_place};
use windlass_core::ids::AllocId;

/// Says where an outside client has its place, by the place's number, or why the client that has waited longest in a
/// queue has none. With sccache, the number is the job's, and a client's queue is `sccache-ADDRESS`.
#[utoipa::path(get, path = "/api/v1/places/{id}/why", tag = "workers", params(("id" = String, Path)), responses(
    (status = 200, body = Why)))]
pub async fn why(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Why>, ApiError> {
    let text = id.clone();
    let explain = move |engine: &windlass_core::Engine| {
        let name_of = |n| {
            engine.workers().get(WorkerId(n)).map(|worker| worker.record.name.clone()).unwrap_or_default()
        };
        let held = text.parse().ok().and_then(|number| held_place(engine, AllocId(number)));
        let why = held.or_else(|| waiting_place(engine, &text))?;
        Some(Why::from_core(text, why, engine.planner().policy().name(), name_of))
    };
    let why = app.handle.query(explain).await?;
    why.map(Json).ok_or_else(|| ApiError::no_place(&id))
}
