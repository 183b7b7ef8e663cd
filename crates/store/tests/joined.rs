//! A farm that the release before divided into shards is opened by this one. The fixture is what a crash of all servers left:
//! tasks with other shards, some of which have ended, and messages about them on their way.

use crate::support::{block_on, owned, postgres};
use refinery::{Runner, Target, load_sql_migrations};
use std::path::Path;
use tokio_postgres::error::SqlState;
use windlass_core::engine::{
    Engine, Event, Held, HeldPhase, Hello, Inventory, Outbox, Settings, StoredState, WorkerCommand,
};
use windlass_core::job::{BacklogCounts, Counts, JobState, Stop, TaskState};
use windlass_core::residency::subqueues::ParkedCount;
use windlass_core::time::NS_PER_S;
use windlass_core::worker::WorkerState;
use windlass_core::{Epoch, JobId, Resources, TaskId, Time, WorkerId};
use windlass_store::{EndedTotals, Store, StoreError, copy};

/// Keys of other shards than the first begin with this and the number of the shard.
const MARK: char = '\u{1f}';

/// The bodies of messages as the release before wrote them: sender, receiver, number, body.
const MESSAGES: [(u32, u32, u32, &str); 12] = [
    (1, 2, 7, r#"{"delegate":{"job":1,"tasks":[[5,3]],"tried":[],"waited_ms":40,"stays":false}}"#),
    (1, 2, 8, r#"{"delegate":{"job":7,"tasks":[[0,2]],"tried":[],"waited_ms":0,"stays":true}}"#),
    (1, 2, 9, r#"{"orders":{"job":7,"stop":-1,"held":false,"priority":0}}"#),
    (1, 2, 10, r#"{"withdraw":{"job":1}}"#),
    (1, 3, 1, r#""ask_room""#),
    (2, 1, 3, r#"{"return":{"job":1,"tasks":[[3,1,2,0,0,0,null]],"fits":true,"mean_us":[[0,1500]]}}"#),
    (2, 1, 4, r#"{"return":{"job":3,"tasks":[[0,2,2,0,0,0,null]],"fits":true,"mean_us":[]}}"#),
    (2, 1, 5, r#"{"return":{"job":4,"tasks":[[0,1,3,1,1,0,2]],"fits":true,"mean_us":[]}}"#),
    (2, 1, 6, r#"{"room":{"cpu":100,"memory":0,"largest_cpu":100,"largest_memory":0,"version":3}}"#),
    (3, 1, 1, r#"{"return":{"job":2,"tasks":[[0,1,3,1,1,0,3]],"fits":true,"mean_us":[]}}"#),
    (
        1,
        4,
        1,
        r#"{"queue":{"name":"q","weight":7,"band":null,"quota_cpu":null,"burst_cpu":null,"paused":null,"users":[],"by_jobs":false,"user_weights":{}}}"#,
    ),
    (1, 4, 2, r#"{"limit":{"name":"lic","limit":{"max":2,"per_worker":null,"busy":null}}}"#),
];

/// The row of a job of `tasks` tasks. `extra` is a part of its spec.
fn job(id: u64, home: u32, (state, stop): (u32, &str), parked: bool, tasks: u32, extra: &str) -> String {
    let spec = format!(
        r#"{{"name":"n","queue":"q","user":"ann","priority":0,{extra}"steps":[{{"name":"s","tasks":{tasks},"request":{{"cpu":100,"memory":0}}}}]}}"#
    );
    format!(
        "INSERT INTO jobs (id, name, queue, USER_COLUMN, spec, created, state, stop, parked, home)
         VALUES ({id}, 'n', 'q', 'ann', '{spec}', 7, {state}, {stop}, {parked}, {home});"
    )
}

/// The row of a task: its state, and the worker and the worker's epoch of its first attempt.
fn task_row(job: u64, index: u32, state: u32, (worker, epoch): (u64, u64)) -> String {
    let (failures, ending) = match state {
        0 | 3 => (1, "0, 1"),
        2 => (0, "0, 0"),
        _ => (0, "NULL, NULL"),
    };
    format!(
        "INSERT INTO tasks (job, idx, state, attempt, failures, worker, epoch, booked, cpu, memory, END_COLUMN, code)
         VALUES ({job}, {index}, {state}, 1, {failures}, {worker}, {epoch}, 5, 100, 0, {ending});"
    )
}

fn worker(id: u64, name: &str, (epoch, state): (u64, u32), shard: u32) -> String {
    format!(
        "INSERT INTO workers (id, name, epoch, incarnation, draining, capacity, attributes, identity, state, lease_until,
             shard)
         VALUES ({id}, '{name}', {epoch}, {id}, FALSE, '{{\"cpu\":100,\"memory\":0}}', '{{}}', {id}, {state}, 99, {shard});"
    )
}

/// The rows, but for those that only one of the databases has.
fn rows() -> String {
    let (active, ended, failed) = ((0, "NULL"), (1, "NULL"), (2, "NULL"));
    let mut sql = [
        job(1, 1, active, false, 10, ""),
        job(2, 1, active, false, 3, r#""fail_fast":"finish","#),
        job(3, 1, active, false, 2, ""),
        job(4, 1, active, false, 1, ""),
        job(5, 1, active, false, 1, r#""after":[4],"#),
        job(6, 1, active, false, 1, r#""after":[3],"#),
        job(7, 1, (0, "-1"), false, 2, ""),
        job(8, 2, active, true, 3, ""),
        job(9, 1, active, true, 1, ""),
        job(10, 1, ended, false, 1, ""),
        // It was retried after the job before it had failed.
        job(12, 1, active, false, 1, r#""after":[13],"#),
        job(13, 1, failed, false, 1, ""),
        // Its shard had not looked yet for the end of another shard's job.
        job(14, 2, active, false, 1, r#""after":[13],"#),
        job(15, 1, active, false, 1, r#""after":[5],"#),
        task_row(1, 0, 1, (1, 1)),
        task_row(1, 2, 1, (2, 3)),
        task_row(1, 3, 2, (2, 3)),
        task_row(1, 4, 0, (2, 3)),
        task_row(2, 0, 3, (3, 1)),
        task_row(2, 1, 1, (3, 1)),
        task_row(3, 0, 2, (2, 3)),
        task_row(3, 1, 2, (2, 3)),
        task_row(4, 0, 3, (2, 3)),
        worker(1, "w1", (1, 0), 1),
        worker(2, "w2", (3, 0), 2),
        worker(3, "w3", (1, 2), 3),
        worker(5, "moved", (1, 0), 4),
    ]
    .concat();
    for (sender, receiver, number, body) in MESSAGES {
        sql += &format!("INSERT INTO messages VALUES ({sender}, {receiver}, {number}, '{body}');");
    }
    let others = "
        INSERT INTO attempts (job, idx, attempt, worker, epoch, late, END_COLUMN, code) VALUES (1, 4, 1, 2, 3, FALSE, 0, 1);
        INSERT INTO messages_heard VALUES (1, 2, 6), (2, 1, 2);
        INSERT INTO delegated VALUES (1, 2, '[[2,6]]'), (2, 3, '[[0,3]]'), (3, 2, '[[0,2]]'), (4, 2, '[[0,1]]'),
            (7, 2, '[[0,2]]');
        INSERT INTO farm_shards VALUES (1), (2), (3), (4);
        INSERT INTO meta VALUES ('next_job', 300), ('next_worker', 600);
        INSERT INTO queues (name, weight) VALUES ('q', 7);
        INSERT INTO parked VALUES (8, 'MARK2MARKq', 5, 0, 8, 7, 3, 0), (9, 'q', 5, 0, 9, 7, 1, 0);
        INSERT INTO parked_counts VALUES ('MARK2MARKq', 5, 1, 3, 0), ('q', 5, 1, 1, 0);
        INSERT INTO turns VALUES ('MARK2MARKq', 0, '', 3, 9, 0, 0, 7, 1, 1, 1, 0, 0, 7),
            ('q', 0, '', 3, 4, 0, 0, 7, 1, 1, 1, 0, 0, 7);
        INSERT INTO turn_clocks VALUES (3, 'MARK2MARK', 9, 0, 0, 0), (3, '', 4, 0, 0, 0);";
    sql + &others.replace("MARK", &MARK.to_string())
}

/// The migrations of a database, up to a version.
fn schema(database: &str, version: i32) -> Runner {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(database).join("migrations");
    Runner::new(&load_sql_migrations(all).unwrap()).set_target(Target::Version(version))
}

/// A file as the release before left it.
fn divided_file(path: &Path) {
    let mut db = rusqlite::Connection::open(path).unwrap();
    schema("sqlite", 18).run(&mut db).unwrap();
    let rows = rows().replace("USER_COLUMN", "user").replace("END_COLUMN", "end");
    db.execute_batch(&rows).unwrap();
}

async fn raw(address: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A database as the release before left it. A server's lease still runs.
async fn divided_database(address: &str) {
    let mut client = raw(address).await;
    schema("postgres", 9).run_async(&mut client).await.unwrap();
    let rows = rows().replace("USER_COLUMN", "submitter").replace("END_COLUMN", "ending");
    client.batch_execute(&rows).await.unwrap();
    // Other than a file, a database has the row of a worker that went to another shard beside that of the same name.
    // One that went to another shard was forgotten, and so has no lease.
    let forgotten = "UPDATE workers SET lease_until = NULL WHERE id = 4";
    let forgotten = worker(4, "moved", (6, 4), 1) + forgotten;
    client.batch_execute(&forgotten).await.unwrap();
    let others =
        "INSERT INTO servers (name, addresses, release, weight, pins) VALUES ('old', '{}', '0', 1, '{2}');
        INSERT INTO shards SELECT id, 1, 3, 50, '{}', interval '1 hour', clock_timestamp(), clock_timestamp()
            FROM farm_shards;
        INSERT INTO shard_events (shard, number, events) VALUES (2, 1, '[]');
        INSERT INTO requests (asked_by, kind, body) VALUES (1, 'http:2', '');
        INSERT INTO ended_totals VALUES (1, 1), (2, 1)";
    client.batch_execute(others).await.unwrap();
}

fn task(job: u64, index: u32) -> TaskId {
    TaskId { job: JobId(job), index }
}

/// Every job, result, attempt and worker is there.
async fn assert_joined(store: &Store, workers: &[&str]) {
    let found = store.load().await.unwrap();
    assert_eq!(found.next_job, 300, "numbers that were leased are not given again");
    let ground = found.ground;
    let names: Vec<&str> = ground.workers.iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!(names, workers);
    let second = &ground.workers[1];
    assert_eq!((second.id, second.epoch, second.lease_until), (WorkerId(2), Epoch(3), Some(Time(99))));
    let last = ground.workers.last().unwrap();
    assert_eq!((last.id, last.state), (WorkerId(5), WorkerState::Up), "new workers get higher numbers");

    let active: Vec<(u64, Option<Stop>)> = ground.jobs.iter().map(|job| (job.id.0, job.stop)).collect();
    assert_eq!(active, [(1, None), (2, Some(Stop::FailFast)), (6, None), (12, None)]);
    let rows = |number: usize| {
        let rows = ground.jobs[number].tasks.iter();
        rows.map(|row| (row.index, row.state, row.attempt, row.worker.0, row.epoch.0)).collect::<Vec<_>>()
    };
    use TaskState::{Booked, Failed, Ready, Succeeded};
    assert_eq!(rows(0), [(0, Booked, 1, 1, 1), (2, Booked, 1, 2, 3), (4, Ready, 1, 2, 3)]);
    assert_eq!(rows(1), [(1, Booked, 1, 3, 1)]);
    let ended = |number: usize| {
        let parts = ground.jobs[number].ended.iter();
        parts.map(|part| (part.tasks.clone(), part.state)).collect::<Vec<_>>()
    };
    assert_eq!((ended(0), ended(1)), (vec![(3..4, Succeeded)], vec![(0..1, Failed)]));
    assert_eq!(store.tasks(JobId(1), 0..10).await.unwrap().len(), 4);
    assert_eq!(store.history(task(1, 4)).await.unwrap().len(), 1, "its first attempt failed");

    let end_of = async |id: u64| {
        let job = store.job(JobId(id)).await.unwrap().unwrap();
        (job.state, job.stop, job.counts.filter(|_| job.ended.is_some()).unwrap())
    };
    let counts = |total| Counts { total, ..Counts::default() };
    let (after, skipped) = (|id| Some(Stop::After(JobId(id))), Counts { skipped: 1, ..counts(1) });
    assert_eq!(end_of(3).await, (JobState::Succeeded, None, Counts { succeeded: 2, ..counts(2) }));
    assert_eq!(end_of(4).await, (JobState::Failed, None, Counts { failed: 1, ..counts(1) }));
    assert_eq!(end_of(5).await, (JobState::Failed, after(4), skipped));
    let canceled = Counts { canceled: 2, ..counts(2) };
    assert_eq!(end_of(7).await, (JobState::Canceled, Some(Stop::Canceled), canceled));
    assert_eq!(end_of(14).await, (JobState::Failed, after(13), skipped));
    assert_eq!(end_of(15).await, (JobState::Failed, after(5), skipped));
    let totals = EndedTotals { succeeded: 2, failed: 5, canceled: 1 };
    assert_eq!(store.ended_totals().await.unwrap(), totals);

    let backlog = BacklogCounts { jobs: 2, ready: 4, waiting: 0 };
    assert_eq!(ground.parked, [ParkedCount { queue: "q".to_owned(), class: 5, backlog }]);
    assert!(store.audit_parked().await.unwrap().is_empty());
    assert_eq!(store.parked(JobId(9)).await.unwrap().unwrap().ahead, 1);
    let turns: Vec<&str> = ground.turns.turns.iter().map(|turn| turn.queue.as_str()).collect();
    assert_eq!((turns, ground.turns.clocks.len()), (vec!["q"], 1), "those of the first shard");
    assert_eq!((ground.queues[0].name.as_str(), ground.queues[0].weight), ("q", 7));
    assert_goes_on_once(ground);
}

/// The engine takes in what runs on workers of all shards, and starts none of it again.
fn assert_goes_on_once(ground: StoredState) {
    let mut engine = Engine::restore(Settings { lease_ns: None, ..Settings::default() }, ground);
    engine.check().unwrap();
    let (now, mut out) = (Time(1_000_000 * NS_PER_S), Outbox::default());
    let running = [("w1", 1, task(1, 0)), ("w2", 2, task(1, 2)), ("w3", 3, task(2, 1))];
    for (name, number, task) in running {
        let held = vec![Held { task, attempt: 1, phase: HeldPhase::Running(Time(6)) }];
        let inventory = Inventory { seq: 0, held };
        let hello = Hello { inventory, ..Hello::new(name, number, Resources::new(100, 0)) };
        engine.handle(now, Event::Hello(Box::new(hello)), &mut out);
    }
    engine.round(now, 1, &mut out);
    engine.check().unwrap();
    for (_, number, task) in running {
        let attempt = engine.attempt(task).expect("it runs");
        assert!(attempt.worker == WorkerId(number) && !attempt.queued, "{task} runs where it ran");
        let is_about = |command: &WorkerCommand| match command {
            WorkerCommand::Start { task: told, .. } | WorkerCommand::Kill { task: told, .. } => *told == task,
            _ => false,
        };
        assert!(!out.sends.iter().any(|send| is_about(&send.command)), "{task} is left alone");
    }
}

/// Opens a file that was open a moment ago.
fn reopened(address: &str) -> Store {
    loop {
        match Store::open(address) {
            Err(StoreError::InUse(_)) => std::thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

#[test]
fn a_divided_farm_in_a_file_is_opened_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.db");
    divided_file(&path);
    let address = format!("sqlite:{}", path.display());
    let workers = ["w1", "w2", "w3", "moved"];
    block_on(assert_joined(&Store::open(&address).unwrap(), &workers));
    block_on(assert_joined(&reopened(&address), &workers));
}

#[test]
fn a_divided_farm_in_a_database_is_opened_as_one() {
    let Some(cluster) = postgres::cluster() else { return };
    let address = cluster.empty_database();
    block_on(async {
        divided_database(&address).await;
        // The farm goes on at once: it does not wait for the lease of the server before.
        let store = owned(&address).await;
        assert_joined(&store, &["w1", "w2", "w3", "moved~4", "moved"]).await;
        assert_eq!(store.ownership().unwrap().epoch, 5, "the migration counts as an owner");
        assert_eq!(store.servers().await.unwrap().len(), 2);
    });
}

#[test]
fn a_server_of_the_release_before_is_superseded_in_every_shard_and_claims_none() {
    let Some(cluster) = postgres::cluster() else { return };
    let address = cluster.empty_database();
    block_on(async {
        divided_database(&address).await;
        Store::connect(&address).await.unwrap();
        let old = raw(&address).await;
        // The statements of that release.
        let fence =
            "WITH fenced AS (UPDATE shards SET batch = batch + 1, refused = '{}', beat = clock_timestamp()
                WHERE id = $1 AND owner = 1 AND epoch = 3 AND batch = 50 RETURNING 1)
            SELECT 1 / count(*) FROM fenced";
        let look = "SELECT owner, epoch, batch, refused FROM shards WHERE id = $1 FOR UPDATE";
        let renew = "UPDATE shards SET beat = clock_timestamp() WHERE id = $1 AND owner = 1 AND epoch = 3";
        let claim = "INSERT INTO shards AS s (id, owner, epoch, batch, refused, lease, since, beat)
            VALUES ($1, 1, 1, 0, '{}', interval '5 s', clock_timestamp(), clock_timestamp())
            ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, epoch = s.epoch + 1 RETURNING epoch, batch";
        for shard in 1..=5_i32 {
            let refused = old.query_one(fence, &[&shard]).await.expect_err("its row is gone");
            assert_eq!(refused.code(), Some(&SqlState::DIVISION_BY_ZERO));
            assert!(old.query_opt(look, &[&shard]).await.unwrap().is_none(), "so it is superseded");
            assert_eq!(old.execute(renew, &[&shard]).await.unwrap(), 0);
            let refused = old.query_opt(claim, &[&shard]).await.expect_err("it may not claim");
            assert_eq!(refused.code(), Some(&SqlState::CHECK_VIOLATION));
        }
    });
}

#[test]
fn a_divided_farm_is_copied_into_a_file_as_one() {
    let Some(cluster) = postgres::cluster() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (cluster.empty_database(), format!("sqlite:{}", dir.path().join("w.db").display()));
    block_on(async {
        divided_database(&from).await;
        copy(&from, &to).await.unwrap();
        assert_joined(&reopened(&to), &["w1", "w2", "w3", "moved~4", "moved"]).await;
    });
}
