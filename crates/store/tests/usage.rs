//! Sums of what attempts took: they agree with the ends that are in the store, and they are bounded.

use crate::support::{block_on, commit, on_all, owned};
use std::sync::Arc;
use windlass_core::engine::{Outbox, Write};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult, TaskState};
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};
use windlass_store::{
    AttemptUse, Beside, Store, USAGE_OTHERS, USAGE_PAIRS_MAX, UsageKey, UsageSum, forget_usage, usage_since,
};

fn task(index: u32) -> TaskId {
    TaskId { job: JobId(1), index }
}

fn new_job(tasks: u32) -> Write {
    let step = StepSpec { name: "s".to_owned(), tasks, ..StepSpec::default() };
    let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
    Write::Job { id: JobId(1), spec: Arc::new(spec), created: Time(1) }
}

fn book(index: u32, attempt: u32) -> Write {
    let (worker, epoch) = (WorkerId(1), Epoch(1));
    Write::Book { task: task(index), attempt, worker, epoch, at: Time(1), amounts: (100, 0) }
}

fn end(index: u32, attempt: u32) -> Write {
    let result = TaskResult::bare(End::Exited(0));
    Write::End { task: task(index), attempt, state: TaskState::Succeeded, failures: 0, losses: 0, result }
}

fn requeued(index: u32) -> Write {
    let result = TaskResult::bare(End::Exited(1));
    Write::Requeued { task: task(index), attempt: 1, failures: 1, losses: 0, result }
}

fn used(write: usize, day: u64, user: &str, cpu_ms: u64) -> AttemptUse {
    let key = UsageKey { day, user: user.to_owned(), queue: "films".to_owned() };
    AttemptUse { write, key, cpu_ms, failed: cpu_ms.is_multiple_of(2) }
}

/// Commits writes whose attempts took this; returns the indexes of the refused writes.
async fn take(store: &Store, writes: Vec<Write>, used: Vec<AttemptUse>) -> Vec<usize> {
    let beside = Beside { used, ..Beside::default() };
    store.commit_with(Arc::new(Outbox { writes, ..Outbox::default() }), beside).await.unwrap()
}

/// Day, user, cpu time, attempts and failures of each row since a day.
async fn rows(store: &Store, day: u64) -> Vec<(u64, String, [u64; 3])> {
    let found = usage_since(store, day, 99_999).await.unwrap().rows;
    let row = |(key, sum): (UsageKey, UsageSum)| (key.day, key.user, [sum.cpu_ms, sum.tasks, sum.failed]);
    found.into_iter().map(row).collect()
}

#[test]
fn what_attempts_took_is_summed_with_their_ends_and_a_refused_end_adds_nothing() {
    on_all(async |store| {
        assert_eq!(usage_since(&store, 0, 9).await.unwrap().first_day, None);
        assert!(commit(&store, vec![new_job(9), book(0, 1), book(1, 1), book(2, 1)]).await.is_empty());
        // There is no such attempt as the last one, so its end is refused.
        let took = vec![used(0, 20, "ann", 5), used(1, 20, "bob", 10), used(2, 20, "zoe", 1)];
        assert_eq!(take(&store, vec![end(0, 1), requeued(1), end(7, 1)], took).await, [2]);
        let (ann, bob) = ((20, "ann".to_owned(), [5, 1, 0]), (20, "bob".to_owned(), [10, 1, 1]));
        assert_eq!(rows(&store, 0).await, [ann, bob.clone()]);
        // A task that is tried again counts once for each attempt, on the day of its end. The end that is there already
        // is refused.
        assert!(commit(&store, vec![book(1, 2)]).await.is_empty());
        let took = vec![used(0, 20, "ann", 7), used(1, 21, "bob", 3), used(2, 20, "ann", u64::MAX)];
        assert_eq!(take(&store, vec![end(0, 1), end(1, 2), end(2, 1)], took).await, [0]);
        let most = (20, "ann".to_owned(), [(1 << 62) - 1, 2, 0]);
        assert_eq!(rows(&store, 0).await, [(21, "bob".to_owned(), [3, 1, 0]), most, bob]);
        assert_eq!(rows(&store, 21).await.len(), 1);
        let found = usage_since(&store, 0, 2).await.unwrap();
        assert_eq!((found.first_day, found.rows.len()), (Some(20), 2), "as many as were asked for");
        take(&store, Vec::new(), vec![used(0, 22, "ann", 1)]).await;
        assert!(rows(&store, 22).await.is_empty(), "a batch without a write does nothing");
    });
}

