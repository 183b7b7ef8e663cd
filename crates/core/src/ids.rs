//! Identities. All are plain numbers.

use std::fmt;
use std::str::FromStr;

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id!(/// One submission.
    JobId, u64);
number_id!(/// A machine with its agent.
    WorkerId, u64);
number_id!(/// Rises whenever all earlier attempts of the worker are known to be over.
    Epoch, u64);
number_id!(/// A request whose reply a client waits for.
    RequestId, u64);
number_id!(/// A volatile place given to an outside client by `alloc`.
    AllocId, u64);
number_id!(/// Steps with equal requirements, tags and targets.
    ClassId, u32);
number_id!(/// A queue, numbered in the order in which the engine met them.
    QueueId, u32);

/// The unit that runs. Tasks are numbered through a job: those of its first step first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TaskId {
    /// The job that it is a task, or a step, of.
    pub job: JobId,
    /// The task's place in its job, from 0.
    pub index: u32,
}

/// A step by its job and its place in the job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct StepKey {
    /// The job that it is a task, or a step, of.
    pub job: JobId,
    /// The step's place in its job, from 0.
    pub step: u16,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.index)
    }
}

/// What a task's id looks like, for the error message.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is not a task id; one looks like 12.3 (job 12, task 3)")]
pub struct BadTaskId(String);

impl FromStr for TaskId {
    type Err = BadTaskId;

    fn from_str(text: &str) -> Result<Self, BadTaskId> {
        let parsed = text.split_once('.').and_then(|(job, index)| {
            Some(TaskId { job: JobId(job.parse().ok()?), index: index.parse().ok()? })
        });
        parsed.ok_or_else(|| BadTaskId(text.to_owned()))
    }
}
