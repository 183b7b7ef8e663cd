//! SQLite files of earlier schemas are brought up to date.

use crate::support::block_on;
use std::collections::BTreeMap;
use windlass_core::job::Hints;
use windlass_core::licences::Limit;
use windlass_core::queues::QueueRecord;
use windlass_core::worker::{WorkerRecord, WorkerState};
use windlass_core::{Epoch, JobId, Resources, TaskId, WorkerId};
use windlass_store::{EndedTotals, Store, StoreError};

fn task(job: u64, index: u32) -> TaskId {
    TaskId { job: JobId(job), index }
}

/// The first schemas, and the checksums of their files, which databases have stored.
const SCHEMAS: [(&str, &str, &str); 4] = [
    ("initial", include_str!("../src/sqlite/migrations/V1__initial.sql"), "17321864722359855485"),
    ("leases", include_str!("../src/sqlite/migrations/V2__leases.sql"), "4101222979907797802"),
    ("tokens", include_str!("../src/sqlite/migrations/V3__tokens.sql"), "6567967102988101872"),
    ("placement", include_str!("../src/sqlite/migrations/V4__placement.sql"), "9380557536467622693"),
];

/// A database of schema `version` with these rows, opened by this version.
fn opened_from_schema(version: usize, rows: &str) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    let history = "CREATE TABLE refinery_schema_history (version INT4 PRIMARY KEY, name VARCHAR(255),
             applied_on VARCHAR(255), checksum VARCHAR(255))";
    db.execute_batch(history).unwrap();
    for (number, (name, sql, checksum)) in (1..).zip(&SCHEMAS[..version]) {
        db.execute_batch(sql).unwrap();
        let row = (number, name, "2026-01-01T00:00:00Z", checksum);
        db.execute("INSERT INTO refinery_schema_history VALUES (?1, ?2, ?3, ?4)", row).unwrap();
    }
    db.execute_batch(rows).unwrap();
    drop(db);
    let store = Store::open(&format!("sqlite:{}", path.display())).unwrap();
    (dir, store)
}

#[test]
fn a_file_of_the_first_schema_is_brought_up_to_date() {
    let (_dir, store) = opened_from_schema(
        1,
        "INSERT INTO workers VALUES (3, 'old', 7, 99, 1, '{\"cpu\":800,\"memory\":5}', '{}');",
    );
    let worker = WorkerRecord {
        id: WorkerId(3),
        name: "old".to_owned(),
        epoch: Epoch(7),
        identity: 0,
        incarnation: 99,
        state: WorkerState::Suspect,
        draining: true,
        note: None,
        lease_until: None,
        capacity: Resources::new(800, 5),
        attributes: Default::default(),
    };
    assert_eq!(block_on(store.load()).unwrap().ground.workers, [worker]);
}

