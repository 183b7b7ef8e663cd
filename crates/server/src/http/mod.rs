//! The HTTP interface: JSON under `/api/v1`, over TCP or a unix socket.

mod app;
mod board;
mod bounded;
mod client_turns;
mod description;
mod dry_run;
mod extract;
mod failures;
mod figures;
mod files;
mod guard;
mod identity;
mod intake;
mod jobs;
mod limits;
mod lists;
mod loads;
mod loans;
mod log_lines;
mod log_order;
mod logs;
mod paths;
mod peers;
mod places;
mod queues;
mod reasons;
mod retry_rules;
mod routes;
mod sampling;
mod scaling;
mod servers;
mod session;
mod start_estimates;
mod status;
mod stop_words;
mod submission_names;
mod tails;
mod task_changes;
mod tasks;
mod tokens;
mod turn_session;
mod turn_table;
mod turns;
mod unknown_input;
mod watch;
mod workers;

pub use app::ServeOptions;
pub use guard::Admission;
pub use paths::OPENAPI_PATH;
pub use peers::StandBy;
pub use routes::openapi;

use crate::api_error::ApiError;
use crate::auth;
use crate::connections::RoomLimits;
use crate::door::loopback::{self, DoorAsks};
use crate::grpc::{WorkerTerms, Workers};
use crate::handle::Handle;
use crate::job_files::keep_up;
use crate::listen::{Listener, Served};
use crate::local_users::MachineUsers;
use crate::network::Network;
use crate::peers::{RequestClient, send_events};
use app::{App, new_app};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Extensions, HeaderMap, StatusCode, Version, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use tokio::task::JoinSet;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate as _};
use windlass_api::ErrorCode;

/// Connections over unix sockets at a time, where they are the administrator's alone and where they are everybody's.
const ADMINS_MAX: usize = 256;
const LOCAL_MAX: usize = 60_000;
/// Output of tasks is sent as it comes. Compression would hold it back.
const LOGS: NotForContentType = NotForContentType::const_new("application/octet-stream");
/// Archives are written while they are sent, and what is in them may be compressed already.
const ARCHIVES: NotForContentType = NotForContentType::const_new("application/x-tar");
/// The same of lines that come as things happen.
const LINES: NotForContentType = NotForContentType::const_new("application/jsonl");

/// Serves until the handle closes, by `POST /api/v1/shutdown` or by [`Handle::close`].
pub async fn serve(listeners: Vec<Listener>, handle: Handle, options: ServeOptions) {
    let (idle, terms, room) = (options.idle, options.terms, options.room);
    let users = options.users.clone();
    let (app, asks) = new_app(&listeners, &handle, options, None);
    if let Err(error) = queues::set_from_file(&app).await {
        tracing::error!("the queues of the settings file cannot be set: {error}");
        return handle.close();
    }
    let mut tasks = JoinSet::new();
    if let Some(files) = app.files() {
        tasks.spawn(keep_up(files.clone()));
    }
    tasks.spawn(sampling::sample(app.shared.figures.clone(), handle.clone()));
    tasks.spawn(start_estimates::estimate(handle.clone()));
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
    listen(listeners, app, (router, asks), (room, users), tasks).await;
}

/// Serves until the handle closes, on a server that owns nothing and passes requests on to the owner.
pub(crate) async fn serve_standing_by(
    listeners: Vec<Listener>,
    handle: Handle,
    options: ServeOptions,
    request_client: Arc<RequestClient>,
) {
    let (terms, room, users) = (options.terms, options.room, options.users.clone());
    let (app, asks) = new_app(&listeners, &handle, options, Some(request_client.clone()));
    let router = router(app.clone(), terms, Router::new());
    let hearing =
        tokio::spawn(request_client.hear(app.handle.parts().events.clone(), app.shared.front.auth.clone()));
    listen(listeners, app, (router, asks), (room, users), JoinSet::new()).await;
    hearing.abort();
}

/// The app of an owner that nobody connects to, and its requests.
#[cfg(test)]
pub(crate) fn app_for_tests(handle: &Handle, options: ServeOptions) -> (App, Router) {
    let (app, _) = new_app(&[], handle, options, None);
    let routes = routes::router().with_state(app.clone());
    (app, routes)
}

/// All layers of a server that stands by, and that nobody connects to.
#[cfg(test)]
pub(crate) fn standing_by_for_tests(
    handle: &Handle,
    options: ServeOptions,
    request_client: Arc<RequestClient>,
) -> Router {
    let terms = options.terms;
    let (app, _) = new_app(&[], handle, options, Some(request_client));
    router(app, terms, Router::new())
}

/// Accepts connections until the handle closes, and waits for `tasks`, which end then, too.
async fn listen(
    listeners: Vec<Listener>,
    app: App,
    (router, asks): (Router, DoorAsks),
    (room, users): (RoomLimits, Option<Arc<MachineUsers>>),
    mut tasks: JoinSet<()>,
) {
    let handle = &app.handle;
    tasks.spawn(refresh(app.clone()));
    let with_tcp = listeners.iter().any(Listener::is_tcp);
    let room = if users.is_some() { room.halved() } else { room };
    let local_max = match (with_tcp, &users) {
        (true, _) => ADMINS_MAX,
        // Their connections must not take all descriptors.
        (false, Some(_)) => room.total(),
        (false, None) => LOCAL_MAX,
    };
    let refusals = app.shared.refusals.clone();
    let served = Served { users, ..Served::new(router, refusals, handle.closing(), room, local_max) };
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
    let files = app.shared.files.clone();
    let workers = Workers::routes(app.handle.clone(), terms, (auth, refusals), files);
    routes::router()
        .route(OPENAPI_PATH, get(routes::document))
        .merge(of_gateways.with_state(()))
        .merge(workers.with_state(()))
        .fallback(async || ApiError::new(ErrorCode::NotFound, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(ErrorCode::MethodNotAllowed, "this path does not know that method")
        })
        .layer(middleware::from_fn_with_state(app.clone(), peers::to_owner))
        .layer(middleware::from_fn(unknown_input::refuse))
        .layer(middleware::from_fn_with_state(app.clone(), bounded::take_in))
        .layer(middleware::from_fn_with_state(app.clone(), bounded::take_turn))
        .layer(middleware::from_fn(guard::same_origin))
        .layer(middleware::from_fn_with_state(app.clone(), guard::admit))
        .layer(middleware::from_fn_with_state(app.clone(), guard::show_pages))
        .layer(middleware::from_fn_with_state(app.clone(), guard::count))
        .layer(
            CompressionLayer::new()
                .compress_when(DefaultPredicate::new().and(LOGS).and(ARCHIVES).and(LINES).and(is_untagged)),
        )
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
