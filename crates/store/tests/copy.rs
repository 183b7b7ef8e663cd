//! Copies of a farm from one store to another.

use crate::support::{self, block_on, commit, owned};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::engine::{Outbox, Write};
use windlass_core::job::{
    BackOff, BacklogCounts, Counts, End, JobSpec, JobState, Parked, QueuePos, StepSpec, TaskResult, TaskState,
};
use windlass_core::licences::{Busy, Limit};
use windlass_core::queues::QueueRecord;
use windlass_core::ranges::RangeSet;
use windlass_core::score::history::Sample;
use windlass_core::worker::{WorkerRecord, WorkerState};
use windlass_core::{Epoch, JobId, Resources, TaskId, Time, WorkerId};
use windlass_store::{
    AttemptUse, Beside, ForeignWrite, JobFilter, NewNotice, SeriesRow, Store, StoreError, TokenRecord,
    TokenWrite, UsageKey, copy,
};

const JOBS: u64 = 40;

/// Something in every table, and more jobs and tasks than one batch has.
async fn filled(address: &str) -> Store {
    let store = owned(address).await;
    for id in 1..=JOBS {
        commit(&store, job(id)).await;
    }
    let worker = WorkerRecord {
        id: WorkerId(1),
        name: "w".to_owned(),
        epoch: Epoch(1),
        identity: u64::MAX,
        incarnation: 2,
        state: WorkerState::Draining,
        draining: true,
        note: Some("new disk".to_owned()),
        lease_until: Some(Time(4)),
        capacity: Resources::new(100, u64::MAX),
        attributes: [("arch".to_owned(), ["x".to_owned()].into())].into(),
    };
    let busy = Busy { exits: [1].into(), back_off_ms: 5 };
    let queue = QueueRecord {
        paused: Some("why".to_owned()),
        users: ["ann".to_owned()].into(),
        user_weights: [("ann".to_owned(), 3)].into(),
        jobserver: Some(false),
        ..QueueRecord::named("q")
    };
    let others = vec![
        Write::Worker(worker),
        Write::Queue(queue),
        Write::Limit { name: "maya".to_owned(), limit: Some(Limit { busy: Some(busy), ..Limit::of(3) }) },
        Write::History { signature: "s".to_owned(), samples: vec![Sample::default(); 3], at: Time(9) },
    ];
    commit(&store, others).await;
    let doc = |job, open| ForeignWrite::Job { job: JobId(job), open, doc: format!("of {job}") };
    let host = ForeignWrite::Host { name: "h".to_owned(), doc: "host".to_owned() };
    store.write_foreign(vec![doc(1, true), doc(2, false), host]).await.unwrap();
    store.keep_series(vec![SeriesRow { part: 1, step: 2, data: vec![0, 255, 7] }], vec![]).await.unwrap();
    store.keep_number("n", 77).await.unwrap();
    let token = TokenRecord {
        id: "t".to_owned(),
        hash: [200; 32],
        role: "submitter".to_owned(),
        user: "ann".to_owned(),
        worker: None,
        serves: ["nix".to_owned()].into(),
        for_users: BTreeSet::from(["film-*".to_owned()]),
        queue: Some("opencue".to_owned()),
        cache: Some("write".to_owned()),
        note: "note".to_owned(),
        created: Time(1),
        expires: Some(Time(2)),
        revoked: None,
    };
    let notice = NewNotice {
        job: Some(JobId(1)),
        user: "ann".to_owned(),
        to: "mailto:ann@example.org".to_owned(),
        body: "{}".to_owned(),
        at: Time(8),
    };
    let notices = vec![notice.clone(), NewNotice { job: None, user: String::new(), ..notice }];
    let batch = Outbox { writes: vec![Write::Queue(QueueRecord::named("r"))], ..Outbox::default() };
    let key = UsageKey { day: 20_000, user: "ann".to_owned(), queue: "q".to_owned() };
    let used = vec![AttemptUse { write: 0, key, cpu_ms: 7, failed: true }];
    store.commit_with(Arc::new(batch), Beside { notices, used, ..Beside::default() }).await.unwrap();
    assert!(store.write_token(TokenWrite::Create(Box::new(token))).await.unwrap());
    store
}

