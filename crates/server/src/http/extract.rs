//! Parts of a request as handlers take them. What does not fit is answered with the error body of all requests.

use crate::api_error::{ApiError, read_body};
use axum::body::Bytes;
use axum::extract::{self, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

pub(crate) struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let extract::Path(parameter) = extract::Path::from_request_parts(parts, state).await?;
        Ok(Path(parameter))
    }
}

/// The parameters behind the path.
pub(crate) struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let extract::Query(parameters) = extract::Query::from_request_parts(parts, state).await?;
        Ok(Query(parameters))
    }
}

/// The body of a small request. Its content type is not asked for.
pub(crate) struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        read_body(Bytes::from_request(request, state).await).map(JsonBody)
    }
}
