//! Parked jobs: one suite for all stores, and tests of what only a store in a file has.

use crate::support::{self, commit, on_all};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::engine::{Fetch, FetchQuery, Write};
use windlass_core::job::{
    BacklogCounts, Counts, Dependency, DependencyKind, JobRecord, JobSpec, JobState, Parked, QueuePos,
    StepSpec,
};
use windlass_core::residency::subqueues::{ParkedCount, ParkedDrift};
use windlass_core::{JobId, Time};
use windlass_store::{JobFilter, Store};

/// Two ready tasks, and three that depend on them.
fn spec(queue: &str, priority: i32) -> JobSpec {
    let step = |name: &str, tasks| StepSpec {
        name: name.to_owned(),
        tasks,
        body: Arc::from(name.as_bytes()),
        ..StepSpec::default()
    };
    let mut second = step("second", 3);
    second.depends = vec![Dependency { on: 0, kind: DependencyKind::Step }];
    JobSpec { queue: queue.to_owned(), priority, steps: vec![step("first", 2), second], ..JobSpec::default() }
}

fn parked(id: u64, class: u64, priority: i32, ranked: u64) -> Parked {
    Parked {
        class,
        position: QueuePos { priority: Reverse(priority), ranked: Time(ranked), job: JobId(id) },
        ready: Time(ranked + 7),
        backlog: BacklogCounts { jobs: 1, ready: 2, waiting: 3 },
    }
}

/// A job that is parked in the batch that adds it.
fn job(id: u64, queue: &str, parked: Parked) -> [Write; 2] {
    let spec = Arc::new(spec(queue, parked.position.priority.0));
    let made = Write::Job { id: JobId(id), spec, created: Time(id) };
    [made, Write::Park { job: JobId(id), queue: queue.to_owned(), parked }]
}

fn unpark(id: u64, queue: &str, parked: Parked) -> Write {
    Write::Unpark { job: JobId(id), queue: queue.to_owned(), parked }
}

fn page(queue: &str, class: u64, from: QueuePos, steps: usize) -> Fetch {
    Fetch { number: 1, wanted: FetchQuery::Page { queue: queue.to_owned(), class, from, steps } }
}

