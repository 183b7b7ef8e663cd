//! Why a task is where it is: the same predicates as placement, counted instead of decided.

use crate::engine::Engine;
use crate::ids::{JobId, StepKey, TaskId, WorkerId};
use crate::job::{DependencyKind, Stop, TaskState};
use crate::limits;
use crate::matcher::{self, RuledOut};
use crate::time::Time;
use std::collections::BTreeMap;

/// Why a task is not running, or where it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The task's state.
    pub state: TaskState,
    /// The one reason that counts.
    pub reason: Reason,
    /// The step's place in its queue, where it stands in one.
    pub turn: Option<Turn>,
    /// What rules workers out now, most frequent first, with names of some.
    pub ruled_out: Vec<(RuledOut, usize, Vec<String>)>,
    /// Workers with room.
    pub open_workers: usize,
    /// What would make it run, smallest first.
    pub changes: Vec<Change>,
}

/// The one reason that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It is over.
    Ended,
    /// It runs there, or is about to.
    Placed {
        /// Where.
        worker: WorkerId,
        /// Since when its process runs, if it does.
        started: Option<Time>,
        /// It waits at its worker for a running task to end.
        queued: bool,
    },
    /// Nothing of its job starts any more.
    Stopped(Stop),
    /// Its job is held.
    Held,
    /// Its job comes after these.
    AfterJobs(Vec<JobId>),
    /// It waits for other steps: name, tasks still to succeed, tasks failed.
    Steps(Vec<(String, u32, u32)>),
    /// The farm has no workers that take work.
    NoWorkers,
    /// No worker could run it even if it were empty.
    FitsNowhere,
    /// Every worker that could run it is full, or takes no new work.
    Full,
    /// There is room; the next round starts it, or others before it.
    Turn,
}

/// Where a step stands.
#[derive(Clone, PartialEq, Eq, Debug)]
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

/// A change after which a named worker would run the task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The worker.
    pub worker: String,
    /// All that is in the way there.
    pub unmet: Vec<RuledOut>,
}

impl Engine {
    /// Explains a task of an active job; `None` if the engine does not hold the job or it has no such
    /// task.
    pub fn explain(&self, task: TaskId) -> Option<Explanation> {
        let job = self.job(task.job)?;
        let total: u32 = job.spec.steps.iter().map(|s| s.tasks).sum();
        if task.index >= total {
            return None;
        }
        if let Some(attempt) = self.attempt(task) {
            let state = if attempt.started.is_some() { TaskState::Running } else { TaskState::Booked };
            // Whether an adopted attempt waits or runs, only its worker knows.
            let heard = self.workers().get(attempt.worker).is_some_and(|worker| worker.connected);
            let reason = Reason::Placed {
                worker: attempt.worker,
                started: attempt.started,
                queued: attempt.is_queued() && heard,
            };
            return Some(Explanation::bare(state, reason));
        }
        let state = job.state_of(task.index);
        let key = StepKey { job: task.job, step: job.step_of(task.index) };
        let reason = match state {
            TaskState::Succeeded | TaskState::Failed => Reason::Ended,
            TaskState::Canceled | TaskState::Skipped => job.stop.map_or(Reason::Ended, Reason::Stopped),
            _ if job.held => Reason::Held,
            _ if !job.after.is_empty() => Reason::AfterJobs(job.after.iter().copied().collect()),
            TaskState::Waiting => self.waiting_for(key, task.index),
            _ => return Some(self.explain_ready(key, task, state)),
        };
        Some(Explanation::bare(state, reason))
    }

    fn waiting_for(&self, key: StepKey, index: u32) -> Reason {
        let Some(job) = self.job(key.job) else { return Reason::Ended };
        let (step, spec) = (&job.steps[usize::from(key.step)], &job.spec.steps[usize::from(key.step)]);
        let open = spec.depends.iter().filter_map(|dependency| {
            let on = usize::from(dependency.on);
            let (first, name) = (&job.steps[on], job.spec.steps[on].name.clone());
            match dependency.kind {
                DependencyKind::Step => {
                    let left = job.spec.steps[on].tasks - first.succeeded.len();
                    (left > 0).then(|| (name, left, first.failed.len()))
                }
                DependencyKind::Task => {
                    let first_index = index - step.base + first.base;
                    let failed = u32::from(first.failed.contains(first_index));
                    (!first.succeeded.contains(first_index)).then_some((name, 1, failed))
                }
            }
        });
        Reason::Steps(open.collect())
    }

    fn explain_ready(&self, key: StepKey, task: TaskId, state: TaskState) -> Explanation {
        let mut explanation = Explanation::bare(state, Reason::Turn);
        let (Some(class), Some(step), Some(job)) = (self.class_of(key), self.step(key), self.job(key.job))
        else {
            return explanation;
        };
        let mut counts: BTreeMap<RuledOut, (usize, Vec<String>)> = BTreeMap::new();
        let (mut could, mut some) = (0, 0);
        for worker in self.workers().present() {
            some += 1;
            could += usize::from(matcher::could_ever(class, worker));
            let Some(first) = matcher::rule_out(class, worker, true).next() else {
                explanation.open_workers += 1;
                continue;
            };
            let (count, examples) = counts.entry(first).or_default();
            *count += 1;
            if examples.len() < limits::EXAMPLES_MAX {
                examples.push(worker.name.to_string());
            }
            let unmet = matcher::rule_out(class, worker, true).collect();
            explanation.changes.push(Change { worker: worker.name.to_string(), unmet });
        }
        explanation.reason = match (some, could, explanation.open_workers) {
            (0, ..) => Reason::NoWorkers,
            (_, 0, _) => Reason::FitsNowhere,
            (_, _, 0) => Reason::Full,
            _ => Reason::Turn,
        };
        explanation.ruled_out = counts.into_iter().map(|(why, (n, examples))| (why, n, examples)).collect();
        explanation.ruled_out.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        // Fewest lasting obstacles first; waiting for others to end is no change that anybody makes.
        let lasting = |change: &Change| change.unmet.iter().filter(|why| why.is_lasting()).count();
        explanation.changes.sort_by_key(|change| (lasting(change), change.unmet.len()));
        explanation.changes.truncate(limits::EXAMPLES_MAX);
        explanation.turn = step.enlisted.as_ref().map(|candidate| Turn {
            queue: self.queues().get(job.queue).name.clone(),
            band: self.queues().get(job.queue).band,
            queues_ahead: self.queues().queues_ahead(job.queue),
            steps_ahead: self.queues().get(job.queue).position(candidate),
            tasks_ahead: step.ready.ranges().map(|r| r.end.min(task.index).saturating_sub(r.start)).sum(),
        });
        explanation
    }
}

impl Explanation {
    fn bare(state: TaskState, reason: Reason) -> Self {
        Explanation { state, reason, turn: None, ruled_out: Vec::new(), open_workers: 0, changes: Vec::new() }
    }
}
