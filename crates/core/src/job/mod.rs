//! Jobs, their steps, and what became of their tasks: the ground state that all indexes are made from.

mod after;
mod chunk;
mod end;
mod first_tasks;
mod gang;
mod queued;
mod record;
mod spec;
mod step;
mod tries;

pub use chunk::{ChunkEnd, ChunkLengths, ChunkSize, Chunks, EqualRuns, LeftToRun};
pub use end::{End, LaunchFault, TaskResult};
pub use first_tasks::FirstTasks;
pub use gang::{Gang, GangTask};
pub use queued::{BacklogCounts, Parked, QueuePos, QueuedStep};
pub use record::{BackOff, EndedTasks, JobRecord, JobState, Stop, TaskRow, TaskState};
pub use spec::{
    AfterEnd, BUILD_CPU, Dependency, DependencyKind, FailFast, FailLimit, Hints, JobSpec, Jobserver, Kind,
    OnEnd, StepSpec, SubmissionKey,
};
pub use step::Step;
pub use tries::{Tries, TriesMap};

use crate::ids::{JobId, QueueId, WorkerId};
use crate::ranges::RangeSet;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// A job that has not ended, as the engine has it in memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Numbers rise in the order of submission.
    pub id: JobId,
    /// As submitted, without the bodies of its steps.
    pub spec: Arc<JobSpec>,
    /// The queue, or its user's part of that.
    pub queue: QueueId,
    /// Some of its tasks start together.
    pub has_gangs: bool,
    /// Tasks that ended while others that started with them are booked or run, and their workers.
    pub ended_mates: BTreeMap<u32, WorkerId>,
    /// Tasks of all its steps that are booked or run.
    pub active: u32,
    /// When it was accepted.
    pub created: Time,
    /// Why no further task starts.
    pub stop: Option<Stop>,
    /// A user holds it: nothing of it starts.
    pub held: bool,
    /// Set when it ended, until the engine forgets it.
    pub ended: Option<JobState>,
    /// Jobs that must still end, most of them with success.
    pub after: BTreeSet<JobId>,
    /// The tasks of another job after which its own come, task by task.
    pub first_tasks: Option<FirstTasks>,
    /// Its steps, in the order of the spec.
    pub steps: Vec<Step>,
    /// Attempts that failed since the engine has it.
    pub failed_attempts: u64,
    /// Tasks that requests cancelled and that were not retried since. Those of them that are booked are being killed.
    pub cancels: RangeSet,
}

impl Job {
    /// The most tasks of the step, or else of the job, that may be booked or run at a time, where as many are.
    pub fn cap_reached(&self, step: usize) -> Option<RunningCap> {
        let max_of = |step: usize| self.spec.steps[step].max_running;
        if self.spec.max_running.is_none() && self.gang_steps(step).all(|step| max_of(step).is_none()) {
            return None;
        }
        let (mut all, next) = (0, self.next_nodes(step));
        for (place, step) in self.gang_steps(step).enumerate() {
            let nodes = next.as_ref().map_or(self.spec.steps[step].nodes, |nodes| nodes[place]);
            let starting = nodes.unwrap_or(1);
            all += starting;
            if let Some(max) = max_of(step).filter(|max| self.steps[step].active + starting > *max) {
                return Some(RunningCap { max, is_of_job: false });
            }
        }
        let max = self.spec.max_running?;
        (self.active + all > max).then_some(RunningCap { max, is_of_job: true })
    }

    /// The place in the job of the step that task `index` belongs to.
    pub fn step_of(&self, index: u32) -> u16 {
        let next = self.steps.partition_point(|s| s.base <= index);
        (next - 1) as u16
    }

    /// A range of tasks by the steps that they are of.
    pub fn by_step(&self, mut tasks: Range<u32>) -> Vec<(usize, Range<u32>)> {
        let mut parts = Vec::new();
        while !tasks.is_empty() {
            let number = usize::from(self.step_of(tasks.start));
            let end = self.steps[number].base + self.spec.steps[number].tasks;
            let part = tasks.start..tasks.end.min(end);
            if part.is_empty() {
                break;
            }
            tasks.start = part.end;
            parts.push((number, part));
        }
        parts
    }

