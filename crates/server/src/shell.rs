//! The task that owns the engine: handle, round, commit, deliver; and read what the engine asks for.

mod entries;

use crate::background::Background;
use crate::bodies::{self, LoadedBody, StepId};
use crate::body_reads::{BodyReads, read_bodies};
use crate::figures::usage_of;
use crate::handle::{Handle, Parts};
use crate::inbox::Inbox;
use crate::link::{WorkerLink, WorkerMessage};
use crate::notices::{NoticeBook, NoticeRules};
use crate::outgoing::Outgoing;
use crate::peers::OnceRequests;
use crate::spans;
use crate::unavailable::Unavailable;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use windlass_api::JobserverUse;
use windlass_core::engine::{
    Engine, Event, Fetch, Hello, NextBatch, Outbox, Pipeline, Processes, Reply, Report, Settings,
};
use windlass_core::job::{End, JobRecord, TaskResult};
use windlass_core::residency::subqueues::{ParkedCount, ParkedDrift};
use windlass_core::{JobId, RequestId, TaskId, WorkerId};
use windlass_store::{Beside, Store, StoreError};

/// Bookings of one round.
const ROUND_BUDGET: usize = 1024;
/// Messages handled between two rounds.
const INBOX_BATCH_MAX: usize = 1024;
/// Messages that may wait for the engine.
const INBOX_MAX: usize = 16_384;
/// Between two tries when the store fails.
const STORE_RETRY: Duration = Duration::from_millis(500);
/// A commit that takes longer than this is slow: until it ends, leases do not wait for it.
const COMMIT_SLOW: Duration = Duration::from_secs(1);
/// How often the log says that the store still fails.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Reads of the store that are made in one go.
const FETCHES_MAX: usize = 64;
/// Between two comparisons of the store's counts of parked jobs with the jobs.
const AUDIT_INTERVAL: Duration = Duration::from_secs(60);

/// How a shell is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShellOptions {
    /// The engine's settings; the first job's number comes from the store.
    pub settings: Settings,
}

/// A number that no earlier start had.
fn random_number() -> u64 {
    let random = crate::auth::random::<8>().ok();
    // Without random bytes the time is as good: nobody gains by guessing the number.
    random.and_then(|hex| u64::from_str_radix(&hex, 16).ok()).unwrap_or_else(|| crate::auth::now().0)
}

/// Reads what the store holds and starts the engine on a thread of its own. The handle is good until
/// [`Handle::stop`].
pub async fn start(store: Store, options: ShellOptions) -> Result<Handle, StoreError> {
    start_telling(store, options, NoticeRules::default()).await
}

/// As [`start`], for a server that owes notices by these rules. [`deliver_notices`](crate::deliver_notices) delivers
/// them.
pub async fn start_telling(
    store: Store,
    options: ShellOptions,
    rules: NoticeRules,
) -> Result<Handle, StoreError> {
    say_drifts(&store.audit_parked().await?);
    let snapshot = store.load().await?;
    // A store that no other server can use has one owner for ever.
    let epoch = store.ownership().map_or(1, |owned| owned.epoch);
    let settings =
        Settings { first_job: snapshot.next_job, first_alloc: random_number(), ..options.settings };
    let notices = Arc::new(NoticeBook::new(rules));
    let parts = Parts { notices, ..Parts::new(store, Some(epoch)) };
    parts.ended.restore_from(&parts.store, &snapshot.ground.workers).await;
    let engine = Engine::restore(settings, snapshot.ground);
    let (sender, inbox) = mpsc::channel(INBOX_MAX);
    parts.durable_jobs.store(engine.next_job().0, Ordering::Release);
    let handle = Handle::new(sender, parts.clone());
    let mut shell = Shell {
        engine,
        outgoing: Outgoing::new(parts.links.clone(), parts.external.clone()),
        parts,
        pipeline: Pipeline::default(),
        commit_began: Instant::now(),
        pending: BTreeMap::new(),
        next_request: 1,
        once: OnceRequests::default(),
        link_owners: BTreeMap::new(),
        fetches: VecDeque::new(),
        audited: Instant::now(),
        background: Background::here(),
        stalled_by: None,
        stopping: None,
        jobs_of_commit: 0,
    };
    shell.engine.settle_restored(shell.parts.clock.now(), &mut shell.pipeline.forming);
    start_thread(shell, inbox)?;
    Ok(handle)
}

