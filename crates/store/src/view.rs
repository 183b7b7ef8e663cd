//! What a store tells.

use std::sync::Arc;
use windlass_core::engine::StoredState;
use windlass_core::job::{Counts, JobSpec, JobState, Parked, Stop, TaskResult, TaskRow};
use windlass_core::{Epoch, JobId, Time, WorkerId};

/// What an engine starts from.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// The number of the next job.
    pub next_job: u64,
    /// All else.
    pub ground: StoredState,
}

/// A job for people; bodies are left out.
#[derive(Clone, PartialEq, Debug)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// As submitted.
    pub spec: Arc<JobSpec>,
    /// When it was accepted.
    pub created: Time,
    /// Its state.
    pub state: JobState,
    /// Why no further task started.
    pub stop: Option<Stop>,
    /// Held by somebody.
    pub held: bool,
    /// When it ended.
    pub ended: Option<Time>,
    /// What became of its tasks, once it ended.
    pub counts: Option<Counts>,
}

/// A parked job, without the bodies of its steps.
#[derive(Clone, PartialEq, Debug)]
pub struct ParkedView {
    /// As submitted.
    pub spec: Arc<JobSpec>,
    /// How it is parked.
    pub parked: Parked,
    /// How many parked jobs of its queue come before it.
    pub ahead: u64,
}

/// Which jobs a list shows; an absent field shows all.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JobFilter {
    /// In one of these states; empty is any.
    pub states: Vec<JobState>,
    /// Of this user.
    pub user: Option<String>,
    /// Of this queue.
    pub queue: Option<String>,
    /// Whose name holds this text.
    pub name: Option<String>,
}

/// A task that was ever booked.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredTask {
    /// Its row.
    pub row: TaskRow,
    /// How its last attempt ended, if it did.
    pub result: Option<TaskResult>,
}

/// A change of what another system says of the jobs and hosts that it brought. `doc` is the server's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForeignWrite {
    /// A job, in the place of what was kept of it.
    Job {
        /// Which.
        job: JobId,
        /// Something of it may still change.
        open: bool,
        /// All of it.
        doc: String,
    },
    /// Nothing is kept of this job any more.
    Forget(JobId),
    /// A host, in the place of what was kept of it.
    Host {
        /// Which.
        name: String,
        /// All of it.
        doc: String,
    },
}

/// What lets somebody in: the secret's hash, and whose it is.
#[derive(Clone, PartialEq, Debug)]
pub struct TokenRecord {
    /// Says which token it is; not secret.
    pub id: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// What its holder may do; the word is the server's.
    pub role: String,
    /// Who holds it.
    pub user: String,
    /// The worker that it is for.
    pub worker: Option<String>,
    /// What somebody noted of it.
    pub note: String,
    /// When it was made.
    pub created: Time,
    /// When it ends by itself.
    pub expires: Option<Time>,
    /// When somebody ended it.
    pub revoked: Option<Time>,
}

/// An attempt that is not its task's last, or a result that came too late.
#[derive(Clone, PartialEq, Debug)]
pub struct AttemptView {
    /// From 1.
    pub attempt: u32,
    /// Who ran it.
    pub worker: WorkerId,
    /// The worker's epoch.
    pub epoch: Epoch,
    /// The result was refused: the attempt was not the booked one any more.
    pub late: bool,
    /// How it ended.
    pub result: TaskResult,
}
