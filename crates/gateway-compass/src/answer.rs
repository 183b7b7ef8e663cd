//! Answers that clients of Compass CI know.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use windlass_server::Unavailable;

/// The engine answered a request with a reply of another request.
pub(crate) const OTHER_QUESTION: &str = "unexpected reply of the engine";

/// A response that refuses a request. Boxed, because it is the error of every handler.
pub(crate) struct Refused(Box<Response>);

impl From<Response> for Refused {
    fn from(response: Response) -> Self {
        Refused(Box::new(response))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        *self.0
    }
}

impl From<Unavailable> for Refused {
    fn from(why: Unavailable) -> Self {
        unavailable(why).into()
    }
}

/// An answer in JSON.
pub(crate) fn tell(status: StatusCode, body: Value) -> Response {
    (status, Json(body)).into_response()
}

/// An answer in plain text.
pub(crate) fn say(status: StatusCode, text: impl Into<String>) -> Response {
    (status, text.into()).into_response()
}

pub(crate) fn unavailable(why: Unavailable) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why.to_string()).into_response()
}
