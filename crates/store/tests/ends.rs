//! How attempts ended, as stores keep it.

use crate::support::{commit, on_all};
use std::sync::Arc;
use windlass_core::engine::Write;
use windlass_core::job::{End, JobSpec, LaunchFault, StepSpec, TaskResult, TaskState};
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

#[test]
fn every_end_comes_back() {
    on_all(async |store| {
        let (why, fault) = (|| "no room".to_owned(), LaunchFault::Unknown);
        let ends = [
            End::Exited(0),
            End::Exited(255),
            End::Signaled(11),
            End::TimeLimit,
            End::OutOfMemory,
            End::Canceled,
            End::Recalled,
            End::NotStarted { why: why(), fault },
            End::OutputsLost { why: why(), fault },
            End::Lost,
        ];
        let id = JobId(1);
        let step = StepSpec { name: "main".to_owned(), tasks: 10, ..StepSpec::default() };
        let spec = JobSpec { queue: "q".to_owned(), steps: vec![step], ..JobSpec::default() };
        commit(&store, vec![Write::Job { id, spec: Arc::new(spec), created: Time(1) }]).await;
        let results = ends.map(|end| {
            // The worker's reason is in the place of the task's own words.
            let is_reason = matches!(end, End::NotStarted { .. } | End::OutputsLost { .. });
            TaskResult { message: (!is_reason).then(|| "too dark".to_owned()), ..TaskResult::bare(end) }
        });
        for (index, result) in (0u32..).zip(results.clone()) {
            let (task, worker, epoch) = (TaskId { job: id, index }, WorkerId(4), Epoch(2));
            let book = Write::Book { task, attempt: 1, worker, epoch, at: Time(77), amounts: (150, 0) };
            let (state, failures, losses) = (TaskState::Failed, 1, 0);
            let end = Write::End { task, attempt: 1, state, failures, losses, result };
            commit(&store, vec![book, end]).await;
        }
        let rows = store.tasks(id, 0..100).await.unwrap();
        let stored: Vec<TaskResult> = rows.into_iter().map(|task| task.result.unwrap()).collect();
        assert_eq!(stored, results);
    });
}
