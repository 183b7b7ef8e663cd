//! Events for clients that watch the farm, made from the engine's notes once they are durable, and only
//! while a client listens.

mod history;

use history::EventHistory;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use windlass_api::{JobEvent, JobState, ServerEvent, TaskEvent, TasksEvent, WorkerEvent, exit_code_of};
use windlass_core::JobId;
use windlass_core::engine::{Engine, Fact, Outbox, Write};
use windlass_core::job::{self, Counts, TaskState};

/// Events that a slow listener may be behind before it misses some.
const EVENTS_MAX: usize = 4096;

/// What one listener receives.
pub type Subscription = broadcast::Receiver<Arc<ServerEvent>>;

/// Sends events to all that subscribed. Clones send to the same.
#[derive(Clone)]
pub struct Events {
    sender: broadcast::Sender<Arc<ServerEvent>>,
    /// Locked while an event is sent, so that all receive events in the order of their numbers.
    history: Arc<Mutex<EventHistory>>,
    /// Tells this run of the server from all others, whose numbers mean other events.
    run: Arc<str>,
}

impl Events {
    pub fn new() -> Self {
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Events {
            sender: broadcast::channel(EVENTS_MAX).0,
            history: Arc::default(),
            run: format!("{:x}{:x}", started.as_nanos(), std::process::id()).into(),
        }
    }

    pub fn subscribe(&self) -> Subscription {
        self.sender.subscribe()
    }

    /// The events for a client: those after the one of this id, or those from now on. If some of them are gone, the
    /// stream begins with [`ServerEvent::Lagged`].
    pub fn stream(&self, after: Option<&str>) -> EventStream {
        let mut history = self.history.lock();
        history.open();
        let missed = match after {
            None => Some(VecDeque::new()),
            Some(id) => self.number_of(id).and_then(|number| history.after(number)),
        };
        let is_behind = missed.is_none();
        let missed = missed.unwrap_or_default();
        let number = history.last() - missed.len() as u64;
        EventStream { receiver: self.sender.subscribe(), events: self.clone(), number, is_behind, missed }
    }

    /// The number in an id of this run.
    fn number_of(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&*self.run)?.strip_prefix('-')?.parse().ok()
    }

    /// True while events have a listener, or a client may come back for them.
    pub fn is_wanted(&self) -> bool {
        self.listeners() > 0 || self.history.lock().is_wanted(Instant::now())
    }

    pub fn listeners(&self) -> usize {
        self.sender.receiver_count()
    }

    /// True if what happened is told. Otherwise it is noted that something is left out.
    fn is_told(&self, facts: &[Fact]) -> bool {
        let mut history = self.history.lock();
        let is_told = self.listeners() > 0 || history.is_wanted(Instant::now());
        if !is_told && !facts.is_empty() {
            history.skip();
        }
        is_told
    }

    /// Tells the listeners, and the log of workers. The engine must still hold the jobs that ended in this batch.
    pub fn publish(&self, engine: &Engine, batch: &Outbox) {
        log_workers(&batch.facts);
        if !self.is_told(&batch.facts) {
            return;
        }
        // One that was parked at once is as it was submitted.
        let submitted = |job: JobId| {
            batch.writes.iter().find_map(|write| match write {
                Write::Job { id, spec, .. } if *id == job => Some(job::untouched_counts(spec)),
                _ => None,
            })
        };
        let counts_of = |job: JobId| {
            engine.job(job).map(|job| job.counts()).or_else(|| submitted(job)).unwrap_or_default()
        };
        let mut changes: BTreeMap<JobId, Vec<TaskEvent>> = BTreeMap::new();
        let mut jobs = Vec::new();
        for note in &batch.facts {
            match note {
                Fact::Started { task, attempt, .. } => {
                    changes.entry(task.job).or_default().push(bare(task.index, TaskState::Running, *attempt));
                }
                Fact::Ended { task, attempt, state, result, .. } => {
                    changes.entry(task.job).or_default().push(TaskEvent {
                        exit_code: exit_code_of(result),
                        out_bytes: result.out_bytes,
                        err_bytes: result.err_bytes,
                        ..bare(task.index, *state, *attempt)
                    });
                }
                Fact::Job { job, state } => {
                    let held = engine.job(*job).is_some_and(|job| job.held);
                    jobs.push(job_event(*job, *state, held, counts_of(*job)));
                }
                Fact::JobEnded { job, state, counts } => jobs.push(job_event(*job, *state, false, *counts)),
                Fact::Worker { name, what, .. } => {
                    let event = WorkerEvent { worker: name.clone(), what: (*what).to_owned() };
                    jobs.push(ServerEvent::Worker(event));
                }
                Fact::Booked { .. } | Fact::Late { .. } => {}
            }
        }
        for (job, tasks) in changes {
            let event = TasksEvent { job: job.0, counts: counts_of(job).into(), tasks };
            self.tell(ServerEvent::Tasks(event));
        }
        // A job's end comes after the ends of its tasks.
        jobs.into_iter().for_each(|event| self.tell(event));
    }

    pub fn tell(&self, event: ServerEvent) {
        let event = Arc::new(event);
        let mut history = self.history.lock();
        history.add(&event, Instant::now());
        // An error says that nobody listens any more.
        _ = self.sender.send(event);
    }
}

