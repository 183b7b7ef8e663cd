//! What a job knows of another job's tasks.

use crate::ranges::RangeSet;

/// What a job knows of the tasks of another job, after which its own come task by task.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FirstTasks {
    /// Those that succeeded. It only grows: such a task is never run again.
    pub succeeded: RangeSet,
    /// Their job is active, so others of them may succeed.
    pub is_active: bool,
}
