//! The scheduler behind the paths. Build servers are workers of the engine, and compiles are places on them.

use crate::assign::Assigner;
use crate::clients::Clients;
use crate::config::{ClientAuth, SchedulerConfig, ServerAuth};
use crate::farm::{BadState, StateChange};
use crate::issuer::NotLetIn;
use crate::state::{SYSTEM, State, key_of, place_amounts};
use crate::tokens::{self, BadKey, BadToken, ServerTokens};
use crate::wire::{
    AllocJobResult, JobAlloc, JobId, JobState, SchedulerStatus, ServerCertificate, ServerId, Toolchain,
};
use parking_lot::{Mutex, MutexGuard};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Event, Reply};
use windlass_core::ids::AllocId;
use windlass_core::tags::{Need, SERVES};
use windlass_core::worker::Origin;
use windlass_core::{RequestId, WorkerId};
use windlass_server::Handle;

/// How long each of the build servers that are asked in turn may take to answer.
const ANSWERS_MAX: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_millis(400), Duration::from_secs(10)];
/// The shortest wait of clients after a start. Stock build servers send a heartbeat every 30 s, so before that not all
/// are known.
const FIRST_HEARTBEATS: Duration = Duration::from_secs(40);
/// The interval at which a build server is looked for that a worker observes and that has not sent a heartbeat.
const HEARTBEAT_LOOK: Duration = Duration::from_millis(200);
/// The shortest time that counts as waiting for a place.
const WAITED_MIN: Duration = Duration::from_millis(20);

/// The settings in which the scheduler differs from a stock one.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a client may wait for a place. Stock schedulers refuse at once.
    pub wait_max: Duration,
    /// True if a build server must send from the address that its token names.
    pub check_address: bool,
    /// Proxies whose `X-Real-IP` is trusted.
    pub proxies: Vec<IpAddr>,
}

impl Default for Options {
    fn default() -> Self {
        Options { wait_max: Duration::from_secs(30), check_address: true, proxies: Vec::new() }
    }
}

/// Why a scheduler cannot start.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum BadStart {
    #[error("server_auth: {0}")]
    Key(#[from] BadKey),
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
    clients: Clients,
    /// Every client is admitted, with a token that all know.
    is_open: bool,
    servers: ServerTokens,
    options: Options,
    began: Instant,
    assigner: Assigner,
    state: Mutex<State>,
}

