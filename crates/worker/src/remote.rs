//! The agent of a worker whose server is another process, usually on another machine. It keeps one stream to
//! the server and one connection to the keeper, and passes messages between them. Where its farm has several
//! servers, `server_rotation` says which one is tried. `windlass worker start` runs [`run_remote`].
//!
//! Either connection may be lost at any moment. The keeper repeats results until they are acknowledged, and
//! every new stream begins with its inventory, so this module keeps no state that a new stream does not
//! restore. It decides nothing about tasks.

use crate::agent::{Agent, AgentError, AgentOptions, FromAgent};
use crate::call_error::{chain, is_said};
use crate::clock::boot_ns;
use crate::files::{AgentFiles, FileCache, InputBlobs, RemoteFiles};
use crate::measure::LOAD_EVERY;
use crate::names::{Names, Resolved};
use crate::old_output::{ASK_EVERY, OldOutput, ServerClock};
use crate::outgoing::{self, Outgoing, PART_BYTES_MAX, Reports};
use crate::protocol::{self, TaskRef, ToKeeper};
use crate::random::fresh_number;
use crate::server_rotation::{Ending, ServerRotation};
use crate::token_notice::TokenNotice;
use crate::users::{BadUser, UserMap};
use crate::wire::keeper_message;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use windlass_api::wire::workers_client::WorkersClient;
use windlass_api::wire::{
    Body, FromWorker, Greeting, Lease, LogPart, Order, Outputs, ReadLog, Report, ToWorker, order, report,
};
use windlass_api::{OWNER_METADATA, StepBody, TOKEN_END_HEADER};

/// Interval of HTTP/2 pings on a silent connection, and the time for their answer.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Batches of the keeper's messages that may wait for the stream to the server.
const SAID_MAX: usize = 1_024;
/// Commands that may wait for the user database.
const ORDERS_MAX: usize = 65_536;
/// Bytes of one message of the server.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Bounds of the interval between two reports of load.
const LOAD_EVERY_MIN: Duration = Duration::from_millis(100);
const LOAD_EVERY_MAX: Duration = Duration::from_secs(60);

/// A server's address and this worker's credentials.
#[derive(Clone, Default)]
pub struct ServerAddress {
    /// The form is `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// The worker's token; `None` for a server that asks for none.
    pub token: Option<String>,
    /// CA certificates to trust for the server, PEM. `https` needs them.
    pub ca: Option<Vec<u8>>,
    /// The worker's own certificate and then its key, PEM.
    pub identity: Option<Vec<u8>>,
}

/// Options of a worker.
pub struct RemoteOptions {
    /// The servers of its farm, at least one, in the order in which they are tried. It works for the one that owns the
    /// scheduling.
    pub servers: Vec<ServerAddress>,
    /// Which submitter's tasks run as which user.
    pub users: UserMap,
    /// The worker itself, and how its keeper runs tasks.
    pub agent: AgentOptions,
    /// The cache of files of tasks.
    pub cache: FileCache,
}

/// Why there is no stream to the server.
#[allow(missing_docs, reason = "the texts of the errors show what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address, the token or a certificate is unusable. Another attempt does not help.
    #[error("cannot use {what}: {why}; correct it and start the worker again")]
    Setup { what: String, why: String },
    #[error("the server at {url} is not reached: {why}")]
    Unreachable { url: String, why: String },
    /// The server is one of several of its farm, and another one owns the scheduling: at `owner`, if it knows that.
    #[error("the server at {url} does not own the scheduling: {why}")]
    NotOwner { url: String, why: String, owner: Option<String> },
    #[error("the server at {url} does not let this worker in: {why}")]
    Refused { url: String, why: String },
    /// There is no keeper.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Works for the servers until `stop` completes, through every loss of the connection. Tasks that run then go
