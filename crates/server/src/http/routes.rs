//! The table of requests that the server answers: method, path, access, handler.
//!
//! The router, the access of callers, and the OpenAPI document are all made from it, so a request cannot be in one and
//! missing from another. What a request takes and answers stands at its handler. Gateways and the stream of workers have
//! paths of their own.

use super::paths::OPENAPI_PATH;
use super::{
    App, board, client_turns, description, failures, figures, files, jobs, limits, loads, log_lines, logs,
    places, queues, scaling, servers, session, status, task_changes, tasks, tokens, watch, workers,
};
use crate::auth::{Access, WORKER_PATHS};
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use utoipa::OpenApi;

struct Route {
    method: Method,
    path: &'static str,
    access: Access,
    /// The parts that the handler of a change reads. Those of a look are not listed.
    takes: &'static [RequestPart],
}

/// A part of a request that a handler may read, besides its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestPart {
    /// The parameters behind the path.
    Query,
    /// The body, which is JSON.
    Body,
    /// The body, which is bytes that its handler reads as they come.
    Bytes,
}

macro_rules! method {
    (get) => {
        Method::GET
    };
    (post) => {
        Method::POST
    };
    (put) => {
        Method::PUT
    };
    (delete) => {
        Method::DELETE
    };
}

macro_rules! table {
    ($($verb:ident $path:literal $access:ident $module:ident::$handler:ident $([$($part:ident)*])?;)*) => {
        const ROUTES: &[Route] = &[
            $(Route {
                method: method!($verb),
                path: $path,
                access: Access::$access,
                takes: &[$($(RequestPart::$part),*)?],
            },)*
        ];

        pub fn router() -> Router<App> {
            Router::new()$(.route($path, routing::$verb($module::$handler)))*
        }

        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "Windlass",
                description = "Jobs, tasks and workers of a farm. Times are milliseconds since \
                the Unix epoch, memory is bytes, cpus are cores. Fields may be added; a field that is absent is unknown."
            ),
            paths($($module::$handler),*)
        )]
        struct Document;
    };
}

table! {
    get "/healthz" Anybody status::healthz;
    get "/metrics" Viewer status::metrics;
    get "/api/v1/version" Known status::version;
    post "/api/v1/shutdown" Admin status::shutdown;

    get "/api/v1/jobs" Viewer jobs::list;
    post "/api/v1/jobs" Submitter jobs::submit [Query Body];
    get "/api/v1/jobs/{id}" Viewer jobs::show;
    post "/api/v1/jobs/{id}/cancel" Submitter jobs::cancel;
    post "/api/v1/jobs/{id}/retry" Submitter jobs::retry [Query];
    post "/api/v1/jobs/{id}/hold" Submitter jobs::hold;
    post "/api/v1/jobs/{id}/release" Submitter jobs::release;
    post "/api/v1/jobs/{id}/priority" User jobs::prioritize [Body];
    get "/api/v1/jobs/{id}/wait" Viewer watch::wait;
    get "/api/v1/jobs/{id}/tasks" Viewer tasks::list;
    get "/api/v1/jobs/{id}/failures" Viewer failures::failures;
    get "/api/v1/jobs/{id}/files" Viewer files::list;
    get "/api/v1/jobs/{id}/files/tar" Viewer files::tar;
    get "/api/v1/jobs/{id}/files/blob" Viewer files::blob;
    post "/api/v1/jobs/{id}/tasks/cancel" Submitter task_changes::cancel_some [Body];
    post "/api/v1/jobs/{id}/tasks/retry" Submitter task_changes::retry_some [Query Body];
    get "/api/v1/jobs/{id}/grid" Viewer figures::grid;
    get "/api/v1/tasks/{id}" Viewer tasks::show;
    post "/api/v1/tasks/{id}/cancel" Submitter task_changes::cancel_one;
    post "/api/v1/tasks/{id}/retry" Submitter task_changes::retry_one [Query];
    get "/api/v1/tasks/{id}/why" Viewer tasks::why;
    get "/api/v1/tasks/{id}/log" Viewer logs::log;
    get "/api/v1/tasks/{id}/log/lines" Viewer log_lines::log_lines;
    get "/api/v1/events" Viewer watch::events;

    post "/api/v1/files/missing" Submitter files::missing [Body];
    post "/api/v1/files/blobs" Submitter files::put_blobs [Bytes];
    put "/api/v1/files/blobs/{hash}/{bytes}" Submitter files::put_blob [Bytes];

    get "/api/v1/workers" Viewer workers::list;
    get "/api/v1/workers/{name}" Viewer workers::show;
    get "/api/v1/workers/{name}/why" Viewer workers::why;
    get "/api/v1/workers/{name}/series" Viewer figures::worker_series;
    post "/api/v1/workers/{name}/drain" Admin workers::drain [Body];
    post "/api/v1/workers/{name}/resume" Admin workers::resume;
    post "/api/v1/workers/{name}/forget" Admin workers::forget [Query];

    get "/api/v1/scaling" Viewer scaling::scaling;
    get "/api/v1/places/{id}/why" Viewer places::why;
    get "/api/v1/turns" Viewer client_turns::list;
    post "/api/v1/turns" User client_turns::take [Body];
    post "/api/v1/turns/{id}/memory" User client_turns::holds [Body];
    post "/api/v1/turns/{id}/end" User client_turns::end [Body];
    get "/api/v1/turns/{id}/why" Viewer client_turns::why;
    get "/api/v1/queues" Viewer queues::list;
    get "/api/v1/queues/{name}" Viewer queues::show;
    put "/api/v1/queues/{name}" Admin queues::set [Body];
    delete "/api/v1/queues/{name}" Admin queues::remove;
    get "/api/v1/limits" Viewer limits::list;
    get "/api/v1/limits/{name}" Viewer limits::show;
    put "/api/v1/limits/{name}" Admin limits::set [Body];
    delete "/api/v1/limits/{name}" Admin limits::remove;
    get "/api/v1/tokens" Admin tokens::list;
    post "/api/v1/tokens" Admin tokens::create [Body];
    delete "/api/v1/tokens/{id}" Admin tokens::revoke;

    get "/api/v1/scheduler/server_loads" Viewer loads::server_loads;
    get "/api/v1/scheduler/servers" Viewer servers::list;
    post "/api/v1/scheduler/servers/{name}/drain" Admin servers::drain;
    post "/api/v1/scheduler/servers/{name}/resume" Admin servers::resume;
    post "/api/v1/board/session" Anybody session::sign_in [Body];
    delete "/api/v1/board/session" Anybody session::sign_out;
    get "/api/v1/board/me" Viewer session::me;
    post "/api/v1/board/codes" Viewer session::make_code;
    get "/api/v1/board/overview" Viewer figures::overview;
    get "/api/v1/board/series" Viewer figures::series;
    get "/api/v1/board/history" Viewer figures::history;
    get "/api/v1/board/usage" Viewer figures::usage;
    get "/api/v1/board/scheduler" Viewer figures::scheduler;
    get "/api/v1/board/scoring/rules" Viewer board::rules;
    get "/api/v1/board/scoring/summary" Viewer board::summary;
    get "/api/v1/board/jobs/pending" Viewer board::pending;
    get "/api/v1/board/jobs/decisions" Admin board::decisions;
    get "/api/v1/board/workers" Viewer board::workers;
}

