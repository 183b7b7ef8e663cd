//! How the shell and a worker's agent meet, whatever carries the messages.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_api::{StepBody, TaskValue};
use windlass_core::engine::{Hello, Inventory, Order};
use windlass_core::job::{JobSpec, TaskResult};
use windlass_core::load::pressure::LoadReport;
use windlass_core::score::keys::CacheKeys;
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

/// A connection to a worker's agent.
pub trait WorkerLink: Send + Sync {
    /// Its own number, from [`Handle::next_link`](crate::Handle::next_link).
    fn id(&self) -> u64;

    /// The agent's release, as far as it said so.
    fn version(&self) -> Option<String>;

    /// Carries messages to the worker, in order. Called on the engine's thread: it must not wait.
    fn deliver(&self, parcel: Vec<Delivery>);

    /// Ends the connection: the worker is not accepted, or has another connection.
    fn refuse(&self, why: &str);

    /// Reads a part of an attempt's output; `None` where nothing was written.
    fn read_log(&self, request: LogRequest) -> LogFuture;

    /// These jobs are forgotten, and so is their output.
    fn drop_logs(&self, jobs: &[JobId]);
}

/// The answer to [`WorkerLink::read_log`].
pub type LogFuture = Pin<Box<dyn Future<Output = io::Result<Option<LogChunk>>> + Send>>;

/// The connections of all workers that are reached now.
#[derive(Default)]
pub(crate) struct Links {
    open: Mutex<BTreeMap<WorkerId, Arc<dyn WorkerLink>>>,
}

impl Links {
    /// The connection to a worker.
    pub fn get(&self, worker: WorkerId) -> Option<Arc<dyn WorkerLink>> {
        self.lock().get(&worker).cloned()
    }

    /// The connections to all workers.
    pub fn all(&self) -> Vec<Arc<dyn WorkerLink>> {
        self.lock().values().cloned().collect()
    }

    /// Puts a connection in the place of the one before, which is returned.
    pub fn insert(&self, worker: WorkerId, link: Arc<dyn WorkerLink>) -> Option<Arc<dyn WorkerLink>> {
        self.lock().insert(worker, link)
    }

    /// The worker is not reached any more.
    pub fn remove(&self, worker: WorkerId) {
        self.lock().remove(&worker);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Arc<dyn WorkerLink>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One message to a worker.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its number.
    pub seq: u64,
    /// What.
    pub order: Order,
    /// With a start: what to run.
    pub start: Option<StartInfo>,
}

/// What a task runs.
#[derive(Clone, Debug)]
pub struct StartInfo {
    /// Its step's command.
    pub body: Arc<StepBody>,
    /// Its value.
    pub value: Option<String>,
    /// The job that it belongs to.
    pub job: Arc<JobSpec>,
    /// Its named values.
    pub params: Vec<TaskValue>,
}

/// How far a task says that it is. Unknown is `None`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// In percent.
    pub percent: Option<f64>,
    /// What it does, for people.
    pub status: Option<String>,
}

/// What a worker says.
pub enum WorkerMessage {
    /// It is there, or was asked to say everything again.
    Hello {
        /// Itself and what it holds.
        hello: Box<Hello>,
        /// The way back.
        link: Arc<dyn WorkerLink>,
    },
    /// It is alive, and says what it holds.
    Beat {
        /// Its clock when it asked its keeper.
        sent: u64,
        /// What it holds.
        inventory: Inventory,
    },
    /// It is not reached any more.
    Lost,
    /// An attempt's process started.
    Started {
        /// The task.
        task: TaskId,
        /// The attempt's number.
        attempt: u32,
        /// As in its start.
        epoch: Epoch,
        /// When.
        at: Time,
    },
    /// An attempt ended.
    Finished {
        /// The task.
        task: TaskId,
        /// The attempt's number.
        attempt: u32,
        /// As in its start.
        epoch: Epoch,
        /// How.
        result: TaskResult,
    },
    /// An attempt says how far it is.
    Progress {
        /// The task.
        task: TaskId,
        /// The attempt's number.
        attempt: u32,
        /// As in its start.
        epoch: Epoch,
        /// What it says.
        progress: Progress,
    },
    /// What its machine bears.
    Load(Box<LoadReport>),
    /// All keys of its caches.
    Caches(CacheKeys),
    /// An attempt has the cpus again that it lent.
    Reclaimed {
        /// The task.
        task: TaskId,
        /// The attempt's number.
        attempt: u32,
        /// As in its start.
        epoch: Epoch,
    },
}

/// A part of an attempt's output.
#[derive(Clone, Debug)]
pub struct LogRequest {
    /// The task.
    pub task: TaskId,
    /// The attempt's number.
    pub attempt: u32,
    /// Standard error instead of standard output.
    pub stderr: bool,
    /// From this byte on; negative counts from the end.
    pub offset: i64,
    /// At most so many.
    pub bytes_max: usize,
}

/// Bytes of an attempt's output.
#[derive(Clone, Debug)]
pub struct LogChunk {
    /// Where the next chunk begins.
    pub next: u64,
    /// The bytes; none at the end of what is written so far.
    pub bytes: Vec<u8>,
}
