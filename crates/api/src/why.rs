//! The explanation of why a task does not run.

use crate::task::TaskState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::explain::{self as core_explain, Explanation, Reason};
use windlass_core::job::Stop;
use windlass_core::plan::placement as core;
use windlass_core::resources::{Bytes, Cpus, Short};

/// Why a task is where it is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The task's id, `JOB.INDEX`.
    pub task: String,
    /// Its state.
    pub state: TaskState,
    /// One word for programs: ended, running, booked, stopped, held, after_jobs, steps, no_workers,
    /// fits_nowhere, paused, quota, limit, licence_busy, worker_limit, probing, suspect, draining, left_out,
    /// saturated, reserved, foreign, held_by_rule, parked, full, behind, turn.
    pub reason: String,
    /// The reason as a sentence for people.
    pub message: String,
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
}

/// The place of a step in its queue, and of the queue in its band.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Turn {
    /// The step's queue.
    pub queue: String,
    /// The queue's band.
    pub band: u8,
    /// Backlogged queues whose turn comes first.
    pub queues_ahead: usize,
    /// Steps of its own queue that come first.
    pub steps_ahead: usize,
    /// Tasks of its own step that come first.
    pub tasks_ahead: u32,
    /// The queue's weight.
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
    /// Cpus to which its queue's weight entitles it.
    #[serde(default)]
    pub entitled_cpus: f64,
    /// True if the demand is more than these cpus.
    #[serde(default)]
    pub contended: bool,
    /// When it is predicted to start; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start_ms: Option<u64>,
}

/// A reason for which workers are ineligible.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IneligibleWorkers {
    /// One word for programs: not_target, executor, attribute, too_small, suspect, draining, left_out, saturated,
    /// worker_limit, busy, foreign, reserved, held_by_rule.
    pub reason: String,
    /// The reason for people.
    pub message: String,
    /// Number of these workers.
    pub workers: usize,
    /// Names of some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// A change after which the task would run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// The worker that would run it; absent if the change is not about one worker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// What to do; all of it is needed.
    pub steps: Vec<String>,
}

/// A worker's score for the task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Judged {
    /// The worker's name.
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
    /// The rule's name.
    pub rule: String,
    /// Points; may be negative.
    pub points: f64,
    /// The reason for the points, for people.
    pub reason: String,
}

