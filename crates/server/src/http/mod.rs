//! The HTTP interface: JSON under `/api/v1`, over TCP or a unix socket.

mod error;
mod guard;
mod jobs;
mod logs;
mod openapi;
mod status;
mod tasks;
mod watch;
mod workers;

pub use openapi::{OPENAPI_PATH, openapi};

use crate::grpc::{WorkerTerms, Workers};
use crate::handle::Handle;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use error::ApiError;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::net::{TcpListener, UnixListener};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate as _};
use windlass_api::ErrorCode;
use windlass_core::TaskId;

/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Entries of one part of a list.
const PAGE_MAX: usize = 1000;
/// Entries of a list where the caller does not say.
const PAGE_DEFAULT: usize = 100;

/// What tasks wrote goes out as it comes, which compression would hold back.
const LOGS: NotForContentType = NotForContentType::const_new("application/octet-stream");

/// Where the server listens.
pub enum Listener {
    /// On a port of this machine.
    Tcp(TcpListener),
    /// On a unix socket that only its owner may use.
    Unix(UnixListener, PathBuf),
}

/// Why the server does not listen there.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// It would be open to everybody.
    #[error(
        "refusing to listen on {0}: it can be reached from other machines, and this server has no authentication. \
         Listen on 127.0.0.1, or on unix:PATH"
    )]
    Open(SocketAddr),
    /// No address.
    #[error("'{0}' is no address to listen on; give HOST:PORT or unix:PATH")]
    Address(String),
    /// Somebody else listens there.
    #[error("a server listens on {0} already")]
    Taken(String),
    /// The operating system refuses.
    #[error("cannot listen on {address}")]
    Io {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
}

impl Listener {
    /// Listens on `HOST:PORT` of the loopback, or on `unix:PATH`.
    pub async fn bind(address: &str) -> Result<Listener, ListenError> {
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::Taken(address.to_owned()),
            _ => ListenError::Io { address: address.to_owned(), source },
        };
        if let Some(path) = address.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(io)?;
            }
            // A socket that nobody answers on is left from a server that was killed.
            if std::os::unix::net::UnixStream::connect(&path).is_ok() {
                return Err(ListenError::Taken(address.to_owned()));
            }
            _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).map_err(io)?;
            let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, only_owner).map_err(io)?;
            return Ok(Listener::Unix(listener, path));
        }
        let mut found = address.to_socket_addrs().map_err(|_| ListenError::Address(address.to_owned()))?;
        let found = found.next().ok_or_else(|| ListenError::Address(address.to_owned()))?;
        if !found.ip().is_loopback() {
            return Err(ListenError::Open(found));
        }
        Ok(Listener::Tcp(TcpListener::bind(found).await.map_err(io)?))
    }

    /// The address for clients.
    pub fn address(&self) -> String {
        match self {
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string())
            }
            Listener::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }
}

/// What all requests share.
#[derive(Clone)]
pub(crate) struct App {
    handle: Handle,
    shared: Arc<AppShared>,
}

struct AppShared {
    started: Instant,
    store: String,
    user: String,
    /// Requests under way.
    open: AtomicUsize,
    /// Milliseconds from `started` to the last request's end.
    last_ms: AtomicU64,
    /// Tasks that lend their cpus, and how many waits of each are under way.
    loans: Mutex<BTreeMap<TaskId, usize>>,
}

impl App {
    fn loans(&self) -> MutexGuard<'_, BTreeMap<TaskId, usize>> {
        self.shared.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves until the handle closes, by `POST /api/v1/shutdown` or by [`Handle::close`]. `store` is told
/// to those who ask; a job that names no user is `user`'s. Ends by itself after `idle` without active
/// jobs or requests. Workers are met on these `terms`.
pub async fn serve(
    listener: Listener,
    handle: Handle,
    (store, user): (String, String),
    idle: Option<std::time::Duration>,
    terms: WorkerTerms,
) -> io::Result<()> {
    let shared = AppShared {
        started: Instant::now(),
        store,
        user,
        open: AtomicUsize::new(0),
        last_ms: AtomicU64::new(0),
        loans: Mutex::default(),
    };
    let app = App { handle: handle.clone(), shared: Arc::new(shared) };
    if let Some(idle) = idle {
        tokio::spawn(guard::close_when_idle(app.clone(), idle));
    }
    let mut closing = handle.closing();
    let closed = async move { _ = closing.wait_for(|closing| *closing).await };
    match listener {
        Listener::Tcp(listener) => {
            // Workers and we talk in small messages, none of which should wait for the next.
            let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
            axum::serve(listener, router(app, terms)).with_graceful_shutdown(closed).await
        }
        Listener::Unix(listener, path) => {
            let served = axum::serve(listener, router(app, terms)).with_graceful_shutdown(closed).await;
            _ = std::fs::remove_file(path);
            served
        }
    }
}

fn router(app: App, terms: WorkerTerms) -> Router {
    let api = Router::new()
        .route("/version", get(status::version))
        .route("/jobs", get(jobs::list).post(jobs::submit))
        .route("/jobs/{id}", get(jobs::show))
        .route("/jobs/{id}/cancel", post(jobs::cancel))
        .route("/jobs/{id}/retry", post(jobs::retry))
        .route("/jobs/{id}/hold", post(jobs::hold))
        .route("/jobs/{id}/release", post(jobs::release))
        .route("/jobs/{id}/wait", get(watch::wait))
        .route("/jobs/{id}/tasks", get(tasks::list))
        .route("/tasks/{id}", get(tasks::show))
        .route("/tasks/{id}/why", get(tasks::why))
        .route("/tasks/{id}/log", get(logs::log))
        .route("/workers", get(workers::list))
        .route("/workers/{name}", get(workers::show))
        .route("/workers/{name}/drain", post(workers::drain))
        .route("/workers/{name}/resume", post(workers::resume))
        .route("/workers/{name}/forget", post(workers::forget))
        .route("/queues", get(status::queues))
        .route("/events", get(watch::events))
        .route("/shutdown", post(status::shutdown));
    Router::new()
        .nest("/api/v1", api)
        .route("/healthz", get(status::healthz))
        .route("/metrics", get(status::metrics))
        .route(OPENAPI_PATH, get(openapi::document))
        .merge(Workers::routes(app.handle.clone(), terms).with_state(()))
        .fallback(async || ApiError::new(ErrorCode::NotFound, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(ErrorCode::MethodNotAllowed, "this path does not know that method")
        })
        .layer(middleware::from_fn(guard::bounded))
        .layer(middleware::from_fn(guard::same_origin))
        .layer(middleware::from_fn_with_state(app.clone(), guard::count))
        .layer(CompressionLayer::new().compress_when(DefaultPredicate::new().and(LOGS)))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(CatchPanicLayer::custom(|_| -> Response {
            ApiError::new(ErrorCode::Internal, "the server made a mistake; its log says more").into_response()
        }))
        .with_state(app)
}

/// How much of a list a caller gets.
fn page_size(asked: Option<usize>) -> Result<usize, ApiError> {
    match asked {
        None => Ok(PAGE_DEFAULT),
        Some(n @ 1..=PAGE_MAX) => Ok(n),
        Some(n) => {
            Err(ApiError::new(ErrorCode::BadRequest, format!("limit must be from 1 to {PAGE_MAX}, not {n}")))
        }
    }
}

/// A part of a list of which one entry more was asked for than is given.
fn part<T>(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> String) -> windlass_api::Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(cursor);
    windlass_api::Page { items, next }
}

/// A code's status as axum has it.
fn status_of(code: ErrorCode) -> StatusCode {
    StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