/// on under their keeper, as long as their lease lasts.
///
/// # Errors
/// Only those that another attempt cannot mend.
pub async fn run_remote(options: RemoteOptions, stop: impl Future<Output = ()>) -> Result<(), RemoteError> {
    let servers = options.servers.iter().map(Server::new).collect::<Result<Vec<_>, _>>()?;
    let urls: Vec<String> = options.servers.iter().map(|server| server.url.clone()).collect();
    let (mut order, names) = (ServerRotation::new(&urls), Names::new(options.users.clone()));
    let RemoteOptions { agent: agent_options, cache, .. } = options;
    let files = RemoteFiles::new().map_err(|e| RemoteError::Setup {
        what: "a thread for files of tasks".to_owned(),
        why: e.to_string(),
    })?;
    let mut remote = Remote {
        agent_options,
        files: Arc::new(files),
        cache: Arc::new(cache),
        servers,
        now: order.now(),
        patience: order.patience(),
        urls: urls.join(","),
        agent: None,
        up: Arc::default(),
        names,
        warned: Vec::new(),
        old_output: Arc::default(),
    };
    tokio::pin!(stop);
    loop {
        (remote.now, remote.patience) = (order.now(), order.patience());
        let began = Instant::now();
        let ended = tokio::select! {
            ended = remote.session() => ended,
            () = &mut stop => break,
        };
        *remote.up.lock() = None;
        remote.files.end();
        let Err(error) = ended else { continue };
        let (how, owner) = match &error {
            RemoteError::Setup { .. } => return Err(error),
            RemoteError::Refused { .. } => (Ending::Refused, None),
            RemoteError::NotOwner { owner, .. } => (Ending::NotOwner, owner.as_deref()),
            RemoteError::Unreachable { .. } | RemoteError::Agent(_) => (Ending::Lost, None),
        };
        let Some(pause) = order.ended(how, owner, began.elapsed()) else {
            // A server that does not own the scheduling is as it should be.
            match how {
                Ending::NotOwner => tracing::info!("{error}; trying the next"),
                Ending::Refused | Ending::Lost => tracing::warn!("{error}; trying the next"),
            }
            continue;
        };
        tracing::warn!("{error}; trying again");
        // The jitter spreads the workers of a farm whose server was restarted.
        let jitter = pause.mul_f64((fresh_number() % 1000) as f64 / 1000.0);
        tokio::select! {
            () = sleep(pause / 2 + jitter) => {}
            () = &mut stop => break,
        }
    }
    if let Some((_, agent)) = remote.agent {
        _ = tokio::task::spawn_blocking(move || agent.stop(false)).await;
    }
    Ok(())
}

/// Said of a worker that cannot promise to end its tasks.
const WITHOUT_LEASE: &str =
    "this worker works without a lease: its tasks stay booked until an operator says that it is gone";

/// Sender for the keeper's messages; `None` while there is no stream.
type Up = Arc<Mutex<Option<mpsc::Sender<Vec<FromAgent>>>>>;

/// A server, and what it is shown.
struct Server {
    url: String,
    endpoint: Endpoint,
    token: Option<MetadataValue<Ascii>>,
}

impl Server {
    fn new(address: &ServerAddress) -> Result<Self, RemoteError> {
        Ok(Server { url: address.url.clone(), endpoint: endpoint(address)?, token: token(address)? })
    }
}

struct Remote {
    agent_options: AgentOptions,
    files: Arc<RemoteFiles>,
    /// It stays the same for whatever store the agent works.
    cache: Arc<FileCache>,
    servers: Vec<Server>,
    /// The place of the server that is tried now.
    now: usize,
    /// How long it may take to answer.
    patience: Duration,
    /// The addresses of all servers, as clients in tasks read them.
    urls: String,
    /// The agent, and the id of the store that it works for.
    agent: Option<(i64, Agent)>,
    up: Up,
    names: Names,
    /// The keeper's restrictions that were logged last. Each hello repeats them.
    warned: Vec<String>,
    old_output: Arc<OldOutput>,
}

