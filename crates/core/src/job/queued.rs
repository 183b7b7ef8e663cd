//! How steps and jobs stand in the order of their queue, whether the engine has them in memory or only the store does.

use super::JobSpec;
use crate::ids::{JobId, StepKey};
use crate::time::Time;
use std::cmp::Reverse;

/// A step with ready tasks, in the order of its queue: smaller comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Candidate {
    priority: Reverse<i32>,
    ranked: Time,
    step: StepKey,
}

impl Candidate {
    /// A step, its job's priority, and since when it has been ready, less its head start.
    pub fn new(priority: i32, ranked: Time, step: StepKey) -> Self {
        Candidate { priority: Reverse(priority), ranked, step }
    }

    /// True if the other one has the same priority.
    pub fn is_peer(&self, other: &Candidate) -> bool {
        self.priority == other.priority
    }

    /// The step.
    pub fn step(&self) -> StepKey {
        self.step
    }

    /// Its job.
    pub fn job(&self) -> JobId {
        self.step.job
    }
}

/// Where a job stands in its line: smaller comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Its priority.
    pub priority: Reverse<i32>,
    /// Since when its first tasks are ready, less their head start.
    pub ranked: Time,
    /// Itself.
    pub job: JobId,
}

impl Place {
    /// Before all others.
    pub const FIRST: Place = Place { priority: Reverse(i32::MAX), ranked: Time(0), job: JobId(0) };

    /// The first place behind this one.
    pub fn next(self) -> Place {
        Place { job: JobId(self.job.0.saturating_add(1)), ..self }
    }
}

/// How a job is parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parked {
    /// The number of its class of work.
    pub class: u64,
    /// Where it stands.
    pub place: Place,
    /// Since when its first tasks are ready.
    pub ready: Time,
    /// One job, and its tasks.
    pub tally: Tally,
}

/// How many jobs, and how many of their tasks are ready or wait for others of their job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Jobs.
    pub jobs: u64,
    /// Tasks that could start.
    pub ready: u64,
    /// Tasks that wait.
    pub waiting: u64,
}

impl Tally {
    /// One job that nobody touched: tasks of steps that wait for no step are ready.
    pub fn of(spec: &JobSpec) -> Tally {
        let tasks = |ready: bool| {
            let steps = spec.steps.iter().filter(|step| step.depends.is_empty() == ready);
            steps.map(|step| u64::from(step.tasks)).sum()
        };
        Tally { jobs: 1, ready: tasks(true), waiting: tasks(false) }
    }

    /// Both together.
    pub fn plus(self, other: Tally) -> Tally {
        let Tally { jobs, ready, waiting } = other;
        Tally { jobs: self.jobs + jobs, ready: self.ready + ready, waiting: self.waiting + waiting }
    }

    /// What is left without the other.
    pub fn less(self, other: Tally) -> Tally {
        Tally {
            jobs: self.jobs.saturating_sub(other.jobs),
            ready: self.ready.saturating_sub(other.ready),
            waiting: self.waiting.saturating_sub(other.waiting),
        }
    }
}
