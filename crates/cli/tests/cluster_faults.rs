//! Several servers of one farm, on a database that misbehaves: notifications are lost, connections that listen are cut,
//! and commits fail because of others.

use crate::database;
use crate::support::cluster::{Server, worker};
use crate::support::notices::Deaf;
use crate::support::port::KillOnDrop;
use crate::support::{self, wait_until};
use serde_json::{Value, json};
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Each tenth commit of a batch fails as if another transaction had been in its way. A sequence does not go back with the
/// transaction that failed, so the next try of the batch is counted too.
const EACH_TENTH_FAILS: &str = "CREATE SEQUENCE tries;
    CREATE FUNCTION fail_each_tenth() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('tries') % 10 = 0 THEN
            RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER fail_each_tenth BEFORE UPDATE ON shards FOR EACH ROW
        WHEN (NEW.batch > OLD.batch AND NEW.epoch = OLD.epoch) EXECUTE FUNCTION fail_each_tenth()";
/// Ends the connections whose last statement was to listen.
const CUT_LISTENERS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'";
/// A task that notes that it runs a second time.
const ONCE: &str = "set -C; : > begun-{} || { echo {} runs twice >> wrong; exit 1; }";

/// The name of the database in an address.
fn database_of(store: &str) -> &str {
    store.split_once("@/").unwrap().1.split_once('?').unwrap().0
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0
}

/// No task ran twice, all succeeded, and nothing panicked.
fn assert_each_once(servers: &[&Server], work: &Path, tasks: usize) {
    let logs = servers.iter().map(|server| server.log()).collect::<Vec<_>>().join("\n==\n");
    let wrong = std::fs::read_to_string(work.join("wrong")).unwrap_or_default();
    assert_eq!(wrong, "", "{logs}");
    let begun = support::names(work).iter().filter(|name| name.starts_with("begun-")).count();
    assert_eq!(begun, tasks, "{logs}");
    assert!(!logs.contains("panicked"), "{logs}");
}

/// Asserts that all tasks of a job succeeded.
fn assert_succeeded(servers: &[&Server], job: &str, tasks: usize) {
    let counts: Value = servers[0].json(&["job", "show", job])["counts"].clone();
    let logs = || servers.iter().map(|server| server.log()).collect::<Vec<_>>().join("\n==\n");
    assert_eq!(counts["succeeded"], json!(tasks), "{counts}\n{}", logs());
}

#[test]
fn without_notifications_work_is_found_by_looking() {
    const JOBS: usize = 7;
    let Some(store) = database::database() else { return };
    let dir = database::cluster().unwrap().dir();
    let deaf = Deaf::new(dir.join(".s.PGSQL.5432"));
    let (user, name) = (database::USER, database_of(&store));
    let address = format!("postgres://{user}@{}/{name}?sslmode=disable", deaf.address);
    let one = Server::start("one", &address);
    assert_eq!(one.owner().as_deref(), Some("one"));
    let two = Server::start("two", &address);
    let _worker = worker(&one, "w1", &[&one, &two]);
    let work = two.farm.work();
    let mut waits_ms = Vec::new();
    for number in 0..JOBS {
        let asked_ms = now_ms();
        let job = two.ok(&["submit", "--quiet", "--", "sh", "-c", "date +%s%3N > began"]);
        two.ok(&["job", "wait", job.trim()]);
        let began_ms: f64 = std::fs::read_to_string(work.join("began")).unwrap().trim().parse().unwrap();
        assert!(began_ms >= asked_ms.floor(), "job {number} began before it was asked for");
        waits_ms.push(began_ms - asked_ms);
    }
    waits_ms.sort_by(f64::total_cmp);
    println!("submission through the other server to start: {waits_ms:.0?} ms");
    assert!(deaf.lost() > 0, "the servers would have been notified");
    assert_eq!(two.json(&["jobs"]).as_array().unwrap().len(), JOBS);
}

#[test]
fn listening_connections_that_are_cut_lose_and_double_nothing() {
    const ROUNDS: usize = 4;
    const TASKS: usize = 50;
    let Some(store) = database::database() else { return };
    let one = Server::start("one", &store);
    let two = Server::start("two", &store);
    let _worker = worker(&one, "w1", &[&one, &two]);
    let work = two.farm.work();
    // The rounds' tasks have numbers of their own: each leaves a file of its own.
    for round in 0..ROUNDS {
        let array = format!("{}-{}", round * TASKS + 1, (round + 1) * TASKS);
        let job = two.ok(&["submit", "--quiet", "--array", &array, "--", "sh", "-c", ONCE]);
        cut_listeners(&store);
        // The answer comes through a server whose connection was just cut.
        two.ok(&["job", "wait", job.trim()]);
        assert_succeeded(&[&two, &one], job.trim(), TASKS);
    }
    assert_each_once(&[&two, &one], &work, ROUNDS * TASKS);
}

/// Cuts the listening connections of all servers, once there is one.
fn cut_listeners(store: &str) {
    let cluster = database::cluster().unwrap();
    let cut = || cluster.sql(database_of(store), CUT_LISTENERS).parse::<usize>().unwrap();
    assert!((0..1000).any(|_| cut() > 0), "no server listens again");
}