fn start_thread(shell: Shell, inbox: mpsc::Receiver<Inbox>) -> Result<(), StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|source| StoreError::Io { path: "the runtime".into(), source })?;
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || runtime.block_on(shell.run(inbox)))
        .map_err(|source| StoreError::Io { path: "the engine's thread".into(), source })?;
    Ok(())
}

/// A look into the store, and what it makes happen.
type StoreLookup = Pin<Box<dyn Future<Output = Vec<Event>> + Send>>;
/// Jobs being read, and what they run where that is small.
type JobsRead = Pin<Box<dyn Future<Output = (Vec<Event>, Vec<(StepId, Arc<[u8]>)>)> + Send>>;
/// Jobs and counts being read after a failed commit.
type Reread = Pin<Box<dyn Future<Output = Result<(Vec<JobRecord>, Vec<ParkedCount>), StoreError>> + Send>>;
type BodyLoads = Pin<Box<dyn Future<Output = BodyReads> + Send>>;
type Commit = Pin<Box<dyn Future<Output = Result<Vec<usize>, StoreError>> + Send>>;

struct Shell {
    engine: Engine,
    parts: Parts,
    pipeline: Pipeline,
    /// When the commit began that is under way.
    commit_began: Instant,
    pending: BTreeMap<RequestId, oneshot::Sender<Result<Reply, Unavailable>>>,
    next_request: u64,
    once: OnceRequests,
    /// The worker of each connection that has said hello.
    link_owners: BTreeMap<u64, WorkerId>,
    outgoing: Outgoing,
    /// Reads that the engine has asked for and that have not begun.
    fetches: VecDeque<Fetch>,
    /// When the counts of parked jobs were looked at last.
    audited: Instant,
    background: Background,
    stalled_by: Option<Unavailable>,
    stopping: Option<oneshot::Sender<()>>,
    /// The number of the first job that may not be durable once the commit under way is.
    jobs_of_commit: u64,
}

impl Shell {
    async fn run(mut self, mut inbox: mpsc::Receiver<Inbox>) {
        let _guard = AbortOnPanic;
        let mut messages = Vec::new();
        let mut commit: Option<Commit> = None;
        let (mut reading, mut audit): (Option<JobsRead>, Option<StoreLookup>) = (None, None);
        let mut loading: Option<BodyLoads> = None;
        loop {
            if self.pipeline.stalled().is_some() {
                self.recover(&mut inbox).await;
                if self.pipeline.stalled().is_some() {
                    // Told to end while the store fails: nothing durable is lost.
                    break;
                }
            }
            self.refuse_unsendable();
            self.round();
            self.answer_volatile();
            if commit.is_none() {
                commit = self.send_batch();
            }
            reading = reading.or_else(|| self.read());
            audit = audit.or_else(|| self.audit());
            loading = loading.or_else(|| self.load_bodies());
            if self.stopping.is_some() && self.pipeline.is_idle() {
                break;
            }
            let wait_ns = self.engine.next_wakeup().map(|at| at.since(self.parts.clock.now()));
            let wait = Duration::from_nanos(wait_ns.unwrap_or(0));
            tokio::select! {
                biased;
                result = async { commit.as_mut().expect("guarded by the condition").await }, if commit.is_some() => {
                    commit = self.committed(result).await;
                }
                (events, bodies) = async { reading.as_mut().expect("guarded by the condition").await }, if reading.is_some() => {
                    reading = None;
                    bodies.into_iter().for_each(|(step, raw)| self.outgoing.bodies.found(step, raw));
                    events.into_iter().for_each(|event| self.handle(event));
                }
                events = async { audit.as_mut().expect("guarded by the condition").await }, if audit.is_some() => {
                    audit = None;
                    events.into_iter().for_each(|event| self.handle(event));
                }
                reads = async { loading.as_mut().expect("guarded by the condition").await }, if loading.is_some() => {
                    loading = None;
                    self.bodies_loaded(reads);
                }
                n = inbox.recv_many(&mut messages, INBOX_BATCH_MAX) => {
                    if n == 0 {
                        break;
                    }
                    messages.drain(..).for_each(|message| self.take(message));
                }
                () = std::future::ready(()), if wait_ns == Some(0) => self.handle(Event::Tick),
                () = tokio::time::sleep(wait), if wait_ns.is_some_and(|ns| ns > 0) => self.handle(Event::Tick),
            }
        }
        if let Some(done) = self.stopping.take() {
            _ = done.send(());
        }
    }

