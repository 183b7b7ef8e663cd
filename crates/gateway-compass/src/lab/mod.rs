//! The one task that plays all hosts' side towards the engine. What a batch of messages changes is written in
//! one transaction, and only then is anybody told: a provider, a machine that boots, the engine, whoever asked.

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

use crate::closing::ended;
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
use windlass_core::worker::{Origin, Worker};
use windlass_core::{JobId, Resources};
use windlass_server::{Delivery, Handle, Subscription, WorkerMessage};
use windlass_store::{ForeignWrite, StoreError};

/// What begins the name under which a cluster is kept among the hosts, whose own names have no '/'.
const CLUSTERS: &str = "cluster/";
/// Clusters that are kept.
const CLUSTERS_MAX: usize = 10_000;
/// Messages that are handled before what they change is written.
const BATCH_MAX: usize = 256;
/// Between two looks at what is due.
const TICK: Duration = Duration::from_secs(1);
/// Between two tries when the store fails.
const STORE_RETRY: Duration = Duration::from_millis(500);

/// What comes in.
pub(crate) enum Ask {
    /// Something is told of a job.
    Update {
        job: JobId,
        params: Params,
        speaker: Speaker,
        reply: Option<oneshot::Sender<Result<String, BadUpdate>>>,
    },
    /// A provider is connected, at this address of the server.
    Opened { host: String, session: Session, server: String },
    /// It says what it has, and asks for work.
    Requested { host: String, session: u64, fields: Box<Fields> },
    /// It passes something on to those who watch a job.
    Passed { host: String, job: JobId, text: String, console: bool },
    /// It is not connected any more.
    Closed { host: String, session: u64 },
    /// A machine boots and asks for work.
    Booting { machine: Machine },
    /// It does not wait any more.
    Left { ticket: u64 },
    /// Somebody says what a host is.
    Register { host: String, fields: Box<Fields>, metrics: bool, reply: oneshot::Sender<Result<(), String>> },
    /// A user wants the job of a cluster's node ended; answered with false if it does not run.
    Terminate { job: JobId, reply: oneshot::Sender<bool> },
    /// Somebody says what machines a cluster has.
    Cluster { name: String, spec: ClusterSpec, reply: oneshot::Sender<Result<(), String>> },
    /// A client is connected.
    ClientOpened(Session),
    /// It wants something of a job that is there.
    ClientSaid { session: u64, kind: String, job: JobId, text: String },
    /// It is not connected any more.
    ClientClosed(u64),
    /// Somebody looks.
    Look(Box<dyn FnOnce(&Lab) + Send>),
}

/// What is done once all is written.
enum Effect {
    /// Tell the engine on behalf of a host.
    Tell { host: String, link: Option<Arc<HostLink>>, messages: Vec<WorkerMessage> },
    /// Give a job to its host.
    Boot(JobId),
    /// Anything that cannot fail.
    Run(Box<dyn FnOnce() + Send + Sync>),
}

/// All hosts and what they run.
pub(crate) struct Lab {
    handle: Handle,
    changes: broadcast::Sender<JobId>,
    /// Jobs of which it is to be looked up what their machines get.
    fills: mpsc::UnboundedSender<Fill>,
    /// The way back here, for links.
    itself: mpsc::UnboundedSender<Report>,
    reports: mpsc::UnboundedReceiver<Report>,
    /// What happens to jobs, listened to only while there are runs.
    events: Option<Subscription>,
    pub(crate) hosts: BTreeMap<String, Host>,
    /// The machines of clusters, by name.
    pub(crate) clusters: BTreeMap<String, ClusterSpec>,
    /// Hosts as the engine knows them from before: their incarnations, what they have and are.
    known: BTreeMap<String, (u64, Resources, Attributes)>,
    pub(crate) runs: Runs,
    /// Attempts that were given back unsent, by job.
    returned: BTreeMap<JobId, u32>,
    pub(crate) clients: Clients,
    writes: Vec<ForeignWrite>,
    effects: Vec<Effect>,
}

impl Lab {
    /// As the store has it.
    pub async fn load(
        handle: Handle,
        changes: broadcast::Sender<JobId>,
        files: Arc<Files>,
    ) -> Result<Lab, StoreError> {
        // Parcels come from the engine's thread, which must not wait; they are as many as hosts have tasks.
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
        for (name, text) in lab.handle.store().foreign_hosts().await? {
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
        for (job, text) in lab.handle.store().foreign_open().await? {
            match serde_json::from_str::<Record>(&text) {
                Ok(record) => lab.adopt(job, record),
                Err(e) => tracing::error!("what is kept of job {job} cannot be read: {e}"),
            }
        }
        let known = |engine: &windlass_core::Engine| {
            let known =
                |worker: &Worker| (worker.incarnation, worker.capacity.clone(), worker.attributes.clone());
            let hosts = engine.workers().iter().filter_map(|worker| {
                Some((Origin::Compass.own_name(&worker.name)?.to_owned(), known(worker)))
            });
            hosts.collect()
        };
        lab.known = lab.handle.query(known).await.unwrap_or_default();
        Ok(lab)
    }

    /// Goes on until the server ends.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Ask>) {
        let mut closing = self.handle.closing();
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
                // The laboratory has a sender of its own: there always is one.
                _ = self.reports.recv_many(&mut reports, BATCH_MAX) => {}
                event = hear(&mut self.events) => self.happened(event).await,
                _ = tick.tick() => self.tick(),
                () = ended(&mut closing) => break,
            }
            for ask in asks.drain(..) {
                self.take(ask).await;
            }
            for report in reports.drain(..) {
                self.take_report(report).await;
            }
            self.flush().await;
        }
        // Sockets end with the server by themselves; hosts are met again by the next one.
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
            // A host starts what it is sent, is never lent from, and has no lease.
            WorkerCommand::Recall { .. } | WorkerCommand::Lend { .. } | WorkerCommand::Lease { .. } => {}
        }
    }

    /// Writes what changed and then tells, until nothing is left to do.
    async fn flush(&mut self) {
        while !self.writes.is_empty() || !self.effects.is_empty() {
            let writes = std::mem::take(&mut self.writes);
            if !writes.is_empty() && !self.write(writes).await {
                // The server ends while the store fails: nobody was told of what is lost.
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

    /// False if the server ends before the store takes it.
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

    /// Listens to what happens to jobs while there is one to hear of: an idle server may end otherwise.
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

    /// Something happened; `None` if some of it was missed.
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

    /// Brings runs in line with what the engine has booked: what it does not have at the host any more was
    /// concluded by it.
    async fn reconcile_some(&mut self, jobs: BTreeSet<JobId>) {
        if jobs.is_empty() {
            return;
        }
        let ids = jobs.clone();
        let booked = move |engine: &windlass_core::Engine| {
            let one = |number| (number, KnownTask::of(engine, task_of(number)));
            ids.into_iter().map(one).collect::<BTreeMap<_, _>>()
        };
        // A server that ends needs no answer.
        let Ok(booked) = self.handle.query(booked).await else { return };
        for (job, known) in booked {
            let active = known.as_ref().is_some_and(|known| known.end.is_none());
            self.concluded(job, known.and_then(|known| known.attempt), active);
        }
    }

    /// Somebody says what machines a cluster has.
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

    /// What is kept of a run, from now on.
    fn keep(&mut self, job: JobId) {
        let Some(run) = self.runs.get(job) else { return };
        let open = !(run.acknowledged && run.record.is_closed());
        self.writes.push(ForeignWrite::Job { job, open, doc: run.record.to_text() });
        let changes = self.changes.clone();
        // Nobody may wait for it.
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
