//! What a store keeps for figures about the past, on every store.

use crate::support::{commit, on_all};
use std::sync::Arc;
use windlass_core::engine::Write;
use windlass_core::job::{Counts, End, JobSpec, JobState, StepSpec, TaskResult, TaskState};
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};
use windlass_store::SeriesRow;

fn task(job: u64, index: u32) -> TaskId {
    TaskId { job: JobId(job), index }
}

fn new_job(id: u64) -> Write {
    let step = StepSpec { name: "s".to_owned(), tasks: 4, ..StepSpec::default() };
    let spec = Arc::new(JobSpec { steps: vec![step], ..JobSpec::default() });
    Write::Job { id: JobId(id), spec, created: Time(1000 + id) }
}

fn book(task: TaskId) -> Write {
    Write::Book { task, attempt: 1, worker: WorkerId(4), epoch: Epoch(2), at: Time(77), amounts: (150, 0) }
}

fn result(end: End) -> TaskResult {
    TaskResult { started: Some(Time(100)), finished: Some(Time(200)), ..TaskResult::bare(end) }
}

#[test]
fn what_ended_last_is_found_of_active_and_of_ended_jobs() {
    on_all(async |store| {
        let end = |id, index, state, how| Write::End {
            task: task(id, index),
            attempt: 1,
            state,
            failures: 0,
            losses: 0,
            result: result(how),
        };
        for id in 1..=4 {
            let writes = vec![
                new_job(id),
                book(task(id, 0)),
                end(id, 0, TaskState::Succeeded, End::Exited(0)),
                book(task(id, 1)),
            ];
            commit(&store, writes).await;
        }
        let again = Write::Requeued {
            task: task(4, 1),
            attempt: 1,
            failures: 1,
            losses: 0,
            result: result(End::Lost),
        };
        let mut writes = vec![again];
        for (id, at) in [(1, 30), (2, 20), (3, 10)] {
            let (state, counts) = (JobState::Succeeded, Counts::default());
            writes.push(Write::JobEnd { job: JobId(id), state, at: Time(at), counts });
        }
        commit(&store, writes).await;
        let shape = async |jobs, attempts| {
            let found = store.last_ended(jobs, attempts).await.unwrap();
            let shape = found.iter().map(|job| (job.view.id.0, job.tasks.len(), job.attempts.len()));
            shape.collect::<Vec<_>>()
        };
        // The active one first; of the others those that ended last.
        assert_eq!(shape(2, 100).await, [(4, 1, 1), (1, 1, 0), (2, 1, 0)]);
        assert_eq!(shape(2, 4).await, [(4, 1, 1), (1, 1, 0), (2, 1, 0)]);
        assert_eq!(shape(2, 2).await, [(4, 1, 0), (1, 1, 0), (2, 0, 0)]);
        let found = store.last_ended(1, 100).await.unwrap();
        assert_eq!(found[0].tasks[0].result, Some(result(End::Exited(0))));
        assert_eq!((found[0].attempts[0].0, found[0].attempts[0].1.result.end.clone()), (1, End::Lost));
    });
}

#[test]
fn series_are_kept_by_part_and_step_as_far_as_they_are_wanted() {
    on_all(async |store| {
        let row = |part, step, data: &[u8]| SeriesRow { part, step, data: data.to_vec() };
        assert!(store.series().await.unwrap().is_empty());
        let rows = vec![row(0, 5, b"a"), row(1, 5, b""), row(0, 6, b"b")];
        store.keep_series(rows.clone(), vec![(0, 0..7)]).await.unwrap();
        assert_eq!(store.series().await.unwrap(), [row(0, 5, b"a"), row(1, 5, b""), row(0, 6, b"b")]);
        // A step is replaced; of a part that is named, what is older or newer goes.
        store.keep_series(vec![row(0, 6, b"c"), row(1, 6, b"d")], vec![(0, 6..7), (1, 0..6)]).await.unwrap();
        assert_eq!(store.series().await.unwrap(), [row(1, 5, b""), row(0, 6, b"c")]);
    });
}
