//! The handle: how requests, workers and gateways reach the engine's thread.

use crate::clock::Clock;
use crate::disk::Disk;
use crate::events::{Events, Subscription};
use crate::external::{ExternalOrder, ExternalTasks};
use crate::figures::{EndedAttempts, PlacedSteps, StartEstimates};
use crate::inbox::Inbox;
use crate::job_ends::JobEnds;
use crate::link::{Links, Progress, WorkerMessage};
use crate::metrics::{Entries, Metrics};
use crate::notices::NoticeBook;
use crate::panics::in_request_here;
use crate::peers::{Once, SureUntil};
use crate::progress::LastSaid;
use crate::unavailable::Unavailable;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot, watch};
use windlass_api::JobserverUse;
use windlass_core::engine::{Engine, Event, Reply};
use windlass_core::job::TaskResult;
use windlass_core::{JobId, RequestId, TaskId, Time, WorkerId};
use windlass_store::{Store, StoreError};

/// Events that need no answer and that the engine has not taken up; above that callers wait. The engine takes up none while
/// the store fails.
const EVENTS_MAX: usize = 16_384;

/// How many times as long as a copy of the engine took no other is made: copies take a twentieth of its time at most.
const COPY_PAUSE_FACTOR: u32 = 20;

/// A way to the engine; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    inbox: mpsc::Sender<Inbox>,
    shared: Arc<Shared>,
}

/// What the handle shares with the shell. Clones share it, too.
#[derive(Clone)]
pub(crate) struct Parts {
    pub store: Store,
    pub disk: Arc<Disk>,
    pub events: Events,
    pub metrics: Arc<Metrics>,
    /// Attempts that ended, for figures about the past.
    pub ended: Arc<EndedAttempts>,
    /// Names of what was placed lately.
    pub placed: Arc<PlacedSteps>,
    /// When some waiting tasks are expected to start.
    pub estimates: Arc<StartEstimates>,
    pub links: Arc<Links>,
    pub progress: Arc<LastSaid<Progress>>,
    /// What jobservers give to running tasks.
    pub jobservers: Arc<LastSaid<JobserverUse>>,
    pub external: Arc<ExternalTasks>,
    pub clock: Arc<Clock>,
    /// Who is told of what ends.
    pub notices: Arc<NoticeBook>,
    /// Which jobs are over of which something is kept.
    pub job_ends: Arc<JobEnds>,
    /// Until when no other server can own the farm.
    pub sure: Arc<SureUntil>,
    /// The number of the first job that may not be durable yet.
    pub durable_jobs: Arc<AtomicU64>,
}

impl Parts {
    /// Those of a server that owns the farm under this epoch, or owns nothing.
    pub fn new(store: Store, farm_epoch: Option<u64>) -> Parts {
        let disk = Arc::new(Disk::of_store(store.path()));
        disk.prepare();
        Parts {
            store,
            disk,
            events: Events::new(),
            metrics: Arc::new(Metrics::new(farm_epoch)),
            ended: Arc::default(),
            placed: Arc::default(),
            estimates: Arc::default(),
            links: Arc::default(),
            progress: Arc::default(),
            jobservers: Arc::default(),
            external: Arc::default(),
            clock: Arc::new(Clock::new()),
            notices: Arc::default(),
            job_ends: Arc::default(),
            sure: Arc::new(SureUntil::for_ever()),
            durable_jobs: Arc::new(AtomicU64::new(0)),
        }
    }
}

struct Shared {
    parts: Parts,
    /// Room for events that need no answer.
    room: Arc<Semaphore>,
    closing: watch::Sender<bool>,
    /// The number of the connection of a worker that came last.
    last_link: AtomicU64,
    last_copy: Mutex<LastCopy>,
    /// One permit: a question of a copy may take as much memory as the engine.
    long_questions: Semaphore,
}

/// The copy of the engine that was made last.
struct LastCopy {
    begun: Instant,
    /// Before this none is made.
    next: Instant,
    /// Only those who ask it keep it.
    engine: Weak<EngineCopy>,
}

/// Caches inside of an engine keep it from being read by several threads at once.
type EngineCopy = std::sync::Mutex<Engine>;

impl Handle {
    pub(crate) fn new(inbox: mpsc::Sender<Inbox>, parts: Parts) -> Self {
        let (closing, _) = watch::channel(false);
        let room = Arc::new(Semaphore::new(EVENTS_MAX));
        let now = Instant::now();
        let shared = Shared {
            parts,
            room,
            closing,
            last_link: AtomicU64::new(0),
            last_copy: Mutex::new(LastCopy { begun: now, next: now, engine: Weak::new() }),
            long_questions: Semaphore::new(1),
        };
        Handle { inbox, shared: Arc::new(shared) }
    }

