//! Events for clients that watch the farm, made from the engine's notes once they are durable, and only
//! while a client listens.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
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
}

impl Events {
    pub fn new() -> Self {
        Events { sender: broadcast::channel(EVENTS_MAX).0 }
    }

    pub fn subscribe(&self) -> Subscription {
        self.sender.subscribe()
    }

    pub fn listeners(&self) -> usize {
        self.sender.receiver_count()
    }

    /// Tells the listeners. The engine must still hold the jobs that ended in this batch.
    pub fn publish(&self, engine: &Engine, batch: &Outbox) {
        if self.sender.receiver_count() == 0 {
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
                    tracing::info!("worker {name}: {what}");
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
        // An error says that nobody listens any more.
        _ = self.sender.send(Arc::new(event));
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
