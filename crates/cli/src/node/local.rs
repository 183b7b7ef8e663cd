//! The worker of this machine, in the server's process: carries messages between the engine and the agent. The keeper
//! is a process of its own.

use crate::node::life::Life;
use crate::node::local_files::LocalFiles;
use crate::node::machine_users::user_map;
use crate::node::this_machine::{attributes, offer};
use crate::ui::message::message;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use tokio::sync::oneshot;
use windlass_api::wire::{Hello, order, order_to_wire, report};
use windlass_api::{LogStream, StepBody};
use windlass_core::JobId;
use windlass_core::engine::{CheckedHello, SERVABLE};
use windlass_core::tags::CORE_SCORE;
use windlass_server::{
    Config, Delivery, Handle, JobFiles, LogChunk, LogFile, LogFuture, LogRequest, SentBodies, WorkerLink,
    WorkerMessage,
};
use windlass_worker::{
    Agent, AgentFiles, AgentOptions, AskedGpus, BadUser, Body, CacheDir, Detected, FromAgent, GPUS_ARE_LATE,
    InputBlobs, MeasureCore, NO_CONTROL_GROUPS, Names, Stream, TaskRef, ToKeeper, keeper_message,
};

/// The worker of this machine.
pub struct LocalWorker {
    agent: Agent,
}

/// State that both directions share.
struct KeeperLink {
    name: String,
    /// The connection to the keeper, and its number as the engine knows it.
    connection: Mutex<(u64, u64)>,
    handle: Handle,
    /// Sent to when the engine has registered the worker for the first time.
    welcomed: Mutex<Option<oneshot::Sender<()>>>,
    /// The epoch of the last registration: starts carry it, and reports return it.
    epoch: AtomicU64,
    /// The incarnation of the keeper whose notes were logged.
    told: AtomicU64,
    life: Life,
    /// Added to every task's environment.
    env: BTreeMap<String, String>,
    /// As whom tasks run, where the server is one of all users of the machine; otherwise all run as its own user.
    names: Mutex<Names>,
    is_of_machine: bool,
}

/// Starts the agent and returns when the engine knows the worker.
pub async fn start(
    handle: &Handle,
    config: &Config,
    state: &Path,
    server: &str,
    files: JobFiles,
    life: Life,
) -> anyhow::Result<LocalWorker> {
    let (log_bytes_max, report) = (config.log_bytes_max, config.load.report());
    let users = config.machine.as_ref().map(user_map).transpose()?;
    let config = &config.worker;
    let gpus = AskedGpus::here(config.gpus, config.gpu_devices.clone());
    let Detected { capacity, gpu_devices, late_gpus } =
        detected((config.cpus, config.memory, gpus), life).await?;
    let attributes = attributes(&config.tags);
    let is_given = attributes.contains_key(CORE_SCORE);
    let caches =
        config.caches.iter().map(|(name, dir)| CacheDir::new(name, dir)).collect::<Result<_, _>>()?;
    let host = attributes.get("host").and_then(|names| names.first().cloned());
    let name = windlass_worker::name(state, config.name.clone(), host)?;
    let identity = windlass_worker::identity(state)?;
    let (welcomed, welcome) = oneshot::channel();
    let link = Arc::new(KeeperLink {
        name: name.clone(),
        connection: Mutex::default(),
        handle: handle.clone(),
        welcomed: Mutex::new(Some(welcomed)),
        epoch: AtomicU64::new(0),
        told: AtomicU64::new(0),
        life,
        env: BTreeMap::from([("WINDLASS_SERVER".to_owned(), server.to_owned())]),
        is_of_machine: users.is_some(),
        names: Mutex::new(Names::new(users.unwrap_or_default())),
    });
    let options = AgentOptions {
        state: state.to_owned(),
        program: std::env::current_exe().context("cannot find this program")?,
        name,
        identity,
        capacity,
        late_gpus,
        gpu_devices,
        attributes,
        die_with_agent: life == Life::OfThisRun,
        leased: false,
        log_bytes_max,
        caches,
        logs_bytes_max: None,
        // The store is that of this directory. If it differs from the keeper's, the earlier store is gone.
        adopt: true,
        measure_core: if is_given { MeasureCore::Never } else { MeasureCore::WhenIdle },
        // Clients in tasks reach this server by its directory. Its tasks are those of its own user, or of users who cannot
        // read what root alone can.
        hide: None,
    };
    let store = handle.store().id();
    let files = Arc::new(LocalFiles(files));
    let files = AgentFiles { server: files.clone(), inputs: InputBlobs::Here(files) };
    let agent = tokio::task::spawn_blocking(move || {
        Agent::start(options, store, files, move |agent, messages| link.pass_up(agent, messages))
    });
    let agent = agent.await.context("the agent failed")??;
    agent.set_load_every(report);
    welcome.await.context("the engine did not register the worker")?;
    Ok(LocalWorker { agent })
}

