//! The scheduler behind the paths: build servers as workers of the engine, and compiles as places on them.

use crate::assign::Assigner;
use crate::config::{ClientAuth, SchedulerConfig, ServerAuth};
use crate::farm::{BadHeartbeat, BadState, Farm, StateChange};
use crate::tokens::{self, BadKey, BadToken, ClientToken, ServerTokens};
use crate::wire::{
    AllocJobResult, Heartbeat, HeartbeatTail, JobAlloc, JobId, JobState, SchedulerStatus, ServerCertificate,
    ServerId, Toolchain,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::{Event, Hello, PlaceInUse, Reply};
use windlass_core::hash::Fnv;
use windlass_core::ids::AllocId;
use windlass_core::load::formula::slots;
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures, Stall};
use windlass_core::places::PlaceRequest;
use windlass_core::tags::{Attributes, EXCLUSIVE, Need};
use windlass_core::{RequestId, Resources, WorkerId};
use windlass_server::{Delivery, Handle, WorkerLink, WorkerMessage};

/// The value of [`EXCLUSIVE`] for build servers.
const SYSTEM: &str = "sccache";
/// The queue of jobs of which nobody knows whose they are.
const QUEUE_UNKNOWN: &str = "sccache";
/// How long the first build server may take to answer, before another one is asked; and how long that one may.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(1);
const SECOND_ANSWER_MAX: Duration = Duration::from_secs(10);
/// Between two looks for build servers and jobs that are gone.
const LOOK: Duration = Duration::from_secs(5);

/// How the scheduler differs from a stock one.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a client may wait for a place; stock schedulers refuse at once.
    pub wait_max: Duration,
    /// Whether a build server must speak from the address that its token names.
    pub check_address: bool,
    /// Proxies whose `X-Real-IP` is believed.
    pub proxies: Vec<IpAddr>,
}

impl Default for Options {
    fn default() -> Self {
        Options { wait_max: Duration::from_secs(30), check_address: true, proxies: Vec::new() }
    }
}

/// Why a scheduler cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BadStart {
    /// The key of build servers' tokens is none.
    #[error("server_auth: {0}")]
    Key(#[from] BadKey),
    /// A kind of authentication that is not there yet.
    #[error("client_auth: the type {0} is not supported yet; use token")]
    ClientAuth(&'static str),
    /// Its address cannot be used.
    #[error("cannot listen: {0}")]
    Listen(#[from] std::io::Error),
}

/// The scheduler; cheap to clone.
#[derive(Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

struct Shared {
    handle: Handle,
    clients: ClientToken,
    servers: ServerTokens,
    options: Options,
    began: Instant,
    assigner: Assigner,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    farm: Farm,
    workers: BTreeMap<ServerId, Link>,
    /// The build server of each worker, so that a compile's costs no search.
    servers: BTreeMap<WorkerId, ServerId>,
}

/// A build server as a worker of the engine.
#[derive(Clone, Copy)]
struct Link {
    id: u64,
    /// Known once the engine has it.
    worker: Option<WorkerId>,
}

/// The way from the engine to a build server: the engine starts nothing there.
struct ServerLink {
    id: u64,
    server: ServerId,
}

impl WorkerLink for ServerLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn deliver(&self, _: Vec<Delivery>) {}

    fn refuse(&self, why: &str) {
        tracing::warn!("the build server {} is not taken: {why}", self.server);
    }
}

/// Withdraws a client's request when the client hangs up.
struct WaitingClient {
    handle: Handle,
    request: Arc<AtomicU64>,
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        let request = self.request.load(Ordering::Relaxed);
        if request != u64::MAX {
            self.handle.tell_now(Event::Unalloc { alloc: RequestId(request) });
        }
    }
}

