//! What `/events` tells as it happens, as server-sent events: the event's name is the variant.

use crate::job::{Counts, JobState};
use crate::task::TaskState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerEvent {
    /// A job came, changed or ended.
    Job(JobEvent),
    /// Tasks changed.
    Tasks(TasksEvent),
    /// A worker came, went, or was told something.
    Worker(WorkerEvent),
    /// The listener was too slow and missed some: ask for the state anew.
    Lagged,
}

/// A job came, changed or ended.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobEvent {
    /// The job.
    pub job: u64,
    /// Its state.
    pub state: JobState,
    /// How many tasks are in which state.
    pub counts: Counts,
}

/// Changes of one job's tasks that became durable together.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TasksEvent {
    /// The job.
    pub job: u64,
    /// The job's counts after them.
    pub counts: Counts,
    /// The changes.
    pub tasks: Vec<TaskEvent>,
}

/// A change of one task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TaskEvent {
    /// The task's place in its job.
    pub index: u32,
    /// Its state now.
    pub state: TaskState,
    /// The attempt that this is about.
    pub attempt: u32,
    /// The exit code, or what a shell would say in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Bytes that the attempt wrote to standard output.
    #[serde(default)]
    pub out_bytes: u64,
    /// Bytes that the attempt wrote to standard error.
    #[serde(default)]
    pub err_bytes: u64,
}

/// A worker came, went, or was told something.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerEvent {
    /// Its name.
    pub worker: String,
    /// What happened, in a word.
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

    /// The job that it is about.
    pub fn job(&self) -> Option<u64> {
        match self {
            ServerEvent::Job(event) => Some(event.job),
            ServerEvent::Tasks(event) => Some(event.job),
            ServerEvent::Worker(_) | ServerEvent::Lagged => None,
        }
    }
}
