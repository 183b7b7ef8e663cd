//! How PostgreSQL reads a database with many ended jobs: the plans of the statements that really ran, which the module
//! `auto_explain` writes to the log of the database. Nothing that a server does often may read a table of jobs, tasks
//! or attempts from its beginning to its end.

use crate::support::postgres::Cluster;
use crate::support::{LONG, block_on, commit, owned};
use std::cmp::Reverse;
use std::sync::Arc;
use windlass_core::engine::{Fetch, FetchQuery, Write};
use windlass_core::job::{
    BacklogCounts, Counts, End, JobSpec, JobState, Parked, QueuePos, StepSpec, TaskResult, TaskState,
};
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};
use windlass_store::{JobFilter, Store};

/// Ended jobs, and the tasks of each.
const ENDED: u64 = 4_000;
const TASKS: u32 = 20;
const ACTIVE: u64 = ENDED + 1;
const PARKED: u64 = ENDED + 2;

fn job(id: u64, key: Option<&str>) -> Write {
    let step = StepSpec { name: "s".to_owned(), tasks: TASKS, body: Arc::from(*b"x"), ..StepSpec::default() };
    let spec = JobSpec {
        name: "film".to_owned(),
        queue: "q".to_owned(),
        user: "u".to_owned(),
        key: key.map(str::to_owned),
        steps: vec![step],
        ..JobSpec::default()
    };
    Write::Job { id: JobId(id), spec: Arc::new(spec), created: Time(id) }
}

fn book(job: u64, index: u32) -> Write {
    let task = TaskId { job: JobId(job), index };
    Write::Book { task, attempt: 1, worker: WorkerId(1), epoch: Epoch(1), at: Time(2), amounts: (100, 0) }
}

fn end(job: u64, index: u32) -> Write {
    let result =
        TaskResult { started: Some(Time(2)), finished: Some(Time(3)), ..TaskResult::bare(End::Exited(0)) };
    let (task, state) = (TaskId { job: JobId(job), index }, TaskState::Succeeded);
    Write::End { task, attempt: 1, state, failures: 0, losses: 0, result }
}

fn park(job: u64) -> Write {
    let position = QueuePos { priority: Reverse(0), ranked: Time(1), job: JobId(job) };
    let backlog = BacklogCounts { jobs: 1, ready: 1, waiting: 0 };
    let parked = Parked { class: 1, position, ready: Time(1), backlog };
    Write::Park { job: JobId(job), queue: "q".to_owned(), parked }
}

/// Statements that copy job 1, which has ended, with its tasks, as the jobs from 2 to `$1`. Each copy ended a
/// microsecond after the one before it.
const COPIES: [&str; 4] = [
    "INSERT INTO jobs (id, name, queue, submitter, spec, created, state, stop, held, ended, counts, parked, back_offs,
         done, bytes, priority)
     SELECT copy, name, queue, submitter, spec, created + copy, state, stop, held, ended + copy * 1000, counts, parked,
         back_offs, done, bytes, priority
     FROM jobs, generate_series(2, $1::bigint) AS copy WHERE id = 1",
    "INSERT INTO bodies (job, step, body)
     SELECT copy, step, body FROM bodies, generate_series(2, $1::bigint) AS copy WHERE job = 1",
    "INSERT INTO tasks (job, idx, state, attempt, failures, losses, worker, epoch, booked, cpu, memory, ending, code,
         why, started, finished, cpu_ms, peak, out_bytes, err_bytes, disk)
     SELECT copy, idx, state, attempt, failures, losses, worker, epoch, booked, cpu, memory, ending, code,
         why, started, finished, cpu_ms, peak, out_bytes, err_bytes, disk
     FROM generate_series(2, $1::bigint) AS copy, tasks WHERE job = 1 ORDER BY copy, idx",
    // Every batch that makes jobs or ends them keeps these totals, and the next number.
    "WITH one AS (SELECT submitter, bytes, state FROM jobs WHERE id = 1),
         ended AS (UPDATE ended_totals SET jobs = jobs + $1::bigint - 1 FROM one WHERE ended_totals.state = one.state),
         next AS (UPDATE meta SET value = $1::bigint + 1 WHERE key = 'next_job')
     UPDATE user_totals SET jobs = user_totals.jobs + $1::bigint - 1,
         bytes = user_totals.bytes + one.bytes * ($1::bigint - 1)
     FROM one WHERE user_totals.submitter = one.submitter",
];