impl Remote {
    /// One stream, from its opening to its end.
    async fn session(&mut self) -> Result<(), RemoteError> {
        let (reports, outgoing) = outgoing::channel();
        let (mut orders, token_end) = self.open(outgoing).await?;
        let greeting = self.greeting(&mut orders).await?;
        let (up, mut said) = mpsc::channel(SAID_MAX);
        *self.up.lock() = Some(up);
        self.files.begin(self.server().endpoint.clone(), self.server().token.clone());
        let (agent, is_new) = self.agent_for(greeting.store).await?;
        tracing::info!("connected to {} (version {})", self.server().url, greeting.version);
        if greeting.lease_ms.is_none() {
            agent.send_now(&[ToKeeper::Lease { until: None }]);
        }
        agent.set_load_every(load_every(greeting.load_ms));
        // A new agent has said hello to its keeper. A second one would drop the starts before its answer.
        if !is_new {
            agent.send_now(&[agent.hello()]);
        }
        let mut session = StreamSession {
            remote: self,
            agent,
            server_clock: greeting.now.map(|now| ServerClock::told(now, boot_ns())),
            greeting,
            reports,
            connection: 0,
            epoch: 0,
            env: BTreeMap::new(),
            waiting: VecDeque::new(),
            looking: None,
            token_notice: None,
        };
        let server_ms = session.greeting.now.map(|now| now / 1_000_000);
        session.token_notice =
            token_end.zip(server_ms).and_then(|(said, now)| TokenNotice::new(&said, now, Instant::now()));
        session.env.insert("WINDLASS_SERVER".to_owned(), session.remote.urls.clone());
        let beat = Duration::from_millis(session.greeting.beat_ms.max(1));
        let mut beats = interval_at(Instant::now() + beat, beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut asks = interval_at(Instant::now() + ASK_EVERY, ASK_EVERY);
        loop {
            tokio::select! {
                next = orders.message() => match next {
                    Ok(Some(ToWorker { orders })) => session.take(orders)?,
                    Ok(None) => return Err(session.remote.gone("it hung up")),
                    Err(status) => return Err(session.remote.denied(&status)),
                },
                Some(messages) = said.recv() => session.pass_up(messages).await?,
                found = async { session.looking.as_mut().expect("guarded by the condition").await },
                    if session.looking.is_some() => session.found(found),
                _ = beats.tick() => {
                    session.agent.send_now(&[ToKeeper::Beat { sent: boot_ns() }]);
                    session.tell_token_end();
                }
                _ = asks.tick() => session.ask_about_old_output(),
            }
        }
    }

    /// Opens the stream. The text, if there is one, says when this worker's token ends.
    async fn open(&self, outgoing: Outgoing) -> Result<(Streaming<ToWorker>, Option<String>), RemoteError> {
        let channel = timeout(self.patience, self.server().endpoint.connect()).await;
        let channel: Channel = match channel {
            Err(_) => return Err(self.gone("it does not answer")),
            Ok(Err(e)) => return Err(self.gone(&chain(&e))),
            Ok(Ok(channel)) => channel,
        };
        let mut client = WorkersClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut request = Request::new(outgoing);
        if let Some(token) = &self.server().token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        match timeout(self.patience, client.work(request)).await {
            Err(_) => Err(self.gone("it does not answer")),
            Ok(Err(status)) => Err(with_hint(self.denied(&status), &status)),
            Ok(Ok(response)) => {
                let said = response.metadata().get(TOKEN_END_HEADER).and_then(|said| said.to_str().ok());
                let said = said.map(str::to_owned);
                Ok((response.into_inner(), said))
            }
        }
    }

    async fn greeting(&self, orders: &mut Streaming<ToWorker>) -> Result<Greeting, RemoteError> {
        match timeout(self.patience, orders.message()).await {
            Err(_) => Err(self.gone("it does not greet")),
            Ok(Err(status)) => Err(with_hint(self.denied(&status), &status)),
            Ok(Ok(message)) => match message.and_then(|m| m.orders.into_iter().next()?.what) {
                Some(order::What::Greeting(greeting)) => Ok(greeting),
                _ => Err(self.gone("it does not greet as a Windlass server does")),
            },
        }
    }

    /// The agent for this store's jobs, and whether it was started by this call. An agent of this process for another
    /// store stops listening; what becomes of its tasks, [`Agent::start`] says.
    async fn agent_for(&mut self, store: i64) -> Result<(Agent, bool), RemoteError> {
        if let Some((_, agent)) = self.agent.as_ref().filter(|(known, _)| *known == store) {
            return Ok((agent.clone(), false));
        }
        let (options, before, up) = (self.agent_options.clone(), self.agent.take(), self.up.clone());
        let inputs = InputBlobs::Elsewhere(self.files.clone(), self.cache.clone());
        let files = AgentFiles { server: self.files.clone(), inputs };
        let start = move || {
            // Tasks of the other store go on until their lease is over: a server may have started with the wrong store.
            if let Some((_, agent)) = before {
                agent.stop(false);
            }
            Agent::start(options, store, files, move |_, messages| {
                let sender = up.lock().clone();
                if let Some(sender) = sender {
                    // The stream has just ended. The keeper repeats the messages on the next one.
                    _ = sender.blocking_send(messages);
                }
            })
        };
        let agent = tokio::task::spawn_blocking(start).await.map_err(|e| self.gone(&e.to_string()))??;
        self.agent = Some((store, agent.clone()));
        Ok((agent, true))
    }

    fn server(&self) -> &Server {
        &self.servers[self.now]
    }

    fn gone(&self, why: &str) -> RemoteError {
        RemoteError::Unreachable { url: self.server().url.clone(), why: why.to_owned() }
    }

    fn denied(&self, status: &Status) -> RemoteError {
        let (url, why) = (self.server().url.clone(), status.message().to_owned());
        let owner = status.metadata().get(OWNER_METADATA).and_then(|owner| owner.to_str().ok());
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => RemoteError::Refused { url, why },
            Code::Unavailable if is_said(status) && self.servers.len() > 1 => {
                RemoteError::NotOwner { url, why, owner: owner.map(str::to_owned) }
            }
            _ if why.is_empty() => RemoteError::Unreachable { url, why: status.code().to_string() },
            _ => RemoteError::Unreachable { url, why },
        }
    }
}

