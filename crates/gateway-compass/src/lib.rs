//! The interface of Compass CI: its clients submit jobs, its providers and bare machines run them.
//!
//! The hosts have no agent of ours. Each is a worker of the engine all the same, and `lab` plays the worker's side: a
//! start becomes a message to a provider, or the text that a machine boots by; what hosts and jobs tell becomes reports;
//! and a host that is silent is silent: nothing runs again before its end is known. How far each job is, is durable
//! before anybody is told.

mod access;
mod accounts;
mod boot;
mod clusters;
mod files;
mod fill;
pub mod format;
mod jobs;
mod lab;
mod lists;
mod max_run;
mod number;
mod parcel;
mod record;
mod sealed;
mod sockets;
mod submit;
mod view;
mod waits;

use axum::body::Bytes;
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use files::Files;
use lab::{Ask, Lab};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};
use windlass_core::JobId;
use windlass_server::auth::{Auth, Peer};
use windlass_server::{Front, Gateway, Handle, Starting, Unavailable};
use windlass_store::StoreError;

/// Messages that may wait for the laboratory.
const ASKS_MAX: usize = 16_384;
/// Changes of jobs that a slow listener may be behind.
const CHANGES_MAX: usize = 4_096;
/// Sockets of providers and clients that may be open at a time.
const SOCKETS_MAX: usize = 10_000;

/// Bytes of a submission, with the files that it brings.
const SUBMISSION_BYTES_MAX: usize = 24 << 20;
/// Bytes of one file that a job uploads, and of all of one job, where the settings do not say.
const UPLOAD_BYTES_MAX: u64 = 1 << 30;
const RESULTS_BYTES_MAX: u64 = 8 << 30;

/// How the interface is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompassOptions {
    /// The directory that is served as `/srv`, and takes results; `None` serves and takes none.
    pub srv: Option<PathBuf>,
    /// The beginning of URLs that machines get; `None` is how each reaches the server.
    pub url: Option<String>,
    /// True where what users' jobs and submissions bring may be what others' machines boot.
    pub shared_uploads: bool,
    /// True where a bare machine is known by the address from which it booted, so that its scripts need show nothing.
    pub trust_addresses: bool,
    /// Bytes of one file that a job uploads.
    pub upload_bytes_max: u64,
    /// Bytes of all files that one job uploads.
    pub results_bytes_max: u64,
    /// The file with the key of secrets. It is made when it is first needed.
    pub key: PathBuf,
}

impl CompassOptions {
    /// The defaults, without a directory of files.
    pub fn new(key: PathBuf) -> CompassOptions {
        CompassOptions {
            srv: None,
            url: None,
            shared_uploads: false,
            trust_addresses: false,
            upload_bytes_max: UPLOAD_BYTES_MAX,
            results_bytes_max: RESULTS_BYTES_MAX,
            key,
        }
    }
}

/// Why the interface cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum CompassError {
    /// The directory of files cannot be opened.
    #[error("cannot open the directory of files {}, srv of [compass]: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The beginning of URLs is none.
    #[error("url of [compass] must begin with http:// or https:// and have no spaces, not '{0}'")]
    Url(String),
}

/// The interface, to be given to a server.
pub struct CompassGateway {
    files: Arc<Files>,
}

impl CompassGateway {
    /// The interface with these options.
    ///
    /// # Errors
    ///
    /// Names the option that cannot be.
    pub fn new(options: CompassOptions) -> Result<CompassGateway, CompassError> {
        let is_url = |url: &&String| {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            rest.is_some_and(|rest| !rest.is_empty())
                && !url.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        if let Some(url) = options.url.as_ref().filter(|url| !is_url(url)) {
            return Err(CompassError::Url(url.clone()));
        }
        Ok(CompassGateway { files: Arc::new(Files::open(options)?) })
    }
}

impl Gateway for CompassGateway {
    fn name(&self) -> &'static str {
        "Compass CI"
    }