/// Writes what happened to workers to the log. An administrator reads it after a slow night, so it does not depend on
/// listeners.
fn log_workers(facts: &[Fact]) {
    for fact in facts {
        if let Fact::Worker { name, what, .. } = fact {
            tracing::info!("worker {name}: {what}");
        }
    }
}

/// The numbered events of one client.
pub struct EventStream {
    receiver: Subscription,
    events: Events,
    /// Number of the last event that was received, or before the first one of the stream.
    number: u64,
    /// Some events are gone, and the client is to be told so first.
    is_behind: bool,
    /// Events from before the stream began, to be received first.
    missed: VecDeque<Arc<ServerEvent>>,
}

impl EventStream {
    /// The id of the last event that was received; at first that of the place where the stream begins. `None` until the
    /// client was told that it has missed some.
    pub fn id(&self) -> Option<String> {
        (!self.is_behind).then(|| format!("{}-{}", self.events.run, self.number))
    }

    /// The next event, or [`ServerEvent::Lagged`] where some were missed.
    pub async fn recv(&mut self) -> Option<Arc<ServerEvent>> {
        if std::mem::take(&mut self.is_behind) {
            return Some(Arc::new(ServerEvent::Lagged));
        }
        let (event, count) = match self.missed.pop_front() {
            Some(event) => (event, 1),
            None => match self.receiver.recv().await {
                Ok(event) => (event, 1),
                Err(RecvError::Lagged(count)) => (Arc::new(ServerEvent::Lagged), count),
                Err(RecvError::Closed) => return None,
            },
        };
        self.number += count;
        Some(event)
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.events.history.lock().close(Instant::now());
    }
}

/// How often a listener who wants no single tasks is told of a job's counts.
const BRIEF_EVERY: Duration = Duration::from_secs(1);

/// What a listener who wants no single tasks is still to be told. It holds at most one event of each job of which
/// something was told lately.
#[derive(Default)]
pub struct BriefEvents {
    /// Told in this order, as soon as possible.
    next: VecDeque<Arc<ServerEvent>>,
    /// The latest counts of jobs, told together.
    counts: BTreeMap<u64, windlass_api::Counts>,
    /// When counts were told last.
    told: Option<Instant>,
}

impl BriefEvents {
    pub fn add(&mut self, event: Arc<ServerEvent>) {
        match &*event {
            ServerEvent::Tasks(tasks) => _ = self.counts.insert(tasks.job, tasks.counts),
            ServerEvent::Lagged => {
                // All is read again.
                self.counts.clear();
                self.next.push_back(event);
            }
            ServerEvent::Job(_) | ServerEvent::Worker(_) => {
                // It has the job's counts.
                if let Some(job) = event.job() {
                    self.counts.remove(&job);
                }
                self.next.push_back(event);
            }
        }
    }

    /// True if the listener was told all.
    pub fn is_empty(&self) -> bool {
        self.next.is_empty() && self.counts.is_empty()
    }

    pub fn next(&mut self, now: Instant) -> Option<Arc<ServerEvent>> {
        // Not by `due`: for the first after a while that is its own now, and so always a little later than `now`.
        let due = !self.counts.is_empty() && self.told.is_none_or(|told| told + BRIEF_EVERY <= now);
        if self.next.is_empty() && due {
            self.told = Some(now);
            for (job, counts) in std::mem::take(&mut self.counts) {
                let event = TasksEvent { job, counts, tasks: Vec::new() };
                self.next.push_back(Arc::new(ServerEvent::Tasks(event)));
            }
        }
        self.next.pop_front()
    }

    /// When there is something to tell, if nothing more happens; the past is at once.
    pub fn due(&self) -> Option<Instant> {
        if self.counts.is_empty() {
            return None;
        }
        // The first after a while is told at once.
        Some(self.told.map_or_else(Instant::now, |told| told + BRIEF_EVERY))
    }
}

fn bare(index: u32, state: TaskState, attempt: u32) -> TaskEvent {
    TaskEvent { index, state: state.into(), attempt, exit_code: None, out_bytes: 0, err_bytes: 0 }
}

