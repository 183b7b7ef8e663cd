//! Changes refuse what they do not take. A field that is passed over would act on more than its client meant: a cancel
//! of a job whose body names tasks would cancel all of them.

use super::routes::{self, RequestPart};
use crate::api_error::ApiError;
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Query, Request};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use windlass_api::ErrorCode;

/// The fields of a body or a query that is not taken.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an empty object")]
struct NoFields {}

/// Refuses a change with a body or a query, where its handler reads none. Handlers refuse unknown fields of what they
/// read themselves.
pub(super) async fn refuse(request: Request, next: Next) -> Response {
    let pattern = request.extensions().get::<MatchedPath>();
    let taken = pattern.and_then(|pattern| routes::taken(request.method(), pattern.as_str()));
    let Some(taken) = taken else { return next.run(request).await };
    if !taken.contains(&RequestPart::Query)
        && let Err(error) = check_query(request.uri())
    {
        return error.into_response();
    }
    if taken.contains(&RequestPart::Bytes) {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    // The body was taken in before, within its limit.
    let body = match to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => return ApiError::new(ErrorCode::BadRequest, error.to_string()).into_response(),
    };
    let checked = match taken.contains(&RequestPart::Body) {
        true if is_list(&body) => {
            Err(ApiError::new(ErrorCode::BadRequest, "the body is a list; give an object with fields"))
        }
        true => Ok(()),
        false => check_body(&body),
    };
    match checked {
        Ok(()) => next.run(Request::from_parts(head, Body::from(body))).await,
        Err(error) => error.into_response(),
    }
}

fn check_query(uri: &Uri) -> Result<(), ApiError> {
    match Query::<NoFields>::try_from_uri(uri) {
        Ok(_) => Ok(()),
        Err(error) => Err(not_taken("query", &error.body_text())),
    }
}

/// An empty body says nothing; nor do `null` and `{}`, which clients send that always send JSON.
fn check_body(body: &[u8]) -> Result<(), ApiError> {
    if body.is_empty() {
        return Ok(());
    }
    if is_list(body) {
        return Err(not_taken("body", "it is a list"));
    }
    match serde_json::from_slice::<Option<NoFields>>(body) {
        Ok(_) => Ok(()),
        Err(error) => Err(not_taken("body", &error.to_string())),
    }
}

/// Whether a body of JSON is a list. No change takes one, and a reader of fields would take its values by their places.
fn is_list(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

fn not_taken(part: &str, why: &str) -> ApiError {
    let error = ApiError::new(ErrorCode::BadRequest, format!("this request takes no {part}: {why}"));
    error.hint("GET /openapi.json tells what each request takes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_query(uri: &'static str) -> Option<String> {
        check_query(&Uri::from_static(uri)).err().map(|error| error.to_string())
    }

    fn of_body(body: &str) -> Option<String> {
        check_body(body.as_bytes()).err().map(|error| error.to_string())
    }

    #[test]
    fn what_a_change_does_not_take_is_refused_by_its_name() {
        for uri in ["/api/v1/jobs/1/cancel?tasks=3", "/api/v1/jobs/1/cancel?tasks"] {
            let why = of_query(uri).unwrap();
            assert!(why.contains("no query") && why.contains("`tasks`"), "{why}");
        }
        for body in [r#"{"tasks": [3]}"#, r#"{"tasks": null}"#] {
            let why = of_body(body).unwrap();
            assert!(why.contains("no body") && why.contains("`tasks`"), "{why}");
        }
        assert!(of_body("tasks=3").is_some() && of_body("3").is_some(), "neither is JSON that says nothing");
        assert!(of_body(" []").is_some() && is_list(b"\n[5]") && !is_list(b"{}"));
    }

    #[test]
    fn a_request_that_says_nothing_is_taken() {
        for uri in ["/api/v1/jobs/1/cancel", "/api/v1/jobs/1/cancel?"] {
            assert_eq!(of_query(uri), None);
        }
        for body in ["", "null", "{}", " {}\n"] {
            assert_eq!(of_body(body), None, "{body:?}");
        }
    }
}
