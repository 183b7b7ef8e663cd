//! Jobs of many tasks: read by ranges, deleted piece by piece.

use crate::support::{commit, on_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::engine::Write;
use windlass_core::job::{Counts, End, JobRecord, JobSpec, JobState, StepSpec, TaskResult, TaskState};
use windlass_core::ranges::RangeSet;
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

fn task(job: u64, index: u32) -> TaskId {
    TaskId { job: JobId(job), index }
}

/// A job of two steps with three tasks each.
fn spec(key: Option<&str>) -> JobSpec {
    let step = |name: &str| StepSpec { name: name.to_owned(), tasks: 3, ..StepSpec::default() };
    let (user, key) = ("u".to_owned(), key.map(str::to_owned));
    JobSpec { user, key, steps: vec![step("first"), step("second")], ..JobSpec::default() }
}

fn new_job(id: u64, spec: JobSpec) -> Write {
    Write::Job { id: JobId(id), spec: Arc::new(spec), created: Time(1) }
}

fn book(task: TaskId, attempt: u32) -> Write {
    let (worker, epoch, at) = (WorkerId(1), Epoch(1), Time(2));
    Write::Book { task, attempt, worker, epoch, at, amounts: (100, 0) }
}

fn end(task: TaskId, attempt: u32, state: TaskState, end: End) -> Write {
    let failures = u32::from(state == TaskState::Failed);
    Write::End { task, attempt, state, failures, losses: 0, result: TaskResult::bare(end) }
}

/// Whatever ranges the job's row lists, tasks are read as they are, and in few ranges.
#[test]
fn tasks_that_ended_come_back_by_ranges() {
    on_all(async |store| {
        let mut first = spec(None);
        first.steps[0].tasks = 1_000;
        first.steps[1].tasks = 1_000;
        let mut writes = vec![new_job(1, first)];
        for index in 0..700 {
            let state = if index % 100 == 99 { TaskState::Failed } else { TaskState::Succeeded };
            let exit = End::Exited(i32::from(state == TaskState::Failed));
            writes.extend([book(task(1, index), 1), end(task(1, index), 1, state, exit)]);
        }
        writes.push(book(task(1, 700), 1));
        commit(&store, writes).await;
        let read = async || store.records([JobId(1)].into()).await.unwrap().pop().unwrap();
        let by_state = |record: &JobRecord| {
            let mut all: BTreeMap<u32, TaskState> = BTreeMap::new();
            for ended in &record.ended {
                all.extend(ended.tasks.clone().map(|index| (index, ended.state)));
            }
            all.extend(record.tasks.iter().map(|row| (row.index, row.state)));
            all
        };
        let before = read().await;
        let rows = store.tasks(JobId(1), 0..2_000).await.unwrap();
        let rows: BTreeMap<u32, TaskState> = rows.iter().map(|t| (t.row.index, t.row.state)).collect();
        assert_eq!(by_state(&before), rows);
        assert!(before.ended.len() <= 14 && before.tasks.len() == 1, "{:?}", before.ended);
        let mut noted = RangeSet::from_range(0..99);
        noted.insert_range(300..350);
        assert!(
            commit(&store, vec![Write::SucceededRanges { job: JobId(1), tasks: noted }]).await.is_empty()
        );
        let after = read().await;
        assert_eq!(by_state(&after), rows);
        let failed = after.ended.iter().find(|ended| ended.state == TaskState::Failed).unwrap();
        assert_eq!((failed.tasks.clone(), failed.tries.attempt, failed.tries.failures), (99..100, 1, 1));
    });
}

#[test]
fn a_large_old_job_goes_bit_by_bit() {
    on_all(async |store| {
        let tasks = (0..25).map(|index| book(task(1, index), 1));
        let (state, counts) = (JobState::Succeeded, Counts::default());
        let end = Write::JobEnd { job: JobId(1), state, at: Time(5), counts };
        let job = new_job(1, spec(Some("k")));
        commit(&store, [job].into_iter().chain(tasks).chain([end]).collect()).await;
        let (mut gone, mut calls) = (Vec::new(), 0);
        loop {
            let (some, more) = store.retain(Time(9), 10).await.unwrap();
            gone.extend(some);
            calls += 1;
            // After the first piece the whole job is gone, so that no part of it can run again.
            assert_eq!(store.job(JobId(1)).await.unwrap(), None);
            assert!(store.records([JobId(1)].into()).await.unwrap().is_empty());
            let retry = Write::JobRetry { job: JobId(1), tasks: RangeSet::from_range(0..25) };
            assert_eq!(commit(&store, vec![retry]).await, [0]);
            assert_eq!(store.job_by_key("u".into(), "k".into()).await.unwrap(), None);
            if !more {
                break;
            }
        }
        assert_eq!(gone, [JobId(1)]);
        assert!(calls <= 4 && store.tasks(JobId(1), 0..99).await.unwrap().is_empty());
    });
}

/// Bodies are read together up to a bound. Small ones can be read alone.
#[test]
fn bodies_are_read_together_and_small_ones_alone() {
    on_all(async |store| {
        let body = |job: u64, bytes: usize| {
            let mut one = spec(None);
            one.steps[1].body = Arc::from(vec![b'a' + job as u8; bytes]);
            new_job(job, one)
        };
        let sizes = [4 << 20, 10, 4 << 20, 11, 100];
        commit(&store, (1..).zip(sizes).map(|(job, bytes)| body(job, bytes)).collect()).await;
        let steps: Vec<(JobId, u16)> = (1..=6).map(|job| (JobId(job), 1)).collect();
        let lengths = |found: Vec<Option<Arc<[u8]>>>| {
            found.into_iter().map(|body| body.map(|body| body.len())).collect::<Vec<_>>()
        };
        let mut all = lengths(store.bodies(steps.clone()).await.unwrap());
        // A store may stop after 8 MiB, and the caller asks for the rest.
        assert!(all.len() >= 3, "{all:?}");
        let left = steps[all.len()..].to_vec();
        all.extend(lengths(store.bodies(left).await.unwrap()));
        let expected: Vec<Option<usize>> = sizes.into_iter().map(Some).chain([None]).collect();
        assert_eq!(all, expected);
        let small = store.small_bodies(steps, 11).await.unwrap();
        let small: Vec<(u64, &[u8])> = small.iter().map(|((job, _), body)| (job.0, &body[..])).collect();
        assert_eq!(small, [(2, &[b'c'; 10][..]), (4, &[b'e'; 11][..])]);
    });
}