fn job_event(job: JobId, state: windlass_core::job::JobState, held: bool, counts: Counts) -> ServerEvent {
    let state = JobState::from_core(state, held, &counts);
    ServerEvent::Job(JobEvent { job: job.0, state, counts: counts.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(job: u64, running: u32) -> Arc<ServerEvent> {
        let counts = windlass_api::Counts { running, ..Default::default() };
        let tasks = vec![bare(0, TaskState::Running, 1); 1_000];
        Arc::new(ServerEvent::Tasks(TasksEvent { job, counts, tasks }))
    }

    fn told(brief: &mut BriefEvents, now: Instant) -> Vec<(u64, u32)> {
        let events = std::iter::from_fn(|| brief.next(now));
        let told = events.map(|event| match &*event {
            ServerEvent::Tasks(event) => {
                assert!(event.tasks.is_empty());
                (event.job, event.counts.running)
            }
            ServerEvent::Job(event) => (event.job, 0),
            other => panic!("{other:?}"),
        });
        told.collect()
    }

    /// The messages of the log.
    #[derive(Clone, Default)]
    struct LoggedLines(Arc<Mutex<Vec<String>>>);

    impl tracing::field::Visit for LoggedLines {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.lock().push(format!("{value:?}"));
            }
        }
    }

    impl tracing::Subscriber for LoggedLines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn the_log_says_what_happens_to_workers_while_nobody_listens() {
        let (events, log) = (Events::new(), LoggedLines::default());
        let engine = Engine::new(windlass_core::engine::Settings::default());
        let fact = |what| Fact::Worker { worker: windlass_core::WorkerId(1), name: "box1".to_owned(), what };
        let whats = ["suspect", "up", "held by memory pressure", "no longer held by pressure", "expired"];
        let batch = Outbox { facts: whats.map(fact).into(), ..Outbox::default() };
        assert!(!events.is_wanted());
        tracing::subscriber::with_default(log.clone(), || events.publish(&engine, &batch));
        assert_eq!(*log.0.lock(), whats.map(|what| format!("worker box1: {what}")));
    }

    async fn received(stream: &mut EventStream, count: usize) -> Vec<Option<u64>> {
        let mut jobs = Vec::new();
        for _ in 0..count {
            jobs.push(stream.recv().await.unwrap().job());
        }
        jobs
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_comes_back_misses_nothing() {
        let events = Events::new();
        let mut first = events.stream(None);
        let begin = first.id().unwrap();
        events.tell((*tasks(1, 1)).clone());
        events.tell((*tasks(2, 1)).clone());
        assert_eq!(received(&mut first, 1).await, [Some(1)]);
        let id = first.id().unwrap();
        drop(first);
        events.tell((*tasks(3, 1)).clone());
        let mut second = events.stream(Some(&id));
        events.tell((*tasks(4, 1)).clone());
        assert_eq!(received(&mut second, 3).await, [Some(2), Some(3), Some(4)]);
        let mut again = events.stream(Some(&begin));
        assert_eq!(received(&mut again, 4).await, [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(again.id(), second.id());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_comes_back_too_late_is_told_so() {
        let events = Events::new();
        let id = events.stream(None).id().unwrap();
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(!events.is_wanted());
        assert_eq!(events.stream(Some(&id)).missed.len(), 0);
        tokio::time::advance(Duration::from_secs(61)).await;
        events.tell((*tasks(1, 1)).clone());
        for id in [id.as_str(), "other-0", "", format!("{}-7", events.run).as_str()] {
            let mut late = events.stream(Some(id));
            assert_eq!(late.id(), None, "{id}");
            events.tell((*tasks(2, 1)).clone());
            assert_eq!(received(&mut late, 2).await, [None, Some(2)], "{id}");
        }
        // More than is kept.
        let mut slow = events.stream(None);
        let id = slow.id().unwrap();
        (0..70).for_each(|job| events.tell((*tasks(job, 1)).clone()));
        assert_eq!(received(&mut events.stream(Some(&id)), 1).await, [None]);
        assert_eq!(received(&mut slow, 1).await, [Some(0)]);
    }

    #[test]
    fn counts_are_told_once_a_second_and_the_last_of_them_always() {
        let (mut brief, start) = (BriefEvents::default(), Instant::now());
        assert_eq!((brief.due(), told(&mut brief, start)), (None, vec![]));
        brief.add(tasks(7, 1));
        assert_eq!(told(&mut brief, start), [(7, 1)], "the first at once");
        (2..100).for_each(|running| brief.add(tasks(7, running)));
        brief.add(tasks(8, 5));
        assert_eq!(told(&mut brief, start + Duration::from_millis(999)), []);
        assert_eq!(brief.due(), Some(start + BRIEF_EVERY));
        assert_eq!(told(&mut brief, start + BRIEF_EVERY), [(7, 99), (8, 5)]);
        assert_eq!(brief.due(), None);
    }

    #[test]
    fn what_happens_to_a_job_is_told_at_once_and_has_its_counts() {
        let (mut brief, start) = (BriefEvents::default(), Instant::now());
        brief.told = Some(start);
        brief.add(tasks(7, 1));
        brief.add(Arc::new(job_event(
            JobId(7),
            windlass_core::job::JobState::Succeeded,
            false,
            Counts::default(),
        )));
        assert_eq!(told(&mut brief, start), [(7, 0)]);
        assert_eq!(told(&mut brief, start + BRIEF_EVERY), []);
    }
}
