//! Rows of tasks as an engine takes them in: those that it may act on one by one, the others by ranges.

use std::ops::Range;
use windlass_core::job::{EndedTasks, TaskRow, TaskState, Tries};

/// What was read of a job's tasks so far.
#[derive(Default)]
pub struct Gather {
    /// Booked, or ready to be tried again.
    pub tasks: Vec<TaskRow>,
    /// Ended.
    pub ended: Vec<EndedTasks>,
}

impl Gather {
    /// Tasks that are known to have succeeded, without a look at their rows.
    pub fn done(&mut self, tasks: Range<u32>) {
        self.ended.push(EndedTasks { tasks, state: TaskState::Succeeded, tries: Tries::default() });
    }

    /// The next row, in the order of the tasks.
    pub fn row(&mut self, row: TaskRow) {
        let TaskRow { index, state, attempt, failures, losses, .. } = row;
        let tries = match state {
            // Nobody tries it again.
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
