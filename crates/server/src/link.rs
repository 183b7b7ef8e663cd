//! The messages between the shell and a worker's agent, apart from the protocol that carries them.

use crate::token_end::TokenEnd;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use windlass_api::wire::{self, BadLoad, BadMessage, Start, cut, report};
use windlass_api::{BODY_BYTES_MAX, JobserverUse, LogStream, StepBody, TaskValue};
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::{CheckedHello, Inventory, WorkerCommand};
use windlass_core::job::{JobSpec, TaskResult};
use windlass_core::load::pressure::LoadReport;
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

/// A connection to a worker's agent.
pub trait WorkerLink: Send + Sync {
    /// Its own number, from [`Handle::next_link`](crate::Handle::next_link).
    fn id(&self) -> u64;

    /// The agent's release, as far as it said so.
    fn version(&self) -> Option<String> {
        None
    }

    /// When the token with which it was opened ends; `None` if it does not.
    fn token_end(&self) -> Option<TokenEnd> {
        None
    }

    /// Carries messages to the worker, in order. Called on the engine's thread: it must not wait.
    fn deliver(&self, parcel: Vec<Delivery>);

    /// Ends the connection: the worker is not accepted, or has another connection.
    fn refuse(&self, why: &str);

    /// The worker is to say hello again: it was forgotten while it was connected.
    fn begin_again(&self) {
        self.refuse("this worker was forgotten");
    }

    /// Reads a part of an attempt's output; `None` where nothing was written. A worker whose tasks write elsewhere has
    /// none.
    fn read_log(&self, _request: LogRequest) -> LogFuture {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// These jobs are forgotten, and so is their output.
    fn drop_logs(&self, _jobs: &[JobId]) {}
}

/// The bodies that a worker's keeper has: it keeps what it is sent until it is told to drop it.
#[derive(Default)]
pub struct SentBodies {
    /// With their bytes, oldest first.
    sent: VecDeque<((u64, u16), usize)>,
    bytes: usize,
}

impl SentBodies {
    /// How many there may be.
    const COUNT_MAX: usize = 64;
    /// Bytes that they may have together; one may have more alone.
    const BYTES_MAX: usize = BODY_BYTES_MAX;

    /// True if the keeper has this step's.
    pub fn has(&self, step: (u64, u16)) -> bool {
        self.sent.iter().any(|(sent, _)| *sent == step)
    }

    /// Another one is sent; returns those that the keeper drops for it. Starts that it has already keep theirs.
    pub fn add(&mut self, step: (u64, u16), bytes: usize) -> Vec<(u64, u16)> {
        let mut dropped = Vec::new();
        while (self.sent.len() >= Self::COUNT_MAX || self.bytes + bytes > Self::BYTES_MAX)
            && let Some((oldest, bytes)) = self.sent.pop_front()
        {
            self.bytes -= bytes;
            dropped.push(oldest);
        }
        self.bytes += bytes;
        self.sent.push_back((step, bytes));
        dropped
    }

    /// The keeper may be another than before, which has none.
    pub fn clear(&mut self) {
        *self = SentBodies::default();
    }
}

/// The answer to [`WorkerLink::read_log`].
pub type LogFuture = Pin<Box<dyn Future<Output = io::Result<Option<LogChunk>>> + Send>>;

/// The connections of all workers that are reached now.
#[derive(Default)]
pub(crate) struct Links {
    open: Mutex<BTreeMap<WorkerId, Arc<dyn WorkerLink>>>,
}

impl Links {
    pub fn get(&self, worker: WorkerId) -> Option<Arc<dyn WorkerLink>> {
        self.open.lock().get(&worker).cloned()
    }

    pub fn all(&self) -> Vec<Arc<dyn WorkerLink>> {
        self.open.lock().values().cloned().collect()
    }

    /// The ends of the tokens that the workers show.
    pub fn token_ends(&self) -> Vec<(WorkerId, TokenEnd)> {
        self.open.lock().iter().filter_map(|(worker, link)| Some((*worker, link.token_end()?))).collect()
    }

    pub fn len(&self) -> usize {
        self.open.lock().len()
    }

    /// Puts a connection in the place of the one before, which is returned.
    pub fn insert(&self, worker: WorkerId, link: Arc<dyn WorkerLink>) -> Option<Arc<dyn WorkerLink>> {
        self.open.lock().insert(worker, link)
    }

    pub fn remove(&self, worker: WorkerId) {
        self.open.lock().remove(&worker);
    }
}

/// One message to a worker.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The number of the message.
    pub seq: u64,
    /// The command without what a start runs.
    pub order: WorkerCommand,
    /// With a start: what to run.
    pub start: Option<StartInfo>,
}

/// What a task runs.
#[derive(Clone, Debug)]
pub struct StartInfo {
    /// The command and the environment of its step.
    pub body: Arc<StepBody>,
    /// Its value, where its step has a list of values.
    pub value: Option<String>,
    /// The job that it belongs to.
    pub job: Arc<JobSpec>,
    /// Its values by the names of parameters.
    pub params: Vec<TaskValue>,
    /// The values of all tasks of its process, where each is an argument of its own.
    pub chunk_values: Vec<String>,
}

impl StartInfo {
    /// Adds to the message of a start its values, and what is known of its step. The body goes before it.
    pub fn fill_in(self, message: &mut Start) {
        let hints = self.job.steps.get(message.step as usize).map(|step| &step.hints);
        message.network_bound = hints.is_some_and(|hints| hints.network_bound);
        message.jobserver = hints.and_then(wire::Jobserver::of_step);
        message.value = self.value;
        message.chunk_values = self.chunk_values;
        message.values = self.params.into_iter().map(Into::into).collect();
    }
}

