//! What running tasks and their keepers say of them meanwhile: how far they are, and how many processes they may run. It
//! is kept in memory alone: they say it again.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use windlass_core::{JobId, TaskId};

/// Tasks of which it is kept; what others say is not.
const TASKS_MAX: usize = 100_000;

/// The last that was said of each running attempt.
pub(crate) struct LastSaid<T> {
    said: Mutex<BTreeMap<TaskId, (u32, T)>>,
}

impl<T> Default for LastSaid<T> {
    fn default() -> Self {
        LastSaid { said: Mutex::default() }
    }
}

impl<T: Clone> LastSaid<T> {
    pub fn get(&self, task: TaskId, attempt: u32) -> Option<T> {
        let said = self.said.lock();
        said.get(&task).filter(|(number, _)| *number == attempt).map(|(_, last)| last.clone())
    }

    pub fn set(&self, task: TaskId, attempt: u32, last: T) {
        let mut said = self.said.lock();
        if said.len() < TASKS_MAX || said.contains_key(&task) {
            said.insert(task, (attempt, last));
        }
    }

    /// All that was said: task, attempt and what.
    pub fn all(&self) -> Vec<(TaskId, u32, T)> {
        let said = self.said.lock();
        said.iter().map(|(task, (attempt, last))| (*task, *attempt, last.clone())).collect()
    }

    pub fn len(&self) -> usize {
        self.said.lock().len()
    }

    pub fn forget(&self, task: TaskId) {
        self.said.lock().remove(&task);
    }

    pub fn forget_job(&self, job: JobId) {
        let mut said = self.said.lock();
        let all = TaskId { job, index: 0 }..=TaskId { job, index: u32::MAX };
        let tasks: Vec<TaskId> = said.range(all).map(|(task, _)| *task).collect();
        for task in tasks {
            said.remove(&task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_tasks_are_kept_at_most() {
        let board = LastSaid::default();
        let task = |index: usize| TaskId { job: JobId(3), index: index as u32 };
        for index in 0..=TASKS_MAX {
            board.set(task(index), 1, index);
        }
        assert_eq!((board.len(), board.get(task(TASKS_MAX), 1)), (TASKS_MAX, None));
        board.set(task(0), 1, 7);
        assert_eq!(board.get(task(0), 1), Some(7), "one that is kept says more");
    }

    #[test]
    fn what_an_attempt_said_goes_with_it() {
        let board = LastSaid::default();
        let task = TaskId { job: JobId(3), index: 1 };
        board.set(task, 2, "half");
        assert_eq!(board.get(task, 2), Some("half"));
        assert_eq!(board.get(task, 1), None);
        assert_eq!(board.all(), [(task, 2, "half")]);
        board.forget(task);
        assert_eq!(board.get(task, 2), None);
        board.set(task, 3, "half");
        board.forget_job(JobId(2));
        assert!(board.get(task, 3).is_some());
        board.forget_job(JobId(3));
        assert_eq!(board.get(task, 3), None);
    }
}
