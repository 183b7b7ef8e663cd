//! Notices that are owed: they are there if their batch is, and until they are forgotten.

use crate::support::{block_on, commit, on_all, owned};
use std::sync::Arc;
use windlass_core::engine::{Outbox, Write};
use windlass_core::job::{Counts, JobSpec, JobState, StepSpec};
use windlass_core::{JobId, Time};
use windlass_store::{Beside, NewNotice, Store};

fn new_job(id: u64) -> Write {
    let step = StepSpec { name: "s".to_owned(), tasks: 1, ..StepSpec::default() };
    let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
    Write::Job { id: JobId(id), spec: Arc::new(spec), created: Time(1) }
}

fn end(job: u64) -> Write {
    Write::JobEnd { job: JobId(job), state: JobState::Failed, at: Time(2), counts: Counts::default() }
}

fn notice(job: Option<u64>, to: &str) -> NewNotice {
    let (user, body) = ("änn".to_owned(), "{\"name\":\"a \\u0000 'film'\"}".to_owned());
    NewNotice { job: job.map(JobId), user, to: to.to_owned(), body, at: Time(77) }
}

/// Commits writes that owe these notices; returns the indexes of the refused writes.
async fn owe(store: &Store, writes: Vec<Write>, notices: Vec<NewNotice>) -> Vec<usize> {
    let beside = Beside { notices, ..Beside::default() };
    store.commit_with(Arc::new(Outbox { writes, ..Outbox::default() }), beside).await.unwrap()
}

/// To whom what is owed behind this number goes.
async fn owed_to(store: &Store, after: u64) -> Vec<String> {
    let owed = windlass_store::owed_notices(store, after, 100).await.unwrap();
    owed.into_iter().map(|owed| owed.notice.to).collect()
}

#[test]
fn notices_are_owed_with_their_batch_until_they_are_forgotten() {
    on_all(async |store| {
        assert!(commit(&store, vec![new_job(1), new_job(2)]).await.is_empty());
        let some = vec![notice(Some(1), "a"), notice(Some(1), "b"), notice(None, "c")];
        assert!(owe(&store, vec![end(1)], some.clone()).await.is_empty());
        assert!(owe(&store, vec![end(2)], vec![notice(Some(2), "d")]).await.is_empty());
        let owed = windlass_store::owed_notices(&store, 0, 3).await.unwrap();
        assert_eq!(owed.iter().map(|owed| owed.notice.clone()).collect::<Vec<_>>(), some);
        assert!(owed.is_sorted_by(|one, next| one.number < next.number));
        let last = owed[2].number;
        assert_eq!(owed_to(&store, last).await, ["d"], "it is behind what was read");
        windlass_store::forget_notices(&store, vec![owed[0].number, owed[1].number, u64::MAX >> 1])
            .await
            .unwrap();
        assert_eq!(owed_to(&store, 0).await, ["c", "d"]);
    });
}

#[test]
fn an_end_that_is_refused_owes_nothing_and_a_batch_without_a_write_neither() {
    on_all(async |store| {
        let writes = vec![Write::Queue(windlass_core::queues::QueueRecord::named("q")), end(9)];
        let notices = vec![notice(Some(9), "of the end"), notice(None, "of a worker")];
        assert_eq!(owe(&store, writes, notices).await, [1], "there is no such job");
        assert_eq!(owed_to(&store, 0).await, ["of a worker"]);
        owe(&store, Vec::new(), vec![notice(None, "nothing")]).await;
        assert_eq!(owed_to(&store, 0).await, ["of a worker"]);
    });
}

/// A server reads on from the last number that it has seen, so a number that was forgotten must not come again.
#[test]
fn a_number_is_never_given_again() {
    on_all(async |store| {
        assert!(commit(&store, vec![new_job(1)]).await.is_empty());
        owe(&store, vec![end(1)], vec![notice(Some(1), "a")]).await;
        let first = windlass_store::owed_notices(&store, 0, 9).await.unwrap()[0].number;
        windlass_store::forget_notices(&store, vec![first]).await.unwrap();
        owe(&store, vec![end(1)], vec![notice(Some(1), "b")]).await;
        assert_eq!(owed_to(&store, first).await, ["b"]);
    });
}

#[test]
fn they_outlive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", dir.path().join("w.db").display());
    block_on(async {
        let store = owned(&file).await;
        commit(&store, vec![new_job(1)]).await;
        owe(&store, vec![end(1)], vec![notice(Some(1), "a")]).await;
    });
    block_on(async {
        let store = loop {
            match Store::connect(&file).await {
                // The writer's thread of the store before ends a moment later.
                Err(windlass_store::StoreError::InUse(_)) => tokio::task::yield_now().await,
                other => break other.unwrap(),
            }
        };
        assert_eq!(owed_to(&store, 0).await, ["a"]);
    });
}
