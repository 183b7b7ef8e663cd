//! Tasks of a job that are with other shards than its home.

use super::App;
use super::error::ApiError;
use crate::peers::OtherShards;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use futures_util::future::join_all;
use windlass_api::{JobShard, Why};
use windlass_core::ids::ShardId;
use windlass_core::ranges::RangeSet;
use windlass_core::{JobId, TaskId};

/// Lists the shards that have tasks of a job, besides the one that accepted it, with the reason for which the first of those
/// that wait in each does. Empty in a farm that is not divided.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/shards", tag = "jobs", params(("id" = u64, Path)), responses(
    (status = 200, description = "By number", body = Vec<JobShard>),
    (status = 404, body = windlass_api::ErrorBody)))]
pub async fn list(
    State(app): State<App>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<Json<Vec<JobShard>>, ApiError> {
    let Path(id) = id?;
    let (job, store) = (JobId(id), app.handle.store());
    if store.job(job).await?.is_none() {
        return Err(ApiError::no_job(id));
    }
    let Some(others) = app.others() else { return Ok(Json(Vec::new())) };
    let mut delegated: Vec<(ShardId, RangeSet, RangeSet)> = Vec::new();
    for (shard, tasks) in store.delegated(job).await? {
        let running = store.booked_tasks(job, &tasks).await?;
        delegated.push((shard, tasks, running));
    }
    let told = delegated.into_iter().map(|(shard, mut waiting, running)| {
        waiting.subtract(&running);
        of_shard(&others, job, shard, (waiting, running.len()))
    });
    Ok(Json(join_all(told).await))
}

async fn of_shard(
    others: &OtherShards,
    job: JobId,
    shard: ShardId,
    (waiting, running): (RangeSet, u32),
) -> JobShard {
    let first = waiting.first().map(|index| TaskId { job, index }.to_string());
    let why: Option<Why> = match &first {
        Some(task) => others.ask(shard, format!("/api/v1/tasks/{task}/why")).await,
        None => None,
    };
    let (reason, message) = why.map(|why| (why.reason, why.message)).unzip();
    JobShard { shard: shard.0, running, waiting: waiting.len(), first, reason, message }
}