/// What this machine has. The driver of its gpus may hold up the thread that asks it, and is not waited for long.
async fn detected(
    (cpus, memory, gpus): (Option<f64>, Option<u64>, AskedGpus),
    life: Life,
) -> anyhow::Result<Detected> {
    let asked = tokio::task::spawn_blocking(move || offer(cpus, memory, &gpus));
    let detected = asked.await.context("cannot find out what this machine has")??;
    match (&detected.late_gpus, life) {
        (None, _) => {}
        (Some(_), Life::OfItsOwn) => tracing::warn!("{GPUS_ARE_LATE}"),
        (Some(_), Life::OfThisRun) => message!("note: {GPUS_ARE_LATE}"),
    }
    Ok(detected)
}

impl LocalWorker {
    /// Disconnects from the keeper. It ends if it has no tasks, or with all of them if `kill`.
    pub async fn stop(self, kill: bool) {
        _ = tokio::task::spawn_blocking(move || self.agent.stop(kill)).await;
    }
}

impl KeeperLink {
    /// From agent to engine, on the agent's thread.
    fn pass_up(self: &Arc<Self>, agent: &Agent, messages: Vec<FromAgent>) {
        let messages: Vec<_> =
            messages.into_iter().filter_map(|message| self.message(agent, message)).collect();
        let (_, id) = *lock(&self.connection);
        self.handle.worker_says(id, messages);
    }

    fn message(self: &Arc<Self>, agent: &Agent, message: FromAgent) -> Option<WorkerMessage> {
        match message {
            FromAgent::Hello { hello, connection, notes } => {
                self.tell(hello.incarnation, &notes);
                let id = self.link_id(connection);
                // The keeper may be a new one, which has no bodies.
                let bodies = Mutex::new(SentBodies::default());
                let carrier = Carrier { link: self.clone(), agent: agent.clone(), connection, bodies };
                let link = LocalLink::new(id, carrier);
                match checked(*hello) {
                    Ok(hello) => Some(WorkerMessage::Hello { hello, link: Arc::new(link) }),
                    Err(why) => {
                        link.refuse(&why);
                        None
                    }
                }
            }
            // The agent asks for a beat to see whether the keeper lives. Without a lease the engine needs none.
            FromAgent::Report(what) if matches!(*what, report::What::Beat(_)) => None,
            FromAgent::Report(what) => WorkerMessage::from_report(*what).unwrap_or_else(|bad| {
                tracing::warn!("a report of the worker of this machine is not taken: {bad}");
                None
            }),
        }
    }

    /// The engine's number of a connection to the keeper: a repeated hello on one connection has the same number.
    fn link_id(&self, connection: u64) -> u64 {
        let mut known = lock(&self.connection);
        if known.0 != connection {
            *known = (connection, self.handle.next_link());
        }
        known.1
    }

    /// Logs once for each keeper what it could not set up.
    fn tell(&self, incarnation: u64, notes: &[String]) {
        if self.told.swap(incarnation, Ordering::Relaxed) == incarnation {
            return;
        }
        for note in notes {
            match self.life {
                Life::OfItsOwn if note == NO_CONTROL_GROUPS => tracing::info!("worker {}: {note}", self.name),
                Life::OfItsOwn => tracing::warn!("worker {}: {note}", self.name),
                Life::OfThisRun => message!("note: {note}"),
            }
        }
    }

    fn order(&self, delivery: Delivery, agent: &Agent, bodies: &mut SentBodies, into: &mut Vec<ToKeeper>) {
        let Delivery { seq, order, start } = delivery;
        let mut order = order_to_wire(seq, order);
        match &mut order.what {
            Some(order::What::Welcome(welcome)) => {
                self.epoch.store(welcome.epoch, Ordering::Relaxed);
                if let Some(welcomed) = lock(&self.welcomed).take() {
                    _ = welcomed.send(());
                }
            }
            Some(order::What::Start(message)) => {
                let (Some(start), Some(task)) = (start, &message.task) else { return };
                let key = (task.job, message.step as u16);
                self.give_body(bodies, key, &start.body, &start.job.user, into);
                start.fill_in(message);
            }
            Some(order::What::Resync(_)) => into.push(agent.hello()),
            _ => {}
        }
        // A lease becomes no message: this agent is in the server's process, and its keeper does not fence.
        into.extend(keeper_message(order, self.epoch.load(Ordering::Relaxed)));
    }

