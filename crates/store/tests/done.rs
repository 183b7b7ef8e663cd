//! Rows of requests that a batch does for other servers: they are there if the batch is, and for as long as the request
//! may come again.

use crate::support::postgres::{cluster, database};
use crate::support::{LONG, block_on, commit, owned, unsigned};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::engine::{Outbox, Write};
use windlass_core::job::{JobSpec, StepSpec};
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};
use windlass_store::{DoneRequest, DoneRow, ServerId, Store, StoreError};

fn database_of(address: &str) -> &str {
    address.split("@/").nth(1).and_then(|rest| rest.split('?').next()).unwrap()
}

fn new_job(id: u64, tasks: u32) -> Write {
    let step = StepSpec { name: "s".to_owned(), tasks, ..StepSpec::default() };
    let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
    Write::Job { id: JobId(id), spec: Arc::new(spec), created: Time(1) }
}

fn book(index: u32) -> Write {
    let task = TaskId { job: JobId(1), index };
    Write::Book { task, attempt: 1, worker: WorkerId(1), epoch: Epoch(1), at: Time(1), amounts: (100, 0) }
}

fn done(key: &str, job: Option<u64>, by: ServerId) -> DoneRequest {
    let (answer, signature) = (key.as_bytes().to_vec(), vec![7; 64]);
    DoneRequest { key: key.to_owned(), job: job.map(JobId), answer, by, signature }
}

fn batch(writes: Vec<Write>) -> Arc<Outbox> {
    Arc::new(Outbox { writes, ..Outbox::default() })
}

async fn has(store: &Store, key: &str) -> bool {
    store.done_request(key).await.unwrap().is_some()
}

async fn booked(store: &Store) -> usize {
    store.records([JobId(1)].into()).await.unwrap().pop().unwrap().tasks.len()
}

#[test]
fn what_a_request_did_is_kept_with_the_commit_or_not_at_all() {
    let database = database();
    for address in ["memory"].into_iter().chain(database.as_deref()) {
        block_on(async {
            let store = owned(address).await;
            let by = ServerId(1);
            let first = vec![done("submit", Some(1), by), done("queue", None, by)];
            assert_eq!(store.commit_with(batch(vec![new_job(1, 9)]), first).await.unwrap(), [0; 0]);
            let row = store.done_request("submit").await.unwrap().unwrap();
            assert_eq!((&row.answer[..], row.by, &row.signature[..]), (&b"submit"[..], by, &[7; 64][..]));
            assert!(has(&store, "queue").await && !has(&store, "other").await);
            // A request about a job of which a write was refused was not done.
            assert!(commit(&store, vec![book(0)]).await.is_empty());
            let asked = vec![done("of-1", Some(1), by), done("of-2", Some(2), by), done("of-none", None, by)];
            let writes = batch(vec![book(0), new_job(2, 1)]);
            assert_eq!(store.commit_with(writes, asked).await.unwrap(), [0]);
            assert!(!has(&store, "of-1").await && has(&store, "of-2").await && has(&store, "of-none").await);
            // The first row under a key stays.
            let again = DoneRequest { answer: b"else".to_vec(), ..done("submit", None, by) };
            store.commit_with(batch(vec![book(1)]), vec![again]).await.unwrap();
            assert_eq!(store.done_request("submit").await.unwrap(), Some(row));
            // A batch without a write does nothing.
            store.commit_with(batch(Vec::new()), vec![done("nothing", None, by)]).await.unwrap();
            assert!(!has(&store, "nothing").await);
        });
    }
}

#[test]
fn an_owner_that_was_superseded_has_done_nothing() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let old = owned(&address).await;
        assert!(commit(&old, vec![new_job(1, 9)]).await.is_empty());
        cluster.sql(database_of(&address), "UPDATE shards SET owner = NULL");
        let new = owned(&address).await;
        let late = old.commit_with(batch(vec![book(0)]), vec![done("late", Some(1), ServerId(1))]).await;
        assert!(matches!(late, Err(StoreError::Superseded)), "{late:?}");
        assert!(!has(&new, "late").await);
        assert_eq!(booked(&new).await, 0);
    });
}

