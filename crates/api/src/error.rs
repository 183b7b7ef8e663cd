//! The JSON body of errors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every answer that is not a success.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error, for programs and for people.
    pub error: ErrorDetail,
}

/// An error, for programs and for people.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// The kind of error, for programs.
    pub code: ErrorCode,
    /// What failed and why.
    pub message: String,
    /// What to do next, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Kinds of errors that programs tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// 400: the request is malformed or breaks a rule.
    BadRequest,
    /// 401: the token is missing or not valid.
    Unauthorized,
    /// 403: the caller may not do it.
    Forbidden,
    /// 404: the path or the entity does not exist.
    NotFound,
    /// 405: the path has other methods.
    MethodNotAllowed,
    /// 409: the entity's state does not allow it.
    Conflict,
    /// 413: the body is over the limit.
    TooLarge,
    /// 422: no worker of the farm could ever run it.
    CannotBePlaced,
    /// 503: the store is full or unreachable, or too many requests wait; try again.
    Unavailable,
    /// 503: the worker that has to answer is not connected; try again when it is back. No other server knows more.
    WorkerAway,
    /// 500: a defect of the server.
    Internal,
}

impl ErrorCode {
    /// The HTTP status of the answer.
    pub fn status(self) -> u16 {
        match self {
            ErrorCode::BadRequest => 400,
            ErrorCode::Unauthorized => 401,
            ErrorCode::Forbidden => 403,
            ErrorCode::NotFound => 404,
            ErrorCode::MethodNotAllowed => 405,
            ErrorCode::Conflict => 409,
            ErrorCode::TooLarge => 413,
            ErrorCode::CannotBePlaced => 422,
            ErrorCode::Unavailable | ErrorCode::WorkerAway => 503,
            ErrorCode::Internal => 500,
        }
    }
}
