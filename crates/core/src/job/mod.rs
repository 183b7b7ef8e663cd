//! Jobs, their steps, and what became of their tasks: the ground state that all indexes are made from.

mod chunk;
mod gang;
mod queued;
mod tries;

pub use chunk::{ChunkEnd, ChunkLengths, ChunkSize, Chunks, LeftToRun};
pub use gang::{Gang, GangTask};
pub use queued::{BacklogCounts, Parked, QueuePos, QueuedStep};
pub use tries::TriesMap;

use crate::bounds;
use crate::cache_keys::Reads;
use crate::ids::{ClassId, Epoch, JobId, QueueId, TaskId, WorkerId};
use crate::ranges::RangeSet;
use crate::resources::Resources;
use crate::tags::Need;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// A user and the key that they chose for a submission.
pub type SubmissionKey = (String, String);

/// A submission as the engine sees it. What the tasks run is in `StepSpec::body`, opaque here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobSpec {
    /// For people; need not be unique.
    pub name: String,
    /// Whose work it is.
    pub queue: String,
    /// Who submitted it.
    pub user: String,
    /// Inside the queue, higher first.
    pub priority: i32,
    /// The submitter's own key: a second submission with it is answered with the first job.
    pub key: Option<String>,
    /// The task that submitted this job and waits for it.
    pub parent: Option<TaskId>,
    /// Jobs that must succeed before any step starts.
    pub after: Vec<JobId>,
    /// What a failed task does to the rest of the job.
    pub fail_fast: FailFast,
    /// How many of its tasks may be booked or run at a time; `None` is any number.
    pub max_running: Option<u32>,
    /// The steps; a step may depend only on steps of this list.
    pub steps: Vec<StepSpec>,
}

impl JobSpec {
    /// The same without the names of cache keys, which are long and many: the engine has their hashes.
    pub fn without_caches(self: Arc<Self>) -> Arc<Self> {
        if self.steps.iter().all(|step| step.hints.caches.is_empty()) {
            return self;
        }
        let mut spec = Arc::unwrap_or_clone(self);
        spec.steps.iter_mut().for_each(|step| step.hints.caches.clear());
        Arc::new(spec)
    }

    /// The same without what its tasks run: the engine needs none of that.
    pub fn without_bodies(&self) -> JobSpec {
        let mut spec = self.clone();
        spec.steps.iter_mut().for_each(|step| step.body = Arc::default());
        spec
    }
}

/// A cap on running tasks that is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunningCap {
    /// The most tasks.
    pub max: u32,
    /// It is the whole job's, and not the step's.
    pub is_of_job: bool,
}

/// Tasks alike in command, requirements and tags.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StepSpec {
    /// Unique in its job.
    pub name: String,
    /// How many tasks.
    pub tasks: u32,
    /// What each task holds while it runs.
    pub request: Resources,
    /// What a worker must be.
    pub needs: Vec<Need>,
    /// Names of the only workers that may run it; empty is any.
    pub targets: BTreeSet<String>,
    /// Milliseconds that a task may run.
    pub time_limit_ms: Option<u64>,
    /// How many of its tasks may be booked or run at a time; `None` is any number.
    pub max_running: Option<u32>,
    /// The number of tasks in a row that start together, each on another worker; `None` is one by one. See [`Gang`].
    pub nodes: Option<u32>,
    /// Several of its tasks may be run by one process; `None` is one by one.
    pub chunks: Option<Chunks>,
    /// The place of an earlier step with which it starts: the first tasks of both together, and so on.
    pub with: Option<u16>,
    /// How often a failed task is run again.
    pub retries: u32,
    /// Steps of the same job that come first.
    pub depends: Vec<Dependency>,
    /// Licences that each task takes one of while it runs, by name.
    pub limits: BTreeSet<String>,
    /// What helps to choose a worker and to size the request.
    pub hints: Hints,
    /// Its tasks are run by the client that submitted them; their worker only keeps room for them.
    pub is_external: bool,
    /// What the tasks run, opaque to the engine.
    pub body: Arc<[u8]>,
}