/// A commit whose future was dropped may have happened or not. The row says which.
#[test]
fn after_a_commit_without_a_waiting_caller_the_row_tells_whether_the_request_was_done() {
    const CUTS: usize = 30;
    const ROUNDS_MAX: u32 = 3_000;
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = owned(&address).await;
        assert!(commit(&store, vec![new_job(1, ROUNDS_MAX)]).await.is_empty());
        let (mut cut, mut happened, mut expected) = (0, 0, 0);
        for round in 0..ROUNDS_MAX {
            if cut == CUTS {
                break;
            }
            let key = round.to_string();
            let asked = vec![done(&key, Some(1), ServerId(1))];
            let committing = store.commit_with(batch(vec![book(round)]), asked.clone());
            let patience = Duration::from_micros(u64::from(round % 50) * 40);
            if tokio::time::timeout(patience, committing).await.is_ok() {
                expected += 1;
                continue;
            }
            cut += 1;
            let is_done = has(&store, &key).await;
            expected += usize::from(is_done);
            happened += usize::from(is_done);
            assert_eq!(booked(&store).await, expected, "round {round}");
            if !is_done {
                // It is still not done later, so it may be done now.
                assert_eq!(store.commit_with(batch(vec![book(round)]), asked).await.unwrap(), [0; 0]);
                expected += 1;
            }
            assert!(has(&store, &key).await, "round {round}");
        }
        println!("{cut} commits were dropped, {happened} of them had happened");
        assert_eq!(cut, CUTS);
    });
}

#[test]
fn the_row_goes_when_the_answer_was_read_or_after_an_hour() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    let database = database_of(&address);
    block_on(async {
        let store = Store::connect(&address).await.unwrap();
        let key = [9_u8; 32];
        let by = store.register_server("one", &[], "0", Some(&key)).await.unwrap();
        let asker = store.register_server("two", &[], "0", None).await.unwrap();
        let owner = store.as_owner(store.claim(by, LONG).await.unwrap().unwrap());
        let (read, open) = (
            store.ask(asker, "http", Vec::new(), unsigned).await.unwrap(),
            store.ask(asker, "http", Vec::new(), unsigned).await.unwrap(),
        );
        let asked = ["read", "open", "old"].map(|key| done(key, None, by)).to_vec();
        owner.commit_with(batch(vec![new_job(1, 1)]), asked).await.unwrap();
        assert!(store.answer(read, 200, Vec::new()).await.unwrap());
        let pairs = vec![(read, Some("read".to_owned())), (open, Some("open".to_owned()))];
        store.drop_answered(pairs).await.unwrap();
        assert!(!has(&store, "read").await && has(&store, "open").await, "one was not answered yet");
        let age = "UPDATE done_requests SET created = created - interval '61 minutes' WHERE key = 'old'";
        cluster.sql(database, age);
        store.server_beat(asker).await.unwrap();
        assert!(!has(&store, "old").await && has(&store, "open").await);
        // The key of a server that has left checks the signatures for as long.
        owner.release().await.unwrap();
        store.server_leaves(by).await.unwrap();
        let names: Vec<String> = store.servers().await.unwrap().into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["two"]);
        assert_eq!(store.drain_servers("one", true).await.unwrap(), 0, "it has left");
        let row = store.done_request("open").await.unwrap().unwrap();
        let known =
            DoneRow { answer: b"open".to_vec(), by, signature: vec![7; 64], verify_key: Some(key.to_vec()) };
        assert_eq!(row, known);
        cluster.sql(database, "UPDATE servers SET left_at = left_at - interval '61 minutes'");
        store.server_beat(asker).await.unwrap();
        assert_eq!(cluster.sql(database, "SELECT string_agg(name, ' ') FROM servers"), "two");
    });
}
