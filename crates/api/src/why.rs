//! The explanation of why a task does not run.

use crate::failure::FailedTask;
use crate::task::{JobserverUse, TaskState};
use crate::word::WhyWord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::explain::{self as core_explain, Explanation, Reason};
use windlass_core::plan::placement as core;

/// Why a task is where it is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The task's id, `JOB.INDEX`.
    pub task: String,
    /// State of the task now.
    pub state: TaskState,
    /// The reason in one word, for programs.
    pub reason: WhyWord,
    /// The reason as a sentence for people.
    pub message: String,
    /// How it failed; absent of a task that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailedTask>,
    /// The place of its step in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
    /// Until when its step backs off because a licence was busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backs_off_until_ms: Option<u64>,
    /// Number of workers that could run it now.
    pub open_workers: usize,
    /// Name of the scoring policy.
    #[serde(default)]
    pub policy: String,
    /// The best of the workers that could run it now, or those of the decision that placed it, the winner first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judged: Vec<Judged>,
    /// When the decision was made that placed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_ms: Option<u64>,
    /// The reasons for which the other workers are ineligible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ruled_out: Vec<IneligibleWorkers>,
    /// Changes that would make it run, the smallest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// What its jobserver gives it; only of a running task with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobserver: Option<JobserverWhy>,
}

/// What a running task with a jobserver has of its worker, and who has the rest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobserverWhy {
    /// What it is given now, whose fields stand beside these.
    #[serde(flatten)]
    pub now: JobserverUse,
    /// Processes that it may run at a time at most.
    pub most: u32,
    /// What it runs, and why it runs no more, for people.
    pub message: String,
    /// What would let it run more, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helps: Vec<String>,
}

/// The place of a step in its queue, and of the queue in its band.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Turn {
    /// Name of the step's queue.
    pub queue: String,
    /// Band of the queue, 0 to 9.
    pub band: u8,
    /// Backlogged queues whose turn comes first.
    pub queues_ahead: usize,
    /// Other users of its queue whose turn comes first.
    #[serde(default)]
    pub users_ahead: usize,
    /// Steps of its own user in its queue that come first.
    pub steps_ahead: usize,
    /// Tasks of its own step that come first.
    pub tasks_ahead: u32,
    /// True if smaller tasks that come later may start first: they take room that is not enough for it, and no worker
    /// is reserved for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_overtaken: bool,
    /// Weight of the queue, 1 to 10000.
    #[serde(default)]
    pub weight: u32,
    /// Cpus of all workers that could run it.
    #[serde(default)]
    pub pool_cpus: f64,
    /// Cpus that all queues hold or could use there.
    #[serde(default)]
    pub demand_cpus: f64,
    /// Cpus that its queue holds there.
    #[serde(default)]
    pub held_cpus: f64,
    /// Cpus to which its queue's band and weight entitle it.
    #[serde(default)]
    pub entitled_cpus: f64,
    /// True if the demand is more than these cpus.
    #[serde(default)]
    pub contended: bool,
    /// When it is predicted to start; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start_ms: Option<u64>,
    /// With `latest_start_ms`, between which times it is predicted to start: where earlier tasks like those before it
    /// took very different times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_start_ms: Option<u64>,
    /// See `earliest_start_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_start_ms: Option<u64>,
}

/// A reason for which workers are ineligible.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IneligibleWorkers {
    /// The reason in one word, for programs.
    pub reason: WhyWord,
    /// The reason for people.
    pub message: String,
    /// Number of these workers.
    pub workers: usize,
    /// Names of some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// A change after which the task runs, or is the next to run. Each was tried on a copy of the engine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// The worker that would run it; absent if the change is not about one worker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// Changes that make it run; all of them are needed.
    pub steps: Vec<String>,
    /// Who can make them; absent where nobody has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ChangeBy>,
}

/// Who can make a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeBy {
    /// The user who submitted the task.
    Submitter,
    /// An administrator of the farm.
    Administrator,
}

