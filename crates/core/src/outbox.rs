//! What the engine wants done.

use crate::ids::{AllocId, Epoch, JobId, RequestId, TaskId, WorkerId};
use crate::job::{BackOff, Counts, JobSpec, JobState, Parked, QueuePos, Stop, TaskResult, TaskState};
use crate::licences::Limit;
use crate::plan::placement::Ineligible;
use crate::queues::{BadSetting, QueueRecord, SavedTurns};
use crate::ranges::RangeSet;
use crate::resources::Resources;
use crate::score::history::Sample;
use crate::time::{NS_PER_S, Time};
use crate::worker::WorkerRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// One batch. The shell commits `writes` in one transaction. `sends`, `replies`, `facts` and `fetches` go out after
/// that, in order. `volatile` replies depend on no write and go out at once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outbox {
    /// Rows for the store, in this order and in one transaction.
    pub writes: Vec<Write>,
    /// Messages to workers, sent when the writes are durable.
    pub sends: Vec<Send>,
    /// Replies to requests, sent when the writes are durable.
    pub replies: Vec<(RequestId, Reply)>,
    /// Replies that depend on no write, and are sent at once.
    pub volatile: Vec<(RequestId, Reply)>,
    /// What happened, for events, metrics and histories.
    pub facts: Vec<Fact>,
    /// To be read from the store when the writes are durable.
    pub fetches: Vec<Fetch>,
    /// Jobs that ended in this batch and that the engine forgets when it is committed.
    pub ended: Vec<JobId>,
    /// The jobs that requests were about. Where a job's rows are refused, its requests were not carried out.
    pub about: BTreeMap<RequestId, JobId>,
    /// Workers as they were before a request changed them. They are so again if the batch fails.
    pub before: Vec<WorkerRecord>,
}

/// What becomes of a batch that is durable but for rows that something else had changed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Release {
    /// What may go out.
    pub batch: Outbox,
    /// Requests that were not carried out.
    pub undone: Vec<RequestId>,
    /// Jobs to be read from the store and given to [`Engine::reload`](crate::engine::Engine::reload) before anything
    /// else is committed; `None` if no row was refused.
    pub again: Option<BTreeSet<JobId>>,
}

/// Writes, sends and facts for which an emptied batch keeps room at most.
const ROOM_MAX: usize = 16_384;

impl Outbox {
    /// An empty batch in the memory of this one. A batch that grows from nothing copies what it has again and again, in
    /// memory that the system clears first.
    pub(crate) fn emptied(self) -> Outbox {
        let Outbox { mut writes, mut sends, mut facts, .. } = self;
        writes.clear();
        sends.clear();
        facts.clear();
        writes.shrink_to(ROOM_MAX);
        sends.shrink_to(ROOM_MAX);
        facts.shrink_to(ROOM_MAX);
        Outbox { writes, sends, facts, ..Outbox::default() }
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
            && self.sends.is_empty()
            && self.replies.is_empty()
            && self.volatile.is_empty()
            && self.facts.is_empty()
            && self.fetches.is_empty()
    }

    /// Takes out what would be said about these jobs. Adds the requests about them to `undone`.
    pub(crate) fn withhold(&mut self, jobs: &BTreeSet<JobId>, undone: &mut Vec<RequestId>) {
        self.sends.retain(|send| send.command.job().is_none_or(|job| !jobs.contains(&job)));
        self.facts.retain(|fact| fact.job().is_none_or(|job| !jobs.contains(&job)));
        self.replies.retain(|(request, _)| {
            let done = self.about.get(request).is_none_or(|job| !jobs.contains(job));
            if !done {
                undone.push(*request);
            }
            done
        });
    }

    /// The jobs whose rows this batch touches.
    pub fn touched_jobs(&self) -> BTreeSet<JobId> {
        self.writes.iter().filter_map(Write::job).collect()
    }
}

/// A read of the store, answered by [`Event::Fetched`](crate::engine::Event::Fetched). It shows at least what was
/// durable when its batch was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// The answer names this number. It rises.
    pub number: u64,
    /// What the store is asked for.
    pub wanted: FetchQuery,
}

/// What is to be read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum FetchQuery {
    /// The next parked jobs of a queue and class: as many as have `steps` steps together.
    Page {
        queue: String,
        /// The hash of the user and the class of work (`residency::subqueues::class_hash`).
        class: u64,
        /// The first position that may be shown.
        from: QueuePos,
        steps: usize,
    },
    /// These jobs, parked or not.
    Jobs(BTreeSet<JobId>),
}