/// What a step says of itself beyond what it must have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// What sort of work it is.
    pub kind: Kind,
    /// What its tasks run, with what differs from task to task left out: steps of one queue, name and
    /// shape are taken for alike. Empty is unknown.
    pub shape: String,
    /// It mostly waits for the network: a fast one suits it.
    pub network_bound: bool,
    /// It is short, and best run where its inputs are.
    pub prefer_local: bool,
    /// It needs a worker that fetches (tag `fetch`); other evaluations leave those free.
    pub fetches: bool,
    /// What its tasks read from caches: each key, and its bytes where they are known.
    pub caches: BTreeMap<String, Option<u64>>,
    /// Milliseconds after which a ready task should have started; `None` is the policy's default.
    pub deadline_ms: Option<u64>,
    /// The cpus asked for are a guess to begin with: take what earlier tasks show to be right.
    pub cpus_auto: bool,
    /// Hundredths of a core that a task can use at most: beyond its request it takes what is idle on its worker once
    /// nothing else that waits has a use for it. `None` is its request.
    pub cpus_max: Option<u32>,
    /// Workers that a task rather waits for than go elsewhere, for
    /// [`PREFERRED_HOLD_MS`](crate::score::weights::PREFERRED_HOLD_MS) since it was ready; by name.
    pub prefers: BTreeSet<String>,
}

/// What sort of work a step is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// Makes something.
    #[default]
    Build,
    /// Finds out what is to be made.
    Evaluation,
}

/// What a failed task does to the rest of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FailFast {
    /// Nothing: all other tasks run.
    #[default]
    No,
    /// No further task starts; running ones finish.
    Finish,
    /// No further task starts; running ones are killed.
    Kill,
}

/// One step waits for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// The place in the job of the step that comes first.
    pub on: u16,
    /// How.
    pub kind: DependencyKind,
}

/// How a step waits for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DependencyKind {
    /// Every task waits for all tasks of the other step.
    Step,
    /// Task i waits for task i of the other step, which has as many tasks.
    Task,
}

/// The state of a whole job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// Some task may still run.
    Active,
    /// Every task succeeded.
    Succeeded,
    /// A task failed for good, or a job that this one came after did.
    Failed,
    /// Somebody cancelled it.
    Canceled,
}

/// Why no further task of a job starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Somebody cancelled the job.
    Canceled,
    /// A task failed and the job asked for fail-fast.
    FailFast,
    /// A job that this one comes after did not succeed.
    After(JobId),
}

/// The state of one task, as stored in its row and as told to people.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TaskState {
    /// Something must end first.
    Waiting,
    /// May start when a worker has room.
    Ready,
    /// Has a booking; its worker has not said that it started.
    Booked,
    /// Its worker said that it started.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly, retries spent.
    Failed,
    /// Killed or never started because somebody cancelled, or by fail-fast.
    Canceled,
    /// Never started because what it waited for failed.
    Skipped,
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The command exited by itself.
    Exited(i32),
    /// A signal that we did not send ended it.
    Signaled(i32),
    /// Killed at its time limit.
    TimeLimit,
    /// Killed at its memory limit.
    OutOfMemory,
    /// Killed because the job was cancelled.
    Canceled,
    /// Given back before it started.
    Recalled,
    /// The command could not be started.
    NotStarted {
        /// Why, such as the operating system's reason.
        why: String,
        /// Whose fault that is. Not stored.
        fault: LaunchFault,
    },
    /// Its worker is gone and the end of its processes is confirmed.
    Lost,
}

/// Whose fault it is that a command could not be started. Whoever reports such an end says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaunchFault {
    /// The job's: it asked for a directory or a program that is missing, or for a kind of worker that cannot run it. That
    /// says nothing of the worker.
    Job,
    /// The worker's. One on which nothing starts is left out after a few attempts, whoever submitted them.
    Worker,
    /// Nobody says. It counts as a task that failed: the worker is left out where different jobs fail there that succeed
    /// elsewhere.
    Unknown,
}

impl End {
    /// The command could not be started, by the fault of its job.
    pub fn refused(why: impl Into<String>) -> End {
        End::NotStarted { why: why.into(), fault: LaunchFault::Job }
    }

    /// The exit code that stands for this end, as a shell would say it.
    pub fn exit_code(&self) -> i32 {
        match self {
            End::Exited(code) => *code,
            End::Signaled(signal) => 128 + signal,
            End::TimeLimit => 124,
            End::OutOfMemory => 137,
            End::Canceled | End::Recalled => 130,
            End::NotStarted { .. } => 127,
            End::Lost => 1,
        }
    }
}

