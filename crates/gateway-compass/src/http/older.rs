//! Paths of the clients of 2022 and before. Each answer says what is asked today instead.

use crate::answer::tell;
use crate::app::App;
use crate::paths::{MOVED, PROXIED};
use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::any;
use serde_json::json;

/// The path by which jobs were canceled. Its client shows the body of no refusal, but `error_msg` of a success.
const CANCEL_JOBS: &str = "/cancel_jobs";

/// The paths, for requests of every method and for sockets.
pub(super) fn routes() -> Router<App> {
    let mut routes = Router::new();
    for (path, instead) in MOVED {
        let answer = move || std::future::ready(gone(path, instead));
        routes = routes.route(path, any(answer));
        if !path.starts_with(PROXIED) {
            routes = routes.route(&format!("{PROXIED}{path}"), any(answer));
        }
    }
    routes
}

fn gone(path: &str, instead: &str) -> Response {
    let why = format!("this is a path of Compass CI before 2023, and nothing was done: use {instead}");
    let status = if path == CANCEL_JOBS { StatusCode::OK } else { StatusCode::GONE };
    tell(status, json!({ "error_msg": why, "message": why }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    #[tokio::test]
    async fn an_older_path_says_what_is_asked_today() {
        let answer = gone("/renew_deadline", "POST /scheduler/v1/jobs/ID/update?renew_seconds=N");
        assert_eq!(answer.status(), StatusCode::GONE);
        let text = to_bytes(answer.into_body(), 1 << 10).await.unwrap();
        assert!(
            String::from_utf8_lossy(&text).contains("use POST /scheduler/v1/jobs/ID/update?renew_seconds=N")
        );
        assert_eq!(gone(CANCEL_JOBS, "another").status(), StatusCode::OK);
        // The patterns do not meet.
        _ = routes();
    }
}
