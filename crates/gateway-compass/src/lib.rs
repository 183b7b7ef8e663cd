//! The interface of Compass CI: its clients submit jobs, its providers and bare machines run them.
//!
//! The hosts have no agent of ours. Each is a worker of the engine all the same, and `lab` plays the worker's side: a
//! start becomes a message to a provider, or the text that a machine boots by; what hosts and jobs tell becomes reports;
//! and a host that is silent is silent: nothing runs again before its end is known. How far each job is, is durable
//! before anybody is told.

mod access;
mod boot;
pub mod format;
mod jobs;
mod lab;
mod lists;
mod record;
mod sockets;
mod view;
mod waits;

use axum::Router;
use axum::body::Bytes;
use axum::http::Method;
use axum::routing::{any, get, post};
use lab::{Ask, Lab};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};
use windlass_core::JobId;
use windlass_server::auth::Auth;
use windlass_server::{Front, Gateway, Handle, Starting, Unavailable};
use windlass_store::StoreError;

/// Messages that may wait for the laboratory.
const ASKS_MAX: usize = 16_384;
/// Changes of jobs that a slow listener may be behind.
const CHANGES_MAX: usize = 4_096;
/// Sockets of providers and clients that may be open at a time.
const SOCKETS_MAX: usize = 10_000;

/// The interface, to be given to a server.
#[derive(Clone, Copy, Debug)]
pub struct CompassGateway;

impl Gateway for CompassGateway {
    fn name(&self) -> &'static str {
        "Compass CI"
    }

    fn start(&self, front: Front) -> Starting<'_> {
        Box::pin(async move {
            let compass = Compass::start(front.handle().clone()).await?;
            Ok(routes().with_state(App { handle: front.handle().clone(), front, compass }))
        })
    }

    fn owns(&self, path: &str) -> bool {
        access::is_open(path)
    }

    /// A job, and some more around it.
    fn body_bytes_max(&self) -> usize {
        format::JOB_BYTES_MAX + (64 << 10)
    }

    fn takes_password(&self, method: &Method, path: &str) -> bool {
        access::takes_password(method, path)
    }

    fn is_report(&self, path: &str) -> bool {
        access::is_report(path)
    }

    fn token_in<'a>(&self, start: &'a [u8]) -> Option<&'a str> {
        access::token_in(start)
    }
}

/// What all requests share.
#[derive(Clone)]
struct App {
    handle: Handle,
    front: Front,
    compass: Compass,
}

impl App {
    fn auth(&self) -> &Auth {
        self.front.auth()
    }

    fn compass(&self) -> &Compass {
        &self.compass
    }

    async fn parse<T: Send + 'static>(
        &self,
        body: Bytes,
        parse: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> T {
        self.front.parse(body, parse).await
    }
}

/// A way to the laboratory; cheap to clone.
#[derive(Clone)]
struct Compass {
    asks: mpsc::Sender<Ask>,
    changes: broadcast::Sender<JobId>,
    sockets: Arc<Semaphore>,
    last_id: Arc<AtomicU64>,
    waits: waits::Waits,
}

impl Compass {
    /// Reads what is kept of jobs and hosts, and starts.
    pub async fn start(handle: Handle) -> Result<Compass, StoreError> {
        let (asks, inbox) = mpsc::channel(ASKS_MAX);
        let changes = broadcast::channel(CHANGES_MAX).0;
        let lab = Lab::load(handle.clone(), changes.clone()).await?;
        tokio::spawn(lab.run(inbox));
        let waits = waits::Waits::start(handle, changes.clone());
        let (sockets, last_id) = (Arc::new(Semaphore::new(SOCKETS_MAX)), Arc::default());
        Ok(Compass { asks, changes, sockets, last_id, waits })
    }

    /// Tells the laboratory something. False once it has ended.
    async fn tell(&self, ask: Ask) -> bool {
        self.asks.send(ask).await.is_ok()
    }

    /// Asks the laboratory, and waits for the answer, which comes when it is durable.
    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Unavailable> {
        let (reply, wait) = oneshot::channel();
        self.tell(ask(reply)).await;
        wait.await.map_err(|_| Unavailable::new("the server is ending"))
    }

    /// Looks at what the laboratory knows.
    async fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Lab) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let look = |reply: oneshot::Sender<T>| {
            Ask::Look(Box::new(move |lab| {
                // Whoever asked may have gone.
                _ = reply.send(question(lab));
            }))
        };
        self.ask(look).await
    }

    /// A number for something new.
    fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Comes when the server ends.
async fn ended(closing: &mut watch::Receiver<bool>) {
    _ = closing.wait_for(|closing| *closing).await;
}

/// The paths of the interface.
fn routes() -> Router<App> {
    let jobs = Router::new()
        .route("/submit", post(jobs::submit))
        .route("/dispatch", get(sockets::dispatch))
        .route("/wait", post(jobs::wait))
        .route("/{id}", get(jobs::show))
        .route("/{id}/update", post(jobs::update))
        .route("/{id}/cancel", post(jobs::cancel))
        .route("/{id}/terminate", post(jobs::terminate));
    let dashboard = Router::new()
        .route("/jobs/pending", get(lists::pending))
        .route("/jobs/running", get(lists::running))
        .route("/hosts", get(lists::hosts))
        .route("/accounts", get(lists::accounts));
    let api = Router::new()
        .nest("/jobs", jobs)
        .nest("/dashboard", dashboard)
        .route("/health", get(lists::health))
        .route("/debug/dispatch", get(lists::debug))
        .route("/hosts/{hostname}", get(lists::host).post(lists::register))
        .route("/client", any(sockets::client))
        .route("/vm-container-provider/{host}", any(sockets::provider));
    Router::new()
        .nest("/scheduler/v1", api)
        .route("/", get(lists::health))
        .route("/submit_job", post(jobs::submit))
        .route("/boot.ipxe/{parameter}/{value}", get(sockets::boot_ipxe))
        .route("/boot.grub/{parameter}/{value}", get(sockets::boot_grub))
}