impl Scheduler {
    /// A scheduler with the settings of a stock one.
    pub fn new(handle: Handle, config: &SchedulerConfig, options: Options) -> Result<Self, BadStart> {
        let clients = Clients::new(&config.client_auth);
        let is_open = matches!(config.client_auth, ClientAuth::Insecure);
        let servers = match &config.server_auth {
            ServerAuth::Insecure => ServerTokens::insecure(),
            ServerAuth::JwtHs256 { secret_key } => ServerTokens::signed(secret_key)?,
            ServerAuth::Token { token } => ServerTokens::shared(token.clone()),
        };
        let (assigner, state) = (Assigner::default(), Mutex::default());
        let began = Instant::now();
        let shared = Shared { handle, clients, is_open, servers, options, began, assigner, state };
        Ok(Scheduler { shared: Arc::new(shared) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.shared.handle
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    /// Drops the connections to a build server that is gone.
    pub(crate) fn hang_up(&self, server: ServerId) {
        self.shared.assigner.forget(server);
    }

    /// Time since the scheduler started.
    pub(crate) fn now(&self) -> Duration {
        self.shared.began.elapsed()
    }

    /// The settings in which the scheduler differs from a stock one.
    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Admits clients that ask from this address. Returns the identity in the token; `None` if all clients have the
    /// same token.
    pub(crate) async fn check_client(&self, token: &str, from: IpAddr) -> Result<Option<String>, NotLetIn> {
        self.shared.clients.check(token, from).await
    }

    /// Admits readers of loads and counts, which name machines and say how busy they are: those that may be clients.
    pub(crate) async fn check_reader(
        &self,
        token: Result<&str, BadToken>,
        from: IpAddr,
    ) -> Result<(), NotLetIn> {
        if !self.shared.is_open {
            self.shared.clients.check(token?, from).await?;
        }
        Ok(())
    }

    /// Admits build servers that send from their own address.
    pub(crate) fn check_server(&self, token: &str, from: IpAddr) -> Result<ServerId, BadToken> {
        let server = self.shared.servers.server(token)?;
        if self.shared.options.check_address && server.0.ip() != from {
            return Err(BadToken::Address);
        }
        Ok(server)
    }

    /// The sums over the farm that the status shows.
    pub fn status(&self) -> SchedulerStatus {
        self.state().farm.status()
    }

    /// The counts in the format of OpenMetrics, without the last line.
    pub async fn metrics(&self) -> String {
        let waiting = self.handle().query(|engine| engine.places().waiting_count()).await.unwrap_or(0);
        let (state, mut text) = (self.state(), String::new());
        state.counts.write(&state.farm, waiting, &mut text);
        text
    }

    /// The certificate of a build server.
    pub fn certificate(&self, server: ServerId) -> Option<ServerCertificate> {
        let state = self.state();
        let server = state.farm.server(server)?;
        Some(ServerCertificate { cert_digest: server.cert_digest.clone(), cert_pem: server.cert_pem.clone() })
    }

    /// Applies a build server's report of a job's state.
    pub async fn job_state(&self, job: JobId, server: ServerId, state: JobState) -> Result<(), BadState> {
        let (change, learned) = {
            let mut inner = self.state();
            let before = inner.farm.toolchains_learned(server);
            let change = inner.farm.tell(job, server, state, self.now())?;
            (change, inner.farm.toolchains_learned(server) > before)
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

    /// Serves a client that asks for a place. It waits its turn, and gets the first build server that takes the job.
    pub async fn alloc(&self, client: &str, toolchain: Toolchain) -> AllocJobResult {
        let clock = Instant::now();
        let until = clock + self.wait_max();
        let mut avoids = None;
        for patience in ANSWERS_MAX {
            let Some(place) = self.place(client, &toolchain, avoids, until).await else {
                self.state().counts.fallbacks += 1;
                return self.no_capacity();
            };
            let (job, worker) = (place.job, place.worker);
            let waited = Some(clock.elapsed()).filter(|waited| avoids.is_none() && *waited >= WAITED_MIN);
            match self.assign(place, &toolchain, patience, until).await {
                Ok((server, success)) => {
                    let mut state = self.state();
                    let counts = state.counts.of(server);
                    counts.taken += 1;
                    counts.waited += u64::from(waited.is_some());
                    counts.wait += waited.unwrap_or_default();
                    return success;
                }
                Err(why) => {
                    tracing::warn!("job {} of {client} is not taken: {why}", job.0);
                    avoids = Some(worker);
                }
            }
        }
        self.state().counts.fallbacks += 1;
        AllocJobResult::Fail { msg: "no build server took the job".to_owned() }
    }

    /// How long a client may wait. After a start no build server may have sent a heartbeat yet.
    fn wait_max(&self) -> Duration {
        let wait_max = self.shared.options.wait_max;
        match self.status().num_servers {
            0 => wait_max.max(FIRST_HEARTBEATS.saturating_sub(self.now())),
            _ => wait_max,
        }
    }

    fn no_capacity(&self) -> AllocJobResult {
        let servers = self.status().num_servers;
        AllocJobResult::Fail { msg: format!("Insufficient capacity across {servers} available servers") }
    }

    /// A place on any build server; `None` if none is free in time.
    async fn place(
        &self,
        client: &str,
        toolchain: &Toolchain,
        avoids: Option<WorkerId>,
        until: Instant,
    ) -> Option<Unassigned> {
        let wait_max = until.saturating_duration_since(Instant::now());
        let place = PlaceRequest {
            queue: format!("sccache-{client}"),
            amounts: place_amounts(),
            needs: vec![Need { key: SERVES.to_owned(), any_of: [SYSTEM.to_owned()].into() }],
            is_slot: true,
            reads: [(key_of(&toolchain.archive_id), None)].into(),
            avoids,
            wait_max_ms: wait_max.as_millis() as u64,
            ..PlaceRequest::default()
        };
        let (client, answer) = oneshot::channel();
        tokio::spawn(ask_for_place(self.clone(), place, client));
        answer.await.ok()
    }

    /// Asks the build server of a worker to take a job. The place is given back if it refuses.
    async fn assign(
        &self,
        place: Unassigned,
        toolchain: &Toolchain,
        patience: Duration,
        until: Instant,
    ) -> Result<(ServerId, AllocJobResult), String> {
        let (job, worker) = (place.job, place.worker);
        let server_id = self.server_of(worker, until).await.ok_or("its build server is gone")?;
        let (auth, cert_digest) = {
            let mut state = self.state();
            let server = state.farm.server(server_id).ok_or("its build server is gone")?;
            let auth = tokens::of_job(&server.jwt_key, job).ok_or("no token can be made")?;
            let cert_digest = server.cert_digest.clone();
            state.farm.allocate(job, server_id, toolchain.archive_id.clone(), self.now());
            (auth, cert_digest)
        };
        let asked = self.shared.assigner.assign(server_id, &cert_digest, (job, &auth), toolchain);
        let asked = tokio::time::timeout(patience, asked).await;
        let result = match asked.map_err(|_| format!("no answer within {} ms", patience.as_millis())) {
            Ok(Ok(result)) => result,
            failed => {
                let why = failed.map(|error| error.err().map_or(String::new(), |error| error.to_string()));
                let why = why.unwrap_or_else(|late| late);
                {
                    let mut state = self.state();
                    state.farm.give_up(job, self.now());
                    state.counts.of(server_id).failed += 1;
                }
                self.adjust_places().await;
                return Err(format!("{server_id}: {why}"));
            }
        };
        let learned = {
            let mut state = self.state();
            let before = state.farm.toolchains_learned(server_id);
            if !state.farm.assigned(job, result, self.now()) {
                return Err(format!("{server_id} was restarted meanwhile"));
            }
            state.farm.toolchains_learned(server_id) > before
        };
        if learned {
            self.tell_toolchains(server_id).await;
        }
        place.keep();
        let job_alloc = JobAlloc { auth, job_id: job, server_id };
        let success =
            AllocJobResult::Success { job_alloc, need_toolchain: result.need_toolchain, cert_digest };
        Ok((server_id, success))
    }

    /// The build server of a worker. After a start, a worker that observes a build server may connect first. The build
    /// server is then waited for.
    async fn server_of(&self, worker: WorkerId, until: Instant) -> Option<ServerId> {
        loop {
            if let Some(server) = self.state().servers.get(&worker) {
                return Some(*server);
            }
            let name = self
                .handle()
                .query(move |engine| engine.workers().get(worker).map(|worker| worker.record.name.clone()));
            // The engine knows a new build server a little earlier than this state does.
            let name = name.await.ok().flatten();
            let own = name.and_then(|name| Origin::Sccache.own_name(&name)?.parse().ok()).map(ServerId);
            if let Some(server) = own.filter(|server| self.state().farm.server(*server).is_some()) {
                return Some(server);
            }
            if self.now() >= FIRST_HEARTBEATS || Instant::now() >= until {
                return None;
            }
            tokio::time::sleep(HEARTBEAT_LOOK).await;
        }
    }
}

/// A place for a job that no build server has taken yet. Dropping it gives the place back, also when the client
/// disconnects.
struct Unassigned {
    scheduler: Scheduler,
    job: JobId,
    worker: WorkerId,
    is_taken: bool,
}

impl Unassigned {
    /// Keeps the place, because a build server has taken the job.
    fn keep(mut self) {
        self.is_taken = true;
    }
}

impl Drop for Unassigned {
    fn drop(&mut self) {
        if !self.is_taken {
            self.scheduler.state().farm.remove(self.job);
            self.scheduler.handle().tell_later(Event::Release { alloc: AllocId(self.job.0) });
        }
    }
}

/// Asks the engine for a client's place. If the client disconnects, the request is withdrawn. A place that is given all
/// the same is dropped, and so given back.
async fn ask_for_place(scheduler: Scheduler, place: PlaceRequest, mut client: oneshot::Sender<Unassigned>) {
    let handle = scheduler.handle().clone();
    let (number, numbered) = oneshot::channel();
    let ask = move |request: RequestId| {
        _ = number.send(request);
        Event::Alloc { request, place: Box::new(place) }
    };
    let mut asked = pin!(handle.request(ask));
    let answer = tokio::select! {
        // The first poll sends the request.
        biased;
        answer = &mut asked => answer,
        () = client.closed() => {
            // Without a number the engine refused the request, and answers so.
            if let Ok(alloc) = numbered.await {
                handle.tell(Event::Unalloc { alloc }).await;
            }
            asked.await
        }
    };
    if let Ok(Reply::Placed { alloc, worker }) = answer {
        _ = client.send(Unassigned { scheduler, job: JobId(alloc.0), worker, is_taken: false });
    }
}
