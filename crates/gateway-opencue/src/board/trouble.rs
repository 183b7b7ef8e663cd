//! Answers of the board that are not a success.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;
use windlass_api::ErrorCode;
use windlass_server::ApiError;

/// Why a request of the board is not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum BoardTrouble {
    /// The request has a value that the board cannot use.
    #[error("{0}")]
    Asked(String),
    #[error("there is no {0}")]
    Missing(String),
    #[error("the board answers as many requests as it may")]
    Busy,
    #[error("the board has no connection to the database")]
    Pool(#[from] PoolError),
    #[error("the database does not answer the board")]
    Database(#[from] tokio_postgres::Error),
}

impl From<QueryRejection> for BoardTrouble {
    fn from(error: QueryRejection) -> BoardTrouble {
        BoardTrouble::Asked(error.body_text())
    }
}

impl From<PathRejection> for BoardTrouble {
    fn from(error: PathRejection) -> BoardTrouble {
        BoardTrouble::Asked(error.body_text())
    }
}

impl IntoResponse for BoardTrouble {
    fn into_response(self) -> Response {
        let message = self.to_string();
        let error = match self {
            BoardTrouble::Asked(_) => ApiError::new(ErrorCode::BadRequest, message),
            BoardTrouble::Missing(_) => ApiError::new(ErrorCode::NotFound, message),
            BoardTrouble::Busy => ApiError::new(ErrorCode::Unavailable, message).hint("ask again"),
            BoardTrouble::Pool(error) => {
                tracing::warn!(?error, "{message}");
                ApiError::new(ErrorCode::Unavailable, message).hint("the gateway's log says why")
            }
            BoardTrouble::Database(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                tracing::warn!("a statement of the board took longer than it may");
                ApiError::new(ErrorCode::Unavailable, "the database takes too long for this list")
                    .hint("choose a filter")
            }
            BoardTrouble::Database(error) => {
                tracing::warn!(?error, "{message}");
                ApiError::new(ErrorCode::Unavailable, message).hint("the gateway's log says why")
            }
        };
        error.into_response()
    }
}