async fn fetch_one(store: &Store, fetch: Fetch) -> Vec<JobRecord> {
    let mut found = store.fetch(vec![fetch]).await.unwrap();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

async fn ids(store: &Store, fetch: Fetch) -> Vec<u64> {
    fetch_one(store, fetch).await.iter().map(|record| record.id.0).collect()
}

fn count(queue: &str, class: u64, jobs: u64) -> ParkedCount {
    let backlog = BacklogCounts { jobs, ready: 2 * jobs, waiting: 3 * jobs };
    ParkedCount { queue: queue.to_owned(), class, backlog }
}

#[test]
fn pages_are_in_the_order_of_their_line() {
    on_all(async |store| {
        // Ordered by priority, then by the time since when, then by id. Each queue and class is a subqueue of its own.
        let positions =
            [(1, 0, 50), (2, 5, 90), (3, -5, 1), (4, 0, 50), (5, 0, 20), (6, i32::MIN, 0), (7, i32::MAX, 9)];
        let mut writes = Vec::new();
        for (id, priority, ranked) in positions {
            writes.extend(job(id, "a", parked(id, u64::MAX, priority, ranked)));
        }
        writes.extend(job(8, "a", parked(8, 1, 0, 0)));
        writes.extend(job(9, "b", parked(9, u64::MAX, 0, 0)));
        assert!(commit(&store, writes).await.is_empty());
        let all = page("a", u64::MAX, QueuePos::FIRST, usize::MAX >> 1);
        assert_eq!(ids(&store, all).await, [7, 2, 5, 1, 4, 3, 6]);
        // Each job has two steps, so a page of three steps has two jobs. The next page begins after the last of them.
        let first = fetch_one(&store, page("a", u64::MAX, QueuePos::FIRST, 3)).await;
        assert_eq!(first.iter().map(|record| record.id.0).collect::<Vec<_>>(), [7, 2]);
        assert_eq!(first[1].parked, Some(parked(2, u64::MAX, 5, 90)));
        assert_eq!(*first[1].spec, spec("a", 5).without_bodies());
        let from = first[1].parked.unwrap().position.next();
        assert_eq!(ids(&store, page("a", u64::MAX, from, 4)).await, [5, 1]);
        assert_eq!(ids(&store, page("a", u64::MAX, parked(4, 0, 0, 50).position, 4)).await, [4, 3]);
        assert_eq!(ids(&store, page("a", 1, QueuePos::FIRST, 100)).await, [8]);
        assert_eq!(ids(&store, page("c", 1, QueuePos::FIRST, 100)).await, [0; 0]);
        let ahead = store.parked(JobId(4)).await.unwrap().unwrap();
        assert_eq!(
            (ahead.ahead, ahead.parked),
            (5, parked(4, u64::MAX, 0, 50)),
            "of all classes of its queue"
        );
        assert_eq!(store.parked(JobId(10)).await.unwrap(), None);
    });
}

#[test]
fn an_engine_starts_without_parked_jobs_and_with_their_counts() {
    on_all(async |store| {
        let plain = Write::Job { id: JobId(1), spec: Arc::new(spec("a", 0)), created: Time(1) };
        let mut writes = vec![plain];
        for (id, queue, class) in [(2, "a", 1), (3, "a", 1), (4, "a", 2), (5, "b", 1)] {
            writes.extend(job(id, queue, parked(id, class, 0, id)));
        }
        assert!(commit(&store, writes).await.is_empty());
        let ground = store.load().await.unwrap().ground;
        assert_eq!(ground.jobs.iter().map(|record| record.id.0).collect::<Vec<_>>(), [1]);
        let counts = vec![count("a", 1, 2), count("a", 2, 1), count("b", 1, 1)];
        assert_eq!((&ground.parked, &store.parked_counts().await.unwrap()), (&counts, &counts));
        // Parked jobs are listed and read like all others.
        let listed = store.jobs(JobFilter::default(), None, 10, 100).await.unwrap().jobs;
        assert_eq!(listed.iter().map(|view| view.id.0).collect::<Vec<_>>(), [5, 4, 3, 2, 1]);
        let wanted = FetchQuery::Jobs(BTreeSet::from([JobId(1), JobId(3), JobId(99)]));
        let found = fetch_one(&store, Fetch { number: 1, wanted }).await;
        let found: Vec<_> = found.iter().map(|record| (record.id.0, record.parked)).collect();
        assert_eq!(found, [(1, None), (3, Some(parked(3, 1, 0, 3)))]);
    });
}

#[test]
fn a_job_is_parked_once_and_taken_off_once() {
    on_all(async |store| {
        let how = parked(1, 1, 0, 5);
        let [made, park] = job(1, "a", how);
        assert_eq!(commit(&store, vec![park.clone()]).await, [0], "there is no such job");
        let off = unpark(1, "a", how);
        let writes =
            vec![made, off.clone(), park.clone(), park.clone(), off.clone(), off.clone(), park.clone()];
        assert_eq!(commit(&store, writes).await, [1, 3, 5]);
        assert_eq!(store.parked_counts().await.unwrap(), [count("a", 1, 1)]);
        assert!(commit(&store, vec![off]).await.is_empty());
        assert_eq!(store.parked_counts().await.unwrap(), []);
        assert_eq!(store.load().await.unwrap().ground.jobs.len(), 1);
        assert_eq!(ids(&store, page("a", 1, QueuePos::FIRST, 9)).await, [0; 0]);
        let (job, state, at) = (JobId(1), JobState::Canceled, Time(9));
        let end = Write::JobEnd { job, state, at, counts: Counts::default() };
        assert_eq!(commit(&store, vec![end, park]).await, [1], "it has ended");
        assert_eq!(store.audit_parked().await.unwrap(), []);
    });
}

#[test]
fn an_audit_mends_counts_that_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&format!("sqlite:{}", path.display())).unwrap();
        let mut writes = Vec::new();
        for (id, queue) in [(1, "a"), (2, "a"), (3, "b")] {
            writes.extend(job(id, queue, parked(id, 1, 0, id)));
        }
        commit(&store, writes).await;
        assert_eq!(store.audit_parked().await.unwrap(), []);
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch(
            "UPDATE parked_counts SET jobs = 7 WHERE queue = 'a';
             DELETE FROM parked_counts WHERE queue = 'b';
             INSERT INTO parked_counts VALUES ('c', 5, 1, 2, 3);",
        )
        .unwrap();
        let backlog = |[jobs, ready, waiting]: [u64; 3]| BacklogCounts { jobs, ready, waiting };
        let drift = |queue: &str, class, counted, found| {
            let (counted, found) = (backlog(counted), backlog(found));
            ParkedDrift { queue: queue.to_owned(), class, counted, found }
        };
        let mut drifts = store.audit_parked().await.unwrap();
        drifts.sort_by(|a, b| a.queue.cmp(&b.queue));
        let one = [1, 2, 3];
        let expected =
            [drift("a", 1, [7, 4, 6], [2, 4, 6]), drift("b", 1, [0; 3], one), drift("c", 5, one, [0; 3])];
        assert_eq!(drifts, expected);
        assert_eq!(store.parked_counts().await.unwrap(), [count("a", 1, 2), count("b", 1, 1)]);
        assert_eq!(store.audit_parked().await.unwrap(), []);
    });
}

