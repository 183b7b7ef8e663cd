//! The laboratory: one task that plays the worker's side for all hosts. It handles a batch of messages and writes the
//! changes in one transaction. Only then it tells providers, machines that boot, the engine and the requests that
//! asked.

mod clients;
mod filler;
mod fills;
mod host;
mod hosts;
mod link;
mod run;
mod runs;
mod watch;

pub(crate) use clients::{Session, UnsentMessages};
pub(crate) use host::{Host, Machine, MachineName};
pub(crate) use run::{Runs, Speaker};

use crate::files::Files;
use crate::format::{ClusterSpec, Fields};
use crate::number::{KnownTask, number_of, task_of};
use crate::record::{BadUpdate, Params, Record};
use crate::time::now_s;
use clients::Clients;
use filler::{Fill, fill_all};
use link::{HostLink, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use windlass_api::{JobState as JobWord, ServerEvent};
use windlass_core::engine::WorkerCommand;
use windlass_core::tags::Attributes;
use windlass_core::worker::{Origin, WorkerRecord};
use windlass_core::{JobId, Resources};
use windlass_server::{Delivery, Handle, Subscription, WorkerMessage};
use windlass_store::{ForeignWrite, StoreError};

/// The beginning of the names under which clusters are stored among the hosts. Names of hosts have no '/'.
const CLUSTERS: &str = "cluster/";
/// Clusters that are registered at a time.
const CLUSTERS_MAX: usize = 10_000;
/// Messages of one batch, whose changes are written together.
const BATCH_MAX: usize = 256;
/// The interval at which deadlines are checked.
const TICK: Duration = Duration::from_secs(1);
/// The delay before a failed write is repeated.
const STORE_RETRY: Duration = Duration::from_millis(500);

/// Messages to the laboratory from requests and sockets.
pub(crate) enum Ask {
    /// An update of a job's progress. Replies once it is durable.
    Update {
        job: JobId,
        params: Params,
        speaker: Speaker,
        reply: Option<oneshot::Sender<Result<String, BadUpdate>>>,
    },
    /// A provider connected, by this address of the server.
    Opened { host: String, session: Session, server: String },
    /// A provider reports its free resources, and asks for work.
    Requested { host: String, session: u64, fields: Box<Fields> },
    /// A provider passes on output of a job: of its log, or of its console.
    Passed { host: String, job: JobId, text: String, console: bool },
    /// It is not connected any more.
    Closed { host: String, session: u64 },
    /// A machine boots, and waits for a job.
    Booting { machine: Machine },
    /// A machine stopped waiting.
    Left { ticket: u64 },
    /// Registers a host, or reports its metrics.
    Register { host: String, fields: Box<Fields>, metrics: bool, reply: oneshot::Sender<Result<(), String>> },
    /// Ends the job of a cluster's node. Replies with false if it does not run.
    Terminate { job: JobId, reply: oneshot::Sender<bool> },
    /// Registers a cluster's machines.
    Cluster { name: String, spec: ClusterSpec, reply: oneshot::Sender<Result<(), String>> },
    /// A client opened its socket.
    ClientOpened(Session),
    /// A client's message about an existing job.
    ClientSaid { session: u64, kind: String, job: JobId, text: String },
    /// It is not connected any more.
    ClientClosed(u64),
    /// Reads the laboratory's state.
    Look(Box<dyn FnOnce(&Lab) + Send>),
}

/// What happens once a batch is durable.
enum Effect {
    /// Send messages to the engine in the name of a host.
    Tell { host: String, link: Option<Arc<HostLink>>, messages: Vec<WorkerMessage> },
    /// Give a job to its host.
    Boot(JobId),
    /// Run a function that cannot fail.
    Run(Box<dyn FnOnce() + Send + Sync>),
}

/// All hosts and their jobs.
pub(crate) struct Lab {
    handle: Handle,
    changes: broadcast::Sender<JobId>,
    fills: mpsc::UnboundedSender<Fill>,
    /// For links and the filler.
    itself: mpsc::UnboundedSender<Report>,
    reports: mpsc::UnboundedReceiver<Report>,
    /// The engine's events, subscribed to only while there are runs.
    events: Option<Subscription>,
    pub(crate) hosts: BTreeMap<String, Host>,
    /// The registered clusters, by name.
    pub(crate) clusters: BTreeMap<String, ClusterSpec>,
    /// Incarnation, capacity and attributes of hosts that the engine knew when this server started.
    known: BTreeMap<String, (u64, Resources, Attributes)>,
    pub(crate) runs: Runs,
    /// The last attempt of each job that was given back unsent.
    returned: BTreeMap<JobId, u32>,
    pub(crate) clients: Clients,
    writes: Vec<ForeignWrite>,
    effects: Vec<Effect>,
}

impl Lab {
    /// Loads hosts, clusters and runs from the store.
    pub async fn load(
        handle: Handle,
        changes: broadcast::Sender<JobId>,
        files: Arc<Files>,
    ) -> Result<Lab, StoreError> {
        // Unbounded, because commands come from the engine's thread, which must not wait. Their number is bounded by
        // the hosts' tasks.
        let (itself, reports) = mpsc::unbounded_channel();
        let (fills, to_fill) = mpsc::unbounded_channel();
        tokio::spawn(fill_all(to_fill, files, itself.clone()));
        let mut lab = Lab {
            changes,
            fills,
            itself,
            reports,
            events: None,
            hosts: BTreeMap::new(),
            clusters: BTreeMap::new(),
            known: BTreeMap::new(),
            runs: Runs::default(),
            returned: BTreeMap::new(),
            clients: Clients::default(),
            writes: Vec::new(),
            effects: Vec::new(),
            handle,
        };
        let kept = lab.handle.store().foreign_docs().await?;
        for (name, text) in kept.hosts {
            if let Some(cluster) = name.strip_prefix(CLUSTERS) {
                match ClusterSpec::of_text(&text) {
                    Ok(spec) => _ = lab.clusters.insert(cluster.to_owned(), spec),
                    Err(why) => tracing::error!("what is kept of cluster '{cluster}' cannot be read: {why}"),
                }
                continue;
            }
            let info = serde_json::from_str(&text).unwrap_or_default();
            lab.hosts.insert(name.clone(), Host::new(name, info));
        }
        for (job, text) in kept.open {
            match serde_json::from_str::<Record>(&text) {
                Ok(record) => lab.adopt(job, record),
                Err(e) => tracing::error!("what is kept of job {job} cannot be read: {e}"),
            }
        }
        let known = |engine: &windlass_core::Engine| {
            let hosts = engine.workers().iter().filter_map(|worker| {
                let WorkerRecord { name, incarnation, capacity, attributes, .. } = &worker.record;
                let own_name = Origin::Compass.own_name(name)?.to_owned();
                Some((own_name, (*incarnation, capacity.clone(), attributes.clone())))
            });
            hosts.collect()
        };
        lab.known = lab.handle.query(known).await.unwrap_or_default();
        Ok(lab)
    }

    /// Handles messages until the server ends.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Ask>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut asks, mut reports) = (Vec::new(), Vec::new());
        self.reconcile().await;
        self.tell_ends();
        self.flush().await;
        loop {
            self.listen().await;
            tokio::select! {
                n = inbox.recv_many(&mut asks, BATCH_MAX) => if n == 0 { break },
                // The laboratory holds a sender itself, so this channel never closes.
                _ = self.reports.recv_many(&mut reports, BATCH_MAX) => {}
                event = hear(&mut self.events) => self.happened(event).await,
                _ = tick.tick() => self.tick(),
                () = self.handle.ends() => break,
            }
            for ask in asks.drain(..) {
                self.take(ask).await;
            }
            for report in reports.drain(..) {
                self.take_report(report).await;
            }
            self.flush().await;
        }
        // Dropping the hosts ends their sockets. The next server greets them again.
        self.hosts.clear();
    }

    async fn take(&mut self, ask: Ask) {
        match ask {
            Ask::Update { job, params, speaker, reply } => {
                let answer = self.update(job, &params, &speaker);
                if let Some(reply) = reply {
                    self.after(move || _ = reply.send(answer));
                } else if let Err(why) = answer {
                    tracing::warn!("an update of job {job} by its host is not taken: {why}");
                }
            }
            Ask::Opened { host, session, server } => self.opened(host, session, server),
            Ask::Requested { host, session, fields } => {
                if self.requested(&host, session, *fields) {
                    self.fill_rest(&host).await;
                }
            }
            Ask::Passed { host, job, text, console } => self.passed(&host, job, &text, console),
            Ask::Closed { host, session } => self.closed(&host, session),
            Ask::Booting { machine } => self.booting(machine).await,
            Ask::Left { ticket } => self.left(ticket),
            Ask::Register { host, fields, metrics, reply } => {
                let answer = self.register(host, *fields, metrics);
                self.after(move || _ = reply.send(answer));
            }
            Ask::Terminate { job, reply } => {
                let runs = self.terminate_node(job);
                self.after(move || _ = reply.send(runs));
            }
            Ask::Cluster { name, spec, reply } => {
                let answer = self.register_cluster(name, spec);
                self.after(move || _ = reply.send(answer));
            }
            Ask::ClientOpened(session) => self.clients.open(session),
            Ask::ClientSaid { session, kind, job, text } => self.client_said(session, &kind, job, text),
            Ask::ClientClosed(session) => self.clients.close(session),
            Ask::Look(question) => question(self),
        }
    }

    async fn take_report(&mut self, report: Report) {
        match report {
            Report::Delivered { host, parcel } => {
                for delivery in parcel {
                    self.delivered(&host, delivery).await;
                }
            }
            Report::Refused { host, link, why } => self.refused(&host, link, &why),
            Report::Filled { job, attempt, filled } => self.filled(job, attempt, filled),
        }
    }

    async fn delivered(&mut self, host: &str, delivery: Delivery) {
        let Delivery { seq, order, start } = delivery;
        if let Some(host) = self.hosts.get_mut(host) {
            host.seq = host.seq.max(seq);
        }
        match order {
            WorkerCommand::Registered { epoch } => {
                if let Some(host) = self.hosts.get_mut(host) {
                    host.epoch = epoch;
                }
            }
            WorkerCommand::Start { task, attempt, request, time_limit_ms, .. } => {
                let Some(start) = start else { return };
                self.start(host, task, attempt, (request.memory, time_limit_ms), start).await;
            }
            WorkerCommand::Kill { task, attempt } => self.kill(host, task, attempt),
            WorkerCommand::Ack { task, attempt } => self.acknowledged(number_of(task), attempt),
            WorkerCommand::Reclaim { task, attempt } => {
                let epoch = self.epoch_of(host);
                self.tell(host, vec![WorkerMessage::Reclaimed { task, attempt, epoch }]);
            }
            WorkerCommand::Resync => self.say_hello(host),
            // A host starts every job that it is sent, lends no resources, and has neither a lease nor a jobserver.
            WorkerCommand::Recall { .. }
            | WorkerCommand::Lend { .. }
            | WorkerCommand::Lease { .. }
            | WorkerCommand::ShareCpus { .. } => {}
        }
    }

    /// Writes the changes and then runs the effects, until neither is left.
    async fn flush(&mut self) {
        while !self.writes.is_empty() || !self.effects.is_empty() {
            let writes = std::mem::take(&mut self.writes);
            if !writes.is_empty() && !self.write(writes).await {
                // The server ends while the store fails. No effect of the lost changes has run.
                self.effects.clear();
                return;
            }
            for effect in std::mem::take(&mut self.effects) {
                match effect {
                    Effect::Tell { host, link, messages } => self.tell_now(&host, link, messages).await,
                    Effect::Boot(job) => self.boot_now(job),
                    Effect::Run(run) => run(),
                }
            }
        }
    }

    /// Writes until the store succeeds. False if the server ends first.
    async fn write(&self, writes: Vec<ForeignWrite>) -> bool {
        let closing = self.handle.closing();
        loop {
            let Err(error) = self.handle.store().write_foreign(writes.clone()).await else { return true };
            tracing::error!("{}", windlass_server::Unavailable::from_store(&error));
            if *closing.borrow() {
                return false;
            }
            tokio::time::sleep(STORE_RETRY).await;
        }
    }

    fn after(&mut self, run: impl FnOnce() + Send + Sync + 'static) {
        self.effects.push(Effect::Run(Box::new(run)));
    }

    fn tell(&mut self, host: &str, messages: Vec<WorkerMessage>) {
        if messages.is_empty() {
            return;
        }
        let link = self.hosts.get(host).and_then(|host| host.link.clone());
        self.effects.push(Effect::Tell { host: host.to_owned(), link, messages });
    }

    /// Subscribes to events while there are runs. A subscription keeps an idle server from ending.
    async fn listen(&mut self) {
        let idle = self.runs.iter().next().is_none();
        match (idle, self.events.is_some()) {
            (true, true) => self.events = None,
            (false, false) => {
                self.events = Some(self.handle.subscribe());
                self.reconcile().await;
                self.flush().await;
            }
            _ => {}
        }
    }

    /// Handles an event; `None` if events were missed.
    async fn happened(&mut self, event: Option<Arc<ServerEvent>>) {
        let job = match event.as_deref() {
            None => return self.reconcile().await,
            Some(ServerEvent::Tasks(tasks)) => tasks.job,
            Some(ServerEvent::Job(job)) if !matches!(job.state, JobWord::Pending | JobWord::Running) => {
                job.job
            }
            Some(_) => return,
        };
        let runs = self.runs.of_job(JobId(job)).collect();
        self.reconcile_some(runs).await;
    }

    async fn reconcile(&mut self) {
        self.reconcile_some(self.runs.iter().map(|(job, _)| job).collect()).await;
    }

    /// Compares runs with the engine's attempts. A run whose attempt the engine no longer has was concluded by the
    /// engine.
    async fn reconcile_some(&mut self, jobs: BTreeSet<JobId>) {
        if jobs.is_empty() {
            return;
        }
        let ids = jobs.clone();
        let booked = move |engine: &windlass_core::Engine| {
            let one = |number| (number, KnownTask::of(engine, task_of(number)));
            ids.into_iter().map(one).collect::<BTreeMap<_, _>>()
        };
        // The query fails only when the server ends.
        let Ok(booked) = self.handle.query(booked).await else { return };
        for (job, known) in booked {
            let active = known.as_ref().is_some_and(|known| known.end.is_none());
            self.concluded(job, known.and_then(|known| known.attempt), active);
        }
    }

    /// Registers a cluster's machines.
    fn register_cluster(&mut self, name: String, spec: ClusterSpec) -> Result<(), String> {
        if !self.clusters.contains_key(&name) && self.clusters.len() >= CLUSTERS_MAX {
            return Err(format!("there are {CLUSTERS_MAX} clusters already"));
        }
        let doc = serde_json::to_string(&spec).expect("texts and numbers always serialize");
        self.writes.push(ForeignWrite::Host { name: format!("{CLUSTERS}{name}"), doc });
        self.clusters.insert(name, spec);
        Ok(())
    }

    fn tick(&mut self) {
        let (now, at) = (now_s(), Instant::now());
        self.tick_hosts(at);
        self.tick_runs(now, at);
    }

    /// Writes a run's record, and drops the run once it is closed.
    fn keep(&mut self, job: JobId) {
        let Some(run) = self.runs.get(job) else { return };
        let open = !(run.acknowledged && run.record.is_closed());
        self.writes.push(ForeignWrite::Job { job, open, doc: run.record.to_text() });
        let changes = self.changes.clone();
        // The send fails if there is no listener.
        self.after(move || _ = changes.send(job));
        if !open {
            self.runs.remove(job);
            let told = self.clients.forget(job);
            self.after(told);
        }
    }
}

async fn hear(events: &mut Option<Subscription>) -> Option<Arc<ServerEvent>> {
    match events {
        Some(events) => events.recv().await.ok(),
        None => std::future::pending().await,
    }
}
