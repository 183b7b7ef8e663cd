//! What the planner must know of the work that it places, and what it asks of the owner of that work.

use super::booking::Booking;
use super::planner::Planner;
use crate::cache_keys::Reads;
use crate::class::Class;
use crate::ids::{ClassId, QueueId, StepKey, TaskId, WorkerId};
use crate::job::{Hints, QueuedStep};
use crate::queues::RoundFilter;
use crate::resources::Resources;
use crate::score::context::{Amounts, JobContext};
use crate::score::history::Prediction;
use crate::time::Time;
use std::collections::BTreeSet;

/// The owner of work to place: the [`Engine`](crate::Engine) with its jobs, or a gateway with the jobs of another
/// system. It keeps the [`Planner`]'s workers, queues and classes up to date, and answers for its steps and for what
/// runs. [`round`](super::round) does the rest.
pub trait Work {
    /// Where bookings are recorded, to be committed and sent later.
    type Out;

    /// The planner, with the workers and queues.
    fn plan(&self) -> &Planner;

    /// The planner, to be changed.
    fn plan_mut(&mut self) -> &mut Planner;

    /// A step that is in a queue; `None` if there is no such step.
    fn facts(&self, step: StepKey) -> Option<StepFacts<'_>>;

    /// True if a farm-wide limit keeps the class from being started anywhere.
    fn is_limit_reached(&self, class: &Class) -> bool;

    /// True if the class leaves the worker to other work as long as that waits, so that it is not reserved for the class.
    fn is_left_to_others(&self, _class: &Class, _worker: WorkerId) -> bool {
        false
    }

    /// A task that runs on a worker of the planner; `None` if it is not known.
    fn running(&self, task: TaskId) -> Option<RunningTask<'_>>;

    /// True if tasks of the step are known to be so short that workers get some ahead of time.
    fn is_short(&self, _step: StepKey) -> bool {
        false
    }

    /// True if [`is_short`](Work::is_short) holds for some step.
    fn has_short_steps(&self) -> bool {
        false
    }

    /// Books the step's next task. Takes the task from the step, takes its room on the worker (see
    /// [`Planner::take`]), charges its queue (see [`Queues::charge`](crate::queues::Queues::charge)), and takes the
    /// step out of its queue if it has no ready task left. Returns how many tasks it booked: others may ride with it.
    fn book(&mut self, booking: &Booking, filter: &mut RoundFilter, out: &mut Self::Out) -> usize;

    /// Nothing else that waits fits, and the round has budget left: tasks that it booked may take what is idle.
    fn widen(&mut self, _out: &mut Self::Out) {}

    /// The tasks that start together when it is the turn of a step whose class [is a gang](Class::is_gang): as many of
    /// each part as the class says.
    fn gang(&self, _step: StepKey) -> Option<Vec<GangPart>> {
        None
    }

    /// Books the tasks of a [`gang`](Work::gang), all of them, as [`book`](Work::book) does one. The step whose turn it
    /// is stands in `queue` as `queued_step`.
    fn book_gang(
        &mut self,
        _tasks: &[GangBooking],
        _queued_step: QueuedStep,
        _queue: QueueId,
        _filter: &mut RoundFilter,
        _out: &mut Self::Out,
    ) {
    }
}

/// Tasks of one step that start together with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GangPart {
    /// The step of the gang.
    pub step: StepKey,
    /// Its tasks, each for another worker: those of the gang that have not succeeded. At least one.
    pub tasks: Vec<u32>,
}

/// A task that starts together with others, and its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GangBooking {
    /// The step of the task.
    pub step: StepKey,
    /// Its number in the job.
    pub index: u32,
    /// The worker that runs it.
    pub worker: WorkerId,
}

/// A step as the planner sees it.
#[derive(Clone, Copy, Debug)]
pub struct StepFacts<'a> {
    /// What its tasks require of a worker.
    pub class: ClassId,
    /// The ready task with the lowest number.
    pub first_ready: Option<u32>,
    /// How many of its tasks are ready.
    pub ready: u32,
    /// Since when it has ready tasks.
    pub ready_since: Time,
    /// How much waits for it: see [`Dependents::weight`](crate::score::dependents::Dependents::weight).
    pub dependents: f64,
    /// The number of its signature: tasks of one signature are expected to behave alike.
    pub profile: u64,
    /// What it reads from caches.
    pub reads: &'a Reads,
    /// What it says of itself.
    pub hints: &'a Hints,
    /// The worker on which its first ready tasks failed the last time.
    pub avoids: Option<WorkerId>,
    /// Mean run time of its tasks in milliseconds.
    pub mean_ms: Option<f64>,
    /// What earlier tasks of its signature held and took.
    pub prediction: Option<&'a Prediction>,
    /// Milliseconds that a task may run; `None`: without limit.
    pub time_limit_ms: Option<u64>,
}

impl StepFacts<'_> {
    /// Milliseconds that a task is expected to run: by those that ran, else by its time limit.
    pub fn expected_ms(&self) -> Option<f64> {
        let known = self.mean_ms.or_else(|| self.prediction.and_then(|prediction| prediction.wall_ms));
        within_limit(known, self.time_limit_ms)
    }

    /// True if both steps get the same points on a worker that has as much to do with the one as with the other.
    pub(super) fn is_judged_like(&self, other: &StepFacts) -> bool {
        // Without "..", so that a new field that rules look at is not forgotten here.
        let StepFacts {
            class,
            first_ready: _,
            ready: _,
            ready_since,
            dependents,
            profile: _,
            reads,
            hints,
            avoids: _,
            mean_ms: _,
            prediction,
            time_limit_ms: _,
        } = *self;
        // What rules see of hints is in the context. The rest of it follows from the class and from the facts above.
        let seen = |hints: &Hints| JobContext::of(hints, false, Amounts::default());
        class == other.class
            && ready_since == other.ready_since
            && dependents == other.dependents
            && prediction == other.prediction
            && self.longest_ms() == other.longest_ms()
            && reads.is_empty()
            && other.reads.is_empty()
            && hints.prefers.is_empty()
            && other.hints.prefers.is_empty()
            && seen(hints) == seen(other.hints)
    }

    /// Milliseconds that a task runs at most: its time limit, where it has one; else what is expected of it. Whether it
    /// would delay the holder of a reservation is judged by this, for a mean is exceeded by every other task.
    pub fn longest_ms(&self) -> Option<f64> {
        self.time_limit_ms.map(|ms| ms as f64).or_else(|| self.expected_ms())
    }
}

/// Milliseconds that a task is expected to run of which this is known, and that may run no longer than its time limit.
pub fn within_limit(known_ms: Option<f64>, time_limit_ms: Option<u64>) -> Option<f64> {
    let limit_ms = time_limit_ms.map(|ms| ms as f64);
    known_ms.zip(limit_ms).map(|(known, limit)| known.min(limit)).or(known_ms).or(limit_ms)
}

/// A task that runs, as the planner sees it.
#[derive(Clone, Copy, Debug)]
pub struct RunningTask<'a> {
    /// What it gives back when it ends.
    pub request: &'a Resources,
    /// Limits of which it gives one back each.
    pub limits: &'a BTreeSet<String>,
    /// When its process started, or else when it was booked.
    pub began: Time,
    /// When it was expected to end, as of its start; `None` is unknown.
    pub due: Option<Time>,
    /// When its time limit ends it at the latest; without a limit, when it was expected to end.
    pub ends_by: Option<Time>,
}