#[test]
fn workers_of_gateways_get_names_that_no_agent_may_have() {
    let workers = [
        ("box1", "{}"),
        ("vm-1", r#"{"executor":["compass-ci"],"tbox_type":["vm"]}"#),
        ("10.0.0.1:10501", r#"{"exclusive":["sccache"],"serves":["sccache"]}"#),
        ("box2", r#"{"exclusive":["sccache"],"sccache.server":["10.0.0.2:10501"],"serves":["sccache"]}"#),
        ("ssh://b1", r#"{"exclusive":["nix"],"nix.builder":["ssh://b1"],"serves":["nix"]}"#),
        ("box3", r#"{"exclusive":["nix"],"nix.builder":["farm","ssh://box3"],"serves":["nix"]}"#),
    ];
    let row = |(id, (name, attributes)): (usize, (&str, &str))| {
        format!(
            "INSERT INTO workers (id, name, epoch, incarnation, draining, capacity, attributes)
             VALUES ({id}, '{name}', 7, 99, 0, '{{\"cpu\":800,\"memory\":5,\"gpus\":0,\"gpu_memory\":0}}', '{attributes}');"
        )
    };
    let rows: String = workers.into_iter().enumerate().map(row).collect();
    let (_dir, store) = opened_from_schema(1, &rows);
    let found = block_on(store.load()).unwrap().ground.workers;
    let names: Vec<&str> = found.iter().map(|worker| worker.name.as_str()).collect();
    let expected = ["box1", "compass:vm-1", "sccache:10.0.0.1:10501", "box2", "nix:ssh://b1", "box3"];
    assert_eq!(names, expected);
    assert!(found[4].attributes.is_empty() && !found[5].attributes.is_empty());
}

#[test]
fn a_file_is_copied_before_it_is_brought_up_to_date() {
    let job = |id: u64, user: &str| {
        let spec = r#"{"name":"n","queue":"q","user":"u","priority":0,"after":[],"steps":[]}"#;
        format!(
            "INSERT INTO jobs (id, name, queue, user, spec, created, state) VALUES ({id}, 'n', 'q', '{user}', '{spec}', 1, 1);
             INSERT INTO bodies VALUES ({id}, 0, '12345');"
        )
    };
    let (dir, store) = opened_from_schema(4, &[job(1, "ann"), job(2, "ann"), job(3, "bob")].concat());
    let (jobs, bytes) = block_on(store.user_totals("ann".to_owned())).unwrap();
    assert!(jobs == 2 && bytes > 10, "{jobs} {bytes}");
    assert_eq!(
        block_on(store.ended_totals()).unwrap(),
        EndedTotals { succeeded: 3, ..EndedTotals::default() }
    );
    let copy = dir.path().join("w.before-upgrade-4.db");
    let db = rusqlite::Connection::open(&copy).unwrap();
    let version: i64 =
        db.query_row("SELECT max(version) FROM refinery_schema_history", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 4);
    let mode = std::fs::metadata(&copy).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    let db = rusqlite::Connection::open(dir.path().join("w.db")).unwrap();
    let vacuum: i64 = db.pragma_query_value(None, "auto_vacuum", |row| row.get(0)).unwrap();
    assert_eq!(vacuum, 2, "a file of before gives room back, too");
}

#[test]
fn a_newer_schema_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.db");
    let address = format!("sqlite:{}", path.display());
    drop(Store::open(&address).unwrap());
    let db = rusqlite::Connection::open(&path).unwrap();
    let newer = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
                 VALUES (9999, 'later', '2030-01-01T00:00:00Z', '1')";
    db.execute(newer, []).unwrap();
    drop(db);
    // The writer's thread of the first store releases the lock only after its last handle is dropped.
    let refused = loop {
        match Store::open(&address) {
            Err(StoreError::InUse(_)) => std::thread::yield_now(),
            Err(e) => break e,
            Ok(_) => panic!("opened a newer schema"),
        }
    };
    assert!(matches!(refused, StoreError::Newer { found: 9999, .. }), "{refused}");
    assert!(refused.to_string().contains("later version"), "{refused}");
}

#[test]
fn a_file_of_the_third_schema_keeps_its_tasks() {
    let (_dir, store) = opened_from_schema(
        3,
        "INSERT INTO jobs (id, name, queue, user, spec, created, state) VALUES (1, 'n', 'q', 'u',
             '{\"name\":\"n\",\"queue\":\"q\",\"user\":\"u\",\"priority\":0,\"steps\":[{\"name\":\"s\",\"tasks\":2,\"request\":{\"cpu\":100,\"memory\":0}}]}', 7, 0);
         INSERT INTO tasks (job, idx, state, attempt, worker, epoch, booked) VALUES (1, 0, 1, 1, 4, 2, 77);
         INSERT INTO attempts (job, idx, attempt, worker, epoch, late, end) VALUES (1, 0, 1, 4, 1, 1, 7);",
    );
    let ground = block_on(store.load()).unwrap().ground;
    let step = &ground.jobs[0].spec.steps[0];
    assert_eq!((step.limits.len(), &step.hints), (0, &Hints::default()));
    assert_eq!((ground.jobs[0].tasks[0].attempt, ground.jobs[0].tasks[0].amounts), (1, None));
    assert_eq!(block_on(store.history(task(1, 0))).unwrap()[0].result.disk_bytes, None);
    assert_eq!((ground.history.len(), ground.queues.len(), ground.limits.len()), (0, 0, 0));
}

#[test]
fn a_file_of_the_fourth_schema_keeps_its_queues_and_limits() {
    let (_dir, store) = opened_from_schema(
        4,
        "INSERT INTO queues VALUES ('a', 300, 250), ('b', 1, NULL);
         INSERT INTO limits VALUES ('maya', 10), ('nuke', 0);
         INSERT INTO jobs (id, name, queue, user, spec, created, state) VALUES (1, 'n', 'a', 'u',
             '{\"name\":\"n\",\"queue\":\"a\",\"user\":\"u\",\"priority\":0,\"steps\":[{\"name\":\"s\",\"tasks\":2,\"request\":{\"cpu\":100,\"memory\":0}}]}', 7, 0);",
    );
    let ground = block_on(store.load()).unwrap().ground;
    let a = QueueRecord { weight: 300, quota_cpu: Some(250), ..QueueRecord::named("a") };
    assert_eq!(ground.queues, [a, QueueRecord { weight: 1, ..QueueRecord::named("b") }]);
    assert_eq!(ground.limits, [("maya".to_owned(), Limit::of(10)), ("nuke".to_owned(), Limit::of(0))].into());
    assert_eq!(ground.jobs[0].back_offs, BTreeMap::new());
}
