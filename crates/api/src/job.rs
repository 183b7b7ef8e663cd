//! The JSON of jobs.

use crate::failure::JobReason;
use crate::on_end::{NoticeFailure, OnEnd};
use crate::submit::{Depends, Jobserver, Kind, Resources, is_default};
use crate::word::words_of;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;
use windlass_core::job as core;

/// A job with its progress.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Id of the job, unique on the farm.
    pub id: u64,
    /// The job's name, for people.
    pub name: String,
    /// Name of its queue.
    pub queue: String,
    /// The user who submitted it.
    pub user: String,
    /// The priority inside the queue; higher goes first.
    pub priority: i32,
    /// State of the job now.
    pub state: JobState,
    /// Why no further task starts; absent if the job was not stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Why it failed, or why it waits; absent of a job that does neither, and in lists unless it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<JobReason>,
    /// When it was accepted.
    pub created_ms: u64,
    /// When it ended, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// When it is expected to end if it goes on with as many tasks at a time as run now: an estimate from the mean run
    /// times of its steps, or from those of earlier tasks that are alike. Absent where nothing of it runs, and where
    /// nothing is known of some of what is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_end_ms: Option<u64>,
    /// How many of its tasks may run at a time; absent is any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// Jobs that must succeed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u64>,
    /// Jobs that must end first, whatever way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_any: Vec<u64>,
    /// Jobs that must fail or be cancelled first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_not_ok: Vec<u64>,
    /// The job after whose tasks its own come, task by task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_tasks: Option<u64>,
    /// Addresses that are told when it has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_end: Vec<OnEnd>,
    /// Addresses that could not be told of its end so far; only where one job is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notice_failures: Vec<NoticeFailure>,
    /// The task that submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The number of tasks in each state.
    pub counts: Counts,
    /// The steps of the job.
    pub steps: Vec<Step>,
}

/// Another priority for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPriority {
    /// The priority inside the queue; higher goes first.
    pub priority: i32,
}

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// No task runs or has run; some may start later.
    Pending,
    /// A task is booked, runs or has run, and the job has not ended: it is under way, even while its other tasks wait.
    Running,
    /// A user holds it.
    Held,
    /// All of its tasks succeeded.
    Succeeded,
    /// A task failed for good, or a job that it depends on did.
    Failed,
    /// A user cancelled it.
    Canceled,
}

impl JobState {
    /// True once no task of the job runs or will start.
    pub fn is_end(self) -> bool {
        matches!(self, JobState::Succeeded | JobState::Failed | JobState::Canceled)
    }

    /// The state from the core's. A job is running from the booking of its first task on.
    pub fn from_core(state: core::JobState, held: bool, counts: &core::Counts) -> Self {
        match state {
            core::JobState::Succeeded => JobState::Succeeded,
            core::JobState::Failed => JobState::Failed,
            core::JobState::Canceled => JobState::Canceled,
            core::JobState::Active if held => JobState::Held,
            core::JobState::Active if counts.active + counts.succeeded + counts.failed > 0 => {
                JobState::Running
            }
            core::JobState::Active => JobState::Pending,
        }
    }
}

words_of! {
    JobState:
    Pending "pending", Running "running", Held "held",
    Succeeded "succeeded", Failed "failed", Canceled "canceled"
}

/// The number of tasks in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Tasks in all states together.
    pub total: u32,
    /// Tasks that wait for another task, step or job.
    pub waiting: u32,
    /// Tasks that could start.
    pub ready: u32,
    /// Booked or running tasks.
    pub running: u32,
    /// Tasks that ended with success.
    pub succeeded: u32,
    /// Tasks that failed, with their retries spent.
    pub failed: u32,
    /// Cancelled tasks: killed, or stopped before they started.
    pub canceled: u32,
    /// Tasks that never started because a dependency failed.
    pub skipped: u32,
}

impl Counts {
    /// Number of tasks that have ended or will never start.
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
    /// The step's name, unique in the job.
    pub name: String,
    /// The index of its first task in the job.
    pub first_task: u32,
    /// Number of its tasks.
    pub tasks: u32,
    /// Processes that run its tasks, if none fails and no limit divides them further; only of a step with chunks of a
    /// fixed size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Program and arguments; only if one job is requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The working directory; only if one job is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The umask of its tasks, in octal digits; only if one job is requested. Absent is that of their worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<String>,
    /// The amounts that each task holds.
    pub resources: Resources,
    /// Tags that the worker must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The only workers that may run it; empty is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<String>,
    /// Milliseconds that a task may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// How many of its tasks may run at a time; absent is any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// The number of tasks in a row that start together, each on another worker; absent is one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// The name of the step with which it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// How often a failed task is run again.
    pub retries: u32,
    /// Steps of the job that it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<Depends>,
    /// Limits, such as licences, of which each task holds one while it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// Hints for the placement of its tasks.
    #[serde(flatten)]
    pub hints: Hints,
}

