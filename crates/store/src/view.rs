//! Types in which a store answers reads, and records that the server keeps in it besides the engine's:
//! tokens, and the state of another system's jobs and hosts. All stores return the same values. They are
//! plain data without behaviour.

use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::engine::StoredState;
use windlass_core::job::{Counts, JobSpec, JobState, Parked, Stop, TaskResult, TaskRow};
use windlass_core::ranges::RangeSet;
use windlass_core::{Epoch, JobId, Time, WorkerId};

/// Task profiles whose samples [`Store::load`](crate::Store::load) returns.
pub const HISTORY_MAX: usize = 10_000;

/// Bodies by job and by the step's index in it.
pub type StepBodies = Vec<((JobId, u16), Arc<[u8]>)>;

/// The state with which an engine starts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// The number of the next job.
    pub next_job: u64,
    /// Workers, jobs, counts of parked jobs, history, queues, limits and turns.
    pub ground: StoredState,
}

/// A job as users see it, with empty bodies.
#[derive(Clone, PartialEq, Debug)]
pub struct JobView {
    /// The number of the job.
    pub id: JobId,
    /// As submitted, with empty bodies.
    pub spec: Arc<JobSpec>,
    /// When it was submitted.
    pub created: Time,
    /// Active, or how it ended.
    pub state: JobState,
    /// Why no further task of it starts; `None` while tasks may start.
    pub stop: Option<Stop>,
    /// Whether a user has put it on hold.
    pub held: bool,
    /// When it ended; `None` while it is active.
    pub ended: Option<Time>,
    /// How many of its tasks ended in which state; `None` while it is active.
    pub counts: Option<Counts>,
    /// The tasks that requests cancelled and that were not retried since. Those without a row never started.
    pub cancels: RangeSet,
    /// The tasks that had succeeded when their job ended last, of a job after whose tasks its own come.
    pub first_succeeded: RangeSet,
}

/// A parked job as users see it.
#[derive(Clone, PartialEq, Debug)]
pub struct ParkedView {
    /// As submitted, with empty bodies.
    pub spec: Arc<JobSpec>,
    /// Its position in its subqueue, and its counts.
    pub parked: Parked,
    /// Number of parked jobs of its queue that come before it.
    pub ahead: u64,
}

/// Which jobs a list shows. An empty or absent field excludes none.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JobFilter {
    /// In one of these states.
    pub states: Vec<JobState>,
    /// Submitted by this user.
    pub user: Option<String>,
    /// In the queue of this name.
    pub queue: Option<String>,
    /// With this text in their name.
    pub name: Option<String>,
}

impl JobFilter {
    /// True if it lets only active jobs through: ended ones need not be looked at.
    pub(crate) fn is_for_active(&self) -> bool {
        self.states == [JobState::Active]
    }
}

/// Number of jobs by the state in which they ended. Deleted jobs are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndedTotals {
    /// Every task of the job succeeded.
    pub succeeded: u64,
    /// A task failed for good, or a job that this one came after did.
    pub failed: u64,
    /// A person cancelled them.
    pub canceled: u64,
}

impl EndedTotals {
    /// Adds jobs that ended in a state; active ones are not counted.
    pub(crate) fn add(&mut self, state: JobState, jobs: u64) {
        match state {
            JobState::Active => {}
            JobState::Succeeded => self.succeeded += jobs,
            JobState::Failed => self.failed += jobs,
            JobState::Canceled => self.canceled += jobs,
        }
    }
}

/// A part of a list of jobs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JobsPart {
    /// The jobs that pass the filter, newest first.
    pub jobs: Vec<JobView>,
    /// The next part has jobs of a lower id than this; `None` after the last part.
    pub next: Option<JobId>,
    /// Rows that were read, whether they passed or not.
    pub rows: usize,
}

/// A part of the series of the farm over time, in bytes that only the server reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeriesRow {
    /// Number of the part.
    pub part: u8,
    /// Number of the step of time.
    pub step: u64,
    /// The values, in the server's format.
    pub data: Vec<u8>,
}

/// A task that was ever booked.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredTask {
    /// Its row, as engines read it.
    pub row: TaskRow,
    /// How its last attempt ended; `None` while that runs.
    pub result: Option<TaskResult>,
}

/// A job with some of its ended attempts.
#[derive(Clone, PartialEq, Debug)]
pub struct EndedJob {
    /// The job, with empty bodies.
    pub view: JobView,
    /// Tasks whose last attempt ended.
    pub tasks: Vec<StoredTask>,
    /// Earlier attempts, each with the index of its task.
    pub attempts: Vec<(u32, AttemptView)>,
}

/// The distance between the numbers of a job's nodes, where another system knows each node as a job. The documents of
/// all nodes are deleted with the job.
pub const FOREIGN_NODE_NUMBERS: u64 = 1_000_000_000_000;

/// A change of the state of another system's jobs and hosts. `doc` is text that only the server reads.
// The names say what the fields are.
#[allow(missing_docs)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForeignWrite {
    /// Replaces the document of a job, or of one of its nodes.
    Job {
        job: JobId,
        /// Whether the job may still change.
        open: bool,
        doc: String,
    },
    /// Deletes the document of a job.
    Forget(JobId),
    /// Replaces the document of a host.
    Host { name: String, doc: String },
}

/// The documents with which the interface of another system starts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignDocs {
    /// The documents of all hosts, by name.
    pub hosts: Vec<(String, String)>,
    /// The documents of jobs that may still change, by id.
    pub open: Vec<(JobId, String)>,
}

/// A bearer token, without its secret.
#[derive(Clone, PartialEq, Debug)]
pub struct TokenRecord {
    /// Public part of the token.
    pub id: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// Role of the caller, as the server names it.
    pub role: String,
    /// The user that the token stands for.
    pub user: String,
    /// The worker that the token is for; `None` for tokens of people.
    pub worker: Option<String>,
    /// The systems whose outside clients the worker may serve.
    pub serves: BTreeSet<String>,
    /// Patterns of the users whose jobs its holder submits; empty but for tokens of submitters.
    pub for_users: BTreeSet<String>,
    /// The queue of these jobs; `None` but for tokens of submitters.
    pub queue: Option<String>,
    /// What its holder may do with the remote cache, as the server names it; `None` is what the role says.
    pub cache: Option<String>,
    /// Note of the administrator who created it.
    pub note: String,
    /// When it was created.
    pub created: Time,
    /// When it expires by itself; `None` for never.
    pub expires: Option<Time>,
    /// When an administrator revoked it.
    pub revoked: Option<Time>,
}

/// A change of tokens.
#[derive(Clone, PartialEq, Debug)]
pub enum TokenWrite {
    /// Adds a token, without its secret.
    Create(Box<TokenRecord>),
    /// The id of a token to revoke, and when.
    Revoke(String, Time),
}

/// An attempt that is not its task's last, or a late result.
#[derive(Clone, PartialEq, Debug)]
pub struct AttemptView {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// Epoch of the worker at that time.
    pub epoch: Epoch,
    /// Whether the result came after this attempt had lost its booking.
    pub late: bool,
    /// When it was booked; `None` of a late result, and of an attempt from before this was kept.
    pub booked: Option<Time>,
    /// How the attempt ended.
    pub result: TaskResult,
}
