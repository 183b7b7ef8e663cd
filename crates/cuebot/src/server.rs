//! The gRPC server: one table of paths, and an answer with a reason for everything that is not in it.

use super::calls;
use super::report::{self, EndedProcs};
use super::trouble::CallError;
use crate::hosts::HostCalls;
use crate::networks::Network;
use crate::seldom::Seldom;
use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response as HttpResponse;
use axum::routing::{MethodRouter, post};
use deadpool_postgres::Pool;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use windlass_server::auth::Peer;
use windlass_server::{PortLimits, serve_port_to};

/// Bytes of a request that brings a job spec. One of the greatest size fits.
pub const LAUNCH_BYTES_MAX: usize = super::spec::SPEC_BYTES_MAX + (1 << 20);
/// Bytes of every other request.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// Calls whose requests bring job specs begin so.
const LAUNCH_PATHS: &str = "/job.JobInterface/LaunchSpec";
/// What the port takes. A host holds one connection, and all hosts of a farm may have one address. Three of the largest
/// requests fit at a time, and many small ones beside them.
const LIMITS: PortLimits = PortLimits {
    connections_max: 16_384,
    per_machine_max: 4_096,
    connection_lasts_max: None,
    body_bytes_max: bytes_max,
    requests_bytes_max: 64 << 20,
};

/// Bytes that a request to a path may bring.
fn bytes_max(path: &str) -> usize {
    if path.starts_with(LAUNCH_PATHS) { LAUNCH_BYTES_MAX } else { CALL_BYTES_MAX }
}

/// What an operator decides.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where logs of frames lie. Below it are show, shot, `logs`, and a directory for each job.
    pub log_root: String,
    /// The greatest number of retries that a job may ask for.
    pub retries_max: i32,
}

impl Default for Settings {
    fn default() -> Settings {
        // OpenCue's own values, so that CueGUI finds logs where it looks, and frames retry as they did.
        Settings { log_root: "/shots".to_owned(), retries_max: 1 }
    }
}

/// The server's part that calls share.
pub struct Cuebot {
    pub(crate) pool: Pool,
    /// What its operator decided.
    pub settings: Settings,
    /// Calls hosts.
    pub(crate) hosts: Arc<dyn HostCalls>,
    /// Procs of which their hosts said lately that they ended.
    pub(crate) ended: Arc<EndedProcs>,
    /// From where it may be called; `None` is everywhere.
    clients: Option<Vec<Network>>,
    /// Warnings of callers from elsewhere.
    outsiders: Seldom,
    /// Warnings of reports in the name of a worker.
    pub(crate) false_reports: Seldom,
    /// Warnings of hosts that run what they do not hold.
    pub(crate) stray_reports: Seldom,
}

/// Calls a function for each request of one path.
struct Unary<F> {
    cuebot: Arc<Cuebot>,
    call: F,
}

impl<Q, A, F, R> UnaryService<Q> for Unary<F>
where
    F: Fn(Arc<Cuebot>, Q) -> R,
    R: Future<Output = Result<A, CallError>> + Send + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = (self.call)(self.cuebot.clone(), request.into_inner());
        Box::pin(async move {
            match answer.await {
                Ok(answer) => Ok(Response::new(answer)),
                Err(error) => {
                    if let CallError::Database(cause) = &error {
                        tracing::warn!(?cause, "a call of a client or a host failed at the database");
                    }
                    Err(error.status())
                }
            }
        })
    }
}

/// Paths, and what answers each.
#[derive(Default)]
pub(crate) struct Routes {
    router: Router<Arc<Cuebot>>,
    paths: Vec<&'static str>,
}

impl Routes {
    /// Adds a path.
    pub(crate) fn route(mut self, path: &'static str, call: MethodRouter<Arc<Cuebot>>) -> Routes {
        self.paths.push(path);
        Routes { router: self.router.route(path, call), paths: self.paths }
    }
}

/// All that is served.
fn served() -> Routes {
    calls::routes(report::routes(Routes::default()))
}

/// The paths of all calls that are served, as `/package.Interface/Call`.
pub fn served_paths() -> Vec<&'static str> {
    served().paths
}

/// A path that a function answers.
pub(crate) fn unary<Q, A, F, R>(call: F) -> MethodRouter<Arc<Cuebot>>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + 'static,
    F: Fn(Arc<Cuebot>, Q) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<A, CallError>> + Send + 'static,
{
    post(move |State(cuebot): State<Arc<Cuebot>>, request: HttpRequest| {
        let service = Unary { cuebot, call: call.clone() };
        async move {
            let bytes_max = bytes_max(request.uri().path());
            let mut grpc = Grpc::new(ProstCodec::<A, Q>::default()).max_decoding_message_size(bytes_max);
            grpc.unary(service, request).await
        }
    })
}

impl Cuebot {
    /// Serves from the tables that `pool` leads to. `hosts` calls the farm's hosts.
    pub fn new(pool: Pool, settings: Settings, hosts: Arc<dyn HostCalls>) -> Cuebot {
        Cuebot {
            pool,
            settings,
            hosts,
            ended: Arc::default(),
            clients: None,
            outsiders: Seldom::default(),
            false_reports: Seldom::default(),
            stray_reports: Seldom::default(),
        }
    }

    /// The same, for callers from these networks alone.
    pub fn for_clients(self, clients: Option<Vec<Network>>) -> Cuebot {
        Cuebot { clients, ..self }
    }

    /// Serves hosts and clients until the task is dropped.
    pub async fn serve(self: Arc<Cuebot>, listener: tokio::net::TcpListener) -> std::io::Result<()> {
        let cuebot = self.clone();
        let refuses = move |peer: &Peer| cuebot.refusal(peer.address);
        serve_port_to(listener, self.routes(), LIMITS, None, Some(Arc::new(refuses))).await
    }

    /// The paths of all calls.
    pub fn routes(self: Arc<Cuebot>) -> Router {
        served().router.fallback(unserved).with_state(self)
    }

    /// The answer to a caller from elsewhere, of whose request nothing more is read.
    fn refusal(&self, from: Option<SocketAddr>) -> Option<HttpResponse> {
        if self.is_client(from) {
            return None;
        }
        if let Some(left_out) = self.outsiders.tell(Instant::now()) {
            tracing::warn!(?from, left_out, "a call from outside of 'windlass.cuebot.clients' was refused");
        }
        let why = "this address may not call the gateway; its operator names the networks that may in \
                   'windlass.cuebot.clients'";
        Some(Status::permission_denied(why).into_http())
    }

    fn is_client(&self, from: Option<SocketAddr>) -> bool {
        let Some(networks) = &self.clients else { return true };
        from.is_some_and(|from| networks.iter().any(|network| network.contains(from.ip())))
    }
}

/// The answer to a call that is not served.
async fn unserved(request: HttpRequest) -> axum::http::Response<axum::body::Body> {
    let name = request.uri().path().trim_start_matches('/').chars().take(100).collect::<String>();
    Status::unimplemented(format!("Windlass does not serve {name}: {}", calls::why_unserved(&name)))
        .into_http()
}