    /// A handle of a server that owns nothing: it reads the store and passes on events, and has no engine.
    pub(crate) fn without_engine(store: Store) -> Handle {
        let (inbox, _) = mpsc::channel(1);
        Handle::new(inbox, Parts::new(store, None))
    }

    /// What the shell shares with everything that has a handle.
    pub(crate) fn parts(&self) -> &Parts {
        &self.shared.parts
    }

    /// The job that the store has under a user's key, and the number of the first job that this read may have missed:
    /// `existing` and `read_before` of a [`Submit`](windlass_core::engine::Submit).
    pub async fn job_by_key(&self, user: &str, key: &str) -> Result<(Option<JobId>, JobId), StoreError> {
        let read_before = JobId(self.shared.parts.durable_jobs.load(Ordering::Acquire));
        let existing = self.store().job_by_key(user.to_owned(), key.to_owned()).await?;
        Ok((existing, read_before))
    }

    /// Sets until when this server surely owns its farm, as time since the machine was started. Afterwards it extends no
    /// worker's lease. Never called for a store that no other server can use.
    pub fn sure_until(&self, end: Duration) {
        self.shared.parts.sure.set(end);
    }

    /// False where another server may own the farm by now.
    pub fn is_sure(&self) -> bool {
        self.shared.parts.sure.is_sure()
    }

    /// Returns once another server may own the farm.
    pub(crate) async fn doubt(&self) {
        self.shared.parts.sure.ended().await;
    }

    /// Asks for something and waits for the answer, which comes when it is durable.
    pub async fn request(
        &self,
        event: impl FnOnce(RequestId) -> Event + Send + 'static,
    ) -> Result<Reply, Unavailable> {
        self.request_once(None, event).await
    }

