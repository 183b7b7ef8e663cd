//! Three servers on one database under everything at once: chunks, gangs, limits, cancels and retries, while servers are
//! killed, connections cut and commits ended. Each result once, nothing beside itself, nothing left booked.
//!
//! `CHAOS_TASKS=100000 CHAOS_SEED=7 cargo test -p windlass-cli --test alone chaos::` runs as many tasks, and other faults.

use crate::database;
use crate::support::cluster::{Server, worker_by};
use crate::support::proxy::{Behind, Proxy};
use crate::support::{self, Random, show, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A task of a number: it notes if it runs again, or if more of its kind run than may.
const ONE: &str = r#"mkdir ran/a-{} || { echo a-{} ran before >> wrong; exit 9; }
    for slot in 0 1 2; do exec 8>slot$slot; flock -n 8 && exit 0; done; echo a-{} has no licence >> wrong; exit 9"#;
/// A process for several numbers.
const SEVERAL: &str = r#"range={}; n=${range%-*}; last=${range#*-}
    while [ $n -le $last ]; do
        mkdir ran/b-$n || { echo b-$n ran before >> wrong; exit 9; }; n=$((n + 1))
    done"#;
/// A task that fails the first time.
const RETRIED: &str =
    "mkdir ran/c-{}-$WINDLASS_ATTEMPT || echo c-{} ran before >> wrong; [ $WINDLASS_ATTEMPT = 2 ]";
/// A task of a gang. It notes if it runs again, has the place of another, or does not know of both. A gang starts again when
/// one of its workers is lost, and here none is.
const TOGETHER: &str = r#"of=d-$WINDLASS_JOB-$WINDLASS_NODE
    mkdir ran/$of || echo $of ran before: now attempt $WINDLASS_ATTEMPT of $WINDLASS_TASK >> wrong
    [ $WINDLASS_NODES = 2 ] || echo $of has $WINDLASS_NODES nodes >> wrong; sleep 0.05"#;
/// A task of a job that is cancelled.
const CANCELED: &str = "mkdir ran/e-{} || echo e-{} ran before >> wrong; sleep 0.2";

/// From the environment, or as the test has it.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Chaos {
    servers: [Server; 3],
    ways: [Proxy; 3],
    cluster: &'static database::Cluster,
    /// The name of the database.
    name: String,
    random: Random,
    struck: BTreeMap<&'static str, u32>,
}

impl Chaos {
    /// One fault. Returns once the farm is whole, but for what it has to recover from.
    fn strike(&mut self) {
        let victim = self.random.below(3) as usize;
        let fault = match self.random.below(4) {
            0 => {
                self.servers[victim].end("KILL");
                self.servers[victim].start_again();
                "servers killed"
            }
            1 => {
                self.ways[victim].down();
                self.rest(200, 3_000);
                self.ways[victim].up();
                "connections cut"
            }
            2 => {
                self.end_commits("pg_terminate_backend");
                "connections to the database ended"
            }
            _ => {
                self.end_commits("pg_cancel_backend");
                "commits cancelled"
            }
        };
        *self.struck.entry(fault).or_default() += 1;
    }

    fn end_commits(&self, how: &str) {
        let others = "datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5";
        let sql = format!("SELECT count({how}(pid)) FROM pg_stat_activity WHERE {others}");
        self.cluster.sql(&self.name, &sql);
    }

    fn rest(&mut self, least_ms: u64, most_ms: u64) {
        let ms = least_ms + self.random.below(most_ms - least_ms);
        let until = Instant::now() + Duration::from_millis(ms);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
    }

    /// A command for whichever server answers.
    fn command(&self, token: &str, args: &[&str]) -> Command {
        let mut command = self.servers[0].farm.command(args);
        let addresses: Vec<&str> = self.servers.iter().map(|server| server.address.as_str()).collect();
        command.env("WINDLASS_SERVER", addresses.join(",")).env("WINDLASS_TOKEN", token);
        command
    }

    fn logs(&self) -> String {
        self.servers.each_ref().map(Server::log).join("\n==\n")
    }
}

fn submit(chaos: &Chaos, token: &str, args: &[&str]) -> String {
    let args = [&["submit", "--quiet", "--cpus", "1"], args].concat();
    let output = chaos.command(token, &args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}\n{}", show(&output), chaos.logs());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn count(dir: &Path, kind: &str) -> usize {
    let names = std::fs::read_dir(dir).unwrap().flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(kind)).count()
}