fn job(id: u64) -> Vec<Write> {
    let task = |index| TaskId { job: JobId(id), index };
    let step = StepSpec {
        name: "s".to_owned(),
        tasks: 100,
        body: vec![id as u8; 100].into(),
        ..StepSpec::default()
    };
    let (user, key) = (format!("u{}", id % 3), Some(format!("k{id}")));
    let spec = JobSpec { user, key, queue: "q".to_owned(), steps: vec![step], ..JobSpec::default() };
    let mut writes = vec![Write::Job { id: JobId(id), spec: Arc::new(spec), created: Time(id) }];
    if id.is_multiple_of(4) {
        let position = QueuePos { priority: Reverse(0), ranked: Time(id), job: JobId(id) };
        let backlog = BacklogCounts { jobs: 1, ready: 100, waiting: 0 };
        let parked = Parked { class: 1, position, ready: Time(3), backlog };
        writes.push(Write::Park { job: JobId(id), queue: "q".to_owned(), parked });
        return writes;
    }
    let result = TaskResult { message: Some("why".to_owned()), ..TaskResult::bare(End::Exited(1)) };
    let (worker, epoch, at) = (WorkerId(1), Epoch(1), Time(5));
    for index in 0..60 {
        writes.push(Write::Book {
            task: task(index),
            attempt: 1,
            worker,
            epoch,
            at,
            amounts: (100, u64::MAX),
        });
    }
    for index in 0..30 {
        let (task, result) = (task(index), result.clone());
        writes.push(match index % 3 {
            0 => Write::Requeued { task, attempt: 1, failures: 1, losses: 0, result },
            _ => Write::End { task, attempt: 1, state: TaskState::Succeeded, failures: 0, losses: 1, result },
        });
    }
    writes.push(Write::LateResult { task: task(1), attempt: 1, worker, epoch, result });
    let back_off = BackOff { limit: "maya".to_owned(), since: at, until: at, times: 1 };
    writes.push(Write::LicenceBackoffs { job: JobId(id), steps: [(0, back_off)].into() });
    writes.push(Write::SucceededRanges { job: JobId(id), tasks: RangeSet::from_range(1..3) });
    writes.push(Write::FirstSucceeded { job: JobId(id), tasks: RangeSet::from_range(2..4) });
    if id.is_multiple_of(5) {
        writes.push(Write::JobPriority { job: JobId(id), priority: -3 });
        let (state, counts) = (JobState::Failed, Counts::default());
        writes.push(Write::JobEnd { job: JobId(id), state, at, counts });
    }
    writes
}

async fn shown(store: &Store) -> String {
    let mut text = format!("{} {:#?}", store.id(), store.load().await.unwrap());
    text += &format!("{:#?}", store.jobs(JobFilter::default(), None, 999, usize::MAX).await.unwrap());
    for id in (1..=JOBS).map(JobId) {
        text += &format!("{:#?}", store.tasks(id, 0..999).await.unwrap());
        text += &format!("{:?} {:?}", store.body(id, 0).await.unwrap(), store.parked(id).await.unwrap());
        text += &format!("{:?}", store.job_by_key(format!("u{}", id.0 % 3), format!("k{id}")).await.unwrap());
        for index in 0..4 {
            text += &format!("{:#?}", store.history(TaskId { job: id, index }).await.unwrap());
        }
    }
    for user in ["u0", "u1", "u2"] {
        text += &format!("{:?}", store.user_totals(user.to_owned()).await.unwrap());
    }
    text += &format!("{:?} {:?}", store.tokens().await.unwrap(), store.series().await.unwrap());
    text += &format!("{:?}", store.ended_totals().await.unwrap());
    text += &format!("{:?}", windlass_store::owed_notices(store, 0, 99).await.unwrap());
    text += &format!("{:?}", windlass_store::usage_since(store, 0, 99).await.unwrap());
    text += &format!("{:?}", store.foreign_docs().await.unwrap());
    text += &format!("{:?}", store.foreign_job(JobId(2)).await.unwrap());
    text + &format!("{:?} {:?}", store.number("n").await.unwrap(), store.audit_parked().await.unwrap())
}