    /// Begins to read what the engine asked for first.
    fn read(&mut self) -> Option<JobsRead> {
        let some: Vec<Fetch> = self.fetches.drain(..self.fetches.len().min(FETCHES_MAX)).collect();
        if some.is_empty() {
            return None;
        }
        let (store, metrics, began) = (self.parts.store.clone(), self.parts.metrics.clone(), Instant::now());
        Some(self.background.run(async move {
            let numbers: Vec<u64> = some.iter().map(|fetch| fetch.number).collect();
            let found = store.fetch(some).await;
            metrics.read_took(began.elapsed(), found.iter().flatten().flatten().count());
            let failed = |error| tracing::error!("{}", Unavailable::from_store(&error));
            let found = found.map_err(failed).ok();
            let steps = bodies::steps_of(found.iter().flatten().flatten());
            // Where this fails, each is read when it is needed.
            let bodies = store.small_bodies(steps, bodies::TINY_BYTES).await.unwrap_or_default();
            let mut found = found.map(Vec::into_iter);
            let event = |number| {
                let records = found.as_mut().and_then(Iterator::next);
                Event::Fetched { number, records }
            };
            (numbers.into_iter().map(event).collect(), bodies)
        }))
    }

    /// Begins to read what tasks run that are to be started.
    fn load_bodies(&mut self) -> Option<BodyLoads> {
        let wanted = self.outgoing.bodies.take_wanted()?;
        let store = self.parts.store.clone();
        let read = move |steps: Vec<StepId>| {
            let store = store.clone();
            async move { store.bodies(steps).await }
        };
        Some(self.background.run(read_bodies(wanted, STORE_RETRY, read)))
    }

    fn bodies_loaded(&mut self, reads: BodyReads) {
        let now = Instant::now();
        reads.unread.into_iter().for_each(|(step, fault)| self.outgoing.bodies.unread(step, fault, now));
        let mut bytes = 0;
        for (step, body) in reads.bodies {
            let more = if let LoadedBody::Body(_, bytes) = &body { *bytes } else { 0 };
            // Before a large one takes the place of the others, these are used.
            if bytes + more > bodies::BYTES_MAX / 2 {
                self.outgoing.bodies_read(&self.engine);
                bytes = 0;
            }
            bytes += more;
            self.outgoing.bodies.read(step, body);
        }
        self.outgoing.bodies_read(&self.engine);
    }

    /// Begins to compare the store's counts of parked jobs with the jobs, if it is time to.
    fn audit(&mut self) -> Option<StoreLookup> {
        if self.audited.elapsed() < AUDIT_INTERVAL {
            return None;
        }
        self.audited = Instant::now();
        let store = self.parts.store.clone();
        Some(self.background.run(async move {
            match store.audit_parked().await {
                Ok(drifts) if drifts.is_empty() => Vec::new(),
                Ok(drifts) => {
                    say_drifts(&drifts);
                    vec![Event::Audited(drifts)]
                }
                Err(error) => {
                    tracing::error!("{}", Unavailable::from_store(&error));
                    Vec::new()
                }
            }
        }))
    }

