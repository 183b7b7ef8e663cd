//! The HTTP interface: JSON under `/api/v1`, over TCP or a unix socket.

mod board;
mod extract;
mod figures;
mod guard;
mod identity;
mod intake;
mod jobs;
mod limits;
mod loads;
mod loans;
mod logs;
mod peers;
mod places;
mod queues;
mod routes;
mod sampling;
mod servers;
mod session;
mod status;
mod tasks;
mod tokens;
mod turns;
mod watch;
mod workers;

pub use guard::Admission;
pub use peers::StandBy;
pub use routes::{OPENAPI_PATH, openapi};

use crate::activity::Activity;
use crate::api_error::ApiError;
use crate::audit::Audit;
use crate::auth::{self, Auth, Caller, Denied};
use crate::connections::RoomLimits;
use crate::door::BoardOptions;
use crate::door::loopback::{self, DoorAsks, LoopbackDoor};
use crate::door::sessions::Sessions;
use crate::figures::Figures;
use crate::gateway::{Front, Gateways};
use crate::grpc::{WorkerTerms, Workers};
use crate::handle::Handle;
use crate::listen::{Listener, Served};
use crate::metrics::Entries;
use crate::network::Network;
use crate::peers::{RequestClient, ServerKey, send_events};
use crate::reader::Reader;
use crate::refusals::Refusals;
use crate::submission_rights::{Rates, SubmissionRights, UserLimits};
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode, Version, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate as _};
use windlass_api::{ErrorCode, SetQueue};
use windlass_core::TaskId;
use windlass_store::ServerId;

/// Connections over unix sockets at a time, where they are the administrator's alone and where they are everybody's.
const ADMINS_MAX: usize = 256;
const LOCAL_MAX: usize = 60_000;
/// Refusals of one user that are noted in a minute.
const NOTED_PER_MINUTE: u32 = 60;
/// Entries of one part of a list.
const PAGE_MAX: usize = 1000;
/// Entries of a list where the caller does not say.
const PAGE_DEFAULT: usize = 100;

/// Output of tasks is sent as it comes. Compression would hold it back.
const LOGS: NotForContentType = NotForContentType::const_new("application/octet-stream");

/// The state that all requests share.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) handle: Handle,
    shared: Arc<AppShared>,
}

struct AppShared {
    store: String,
    /// What gateways have, too: the tokens, and what callers may do.
    front: Front,
    board: BoardOptions,
    sessions: Arc<Sessions>,
    /// The board's port, on a server that listens on a unix socket alone.
    door: LoopbackDoor,
    /// Where browsers of this machine reach a server on TCP.
    url_here: Option<String>,
    audit: Audit,
    refusals: Arc<Refusals>,
    gateways: Gateways,
    intake: intake::Intake,
    turns: turns::Turns,
    /// Refusals of known users that are noted.
    noted: Rates,
    figures: Arc<Figures>,
    /// Settings of queues that only the server's settings file changes.
    file_queues: BTreeMap<String, SetQueue>,
    /// Tasks that lend their cpus, and how many waits of each are under way.
    loans: Mutex<BTreeMap<TaskId, usize>>,
    /// How the owner is asked, on a server that stands by.
    request_client: Option<Arc<RequestClient>>,
    /// By which this server signs what it writes for other servers.
    key: Option<ServerKey>,
}

impl App {
    /// A caller as a reader of users' jobs.
    fn reader(&self, caller: &Caller) -> Reader {
        Reader::of(caller, self.shared.front.read_all)
    }

    /// How the owner is asked; `None` on the owner.
    pub(crate) fn request_client(&self) -> Option<&Arc<RequestClient>> {
        self.shared.request_client.as_ref()
    }

    /// This server's number in the store's list; `None` where no other server can use the store.
    pub(crate) fn own_number(&self) -> Option<ServerId> {
        let owner = self.handle.store().ownership().map(|ownership| ownership.server);
        owner.or_else(|| self.request_client().map(|request_client| request_client.server()))
    }

    /// How many entries the tables of requests have. The request that asks is among them.
    fn entries(&self) -> Entries {
        let mut all = vec![
            ("loans", self.shared.loans.lock().len()),
            ("users_with_requests", self.shared.turns.user_count()),
            ("users_with_bodies", self.shared.intake.user_count()),
            ("strangers_with_bodies", self.shared.intake.stranger_count()),
        ];
        if let Some(request_client) = self.request_client() {
            all.extend(request_client.entries());
        }
        all
    }
}

/// Handlers have the reader as an argument. The guard has let the caller in before.
impl FromRequestParts<App> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>();
        let missing = || ApiError::new(Denied::Missing.code(), Denied::Missing.to_string());
        caller.map(|caller| app.reader(caller)).ok_or_else(missing)
    }
}

