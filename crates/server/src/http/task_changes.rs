//! Tasks of a job: cancel or retry some of them.

use super::extract::{JsonBody, Path, Query};
use super::jobs::JobChange;
use super::retry_rules::RetryQuery;
use super::tasks;
use crate::api_error::ApiError;
use axum::Json;
use windlass_api::{ChangeTasks, ErrorCode, Job, Task, TaskSet};
use windlass_core::engine::Event;
use windlass_core::ranges::RangeSet;
use windlass_core::{JobId, RequestId};

/// Cancels tasks of a job: those that run are killed, the others never start. What waits for them is skipped.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/tasks/cancel", tag = "jobs", params(("id" = u64, Path)),
    request_body = ChangeTasks, responses(
    (status = 200, description = "The job", body = Job),
    (status = 404, description = "No such job or task", body = windlass_api::ErrorBody),
    (status = 409, description = "They have ended", body = windlass_api::ErrorBody)))]
pub async fn cancel_some(
    change: JobChange,
    Path(id): Path<u64>,
    JsonBody(body): JsonBody<ChangeTasks>,
) -> Result<Json<Job>, ApiError> {
    some(change, id, (&body, None), |request, job, tasks| Event::CancelTasks { request, job, tasks }).await
}

/// Runs those of these tasks again that failed or were cancelled. Of a job that was stopped the others stay cancelled.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/tasks/retry", tag = "jobs", params(("id" = u64, Path), RetryQuery),
    request_body = ChangeTasks, responses(
    (status = 200, description = "The job", body = Job),
    (status = 404, description = "No such job or task", body = windlass_api::ErrorBody),
    (status = 409, description = "None of them failed or was cancelled, or a job that theirs comes after did not end as \
        it asks for", body = windlass_api::ErrorBody)))]
pub async fn retry_some(
    change: JobChange,
    Path(id): Path<u64>,
    Query(query): Query<RetryQuery>,
    JsonBody(body): JsonBody<ChangeTasks>,
) -> Result<Json<Job>, ApiError> {
    let event = |request, job, tasks| Event::RetryTasks { request, job, tasks };
    some(change, id, (&body, Some(query)), event).await
}

/// Cancels one task, as a cancel of tasks of its job does.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/cancel", tag = "tasks", params(("id" = String, Path)), responses(
    (status = 200, description = "The task", body = Task),
    (status = 404, description = "No such task", body = windlass_api::ErrorBody),
    (status = 409, description = "It has ended", body = windlass_api::ErrorBody)))]
pub async fn cancel_one(change: JobChange, Path(id): Path<String>) -> Result<Json<Task>, ApiError> {
    one(change, &id, None, |request, job, tasks| Event::CancelTasks { request, job, tasks }).await
}

/// Runs one task again that failed or was cancelled, as a retry of tasks of its job does.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/retry", tag = "tasks", params(("id" = String, Path), RetryQuery),
    responses(
    (status = 200, description = "The task", body = Task),
    (status = 404, description = "No such task", body = windlass_api::ErrorBody),
    (status = 409, description = "It neither failed nor was cancelled, or a job that its own comes after did not end \
        as it asks for", body = windlass_api::ErrorBody)))]
pub async fn retry_one(
    change: JobChange,
    Path(id): Path<String>,
    Query(query): Query<RetryQuery>,
) -> Result<Json<Task>, ApiError> {
    one(change, &id, Some(query), |request, job, tasks| Event::RetryTasks { request, job, tasks }).await
}

async fn some(
    change: JobChange,
    id: u64,
    (body, retry): (&ChangeTasks, Option<RetryQuery>),
    event: fn(RequestId, JobId, RangeSet) -> Event,
) -> Result<Json<Job>, ApiError> {
    let tasks = body.tasks.parse::<TaskSet>();
    let tasks = tasks.map_err(|bad| ApiError::new(ErrorCode::BadRequest, bad.to_string()))?.into_ranges();
    change.act_if(JobId(id), retry, move |request, job| event(request, job, tasks)).await
}

async fn one(
    change: JobChange,
    id: &str,
    retry: Option<RetryQuery>,
    event: fn(RequestId, JobId, RangeSet) -> Event,
) -> Result<Json<Task>, ApiError> {
    let id = tasks::parse_id(id)?;
    let (app, reader) = (change.app.clone(), change.app.reader(&change.caller));
    let only = TaskSet::one(id.index).into_ranges();
    _ = change.act_if(id.job, retry, move |request, job| event(request, job, only)).await?;
    Ok(Json(reader.told(tasks::find(&app, &reader, id).await?)))
}
