//! The five paths of a scheduler, over plain HTTP like those of stock schedulers, and two for monitoring. A proxy adds TLS.

use crate::issuer::NotLetIn;
use crate::scheduler::Scheduler;
use crate::tokens::{BadToken, bearer};
use crate::wire::{
    BODY_BYTES_MAX, ErrorBody, Heartbeat, HeartbeatResult, JobId, JobState, ServerId, Toolchain,
    UpdateJobStateResult, read, write,
};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use parking_lot::Mutex;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use windlass_server::auth::Peer;
use windlass_server::{PortLimits, serve_port};

/// The beginning of all paths but one.
const PREFIX: &str = "/api/v1/scheduler/";
/// The path of the counts, where monitoring looks for them.
const METRICS: &str = "/metrics";
/// The format of the counts.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The limits of the port. Stock clients open a connection for each request, and it lasts while a client waits for a
/// place.
const LIMITS: PortLimits = PortLimits {
    connections_max: 20_000,
    per_machine_max: 4_000,
    connection_lasts_max: None,
    body_bytes_max: |_| BODY_BYTES_MAX,
    requests_bytes_max: 64 << 20,
};
/// Refusals that are logged in a minute.
const LOGGED_PER_MINUTE: u32 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// Serves the port until the server ends.
pub async fn serve(listener: TcpListener, scheduler: Scheduler) {
    let closing = scheduler.handle().closing();
    let router = Router::new().fallback(of_port).with_state(scheduler);
    if let Err(error) = serve_port(listener, router, LIMITS, Some(closing), None).await {
        tracing::error!("sccache's clients and build servers are not heard: {error}");
    }
}

async fn of_port(
    State(scheduler): State<Scheduler>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request<Body>,
) -> Response<Body> {
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    answer(&scheduler, peer.address.unwrap_or(unknown), request).await
}

/// Refusals that were logged in this minute. They are bounded, so that strangers cannot fill the log.
static LOGGED: Mutex<Option<(Instant, u32)>> = Mutex::new(None);

fn may_log() -> bool {
    let (now, mut logged) = (Instant::now(), LOGGED.lock());
    let (since, count) = logged.filter(|(since, _)| now - *since < MINUTE).unwrap_or((now, 0));
    *logged = Some((since, count.saturating_add(1)));
    count < LOGGED_PER_MINUTE
}

/// A refusal: status, reason, and the fault of the token.
struct Refused(StatusCode, String, Option<BadToken>);

impl From<BadToken> for Refused {
    fn from(bad: BadToken) -> Self {
        Refused(StatusCode::UNAUTHORIZED, String::new(), Some(bad))
    }
}

impl From<NotLetIn> for Refused {
    fn from(why: NotLetIn) -> Self {
        match why {
            NotLetIn::Token(bad) => bad.into(),
            // The client is not at fault. With a status of 5xx it compiles by itself.
            NotLetIn::Unasked { .. } => failed(why),
        }
    }
}

fn bad_request(why: impl ToString) -> Refused {
    Refused(StatusCode::BAD_REQUEST, why.to_string(), None)
}

fn failed(why: impl ToString) -> Refused {
    Refused(StatusCode::INTERNAL_SERVER_ERROR, why.to_string(), None)
}

/// Answers one request of a client or a build server.
pub async fn answer(scheduler: &Scheduler, peer: SocketAddr, request: Request<Body>) -> Response<Body> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let as_json = accepts_json(request.headers());
    let answered = match path.strip_prefix(PREFIX) {
        Some(path) => route(scheduler, peer, path, method.clone(), request, as_json).await,
        None if method == Method::GET && path == METRICS => {
            metrics(scheduler, peer, request.headers()).await.map(Some)
        }
        None => Ok(None),
    };
    match answered {
        Ok(Some(response)) => response,
        Ok(None) => plain(StatusCode::NOT_FOUND, "", Bytes::new()),
        Err(Refused(status, why, token)) => {
            let reason = token.map_or(why.clone(), |token| token.to_string());
            if may_log() {
                tracing::warn!("{peer}: {method} {path:?} is refused with {}: {reason}", status.as_u16());
            }
            let body = ErrorBody { description: why, cause: None };
            let body = serde_json::to_vec(&body).unwrap_or_default();
            let mut response = match token {
                Some(_) => plain(status, "text/plain; charset=utf-8", Bytes::new()),
                None => plain(status, "application/json; charset=utf-8", body.into()),
            };
            if let Some(value) =
                token.and_then(|token| HeaderValue::from_str(&format!("Bearer error=\"{token}\"")).ok())
            {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
            }
            response
        }
    }
}