/// What a worker reports of an attempt that ended. Unknown is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskResult {
    /// How.
    pub end: End,
    /// When the process started.
    pub started: Option<Time>,
    /// When its end was seen.
    pub finished: Option<Time>,
    /// Processor time in milliseconds, user and system, of the whole process tree.
    pub cpu_ms: Option<u64>,
    /// Most bytes of memory held at one time.
    pub peak_memory: Option<u64>,
    /// Bytes read from and written to disks.
    pub disk_bytes: Option<u64>,
    /// Bytes written to standard output.
    pub out_bytes: u64,
    /// Bytes written to standard error.
    pub err_bytes: u64,
    /// Why it failed, in the task's own words.
    pub message: Option<String>,
}

impl TaskResult {
    /// An end of which nothing else is known.
    pub fn bare(end: End) -> Self {
        TaskResult {
            end,
            started: None,
            finished: None,
            cpu_ms: None,
            peak_memory: None,
            disk_bytes: None,
            out_bytes: 0,
            err_bytes: 0,
            message: None,
        }
    }
}

/// How many tasks of a job are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// All.
    pub total: u32,
    /// Waiting for another task, step or job.
    pub waiting: u32,
    /// Could start.
    pub ready: u32,
    /// Booked or running.
    pub active: u32,
    /// Ended well.
    pub succeeded: u32,
    /// Ended badly.
    pub failed: u32,
    /// Killed, or stopped before they started.
    pub canceled: u32,
    /// Never started because what they waited for failed.
    pub skipped: u32,
}

/// A task's row, as a store keeps it while its job is active.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRow {
    /// The task's place in its job.
    pub index: u32,
    /// `Ready` (to be run again), `Booked`, or an end.
    pub state: TaskState,
    /// The last attempt, from 1.
    pub attempt: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Attempts lost with their worker.
    pub losses: u32,
    /// Where the last attempt was booked.
    pub worker: WorkerId,
    /// The worker's epoch at that time.
    pub epoch: Epoch,
    /// When it was booked.
    pub booked: Time,
    /// What it was booked with: hundredths of a core and bytes. `None` of a row from before this was
    /// kept: as its step asks.
    pub amounts: Option<(u32, u64)>,
}

/// A step starts nothing for a while: one of its tasks found a licence busy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackOff {
    /// The limit that was busy.
    pub limit: String,
    /// Since when.
    pub since: Time,
    /// Until when.
    pub until: Time,
    /// How often in a row; 0 where a task succeeded since.
    pub times: u32,
}

/// Tasks in a row that ended alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedTasks {
    /// Their places in the job.
    pub tasks: Range<u32>,
    /// `Succeeded`, `Failed` or `Canceled`.
    pub state: TaskState,
    /// What their attempts came to; of tasks that succeeded nobody asks.
    pub tries: Tries,
}

/// A job as a store gives it back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRecord {
    /// The job.
    pub id: JobId,
    /// As submitted, without the bodies of its steps.
    pub spec: Arc<JobSpec>,
    /// When it was accepted.
    pub created: Time,
    /// Its state.
    pub state: JobState,
    /// Why no further task starts.
    pub stop: Option<Stop>,
    /// Held by somebody.
    pub held: bool,
    /// How it is parked, if it is.
    pub parked: Option<Parked>,
    /// The tasks that are booked, or ready to be tried again.
    pub tasks: Vec<TaskRow>,
    /// The tasks that ended, by ranges.
    pub ended: Vec<EndedTasks>,
    /// Of a job whose tasks start together: the tasks among `ended` that were booked when one of the booked tasks was.
    pub mates: Vec<TaskRow>,
    /// Steps, by their place, that found a licence busy.
    pub back_offs: BTreeMap<u16, BackOff>,
}

impl JobRecord {
    /// A job just accepted: no task of it was tried.
    pub fn new(id: JobId, spec: Arc<JobSpec>, created: Time) -> Self {
        JobRecord {
            id,
            spec,
            created,
            state: JobState::Active,
            stop: None,
            held: false,
            parked: None,
            tasks: Vec::new(),
            ended: Vec::new(),
            mates: Vec::new(),
            back_offs: BTreeMap::new(),
        }
    }
}

/// What earlier attempts of a task came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tries {
    /// The last attempt.
    pub attempt: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Attempts lost with their worker.
    pub losses: u32,
    /// Where the last one failed, as far as the engine was there.
    pub failed_on: Option<WorkerId>,
}