/// Copies the ended job, and lets the database analyse its tables as it does on a farm.
async fn copy_ended_job(address: &str) {
    let (client, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for sql in COPIES {
        client.execute(sql, &[&(ENDED as i64)]).await.unwrap();
    }
    client.batch_execute("VACUUM ANALYZE").await.unwrap();
}

/// Ended jobs, an active one of which half has ended, and a parked one.
async fn fill(store: &Store, address: &str) {
    commit(store, vec![job(1, None)]).await;
    commit(store, (0..TASKS).flat_map(|index| [book(1, index), end(1, index)]).collect()).await;
    let (state, counts) = (JobState::Succeeded, Counts { succeeded: TASKS, ..Counts::default() });
    commit(store, vec![Write::JobEnd { job: JobId(1), state, at: Time(4), counts }]).await;
    copy_ended_job(address).await;
    commit(store, vec![job(ACTIVE, Some("key")), job(PARKED, None), park(PARKED)]).await;
    commit(store, (0..10).flat_map(|index| [book(ACTIVE, index), end(ACTIVE, index)]).collect()).await;
}

/// The reads of clients: lists with and without filters, a job, its tasks, `why` of a parked job.
async fn ask(store: &Store) {
    let filters = [
        JobFilter::default(),
        JobFilter { user: Some("u".into()), ..JobFilter::default() },
        JobFilter { queue: Some("other".into()), ..JobFilter::default() },
        JobFilter { name: Some("nothing".into()), ..JobFilter::default() },
        JobFilter { states: vec![JobState::Active], ..JobFilter::default() },
        JobFilter { states: vec![JobState::Failed], ..JobFilter::default() },
    ];
    for filter in filters {
        store.jobs(filter.clone(), None, 100, 1_000).await.unwrap();
        store.jobs(filter, Some(JobId(ENDED / 2)), 100, 1_000).await.unwrap();
    }
    for id in [1, ENDED / 2, ACTIVE, PARKED] {
        assert!(store.job(JobId(id)).await.unwrap().is_some());
        store.tasks(JobId(id), 0..10).await.unwrap();
        windlass_store::failed_tasks(store, JobId(id), 0..10, 3).await.unwrap();
        store.history(TaskId { job: JobId(id), index: 3 }).await.unwrap();
        store.parked(JobId(id)).await.unwrap();
        store.body(JobId(id), 0).await.unwrap();
    }
    assert_eq!(store.job_by_key("u".into(), "key".into()).await.unwrap(), Some(JobId(ACTIVE)));
    assert_eq!(store.user_totals("u".into()).await.unwrap().0, PARKED);
    assert_eq!(store.ended_totals().await.unwrap().succeeded, ENDED);
    store.held_jobs().await.unwrap();
}

/// What a server does that takes over, and then in passing.
async fn take_over(store: &Store) {
    store.release().await.unwrap();
    let server = store.register_server("second", &[], "0", None).await.unwrap();
    let ownership = store.claim(server, LONG).await.unwrap().expect("it was released");
    let store = store.as_owner(ownership);
    let found = store.load().await.unwrap();
    assert_eq!(found.ground.jobs.len(), 1, "the active one alone");
    assert!(store.audit_parked().await.unwrap().is_empty());
    assert_eq!(store.last_ended(100, 1_000).await.unwrap().len(), 101);
    let from = QueuePos { priority: Reverse(0), ranked: Time(0), job: JobId(0) };
    let wanted = [
        FetchQuery::Jobs([JobId(ACTIVE), JobId(3)].into()),
        FetchQuery::Page { queue: "q".to_owned(), class: 1, from, steps: 10 },
    ];
    let fetches =
        wanted.into_iter().enumerate().map(|(number, wanted)| Fetch { number: number as u64, wanted });
    assert_eq!(store.fetch(fetches.collect()).await.unwrap()[1].len(), 1);
    commit(&store, vec![book(ACTIVE, 10), end(ACTIVE, 10)]).await;
    let (gone, _) = store.retain(Time(u64::MAX >> 2), 500).await.unwrap();
    assert!(!gone.is_empty());
}

#[test]
fn nothing_reads_all_jobs_or_tasks_of_a_database_of_ended_ones() {
    let settings = [
        "fsync=off",
        "session_preload_libraries=auto_explain",
        "auto_explain.log_min_duration=0",
        "auto_explain.log_timing=off",
        "log_line_prefix=",
        "autovacuum=off",
    ];
    let cluster = match Cluster::start(&settings) {
        Ok(cluster) => cluster,
        Err(why) => return println!("SKIP what needs PostgreSQL and auto_explain: {why}"),
    };
    let address = cluster.database();
    let log = || std::fs::read_to_string(cluster.dir().join("log")).unwrap();
    block_on(async {
        let store = owned(&address).await;
        fill(&store, &address).await;
        let before = log().len();
        ask(&store).await;
        take_over(&store).await;
        let told = log()[before..].to_owned();
        let plans = told.matches("Query Text:").count();
        assert!(plans > 50, "{plans} plans\n{told}");
        for index in ["tasks_pkey", "jobs_active", "jobs_by_end", "jobs_pkey", "attempts_by_task"] {
            assert!(told.contains(&format!(" using {index} on ")), "{index} is in no plan\n{told}");
        }
        for table in ["jobs", "tasks", "attempts", "bodies"] {
            let whole = format!("Seq Scan on {table}");
            let found = told.split("Query Text:").find(|plan| plan.contains(&whole));
            assert!(found.is_none(), "this reads all of {table}:{}", found.unwrap_or_default());
        }
    });
    // A statement that does so is seen.
    let before = log().len();
    cluster
        .sql(address.split_once("@/").unwrap().1.split_once('?').unwrap().0, "SELECT sum(cpu_ms) FROM tasks");
    assert!(log()[before..].contains("Seq Scan on tasks"), "{}", &log()[before..]);
}