/// Answers a request to a path beneath the prefix; `None` if the path does not exist.
async fn route(
    scheduler: &Scheduler,
    peer: SocketAddr,
    path: &str,
    method: Method,
    request: Request<Body>,
    as_json: bool,
) -> Result<Option<Response<Body>>, Refused> {
    let (head, body) = request.into_parts();
    let (what, rest) = path.split_once('/').map_or((path, None), |(what, rest)| (what, Some(rest)));
    let response = match (method.as_str(), what, rest) {
        ("GET", "status", None) => said(&scheduler.status(), as_json),
        ("GET", "server_loads", None) => {
            let reader = address_of(scheduler, peer, &head.headers)?;
            scheduler.check_reader(token(&head.headers), reader).await?;
            said(&scheduler.loads().await.map_err(failed)?, true)
        }
        ("GET", "server_certificate", Some(server)) => {
            let server = server.parse().map(ServerId).map_err(bad_request)?;
            let certificate = scheduler.certificate(server).ok_or_else(|| failed("Unknown server"))?;
            said(&certificate, as_json)
        }
        ("POST", "alloc_job", None) => {
            let shown = token(&head.headers)?;
            let address = address_of(scheduler, peer, &head.headers)?;
            let known = scheduler.check_client(shown, address).await?;
            let client = known.unwrap_or_else(|| address.to_string());
            let toolchain: Toolchain = read(&taken(&head.headers, body).await?).map_err(bad_request)?;
            said(&scheduler.alloc(&client, toolchain).await, as_json)
        }
        ("POST", "heartbeat_server", None) => {
            let server = server_of(scheduler, peer, &head.headers)?;
            let (heartbeat, load) =
                Heartbeat::read(&taken(&head.headers, body).await?).map_err(bad_request)?;
            let is_new = scheduler.heartbeat(server, heartbeat, load).await.map_err(failed)?;
            said(&HeartbeatResult { is_new }, as_json)
        }
        ("POST", "job_state", Some(job)) => {
            let job = job.parse().map(JobId).map_err(bad_request)?;
            let server = server_of(scheduler, peer, &head.headers)?;
            let state: JobState = read(&taken(&head.headers, body).await?).map_err(bad_request)?;
            scheduler.job_state(job, server, state).await.map_err(failed)?;
            said(&UpdateJobStateResult::Success, as_json)
        }
        _ => return Ok(None),
    };
    Ok(Some(response))
}

/// Gives what the scheduler counts.
async fn metrics(
    scheduler: &Scheduler,
    peer: SocketAddr,
    headers: &HeaderMap,
) -> Result<Response<Body>, Refused> {
    scheduler.check_reader(token(headers), address_of(scheduler, peer, headers)?).await?;
    let text = scheduler.metrics().await + "# EOF\n";
    Ok(plain(StatusCode::OK, OPENMETRICS, text.into()))
}

fn token(headers: &HeaderMap) -> Result<&str, BadToken> {
    bearer(headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()))
}

fn server_of(scheduler: &Scheduler, peer: SocketAddr, headers: &HeaderMap) -> Result<ServerId, Refused> {
    let from = address_of(scheduler, peer, headers)?;
    Ok(scheduler.check_server(token(headers)?, from)?)
}

/// The address of the caller: the peer's, or the one that a trusted proxy names.
fn address_of(scheduler: &Scheduler, peer: SocketAddr, headers: &HeaderMap) -> Result<IpAddr, Refused> {
    let peer = peer.ip().to_canonical();
    match headers.get("X-Real-IP") {
        Some(named) if scheduler.options().proxies.contains(&peer) => {
            let named = named.to_str().ok().and_then(|named| named.parse::<IpAddr>().ok());
            named.ok_or_else(|| bad_request("X-Real-IP is not an address"))
        }
        _ => Ok(peer),
    }
}

/// Reads a body of octets.
async fn taken(headers: &HeaderMap, body: Body) -> Result<Bytes, Refused> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/octet-stream") {
        return Err(bad_request("the Content-Type must be application/octet-stream"));
    }
    // The port has read the body already.
    to_bytes(body, BODY_BYTES_MAX).await.map_err(bad_request)
}

fn accepts_json(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepts.contains("application/json")
}

fn said<T: Serialize>(message: &T, as_json: bool) -> Response<Body> {
    match as_json {
        true => {
            let json = serde_json::to_vec(message).unwrap_or_default();
            plain(StatusCode::OK, "application/json", json.into())
        }
        false => plain(StatusCode::OK, "application/octet-stream", write(message).into()),
    }
}

fn plain(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    if !kind.is_empty() {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}
