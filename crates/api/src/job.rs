//! Jobs as told to people and programs.

use crate::submit::{Depends, Kind, Resources, is_false};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;
use windlass_core::job as core;

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its id.
    pub id: u64,
    /// For people.
    pub name: String,
    /// Whose work it is.
    pub queue: String,
    /// Who submitted it.
    pub user: String,
    /// Inside the queue, higher first.
    pub priority: i32,
    /// Its state.
    pub state: JobState,
    /// Why no further task starts, where somebody or something stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// When it was accepted.
    pub created_ms: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Jobs that must succeed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u64>,
    /// The task that submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How many tasks are in which state.
    pub counts: Counts,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// No task runs; some may start later.
    Pending,
    /// Some task runs.
    Running,
    /// Held by somebody.
    Held,
    /// Every task succeeded.
    Succeeded,
    /// A task failed for good, or a job that it came after did.
    Failed,
    /// Somebody cancelled it.
    Canceled,
}

impl JobState {
    /// True once nothing of the job runs or starts any more.
    pub fn is_end(self) -> bool {
        matches!(self, JobState::Succeeded | JobState::Failed | JobState::Canceled)
    }

    /// The state from what the core says.
    pub fn from_core(state: core::JobState, held: bool, counts: &core::Counts) -> Self {
        match state {
            core::JobState::Succeeded => JobState::Succeeded,
            core::JobState::Failed => JobState::Failed,
            core::JobState::Canceled => JobState::Canceled,
            core::JobState::Active if held => JobState::Held,
            core::JobState::Active if counts.active > 0 => JobState::Running,
            core::JobState::Active => JobState::Pending,
        }
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Pending => "pending",
            JobState::Running => "running",
            JobState::Held => "held",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Canceled => "canceled",
        }
    }
}

/// How many tasks are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// All.
    pub total: u32,
    /// Waiting for another task, step or job.
    pub waiting: u32,
    /// Could start.
    pub ready: u32,
    /// Booked or running.
    pub running: u32,
    /// Ended well.
    pub succeeded: u32,
    /// Ended badly.
    pub failed: u32,
    /// Killed, or stopped before they started.
    pub canceled: u32,
    /// Never started because what they waited for failed.
    pub skipped: u32,
}

impl Counts {
    /// Tasks that ended or never will start.
    pub fn ended(&self) -> u32 {
        self.succeeded + self.failed + self.canceled + self.skipped
    }
}

impl From<core::Counts> for Counts {
    fn from(from: core::Counts) -> Self {
        let core::Counts { total, waiting, ready, active, succeeded, failed, canceled, skipped } = from;
        Counts { total, waiting, ready, running: active, succeeded, failed, canceled, skipped }
    }
}

/// A step of a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// Unique in the job.
    pub name: String,
    /// The number of its first task.
    pub first_task: u32,
    /// How many tasks.
    pub tasks: u32,
    /// Program and arguments; only where one job is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The working directory; only where one job is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What each task holds.
    pub resources: Resources,
    /// What the worker must be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The only workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<String>,
    /// Milliseconds that a task may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// How often a failed task is run again.
    pub retries: u32,
    /// Steps that come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<Depends>,
    /// Limits of which each task takes one while it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// What helps to choose a worker.
    #[serde(flatten)]
    pub hints: Hints,
}

/// What a step says of itself beyond what it must have.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Hints {
    /// What sort of work it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Its command with what differs from task to task left out: steps of one queue, name and shape are
    /// taken for alike.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub shape: String,
    /// It mostly waits for the network.
    #[serde(skip_serializing_if = "is_false")]
    pub network_bound: bool,
    /// It is short, and best run where its inputs are.
    #[serde(skip_serializing_if = "is_false")]
    pub prefer_local: bool,
    /// It needs a worker that fetches.
    #[serde(skip_serializing_if = "is_false")]
    pub fetches: bool,
    /// What its tasks read from caches: each key, and its bytes, or null where they are not known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub caches: BTreeMap<String, Option<u64>>,
    /// Milliseconds after which a task that could start should have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The cpus asked for are a guess to begin with.
    #[serde(skip_serializing_if = "is_false")]
    pub cpus_auto: bool,
    /// Workers that it rather waits for a while than go elsewhere.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub prefers: BTreeSet<String>,
}

impl Hints {
    fn from_core(from: &core::Hints) -> Self {
        let from = from.clone();
        Hints {
            kind: match from.kind {
                core::Kind::Build => None,
                core::Kind::Evaluation => Some(Kind::Evaluation),
            },
            shape: from.shape,
            network_bound: from.network_bound,
            prefer_local: from.prefer_local,
            fetches: from.fetches,
            caches: from.caches,
            deadline_ms: from.deadline_ms,
            cpus_auto: from.cpus_auto,
            prefers: from.prefers,
        }
    }
}

impl Step {
    /// The steps of a spec, with the numbers of their first tasks.
    pub fn all_from_core(spec: &core::JobSpec) -> Vec<Step> {
        let mut first_task = 0;
        let steps = spec.steps.iter().map(|step| {
            let first = first_task;
            first_task += step.tasks;
            Step {
                name: step.name.clone(),
                first_task: first,
                tasks: step.tasks,
                command: Vec::new(),
                cwd: None,
                resources: Resources::from_core(&step.request),
                tags: step.needs.iter().map(ToString::to_string).collect(),
                workers: step.targets.iter().cloned().collect(),
                time_limit_ms: step.time_limit_ms,
                retries: step.retries,
                depends: step.depends.iter().map(|d| depends_from(spec, d)).collect(),
                limits: step.limits.iter().cloned().collect(),
                hints: Hints::from_core(&step.hints),
            }
        });
        steps.collect()
    }
}

fn depends_from(spec: &core::JobSpec, dependency: &core::Dependency) -> Depends {
    Depends {
        on: spec.steps.get(usize::from(dependency.on)).map(|s| s.name.clone()).unwrap_or_default(),
        by: match dependency.kind {
            core::DependencyKind::Step => crate::submit::By::Step,
            core::DependencyKind::Task => crate::submit::By::Task,
        },
    }
}

/// A part of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// Give this as `cursor` for the next part; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Who answers.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// `windlass`.
    pub name: String,
    /// The server's version.
    pub version: String,
    /// Where its store is.
    pub store: String,
    /// The server's process.
    pub pid: u32,
    /// Whose token was shown, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it lets its holder do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<crate::Role>,
    /// The worker that it speaks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}
