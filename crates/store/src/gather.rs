//! A job's task rows in the form in which an engine reads them. Rows on which the engine may act stay single, and all
//! others become ranges. The databases fill a [`Gather`] with rows in the order of the tasks. A large job stays small
//! in memory, and everything that the engine needs for a retry is kept.

use std::collections::BTreeSet;
use std::ops::Range;
use windlass_core::Time;
use windlass_core::job::{EndedTasks, JobRecord, JobSpec, TaskRow, TaskState, Tries};

/// The tasks of a job, as far as they were read.
#[derive(Clone, Default)]
pub struct Gather {
    /// Tasks that are booked, or ready for another attempt.
    tasks: Vec<TaskRow>,
    ended: Vec<EndedTasks>,
    /// The rows of the tasks in `ended`; `None` for a job whose tasks start one by one.
    ended_rows: Option<Vec<TaskRow>>,
}

impl Gather {
    /// No tasks yet of a job that was submitted like this.
    pub fn of(spec: &JobSpec) -> Self {
        Gather { ended_rows: spec.has_gangs().then(Vec::new), ..Gather::default() }
    }

    /// Tasks that are booked, or ready for another attempt.
    pub fn open(&self) -> &[TaskRow] {
        &self.tasks
    }

    pub fn ended(&self) -> &[EndedTasks] {
        &self.ended
    }

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
        if let Some(rows) = &mut self.ended_rows {
            rows.push(row);
        }
    }

    /// The record of the job, with all tasks that were added.
    pub fn into_record(self, record: JobRecord) -> JobRecord {
        let Gather { tasks, ended, ended_rows } = self;
        let booked = tasks.iter().filter(|row| row.state == TaskState::Booked).map(|row| row.booked);
        let booked: BTreeSet<Time> = booked.collect();
        let mut mates = ended_rows.unwrap_or_default();
        // Tasks that start together are booked at the same time.
        mates.retain(|row| booked.contains(&row.booked));
        JobRecord { tasks, ended, mates, ..record }
    }
}