    /// The task's state, but for `Booked` and `Running`, which only the engine's attempts tell apart.
    pub fn state_of(&self, index: u32) -> TaskState {
        let step = &self.steps[usize::from(self.step_of(index))];
        if step.succeeded.contains(index) {
            TaskState::Succeeded
        } else if step.failed.contains(index) {
            TaskState::Failed
        } else if step.canceled.contains(index) {
            TaskState::Canceled
        } else if self.stop.is_some() || self.ended.is_some() {
            unstarted_state(self.stop)
        } else if step.ready.contains(index) && self.after.is_empty() {
            TaskState::Ready
        } else {
            TaskState::Waiting
        }
    }

    /// The tasks of step number `step` whose dependencies are met, but for those of gangs that cannot start any more.
    pub fn unlocked(&self, step: usize) -> RangeSet {
        let base = self.steps[step].base;
        let mut open = RangeSet::from_range(base..base + self.spec.steps[step].tasks);
        if let Some(first) = &self.first_tasks {
            open = open.intersection(&first.succeeded);
        }
        for dependency in &self.spec.steps[step].depends {
            let on = usize::from(dependency.on);
            match dependency.kind {
                DependencyKind::Step if self.steps[on].succeeded.len() == self.spec.steps[on].tasks => {}
                DependencyKind::Step => return RangeSet::default(),
                DependencyKind::Task => {
                    let by = i64::from(base) - i64::from(self.steps[on].base);
                    open = open.intersection(&self.steps[on].succeeded.shifted(by));
                }
            }
        }
        if self.is_in_gang(step) {
            open.subtract(&self.tasks_of_broken_gangs(step));
        }
        open
    }

    /// True if the dependencies of one task of step number `step` are met, and its gang may still start.
    pub fn is_unlocked(&self, step: usize, index: u32) -> bool {
        self.gang_of(index).is_none_or(|gang| !self.is_broken(&gang)) && self.is_unlocked_alone(step, index)
    }

    /// The same, whatever became of its gang.
    pub fn is_unlocked_alone(&self, step: usize, index: u32) -> bool {
        let offset = index - self.steps[step].base;
        let mut depends = self.spec.steps[step].depends.iter();
        self.is_let_by_first(index)
            && depends.all(|dependency| {
                let on = usize::from(dependency.on);
                match dependency.kind {
                    DependencyKind::Step => self.steps[on].succeeded.len() == self.spec.steps[on].tasks,
                    DependencyKind::Task => self.steps[on].succeeded.contains(self.steps[on].base + offset),
                }
            })
    }

    /// True if the job was stopped in such a way that its running tasks are killed.
    pub fn kills(&self) -> bool {
        match self.stop {
            Some(Stop::Canceled) => true,
            Some(Stop::FailFast) => self.spec.fail_fast == FailFast::Kill,
            Some(Stop::After(_)) | None => false,
        }
    }

    /// Those of these tasks that have not ended.
    pub fn not_ended(&self, tasks: &RangeSet) -> RangeSet {
        let mut open = tasks.clone();
        for step in &self.steps {
            for ended in [&step.succeeded, &step.failed, &step.canceled] {
                open.subtract(ended);
            }
        }
        open
    }

    /// Those of these tasks that failed or were cancelled.
    pub fn unsuccessful(&self, tasks: &RangeSet) -> RangeSet {
        let mut found = RangeSet::default();
        for step in &self.steps {
            for set in [&step.failed, &step.canceled] {
                set.intersection(tasks).ranges().for_each(|range| found.insert_range(range));
            }
        }
        found
    }

    /// Cancels tasks that have neither ended nor an attempt.
    pub fn cancel_idle(&mut self, tasks: &RangeSet) {
        for (number, part) in tasks.ranges().flat_map(|range| self.by_step(range)).collect::<Vec<_>>() {
            let step = &mut self.steps[number];
            step.ready.subtract(&RangeSet::from_range(part.clone()));
            step.canceled.insert_range(part);
        }
    }

    /// True if the number of its failed tasks is one with which it asks to be stopped.
    pub fn has_failed_enough(&self) -> bool {
        let failed = self.steps.iter().map(|step| step.failed.len()).sum();
        self.spec.fail_fast != FailFast::No && self.spec.fail_limit.is_reached(failed, self.spec.tasks())
    }

