//! A job as a store gives it back, and the states of jobs and tasks.

use super::queued::Parked;
use super::spec::JobSpec;
use super::tries::Tries;
use crate::ids::{Epoch, JobId, WorkerId};
use crate::ranges::RangeSet;
use crate::time::Time;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The state of a whole job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// Some task may still run.
    Active,
    /// All of its tasks succeeded.
    Succeeded,
    /// A task failed for good, or a job that this one came after did.
    Failed,
    /// A user or an administrator cancelled it.
    Canceled,
}

/// Why no further task of a job starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// A user or an administrator cancelled the job.
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
    /// Its last attempt succeeded.
    Succeeded,
    /// Its last attempt failed, and no retry is left.
    Failed,
    /// Killed or never started, because a user cancelled it or by fail-fast.
    Canceled,
    /// Never started because what it waited for failed.
    Skipped,
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
    /// The number of attempts that failed.
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
    /// When the licence was found busy.
    pub since: Time,
    /// When the step is tried again.
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
    /// What their attempts came to. It is not kept of tasks that succeeded.
    pub tries: Tries,
}

/// A job as a store gives it back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRecord {
    /// Numbers rise in the order of submission.
    pub id: JobId,
    /// As submitted, without the bodies of its steps.
    pub spec: Arc<JobSpec>,
    /// When it was accepted.
    pub created: Time,
    /// What became of it so far.
    pub state: JobState,
    /// Why no further task starts.
    pub stop: Option<Stop>,
    /// A user holds it: nothing of it starts.
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
    /// The tasks that requests cancelled and that were not retried since.
    pub cancels: RangeSet,
    /// The tasks that had succeeded when their job ended last, of a job after whose tasks its own come.
    pub first_succeeded: RangeSet,
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
            cancels: RangeSet::default(),
            first_succeeded: RangeSet::default(),
        }
    }
}