impl Scheduler {
    /// A scheduler with the settings of a stock one.
    ///
    /// # Errors
    ///
    /// A setting that cannot be used.
    pub fn new(handle: Handle, config: &SchedulerConfig, options: Options) -> Result<Self, BadStart> {
        let clients = match &config.client_auth {
            ClientAuth::Insecure => ClientToken::insecure(),
            ClientAuth::Token { token } => ClientToken::of(token.clone()),
            ClientAuth::JwtValidate { .. } => return Err(BadStart::ClientAuth("jwt_validate")),
            ClientAuth::ProxyToken { .. } => return Err(BadStart::ClientAuth("proxy_token")),
        };
        let servers = match &config.server_auth {
            ServerAuth::Insecure => ServerTokens::insecure(),
            ServerAuth::JwtHs256 { secret_key } => ServerTokens::signed(secret_key)?,
            ServerAuth::Token { token } => ServerTokens::shared(token.clone()),
        };
        let (assigner, state) = (Assigner::default(), Mutex::default());
        let shared = Shared { handle, clients, servers, options, began: Instant::now(), assigner, state };
        Ok(Scheduler { shared: Arc::new(shared) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.shared.began.elapsed()
    }

    /// Whose request it is, if proxies are believed.
    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Turns true when the server ends.
    pub(crate) fn closing(&self) -> tokio::sync::watch::Receiver<bool> {
        self.shared.handle.closing()
    }

    /// Lets in clients.
    pub(crate) fn check_client(&self, token: &str) -> Result<(), BadToken> {
        self.shared.clients.check(token)
    }

    /// Lets in build servers, from their own address.
    pub(crate) fn check_server(&self, token: &str, from: IpAddr) -> Result<ServerId, BadToken> {
        let server = self.shared.servers.server(token)?;
        if self.shared.options.check_address && server.0.ip() != from {
            return Err(BadToken::Address);
        }
        Ok(server)
    }

    /// The farm in three numbers.
    pub fn status(&self) -> SchedulerStatus {
        self.state().farm.status()
    }

    /// The certificate of a build server.
    pub fn certificate(&self, server: ServerId) -> Option<ServerCertificate> {
        let state = self.state();
        let server = state.farm.server(server)?;
        Some(ServerCertificate { cert_digest: server.cert_digest.clone(), cert_pem: server.cert_pem.clone() })
    }

    /// A build server says that it is there. True if it is new.
    ///
    /// # Errors
    ///
    /// What it says cannot be.
    pub async fn heartbeat(
        &self,
        server: ServerId,
        heartbeat: Heartbeat,
        tail: Option<HeartbeatTail>,
    ) -> Result<bool, BadHeartbeat> {
        let num_cpus = heartbeat.num_cpus as u32;
        let (heard, link) = {
            let mut state = self.state();
            let heard = state.farm.hear(server, heartbeat, self.now())?;
            let link = state.workers.get(&server).copied();
            (heard, link)
        };
        let link = match link.filter(|_| !heard.is_changed) {
            Some(link) => link,
            None => self.introduce(server, num_cpus, link).await,
        };
        self.release(heard.lost).await;
        if let Some(report) = tail.map(report_of) {
            let report = vec![WorkerMessage::Load(Box::new(report))];
            self.shared.handle.worker_tells(link.id, report).await;
        }
        Ok(heard.is_new)
    }

    /// Makes a build server a worker of the engine, or tells the engine what has changed of it.
    async fn introduce(&self, server: ServerId, num_cpus: u32, known: Option<Link>) -> Link {
        let handle = &self.shared.handle;
        let id = known.map_or_else(|| handle.next_link(), |link| link.id);
        let name = server.to_string();
        let mut number = Fnv::default();
        number.bytes(name.as_bytes());
        let attributes: Attributes =
            [(EXCLUSIVE.to_owned(), [SYSTEM.to_owned()].into())].into_iter().collect();
        let hello = Hello {
            new_link: known.is_none(),
            attributes,
            // A compile waits for the network for a part of its time, so a server has a few more places than cores.
            ..Hello::new(&name, number.value() >> 1, Resources::new(slots(num_cpus) * 100, 0))
        };
        let link = Arc::new(ServerLink { id, server });
        let hello = vec![WorkerMessage::Hello { hello: Box::new(hello), link }];
        handle.worker_tells(id, hello).await;
        let find = handle.query(move |engine| engine.workers().by_name(&name).map(|worker| worker.id)).await;
        let link = Link { id, worker: find.ok().flatten() };
        {
            let mut state = self.state();
            state.workers.insert(server, link);
            state.servers.extend(link.worker.map(|worker| (worker, server)));
        }
        self.tell_places(server).await;
        self.tell_toolchains(server).await;
        link
    }

    async fn release(&self, jobs: Vec<JobId>) {
        for job in jobs {
            self.shared.handle.tell(Event::Release { alloc: AllocId(job.0) }).await;
        }
    }

    /// Tells the engine which places a build server's jobs hold.
    async fn tell_places(&self, server: ServerId) {
        let (worker, places) = {
            let state = self.state();
            let Some(worker) = state.workers.get(&server).and_then(|link| link.worker) else { return };
            let places = state.farm.jobs_of(server).map(|job| PlaceInUse {
                alloc: AllocId(job.0),
                queue: QUEUE_UNKNOWN.to_owned(),
                amounts: Resources::new(100, 0),
            });
            (worker, places.collect())
        };
        self.shared.handle.tell(Event::PlacesInUse { worker, places }).await;
    }

    /// Tells the engine which toolchains a build server has, so that compiles go where theirs is.
    async fn tell_toolchains(&self, server: ServerId) {
        let (link, keys) = {
            let state = self.state();
            let Some(link) = state.workers.get(&server) else { return };
            let keys: Vec<String> = state.farm.toolchains_of(server).map(key_of).collect();
            (link.id, CacheKeys::of(keys.iter()))
        };
        self.shared.handle.worker_tells(link, vec![WorkerMessage::Caches(keys)]).await;
    }

    /// A build server says how far a job is.
    ///
    /// # Errors
    ///
    /// The job does not go that way, or is another server's.
    pub async fn job_state(&self, job: JobId, server: ServerId, state: JobState) -> Result<(), BadState> {
        let (change, learned) = {
            let mut inner = self.state();
            let before = inner.farm.toolchains_of(server).count();
            let change = inner.farm.tell(job, server, state, self.now())?;
            (change, inner.farm.toolchains_of(server).count() > before)
        };
        match change {
            StateChange::Known | StateChange::GoesOn => {}
            StateChange::Complete(_) => self.release(vec![job]).await,
            StateChange::TakenUp => self.tell_places(server).await,
        }
        if learned {
            self.tell_toolchains(server).await;
        }
        Ok(())
    }

    /// A client asks for a place: it waits its turn, and gets the first build server that takes the job.
    pub async fn alloc(&self, client: &str, toolchain: Toolchain) -> AllocJobResult {
        let until = Instant::now() + self.shared.options.wait_max;
        let mut avoids = None;
        for patience in [FIRST_ANSWER_MAX, SECOND_ANSWER_MAX] {
            let Some((alloc, worker)) = self.place(client, &toolchain, avoids, until).await else {
                return self.no_capacity();
            };
            match self.assign(JobId(alloc.0), worker, &toolchain, patience).await {
                Ok(success) => return success,
                Err(why) => {
                    self.shared.handle.tell(Event::Release { alloc }).await;
                    tracing::warn!("job {} of {client} is not taken: {why}", alloc.0);
                    avoids = Some(worker);
                }
            }
        }
        AllocJobResult::Fail { msg: "two build servers did not take the job".to_owned() }
    }

    fn no_capacity(&self) -> AllocJobResult {
        let servers = self.status().num_servers;
        AllocJobResult::Fail { msg: format!("Insufficient capacity across {servers} available servers") }
    }

    /// A place on some build server; `None` if there is none in time.
    async fn place(
        &self,
        client: &str,
        toolchain: &Toolchain,
        avoids: Option<WorkerId>,
        until: Instant,
    ) -> Option<(AllocId, WorkerId)> {
        let wait_max = until.saturating_duration_since(Instant::now());
        let place = PlaceRequest {
            queue: format!("sccache-{client}"),
            amounts: Resources::new(100, 0),
            needs: vec![Need { key: EXCLUSIVE.to_owned(), any_of: [SYSTEM.to_owned()].into() }],
            reads: [(key_of(&toolchain.archive_id), None)].into(),
            avoids,
            wait_max_ms: wait_max.as_millis() as u64,
            ..PlaceRequest::default()
        };
        let (handle, request) = (self.shared.handle.clone(), Arc::new(AtomicU64::new(u64::MAX)));
        let waiting = WaitingClient { handle: handle.clone(), request: request.clone() };
        let (reply, answer) = oneshot::channel();
        // It goes on when the client hangs up, so that a place that is given all the same is given back.
        tokio::spawn(async move {
            let ask = move |id: RequestId| {
                request.store(id.0, Ordering::Relaxed);
                Event::Alloc { request: id, place: Box::new(place) }
            };
            let given = match handle.request(ask).await {
                Ok(Reply::Placed { alloc, worker }) => Some((alloc, worker)),
                _ => None,
            };
            if let Err(Some((alloc, _))) = reply.send(given) {
                handle.tell(Event::Release { alloc }).await;
            }
        });
        let given = answer.await.ok().flatten();
        waiting.request.store(u64::MAX, Ordering::Relaxed);
        given
    }

    /// Asks a build server to take a job.
    async fn assign(
        &self,
        job: JobId,
        worker: WorkerId,
        toolchain: &Toolchain,
        patience: Duration,
    ) -> Result<AllocJobResult, String> {
        let (server_id, auth, cert_digest) = {
            let mut state = self.state();
            let server_id = state.servers.get(&worker).copied().ok_or("its build server is gone")?;
            let server = state.farm.server(server_id).ok_or("its build server is gone")?;
            let auth = tokens::of_job(&server.jwt_key, job).ok_or("no token can be made")?;
            let cert_digest = server.cert_digest.clone();
            state.farm.allocate(job, server_id, toolchain.archive_id.clone(), self.now());
            (server_id, auth, cert_digest)
        };
        let asked = self.shared.assigner.assign(server_id, &cert_digest, (job, &auth), toolchain);
        let result = match tokio::time::timeout(patience, asked).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => {
                self.state().farm.give_up(job);
                return Err(format!("{server_id}: {error}"));
            }
            Err(_) => {
                self.state().farm.give_up(job);
                return Err(format!("{server_id} did not answer within {} s", patience.as_secs()));
            }
        };
        let learned = {
            let mut state = self.state();
            let before = state.farm.toolchains_of(server_id).count();
            if !state.farm.assigned(job, result, self.now()) {
                return Err(format!("{server_id} was restarted meanwhile"));
            }
            state.farm.toolchains_of(server_id).count() > before
        };
        if learned {
            self.tell_toolchains(server_id).await;
        }
        let job_alloc = JobAlloc { auth, job_id: job, server_id };
        Ok(AllocJobResult::Success { job_alloc, need_toolchain: result.need_toolchain, cert_digest })
    }

    /// Looks from time to time for build servers and jobs that are gone, until the server ends.
    pub async fn look_after(self) {
        let mut closing = self.closing();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
            let (dropped, lost) = {
                let mut state = self.state();
                (state.farm.drop_silent(self.now()), state.farm.drop_lost(self.now()))
            };
            self.release(lost).await;
            for (server, jobs) in dropped {
                tracing::warn!("the build server {server} is silent: it is dropped with {} jobs", jobs.len());
                self.release(jobs).await;
                let link = {
                    let mut state = self.state();
                    let link = state.workers.remove(&server);
                    link.and_then(|link| link.worker).map(|worker| state.servers.remove(&worker));
                    link
                };
                if let Some(link) = link {
                    self.shared.handle.worker_tells(link.id, vec![WorkerMessage::Lost]).await;
                }
            }
        }
    }
}

fn key_of(archive_id: &str) -> String {
    format!("toolchain/{archive_id}")
}

fn report_of(tail: HeartbeatTail) -> LoadReport {
    let pressure = |percent: Option<f64>| {
        percent.map(|avg10| Pressure { some: Some(Stall { avg10, ..Stall::default() }), full: None })
    };
    let machine = Pressures {
        cpu: pressure(tail.cpu_percent),
        memory: pressure(tail.memory_percent),
        io: pressure(tail.io_percent),
    };
    LoadReport { machine, memory_available: tail.memory_available, ..LoadReport::default() }
}
