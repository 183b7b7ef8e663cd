//! The state of an attempt while it waits and while it runs, as a keeper hands it to a newer program.

use super::marks::Marks;
use super::sizes::TaskSizes;
use crate::keeper::env::Started;
use crate::keeper::progress::Tail;
use crate::keeper::session::TaskSession;
use crate::kept;
use crate::process::Exit;
use crate::protocol::{Amounts, Body, JobserverSpec, Nodes, Rider, TaskRef, WireEnd, WireResult};
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::time::{Duration, Instant};
use windlass_api::TaskValue;
use windlass_core::Resources;

/// An attempt that waits for room.
#[derive(Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) task: TaskRef,
    pub(super) epoch: u64,
    #[serde(with = "Amounts")]
    pub(super) request: Resources,
    #[serde(default)]
    pub(super) memory_limit: MemoryLimit,
    pub(super) time_limit: Option<Duration>,
    pub(super) value: Option<String>,
    pub(super) params: Vec<TaskValue>,
    /// The tasks with which it starts.
    #[serde(default)]
    pub(super) nodes: Option<Nodes>,
    /// The other tasks that its process runs.
    #[serde(default)]
    pub(super) riders: Vec<Rider>,
    #[serde(default)]
    pub(super) chunk_values: Vec<String>,
    #[serde(default)]
    pub(super) jobserver: Option<JobserverSpec>,
    pub(super) step: u16,
    pub(super) body: Rc<Body>,
    /// Its room is booked, and it waits until another task has entered the session's environments, or for its directory.
    pub(super) parked: bool,
    /// The directory in which it will run; `None` without files, and until the agent has made it.
    #[serde(default)]
    pub(super) place: Option<FilesPlace>,
}

/// A directory that the agent made for one attempt with files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FilesPlace {
    pub(super) directory: String,
    /// The file that is the standard input; `None` if that is empty.
    pub(super) stdin: Option<String>,
    /// Whether something of it is kept when the attempt has ended.
    pub(super) outputs: bool,
}

/// Memory in bytes beyond which a task is killed; 0 for none. `None` comes from an older server, whose tasks
/// are limited to the memory of their request.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct MemoryLimit(pub(super) Option<u64>);

impl MemoryLimit {
    pub(super) fn bytes(self, request: &Resources) -> Option<u64> {
        Some(self.0.unwrap_or(request.memory)).filter(|bytes| *bytes > 0)
    }
}

/// An attempt whose process runs, or is to be ended.
#[derive(Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) epoch: u64,
    #[serde(with = "Amounts")]
    pub(super) request: Resources,
    #[serde(default)]
    pub(super) memory_limit: MemoryLimit,
    pub(super) started: Started,
    pub(super) started_ns: u64,
    #[serde(with = "kept::optional_moment")]
    pub(super) time_limit_at: Option<Instant>,
    /// Set when the task is asked to end.
    #[serde(with = "kept::optional_moment")]
    pub(super) kill_at: Option<Instant>,
    pub(super) cause: Option<WireEnd>,
    /// How and when the first process ended. Other processes of the task may still run.
    pub(super) exit: Option<(Exit, u64)>,
    pub(super) lent: bool,
    /// The task's state in its session, and the time limit of its command; `None` without a session.
    #[serde(rename = "course")]
    pub(super) task_session: Option<(TaskSession, Option<Duration>)>,
    /// The tasks with which it started.
    #[serde(default)]
    pub(super) nodes: Option<Nodes>,
    /// The other tasks that its process runs.
    #[serde(default)]
    pub(super) riders: Vec<Rider>,
    pub(super) peak_bytes: u64,
    /// What its processes held at the last sample, at least.
    #[serde(skip)]
    pub(super) held_bytes: Option<u64>,
    #[serde(skip)]
    pub(super) sizes: TaskSizes,
    /// Disk traffic of the processes that have ended.
    #[serde(default)]
    pub(super) disk_bytes: Option<u64>,
    /// Reader of standard output, once there is some; `None` for tasks of a session.
    #[serde(default)]
    pub(super) tail: Option<Tail>,
    /// For each output file, the offset from which its end is kept.
    pub(super) kept_from: [u64; 2],
    /// When the files grew.
    #[serde(default)]
    pub(super) marks: Marks,
    /// Whether its start was reported.
    #[serde(default = "yes")]
    pub(super) begun: bool,
    /// The attempt as it waits again, if its first process fails to start for a reason that passes.
    #[serde(skip)]
    pub(super) retry: Option<Box<Waiting>>,
    /// The error that is expected to pass by itself.
    #[serde(skip)]
    pub(super) passing: Option<std::io::Error>,
    /// Whether it did not start because of what its job asks for.
    #[serde(default)]
    pub(super) job_at_fault: bool,
    /// The directory in which it runs; `None` without files.
    #[serde(default)]
    pub(super) place: Option<FilesPlace>,
}

/// An attempt of which no process is left, and whose result is not reported.
#[derive(Serialize, Deserialize)]
pub(super) struct EndedAttempt {
    pub(super) epoch: u64,
    /// What of its room is booked.
    #[serde(with = "Amounts")]
    pub(super) held: Resources,
    pub(super) lent: bool,
    pub(super) started_ns: u64,
    /// The other tasks that its process ran.
    pub(super) riders: Vec<Rider>,
    pub(super) place: Option<FilesPlace>,
    /// How it ended and what it used, together with its riders.
    pub(super) result: WireResult,
}

/// Default for the state of an older keeper, which had only tasks that were reported as started.
fn yes() -> bool {
    true
}

/// Longest pause of all starts after one failed for a reason that passes.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A pause of all starts after one failed for a reason that passes.
pub(super) struct Pause {
    pub(super) until: Instant,
    /// Whether the end of a task ends the pause: it frees open files, processes and memory, but no disk.
    pub(super) ends_with_a_task: bool,
}

impl Pause {
    pub(super) fn after(failure: &std::io::Error) -> Self {
        let is_of_disk = matches!(failure.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
        Pause { until: Instant::now() + PAUSE_MAX, ends_with_a_task: !is_of_disk }
    }
}
