//! How far running tasks say that they are. It is kept in memory alone: a task says it again.

use crate::link::Progress;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use windlass_core::{JobId, TaskId};

/// Tasks of which it is kept; what others say is not.
const TASKS_MAX: usize = 100_000;

/// The last progress of each running attempt.
#[derive(Default)]
pub(crate) struct ProgressBoard {
    said: Mutex<BTreeMap<TaskId, (u32, Progress)>>,
}

impl ProgressBoard {
    pub fn get(&self, task: TaskId, attempt: u32) -> Option<Progress> {
        let said = self.said.lock();
        said.get(&task).filter(|(number, _)| *number == attempt).map(|(_, progress)| progress.clone())
    }

    pub fn set(&self, task: TaskId, attempt: u32, progress: Progress) {
        let mut said = self.said.lock();
        if said.len() < TASKS_MAX || said.contains_key(&task) {
            said.insert(task, (attempt, progress));
        }
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
    fn what_an_attempt_said_goes_with_it() {
        let board = ProgressBoard::default();
        let task = TaskId { job: JobId(3), index: 1 };
        let half = Progress { percent: Some(50.0), status: None };
        board.set(task, 2, half.clone());
        assert_eq!(board.get(task, 2), Some(half.clone()));
        assert_eq!(board.get(task, 1), None);
        board.forget(task);
        assert_eq!(board.get(task, 2), None);
        board.set(task, 3, half);
        board.forget_job(JobId(2));
        assert!(board.get(task, 3).is_some());
        board.forget_job(JobId(3));
        assert_eq!(board.get(task, 3), None);
    }
}
