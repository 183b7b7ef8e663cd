//! How long an answer of the owner is waited for, and what a client is told without one.

use crate::api_error::ApiError;
use crate::peers::Unanswered;
use std::time::Duration;
use windlass_api::ErrorCode;

/// How long the owner may take, a takeover by another server included.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The error that says why the owner has not answered.
pub(super) fn unanswered(why: Unanswered) -> ApiError {
    match why {
        Unanswered::Broken(_) => ApiError::new(ErrorCode::Internal, why.to_string()),
        Unanswered::Store(error) => error.into(),
        _ => ApiError::new(ErrorCode::Unavailable, why.to_string())
            .hint("'windlass scheduler list' shows which server owns the farm"),
    }
}
