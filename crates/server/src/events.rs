//! What happens, for those who watch: made from the engine's notes once they are durable, and only
//! while somebody listens.

use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::broadcast;
use windlass_api::{JobEvent, JobState, ServerEvent, TaskEvent, TasksEvent, WorkerEvent, exit_code_of};
use windlass_core::JobId;
use windlass_core::engine::{Engine, Fact, Outbox, Write};
use windlass_core::job::{self, Counts, TaskState};

/// Events that a slow listener may be behind before it misses some.
const EVENTS_MAX: usize = 4096;

/// A listener's end.
pub type Subscription = broadcast::Receiver<Arc<ServerEvent>>;

/// All listeners.
#[derive(Clone)]
pub struct Events {
    sender: broadcast::Sender<Arc<ServerEvent>>,
}

impl Events {
    /// No listeners yet.
    pub fn new() -> Self {
        Events { sender: broadcast::channel(EVENTS_MAX).0 }
    }

    /// Listens from now on.
    pub fn subscribe(&self) -> Subscription {
        self.sender.subscribe()
    }

    /// How many listen.
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
        for note in &batch.notes {
            match note {
                Fact::Started { task, attempt, .. } => {
                    changes.entry(task.job).or_default().push(bare(task.index, TaskState::Running, *attempt));
                }
                Fact::Ended { task, attempt, state, result } => {
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
            self.send(ServerEvent::Tasks(event));
        }
        // A job's end comes after the ends of its tasks.
        jobs.into_iter().for_each(|event| self.send(event));
    }

    fn send(&self, event: ServerEvent) {
        // An error says that nobody listens any more.
        _ = self.sender.send(Arc::new(event));
    }
}

fn bare(index: u32, state: TaskState, attempt: u32) -> TaskEvent {
    TaskEvent { index, state: state.into(), attempt, exit_code: None, out_bytes: 0, err_bytes: 0 }
}

fn job_event(job: JobId, state: windlass_core::job::JobState, held: bool, counts: Counts) -> ServerEvent {
    let state = JobState::from_core(state, held, &counts);
    ServerEvent::Job(JobEvent { job: job.0, state, counts: counts.into() })
}
