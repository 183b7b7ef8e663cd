//! Errors as HTTP answers: what failed, why, and what to do.

use crate::unavailable::Unavailable;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use windlass_api::{ErrorBody, ErrorCode, ErrorDetail, IneligibleWorkers, SubmitError};
use windlass_core::engine::{Refusal, Unplaceable};
use windlass_store::StoreError;

/// An answer that is not a success.
pub struct ApiError {
    detail: ErrorDetail,
}

impl ApiError {
    /// An error of that kind.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ApiError { detail: ErrorDetail { code, message: message.into(), hint: None } }
    }

    /// With what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.detail.hint = Some(hint.into());
        self
    }

    /// The error code on the wire.
    pub fn code(&self) -> ErrorCode {
        self.detail.code
    }

    /// The HTTP status of the error code.
    pub fn status(&self) -> StatusCode {
        status_of(self.detail.code)
    }

    /// A body over the limit.
    pub fn too_large(bytes_max: usize) -> Self {
        let limit = bytes_max >> 20;
        ApiError::new(ErrorCode::TooLarge, format!("the submission is larger than {limit} MiB"))
            .hint("submit it in several jobs")
    }

    /// The job belongs to another user.
    pub fn not_yours(id: impl std::fmt::Display) -> Self {
        ApiError::new(ErrorCode::Forbidden, format!("job {id} belongs to another user"))
            .hint("ask its user or an administrator")
    }

    /// The job is not known.
    pub fn no_job(id: impl std::fmt::Display) -> Self {
        ApiError::new(ErrorCode::NotFound, format!("there is no job {id}")).hint("'windlass jobs' lists them")
    }

    /// As it is, but that a job which is not there has no such task either.
    pub fn or_no_task(self, id: impl std::fmt::Display) -> Self {
        if self.detail.code == ErrorCode::NotFound { ApiError::no_task(id) } else { self }
    }

    /// The task is not known.
    pub fn no_task(id: impl std::fmt::Display) -> Self {
        let error = ApiError::new(ErrorCode::NotFound, format!("there is no task {id}"));
        error.hint("'windlass job tasks JOB' lists those of a job")
    }

    /// No outside client holds this place or waits in this queue.
    pub fn no_place(id: impl std::fmt::Display) -> Self {
        let error = ApiError::new(ErrorCode::NotFound, format!("nobody holds a place {id} or waits for one"));
        error.hint("it was given back; 'windlass queues' lists the queues of clients")
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.detail.code;
        let mut response = (status_of(code), Json(ErrorBody { error: self.detail })).into_response();
        if code == ErrorCode::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(code, ErrorCode::Unavailable | ErrorCode::WorkerAway) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Unavailable> for ApiError {
    fn from(why: Unavailable) -> Self {
        ApiError::new(ErrorCode::Unavailable, why.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Unavailable::from_store(&error).into()
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        ApiError::new(ErrorCode::BadRequest, error.to_string())
    }
}

impl From<PathRejection> for ApiError {
    fn from(error: PathRejection) -> Self {
        ApiError::new(ErrorCode::BadRequest, error.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(error: QueryRejection) -> Self {
        ApiError::new(ErrorCode::BadRequest, error.body_text())
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::NoJob(id) => ApiError::no_job(id),
            Refusal::KeyReadTooEarly => ApiError::new(ErrorCode::Unavailable, refusal.to_string()),
            Refusal::NoWorker(_) => ApiError::new(ErrorCode::NotFound, refusal.to_string()),
            Refusal::NoQueue(_) => ApiError::new(ErrorCode::NotFound, refusal.to_string())
                .hint("'windlass queue list' lists them"),
            Refusal::QueueInUse(name) => ApiError::new(ErrorCode::Conflict, refusal.to_string()).hint(format!(
                "'windlass jobs --queue {name} --state pending,running,held' lists them; wait for them, or cancel them"
            )),
            Refusal::NoLimit(_) => ApiError::new(ErrorCode::NotFound, refusal.to_string())
                .hint("'windlass limit list' lists them"),
            Refusal::NothingToCancel(id) => ApiError::new(ErrorCode::Conflict, refusal.to_string())
                .hint(format!("'windlass job retry {id}.TASK' runs one that failed again")),
            Refusal::Ended(_)
            | Refusal::NothingToRetry(_)
            | Refusal::NoneToRetry(_)
            | Refusal::Connected(_)
            | Refusal::NameTaken { .. } => ApiError::new(ErrorCode::Conflict, refusal.to_string()),
            Refusal::NoSuchTask { .. } => ApiError::new(ErrorCode::NotFound, refusal.to_string())
                .hint("'windlass job tasks JOB' lists those of a job"),
            Refusal::Unplaceable(steps) => {
                ApiError::new(ErrorCode::CannotBePlaced, format!("{refusal}: {}", reasons(steps)))
                    .hint("ask for less, or submit it with 'windlass submit' to wait for a worker that fits")
            }
            _ => ApiError::new(ErrorCode::BadRequest, refusal.to_string()),
        }
    }
}

/// What rules all workers out, in words.
fn reasons(steps: &[Unplaceable]) -> String {
    let all = steps.iter().flat_map(|step| &step.reasons);
    let words: Vec<String> = all
        .map(|(reason, n)| {
            let IneligibleWorkers { message, .. } = IneligibleWorkers::from_core(reason, *n, Vec::new());
            format!("{n} worker{}: {message}", if *n == 1 { "" } else { "s" })
        })
        .collect();
    if words.is_empty() { "the farm has no worker".to_owned() } else { words.join(", ") }
}

/// The body of a small request, parsed as JSON.
pub(crate) fn read_body<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, ApiError> {
    let body = body.map_err(|e| ApiError::new(ErrorCode::BadRequest, e.body_text()))?;
    serde_json::from_slice(&body)
        .map_err(|e| ApiError::new(ErrorCode::BadRequest, format!("invalid request body: {e}")))
}

/// The HTTP status of an error code, as axum's type.
fn status_of(code: ErrorCode) -> StatusCode {
    StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