/// A change of the store. Each carries all that a store needs; none reads.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum Write {
    /// A new job with its steps.
    Job { id: JobId, spec: Arc<JobSpec>, created: Time },
    /// A job was held or released.
    JobHeld { job: JobId, held: bool },
    /// A job has another priority.
    JobPriority {
        job: JobId,
        /// Inside its queue, higher first.
        priority: i32,
    },
    /// No further task of the job starts.
    JobStop { job: JobId, stop: Stop },
    /// The job ended, and with it its rows of tasks.
    JobEnd {
        job: JobId,
        state: JobState,
        at: Time,
        /// What became of its tasks.
        counts: Counts,
    },
    /// The job is active again. Of these tasks, those that failed or were cancelled are ready, and their last attempts
    /// go to their histories. The failures of those without a booking are forgotten.
    JobRetry {
        job: JobId,
        /// Their places in the job; all of them where all that failed is retried.
        tasks: RangeSet,
    },
    /// The tasks of a job that requests cancelled and that were not retried since, all of them. Those without a booking
    /// are over.
    TasksCanceled {
        job: JobId,
        /// Their places in the job.
        tasks: RangeSet,
    },
    /// Another job has ended after whose tasks those of this job come: its tasks that succeeded, all of them.
    FirstSucceeded {
        job: JobId,
        /// Their places in the other job, which are those of this job's tasks that they let start.
        tasks: RangeSet,
    },
    /// A task is booked. Refused unless the task has no row (attempt 1) or is ready again with the
    /// attempt before: the insert by primary key is the compare-and-swap.
    Book {
        task: TaskId,
        /// The attempt's number, from 1.
        attempt: u32,
        worker: WorkerId,
        epoch: Epoch,
        at: Time,
        /// Hundredths of a core that it holds, and bytes of memory.
        amounts: (u32, u64),
    },
    /// An attempt ended and with it the task. Refused unless the attempt is the booked one.
    End {
        task: TaskId,
        attempt: u32,
        /// How the task ended.
        state: TaskState,
        failures: u32,
        /// Attempts lost with their worker.
        losses: u32,
        /// How the attempt ended.
        result: TaskResult,
    },
    /// An attempt ended and the task is ready again; the attempt goes to the task's history. Refused
    /// unless the attempt is the booked one.
    Requeued {
        task: TaskId,
        attempt: u32,
        failures: u32,
        /// Attempts lost with their worker.
        losses: u32,
        /// How the attempt ended.
        result: TaskResult,
    },
    /// A result came for an attempt that is not the booked one: history only.
    LateResult {
        task: TaskId,
        attempt: u32,
        worker: WorkerId,
        epoch: Epoch,
        /// How the attempt ended.
        result: TaskResult,
    },
    /// The tasks of a job that succeeded, all but some. What reads the job need not look at their rows.
    SucceededRanges {
        job: JobId,
        /// Their places in the job.
        tasks: RangeSet,
    },
    /// The steps of a job that found a licence busy, all of them, by their place.
    LicenceBackoffs { job: JobId, steps: BTreeMap<u16, BackOff> },
    /// A worker as it is now.
    Worker(WorkerRecord),
    /// A worker has been gone for so long that its row is deleted.
    WorkerGone(WorkerId),
    /// All that is known of the tasks of one signature.
    History {
        /// Which kind: see [`Engine`](crate::engine::Engine) on signatures.
        signature: String,
        /// Oldest first, [`SAMPLES_MAX`](crate::score::history::SAMPLES_MAX) at most.
        samples: Vec<Sample>,
        at: Time,
    },
    /// A queue as an administrator set it.
    Queue(QueueRecord),
    /// What an administrator set of the queue of this name is gone.
    QueueGone(String),
    /// A limit as an administrator set it; `None` takes it away.
    Limit {
        name: String,
        /// As it is from now on.
        limit: Option<Limit>,
    },
    /// Where queues and users stand in their turns as of this batch, of those for whom that has changed. At most one a
    /// batch, and never the only write of one.
    Turns(SavedTurns),
    /// A job is parked: it need not be read when an engine starts. Refused unless it is active and not parked.
    Park {
        job: JobId,
        /// The name of its queue.
        queue: String,
        parked: Parked,
    },
    /// A job is not parked any more. Refused unless it is.
    Unpark {
        job: JobId,
        /// The name of its queue.
        queue: String,
        /// How it was parked.
        parked: Parked,
    },
    /// A worker's lease lasts longer.
    Lease {
        worker: WorkerId,
        /// Until when, on the scheduler's clock.
        until: Time,
    },
}