/// Hints: what helps to choose a worker or to size a task.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Hints {
    /// The kind of work; absent is `build`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The command without what differs from task to task. Steps of one queue, name and shape have one task profile.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub shape: String,
    /// The tasks mostly wait for the network.
    #[serde(skip_serializing_if = "is_default")]
    pub network_bound: bool,
    /// The tasks are short, and best run where their inputs are.
    #[serde(skip_serializing_if = "is_default")]
    pub prefer_local: bool,
    /// The tasks need a worker with the tag `fetch`.
    #[serde(skip_serializing_if = "is_default")]
    pub fetches: bool,
    /// The cache keys that its tasks read, each with its bytes; null is unknown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub caches: BTreeMap<String, Option<u64>>,
    /// Target queueing delay: milliseconds that a ready task should wait at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The requested cpus are only the first guess; later tasks are sized by the task profile.
    #[serde(skip_serializing_if = "is_default")]
    pub cpus_auto: bool,
    /// Cores that a task takes at most, of what is idle on its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_max: Option<f64>,
    /// The jobserver that each task finds in its environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobserver: Option<Jobserver>,
    /// Workers that its tasks wait for a while before they run elsewhere.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub prefers: BTreeSet<String>,
}

impl Hints {
    fn from_core(from: &core::Hints) -> Self {
        let from = from.clone();
        Hints {
            kind: Some(Kind::from(from.kind)).filter(|kind| *kind != Kind::default()),
            shape: from.shape,
            network_bound: from.network_bound,
            prefer_local: from.prefer_local,
            fetches: from.fetches,
            caches: from.caches,
            deadline_ms: from.deadline_ms,
            cpus_auto: from.cpus_auto,
            cpus_max: from.cpus_max.map(|max| f64::from(max) / 100.0),
            jobserver: from.jobserver.map(Jobserver::from),
            prefers: from.prefers,
        }
    }
}

impl Step {
    /// The steps of a spec, without commands and working directories.
    pub fn all_from_core(spec: &core::JobSpec) -> Vec<Step> {
        let mut first_task = 0;
        let steps = spec.steps.iter().map(|step| {
            let first = first_task;
            first_task += step.tasks;
            Step {
                name: step.name.clone(),
                first_task: first,
                tasks: step.tasks,
                processes: step.chunks.as_ref().and_then(|chunks| chunks.count(step.tasks)),
                command: Vec::new(),
                cwd: None,
                umask: None,
                resources: Resources::from_core(&step.request),
                tags: step.needs.iter().map(ToString::to_string).collect(),
                workers: step.targets.iter().cloned().collect(),
                time_limit_ms: step.time_limit_ms,
                max_running: step.max_running,
                nodes: step.nodes,
                with: step.with.and_then(|with| Some(spec.steps.get(usize::from(with))?.name.clone())),
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

/// A page of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The entries of this page.
    pub items: Vec<T>,
    /// Give this as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The server's version, and the caller as the server knows it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The word `windlass`, by which a client knows a server.
    pub name: String,
    /// Release of the server, such as `0.1.0`.
    pub version: String,
    /// The address of its store.
    pub store: String,
    /// The server's process id.
    pub pid: u32,
    /// The user of the token; absent if the server asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The role of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<crate::token::Role>,
    /// The worker of the token, for the role `worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_with_ended_tasks_is_not_pending() {
        let state = |counts| JobState::from_core(core::JobState::Active, false, &counts);
        let counts = core::Counts { total: 9, ready: 9, ..Default::default() };
        assert_eq!(state(counts), JobState::Pending);
        assert_eq!(state(core::Counts { ready: 8, active: 1, ..counts }), JobState::Running);
        assert_eq!(state(core::Counts { ready: 2, succeeded: 6, failed: 1, ..counts }), JobState::Running);
        assert_eq!(state(core::Counts { ready: 8, canceled: 1, ..counts }), JobState::Pending);
    }
}
