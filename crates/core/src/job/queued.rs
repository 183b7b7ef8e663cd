//! How steps and jobs stand in the order of their queue, whether the engine has them in memory or only the store does.

use super::spec::JobSpec;
use crate::ids::{JobId, StepKey};
use crate::time::Time;
use std::cmp::Reverse;

/// A step with ready tasks, in the order of its queue: smaller comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueuedStep {
    priority: Reverse<i32>,
    ranked: Time,
    step: StepKey,
}

impl QueuedStep {
    /// A step, its job's priority, and since when it has been ready, less its head start.
    pub fn new(priority: i32, ranked: Time, step: StepKey) -> Self {
        QueuedStep { priority: Reverse(priority), ranked, step }
    }

    /// True if the other one has the same priority.
    pub fn is_peer(&self, other: &QueuedStep) -> bool {
        self.priority == other.priority
    }

    /// The step that stands here.
    pub fn step(&self) -> StepKey {
        self.step
    }

    /// Another step at this one's place: it starts when this one does.
    pub fn of_step(self, step: StepKey) -> QueuedStep {
        QueuedStep { step, ..self }
    }

    /// The job of that step.
    pub fn job(&self) -> JobId {
        self.step.job
    }
}

/// Where a job stands in its subqueue: smaller comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueuePos {
    /// The priority of the job.
    pub priority: Reverse<i32>,
    /// Since when its first tasks are ready, less their head start.
    pub ranked: Time,
    /// The job: of equals the older one comes first.
    pub job: JobId,
}

impl QueuePos {
    /// The position before all jobs.
    pub const FIRST: QueuePos = QueuePos { priority: Reverse(i32::MAX), ranked: Time(0), job: JobId(0) };

    /// The first position behind this one.
    pub fn next(self) -> QueuePos {
        QueuePos { job: JobId(self.job.0.saturating_add(1)), ..self }
    }
}

/// How a job is parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parked {
    /// The hash of its user and its class of work (`residency::subqueues::class_hash`).
    pub class: u64,
    /// Where it stands in its subqueue.
    pub position: QueuePos,
    /// Since when its first tasks are ready.
    pub ready: Time,
    /// One job, and its tasks.
    pub backlog: BacklogCounts,
}

/// How many jobs, and how many of their tasks are ready or wait for others of their job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BacklogCounts {
    /// The number of jobs.
    pub jobs: u64,
    /// Tasks that could start.
    pub ready: u64,
    /// Tasks that wait for others of their job.
    pub waiting: u64,
}

impl BacklogCounts {
    /// One job of which nothing started: tasks of steps that wait for no step are ready.
    pub fn of(spec: &JobSpec) -> BacklogCounts {
        let tasks = |ready: bool| {
            let steps = spec.steps.iter().filter(|step| step.depends.is_empty() == ready);
            steps.map(|step| u64::from(step.tasks)).sum()
        };
        BacklogCounts { jobs: 1, ready: tasks(true), waiting: tasks(false) }
    }

    /// The sum of both.
    pub fn plus(self, other: BacklogCounts) -> BacklogCounts {
        let BacklogCounts { jobs, ready, waiting } = other;
        BacklogCounts { jobs: self.jobs + jobs, ready: self.ready + ready, waiting: self.waiting + waiting }
    }

    /// What is left without the other.
    pub fn less(self, other: BacklogCounts) -> BacklogCounts {
        BacklogCounts {
            jobs: self.jobs.saturating_sub(other.jobs),
            ready: self.ready.saturating_sub(other.ready),
            waiting: self.waiting.saturating_sub(other.waiting),
        }
    }
}