#[test]
fn a_day_tells_a_bounded_number_of_users_apart() {
    on_all(async |store| {
        let most = USAGE_PAIRS_MAX as u32;
        assert!(commit(&store, vec![new_job(2 * most)]).await.is_empty());
        let name = |index: u32| format!("user{index:05}");
        let tasks = most + 10;
        assert!(commit(&store, (0..tasks + 2).map(|index| book(index, 1)).collect()).await.is_empty());
        let half = most / 2;
        for part in [0..half, half..tasks] {
            let took =
                (0..).zip(part.clone()).map(|(write, index)| used(write, 9, &name(index), 3)).collect();
            assert!(take(&store, part.map(|index| end(index, 1)).collect(), took).await.is_empty());
        }
        // A user who has a row keeps it, and the others of this day share one.
        let took = vec![used(0, 9, &name(0), 5), used(1, 9, "zoe", 1)];
        assert!(take(&store, vec![end(tasks, 1), end(tasks + 1, 1)], took).await.is_empty());
        let found = usage_since(&store, 0, 99_999).await.unwrap().rows;
        assert_eq!(found.len(), USAGE_PAIRS_MAX + 1);
        let of = |user: &str| {
            let (key, sum) = found.iter().find(|(key, _)| key.user == user).unwrap();
            (key.queue.clone(), sum.cpu_ms, sum.tasks)
        };
        assert_eq!(of(&name(0)), ("films".to_owned(), 8, 2));
        assert_eq!(of(USAGE_OTHERS), (USAGE_OTHERS.to_owned(), 31, 11));
        let all: u64 = found.iter().map(|(_, sum)| sum.tasks).sum();
        assert_eq!(all, u64::from(tasks) + 2, "nothing is lost");
    });
}

#[test]
fn old_days_are_forgotten_one_by_one() {
    on_all(async |store| {
        assert!(commit(&store, vec![new_job(9)]).await.is_empty());
        for (index, day) in (0..).zip([3, 3, 5, 8]) {
            assert!(commit(&store, vec![book(index, 1)]).await.is_empty());
            let took = vec![used(0, day, &format!("u{index}"), 3)];
            assert!(take(&store, vec![end(index, 1)], took).await.is_empty());
        }
        assert_eq!(forget_usage(&store, 8).await.unwrap(), 2);
        assert_eq!(forget_usage(&store, 8).await.unwrap(), 1);
        assert_eq!(forget_usage(&store, 8).await.unwrap(), 0);
        assert_eq!(rows(&store, 0).await, [(8, "u3".to_owned(), [3, 1, 0])]);
    });
}

#[test]
fn the_sums_outlive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", dir.path().join("w.db").display());
    block_on(async {
        let store = owned(&file).await;
        commit(&store, vec![new_job(9), book(0, 1)]).await;
        take(&store, vec![end(0, 1)], vec![used(0, 4, "ann", 5)]).await;
    });
    block_on(async {
        let store = loop {
            match Store::connect(&file).await {
                // The writer's thread of the store before ends a moment later.
                Err(windlass_store::StoreError::InUse(_)) => tokio::task::yield_now().await,
                other => break other.unwrap(),
            }
        };
        assert_eq!(rows(&store, 0).await, [(4, "ann".to_owned(), [5, 1, 0])]);
    });
}
