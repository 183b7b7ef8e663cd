//! How the shell and a worker's agent meet, whatever carries the messages.

use std::io;
use std::sync::Arc;
use windlass_api::{StepBody, TaskValue};
use windlass_core::engine::{Hello, Order};
use windlass_core::job::TaskResult;
use windlass_core::{Epoch, TaskId, Time};

/// Carries messages to a worker, in order. Called on the engine's thread: it must not wait.
pub type Deliver = Arc<dyn Fn(Vec<Delivery>) + Send + Sync>;

/// Reads a worker's logs; may take its time.
pub type LogSource = Arc<dyn Fn(&LogRequest) -> io::Result<Option<LogChunk>> + Send + Sync>;

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
        deliver: Deliver,
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