/// Adds what may be wrong with an address whose port breaks off every connection before it says anything.
fn with_hint(error: RemoteError, status: &Status) -> RemoteError {
    match error {
        RemoteError::Unreachable { url, why } if url.starts_with("http:") && !is_said(status) => {
            let why = format!("{why}; if this port speaks TLS, write https://HOST:PORT, and give --ca");
            RemoteError::Unreachable { url, why }
        }
        other => other,
    }
}

/// A stream to the server, from its hello to its end.
struct StreamSession<'a> {
    remote: &'a mut Remote,
    agent: Agent,
    greeting: Greeting,
    /// `None` if the server did not tell its clock.
    server_clock: Option<ServerClock>,
    reports: Reports,
    /// Number of the connection to the keeper that the hello on this stream belongs to.
    connection: u64,
    epoch: u64,
    /// Added to every task's environment.
    env: BTreeMap<String, String>,
    /// Commands from the first body on whose user is being looked up. Their order matters: the keeper ignores
    /// a start that comes after a message with a larger number.
    waiting: VecDeque<Order>,
    looking: Option<LookUp>,
    /// `None` of a token that does not end.
    token_notice: Option<TokenNotice>,
}

/// A running lookup of a submitter.
type LookUp = Pin<Box<dyn Future<Output = (String, Resolved)> + Send>>;