/// How a server is served.
pub struct ServeOptions {
    /// The store's address, as `/api/v1/version` tells it.
    pub store: String,
    /// The tokens, which say who is let in. A job that names no user is the caller's.
    pub auth: Auth,
    /// Where changes and refusals are noted.
    pub audit: Option<PathBuf>,
    /// The server ends by itself after so long without active jobs or requests.
    pub idle: Option<Duration>,
    /// How workers are met.
    pub terms: WorkerTerms,
    /// The interfaces of other systems.
    pub gateways: Gateways,
    /// How many connections there may be over TCP.
    pub room: RoomLimits,
    /// Limits of one user.
    pub user_limits: UserLimits,
    /// Whether users read the output and the commands of others' jobs.
    pub read_all: bool,
    /// Old files of the audit log that are kept.
    pub audit_files: u32,
    /// How the board is served.
    pub board: BoardOptions,
    /// Settings of queues from the server's settings file, by name.
    pub queues: BTreeMap<String, SetQueue>,
    /// By which this server signs what it asks other servers, and what it has done for them; `None` if it signs nothing.
    pub key: Option<ServerKey>,
}

/// Serves until the handle closes, by `POST /api/v1/shutdown` or by [`Handle::close`].
pub async fn serve(listeners: Vec<Listener>, handle: Handle, options: ServeOptions) {
    let (idle, terms, room) = (options.idle, options.terms, options.room);
    let (app, asks) = new_app(&listeners, &handle, options, None);
    if let Err(error) = queues::set_from_file(&app).await {
        tracing::error!("the queues of the settings file cannot be set: {error}");
        return handle.close();
    }
    let mut tasks = JoinSet::new();
    tasks.spawn(sampling::sample(app.shared.figures.clone(), handle.clone()));
    if let Some(idle) = idle {
        tasks.spawn(guard::close_when_idle(app.clone(), idle));
    }
    if let Some(server) = handle.store().ownership().map(|ownership| ownership.server) {
        let (store, events) = (handle.store().clone(), handle.parts().events.clone());
        tasks.spawn(send_events(store, server, events, handle.closing()));
        tasks.spawn(peers::serve_others(app.clone(), routes::router().with_state(app.clone())));
    }
    let Some(paths) = start_gateways(&app).await else { return handle.close() };
    let router = router(app.clone(), terms, paths);
    listen(listeners, app, (router, asks), room, tasks).await;
}

/// Serves until the handle closes, on a server that owns nothing and passes requests on to the owner.
pub(crate) async fn serve_standing_by(
    listeners: Vec<Listener>,
    handle: Handle,
    options: ServeOptions,
    request_client: Arc<RequestClient>,
) {
    let (terms, room) = (options.terms, options.room);
    let (app, asks) = new_app(&listeners, &handle, options, Some(request_client.clone()));
    let router = router(app.clone(), terms, Router::new());
    let hearing =
        tokio::spawn(request_client.hear(app.handle.parts().events.clone(), app.shared.front.auth.clone()));
    listen(listeners, app, (router, asks), room, JoinSet::new()).await;
    hearing.abort();
}

fn new_app(
    listeners: &[Listener],
    handle: &Handle,
    options: ServeOptions,
    request_client: Option<Arc<RequestClient>>,
) -> (App, DoorAsks) {
    let metrics = &handle.parts().metrics;
    let (door, asks) = LoopbackDoor::new();
    let shared = AppShared {
        store: options.store,
        front: Front {
            handle: handle.clone(),
            auth: Arc::new(options.auth),
            parsers: Arc::default(),
            rights: Arc::new(SubmissionRights::new(handle.clone(), options.user_limits)),
            activity: Activity::new(),
            read_all: options.read_all,
        },
        board: options.board,
        sessions: Arc::default(),
        door,
        url_here: listeners.iter().find_map(Listener::url_here),
        audit: Audit::start(options.audit, options.audit_files, metrics.audit_lost.clone()),
        refusals: Arc::new(Refusals::new(metrics.refusals.clone())),
        gateways: options.gateways,
        intake: intake::Intake::default(),
        turns: turns::Turns::default(),
        noted: Rates::new(NOTED_PER_MINUTE),
        figures: Arc::new(Figures::new(&handle.parts().clock)),
        file_queues: options.queues,
        loans: Mutex::default(),
        request_client,
        key: options.key,
    };
    (App { handle: handle.clone(), shared: Arc::new(shared) }, asks)
}

/// The app of an owner that nobody connects to, and its requests.
#[cfg(test)]
pub(crate) fn app_for_tests(handle: &Handle, options: ServeOptions) -> (App, Router) {
    let (app, _) = new_app(&[], handle, options, None);
    let routes = routes::router().with_state(app.clone());
    (app, routes)
}