impl Write {
    /// The job whose rows it touches.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Write::Job { id: job, .. }
            | Write::JobHeld { job, .. }
            | Write::JobPriority { job, .. }
            | Write::JobStop { job, .. }
            | Write::JobEnd { job, .. }
            | Write::JobRetry { job, .. }
            | Write::TasksCanceled { job, .. }
            | Write::FirstSucceeded { job, .. }
            | Write::LicenceBackoffs { job, .. }
            | Write::SucceededRanges { job, .. }
            | Write::Park { job, .. }
            | Write::Unpark { job, .. } => Some(*job),
            Write::Book { task, .. }
            | Write::End { task, .. }
            | Write::Requeued { task, .. }
            | Write::LateResult { task, .. } => Some(task.job),
            Write::Worker(_)
            | Write::WorkerGone(_)
            | Write::Lease { .. }
            | Write::History { .. }
            | Write::Queue(_)
            | Write::QueueGone(_)
            | Write::Limit { .. }
            | Write::Turns(_) => None,
        }
    }

    /// The worker whose row it touches.
    pub fn worker(&self) -> Option<WorkerId> {
        match self {
            Write::Worker(record) => Some(record.id),
            Write::Lease { worker, .. } => Some(*worker),
            _ => None,
        }
    }
}

/// A message to a worker. `seq` rises with every message to that worker; a worker ignores a start
/// whose number is not above all that it has seen, so a doubled or late one does no harm.
#[derive(Clone, PartialEq, Debug)]
pub struct Send {
    /// The worker that gets it.
    pub worker: WorkerId,
    /// The number of the message among those to this worker.
    pub seq: u64,
    /// What the worker is told to do.
    pub command: WorkerCommand,
}

/// What a worker is told.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum WorkerCommand {
    /// Hello received; reports carry this epoch.
    Registered { epoch: Epoch },
    /// How long the worker's tasks may run. Sent to one that fences, after its welcome and for each beat.
    Lease {
        /// When the worker sent what this answers, on its own clock: the lease counts from there.
        sent: u64,
        lasts_ns: u64,
    },
    /// Run this attempt as soon as there is room, in the order in which these come.
    Start {
        task: TaskId,
        /// The step's place in its job.
        step: u16,
        attempt: u32,
        /// What it holds while it runs.
        request: Resources,
        /// Bytes beyond that which are kept free for it, because earlier tasks held more.
        headroom_bytes: u64,
        /// Kill threshold in bytes, never below `request.memory`. `None`: no kill limit, because the step requested no
        /// memory.
        memory_limit: Option<u64>,
        /// Milliseconds that it may run.
        time_limit_ms: Option<u64>,
        /// The tasks with which it starts; `None` of one that starts by itself.
        gang: Option<GangPlace>,
        /// The other tasks that its process runs, in order, each with the number of its attempt; empty as a rule.
        riders: Vec<(u32, u32)>,
    },
    /// End this attempt and all of its processes.
    Kill { task: TaskId, attempt: u32 },
    /// Give this attempt back if it has not started.
    Recall { task: TaskId, attempt: u32 },
    /// The result is durable; forget the attempt.
    Ack { task: TaskId, attempt: u32 },
    /// The running task needs no cpu for now.
    Lend { task: TaskId, attempt: u32 },
    /// Give the task its cpus again before anything else starts, and say so. A worker that says hello
    /// forgets that it was asked: it is asked again.
    Reclaim { task: TaskId, attempt: u32 },
    /// How the worker divides cpus among its tasks with a jobserver. It replaces what was said before.
    ShareCpus {
        /// Hundredths of a core that nothing else holds there. What these tasks are booked with is among them.
        cpu: u32,
        /// Every task with a jobserver that runs or starts there, by task.
        shares: Vec<CpuShare>,
    },
    /// The worker and the engine differ: say hello again.
    Resync,
}

/// The part of a task with a jobserver in what such tasks share of their worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuShare {
    /// A task that runs or starts on the worker.
    pub task: TaskId,
    /// The number of its attempt.
    pub attempt: u32,
    /// From 1 to [`CPU_WEIGHT_MAX`](crate::bounds::CPU_WEIGHT_MAX): its part against those of the others.
    pub weight: u32,
}