/// A worker's score for the task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Judged {
    /// Name of the worker, unique on the farm.
    pub worker: String,
    /// The sum of all points.
    pub score: f64,
    /// The worker's load with the task: about 0 to 1, and more under pressure.
    pub load: f64,
    /// The points of each rule of the scoring policy.
    pub rules: Vec<RulePoints>,
}

/// The points that a rule gave.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RulePoints {
    /// Name of the scoring rule, which never changes.
    pub rule: String,
    /// Points; may be negative.
    pub points: f64,
    /// The reason for the points, for people.
    pub reason: String,
}

impl IneligibleWorkers {
    /// The core's reason for a number of workers, with examples of their names.
    pub fn from_core(reason: &core::Ineligible, workers: usize, examples: Vec<String>) -> Self {
        IneligibleWorkers { reason: reason.word().into(), message: reason.to_string(), workers, examples }
    }
}

impl Judged {
    /// The core's score, with the worker's name.
    pub fn from_core(judged: &windlass_core::plan::Judged, worker: String) -> Self {
        let rules = judged.breakdown.rules.iter().map(|(rule, says)| RulePoints {
            rule: (*rule).to_owned(),
            points: says.value(),
            reason: says.reason().to_owned(),
        });
        Judged { worker, score: judged.breakdown.total, load: judged.load, rules: rules.collect() }
    }
}

impl Change {
    fn from_core(advice: &core_explain::Advice) -> Self {
        let by = advice.change.who().map(|who| match who {
            core_explain::Who::Submitter => ChangeBy::Submitter,
            core_explain::Who::Administrator => ChangeBy::Administrator,
        });
        Change { worker: advice.worker().unwrap_or_default().to_owned(), steps: advice.steps(), by }
    }
}

impl Why {
    /// The core's explanation, with workers by name; `policy` is the scoring policy's name.
    pub fn from_core(task: String, why: Explanation, policy: &str, name_of: impl Fn(u64) -> String) -> Self {
        let (reason, message) = why.say(|worker| name_of(worker.0));
        let judged = why.judged.iter().map(|judged| Judged::from_core(judged, name_of(judged.worker.0)));
        let ruled_out = why.ruled_out.into_iter();
        let until = if let Reason::BackOff { until, .. } = &why.reason { Some(until.as_ms()) } else { None };
        let cpus = |hundredths: u64| hundredths as f64 / 100.0;
        Why {
            task,
            state: why.state.into(),
            reason: reason.into(),
            message,
            failure: None,
            turn: why.turn.map(|turn| Turn {
                queue: turn.queue,
                band: turn.band,
                queues_ahead: turn.queues_ahead,
                users_ahead: turn.users_ahead,
                steps_ahead: turn.steps_ahead,
                tasks_ahead: turn.tasks_ahead,
                may_be_overtaken: turn.may_be_overtaken,
                weight: turn.weight,
                pool_cpus: cpus(turn.pool.cpu),
                demand_cpus: cpus(turn.pool.demand_cpu),
                held_cpus: cpus(turn.pool.booked_cpu),
                entitled_cpus: (turn.pool.entitled_cpu).round() / 100.0,
                contended: turn.pool.contended,
                expected_start_ms: turn.starts.map(|at| at.as_ms()),
                earliest_start_ms: turn.starts_between.map(|(first, _)| first.as_ms()),
                latest_start_ms: turn.starts_between.map(|(_, last)| last.as_ms()),
            }),
            backs_off_until_ms: until,
            open_workers: why.open_workers,
            policy: policy.to_owned(),
            judged: judged.collect(),
            decided_ms: why.decided.map(|at| at.as_ms()),
            changes: why.changes.iter().map(Change::from_core).collect(),
            jobserver: None,
            ruled_out: ruled_out
                .map(|(why, n, examples)| IneligibleWorkers::from_core(&why, n, examples))
                .collect(),
        }
    }
}
