//! What a submission says of a job and of its steps.

use super::chunk::Chunks;
use crate::ids::{JobId, TaskId};
use crate::resources::Resources;
use crate::tags::Need;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A user and the key that they chose for a submission.
pub type SubmissionKey = (String, String);

/// A submission as the engine sees it. What the tasks run is in `StepSpec::body`, opaque here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobSpec {
    /// For people; need not be unique.
    pub name: String,
    /// Whose work it is.
    pub queue: String,
    /// The user who submitted it.
    pub user: String,
    /// Inside the queue, higher first.
    pub priority: i32,
    /// The submitter's own key: a second submission with it is answered with the first job.
    pub key: Option<String>,
    /// The task that submitted this job and waits for it.
    pub parent: Option<TaskId>,
    /// Jobs that must end before any step starts.
    pub after: Vec<JobId>,
    /// How those of `after` must end that need not succeed.
    pub after_ends: BTreeMap<JobId, AfterEnd>,
    /// The job after whose tasks its own come, task by task: each waits until the task of the same number has succeeded.
    /// That job has as many tasks.
    pub after_tasks: Option<JobId>,
    /// What failed tasks do to the rest of the job.
    pub fail_fast: FailFast,
    /// How many tasks have failed when `fail_fast` takes effect.
    pub fail_limit: FailLimit,
    /// How many of its tasks may be booked or run at a time; `None` is any number.
    pub max_running: Option<u32>,
    /// Who is told when the job ends. The engine keeps it and does nothing with it.
    pub on_end: Vec<OnEnd>,
    /// The steps; a step may depend only on steps of this list.
    pub steps: Vec<StepSpec>,
}

impl JobSpec {
    /// The same without the names of cache keys, which are long and many: the engine has their hashes.
    pub fn without_caches(self: Arc<Self>) -> Arc<Self> {
        if self.steps.iter().all(|step| step.hints.caches.is_empty()) {
            return self;
        }
        let mut spec = Arc::unwrap_or_clone(self);
        spec.steps.iter_mut().for_each(|step| step.hints.caches.clear());
        Arc::new(spec)
    }

    /// The number of its tasks.
    pub fn tasks(&self) -> u32 {
        self.steps.iter().map(|step| step.tasks).sum()
    }

    /// The same without what its tasks run: the engine needs none of that.
    pub fn without_bodies(&self) -> JobSpec {
        let mut spec = self.clone();
        spec.steps.iter_mut().for_each(|step| step.body = Arc::default());
        spec
    }
}

/// An address that is told of a job's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OnEnd {
    /// A URL, or `mailto:` and a mail address; opaque here.
    pub to: String,
    /// It is told only of a job that fails.
    pub only_failures: bool,
}

/// Tasks alike in command, requirements and tags.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StepSpec {
    /// Unique in its job.
    pub name: String,
    /// How many tasks it has, at least 1.
    pub tasks: u32,
    /// What each task holds while it runs.
    pub request: Resources,
    /// What a worker must be.
    pub needs: Vec<Need>,
    /// Names of the only workers that may run it; empty is any.
    pub targets: BTreeSet<String>,
    /// Milliseconds that a task may run.
    pub time_limit_ms: Option<u64>,
    /// How many of its tasks may be booked or run at a time; `None` is any number.
    pub max_running: Option<u32>,
    /// The number of tasks in a row that start together, each on another worker; `None` is one by one. See [`Gang`](super::Gang).
    pub nodes: Option<u32>,
    /// Several of its tasks may be run by one process; `None` is one by one.
    pub chunks: Option<Chunks>,
    /// The place of an earlier step with which it starts: the first tasks of both together, and so on.
    pub with: Option<u16>,
    /// How often a failed task is run again.
    pub retries: u32,
    /// Steps of the same job that come first.
    pub depends: Vec<Dependency>,
    /// Licences that each task takes one of while it runs, by name.
    pub limits: BTreeSet<String>,
    /// What helps to choose a worker and to size the request.
    pub hints: Hints,
    /// Its tasks are run by the client that submitted them; their worker only keeps room for them.
    pub is_external: bool,
    /// What the tasks run, opaque to the engine.
    pub body: Arc<[u8]>,
}