#[test]
fn commits_of_which_each_tenth_fails_lose_and_double_nothing() {
    const TASKS: usize = 300;
    let Some(store) = database::database() else { return };
    let one = Server::start("one", &store);
    let two = Server::start("two", &store);
    let _worker = worker(&one, "w1", &[&one, &two]);
    let (work, cluster) = (two.farm.work(), database::cluster().unwrap());
    cluster.sql(database_of(&store), EACH_TENTH_FAILS);
    let args = ["submit", "--quiet", "--array", &format!("1-{TASKS}"), "--", "sh", "-c", ONCE];
    let job = two.ok(&args);
    two.ok(&["job", "wait", job.trim()]);
    // Submissions are batches of their own.
    for _ in 0..20 {
        one.ok(&["run", "--", "true"]);
    }
    let tries: usize = cluster.sql(database_of(&store), "SELECT last_value FROM tries").parse().unwrap();
    println!("{tries} tries of commits, of which {} failed", tries / 10);
    assert!(tries >= 40, "{tries}");
    assert_succeeded(&[&two, &one], job.trim(), TASKS);
    assert_each_once(&[&two, &one], &work, TASKS);
    assert_eq!(two.json(&["jobs"]).as_array().unwrap().len(), 21);
}

/// Ends all connections but this one and those of hogs.
const CUT_ALL: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> 'hog';";

/// A connection that is kept. `None` if the database takes no more.
fn hog(cluster: &database::Cluster) -> Option<(KillOnDrop, BufReader<std::process::ChildStdout>)> {
    let mut command = cluster.program("psql");
    command.args(["-XqAt", "postgres"]);
    command.env("PGAPPNAME", "hog").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut hog = KillOnDrop(command.spawn().unwrap());
    let mut out = BufReader::new(hog.0.stdout.take().unwrap());
    (ask(&mut hog.0, &mut out, "SELECT 'in';") == "in").then_some((hog, out))
}

/// What the database answers to one of these; empty if it took no connection.
fn ask(hog: &mut Child, out: &mut impl std::io::BufRead, sql: &str) -> String {
    _ = writeln!(hog.stdin.as_mut().unwrap(), "{}", sql.replace('\n', " "));
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[test]
fn a_database_without_a_connection_left_stops_no_task_and_loses_nothing() {
    const TASKS: usize = 60;
    let cluster = match database::Cluster::start(&["fsync=off", "max_connections=30"]) {
        Ok(cluster) => cluster,
        Err(why) => return println!("SKIP what needs PostgreSQL: {why}"),
    };
    let store = cluster.database();
    let one = Server::start("one", &store);
    let two = Server::start("two", &store);
    let _worker = worker(&one, "w1", &[&one, &two]);
    let work = two.farm.work();
    let task = format!("{ONCE}; while [ ! -e go ]; do sleep 0.01; done");
    let array = format!("1-{TASKS}");
    let job = two.ok(&["submit", "--quiet", "--array", &array, "--", "sh", "-c", &task]);
    let job = job.trim();
    wait_until("two of them run", || two.json(&["job", "show", job])["counts"]["running"] == json!(2));
    let mut hogs = vec![hog(&cluster).unwrap()];
    // Whatever connection the servers lose, a hog takes before they have it again.
    wait_until("no server has a connection", || {
        let (first, out) = &mut hogs[0];
        let cut = ask(&mut first.0, out, CUT_ALL);
        hogs.extend(std::iter::from_fn(|| hog(&cluster)));
        cut == "0"
    });
    wait_until("the owner says why", || one.log().contains("has no connection left for this server"));
    drop(hogs);
    std::fs::write(work.join("go"), "").unwrap();
    wait_until("all have ended", || {
        let shown = two.run(&["job", "show", job, "-o", "json"]);
        serde_json::from_slice::<Value>(&shown.stdout).is_ok_and(|job| job["state"] == json!("succeeded"))
    });
    assert_succeeded(&[&two, &one], job, TASKS);
    assert_each_once(&[&two, &one], &work, TASKS);
    assert_eq!(two.json(&["job", "tasks", job])[0]["attempt"], json!(1), "it was not started again");
}

/// The lease of a worker of these servers.
const LEASE: Duration = Duration::from_secs(20);

/// Locks the table of what tasks run: nothing reads it until this is dropped.
fn lock_bodies(cluster: &database::Cluster, store: &str) -> KillOnDrop {
    let mut command = cluster.program("psql");
    command.args(["-XqAt", database_of(store)]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut locked = KillOnDrop(command.spawn().unwrap());
    let mut out = BufReader::new(locked.0.stdout.take().unwrap());
    let lock = "BEGIN; LOCK TABLE bodies IN ACCESS EXCLUSIVE MODE; SELECT 'locked';";
    assert_eq!(ask(&mut locked.0, &mut out, lock), "locked");
    locked
}

/// What one task runs is too large to be kept with its job, and cannot be read for longer than a lease lasts. Its worker is
/// heard all the time, so what runs there goes on.
#[test]
fn no_task_is_fenced_while_its_worker_is_heard() {
    let Some(cluster) = database::cluster() else { return };
    let store = cluster.database();
    let server = Server::start("one", &store);
    let _worker = worker(&server, "w1", &[&server]);
    let work = server.farm.work();
    let runs =
        server.ok(&["submit", "--", "sh", "-c", "echo begun >> begun; until [ -e go ]; do sleep 0.1; done"]);
    wait_until("it runs", || work.join("begun").exists());
    server.ok(&["worker", "drain", "w1"]);
    let large = format!(": {}", "x".repeat(100_000));
    let waits = server.ok(&["submit", "--", "sh", "-c", &large]);
    let lock = lock_bodies(cluster, &store);
    server.ok(&["worker", "resume", "w1"]);
    // A page of the job would read what it runs.
    wait_until("it is placed", || server.json(&["workers"])[0]["running"] == json!(2));
    let since = Instant::now();
    wait_until("more than a lease has passed", || since.elapsed() > 2 * LEASE);
    drop(lock);
    server.ok(&["job", "wait", waits.trim()]);
    std::fs::write(work.join("go"), "").unwrap();
    server.ok(&["job", "wait", runs.trim()]);
    let begun = std::fs::read_to_string(work.join("begun")).unwrap();
    assert_eq!(begun, "begun\n", "{}", server.log());
}