impl WorkerCommand {
    /// The job that it is about.
    pub fn job(&self) -> Option<JobId> {
        match self {
            WorkerCommand::Start { task, .. }
            | WorkerCommand::Kill { task, .. }
            | WorkerCommand::Recall { task, .. }
            | WorkerCommand::Ack { task, .. }
            | WorkerCommand::Lend { task, .. }
            | WorkerCommand::Reclaim { task, .. } => Some(task.job),
            WorkerCommand::Registered { .. }
            | WorkerCommand::Lease { .. }
            | WorkerCommand::ShareCpus { .. }
            | WorkerCommand::Resync => None,
        }
    }
}

/// The answer to a request.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum Reply {
    /// The job is accepted.
    Submitted {
        job: JobId,
        /// It was there before, under the same key.
        existing: bool,
        /// Steps that no worker of the farm could run.
        unplaceable: Vec<Unplaceable>,
    },
    /// The request was carried out.
    Done,
    /// Here is a place.
    Placed {
        /// To be given back.
        alloc: AllocId,
        worker: WorkerId,
    },
    /// There is no place, and why.
    NoPlace(NoPlace),
    /// The request was refused, and changed nothing.
    Refused(Refusal),
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NoPlace {
    /// No worker could ever have it.
    NoWorkers,
    /// None had room until it had waited for as long as it may.
    Expired,
    /// Too many requests wait already.
    TooMany,
    /// Its client does not wait any more.
    Withdrawn,
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoPlace::NoWorkers => "no worker could have it",
            NoPlace::Expired => "none had room in time",
            NoPlace::TooMany => "too many wait",
            NoPlace::Withdrawn => "its client does not wait any more",
        })
    }
}

/// A step that no worker of the farm could run, and why, by reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unplaceable {
    /// The name of the step that no worker could run.
    pub step: String,
    /// What rules workers out and how many of them.
    pub reasons: Vec<(Ineligible, usize)>,
}

/// Why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum Refusal {
    /// There is no such job.
    #[error("there is no job {0}")]
    NoJob(JobId),
    /// A job with the submission's key may have been added after the store was read for it.
    #[error("the submission waited too long to be told apart from others with its key; send it again")]
    KeyReadTooEarly,
    /// There is no such worker.
    #[error("there is no worker {0}")]
    NoWorker(WorkerId),
    /// A worker cannot have that name now.
    #[error("{}", holder.refusal(.name))]
    NameTaken { name: String, holder: Holder },
    /// There is no such queue.
    #[error("there is no queue '{0}'")]
    NoQueue(String),
    /// A queue with work cannot be removed.
    #[error("queue '{0}' has unfinished jobs")]
    QueueInUse(String),
    /// There is no such limit.
    #[error("there is no limit '{0}'")]
    NoLimit(String),
    /// A queue or a limit with a value that is not valid.
    #[error(transparent)]
    BadSetting(#[from] BadSetting),
    /// A worker that is connected cannot be forgotten.
    #[error("worker '{0}' is connected; stop its agent first, or drain it to give it no new work")]
    Connected(String),
    /// The job ended before.
    #[error("job {0} has ended")]
    Ended(JobId),
    /// The job has nothing to run again.
    #[error("job {0} has no failed or cancelled task")]
    NothingToRetry(JobId),
    /// None of the tasks that a request names can be run again.
    #[error("none of these tasks of job {0} failed or was cancelled")]
    NoneToRetry(JobId),
    /// None of the tasks that a request names can be cancelled.
    #[error("these tasks of job {0} have ended")]
    NothingToCancel(JobId),
    /// A request names a task that its job does not have.
    #[error(
        "there is no task {job}.{index}; job {job} has {total} task{}, numbered from 0",
        if *total == 1 { "" } else { "s" }
    )]
    NoSuchTask {
        job: JobId,
        /// The first such task.
        index: u32,
        /// The number of tasks that it has.
        total: u32,
    },
    /// A request that is about tasks names none.
    #[error("no task is named")]
    NothingNamed,
    /// A job without a step.
    #[error("the job has no step")]
    NoStep,
    /// A step without a task.
    #[error("step '{0}' has no task")]
    NoTask(String),
    /// Two steps of one name.
    #[error("two steps are named '{0}'")]
    DuplicateStep(String),
    /// More than a limit allows.
    #[error("{what}: {is} is more than the limit of {max}")]
    TooMany {
        what: &'static str,
        /// How many there are.
        is: u64,
        /// How many are allowed.
        max: u64,
    },
    /// Tasks that cannot start together.
    #[error("step '{step}' cannot start as it says: {why}")]
    BadGang {
        step: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Tasks that cannot run in chunks.
    #[error("step '{step}' cannot run in chunks: {why}")]
    BadChunk {
        step: String,
        /// What is wrong, and what would be right.
        why: &'static str,
    },
    /// Tasks that cannot have a jobserver.
    #[error("step '{step}' cannot have a jobserver: {why}")]
    BadJobserver {
        step: String,
        /// What is wrong, and what would be right.
        why: &'static str,
    },
    /// A dependency on a step that is not there, or on tasks that do not correspond.
    #[error("step '{step}' cannot depend on '{on}': {why}")]
    BadDependency {
        /// The step that waits.
        step: String,
        on: String,
        why: &'static str,
    },
    /// Tasks that would come after those of a job that has another number of tasks.
    #[error(
        "tasks of a job cannot come after those of job {first}: it has {is} task{}, and that one {of_first}",
        if *is == 1 { "" } else { "s" }
    )]
    BadAfterTasks {
        first: JobId,
        /// The number of tasks of the job that is refused.
        is: u32,
        /// The number of tasks of the other job.
        of_first: u32,
    },
    /// Steps that wait for each other. Of steps that start together, the one that is waited for and the one that waits.
    #[error("these steps wait for each other: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// Refused because it could never run.
    #[error("no worker could ever run step '{}'", .0.first().map_or("", |u| &u.step))]
    Unplaceable(Vec<Unplaceable>),
}

