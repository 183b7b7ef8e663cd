//! Tasks of a job: cancel or retry some of them.

use super::App;
use super::extract::{JsonBody, Path, Query};
use super::jobs::{act, act_if};
use super::peers::ChangeRequest;
use super::retry_rules::{RetryQuery, check_retry};
use super::tasks;
use crate::api_error::ApiError;
use crate::auth::Caller;
use crate::reader::Reader;
use axum::extract::State;
use axum::{Extension, Json};
use windlass_api::{ChangeTasks, ErrorCode, Job, Task, TaskSet};
use windlass_core::JobId;
use windlass_core::engine::Event;
use windlass_core::ranges::RangeSet;

/// Cancels tasks of a job: those that run are killed, the others never start. What waits for them is skipped.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/tasks/cancel", tag = "jobs", params(("id" = u64, Path)),
    request_body = ChangeTasks, responses(
    (status = 200, description = "The job", body = Job),
    (status = 404, description = "No such job or task", body = windlass_api::ErrorBody),
    (status = 409, description = "They have ended", body = windlass_api::ErrorBody)))]
pub async fn cancel_some(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    change: ChangeRequest,
    Path(id): Path<u64>,
    JsonBody(body): JsonBody<ChangeTasks>,
) -> Result<Json<Job>, ApiError> {
    let tasks = parse(&body)?;
    act(&app, &caller, change, JobId(id), move |request, job| Event::CancelTasks { request, job, tasks })
        .await
}

/// Runs those of these tasks again that failed or were cancelled. Of a job that was stopped the others stay cancelled.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/tasks/retry", tag = "jobs", params(("id" = u64, Path), RetryQuery),
    request_body = ChangeTasks, responses(
    (status = 200, description = "The job", body = Job),
    (status = 404, description = "No such job or task", body = windlass_api::ErrorBody),
    (status = 409, description = "None of them failed or was cancelled, or a job that theirs comes after did not end as \
        it asks for", body = windlass_api::ErrorBody)))]
pub async fn retry_some(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    change: ChangeRequest,
    Path(id): Path<u64>,
    Query(query): Query<RetryQuery>,
    JsonBody(body): JsonBody<ChangeTasks>,
) -> Result<Json<Job>, ApiError> {
    let (id, tasks) = (JobId(id), parse(&body)?);
    let event = move |request, job| Event::RetryTasks { request, job, tasks };
    act_if(&app, &caller, change, (id, check_retry(&app, id, query)), event).await
}

/// Cancels one task, as a cancel of tasks of its job does.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/cancel", tag = "tasks", params(("id" = String, Path)), responses(
    (status = 200, description = "The task", body = Task),
    (status = 404, description = "No such task", body = windlass_api::ErrorBody),
    (status = 409, description = "It has ended", body = windlass_api::ErrorBody)))]
pub async fn cancel_one(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    reader: Reader,
    change: ChangeRequest,
    Path(id): Path<String>,
) -> Result<Json<Task>, ApiError> {
    let id = tasks::parse_id(&id)?;
    let tasks = TaskSet::one(id.index).into_ranges();
    let event = move |request, job| Event::CancelTasks { request, job, tasks };
    _ = act(&app, &caller, change, id.job, event).await?;
    Ok(Json(reader.told(tasks::find(&app, &reader, id).await?)))
}

/// Runs one task again that failed or was cancelled, as a retry of tasks of its job does.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/retry", tag = "tasks", params(("id" = String, Path), RetryQuery),
    responses(
    (status = 200, description = "The task", body = Task),
    (status = 404, description = "No such task", body = windlass_api::ErrorBody),
    (status = 409, description = "It neither failed nor was cancelled, or a job that its own comes after did not end \
        as it asks for", body = windlass_api::ErrorBody)))]
pub async fn retry_one(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    reader: Reader,
    change: ChangeRequest,
    Path(id): Path<String>,
    Query(query): Query<RetryQuery>,
) -> Result<Json<Task>, ApiError> {
    let id = tasks::parse_id(&id)?;
    let tasks = TaskSet::one(id.index).into_ranges();
    let event = move |request, job| Event::RetryTasks { request, job, tasks };
    _ = act_if(&app, &caller, change, (id.job, check_retry(&app, id.job, query)), event).await?;
    Ok(Json(reader.told(tasks::find(&app, &reader, id).await?)))
}

fn parse(body: &ChangeTasks) -> Result<RangeSet, ApiError> {
    let tasks = body.tasks.parse::<TaskSet>();
    tasks.map(TaskSet::into_ranges).map_err(|bad| ApiError::new(ErrorCode::BadRequest, bad.to_string()))
}