#[test]
fn under_all_faults_at_once_each_result_is_there_once_and_nothing_stays_booked() {
    let _machine = crate::machine();
    let (tasks, seed) = (number("CHAOS_TASKS", 2_000) as usize, number("CHAOS_SEED", 7));
    let Some(cluster) = database::cluster() else { return };
    let store = cluster.database();
    let name = store.split_once("@/").unwrap().1.split_once('?').unwrap().0.to_owned();
    // No lease runs out while servers come and go, so whatever runs twice does so by mistake.
    let servers = ["one", "two", "three"].map(|name| Server::start_with_lease(name, &store, 300));
    let ways = servers.each_ref().map(|server| Proxy::new(Behind::Tcp(server.address.clone())));
    let token = servers[0].ok(&["token", "create", "--role", "admin"]).trim().to_owned();
    let by: Vec<&str> = ways.iter().map(|way| way.address.as_str()).collect();
    let _workers = ["w0", "w1", "w2"].map(|name| worker_by(&servers[0], name, &by));
    servers[0].ok(&["limit", "set", "lic", "3"]);
    let work = servers[0].farm.work();
    let ran = work.join("ran");
    std::fs::create_dir(&ran).unwrap();
    let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut chaos = Chaos { servers, ways, cluster, name, random, struck: BTreeMap::new() };

    let [ones, several, retried, canceled] = [tasks / 4, tasks / 2, tasks / 10, tasks / 10];
    let array = |count: usize| format!("1-{count}");
    let (a, b, c, e) = (array(ones), array(several), array(retried), array(canceled));
    let one = submit(&chaos, &token, &["--limit", "lic", "--array", &a, "--", "sh", "-c", ONE]);
    let chunked = submit(&chaos, &token, &["--chunks=10", "--array", &b, "--", "sh", "-c", SEVERAL]);
    let again = submit(&chaos, &token, &["--retries", "1", "--array", &c, "--", "sh", "-c", RETRIED]);
    let doomed = submit(&chaos, &token, &["--array", &e, "--", "sh", "-c", CANCELED]);
    let gangs: Vec<String> = (0..tasks / 100)
        .map(|_| submit(&chaos, &token, &["--nodes", "2", "--", "sh", "-c", TOGETHER]))
        .collect();

    let jobs: Vec<&str> = [&one, &chunked, &again].into_iter().chain(&gangs).map(String::as_str).collect();
    let mut wait = chaos.command(&token, &[&["job", "wait"], &jobs[..]].concat());
    let mut wait = support::port::KillOnDrop(wait.spawn().unwrap());
    let mut is_canceled = false;
    while wait.0.try_wait().unwrap().is_none() {
        chaos.strike();
        chaos.rest(300, 2_000);
        if !is_canceled && count(&ran, "e-") > canceled / 4 {
            let output = chaos.command(&token, &["job", "cancel", &doomed]).output().unwrap();
            assert!(output.status.success(), "{}\n{}", show(&output), chaos.logs());
            is_canceled = true;
        }
    }
    println!("{:?}", chaos.struck);
    let wrong = std::fs::read_to_string(work.join("wrong")).unwrap_or_default();
    assert_eq!(wrong, "", "{}", chaos.logs());
    if !is_canceled {
        chaos.command(&token, &["job", "cancel", &doomed]).output().unwrap();
    }
    chaos.command(&token, &["job", "wait", &doomed]).output().unwrap();
    let last = &chaos.servers[2];
    let counts = |job: &str| last.json(&["job", "show", job])["counts"].clone();
    for (job, kind, count_of) in [(&one, "a-", ones), (&chunked, "b-", several)] {
        assert_eq!(counts(job)["succeeded"], json!(count_of), "{}", counts(job));
        assert_eq!(count(&ran, kind), count_of, "{kind}");
    }
    assert_eq!(counts(&again)["succeeded"], json!(retried));
    assert_eq!(count(&ran, "c-"), 2 * retried, "each ran twice");
    for gang in &gangs {
        assert_eq!(counts(gang)["succeeded"], json!(2));
    }
    assert_eq!(count(&ran, "d-"), 2 * gangs.len());
    wait_until("nothing is booked", || {
        let workers = last.json(&["worker", "list"]);
        let idle = |worker: &Value| worker["running"] == json!(0) && worker["queued"] == json!(0);
        workers.as_array().unwrap().iter().all(idle)
    });
    let limits = last.json(&["limit", "list"]);
    assert_eq!(limits[0]["used"], json!(0), "{limits}");
    // What a server asked that was killed is answered by nobody, and deleted later.
    let open = "SELECT count(*) FROM requests AS r JOIN servers AS s ON s.id = r.asked_by
        WHERE r.answered IS NULL AND s.left_at IS NULL AND s.beat > clock_timestamp() - interval '20 seconds'";
    wait_until("every request of a server that lives is answered", || {
        chaos.cluster.sql(&chaos.name, open) == "0"
    });
}
