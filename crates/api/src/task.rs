//! The JSON of tasks.

use crate::failure::Failure;
use crate::word::words_of;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::job as core;

/// A task of a job, with its last attempt.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// The task's id, `JOB.INDEX`.
    pub id: String,
    /// The id of its job.
    pub job: u64,
    /// Its index in the job, from 0.
    pub index: u32,
    /// The name of its step.
    pub step: String,
    /// Its value, if the step has values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// State of the task now.
    pub state: TaskState,
    /// The progress that it reports, in percent; only while it is booked or runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// The status that it reports, or what its worker does with its files; only while it is booked or runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// What its jobserver gives it; only while it runs, and of a task with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobserver: Option<JobserverUse>,
    /// When a running task is expected to end, by the mean run time of its step; absent where that is not known. A time
    /// that has passed is that of a task that takes longer than others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_end_ms: Option<u64>,
    /// The last attempt, whose fields stand beside these.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// How the last attempt failed; absent of a task that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Earlier attempts, and results that came too late; only if one task is requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Attempt>,
}

/// How many processes a running task with a jobserver may run at a time, and how many it runs. Both count the one that
/// every task may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobserverUse {
    /// Processes that it may run at a time now.
    pub share: u32,
    /// Processes that it runs now.
    pub used: u32,
    /// True if it takes all that it is given.
    pub wants: bool,
    /// Why its worker gives it no more; absent where only other tasks need the cpus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<HeldBack>,
}

/// What keeps a worker from giving a build more processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeldBack {
    /// Its memory would not be enough for another process like those of the build.
    Memory,
    /// Its processes wait for memory already.
    Pressure,
}

words_of! { HeldBack: Memory "memory", Pressure "pressure" }

/// The state of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// It waits for a task, step or job.
    Waiting,
    /// It may start when a worker has room.
    Ready,
    /// It is booked on a worker, which has not reported its start.
    Booked,
    /// Its process runs on a worker.
    Running,
    /// It ended with success.
    Succeeded,
    /// It failed, and its retries are spent.
    Failed,
    /// It was cancelled: killed, or stopped before it started.
    Canceled,
    /// It never started because a dependency failed.
    Skipped,
}

words_of! {
    TaskState of core::TaskState:
    Waiting "waiting", Ready "ready", Booked "booked", Running "running",
    Succeeded "succeeded", Failed "failed", Canceled "canceled", Skipped "skipped"
}

impl TaskState {
    /// True if the state changes only when a user retries the task.
    pub fn is_end(self) -> bool {
        self >= TaskState::Succeeded
    }
}

/// One attempt to run a task. What is not known is absent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// The attempt's number, from 1; 0 if the task was never booked.
    pub attempt: u32,
    /// Name of the worker, unique on the farm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When it was booked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booked_ms: Option<u64>,
    /// When its process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// When its end was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_ms: Option<u64>,
    /// How the attempt ended, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// The exit code, or the code that a shell would report instead, such as 137 for SIGKILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it could not be started, or the task's own message about its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Cpu time of all of its processes in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Most bytes of memory held at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// Bytes written to standard output.
    #[serde(default)]
    pub out_bytes: u64,
    /// Bytes written to standard error.
    #[serde(default)]
    pub err_bytes: u64,
    /// True if the result was refused, because the attempt was not the booked one any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The command exited by itself.
    Exited,
    /// A signal that Windlass did not send ended it.
    Signal,
    /// Killed at its time limit.
    TimeLimit,
    /// Killed at its memory limit; or memory was short, and the kernel killed one of its processes.
    Oom,
    /// It was killed on request.
    Canceled,
    /// Recalled by the server before it started.
    Recalled,
    /// The command could not be started.
    NotStarted,
    /// Its worker was lost.
    Lost,
    /// The command succeeded, and what was to be kept of its directory could not be kept.
    OutputsLost,
}

words_of! {
    End:
    Exited "exited", Signal "signal", TimeLimit "time_limit", Oom "oom",
    Canceled "canceled", Recalled "recalled", NotStarted "not_started", Lost "lost",
    OutputsLost "outputs_lost"
}

impl Attempt {
    /// The attempt with its result.
    pub fn with_result(mut self, result: &core::TaskResult) -> Self {
        let (end, message) = match &result.end {
            core::End::Exited(_) => (End::Exited, None),
            core::End::Signaled(_) => (End::Signal, None),
            core::End::TimeLimit => (End::TimeLimit, None),
            core::End::OutOfMemory => (End::Oom, None),
            core::End::Canceled => (End::Canceled, None),
            core::End::Recalled => (End::Recalled, None),
            core::End::NotStarted { why, .. } => (End::NotStarted, Some(why.clone())),
            core::End::Lost => (End::Lost, None),
            core::End::OutputsLost { why, .. } => (End::OutputsLost, Some(why.clone())),
        };
        self.end = Some(end);
        self.message = message.or_else(|| result.message.clone());
        self.exit_code = exit_code_of(result);
        self.started_ms = result.started.map(windlass_core::Time::as_ms);
        self.finished_ms = result.finished.map(windlass_core::Time::as_ms);
        self.cpu_ms = result.cpu_ms;
        self.peak_memory = result.peak_memory;
        self.out_bytes = result.out_bytes;
        self.err_bytes = result.err_bytes;
        self
    }
}

/// The exit code of a result; `None` if the command never ran, if its end is not known, and of one that succeeded in vain.
pub fn exit_code_of(result: &core::TaskResult) -> Option<i32> {
    match result.end {
        core::End::Recalled | core::End::Lost | core::End::OutputsLost { .. } => None,
        core::End::Canceled if result.started.is_none() => None,
        ref end => Some(end.exit_code()),
    }
}