/// What a step says of itself beyond what it must have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// What sort of work it is.
    pub kind: Kind,
    /// What its tasks run, with what differs from task to task left out: steps of one queue, name and
    /// shape are taken for alike. Empty is unknown.
    pub shape: String,
    /// It mostly waits for the network: a fast one suits it.
    pub network_bound: bool,
    /// It is short, and best run where its inputs are.
    pub prefer_local: bool,
    /// It needs a worker that fetches (tag `fetch`); other evaluations leave those free.
    pub fetches: bool,
    /// What its tasks read from caches: each key, and its bytes where they are known.
    pub caches: BTreeMap<String, Option<u64>>,
    /// Milliseconds after which a ready task should have started; `None` is the policy's default.
    pub deadline_ms: Option<u64>,
    /// The cpus asked for are a guess to begin with: take what earlier tasks show to be right.
    pub cpus_auto: bool,
    /// Hundredths of a core that a task can use at most: beyond its request it takes what is idle on its worker once
    /// nothing else that waits has a use for it. `None` is its request.
    pub cpus_max: Option<u32>,
    /// A task finds a GNU make jobserver in its environment. It is booked with its request alone, and what it may run
    /// beyond that moves while it runs: up to `cpus_max`, or without one up to the whole worker.
    pub jobserver: Option<Jobserver>,
    /// Workers that a task rather waits for than go elsewhere, for
    /// [`PREFERRED_HOLD_MS`](crate::score::weights::PREFERRED_HOLD_MS) since it was ready; by name.
    pub prefers: BTreeSet<String>,
}

/// Hundredths of a core that a build books whose cpus nobody named: it begins at once, and has the rest of its worker by
/// its jobserver.
pub const BUILD_CPU: u32 = 10;

/// In which form a task is told of its jobserver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Jobserver {
    /// The one that its command and the programs of its worker understand.
    Auto,
    /// The path of a FIFO, as from make 4.4 on.
    Fifo,
    /// Two inherited descriptors, as for earlier versions of make.
    Pipes,
}

/// What sort of work a step is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// It makes something from inputs.
    #[default]
    Build,
    /// Finds out what is to be made.
    Evaluation,
}

/// How a job must end for another one that comes after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AfterEnd {
    /// It must succeed: the usual case.
    #[default]
    Ok,
    /// It must end, whatever way.
    Any,
    /// It must fail or be cancelled.
    NotOk,
}

/// The failed tasks with which a job is stopped, if it asks for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailLimit {
    /// This number of tasks; at least 1.
    Tasks(u32),
    /// More than this percentage of the job's tasks; below 100.
    Percent(u8),
}

impl Default for FailLimit {
    fn default() -> Self {
        FailLimit::Tasks(1)
    }
}

impl FailLimit {
    /// True if `failed` of a job's tasks, `total` of which there are, stop the job.
    pub fn is_reached(self, failed: u32, total: u32) -> bool {
        match self {
            FailLimit::Tasks(max) => failed >= max,
            FailLimit::Percent(max) => u64::from(failed) * 100 > u64::from(max) * u64::from(total),
        }
    }
}

/// What failed tasks do to the rest of their job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FailFast {
    /// Nothing: all other tasks run.
    #[default]
    No,
    /// No further task starts; running ones finish.
    Finish,
    /// No further task starts; running ones are killed.
    Kill,
}

/// One step waits for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// The place in the job of the step that comes first.
    pub on: u16,
    /// For which tasks of that step it waits.
    pub kind: DependencyKind,
}

/// How a step waits for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DependencyKind {
    /// Every task waits for all tasks of the other step.
    Step,
    /// Task i waits for task i of the other step, which has as many tasks.
    Task,
}
