//! A job's task rows in the form in which an engine reads them: one by one if the engine may act on them,
//! else as ranges. Both stores fill a [`Gather`] with rows in the order of the tasks. It keeps a large job
//! small in memory, and drops nothing that the engine needs for a retry.

use std::ops::Range;
use windlass_core::job::{EndedTasks, TaskRow, TaskState, Tries};

/// The tasks of a job, as far as they were read.
#[derive(Default)]
pub struct Gather {
    /// Tasks that are booked, or ready for another attempt.
    pub tasks: Vec<TaskRow>,
    /// Ranges of tasks that have ended.
    pub ended: Vec<EndedTasks>,
}

impl Gather {
    /// Adds a range of tasks that the job's row lists as succeeded, without their own rows.
    pub fn done(&mut self, tasks: Range<u32>) {
        self.ended.push(EndedTasks { tasks, state: TaskState::Succeeded, tries: Tries::default() });
    }

    /// Adds the next row, in the order of the tasks.
    pub fn row(&mut self, row: TaskRow) {
        let TaskRow { index, state, attempt, failures, losses, .. } = row;
        let tries = match state {
            // A succeeded task is never tried again, so its attempts do not matter.
            TaskState::Succeeded => Tries::default(),
            TaskState::Failed | TaskState::Canceled => Tries { attempt, failures, losses, failed_on: None },
            _ => return self.tasks.push(row),
        };
        match self.ended.last_mut() {
            Some(last) if last.tasks.end == index && (last.state, last.tries) == (state, tries) => {
                last.tasks.end += 1;
            }
            _ => self.ended.push(EndedTasks { tasks: index..index + 1, state, tries }),
        }
    }
}
