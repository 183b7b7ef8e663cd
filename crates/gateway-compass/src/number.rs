//! The numbers of jobs in Compass CI. A job of Windlass on a cluster has one number for each node: the first node has
//! the job's own, and the others follow at a distance of [`COMPASS_NODE_NUMBERS`]. In this crate a [`JobId`] is such a
//! number, except in requests to the engine or the store.

use windlass_api::COMPASS_NODE_NUMBERS;
use windlass_core::engine::Engine;
use windlass_core::job::TaskState;
use windlass_core::{JobId, TaskId};

// The store deletes the records of all nodes with the job.
const _: () = assert!(COMPASS_NODE_NUMBERS == windlass_store::FOREIGN_NODE_NUMBERS);

/// The number of a task. Windlass numbers jobs from 1 and does not reach 10^12, which takes a million submissions each
/// second for eleven days.
pub(crate) fn number_of(task: TaskId) -> JobId {
    JobId(task.job.0 + u64::from(task.index) * COMPASS_NODE_NUMBERS)
}

/// The task of a number. Each step of such a job has one task, so this is also its step.
pub(crate) fn task_of(number: JobId) -> TaskId {
    // A number of 64 bits has at most 18 million nodes.
    let index = u32::try_from(number.0 / COMPASS_NODE_NUMBERS).unwrap_or(u32::MAX);
    TaskId { job: JobId(number.0 % COMPASS_NODE_NUMBERS), index }
}

pub(crate) fn step_of(task: TaskId) -> u16 {
    u16::try_from(task.index).unwrap_or(u16::MAX)
}

/// The engine's state of a task.
pub(crate) struct KnownTask {
    /// The booked attempt, if any.
    pub attempt: Option<u32>,
    /// The task's end; `None` while it may still run.
    pub end: Option<TaskState>,
}

impl KnownTask {
    /// Reads a task's state; `None` if the engine has dropped the job, or the job has no such task.
    pub fn of(engine: &Engine, task: TaskId) -> Option<KnownTask> {
        let job = engine.job(task.job).filter(|job| (task.index as usize) < job.spec.steps.len())?;
        let attempt = engine.attempt(task).map(|attempt| attempt.number);
        let state = job.state_of(task.index);
        let is_over = attempt.is_none()
            && !matches!(
                state,
                TaskState::Waiting | TaskState::Ready | TaskState::Booked | TaskState::Running
            );
        Some(KnownTask { attempt, end: (is_over || job.ended.is_some()).then_some(state) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_node_has_the_number_of_its_job() {
        let number = |job, index| number_of(TaskId { job: JobId(job), index }).0;
        assert_eq!((number(7, 0), number(7, 2)), (7, 2_000_000_000_007));
    }

    proptest! {
        #[test]
        fn each_task_has_its_number(job in 1..COMPASS_NODE_NUMBERS, index in 0u32..1_000, any in any::<u64>()) {
            let task = TaskId { job: JobId(job), index };
            prop_assert_eq!(task_of(number_of(task)), task);
            prop_assert_eq!(number_of(task_of(JobId(any))), JobId(any));
        }
    }
}
