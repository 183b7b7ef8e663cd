//! The server-sent events of `/events`: the event's name is the variant.

use crate::job::{Counts, JobState};
use crate::task::TaskState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An event of the farm.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerEvent {
    /// A job was submitted, changed or ended.
    Job(JobEvent),
    /// Tasks of one job changed.
    Tasks(TasksEvent),
    /// A worker connected, disconnected, or changed its state.
    Worker(WorkerEvent),
    /// The listener was too slow and missed events: read the state again.
    Lagged,
}

/// A job was submitted, changed or ended.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobEvent {
    /// Id of the job, unique on the farm.
    pub job: u64,
    /// State of the job now.
    pub state: JobState,
    /// How many tasks are in which state.
    pub counts: Counts,
}

/// Changes of one job's tasks that became durable together.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TasksEvent {
    /// Id of the job, unique on the farm.
    pub job: u64,
    /// The job's counts after the changes.
    pub counts: Counts,
    /// The changes of single tasks.
    pub tasks: Vec<TaskEvent>,
}

/// A change of one task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TaskEvent {
    /// The task's index in its job.
    pub index: u32,
    /// The task's new state.
    pub state: TaskState,
    /// The attempt that changed.
    pub attempt: u32,
    /// The exit code, or the code that a shell would report instead, such as 137 for SIGKILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Bytes that the attempt wrote to standard output.
    #[serde(default)]
    pub out_bytes: u64,
    /// Bytes that the attempt wrote to standard error.
    #[serde(default)]
    pub err_bytes: u64,
}

/// A worker connected, disconnected, or changed its state.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerEvent {
    /// Name of the worker, unique on the farm.
    pub worker: String,
    /// The event, in a word.
    pub what: String,
}

impl ServerEvent {
    /// The event's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            ServerEvent::Job(_) => "job",
            ServerEvent::Tasks(_) => "tasks",
            ServerEvent::Worker(_) => "worker",
            ServerEvent::Lagged => "lagged",
        }
    }

    /// The job of the event; `None` for other events.
    pub fn job(&self) -> Option<u64> {
        match self {
            ServerEvent::Job(event) => Some(event.job),
            ServerEvent::Tasks(event) => Some(event.job),
            ServerEvent::Worker(_) | ServerEvent::Lagged => None,
        }
    }
}