impl StreamSession<'_> {
    async fn pass_up(&mut self, messages: Vec<FromAgent>) -> Result<(), RemoteError> {
        let mut reports = Vec::with_capacity(messages.len());
        for message in messages {
            let what = match message {
                FromAgent::Report(what) => *what,
                FromAgent::Hello { hello, connection, notes: mut warnings } => {
                    self.connection = connection;
                    // Starts before the answer to this hello may be for a keeper that is gone, or lack their
                    // body. The server sends them again after it.
                    self.epoch = 0;
                    if !hello.fences && self.greeting.lease_ms.is_some() {
                        warnings.push(WITHOUT_LEASE.to_owned());
                    }
                    if self.remote.warned != warnings {
                        for warning in &warnings {
                            match warning == protocol::NO_CONTROL_GROUPS {
                                true => tracing::info!("{warning}"),
                                false => tracing::warn!("{warning}"),
                            }
                        }
                        self.remote.warned = warnings;
                    }
                    report::What::Hello(*hello)
                }
            };
            reports.push(Report { what: Some(what) });
        }
        let sent = self.reports.first.send(FromWorker { reports }).await;
        sent.map_err(|_| self.remote.gone("the stream ended"))
    }

    /// Logs that the token ends soon, when that is due.
    fn tell_token_end(&mut self) {
        let due = self.token_notice.as_mut().and_then(|notice| notice.due(Instant::now()));
        if let Some(left) = due {
            tracing::warn!(
                "the token of this worker expires in {:.1} hours: the server lets it in no more then; put another one in \
                 its file, and start the worker again, under running tasks",
                left.as_secs_f64() / 3600.0
            );
        }
    }

    fn take(&mut self, orders: Vec<Order>) -> Result<(), RemoteError> {
        for order in orders {
            match &order.what {
                Some(order::What::Refused(refused)) => {
                    let (url, why) = (self.remote.server().url.clone(), refused.why.clone());
                    return Err(RemoteError::Refused { url, why });
                }
                _ => self.waiting.push_back(order),
            }
        }
        if self.waiting.len() > ORDERS_MAX {
            return Err(self.remote.gone("more orders came than can wait for the user database"));
        }
        self.go_on();
        self.let_leases_overtake();
        Ok(())
    }

    /// Passes on the leases that wait for the user database, because tasks must not end while that is slow. Any other
    /// lease keeps its place: a keeper that has it before the kills that came with it could start what they are about.
    fn let_leases_overtake(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let mut messages = Vec::new();
        for order in std::mem::take(&mut self.waiting) {
            match order.what {
                Some(what @ order::What::Lease(_)) => messages.extend(self.order(order.seq, what)),
                _ => self.waiting.push_back(order),
            }
        }
        self.agent.send(self.connection, &messages);
    }

    /// Passes on the commands that wait, up to the first whose user is unknown.
    fn go_on(&mut self) {
        if self.looking.is_some() {
            return;
        }
        let mut messages = Vec::new();
        while let Some(Order { seq, what }) = self.waiting.pop_front() {
            // A kind of command that a later release added.
            let Some(what) = what else { continue };
            let order::What::Body(body) = what else {
                messages.extend(self.order(seq, what));
                continue;
            };
            // The cache is asked once, because an entry can expire between two questions.
            match self.remote.names.get(&body.user, now()) {
                Some(resolved) => messages.extend(self.body(body, resolved)),
                None => {
                    self.looking = Some(Box::pin(self.remote.names.look_up(body.user.clone())));
                    self.waiting.push_front(Order { seq, what: Some(order::What::Body(body)) });
                    break;
                }
            }
        }
        self.agent.send(self.connection, &messages);
    }

    fn found(&mut self, (submitter, resolved): (String, Resolved)) {
        self.looking = None;
        if let Err(bad) = &resolved
            && bad.is_worker_s()
        {
            tracing::error!("{bad}");
        }
        self.remote.names.keep(submitter, resolved, now());
        self.go_on();
    }

    /// The body of a step for the keeper, with the user to become. `None` if it cannot be read.
    fn body(&self, body: Body, resolved: Resolved) -> Option<ToKeeper> {
        let (job, step) = (body.job, u16::try_from(body.step).ok()?);
        let parsed: StepBody = match serde_json::from_slice(&body.body) {
            Ok(parsed) => parsed,
            Err(e) => {
                // The step's starts then end with a reason.
                tracing::error!("the body of step {step} of job {job} cannot be read: {e}");
                return None;
            }
        };
        let StepBody { command, mut env, cwd, umask, session, files, .. } = parsed;
        env.extend(self.env.clone());
        let refused_now = resolved.as_ref().is_err_and(BadUser::is_worker_s);
        let (run_as, refused) = match resolved {
            Ok(run_as) => (run_as, None),
            Err(bad) => (None, Some(bad.to_string())),
        };
        let files = files.as_ref().map(Into::into);
        let body = protocol::Body { command, env, cwd, umask, session, run_as, refused, refused_now, files };
        Some(ToKeeper::Body { job, step, body })
    }

    fn order(&mut self, seq: u64, what: order::What) -> Option<ToKeeper> {
        use order::What;
        Some(match what {
            What::Welcome(welcome) => {
                self.epoch = welcome.epoch;
                self.ask_about_old_output();
                return None;
            }
            What::Lease(lease) => ToKeeper::Lease { until: Some(lease_end(lease, self.greeting.lease_ms?)) },
            What::Resync(_) => self.agent.hello(),
            What::ReadLog(read) => {
                self.read_log(read);
                return None;
            }
            What::DropLogs(drop) => {
                let logs = self.agent.logs();
                tokio::task::spawn_blocking(move || logs.remove_jobs(drop.jobs));
                return None;
            }
            // Bodies are passed on by `go_on`, once their user is known.
            what => keeper_message(Order { seq, what: Some(what) }, self.epoch)?,
        })
    }

    /// Asks which jobs with old output are gone. The server answers as if they were deleted now.
    fn ask_about_old_output(&self) {
        let Some(clock) = self.server_clock else { return };
        let Some(now) = clock.agrees(SystemTime::now(), boot_ns()) else {
            tracing::error!(
                "old output is not deleted: this machine's clock and the server's differ by an hour or more; set the \
                 one that is wrong"
            );
            return;
        };
        let (logs, reports, old) = (self.agent.logs(), self.reports.clone(), self.remote.old_output.clone());
        tokio::task::spawn_blocking(move || match old.next(&logs, now) {
            Ok(jobs) if jobs.is_empty() => {}
            Ok(jobs) => {
                let what = Some(report::What::Outputs(Outputs { jobs }));
                // If the stream has ended, the next one begins with a question.
                _ = reports.first.blocking_send(FromWorker { reports: vec![Report { what }] });
            }
            Err(e) => tracing::warn!("cannot look for old output: {e}"),
        });
    }

    fn read_log(&self, read: ReadLog) {
        let (logs, reports) = (self.agent.logs(), self.reports.clone());
        tokio::task::spawn_blocking(move || {
            let task = TaskRef::from(read.task.unwrap_or_default());
            let stream = match (read.times, read.stderr) {
                (true, _) => crate::Stream::Times,
                (false, true) => crate::Stream::Err,
                (false, false) => crate::Stream::Out,
            };
            let bytes_max = (read.bytes_max as usize).min(PART_BYTES_MAX);
            let mut part = LogPart { id: read.id, times: read.times, ..LogPart::default() };
            match logs.read(task, stream, read.offset, bytes_max) {
                Ok(Some((next, bytes))) => (part.next, part.bytes) = (next, bytes),
                Ok(None) => part.absent = true,
                Err(e) => part.failed = Some(e.to_string()),
            }
            let what = Some(report::What::Log(part));
            // If the stream has ended, the server fails the request for output.
            _ = reports.parts.blocking_send(FromWorker { reports: vec![Report { what }] });
        });
    }
}

fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Interval between two reports of load: the server's, within bounds, or the default.
fn load_every(said_ms: Option<u64>) -> Duration {
    let said = said_ms.filter(|ms| *ms > 0).map(Duration::from_millis);
    said.map_or(LOAD_EVERY, |said| said.clamp(LOAD_EVERY_MIN, LOAD_EVERY_MAX))
}

/// End of a lease in nanoseconds since boot. It is a tenth of a full lease early, because ending tasks takes time.
fn lease_end(lease: Lease, full_ms: u64) -> u64 {
    lease.sent.saturating_add(lease.lasts_ns).saturating_sub(full_ms.saturating_mul(1_000_000) / 10)
}

fn endpoint(server: &ServerAddress) -> Result<Endpoint, RemoteError> {
    let bad = |what: &str, why: String| RemoteError::Setup { what: what.to_owned(), why };
    let endpoint = Endpoint::from_shared(server.url.clone());
    let endpoint = endpoint.map_err(|e| bad(&format!("the address '{}'", server.url), chain(&e)))?;
    let endpoint = endpoint
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    if !server.url.starts_with("https:") {
        return Ok(endpoint);
    }
    let Some(ca) = &server.ca else {
        let why = "https needs a CA certificate; give --ca FILE".to_owned();
        return Err(bad(&format!("the address '{}'", server.url), why));
    };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    if let Some(identity) = &server.identity {
        tls = tls.identity(Identity::from_pem(identity, identity));
    }
    endpoint.tls_config(tls).map_err(|e| bad("the certificates", chain(&e)))
}

fn token(server: &ServerAddress) -> Result<Option<MetadataValue<Ascii>>, RemoteError> {
    let Some(token) = &server.token else { return Ok(None) };
    let value = MetadataValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| RemoteError::Setup {
        what: "the token".to_owned(),
        why: "it holds what no token holds".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_told_as_often_as_the_server_says_within_reason() {
        let every = |ms| load_every(ms).as_millis();
        assert_eq!(
            [None, Some(0), Some(250), Some(1), Some(u64::MAX)].map(every),
            [1000, 1000, 250, 100, 60_000]
        );
    }

    #[test]
    fn a_lease_ends_a_tenth_early_and_any_numbers_do() {
        let end = |sent, lasts_ns, full_ms| lease_end(Lease { sent, lasts_ns }, full_ms);
        assert_eq!(end(5_000_000_000, 3_000_000_000, 3_000), 7_700_000_000);
        assert_eq!(end(5, 3, 3_000), 0);
        assert_eq!(end(u64::MAX, u64::MAX, 0), u64::MAX);
        assert_eq!(end(u64::MAX, 1, u64::MAX), u64::MAX - u64::MAX / 10);
    }
}