/// The worker that has the name that another one asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A worker that is connected.
    Connected,
    /// Another machine, whose tasks may still run.
    Leased {
        /// Nanoseconds until its lease runs out.
        left_ns: u64,
    },
    /// Another machine without a lease, whose tasks may run.
    Unleased,
}

impl Holder {
    fn refusal(self, name: &str) -> String {
        let forget = format!("'windlass worker forget {name}' if that machine is gone");
        match self {
            Holder::Connected => {
                format!("worker '{name}' is connected already from elsewhere; give this one another --name")
            }
            Holder::Leased { left_ns } => format!(
                "'{name}' is another machine's name and that one's lease lasts {} s more; wait, or {forget}",
                left_ns.div_ceil(NS_PER_S)
            ),
            Holder::Unleased => format!(
                "'{name}' is another machine's name and that one's tasks may still run; give this one \
                 another --name, or {forget}"
            ),
        }
    }
}

/// Where a task stands among those with which it starts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GangPlace {
    /// Its place in `workers`, from 0.
    pub rank: u32,
    /// The name of each task's worker, in the order of steps and tasks.
    pub workers: Vec<String>,
}

/// What happened, for events, metrics and logs.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum Fact {
    /// A job was accepted, held, released, stopped or retried.
    Job { job: JobId, state: JobState },
    /// A job ended, whatever way.
    JobEnded {
        job: JobId,
        state: JobState,
        /// What became of its tasks.
        counts: Counts,
    },
    /// A task was booked.
    Booked {
        task: TaskId,
        worker: WorkerId,
        /// Nanoseconds from when its step became ready.
        waited_ns: u64,
    },
    /// A worker said that a task started.
    Started { task: TaskId, attempt: u32, at: Time },
    /// An attempt ended; `state` is the task's.
    Ended {
        task: TaskId,
        attempt: u32,
        /// Where it was booked.
        worker: WorkerId,
        /// Hundredths of a core that it held.
        cpu: u32,
        /// The task's state now.
        state: TaskState,
        /// How the attempt ended.
        result: TaskResult,
    },
    /// A result was refused because its attempt is not the booked one.
    Late { task: TaskId, attempt: u32, worker: WorkerId },
    /// A worker came, went, was told to drain, or is held by pressure from now on or no longer.
    Worker {
        worker: WorkerId,
        name: String,
        /// What happened, in a word.
        what: &'static str,
    },
}

impl Fact {
    /// The job that it is about.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Fact::Job { job, .. } | Fact::JobEnded { job, .. } => Some(*job),
            Fact::Booked { task, .. }
            | Fact::Started { task, .. }
            | Fact::Ended { task, .. }
            | Fact::Late { task, .. } => Some(task.job),
            Fact::Worker { .. } => None,
        }
    }
}
