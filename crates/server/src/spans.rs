//! Spans of what the server does: requests, rounds, commits and the streams of workers. A build with the feature
//! `otlp` sends them to a collector. Where no subscriber wants them, a span is one comparison, and its fields are not
//! even computed.
//!
//! - Each span is a root: what the engine does serves many requests at once, and belongs to none of them.
//! - Names and fields are a contract, as those of metrics are. Numbers are signed, because OpenTelemetry has no others.

use axum::extract::{MatchedPath, Request};
use axum::http::StatusCode;
use tracing::field::{Empty, display};
use tracing::{Span, debug_span};

/// The target of all spans, by which a subscriber chooses them.
pub const SPANS: &str = "windlass_spans";

/// A request, until the head of its answer: streams go on after that. Its name is its route, because paths have no
/// bound.
pub(crate) fn request(request: &Request) -> Span {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let method = request.method().as_str();
    debug_span!(
        target: SPANS,
        parent: None,
        "request",
        otel.name = %format_args!("{method} {}", route.unwrap_or("of no route")),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
    )
}

/// Notes how a request was answered.
pub(crate) fn answered(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

pub(crate) fn round() -> Span {
    debug_span!(target: SPANS, parent: None, "round", bookings = Empty)
}

/// Notes what a round booked. Rounds without bookings are not exported: there may be thousands a second.
pub(crate) fn booked(span: &Span, bookings: usize) {
    span.record("bookings", bookings as i64);
}

pub(crate) fn commit(writes: usize) -> Span {
    debug_span!(
        target: SPANS,
        parent: None,
        "commit",
        writes = writes as i64,
        refused = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    )
}

/// Notes what became of a batch: the number of its writes that were refused, or why all of it failed.
pub(crate) fn committed<E: std::fmt::Display>(span: &Span, result: Result<usize, &E>) {
    match result {
        Ok(refused) => _ = span.record("refused", refused as i64),
        Err(error) => {
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", display(error));
        }
    }
}

/// A worker's stream, until it ends.
pub(crate) fn worker_stream() -> Span {
    debug_span!(target: SPANS, parent: None, "worker stream", worker = Empty, ended = Empty)
}

/// Notes whose stream it was, and why it ended, where the server did not end it.
pub(crate) fn stream_ended(span: &Span, worker: Option<&str>, why: Option<&str>) {
    span.record("worker", worker);
    span.record("ended", why.unwrap_or("the server ended it"));
}