impl IneligibleWorkers {
    /// The core's reason for a number of workers, with examples of their names.
    pub fn from_core(reason: &core::Ineligible, workers: usize, examples: Vec<String>) -> Self {
        IneligibleWorkers { reason: word(reason).to_owned(), message: reason.to_string(), workers, examples }
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

/// One word for a reason, for programs.
fn word(reason: &core::Ineligible) -> &'static str {
    match reason {
        core::Ineligible::NotTarget => "not_target",
        core::Ineligible::Executor => "executor",
        core::Ineligible::Attribute(_) => "attribute",
        core::Ineligible::TooSmall(_) => "too_small",
        core::Ineligible::Suspect => "suspect",
        core::Ineligible::Draining => "draining",
        core::Ineligible::Quarantined { .. } => "left_out",
        core::Ineligible::UnderPressure(_) => "saturated",
        core::Ineligible::Limit { .. } => "worker_limit",
        core::Ineligible::Busy(_) => "busy",
        core::Ineligible::Foreign(_) => "foreign",
        core::Ineligible::Reserved(_) => "reserved",
        core::Ineligible::Vetoed { .. } => "held_by_rule",
    }
}

/// A reason for which a worker gets none of the waiting work: the word for programs, and a sentence about the worker.
pub(crate) fn say_to_worker(reason: &core::Ineligible) -> (&'static str, String) {
    let sentence = match reason {
        core::Ineligible::Suspect => "it has not been heard from".to_owned(),
        core::Ineligible::Draining => "it is drained".to_owned(),
        core::Ineligible::UnderPressure(what) => format!("it is under {what} pressure"),
        core::Ineligible::Limit { name, max } => {
            format!("its tasks hold all {max} of the limit '{name}' that one worker may hold")
        }
        core::Ineligible::Busy(_) => "it is full: its tasks hold what the waiting work needs".to_owned(),
        core::Ineligible::Foreign(_) => {
            "processes outside of Windlass hold what the waiting work needs".to_owned()
        }
        core::Ineligible::Reserved(_) => "it is reserved for work that has waited long".to_owned(),
        core::Ineligible::Vetoed { reason, .. } => format!("a rule vetoes the waiting work here: {reason}"),
        other => other.to_string(),
    };
    (word(reason), sentence)
}

/// What an operator or the submitter could do about a reason.
fn remedy(reason: &core::Ineligible, worker: &str) -> String {
    match reason {
        core::Ineligible::NotTarget => format!("let the step name {worker}, or no worker"),
        core::Ineligible::Executor => format!("run it on another worker: {worker} {reason}"),
        core::Ineligible::Attribute(need) => format!("give {worker} the tag {need}, or do not ask for it"),
        core::Ineligible::TooSmall(short) => ask_for(short),
        core::Ineligible::Suspect => format!("bring {worker} back: it has not been heard from"),
        core::Ineligible::Draining => format!("resume {worker}"),
        core::Ineligible::Quarantined { .. } => format!("repair {worker}; it is tried again after a while"),
        core::Ineligible::UnderPressure(what) => format!("reduce the {what} pressure on {worker}"),
        core::Ineligible::Limit { name, max } => format!(
            "wait until a task on {worker} releases the limit '{name}', or raise it: \
             'windlass limit set {name} --per-worker {}'",
            max.saturating_add(1)
        ),
        core::Ineligible::Busy(short) if short.have == 0 => {
            format!("wait until {}", can_be_had(short, worker))
        }
        core::Ineligible::Busy(short) => {
            format!("{}, or wait until {}", ask_for(short), can_be_had(short, worker))
        }
        core::Ineligible::Foreign(short) => {
            format!("end other processes that hold memory on {worker}, or {}", ask_for(short))
        }
        core::Ineligible::Reserved(_) => {
            format!("wait until the work for which {worker} is reserved has started")
        }
        core::Ineligible::Vetoed { rule, reason } => {
            format!("wait: the rule {rule} vetoes {worker} ({reason})")
        }
    }
}

fn ask_for(short: &Short) -> String {
    match &*short.resource {
        "cpu" => format!("ask for --cpus {} or less", Cpus(short.have)),
        "memory" => format!("ask for --memory {} or less", Bytes(short.have).to_string().replace(' ', "")),
        name => format!("ask for {} {name} or less", short.have),
    }
}

fn can_be_had(short: &Short, worker: &str) -> String {
    let more = short.amount(short.need - short.have);
    match &*short.resource {
        "cpu" => format!("{worker} has another {more} free"),
        "memory" => format!("{worker} has another {more} of memory free"),
        name => format!("{worker} has another {more} {name} free"),
    }
}

impl Change {
    fn from_core(change: core_explain::Change) -> Self {
        let farm = |step: String| Change { worker: String::new(), steps: vec![step] };
        match change {
            core_explain::Change::Worker { worker, unmet } => {
                Change { steps: unmet.iter().map(|reason| remedy(reason, &worker)).collect(), worker }
            }
            core_explain::Change::Resume(queue) => {
                farm(format!("resume the queue: 'windlass queue resume {queue}'"))
            }
            core_explain::Change::Quota(queue, cpu) => farm(format!(
                "raise the quota of queue {queue}: 'windlass queue set {queue} --quota {}'",
                Cpus(cpu)
            )),
            core_explain::Change::Limit(name, max) => {
                farm(format!("raise the limit: 'windlass limit set {name} {max}'"))
            }
            core_explain::Change::TryAgain(name, back_off_ms) => farm(format!(
                "wait, or end the back-off now: 'windlass limit set {name} --back-off {back_off_ms}ms'"
            )),
            core_explain::Change::Release => farm("release its job: 'windlass job release'".to_owned()),
            core_explain::Change::Ahead(queue) => farm(format!(
                "hold work of queue {queue}, or give its own queue more weight: 'windlass queue set --weight'"
            )),
        }
    }
}

impl Why {
    /// The core's explanation, with workers by name; `policy` is the scoring policy's name.
    pub fn from_core(task: String, why: Explanation, policy: &str, name_of: impl Fn(u64) -> String) -> Self {
        let (reason, message) = say(&why, &name_of);
        let judged = why.judged.iter().map(|judged| Judged::from_core(judged, name_of(judged.worker.0)));
        let ruled_out = why.ruled_out.into_iter();
        let until = if let Reason::BackOff { until, .. } = &why.reason { Some(until.as_ms()) } else { None };
        let cpus = |hundredths: u64| hundredths as f64 / 100.0;
        Why {
            task,
            state: why.state.into(),
            reason: reason.to_owned(),
            message,
            turn: why.turn.map(|turn| Turn {
                queue: turn.queue,
                band: turn.band,
                queues_ahead: turn.queues_ahead,
                steps_ahead: turn.steps_ahead,
                tasks_ahead: turn.tasks_ahead,
                weight: turn.weight,
                pool_cpus: cpus(turn.pool.cpu),
                demand_cpus: cpus(turn.pool.demand_cpu),
                held_cpus: cpus(turn.pool.booked_cpu),
                entitled_cpus: (turn.pool.entitled_cpu).round() / 100.0,
                contended: turn.pool.contended,
                expected_start_ms: turn.starts.map(|at| at.as_ms()),
            }),
            backs_off_until_ms: until,
            open_workers: why.open_workers,
            policy: policy.to_owned(),
            judged: judged.collect(),
            decided_ms: why.decided.map(|at| at.as_ms()),
            changes: why.changes.into_iter().map(Change::from_core).collect(),
            ruled_out: ruled_out
                .map(|(why, n, examples)| IneligibleWorkers::from_core(&why, n, examples))
                .collect(),
        }
    }
}

fn say(why: &Explanation, name_of: impl Fn(u64) -> String) -> (&'static str, String) {
    match &why.reason {
        Reason::Ended => ("ended", "it has ended".to_owned()),
        Reason::Placed { worker, started: Some(_), .. } => {
            ("running", format!("it runs on {}", name_of(worker.0)))
        }
        Reason::Placed { worker, queued: true, .. } => (
            "booked",
            format!("it was sent ahead to {} and starts when a task there ends", name_of(worker.0)),
        ),
        Reason::Placed { worker, .. } => ("booked", format!("it is about to start on {}", name_of(worker.0))),
        Reason::Stopped(Stop::Canceled) => ("stopped", "its job was cancelled".to_owned()),
        Reason::Stopped(Stop::FailFast) => {
            ("stopped", "another task of its job failed, and the job asked for fail-fast".to_owned())
        }
        Reason::Stopped(Stop::After(job)) => {
            ("stopped", format!("job {job}, which it comes after, did not succeed"))
        }
        Reason::Held => ("held", "its job is held; 'windlass job release' releases it".to_owned()),
        Reason::AfterJobs(jobs) => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            ("after_jobs", format!("it comes after job {}, which has not ended", jobs.join(", ")))
        }
        Reason::Steps(steps) => ("steps", say_steps(steps)),
        Reason::NoWorkers => ("no_workers", "the farm has no worker".to_owned()),
        Reason::FitsNowhere => {
            ("fits_nowhere", "no worker of the farm could run it, even if it were empty".to_owned())
        }
        Reason::Paused(note) if note.is_empty() => ("paused", "its queue is paused".to_owned()),
        Reason::Paused(note) => ("paused", format!("its queue is paused: {note}")),
        Reason::Quota { quota_cpu, booked_cpu } => (
            "quota",
            format!(
                "its queue holds {} of the {} cpus of its quota",
                Cpus(*booked_cpu),
                Cpus((*quota_cpu).into())
            ),
        ),
        Reason::BackOff { name, times, .. } => {
            let row = if *times > 1 { format!(", {times} times in a row") } else { String::new() };
            ("licence_busy", format!("its step backs off: licence '{name}' was busy{row}"))
        }
        Reason::Limit { name, max: 0 } => ("limit", format!("the limit '{name}' is 0: no task may hold it")),
        Reason::Limit { name, max } => ("limit", format!("all {max} of the limit '{name}' are taken")),
        Reason::Probing { running } => (
            "probing",
            format!("{running} tasks of its profile run first, to show how much memory they need"),
        ),
        Reason::Closed(closed) => (word(closed), say_closed(closed)),
        Reason::Parked { ahead } => (
            "parked",
            format!("it is behind {ahead} others of its queue, and waits in the store until they start"),
        ),
        Reason::Full => ("full", "every worker that could run it is busy or takes no new work".to_owned()),
        Reason::Behind(queue) => (
            "behind",
            format!("every worker that could run it is busy, and freed slots go to queue {queue} first"),
        ),
        Reason::Turn => ("turn", "there is room; it starts as soon as its turn comes".to_owned()),
    }
}

fn say_closed(closed: &core::Ineligible) -> String {
    let every = "every worker that could run it";
    match closed {
        core::Ineligible::Suspect => format!("{every} has not been heard from"),
        core::Ineligible::Draining => format!("{every} is drained"),
        core::Ineligible::Quarantined { .. } => format!("{every} is in quarantine"),
        core::Ineligible::UnderPressure(what) => format!("{every} is under {what} pressure"),
        core::Ineligible::Limit { name, max } => {
            format!("{every} holds all {max} of the limit '{name}' that one worker may hold")
        }
        core::Ineligible::Reserved(_) => format!("{every} is reserved for work that has waited long"),
        core::Ineligible::Vetoed { reason, .. } => format!("{every} is vetoed by a rule: {reason}"),
        closed => format!("{every} cannot run it now: {closed}"),
    }
}

fn say_steps(steps: &[(String, u32, u32)]) -> String {
    let each = steps.iter().map(|(name, left, failed)| match failed {
        0 => format!("step '{name}' ({left} to go)"),
        _ => format!(
            "step '{name}' ({left} to go, {failed} of them failed: it cannot run unless they are retried)"
        ),
    });
    format!("it waits for {}", each.collect::<Vec<_>>().join(" and "))
}
