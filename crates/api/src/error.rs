//! Errors on the wire: what failed, why, and what to do.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every answer that is not a success.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// One error.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs.
    pub code: ErrorCode,
    /// What failed and why.
    pub message: String,
    /// What to do next, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Kinds of errors that programs tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// 400: the request is malformed or breaks a rule.
    BadRequest,
    /// 401: nobody is known by the token, or there is none.
    Unauthorized,
    /// 403: who asks may not do it.
    Forbidden,
    /// 404.
    NotFound,
    /// 405: the path knows other methods.
    MethodNotAllowed,
    /// 409: what it is about is in no state for it.
    Conflict,
    /// 413: the body is over the limit.
    TooLarge,
    /// 422: no worker of the farm could ever run it.
    CannotBePlaced,
    /// 503: the store is full or gone, or too many requests wait; try again.
    Unavailable,
    /// 500: a defect.
    Internal,
}

impl ErrorCode {
    /// The HTTP status that goes with it.
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
            ErrorCode::Unavailable => 503,
            ErrorCode::Internal => 500,
        }
    }
}
