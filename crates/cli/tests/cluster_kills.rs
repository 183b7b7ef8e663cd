//! Many tasks of 0.2 s on many workers, while the servers of the farm are killed in turn, one every few seconds, and started
//! again, and connections to the database are cut. The database and the tasks themselves are the audit. It takes half a
//! minute; `WINDLASS_KILLS=100000,50,3,8 cargo test -p windlass-cli --test alone cluster_kills:: -- --nocapture` runs
//! 100,000 tasks on 50 workers with three servers, of which one is killed every 8 s.

use crate::database;
use crate::support::cluster::{Server, worker};
use crate::support::show;
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A task that notes that it runs, and if it runs a second time. The noted files are in a hundred directories.
const ONCE: &str =
    "set -C; n={}; : > ran/${n#${n%??}}/$n || { echo $n runs twice >> wrong; exit 1; }; sleep 0.2";

/// Servers that are killed at least, however fast the machine is.
const KILLS_MIN: usize = 3;
/// How often it is looked whether a server is to be killed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Cuts a connection of a server, whichever it is.
const CUT_ONE: &str = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS one";

/// The most tasks that ran on one worker at an instant, by when the workers say that each began and ended. Where one ends
/// at the instant at which another begins, the end comes first.
const MOST_AT_ONCE: &str = "SELECT coalesce(max(n), 0) FROM (
    SELECT sum(change) OVER (PARTITION BY worker ORDER BY at, change ROWS UNBOUNDED PRECEDING) AS n FROM (
        SELECT worker, started AS at, 1 AS change FROM tasks WHERE started IS NOT NULL
        UNION ALL SELECT worker, finished, -1 FROM tasks WHERE started IS NOT NULL) AS changes) AS running";

struct Scale {
    tasks: usize,
    workers: usize,
    servers: usize,
    every: Duration,
}

fn scale() -> Scale {
    let text = std::env::var("WINDLASS_KILLS").unwrap_or_else(|_| "2000,12,3,8".to_owned());
    let numbers: Vec<usize> =
        text.split(',').map(|n| n.parse().expect("TASKS,WORKERS,SERVERS,SECONDS")).collect();
    let [tasks, workers, servers, every_s] = numbers[..] else {
        panic!("WINDLASS_KILLS is TASKS,WORKERS,SERVERS,SECONDS and not {text}")
    };
    assert!((2..=3).contains(&servers), "two or three servers");
    Scale { tasks, workers, servers, every: Duration::from_secs(every_s as u64) }
}

/// The answer of the database to a query.
fn ask(store: &str, sql: &str) -> String {
    let name = store.split_once("@/").unwrap().1.split_once('?').unwrap().0;
    database::cluster().unwrap().sql(name, sql)
}

/// Tasks that have begun.
fn begun(work: &Path) -> usize {
    (0..100).map(|n| std::fs::read_dir(work.join(format!("ran/{n:02}"))).unwrap().count()).sum()
}

fn at_all(servers: &[Server], token: &str, args: &[&str]) -> Command {
    let mut command = servers[0].farm.command(args);
    let addresses: Vec<&str> = servers.iter().map(|server| server.address.as_str()).collect();
    command.env("WINDLASS_SERVER", addresses.join(",")).env("WINDLASS_TOKEN", token);
    command
}

#[test]
fn killed_servers_run_each_task_once_and_book_no_worker_twice() {
    let _machine = crate::machine();
    let Some(store) = database::database() else { return };
    let Scale { tasks, workers, servers: count, every } = scale();
    let start = |name: &&'static str| Server::start(name, &store);
    let mut servers: Vec<Server> = ["one", "two", "three"][..count].iter().map(start).collect();
    let all: Vec<&Server> = servers.iter().collect();
    let _workers: Vec<_> = (0..workers).map(|n| worker(all[0], &format!("w{n:02}"), &all)).collect();
    let token = servers[0].ok(&["token", "create", "--role", "admin"]).trim().to_owned();
    let work = servers[0].farm.work();
    (0..100).for_each(|n| std::fs::create_dir_all(work.join(format!("ran/{n:02}"))).unwrap());
    let last = (10_000_000 + tasks).to_string();
    let array = format!("10000001-{last}");
    let clock = Instant::now();
    let args = ["submit", "--quiet", "--array", &array, "--", "sh", "-c", ONCE];
    let submitted = at_all(&servers, &token, &args).output().unwrap();
    assert!(submitted.status.success(), "{}", show(&submitted));
    let job = String::from_utf8(submitted.stdout).unwrap().trim().to_owned();
    let mut waiting = at_all(&servers, &token, &["job", "wait", &job]);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(waiting.wait_with_output().unwrap()));
    let (mut kills, mut killed, mut cuts) = (0, Instant::now(), 0);
    let output = loop {
        match ended.recv_timeout(LOOK_EVERY) {
            Ok(output) => break output,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("nobody waits for the job"),
        }
        cuts += ask(&store, CUT_ONE).parse::<usize>().unwrap();
        // A fast machine would be done before the third kill.
        let is_early = kills < KILLS_MIN && begun(&work) > tasks * (kills + 1) / (KILLS_MIN + 2);
        if killed.elapsed() < every && !is_early {
            continue;
        }
        let victim = &mut servers[kills % count];
        victim.end("KILL");
        victim.start_again();
        (kills, killed) = (kills + 1, Instant::now());
    };
    let took = clock.elapsed();
    let logs = || servers.iter().map(Server::log).collect::<Vec<_>>().join("\n==\n");
    assert!(output.status.success(), "{}\n{}", show(&output), logs());
    let wrong = std::fs::read_to_string(work.join("wrong")).unwrap_or_default();
    assert_eq!(wrong, "", "{}", logs());
    assert_eq!(begun(&work), tasks, "{}", logs());
    let counts = servers[0].json(&["job", "show", &job])["counts"].clone();
    assert_eq!(counts["succeeded"], json!(tasks), "{counts}\n{}", logs());
    let rows = ask(
        &store,
        "SELECT count(*), count(DISTINCT idx), max(attempt) FROM tasks WHERE finished IS NOT NULL",
    );
    let attempts: usize = ask(&store, "SELECT count(*) FROM attempts").parse().unwrap();
    let most: usize = ask(&store, MOST_AT_ONCE).parse().unwrap();
    let epoch = ask(&store, "SELECT epoch FROM shards");
    println!(
        "{tasks} tasks on {workers} workers, {count} servers: {:.0} s, {:.0} tasks/s, {kills} kills, {cuts} connections cut, {epoch} ownerships; \
         tasks at a time on a worker: at most {most}; earlier and late attempts: {attempts}",
        took.as_secs_f64(),
        tasks as f64 / took.as_secs_f64()
    );
    assert_eq!(rows, format!("{tasks}|{tasks}|1"), "each has one result, of its first attempt");
    assert_eq!(attempts, 0);
    assert!(most <= 2, "a worker of two cpus ran {most} tasks at once");
    assert!(cuts > 0, "no connection was cut");
    assert!(kills >= KILLS_MIN, "the work ended before servers were killed: {kills}");
    assert!(!logs().contains("panicked"), "{}", logs());
}
