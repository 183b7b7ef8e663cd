//! The answer to "why does this task not run".

use crate::task::TaskState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::explain::{Explanation, Reason};
use windlass_core::job::Stop;
use windlass_core::matcher as core;
use windlass_core::resources::Bytes;

/// Why a task is where it is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The task.
    pub task: String,
    /// Its state.
    pub state: TaskState,
    /// One word for programs: ended, running, booked, stopped, held, after_jobs, steps, no_workers,
    /// fits_nowhere, full, turn.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
    /// Its place in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
    /// Workers that could take it now.
    pub open_workers: usize,
    /// What rules the others out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ruled_out: Vec<RuledOut>,
    /// What would make it run, smallest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

/// Where a step stands.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Turn {
    /// Its queue.
    pub queue: String,
    /// The queue's band.
    pub band: u8,
    /// Queues with work whose turn is before.
    pub queues_ahead: usize,
    /// Steps of its own queue that come before.
    pub steps_ahead: usize,
    /// Tasks of its own step that come before.
    pub tasks_ahead: u32,
}

/// A reason that rules workers out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RuledOut {
    /// One word for programs: not_target, attribute, too_small, suspect, draining, busy.
    pub reason: String,
    /// The reason for people.
    pub message: String,
    /// How many workers.
    pub workers: usize,
    /// Names of some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// A change after which a worker would run the task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// The worker.
    pub worker: String,
    /// What to do, all of it.
    pub steps: Vec<String>,
}

impl RuledOut {
    /// The reason as the core gives it, of that many workers.
    pub fn from_core(reason: &core::RuledOut, workers: usize, examples: Vec<String>) -> Self {
        let word = match reason {
            core::RuledOut::NotTarget => "not_target",
            core::RuledOut::Attribute(_) => "attribute",
            core::RuledOut::TooSmall(_) => "too_small",
            core::RuledOut::Suspect => "suspect",
            core::RuledOut::Draining => "draining",
            core::RuledOut::Busy(_) => "busy",
        };
        RuledOut { reason: word.to_owned(), message: describe(reason), workers, examples }
    }
}

/// A reason as a person says it.
pub fn describe(reason: &core::RuledOut) -> String {
    match reason {
        core::RuledOut::NotTarget => "the step names other workers".to_owned(),
        core::RuledOut::Attribute(need) => format!("lacks {need}"),
        core::RuledOut::TooSmall(short) => format!("too small, {short}"),
        core::RuledOut::Suspect => "not heard from".to_owned(),
        core::RuledOut::Draining => "draining".to_owned(),
        core::RuledOut::Busy(short) => format!("busy, {short}"),
    }
}

/// What somebody would do about a reason.
fn remedy(reason: &core::RuledOut, worker: &str) -> String {
    match reason {
        core::RuledOut::NotTarget => format!("let the step name {worker}, or no worker"),
        core::RuledOut::Attribute(need) => format!("give {worker} the tag {need}, or do not ask for it"),
        core::RuledOut::TooSmall(short) => match &*short.resource {
            "cpu" => format!("ask for --cpus {} or less", windlass_core::resources::Cpus(short.have)),
            "memory" => {
                format!("ask for --memory {} or less", Bytes(short.have).to_string().replace(' ', ""))
            }
            name => format!("ask for {} {name} or less", short.have),
        },
        core::RuledOut::Suspect => format!("bring {worker} back"),
        core::RuledOut::Draining => format!("resume {worker}"),
        core::RuledOut::Busy(short) => {
            let more = short.amount(short.need - short.have);
            match &*short.resource {
                "cpu" => format!("wait until {more} more can be had on {worker}"),
                "memory" => format!("wait until {more} of memory more can be had on {worker}"),
                name => format!("wait until {more} {name} more can be had on {worker}"),
            }
        }
    }
}

impl Why {
    /// The explanation for people, workers by name.
    pub fn from_core(task: String, why: Explanation, name_of: impl Fn(u64) -> String) -> Self {
        let (reason, message) = say(&why, name_of);
        let changes = why.changes.iter().map(|change| Change {
            worker: change.worker.clone(),
            steps: change.unmet.iter().map(|reason| remedy(reason, &change.worker)).collect(),
        });
        let ruled_out = why.ruled_out.into_iter();
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
            }),
            open_workers: why.open_workers,
            changes: changes.collect(),
            ruled_out: ruled_out.map(|(why, n, examples)| RuledOut::from_core(&why, n, examples)).collect(),
        }
    }
}

fn say(why: &Explanation, name_of: impl Fn(u64) -> String) -> (&'static str, String) {
    match &why.reason {
        Reason::Ended => ("ended", "it is over".to_owned()),
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
        Reason::Held => ("held", "its job is held; 'windlass job release' lets it go on".to_owned()),
        Reason::AfterJobs(jobs) => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            ("after_jobs", format!("it comes after job {}, which has not ended", jobs.join(", ")))
        }
        Reason::Steps(steps) => ("steps", say_steps(steps)),
        Reason::NoWorkers => ("no_workers", "the farm has no worker".to_owned()),
        Reason::FitsNowhere => {
            ("fits_nowhere", "no worker of the farm could run it, even if it were empty".to_owned())
        }
        Reason::Full => ("full", "every worker that could run it is busy or takes no new work".to_owned()),
        Reason::Turn => ("turn", "there is room; it starts as soon as its turn comes".to_owned()),
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
