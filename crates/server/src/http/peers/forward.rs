//! A server that stands by passes requests on to the owner. The guard has found out the caller before.

use super::log_parts;
use super::one_part::LOG_PATTERN;
use super::unanswered::{PATIENCE, unanswered};
use crate::api_error::ApiError;
use crate::auth::{Caller, WORKER_PATHS, random};
use crate::http::App;
use crate::http::guard::came_by;
use crate::http::paths::{GIVEN_PATTERNS, TURNS_PATH, UPLOAD_PATHS};
use crate::listen::body::drain;
use crate::peers::{KnownOwner, RequestClient, RequestHead};
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use windlass_api::{ErrorCode, OWNER_METADATA};

/// How long the owner may take where the answer is the end of a job.
const WAIT_PATIENCE: Duration = Duration::from_secs(1_100);
const WAIT_PATTERN: &str = "/api/v1/jobs/{id}/wait";

/// Paths, and beginnings of paths, that every server answers itself.
const LOCAL: [&str; 11] = [
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/api/v1/version",
    "/api/v1/shutdown",
    "/api/v1/events",
    "/api/v1/tokens",
    "/api/v1/scheduler/servers",
    "/api/v1/board/session",
    "/api/v1/board/me",
    "/api/v1/board/codes",
];

fn is_local(pattern: &str) -> bool {
    let mut beneath = LOCAL.iter().filter_map(|path| pattern.strip_prefix(*path));
    beneath.any(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Passes a request on, where this server stands by and does not answer it itself.
pub(crate) async fn to_owner(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(request_client) = app.request_client().cloned() else { return next.run(request).await };
    if request.uri().path().starts_with(WORKER_PATHS) {
        return elsewhere(request_client.owner()).into_http();
    }
    if app.shared.gateways.of(request.uri().path()).is_some() {
        return not_here(&request_client, request).await;
    }
    // A turn lasts as long as its connection, and what is passed on has none.
    if request.uri().path() == TURNS_PATH && request.method() == Method::POST {
        return not_here(&request_client, request).await;
    }
    let pattern = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    // Files are on the owner's disk, and are too large for the database between the servers.
    let is_of_files = pattern.as_deref().is_some_and(|pattern| GIVEN_PATTERNS.contains(&pattern));
    if is_of_files || request.uri().path().starts_with(UPLOAD_PATHS) {
        return not_here(&request_client, request).await;
    }
    let Some(pattern) = pattern else {
        // Other settings may have given the owner a gateway.
        let is_native = request.uri().path().starts_with("/api/");
        return if is_native { next.run(request).await } else { not_here(&request_client, request).await };
    };
    let caller = request.extensions().get::<Caller>().cloned();
    let Some(caller) = caller.filter(|_| !is_local(&pattern)) else { return next.run(request).await };
    let (parts, body) = request.into_parts();
    // The body was taken in before, within its limit.
    let body = match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => return ApiError::new(ErrorCode::BadRequest, error.to_string()).into_response(),
    };
    let head = head_of(&app, &parts, &pattern, caller);
    app.handle.parts().metrics.requests_passed.inc();
    if head.one_part {
        return log_parts::read(app, request_client, head).await;
    }
    let patience = if pattern == WAIT_PATTERN { WAIT_PATIENCE } else { PATIENCE };
    match request_client.ask(&head, &body, patience).await {
        Ok(answer) => answer.map(Body::from).into_response(),
        Err(why) => unanswered(why).into_response(),
    }
}

/// The head of the row: the request and its caller.
fn head_of(app: &App, parts: &Parts, pattern: &str, caller: Caller) -> RequestHead {
    let looks = parts.method == Method::GET || parts.method == Method::HEAD;
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let (peer, session) = came_by(&parts.extensions);
    RequestHead {
        method: parts.method.to_string(),
        uri: parts.uri.path_and_query().map_or_else(|| pattern.to_owned(), ToString::to_string),
        content_type: kind.map(str::to_owned),
        user: caller.user,
        role: caller.role,
        worker: caller.worker,
        // The token that this process alone knows is its administrator's, as the unix socket is.
        token: caller.token.filter(|id| !app.shared.front.auth.is_own(id)),
        session,
        peer,
        key: if looks { None } else { new_key() },
        one_part: pattern == LOG_PATTERN,
    }
}

/// `None` without random bytes: the request may then be done twice where its answer is lost.
fn new_key() -> Option<String> {
    random::<16>().ok()
}

/// Workers speak with the owner alone. They are told where it is.
fn elsewhere(owner: Option<KnownOwner>) -> tonic::Status {
    let mut status = match &owner {
        Some(owner) => tonic::Status::unavailable(format!("the server '{}' owns the farm", owner.name)),
        None => tonic::Status::unavailable("no server owns the farm now"),
    };
    if let Some(address) = owner.and_then(|owner| owner.address?.parse().ok()) {
        status.metadata_mut().insert(OWNER_METADATA, address);
    }
    status
}

/// Says who serves gateways: the owner alone. Their clients may show their token in a body, or have none, so nothing is
/// asked of them here. The owner asks.
async fn not_here(request_client: &RequestClient, request: Request) -> Response {
    drain(request.into_body()).await;
    let why = match request_client.owner() {
        Some(KnownOwner { name, address: Some(address) }) => {
            format!("this server stands by; '{name}' at {address} owns the farm and answers here")
        }
        _ => "this server stands by, and another one owns the farm".to_owned(),
    };
    let hint = "give clients an address that leads to the owner; 'windlass scheduler list' shows which server that is";
    ApiError::new(ErrorCode::Unavailable, why).hint(hint).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Auth;
    use crate::config::Config;
    use crate::connections::RoomLimits;
    use crate::gateway::{Front, Gateway, Gateways, Starting};
    use crate::grpc::WorkerTerms;
    use crate::handle::Handle;
    use crate::http::{ServeOptions, standing_by_for_tests};
    use crate::peers::ServerKey;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use std::sync::Arc;
    use windlass_store::{ServerId, Store};

    /// A gateway of the paths beneath `/gate/`, whose clients show their token in the body.
    struct ElsewhereGate;

    impl Gateway for ElsewhereGate {
        fn name(&self) -> &'static str {
            "gate"
        }

        fn start(&self, _: Front) -> Starting<'_> {
            unreachable!("the owner alone starts it")
        }

        fn owns(&self, path: &str) -> bool {
            path.starts_with("/gate/")
        }

        fn body_bytes_max(&self) -> usize {
            1 << 20
        }

        fn takes_token_in_body(&self, path: &str) -> bool {
            path == "/gate/submit"
        }
    }

    /// A server that stands by for one called `east`.
    async fn standing_by() -> axum::Router {
        let (store, config) = (Store::open("memory").unwrap(), Config::default());
        let client = RequestClient::new(store.clone(), ServerId(2), ServerKey::new().unwrap());
        let address = Some("http://10.0.0.1:7117".to_owned());
        client.set_owner(Some(KnownOwner { name: "east".to_owned(), address }));
        let options = ServeOptions {
            store: "memory".to_owned(),
            auth: Auth::load(&store, true, "root".to_owned()).await.unwrap(),
            audit: None,
            idle: None,
            terms: WorkerTerms { lease: None, report: Duration::from_secs(1) },
            gateways: Gateways::new(vec![Arc::new(ElsewhereGate)]),
            files: None,
            room: RoomLimits::new(None, None),
            user_limits: config.users.clone(),
            read_all: false,
            audit_files: 1,
            board: config.board.clone(),
            queues: std::collections::BTreeMap::new(),
            scaling: windlass_core::scaling::ScalingSettings::default(),
            key: None,
            users: None,
        };
        standing_by_for_tests(&Handle::without_engine(store), options, Arc::new(client))
    }

    #[tokio::test]
    async fn clients_of_gateways_are_told_who_the_owner_is_whatever_they_show() {
        let server = TowerToHyperService::new(standing_by().await);
        let ask = async |method: &str, path: &str, body: &'static str| {
            let request = axum::http::Request::builder().method(method).uri(path);
            let answer = server.call(request.body(Body::from(body)).unwrap()).await.unwrap();
            let status = answer.status().as_u16();
            let text = axum::body::to_bytes(answer.into_body(), 1 << 16).await.unwrap();
            (status, String::from_utf8_lossy(&text).into_owned())
        };
        let token = "{\"my_account\": \"ann\", \"my_token\": \"wl_0_0\"}";
        let asked = [("POST", "/gate/submit", token), ("GET", "/gate/boot", ""), ("PUT", "/gate/file", "x")];
        for (method, path, body) in asked {
            let (status, said) = ask(method, path, body).await;
            assert_eq!(status, 503, "{path}: {said}");
            assert!(said.contains("'east' at http://10.0.0.1:7117 owns the farm"), "{path}: {said}");
        }
        assert_eq!(ask("GET", "/api/v1/jobs", "").await.0, 401, "others show a token here");
        assert_eq!(ask("POST", TURNS_PATH, "{}").await.0, 401, "and so do turns");
        assert_eq!(ask("POST", "/api/v1/files/missing", "{}").await.0, 401, "and who uploads files");
    }

    #[test]
    fn what_each_server_answers_itself_is_in_the_table_of_requests() {
        let document: serde_json::Value = serde_json::from_str(&crate::http::openapi()).unwrap();
        let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
        for path in LOCAL.iter().filter(|path| **path != crate::http::OPENAPI_PATH).chain(&GIVEN_PATTERNS) {
            assert!(paths.iter().any(|known| known == path), "{path}");
        }
        assert!(is_local("/api/v1/tokens/{id}") && is_local("/api/v1/board/codes") && is_local("/healthz"));
        assert!(
            !is_local("/api/v1/jobs") && !is_local("/api/v1/board/series") && !is_local("/api/v1/eventsx")
        );
        assert!(!is_local(LOG_PATTERN) && !is_local(WAIT_PATTERN));
        assert!(
            paths.iter().any(|known| *known == LOG_PATTERN)
                && paths.iter().any(|known| *known == WAIT_PATTERN)
        );
    }
}