    /// Starts that cannot be sent end here: their worker would break off at them again and again.
    fn refuse_unsendable(&mut self) {
        for (worker, task, attempt, why) in self.outgoing.take_unsendable() {
            let Some(epoch) = self.engine.attempt(task).map(|attempt| attempt.epoch) else { continue };
            let bare = TaskResult::bare(End::refused(why));
            let result = TaskResult { finished: Some(self.parts.clock.now()), ..bare };
            // Its process would have run those that ride with it, too.
            let riders = self.engine.riders(task);
            for (task, attempt) in std::iter::once((task, attempt)).chain(riders) {
                let by = Report { worker, epoch, task, attempt };
                self.handle(Event::Finished { by, result: result.clone() });
            }
        }
        for (by, result) in self.parts.external.take_ends() {
            self.handle(Event::Finished { by, result });
        }
    }

    fn round(&mut self) {
        let (started, span) = (Instant::now(), spans::round());
        let booked = self.engine.round(self.parts.clock.now(), ROUND_BUDGET, &mut self.pipeline.forming);
        spans::booked(&span, booked);
        self.parts.metrics.searched(self.engine.planner().searches());
        if booked > 0 {
            self.parts.metrics.round_took(started.elapsed());
        }
    }

    fn take(&mut self, message: Inbox) {
        match message {
            Inbox::Request(event, answer, once) => {
                let request = self.new_request(answer);
                self.once.begin(request, once);
                self.handle(event(request));
            }
            Inbox::Event(event, room) => {
                drop(room);
                self.handle(*event);
            }
            Inbox::Worker { link, messages } => {
                for message in messages {
                    self.worker_says(link, message);
                }
            }
            Inbox::Query(question) => question(&self.engine),
            Inbox::Entries(answer) => _ = answer.send(self.entries()),
            Inbox::Stop(done) => {
                self.engine.save_histories(&mut self.pipeline.forming);
                self.engine.save_turns(&mut self.pipeline.forming);
                self.stopping = Some(done);
            }
        }
    }

