//! How many workers are wanted, for programs that start and stop them.

use super::App;
use crate::api_error::ApiError;
use crate::reader::Reader;
use crate::view::{self, SeenScaling};
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use windlass_api::Scaling;
use windlass_core::JobId;

/// Says how many workers of each class of machines are wanted, and why. The answer is at most a second old. Jobs are named
/// only to callers who may read them.
#[utoipa::path(get, path = "/api/v1/scaling", tag = "workers", responses((status = 200, body = Scaling)))]
pub async fn scaling(State(app): State<App>, reader: Reader) -> Result<Json<Scaling>, ApiError> {
    let seen = seen(&app).await?;
    let may_read = |job: JobId| seen.jobs.get(&job).is_some_and(|spec| reader.may_read_job(spec));
    Ok(Json(Scaling::from_core(&seen.scaling, may_read)))
}

/// The answer that is the same for all callers, made at most once a second.
pub(super) async fn seen(app: &App) -> Result<Arc<SeenScaling>, ApiError> {
    let make = async || {
        let settings = app.shared.scaling.clone();
        Ok::<_, ApiError>(app.handle.query(move |engine| view::scaling(engine, &settings)).await?)
    };
    app.shared.seen_scaling.get(make).await
}