/// The callers that may make a request. `pattern` is the path that the router matched, with its parameters in braces. It
/// is `None` where no handler is, which every known caller may learn.
pub fn access(method: &Method, path: &str, pattern: Option<&str>) -> Access {
    if path.starts_with(WORKER_PATHS) {
        return Access::Worker;
    }
    let Some(pattern) = pattern else { return Access::Known };
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let route = ROUTES.iter().find(|route| route.method == *method && route.path == pattern);
    match route {
        Some(route) => route.access,
        None if pattern == OPENAPI_PATH || ROUTES.iter().any(|route| route.path == pattern) => Access::Viewer,
        None if *method == Method::GET => Access::Viewer,
        None => Access::Admin,
    }
}

/// The parts of a change that its handler reads; `None` where the request is a look, or not in the table.
pub(super) fn taken(method: &Method, pattern: &str) -> Option<&'static [RequestPart]> {
    if method == Method::GET || method == Method::HEAD {
        return None;
    }
    let route = ROUTES.iter().find(|route| route.method == *method && route.path == pattern)?;
    Some(route.takes)
}

/// The document that is served. A test compares it with [`openapi`], whose code takes four times its place in the program.
const DOCUMENT: &str = include_str!("../../../../docs/src/openapi.json");

/// The OpenAPI document as JSON, made from the handlers.
pub fn openapi() -> String {
    let mut document = Document::openapi();
    for route in ROUTES {
        description::complete(&mut document, &route.method, route.path, route.access);
    }
    description::add_components(&mut document);
    let mut text = document.to_pretty_json().expect("the document is strings and lists");
    text.push('\n');
    text
}

pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::paths::brings_files;
    use windlass_api::Role;

    /// The handlers' own descriptions name the same methods and paths as the table.
    #[test]
    fn the_document_has_the_requests_of_the_table() {
        let document: serde_json::Value = serde_json::from_str(&openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let described = paths.iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| (method.to_uppercase(), path.clone()))
        });
        let mut described: Vec<_> = described.collect();
        let mut listed: Vec<_> =
            ROUTES.iter().map(|route| (route.method.to_string(), route.path.to_owned())).collect();
        described.sort();
        listed.sort();
        assert_eq!(described, listed);
    }

    /// What a handler reads and the table does not list would be refused, and the reverse passed over.
    #[test]
    fn changes_take_what_the_document_says() {
        let document: serde_json::Value = serde_json::from_str(&openapi()).unwrap();
        let changes = ROUTES.iter().filter(|route| route.method != Method::GET);
        for Route { method, path, takes, .. } in changes {
            let request = &document["paths"][path][method.as_str().to_lowercase()];
            let has_query =
                request["parameters"].as_array().into_iter().flatten().any(|given| given["in"] == "query");
            assert_eq!(takes.contains(&RequestPart::Query), has_query, "{method} {path}");
            let has_body = request.get("requestBody").is_some();
            let takes_body = takes.iter().any(|part| *part != RequestPart::Query);
            assert_eq!(takes_body, has_body, "{method} {path}");
            assert_eq!(takes.contains(&RequestPart::Bytes), brings_files(path), "{method} {path}");
        }
    }

    /// Strict generators of clients refuse a document in which this does not hold.
    #[test]
    fn parameters_stand_where_they_are_given() {
        let document: serde_json::Value = serde_json::from_str(&openapi()).unwrap();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, request) in methods.as_object().unwrap() {
                for parameter in request["parameters"].as_array().into_iter().flatten() {
                    let name = parameter["name"].as_str().unwrap();
                    let in_path = path.contains(&format!("{{{name}}}"));
                    assert_eq!(parameter["in"] == "path", in_path, "{method} {path}: {name}");
                }
            }
        }
    }

    #[test]
    fn each_role_has_its_requests() {
        let requests = [
            ("GET", "/api/v1/version", "asuvw"),
            ("GET", "/api/v1/jobs", "asuv"),
            ("GET", "/metrics", "asuv"),
            ("GET", "/api/v1/tokens", "a"),
            ("POST", "/api/v1/tokens", "a"),
            ("DELETE", "/api/v1/tokens/{id}", "a"),
            ("POST", "/api/v1/jobs", "asu"),
            ("POST", "/api/v1/jobs/{id}/cancel", "asu"),
            ("POST", "/api/v1/jobs/{id}/retry", "asu"),
            ("POST", "/api/v1/jobs/{id}/tasks/cancel", "asu"),
            ("POST", "/api/v1/jobs/{id}/tasks/retry", "asu"),
            ("POST", "/api/v1/tasks/{id}/cancel", "asu"),
            ("POST", "/api/v1/tasks/{id}/retry", "asu"),
            ("POST", "/api/v1/jobs/{id}/hold", "asu"),
            ("POST", "/api/v1/jobs/{id}/release", "asu"),
            ("POST", "/api/v1/jobs/{id}/priority", "au"),
            ("POST", "/api/v1/workers/{name}/drain", "a"),
            ("POST", "/api/v1/files/missing", "asu"),
            ("POST", "/api/v1/files/blobs", "asu"),
            ("PUT", "/api/v1/files/blobs/{hash}/{bytes}", "asu"),
            ("GET", "/api/v1/jobs/{id}/files", "asuv"),
            ("GET", "/api/v1/jobs/{id}/files/tar", "asuv"),
            ("GET", "/api/v1/queues/{name}", "asuv"),
            ("PUT", "/api/v1/queues/{name}", "a"),
            ("DELETE", "/api/v1/queues/{name}", "a"),
            ("GET", "/api/v1/limits", "asuv"),
            ("GET", "/api/v1/limits/{name}", "asuv"),
            ("PUT", "/api/v1/limits/{name}", "a"),
            ("DELETE", "/api/v1/limits/{name}", "a"),
            ("GET", "/api/v1/board/workers", "asuv"),
            ("POST", "/api/v1/board/session", "asuvw"),
            ("GET", "/api/v1/board/session", "asuv"),
            ("GET", "/api/v1/board/me", "asuv"),
            ("POST", "/api/v1/board/codes", "asuv"),
            ("GET", "/api/v1/board/jobs/decisions", "a"),
            ("GET", "/api/v1/scaling", "asuv"),
            ("GET", "/api/v1/places/7/why", "asuv"),
            ("GET", "/api/v1/turns", "asuv"),
            ("POST", "/api/v1/turns", "au"),
            ("POST", "/api/v1/turns/{id}/memory", "au"),
            ("POST", "/api/v1/turns/{id}/end", "au"),
            ("GET", "/api/v1/scheduler/server_loads", "asuv"),
            ("GET", "/api/v1/scheduler/servers", "asuv"),
            ("POST", "/api/v1/scheduler/servers/{name}/drain", "a"),
            ("POST", "/api/v1/shutdown", "a"),
            ("POST", "/windlass.worker.v1.Workers/Session", "aw"),
        ];
        for (method, path, roles) in requests {
            let access = access(&method.parse().unwrap(), path, Some(path));
            for &role in Role::ALL {
                assert_eq!(
                    access.is_for(role),
                    roles.contains(&role.as_str()[..1]),
                    "{role:?} {method} {path}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_not_open() {
        let of = |method: Method, path: &str, pattern| access(&method, path, pattern);
        assert_eq!(of(Method::GET, "/api/v1/nothing", None), Access::Known);
        assert_eq!(of(Method::DELETE, "/api/v1/jobs", Some("/api/v1/jobs")), Access::Viewer);
        assert_eq!(of(Method::POST, "/somewhere", Some("/somewhere")), Access::Admin);
        assert_eq!(of(Method::HEAD, "/api/v1/tokens", Some("/api/v1/tokens")), Access::Admin);
        assert_eq!(of(Method::POST, "/windlass.worker.v1.Workers/Session", None), Access::Worker);
    }
}