    fn new_request(&mut self, answer: oneshot::Sender<Result<Reply, Unavailable>>) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.pending.insert(request, answer);
        self.parts.metrics.requests_waiting.store(self.pending.len() as u64, Ordering::Relaxed);
        request
    }

    fn handle(&mut self, event: Event) {
        self.engine.handle(self.parts.clock.now(), event, &mut self.pipeline.forming);
    }

    fn worker_says(&mut self, link: u64, message: WorkerMessage) {
        if let WorkerMessage::Hello { hello, link } = message {
            match self.parts.sure.is_sure() {
                true => self.worker_hello(*hello.into_inner(), link),
                // Perhaps another server has given it its lease.
                false => link.begin_again(),
            }
            return;
        }
        // A connection that was never accepted, or that another took the place of, says nothing.
        let Some(worker) = self.link_owners.get(&link).copied() else { return };
        let by = |task, attempt, epoch| Report { worker, epoch, task, attempt };
        let event = match message {
            WorkerMessage::Beat { .. } if !self.parts.sure.is_sure() => return,
            WorkerMessage::Beat { sent, mut inventory } => {
                if self.pipeline.is_in_flight() && self.commit_began.elapsed() >= COMMIT_SLOW {
                    self.keep_lease(worker, sent);
                }
                inventory.held.extend(self.parts.external.held_on(worker));
                self.parts.external.repeat_ends(worker);
                Event::Beat { worker, sent, inventory }
            }
            WorkerMessage::Started { task, attempt, epoch, at } => {
                // What its worker did with its files before is done.
                self.parts.progress.forget(task);
                Event::Started { by: by(task, attempt, epoch), at }
            }
            WorkerMessage::Finished { task, attempt, epoch, result } => {
                self.parts.progress.forget(task);
                self.parts.jobservers.forget(task);
                Event::Finished { by: by(task, attempt, epoch), result }
            }
            WorkerMessage::Load(report) => Event::Load { worker, report },
            WorkerMessage::Caches(keys) => Event::Caches { worker, keys },
            WorkerMessage::Reclaimed { task, attempt, epoch } => {
                Event::Reclaimed { by: by(task, attempt, epoch) }
            }
            WorkerMessage::Progress { task, attempt, progress, .. } => {
                if self.is_booked(worker, task, attempt) {
                    self.parts.progress.set(task, attempt, progress);
                }
                return;
            }
            WorkerMessage::Cpus { task, attempt, processes } => {
                if !self.is_booked(worker, task, attempt) {
                    return;
                }
                self.parts.jobservers.set(task, attempt, processes);
                let JobserverUse { share, used, held_back, .. } = processes;
                let said = Processes { share, used, is_held_back: held_back.is_some() };
                Event::Processes { worker, task, attempt, said }
            }
            WorkerMessage::Lost | WorkerMessage::Hello { .. } => {
                self.link_owners.remove(&link);
                self.parts.links.remove(worker);
                self.outgoing.forget(worker);
                Event::Lost { worker }
            }
        };
        self.handle(event);
    }

    /// True if this attempt of the task is the one that is booked there.
    fn is_booked(&self, worker: WorkerId, task: TaskId, attempt: u32) -> bool {
        let booked = self.engine.attempt(task);
        booked.is_some_and(|booked| booked.number == attempt && booked.worker == worker)
    }

    /// The number of the message that answered the worker's last hello.
    fn welcome_of(&self, worker: WorkerId) -> Option<u64> {
        self.engine.workers().get(worker).map(|worker| worker.link.welcome_seq)
    }

    fn worker_hello(&mut self, mut hello: Hello, link: Arc<dyn WorkerLink>) {
        let named = self.engine.workers().by_name(&hello.name).map(|worker| worker.record.id);
        let known = named.and_then(|id| self.parts.links.get(id));
        hello.new_link = known.is_none_or(|known| known.id() != link.id());
        if let Err(refusal) = self.engine.admit(&hello) {
            link.refuse(&refusal.to_string());
            return;
        }
        let name = hello.name.clone();
        let welcome_before = named.and_then(|id| self.welcome_of(id));
        if let Some(worker) = named {
            hello.inventory.held.extend(self.parts.external.held_on(worker));
            self.parts.external.repeat_ends(worker);
        }
        self.handle(Event::Hello(Box::new(hello)));
        let Some(worker) = self.engine.workers().by_name(&name).map(|worker| worker.record.id) else {
            return;
        };
        if self.welcome_of(worker) != welcome_before {
            // A hello that was not taken, because it came late, is answered by nothing: what waits has to go out.
            self.outgoing.forget(worker);
        }
        self.link_owners.insert(link.id(), worker);
        let id = link.id();
        if let Some(before) = self.parts.links.insert(worker, link).filter(|before| before.id() != id) {
            self.link_owners.remove(&before.id());
            before.refuse("another connection of this worker has taken its place");
        }
    }

    /// Answers that hang on no write do not wait for one.
    fn answer_volatile(&mut self) {
        for (request, answer) in self.pipeline.take_volatile() {
            self.answer(request, Ok(answer));
        }
    }

    /// Gives the forming batch to the store. One that writes nothing is delivered at once.
    fn send_batch(&mut self) -> Option<Commit> {
        match self.pipeline.next_batch(&mut self.engine)? {
            NextBatch::Deliver(batch) => {
                self.deliver(*batch);
                None
            }
            NextBatch::Commit(batch) => Some(self.begin_commit(batch)),
        }
    }

    fn begin_commit(&mut self, batch: Arc<Outbox>) -> Commit {
        self.parts.metrics.batch_writes.observe(batch.writes.len() as f64);
        self.commit_began = Instant::now();
        self.jobs_of_commit = self.engine.next_job().0;
        let (store, span) = (self.parts.store.clone(), spans::commit(batch.writes.len()));
        let book = self.parts.notices.clone();
        let now = self.parts.clock.now();
        let notices = book.owed(&self.engine, &batch, now);
        let used = usage_of(&self.engine, &batch, now);
        let (owes, done) = (!notices.is_empty(), self.once.rows(&batch));
        Box::pin(async move {
            let result = store.commit_with(batch, Beside { done, notices, used }).await;
            if owes {
                book.ring();
            }
            spans::committed(&span, result.as_ref().map(Vec::len));
            result
        })
    }

    /// Takes what a commit came to. The store begins with the next batch, which is returned, before the durable one goes
    /// out: with thousands of orders that takes as long as a tenth of a commit.
    async fn committed(&mut self, result: Result<Vec<usize>, StoreError>) -> Option<Commit> {
        self.parts.metrics.commit_took(self.commit_began.elapsed());
        let refused = match result {
            Ok(refused) => refused,
            Err(error) => {
                self.failed(&error);
                return None;
            }
        };
        self.parts.durable_jobs.store(self.jobs_of_commit, Ordering::Release);
        let committed = self.pipeline.committed(&mut self.engine, &refused);
        if !refused.is_empty() {
            tracing::warn!(rows = refused.len(), "another scheduler had changed rows");
            let why = Unavailable::new("another scheduler changed the job; try again");
            for request in committed.undone {
                self.answer(request, Err(why.clone()));
            }
            self.stalled_by = Some(why);
        }
        let (mut commit, mut unwritten) = (None, None);
        match self.pipeline.next_batch(&mut self.engine) {
            Some(NextBatch::Commit(batch)) => {
                let mut begun = self.begin_commit(batch);
                commit = Some(match poll_fn(|cx| Poll::Ready(begun.as_mut().poll(cx))).await {
                    Poll::Ready(result) => Box::pin(ready(result)) as Commit,
                    Poll::Pending => begun,
                });
            }
            // It goes out behind the one before it.
            Some(NextBatch::Deliver(batch)) => unwritten = Some(batch),
            None => {}
        }
        self.deliver(committed.batch);
        unwritten.into_iter().for_each(|batch| self.deliver(*batch));
        commit
    }

    /// Nothing of the batch is durable, nor of the one that formed on top of it.
    fn failed(&mut self, error: &StoreError) {
        let why = Unavailable::from_store(error);
        tracing::error!("{why}");
        if matches!(error, StoreError::Full(_)) {
            self.parts.disk.give_way();
        }
        for request in self.pipeline.failed(&mut self.engine) {
            self.answer(request, Err(why.clone()));
        }
        self.parts.metrics.store_failed();
        self.stalled_by = Some(why);
    }

    /// Reads again the jobs that the stalled pipeline names, after a failed commit or refused rows. Until that works, requests
    /// are refused, and reports of workers are dropped, for workers repeat them when they are asked to. All else waits. The
    /// pipeline stays stalled if the server is told to end.
    async fn recover(&mut self, inbox: &mut mpsc::Receiver<Inbox>) {
        let Some(touched) = self.pipeline.stalled().cloned() else { return };
        let Some(why) = self.stalled_by.clone() else { return };
        let (mut later, mut workers) = (Vec::new(), BTreeMap::<u64, WorkerMessage>::new());
        let retry = tokio::time::sleep(STORE_RETRY);
        tokio::pin!(retry);
        // A store that does not answer must not hold up leases.
        let mut reading: Option<Reread> = None;
        let mut told = None::<Instant>;
        while self.stopping.is_none() {
            tokio::select! {
                biased;
                () = &mut retry, if reading.is_none() => reading = Some(self.read_again(&touched)),
                read = async { reading.as_mut().expect("guarded by the condition").await }, if reading.is_some() => {
                    reading = None;
                    match read {
                        Ok((records, parked)) => {
                            let now = self.parts.clock.now();
                            self.pipeline.reload(&mut self.engine, now, records, parked);
                            later.into_iter().for_each(|event| self.take(event));
                            workers.into_iter().for_each(|(link, message)| self.worker_says(link, message));
                            return;
                        }
                        Err(error) => {
                            if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                                tracing::error!("{}", Unavailable::from_store(&error));
                                told = Some(Instant::now());
                            }
                            retry.as_mut().reset(tokio::time::Instant::now() + STORE_RETRY);
                        }
                    }
                }
                message = inbox.recv() => match message {
                    Some(Inbox::Request(_, answer, _)) => _ = answer.send(Err(why.clone())),
                    Some(Inbox::Worker { link, messages }) => {
                        messages.iter().for_each(|message| self.hear_while_stalled(link, message));
                        // Only a worker's hello has the way to reach it. The last of its messages counts.
                        let counts = |m: &WorkerMessage| matches!(m, WorkerMessage::Hello { .. } | WorkerMessage::Lost);
                        match messages.into_iter().rfind(counts) {
                            // Of a connection that came and went meanwhile nothing is left.
                            Some(WorkerMessage::Lost) if !self.link_owners.contains_key(&link) => _ = workers.remove(&link),
                            Some(last) => _ = workers.insert(link, last),
                            None => {}
                        }
                    }
                    Some(Inbox::Query(question)) => question(&self.engine),
                    Some(Inbox::Entries(answer)) => _ = answer.send(self.entries()),
                    Some(Inbox::Stop(done)) => self.stopping = Some(done),
                    // No more than there is room for: see `EVENTS_MAX`.
                    Some(event @ Inbox::Event(..)) => later.push(event),
                    None => return,
                },
            }
        }
    }

    /// Takes a worker's message while nothing can be written: a beat extends its lease.
    fn hear_while_stalled(&mut self, link: u64, message: &WorkerMessage) {
        let WorkerMessage::Beat { sent, .. } = message else { return };
        let Some(worker) = self.link_owners.get(&link).copied() else { return };
        if self.parts.sure.is_sure() {
            self.keep_lease(worker, *sent);
        }
    }

    /// Extends a worker's lease although nothing can be written, or a commit takes long. That is safe: a server that starts
    /// with what was written gives all leases from scratch.
    fn keep_lease(&mut self, worker: WorkerId, sent: u64) {
        let mut out = Outbox::default();
        self.engine.keep_lease(self.parts.clock.now(), worker, sent, &mut out);
        self.outgoing.send(&self.engine, out.sends.drain(..));
    }

    /// Reads what the store says of these jobs, and of how much is parked.
    fn read_again(&self, touched: &BTreeSet<JobId>) -> Reread {
        let (store, touched) = (self.parts.store.clone(), touched.clone());
        self.background.run(async move {
            let records = store.records(touched).await?;
            Ok::<_, StoreError>((records, store.parked_counts().await?))
        })
    }

    /// The batch is durable: tell everybody.
    fn deliver(&mut self, mut batch: Outbox) {
        self.parts.metrics.count(&batch.facts);
        self.parts.placed.take(&self.engine, &batch.facts);
        for error in self.parts.estimates.take(&batch.facts) {
            self.parts.metrics.start_estimate_error.observe(error);
        }
        self.parts.ended.take(&self.engine, &batch.facts, self.parts.clock.now());
        self.parts.events.publish(&self.engine, &batch);
        self.engine.committed(&batch);
        self.parts.external.settle(&batch.facts);
        self.outgoing.bodies.submitted(&batch.writes);
        self.fetches.extend(batch.fetches.drain(..));
        self.parts.job_ends.ended(&batch.ended);
        for job in &batch.ended {
            self.outgoing.bodies.forget(*job);
            self.parts.progress.forget_job(*job);
            self.parts.jobservers.forget_job(*job);
        }
        self.outgoing.send(&self.engine, batch.sends.drain(..));
        for (request, answer) in batch.replies.drain(..) {
            self.answer(request, Ok(answer));
        }
        self.pipeline.reuse(batch);
    }

    fn answer(&mut self, request: RequestId, answer: Result<Reply, Unavailable>) {
        self.once.end(request);
        if let Some(waiting) = self.pending.remove(&request) {
            self.parts.metrics.requests_waiting.store(self.pending.len() as u64, Ordering::Relaxed);
            // The client that asked may have gone.
            _ = waiting.send(answer);
        }
    }
}

/// A server whose engine is gone could only refuse everything. It ends instead, and another takes over:
/// what was accepted is in the store.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn say_drifts(drifts: &[ParkedDrift]) {
    for ParkedDrift { queue, counted, found, .. } in drifts {
        tracing::warn!(
            "{} parked jobs of queue '{queue}' were counted as {}; the count is right now",
            found.jobs,
            counted.jobs
        );
    }
}

#[cfg(test)]
mod tests;
