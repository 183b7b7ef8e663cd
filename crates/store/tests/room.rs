//! Room in the store: what each user's jobs take, and what deletions return to the file system.

use crate::support::{commit, on_all};
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::engine::Write;
use windlass_core::job::{Counts, JobSpec, JobState, StepSpec};
use windlass_core::queues::QueueRecord;
use windlass_core::ranges::RangeSet;
use windlass_core::{JobId, Time};
use windlass_store::{EndedTotals, Store, TokenRecord, TokenWrite};

fn job(id: u64, user: &str, bytes: usize) -> Write {
    let step =
        StepSpec { name: "main".to_owned(), tasks: 1, body: vec![7; bytes].into(), ..StepSpec::default() };
    let spec = JobSpec { user: user.to_owned(), steps: vec![step], ..JobSpec::default() };
    Write::Job { id: JobId(id), spec: Arc::new(spec), created: Time(1) }
}

fn ended(id: u64) -> Write {
    Write::JobEnd { job: JobId(id), state: JobState::Succeeded, at: Time(5), counts: Counts::default() }
}

#[test]
fn what_a_user_has_is_counted_with_the_jobs() {
    on_all(async |store| {
        let totals = async |user: &str| store.user_totals(user.to_owned()).await.unwrap();
        assert_eq!(totals("ann").await, (0, 0));
        commit(&store, vec![job(1, "ann", 5000), job(2, "ann", 5000), job(3, "bob", 1)]).await;
        let (jobs, bytes) = totals("ann").await;
        assert!(jobs == 2 && (10_000..12_000).contains(&bytes), "{jobs} {bytes}");
        assert_eq!(totals("bob").await.0, 1);
        commit(&store, vec![ended(1), ended(3)]).await;
        assert_eq!(store.retain(Time(20), 10).await.unwrap().0, [JobId(1), JobId(3)]);
        assert_eq!((totals("ann").await, totals("bob").await), ((1, bytes / 2), (0, 0)));
    });
}

#[test]
fn jobs_are_counted_by_the_state_in_which_they_ended() {
    on_all(async |store| {
        let totals = async || {
            let EndedTotals { succeeded, failed, canceled } = store.ended_totals().await.unwrap();
            (succeeded, failed, canceled)
        };
        let end =
            |id, state, at| Write::JobEnd { job: JobId(id), state, at: Time(at), counts: Counts::default() };
        let retry = |id| Write::JobRetry { job: JobId(id), tasks: RangeSet::from_range(0..6) };
        use JobState::{Canceled, Failed, Succeeded};
        assert_eq!(totals().await, (0, 0, 0));
        commit(&store, (1..=6).map(|id| job(id, "ann", 1)).collect()).await;
        assert_eq!(totals().await, (0, 0, 0), "all are active");
        commit(&store, vec![end(1, Succeeded, 5), end(2, Failed, 5), end(3, Failed, 50)]).await;
        commit(&store, vec![end(4, Canceled, 5), end(9, Failed, 5)]).await;
        assert_eq!(totals().await, (1, 2, 1), "job 9 was never submitted");
        // A job that is retried is active again, and one batch may end it twice.
        commit(&store, vec![retry(2), retry(4), end(4, Failed, 5), retry(4), end(4, Succeeded, 5)]).await;
        assert_eq!(totals().await, (2, 1, 0));
        commit(&store, vec![retry(3), end(3, Failed, 50), end(2, Canceled, 50)]).await;
        assert_eq!(totals().await, (2, 1, 1));
        assert_eq!(store.retain(Time(20), 10).await.unwrap().0.len(), 2);
        assert_eq!(totals().await, (0, 1, 1), "deleted jobs do not count");
    });
}

#[test]
fn tokens_that_ended_long_ago_are_forgotten() {
    on_all(async |store| {
        let token = |id: &str, expires, revoked| TokenRecord {
            id: id.to_owned(),
            hash: [7; 32],
            role: "user".to_owned(),
            user: "ann".to_owned(),
            worker: None,
            serves: BTreeSet::new(),
            for_users: BTreeSet::new(),
            queue: None,
            cache: None,
            note: String::new(),
            created: Time(1),
            expires,
            revoked,
        };
        let all = [
            token("good", None, None),
            token("later", Some(Time(100)), None),
            token("over", Some(Time(10)), None),
            token("lately", None, Some(Time(60))),
            token("ended", Some(Time(100)), Some(Time(10))),
        ];
        for one in all {
            assert!(store.write_token(TokenWrite::Create(Box::new(one))).await.unwrap());
        }
        store.retain(Time(50), 100).await.unwrap();
        let left: Vec<String> = store.tokens().await.unwrap().into_iter().map(|token| token.id).collect();
        assert_eq!(left, ["good", "lately", "later"]);
    });
}

#[test]
fn numbers_of_the_server_are_kept() {
    on_all(async |store| {
        assert_eq!(store.number("x").await.unwrap(), None);
        store.keep_number("x", 1).await.unwrap();
        store.keep_number("x", u64::MAX >> 1).await.unwrap();
        assert_eq!(store.number("x").await.unwrap(), Some(u64::MAX >> 1));
    });
}

#[tokio::test]
async fn what_was_deleted_goes_back_to_the_file_system() {
    const JOBS: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.db");
    let store = Store::open(&format!("sqlite:{}", path.display())).unwrap();
    commit(&store, (1..=JOBS).map(|id| job(id, "ann", 500_000)).collect()).await;
    commit(&store, (1..=JOBS).map(ended).collect()).await;
    while store.retain(Time(20), 1000).await.unwrap().1 {}
    let bytes = || {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        std::fs::metadata(&path).unwrap().len()
    };
    assert!(bytes() > 40 << 20, "{}", bytes());
    let mut steps = 0;
    while store.shrink().await.unwrap() {
        steps += 1;
    }
    assert!(steps > 2, "one step would hold up commits");
    assert!(bytes() < 8 << 20, "{}", bytes());
}

/// An empty list of users would open some queues to all.
#[test]
fn a_list_of_users_that_cannot_be_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.db");
    let address = format!("sqlite:{}", path.display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&address).unwrap();
        let queue = QueueRecord { users: ["ann".to_owned()].into(), ..QueueRecord::named("idle") };
        commit(&store, vec![Write::Queue(queue)]).await;
        assert!(store.load().await.is_ok());
        let db = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(db.execute("UPDATE queues SET users = '[\"ann\"'", []).unwrap(), 1);
        assert!(store.load().await.is_err());
    });
}