#[test]
fn a_page_and_what_is_kept_of_nodes_are_found_by_their_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.db");
    drop(Store::open(&format!("sqlite:{}", path.display())).unwrap());
    let db = rusqlite::Connection::open(&path).unwrap();
    let plan = |sql: &str| {
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let lines = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
        lines.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
    };
    let page = plan(
        "SELECT class, rank, ranked, job, ready, tasks, waiting FROM parked WHERE queue = 'a' AND class = 1
         AND (rank, ranked, job) >= (1, 2, 3) ORDER BY rank, ranked, job LIMIT 9",
    );
    assert!(
        page.contains("parked_in_order (queue=? AND class=? AND (rank,ranked") && !page.contains("TEMP"),
        "{page}"
    );
    let start = plan("SELECT id FROM jobs WHERE state = 0 AND parked = 0 ORDER BY id");
    assert!(start.contains("jobs_active (parked=?)") && !start.contains("TEMP"), "{start}");
    let audit =
        plan("SELECT queue, class, count(*), sum(tasks), sum(waiting) FROM parked GROUP BY queue, class");
    assert!(audit.contains("COVERING INDEX parked_in_order") && !audit.contains("TEMP"), "{audit}");
    let nodes = plan("DELETE FROM foreign_jobs WHERE job % 1000000000000 = 7");
    assert!(nodes.contains("SEARCH foreign_jobs USING INDEX foreign_jobs_nodes"), "{nodes}");
}

#[test]
fn an_audit_mends_counts_of_postgres() {
    let Some(cluster) = support::postgres::cluster() else { return };
    let address = cluster.database();
    let database = address.split("@/").nth(1).and_then(|rest| rest.split('?').next()).unwrap();
    support::block_on(async {
        let store = support::owned(&address).await;
        let mut writes = Vec::new();
        for (id, queue) in [(1, "a"), (2, "a"), (3, "b")] {
            writes.extend(job(id, queue, parked(id, 1, 0, id)));
        }
        commit(&store, writes).await;
        cluster.sql(
            database,
            "UPDATE parked_counts SET jobs = 7 WHERE queue = 'a';
             DELETE FROM parked_counts WHERE queue = 'b';
             INSERT INTO parked_counts VALUES ('c', 5, 1, 2, 3);",
        );
        let drifts = store.audit_parked().await.unwrap();
        let mut wrong: Vec<(&str, u64, u64)> =
            drifts.iter().map(|drift| (&*drift.queue, drift.counted.jobs, drift.found.jobs)).collect();
        wrong.sort();
        assert_eq!(wrong, [("a", 7, 2), ("b", 0, 1), ("c", 1, 0)]);
        assert_eq!(store.parked_counts().await.unwrap(), [count("a", 1, 2), count("b", 1, 1)]);
        assert_eq!(store.audit_parked().await.unwrap(), []);
    });
}