/// A step of an active job. The sets hold task numbers of the job, not of the step.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The number of its first task.
    pub base: u32,
    /// Which workers fit.
    pub class: ClassId,
    /// May start now.
    pub ready: RangeSet,
    /// Ended well.
    pub succeeded: RangeSet,
    /// Ended badly.
    pub failed: RangeSet,
    /// Killed on request.
    pub canceled: RangeSet,
    /// Booked or running.
    pub active: u32,
    /// Of these, how many another task's process runs.
    pub riding: u32,
    /// Since when `ready` holds something; orders steps of equal priority.
    pub ready_since: Time,
    /// How it stands in its queue, if it does.
    pub enlisted: Option<QueuedStep>,
    /// Tasks that were tried before, did not succeed, and have no attempt now.
    pub tries: TriesMap,
    /// How many of its tasks had succeeded when their ranges were written last.
    pub noted: u32,
    /// Mean run time of its tasks so far in milliseconds.
    pub mean_ms: Option<f64>,
    /// How long chunks of its tasks took; `None` for a step without chunks.
    pub chunk_lengths: Option<Box<ChunkLengths>>,
    /// What its tasks read from caches.
    pub reads: Reads,
    /// The number of its kind: steps whose tasks are taken for alike.
    pub profile: u64,
    /// How much waits for it, and the critical path there: see [`crate::score::dependents`].
    pub dependents: f64,
}

/// An active job.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// As submitted.
    pub spec: Arc<JobSpec>,
    /// Its queue.
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
    /// Held by somebody.
    pub held: bool,
    /// Set when it ended, until the engine forgets it.
    pub ended: Option<JobState>,
    /// Jobs that must still succeed.
    pub after: BTreeSet<JobId>,
    /// Its steps, in the order of the spec.
    pub steps: Vec<Step>,
    /// Attempts that failed since the engine has it.
    pub failed_attempts: u64,
}

impl Step {
    /// The first ready task that did not fail on that worker the last time. Looks at a bounded number.
    pub fn pick(&self, worker: WorkerId) -> Option<u32> {
        let failed_there =
            |index: &u32| self.tries.get(*index).is_some_and(|tries| tries.failed_on == Some(worker));
        self.ready.iter().take(bounds::PICKS_MAX).find(|index| !failed_there(index))
    }

    /// The worker on which all of the first ready tasks failed the last time, if there is one. Looks at a bounded
    /// number.
    pub fn avoids(&self) -> Option<WorkerId> {
        if self.tries.is_empty() {
            return None;
        }
        let failed_on = |index: u32| self.tries.get(index).and_then(|tries| tries.failed_on);
        let mut first = self.ready.iter().take(bounds::PICKS_MAX);
        let worker = failed_on(first.next()?)?;
        first.all(|index| failed_on(index) == Some(worker)).then_some(worker)
    }
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
            open.subtract(&self.tasks_of_lost_gangs(step));
        }
        open
    }

    /// True if the dependencies of one task of step number `step` are met, and its gang may still start.
    pub fn is_unlocked(&self, step: usize, index: u32) -> bool {
        self.gang_of(index).is_none_or(|gang| !self.is_lost(&gang)) && self.is_unlocked_alone(step, index)
    }

    /// The same, whatever became of its gang.
    pub fn is_unlocked_alone(&self, step: usize, index: u32) -> bool {
        let offset = index - self.steps[step].base;
        self.spec.steps[step].depends.iter().all(|dependency| {
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

    /// True if no task is booked, running, or could start.
    pub fn is_settled(&self) -> bool {
        let idle = self.steps.iter().all(|s| s.active == 0);
        idle && (self.stop.is_some()
            || (self.after.is_empty()
                && (0..self.steps.len()).all(|step| self.has_nothing_ready(step))
                && !self.waits_for_itself()))
    }

    /// True if none of its tasks may start, although none failed or was cancelled and some have not succeeded: its steps
    /// wait for each other. No such job is accepted. One that an earlier release accepted waits until it is cancelled,
    /// and its tasks say for what.
    fn waits_for_itself(&self) -> bool {
        let is_unhurt = self.steps.iter().all(|step| step.failed.is_empty() && step.canceled.is_empty());
        let is_whole = |(step, spec): (&Step, &StepSpec)| step.succeeded.len() == spec.tasks;
        is_unhurt && !self.steps.iter().zip(&self.spec.steps).all(is_whole)
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

/// What a job counts that nobody touched: tasks of steps that wait for no step are ready.
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