/// How far a task says that it is. Unknown is `None`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// How far the task is, in percent.
    pub percent: Option<f64>,
    /// What it does, for people.
    pub status: Option<String>,
}

/// What a worker says. Reports of an attempt name its task, its number and the epoch of its start.
#[allow(missing_docs, reason = "the names and types of the fields say what they are")]
pub enum WorkerMessage {
    /// It is there, or was asked to say everything again. `link` is the way back.
    Hello { hello: CheckedHello, link: Arc<dyn WorkerLink> },
    /// It is alive, and says what it holds. `sent` is its clock when it asked its keeper.
    Beat { sent: u64, inventory: Inventory },
    /// It is not reached any more.
    Lost,
    /// An attempt's process started.
    Started { task: TaskId, attempt: u32, epoch: Epoch, at: Time },
    /// An attempt ended, and how.
    Finished { task: TaskId, attempt: u32, epoch: Epoch, result: TaskResult },
    /// An attempt says how far it is.
    Progress { task: TaskId, attempt: u32, epoch: Epoch, progress: Progress },
    /// What its jobserver gives an attempt, and how much of it is in use.
    Cpus { task: TaskId, attempt: u32, processes: JobserverUse },
    /// What its machine bears.
    Load(Box<LoadReport>),
    /// All keys of its caches.
    Caches(CacheKeys),
    /// An attempt has the cpus again that it lent.
    Reclaimed { task: TaskId, attempt: u32, epoch: Epoch },
}

/// Why a worker's report is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BadReport {
    /// The worker holds what it cannot.
    #[error(transparent)]
    Message(#[from] BadMessage),
    /// It measured what cannot be: its load, or its caches. The next report may be a good one.
    #[error("its {0} is not taken: {1}")]
    Measured(&'static str, BadLoad),
}

impl WorkerMessage {
    /// The message of a report. `None` if the report lacks its task, or is not for the engine: a hello, which needs a
    /// way back, a part of output, and a question about old output.
    ///
    /// # Errors
    /// If the inventory is above the bounds, or a measured number cannot be.
    pub fn from_report(what: report::What) -> Result<Option<WorkerMessage>, BadReport> {
        use report::What;
        Ok(match what {
            What::Beat(beat) => {
                let inventory = beat.inventory.unwrap_or_default().into_core()?;
                Some(WorkerMessage::Beat { sent: beat.sent, inventory })
            }
            What::Started(started) => started.task.map(|task| {
                let (task, attempt) = task.key();
                let (epoch, at) = (Epoch(started.epoch), Time(started.at));
                WorkerMessage::Started { task, attempt, epoch, at }
            }),
            What::Finished(finished) => finished.task.map(|task| {
                let (task, attempt) = task.key();
                let (epoch, result) = (Epoch(finished.epoch), finished.result());
                WorkerMessage::Finished { task, attempt, epoch, result }
            }),
            What::Reclaimed(reclaimed) => reclaimed.task.map(|task| {
                let (task, attempt) = task.key();
                WorkerMessage::Reclaimed { task, attempt, epoch: Epoch(reclaimed.epoch) }
            }),
            What::Progress(said) => said.task.map(|task| {
                let (task, attempt) = task.key();
                let progress = Progress {
                    percent: said.percent.filter(|percent| percent.is_finite()),
                    status: said.status.map(cut),
                };
                WorkerMessage::Progress { task, attempt, epoch: Epoch(said.epoch), progress }
            }),
            What::Cpus(said) => said.task.map(|task| {
                let (task, attempt) = task.key();
                WorkerMessage::Cpus { task, attempt, processes: said.to_use() }
            }),
            What::Load(load) => {
                let report = load.into_core().map_err(|bad| BadReport::Measured("load", bad))?;
                Some(WorkerMessage::Load(Box::new(report)))
            }
            What::Caches(caches) => {
                let keys = caches.into_core().map_err(|bad| BadReport::Measured("caches", bad))?;
                Some(WorkerMessage::Caches(CacheKeys::of(keys.keys())))
            }
            What::Lost(_) => Some(WorkerMessage::Lost),
            What::Hello(_) | What::Log(_) | What::Outputs(_) => None,
        })
    }
}

/// A file of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFile {
    /// What it wrote to standard output or standard error.
    Output(LogStream),
    /// When both grew: [`LogMarks`](windlass_api::LogMarks). A worker of an earlier release has none.
    Times,
}

/// A part of an attempt's output.
#[derive(Clone, Debug)]
pub struct LogRequest {
    /// The task, by which its job is known too.
    pub task: TaskId,
    /// The attempt's number, from 1 on.
    pub attempt: u32,
    /// The file that is read.
    pub file: LogFile,
    /// From this byte on; negative counts from the end.
    pub offset: i64,
    /// Bytes of the answer at most.
    pub bytes_max: usize,
}

/// Bytes of an attempt's output.
#[derive(Clone, Debug, Default)]
pub struct LogChunk {
    /// Where the next chunk begins.
    pub next: u64,
    /// The bytes; none at the end of what is written so far.
    pub bytes: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_has_so_many_bodies_and_bytes_of_them_at_most() {
        let mut bodies = SentBodies::default();
        for job in 0..64 {
            assert!(bodies.add((job, 0), 10).is_empty());
        }
        assert!(bodies.has((0, 0)));
        assert_eq!(bodies.add((64, 0), 10), [(0, 0)]);
        assert_eq!(bodies.add((65, 0), SentBodies::BYTES_MAX).len(), 64, "alone it may have them all");
        assert_eq!(bodies.add((66, 1), 5), [(65, 0)]);
        assert!(bodies.has((66, 1)) && !bodies.has((66, 0)));
        bodies.clear();
        assert!(!bodies.has((66, 1)) && bodies.bytes == 0);
    }
}