/// Accepts connections until the handle closes, and waits for `tasks`, which end then, too.
async fn listen(
    listeners: Vec<Listener>,
    app: App,
    (router, asks): (Router, DoorAsks),
    room: RoomLimits,
    mut tasks: JoinSet<()>,
) {
    let handle = &app.handle;
    tasks.spawn(refresh(app.clone()));
    let with_tcp = listeners.iter().any(Listener::is_tcp);
    let local_max = if with_tcp { ADMINS_MAX } else { LOCAL_MAX };
    let served = Served::new(router, app.shared.refusals.clone(), handle.closing(), room, local_max);
    let network = match with_tcp.then(Network::start).transpose() {
        Ok(network) => network,
        Err(error) => {
            tracing::error!("the thread of the network does not start: {error}");
            return handle.close();
        }
    };
    tasks.spawn(loopback::keep(asks, served.clone(), app.shared.sessions.clone(), handle.clone()));
    for listener in listeners {
        let (address, served) = (listener.address(), served.clone());
        let runtime = network.as_ref().filter(|_| listener.is_tcp()).map(|network| &network.runtime);
        let serve = async move {
            if let Err(error) = listener.serve(served).await {
                tracing::error!("nobody is heard on {address}: {error}");
            }
        };
        match runtime {
            Some(runtime) => tasks.spawn_on(serve, runtime),
            None => tasks.spawn(serve),
        };
    }
    while tasks.join_next().await.is_some() {}
}

/// Starts the gateways and returns their paths; `None` if one does not start.
async fn start_gateways(app: &App) -> Option<Router> {
    let mut paths = Router::new();
    for gateway in app.shared.gateways.iter() {
        match gateway.start(app.shared.front.clone()).await {
            Ok(own) => paths = paths.merge(own),
            Err(error) => {
                tracing::error!("the gateway {} does not start: {error}", gateway.name());
                return None;
            }
        }
    }
    Some(paths)
}

/// Looks now and then for tokens that another server of the same store made or revoked.
async fn refresh(app: App) {
    let mut closing = app.handle.closing();
    loop {
        tokio::select! {
            () = tokio::time::sleep(auth::REFRESH) => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
        app.shared.front.auth.refresh_or_warn().await;
    }
}

fn router(app: App, terms: WorkerTerms, of_gateways: Router) -> Router {
    let (auth, refusals) = (app.shared.front.auth.clone(), app.shared.refusals.clone());
    let workers = Workers::routes(app.handle.clone(), terms, auth, refusals);
    routes::router()
        .route(OPENAPI_PATH, get(routes::document))
        .merge(of_gateways.with_state(()))
        .merge(workers.with_state(()))
        .fallback(async || ApiError::new(ErrorCode::NotFound, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(ErrorCode::MethodNotAllowed, "this path does not know that method")
        })
        .layer(middleware::from_fn_with_state(app.clone(), peers::to_owner))
        .layer(middleware::from_fn_with_state(app.clone(), intake::take_in))
        .layer(middleware::from_fn_with_state(app.clone(), turns::take_turn))
        .layer(middleware::from_fn(guard::same_origin))
        .layer(middleware::from_fn_with_state(app.clone(), guard::admit))
        .layer(middleware::from_fn_with_state(app.clone(), guard::show_pages))
        .layer(middleware::from_fn_with_state(app.clone(), guard::count))
        .layer(CompressionLayer::new().compress_when(DefaultPredicate::new().and(LOGS).and(is_untagged)))
        // What comes is bounded where it is taken in.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(|_| -> Response {
            ApiError::new(ErrorCode::Internal, "internal server error; see the server's log").into_response()
        }))
        .with_state(app)
}

/// A page with a strong tag goes out as it is: compressed it would be another, and it is compressed already.
fn is_untagged(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    !headers.contains_key(header::ETAG)
}

/// How much of a list a caller gets.
fn page_size(asked: Option<usize>) -> Result<usize, ApiError> {
    within("limit", asked, PAGE_DEFAULT, PAGE_MAX)
}

/// A number of a query from 1 to `max`.
fn within<N>(name: &str, asked: Option<N>, default: N, max: N) -> Result<N, ApiError>
where
    N: PartialOrd + From<u8> + std::fmt::Display,
{
    match asked {
        None => Ok(default),
        Some(n) if n >= N::from(1) && n <= max => Ok(n),
        Some(n) => {
            let why = format!("{name} must be from 1 to {max}, not {n}");
            Err(ApiError::new(ErrorCode::BadRequest, why))
        }
    }
}

/// The states that a query names, separated by commas. `words` are all that there are.
fn parse_states<T: DeserializeOwned>(text: &str, words: &str) -> Result<Vec<T>, ApiError> {
    let states = text.split(',').map(|word| {
        serde_json::from_value(word.trim().into()).map_err(|_| {
            ApiError::new(ErrorCode::BadRequest, format!("there is no state '{word}'")).hint(words)
        })
    });
    states.collect()
}

/// A part of a list of which one entry more was asked for than is given.
fn part<T>(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> String) -> windlass_api::Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(cursor);
    windlass_api::Page { items, next }
}