    fn start(&self, front: Front) -> Starting<'_> {
        Box::pin(async move {
            let files = self.files.clone();
            let compass = Compass::start(front.clone(), files.clone()).await?;
            Ok(routes().with_state(App { handle: front.handle().clone(), front, compass, files }))
        })
    }

    fn owns(&self, path: &str) -> bool {
        access::is_open(path)
    }

    fn body_bytes_max(&self) -> usize {
        SUBMISSION_BYTES_MAX
    }

    fn reads_body(&self, path: &str) -> bool {
        access::is_file(path)
    }

    fn takes_token_in_body(&self, path: &str) -> bool {
        access::takes_token_in_body(path)
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
    files: Arc<Files>,
}

impl App {
    fn auth(&self) -> &Auth {
        self.front.auth()
    }

    fn compass(&self) -> &Compass {
        &self.compass
    }

    fn files(&self) -> &Files {
        &self.files
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
    max_runs: Arc<max_run::MaxRuns>,
}

impl Compass {
    /// Reads what is kept of jobs and hosts, and starts.
    pub async fn start(front: Front, files: Arc<Files>) -> Result<Compass, StoreError> {
        let (asks, inbox) = mpsc::channel(ASKS_MAX);
        let changes = broadcast::channel(CHANGES_MAX).0;
        let lab = Lab::load(front.handle().clone(), changes.clone(), files).await?;
        tokio::spawn(lab.run(inbox));
        let waits = waits::Waits::start(front, changes.clone());
        let (sockets, last_id) = (Arc::new(Semaphore::new(SOCKETS_MAX)), Arc::default());
        Ok(Compass { asks, changes, sockets, last_id, waits, max_runs: Arc::default() })
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

/// Who is at the other end of a request's connection.
type MaybePeer = Option<Extension<ConnectInfo<Peer>>>;

/// The address from which a request came; `None` over a unix socket.
fn peer_address(peer: &MaybePeer) -> Option<IpAddr> {
    let Extension(ConnectInfo(peer)) = peer.as_ref()?;
    peer.address.map(|address| address.ip().to_canonical())
}

/// Comes when the server ends.
async fn ended(closing: &mut watch::Receiver<bool>) {
    _ = closing.wait_for(|closing| *closing).await;
}

/// The paths of the interface.
fn routes() -> Router<App> {
    let jobs = Router::new()
        .route("/submit", post(submit::submit))
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
        .route("/accounts", get(accounts::list));
    let api = Router::new()
        .nest("/jobs", jobs)
        .nest("/dashboard", dashboard)
        .route("/health", get(lists::health))
        .route("/debug/dispatch", get(lists::debug))
        .route("/hosts/{hostname}", get(lists::host).post(lists::register))
        .route("/accounts/{name}", post(accounts::create))
        .route("/clusters/{name}", get(clusters::show).post(clusters::register))
        .route("/client", any(sockets::client))
        .route("/vm-container-provider/{host}", any(sockets::provider));
    Router::new()
        .nest("/scheduler/v1", api)
        .route("/", get(lists::health))
        .route("/submit_job", post(submit::submit))
        .route("/boot.ipxe/{parameter}/{value}", get(sockets::boot_ipxe))
        .route("/boot.grub/{parameter}/{value}", get(sockets::boot_grub))
        .route("/boot.native/{parameter}/{value}", get(sockets::boot_native))
        .route("/boot.libvirt/{parameter}/{value}", get(sockets::boot_libvirt))
        .route("/job_initrd_tmpfs/{id}/job.cgz", get(files::get_archive))
        .route("/srv/{*path}", get(files::get_file).post(files::put_file).put(files::put_file))
        .route("/result/{*path}", post(files::put_result).put(files::put_result))
        .route_layer(map_response(isolated))
}

/// What a browser may do with an answer: show it, and no more. It comes from the origin of the board, and users bring the
/// files, which must be neither scripts nor pages of that origin.
const POLICY: &str = "sandbox; default-src 'none'; frame-ancestors 'none'";

/// Says with every answer that it is of the type that it says, and that nothing of it runs in a browser.
async fn isolated(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