    /// As [`Handle::request`]. Where the request has a key, the commit that does it keeps that it was done.
    pub(crate) async fn request_once(
        &self,
        once: Option<Once>,
        event: impl FnOnce(RequestId) -> Event + Send + 'static,
    ) -> Result<Reply, Unavailable> {
        let (answer, wait) = oneshot::channel();
        let message = Inbox::Request(Box::new(event), answer, once.map(Box::new));
        self.inbox.try_send(message).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => Unavailable::new("too many requests wait; try again"),
            mpsc::error::TrySendError::Closed(_) => closed(),
        })?;
        wait.await.map_err(|_| closed())?
    }

    /// Tells the engine something that needs no answer.
    pub async fn tell(&self, event: Event) {
        let room = self.shared.room.clone().acquire_owned().await.expect("nothing closes it");
        // A closed inbox is a server that ends: nobody is left to care.
        _ = self.inbox.send(Inbox::Event(Box::new(event), room)).await;
    }

    /// As [`Handle::tell`], from where nothing can wait, such as a drop: a task waits in its place.
    pub fn tell_later(&self, event: Event) {
        // Without a runtime the process ends.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let handle = self.clone();
        runtime.spawn(async move { handle.tell(event).await });
    }

    /// Passes on what a worker says, from a thread that may wait. False once the server has ended.
    pub fn worker_says(&self, link: u64, messages: Vec<WorkerMessage>) -> bool {
        self.inbox.blocking_send(Inbox::Worker { link, messages }).is_ok()
    }

    /// As [`Handle::worker_says`], from a task.
    pub async fn worker_tells(&self, link: u64, messages: Vec<WorkerMessage>) -> bool {
        self.inbox.send(Inbox::Worker { link, messages }).await.is_ok()
    }

    /// The time by the engine's clock.
    pub fn now(&self) -> Time {
        self.shared.parts.clock.now()
    }

    /// A number for a new connection of a worker. No other connection to this engine has it.
    pub fn next_link(&self) -> u64 {
        self.shared.last_link.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Asks about the engine's state. `question` runs on the engine's thread: it must be quick.
    pub async fn query<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (answer, wait) = oneshot::channel();
        let ask = move |engine: &Engine| _ = answer.send(question(engine));
        self.inbox.send(Inbox::Query(Box::new(ask))).await.map_err(|_| closed())?;
        wait.await.map_err(|_| closed())
    }

    /// The id of the worker of that name; `None` if there is none.
    pub async fn worker_id(&self, name: &str) -> Result<Option<WorkerId>, Unavailable> {
        let name = name.to_owned();
        self.query(move |engine| engine.workers().by_name(&name).map(|worker| worker.record.id)).await
    }

    /// A copy of the engine as it is now, for questions that take long: they are asked on another thread, and one at a
    /// time. Copies take no more than a part of the engine's time, and questions that wait meanwhile share one.
    pub async fn ask_copy<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let engine = self.copy().await?;
        let _turn = self.shared.long_questions.acquire().await.expect("nothing closes it");
        let asked =
            move || in_request_here(|| question(&engine.lock().unwrap_or_else(PoisonError::into_inner)));
        match tokio::task::spawn_blocking(asked).await {
            Ok(answer) => Ok(answer),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// True while a question of a copy is answered.
    pub(crate) fn is_asked_for_long(&self) -> bool {
        self.shared.long_questions.available_permits() == 0
    }

    async fn copy(&self) -> Result<Arc<EngineCopy>, Unavailable> {
        let asked = Instant::now();
        let mut last = self.shared.last_copy.lock().await;
        // One that was begun after this was asked shows all that came before.
        if let Some(engine) = last.engine.upgrade().filter(|_| last.begun >= asked) {
            return Ok(engine);
        }
        tokio::time::sleep_until(last.next.into()).await;
        let begun = Instant::now();
        let copy = |engine: &Engine| {
            let began = Instant::now();
            (Arc::new(EngineCopy::new(engine.clone())), began.elapsed())
        };
        let (engine, took) = self.query(copy).await?;
        let next = Instant::now() + took.saturating_mul(COPY_PAUSE_FACTOR);
        *last = LastCopy { begun, next, engine: Arc::downgrade(&engine) };
        Ok(engine)
    }

    /// How many entries the tables have of what is under way in the engine and around it.
    pub(crate) async fn entries(&self) -> Result<Entries, Unavailable> {
        let (answer, wait) = oneshot::channel();
        self.inbox.send(Inbox::Entries(answer)).await.map_err(|_| closed())?;
        wait.await.map_err(|_| closed())
    }

    /// What happens from now on.
    pub fn subscribe(&self) -> Subscription {
        self.shared.parts.events.subscribe()
    }

    /// The store, for reading.
    pub fn store(&self) -> &Store {
        &self.shared.parts.store
    }

    /// Requests that the engine has taken up and not answered.
    pub fn requests_waiting(&self) -> u64 {
        self.shared.parts.metrics.requests_waiting.load(Ordering::Relaxed)
    }

    /// Attends to an external job from now on, in the place of the client before.
    pub fn attend(&self, job: JobId) -> mpsc::UnboundedReceiver<ExternalOrder> {
        let orders = self.shared.parts.external.attend(job);
        self.wake_for_ends();
        orders
    }

    /// Ends what [`Handle::attend`] began. True if no other client took over meanwhile.
    pub fn leave(&self, job: JobId, orders: mpsc::UnboundedReceiver<ExternalOrder>) -> bool {
        let left = self.shared.parts.external.leave(job, orders);
        self.wake_for_ends();
        left
    }

    /// The engine's thread takes the ends of external tasks when it wakes.
    fn wake_for_ends(&self) {
        if self.shared.parts.external.has_ends() {
            // Where the inbox is full it is awake.
            _ = self.inbox.try_send(Inbox::Query(Box::new(|_| ())));
        }
    }

    /// External jobs with a booked attempt to which nobody has attended for the given time.
    pub fn unattended(&self, for_at_least: Duration) -> Vec<JobId> {
        self.shared.parts.external.unattended(for_at_least)
    }

    /// The client of an external task began with an attempt. False if that is not the booked one.
    pub async fn external_began(&self, task: TaskId, attempt: u32) -> bool {
        let at = self.now();
        let Some(by) = self.shared.parts.external.began(task, attempt, at) else { return false };
        self.tell(Event::Started { by, at }).await;
        true
    }

    /// The client of an external task says how an attempt ended. Returns the attempt's worker; `None` if the attempt is
    /// not the booked one, or ended before.
    pub async fn external_ended(&self, task: TaskId, attempt: u32, result: TaskResult) -> Option<WorkerId> {
        let result = TaskResult { finished: Some(self.now()), ..result };
        let (by, result) = self.shared.parts.external.finish(task, attempt, result)?;
        self.tell(Event::Finished { by, result }).await;
        Some(by.worker)
    }

    /// Tells all workers that jobs are forgotten. Those that are not reached ask about old output when they come back.
    pub(crate) fn drop_logs(&self, jobs: &[JobId]) {
        for link in self.shared.parts.links.all() {
            link.drop_logs(jobs);
        }
    }

    /// Turns true when the server ends: streams and waits end then.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.shared.closing.subscribe()
    }

    /// Returns once the server ends.
    pub async fn ends(&self) {
        _ = self.closing().wait_for(|closing| *closing).await;
    }

    /// Begins the end: streams and waits end, requests are still answered.
    pub fn close(&self) {
        self.shared.closing.send_replace(true);
    }

    /// Ends the engine when what is under way is committed.
    pub async fn stop(&self) {
        self.close();
        let (done, wait) = oneshot::channel();
        if self.inbox.send(Inbox::Stop(done)).await.is_ok() {
            _ = wait.await;
        }
    }
}

fn closed() -> Unavailable {
    Unavailable::new("the server is ending")
}
