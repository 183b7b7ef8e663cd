//! How loaded workers are, for monitoring.

use super::App;
use super::extract::Query;
use super::lists::within;
use crate::api_error::ApiError;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use std::collections::BTreeMap;
use utoipa::IntoParams;
use windlass_api::board::{ServerLoad, ServerLoads};
use windlass_core::explain::{WorkerReason, vetoed_workers};
use windlass_core::plan::placement::Ineligible;
use windlass_core::{Engine, WorkerId};

/// Workers of one answer.
const LOADS_MAX: usize = 10_000;

/// Which workers' loads are told.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LoadsQuery {
    /// Entries of the answer: 10000 by default and at most.
    limit: Option<usize>,
    /// `next` of the part before.
    cursor: Option<u64>,
}

/// Tells of each worker how loaded it is and whether it is given work.
#[utoipa::path(get, path = "/api/v1/scheduler/server_loads", tag = "board", params(LoadsQuery),
    responses((status = 200, description = "Workers by id", body = ServerLoads)))]
pub async fn server_loads(
    State(app): State<App>,
    Query(LoadsQuery { limit, cursor }): Query<LoadsQuery>,
) -> Result<Json<ServerLoads>, ApiError> {
    let limit = within("limit", limit, LOADS_MAX, LOADS_MAX)?;
    let look = move |engine: &Engine| {
        let workers = engine.workers();
        let first = WorkerId(cursor.map_or(0, |last| last.saturating_add(1)));
        let mut some = workers.present_from(first).peekable();
        let (mut servers, mut last) = (Vec::new(), None);
        let mut vetoed: BTreeMap<WorkerId, Ineligible> = vetoed_workers(engine).into_iter().collect();
        for worker in some.by_ref().take(limit) {
            let mut load = ServerLoad::from_core(worker, workers.load_settings());
            if let Some(why) = vetoed.remove(&worker.record.id) {
                load.accepting_jobs = false;
                load.reason = Some(WorkerReason::Closed(why).say().1);
            }
            servers.push(load);
            last = Some(worker.record.id.0);
        }
        let next = some.peek().and(last);
        ServerLoads { servers, next }
    };
    Ok(Json(app.handle.query(look).await?))
}
