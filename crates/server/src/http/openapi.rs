//! The description of the interface, made from the handlers.

use super::{board, jobs, limits, loads, logs, queues, status, tasks, tokens, watch, workers};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;

/// Where it is served.
pub const OPENAPI_PATH: &str = "/openapi.json";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Windlass",
        description = "Jobs, tasks and workers of a farm. Times are milliseconds since \
        the Unix epoch, memory is bytes, cpus are cores. Fields may be added; a field that is absent is unknown."
    ),
    paths(
        jobs::submit,
        jobs::list,
        jobs::show,
        jobs::cancel,
        jobs::retry,
        jobs::hold,
        jobs::release,
        watch::wait,
        watch::events,
        tasks::list,
        tasks::show,
        tasks::why,
        logs::log,
        status::version,
        workers::list,
        workers::show,
        workers::drain,
        workers::resume,
        workers::why,
        loads::server_loads,
        board::rules,
        board::summary,
        board::pending,
        board::dispatched,
        board::decisions,
        board::workers,
        board::workers_load,
        tokens::list,
        tokens::create,
        tokens::revoke,
        queues::list,
        queues::show,
        queues::set,
        limits::list,
        limits::set,
        limits::remove,
        status::healthz,
        status::metrics,
        status::shutdown,
    )
)]
struct Document;

/// The document as JSON.
pub fn openapi() -> String {
    let mut text = Document::openapi().to_pretty_json().expect("the document is strings and lists");
    text.push('\n');
    text
}

pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi()).into_response()
}