    /// Sends a step's body before the first start that needs it.
    fn give_body(
        &self,
        bodies: &mut SentBodies,
        key: (u64, u16),
        body: &StepBody,
        user: &str,
        into: &mut Vec<ToKeeper>,
    ) {
        if bodies.has(key) {
            return;
        }
        for (job, step) in bodies.add(key, body.sent_bytes()) {
            into.push(ToKeeper::DropBody { job, step });
        }
        let (job, step) = key;
        let mut env = body.env.clone();
        env.extend(self.env.clone());
        let resolved = lock(&self.names).resolve(user);
        let refused_now = resolved.as_ref().is_err_and(BadUser::is_worker_s);
        let (run_as, refused) = match resolved {
            Ok(run_as) => (run_as, None),
            Err(bad) => (None, Some(bad.to_string())),
        };
        let message = Body {
            command: body.command.clone(),
            env,
            cwd: body.cwd.clone(),
            umask: body.umask,
            session: body.session.clone(),
            run_as,
            refused,
            refused_now,
            files: body.files.as_ref().map(Into::into),
        };
        into.push(ToKeeper::Body { job, step, body: message });
    }
}

/// Carries messages over one connection to the keeper.
struct Carrier {
    link: Arc<KeeperLink>,
    agent: Agent,
    connection: u64,
    bodies: Mutex<SentBodies>,
}

impl Carrier {
    /// Writes to the keeper's socket. That blocks only while the keeper stands still, for some seconds at most, and where
    /// tasks run as their users while the user database is asked.
    fn carry(&self, parcel: Vec<Delivery>) {
        let mut messages = Vec::with_capacity(parcel.len());
        let mut bodies = lock(&self.bodies);
        for delivery in parcel {
            self.link.order(delivery, &self.agent, &mut bodies, &mut messages);
        }
        self.agent.send(self.connection, &messages);
    }
}

struct LocalLink {
    id: u64,
    carrier: Arc<Carrier>,
    /// To the thread that may wait for the user database, where tasks run as their users. What waits for it is what the
    /// engine has booked on this worker.
    waiting: Option<mpsc::Sender<Vec<Delivery>>>,
}

impl LocalLink {
    fn new(id: u64, carrier: Carrier) -> LocalLink {
        let carrier = Arc::new(carrier);
        let waiting = carrier.link.is_of_machine.then(|| {
            let (sender, parcels) = mpsc::channel();
            let carrier = carrier.clone();
            // It ends with the link, which has the sender.
            std::thread::spawn(move || parcels.into_iter().for_each(|parcel| carrier.carry(parcel)));
            sender
        });
        LocalLink { id, carrier, waiting }
    }
}

impl WorkerLink for LocalLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn version(&self) -> Option<String> {
        Some(env!("CARGO_PKG_VERSION").to_owned())
    }

    fn deliver(&self, parcel: Vec<Delivery>) {
        match &self.waiting {
            // The thread reads for as long as this sender is there.
            Some(waiting) => _ = waiting.send(parcel),
            None => self.carrier.carry(parcel),
        }
    }

    fn refuse(&self, why: &str) {
        tracing::error!("the worker of this machine is not accepted: {why}");
    }

    fn begin_again(&self) {
        let Carrier { agent, connection, .. } = &*self.carrier;
        agent.send(*connection, &[agent.hello()]);
    }

    fn read_log(&self, request: LogRequest) -> LogFuture {
        let logs = self.carrier.agent.logs();
        Box::pin(async move {
            let LogRequest { task, attempt, file, offset, bytes_max } = request;
            let stream = match file {
                LogFile::Output(LogStream::Stdout) => Stream::Out,
                LogFile::Output(LogStream::Stderr) => Stream::Err,
                LogFile::Times => Stream::Times,
            };
            let read = move || logs.read(TaskRef::new(task, attempt), stream, offset, bytes_max);
            let part = tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other)??;
            Ok(part.map(|(next, bytes)| LogChunk { next, bytes }))
        })
    }

    fn drop_logs(&self, jobs: &[JobId]) {
        let (logs, jobs) = (self.carrier.agent.logs(), jobs.to_vec());
        tokio::task::spawn_blocking(move || logs.remove_jobs(jobs.into_iter().map(|job| job.0)));
    }
}

/// The hello for the engine. The agent here notices when the keeper dies, so no lease is needed. The server's owner
/// starts this worker, and may let it serve every kind of client.
fn checked(mut hello: Hello) -> Result<CheckedHello, String> {
    (hello.fences, hello.sent) = (false, 0);
    let hello = hello.into_core().map_err(|bad| bad.to_string())?;
    CheckedHello::of_agent(hello, &SERVABLE).map_err(|bad| bad.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