/// Waits for the lock of a file that was just closed: its writer's thread ends a moment later.
async fn opened(address: &str) -> Store {
    loop {
        match Store::connect(address).await {
            Err(StoreError::InUse(_)) => tokio::task::yield_now().await,
            other => return other.unwrap(),
        }
    }
}

async fn copied(from: &str, to: &str) -> Vec<windlass_store::CopiedTable> {
    loop {
        match copy(from, to).await {
            Err(StoreError::InUse(_)) => tokio::task::yield_now().await,
            other => return other.unwrap(),
        }
    }
}

#[test]
fn a_farm_moves_to_postgres_and_back_with_everything() {
    let Some(cluster) = support::postgres::cluster() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("sqlite:{}", dir.path().join(name).display());
    let (first, last, database) = (file("first.db"), file("last.db"), cluster.database());
    block_on(async {
        let before = shown(&filled(&first).await).await;
        let tables = copied(&first, &database).await;
        let rows = |name: &str| tables.iter().find(|table| table.table == name).unwrap().rows;
        assert_eq!((rows("jobs"), rows("tasks"), rows("tokens")), (JOBS, 30 * 60, 1));
        assert_eq!(shown(&opened(&database).await).await, before);
        copied(&database, &last).await;
        assert_eq!(shown(&opened(&last).await).await, before);
        // A store that is not empty is refused as a target.
        for to in [&last, &database] {
            let refused = loop {
                match copy(&first, to).await {
                    Err(StoreError::InUse(_)) => tokio::task::yield_now().await,
                    other => break other.expect_err("it is not empty"),
                }
            };
            assert!(matches!(refused, StoreError::NotEmpty { .. }), "{refused}");
        }
        // The farm goes on: numbers are not given out twice, and attempts are where they were.
        let server = owned(&database).await;
        assert_eq!(server.load().await.unwrap().next_job, JOBS + 1);
        let again = Write::LateResult {
            task: TaskId { job: JobId(1), index: 1 },
            attempt: 1,
            worker: WorkerId(1),
            epoch: Epoch(1),
            result: TaskResult::bare(End::Lost),
        };
        let history =
            |store: Store| async move { store.history(TaskId { job: JobId(1), index: 1 }).await.unwrap() };
        let known = history(server.clone()).await;
        commit(&server, vec![again]).await;
        assert_eq!(history(server).await, known, "it was known before the copy");
    });
}

#[test]
fn a_store_that_a_server_uses_is_not_copied() {
    let Some(cluster) = support::postgres::cluster() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", dir.path().join("w.db").display());
    let (used, other) = (cluster.database(), cluster.database());
    block_on(async {
        let store = Store::connect(&used).await.unwrap();
        let server = store.register_server("first-server", &[], "0", None).await.unwrap();
        let owner = store.claim(server, Duration::from_secs(600)).await.unwrap().unwrap();
        let owner = store.as_owner(owner);
        for (from, to) in [(&used, &other), (&other, &used)] {
            let refused = copy(from, to).await.expect_err("a server uses it");
            assert!(matches!(refused, StoreError::Owned { .. }), "{refused}");
            assert!(refused.to_string().contains("first-server"), "{refused}");
        }
        owner.release().await.unwrap();
        copy(&used, &other).await.unwrap();
        let held = Store::open(&file).unwrap();
        let refused = copy(&file, &other).await.expect_err("a server uses it");
        assert!(matches!(refused, StoreError::InUse(_)), "{refused}");
        drop(held);
        assert!(matches!(copy("memory", &other).await, Err(StoreError::NoCopy)));
    });
}

#[test]
fn a_dump_is_restored_with_everything() {
    let Some(cluster) = support::postgres::cluster() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (cluster.database(), cluster.empty_database());
    let name = |address: &str| address.split("@/").nth(1).unwrap().split('?').next().unwrap().to_owned();
    block_on(async {
        let before = shown(&filled(&from).await).await;
        let file = dir.path().join("farm.dump");
        let run = |command: &mut std::process::Command| {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        run(cluster.program("pg_dump").args(["--format=custom", "--file"]).arg(&file).arg(name(&from)));
        run(cluster.program("pg_restore").args(["--no-owner", "--dbname", &name(&to)]).arg(&file));
        let restored = Store::connect(&to).await.unwrap();
        assert_eq!(shown(&restored).await, before);
    });
}