    /// True if no task is booked, running, or could start.
    pub fn is_settled(&self) -> bool {
        let idle = self.steps.iter().all(|s| s.active == 0);
        idle && (self.stop.is_some()
            || (self.after.is_empty()
                && !self.awaits_first()
                && (0..self.steps.len()).all(|step| self.has_nothing_ready(step))
                && !self.waits_for_itself()))
    }

    /// True if none of its tasks may start, although none failed or was cancelled, some have not succeeded, and no other
    /// job's tasks keep them: its steps wait for each other. No such job is accepted. One that an earlier release
    /// accepted waits until it is cancelled, and its tasks say for what.
    fn waits_for_itself(&self) -> bool {
        let is_unhurt = self.steps.iter().all(|step| step.failed.is_empty() && step.canceled.is_empty());
        let is_whole = |(step, spec): (&Step, &StepSpec)| step.succeeded.len() == spec.tasks;
        is_unhurt && !self.lacks_first() && !self.steps.iter().zip(&self.spec.steps).all(is_whole)
    }

    /// True if no task of a step can start. Tasks of gangs may be ready that never start, as what others of theirs wait
    /// for has failed.
    fn has_nothing_ready(&self, step: usize) -> bool {
        match self.is_in_gang(step) {
            true => !self.has_startable(step),
            false => self.steps[step].ready.is_empty(),
        }
    }

    /// The state in which it ends, once it is settled.
    pub fn end_state(&self) -> JobState {
        let whole = |i: usize| self.steps[i].succeeded.len() == self.spec.steps[i].tasks;
        match self.stop {
            _ if (0..self.steps.len()).all(whole) => JobState::Succeeded,
            Some(Stop::Canceled) => JobState::Canceled,
            None if self.lacks_first() => JobState::Failed,
            _ if self.steps.iter().all(|s| s.failed.is_empty()) && self.stop.is_none() => JobState::Canceled,
            _ => JobState::Failed,
        }
    }

    /// All counts, in a walk over the steps.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (step, spec) in self.steps.iter().zip(&self.spec.steps) {
            let ended = step.succeeded.len() + step.failed.len() + step.canceled.len();
            counts.total += spec.tasks;
            counts.active += step.active;
            counts.succeeded += step.succeeded.len();
            counts.failed += step.failed.len();
            counts.canceled += step.canceled.len();
            let rest = spec.tasks - ended - step.active;
            match self.stop {
                Some(Stop::After(_)) => counts.skipped += rest,
                Some(_) => counts.canceled += rest,
                None if self.ended.is_some() => counts.skipped += rest,
                None => {
                    let ready = if self.after.is_empty() { step.ready.len() } else { 0 };
                    counts.ready += ready;
                    counts.waiting += rest - ready;
                }
            }
        }
        counts
    }
}

/// A cap on running tasks that is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunningCap {
    /// How many tasks may be booked or run at a time.
    pub max: u32,
    /// It is the whole job's, and not the step's.
    pub is_of_job: bool,
}

/// How many tasks of a job are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// All tasks of the job.
    pub total: u32,
    /// Waiting for another task, step or job.
    pub waiting: u32,
    /// Those that could start.
    pub ready: u32,
    /// Those that are booked or run.
    pub active: u32,
    /// Those whose last attempt succeeded.
    pub succeeded: u32,
    /// Those that failed for good.
    pub failed: u32,
    /// Killed, or stopped before they started.
    pub canceled: u32,
    /// Never started because what they waited for failed.
    pub skipped: u32,
}

/// What a job counts of which nothing started: tasks of steps that wait for no step are ready.
pub fn untouched_counts(spec: &JobSpec) -> Counts {
    let BacklogCounts { ready, waiting, .. } = BacklogCounts::of(spec);
    let (ready, waiting) = (ready as u32, waiting as u32);
    Counts { total: ready + waiting, ready, waiting, ..Counts::default() }
}

/// The state of a task that never started in a job that ended or was stopped.
pub fn unstarted_state(stop: Option<Stop>) -> TaskState {
    match stop {
        Some(Stop::Canceled | Stop::FailFast) => TaskState::Canceled,
        Some(Stop::After(_)) | None => TaskState::Skipped,
    }
}
