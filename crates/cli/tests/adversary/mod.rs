//! Twenty attacks at once, by strangers on the network, a hostile submitter, a hostile worker and a hostile host,
//! against a server and two workers, beside the normal load of another submitter, who must not notice.
//!
//! It takes twenty seconds; `WINDLASS_ADVERSARY_S=300 cargo test -p windlass-cli --test alone adversary:: -- --nocapture`
//! takes five minutes and prints what was measured.

mod attacks;

use crate::percentile;
use crate::support::port::{KillOnDrop, Port};
use crate::support::{self, is_root, peak_mib, wait_until};
use attacks::Target;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The delays that the other submitter may notice.
const START_P99_MAX: Duration = Duration::from_secs(1);
const START_MAX: Duration = Duration::from_secs(3);
const CANCEL_MAX: Duration = Duration::from_secs(2);
const SERVER_MIB_MAX: u64 = 300;
const KEEPER_MIB_MAX: u64 = 20;
/// Pause between two jobs of the other submitter.
const PAUSE: Duration = Duration::from_millis(100);

/// A server, two workers, and their users.
struct Site {
    port: Port,
    _workers: Vec<KillOnDrop>,
    ann: String,
}

impl Site {
    fn open() -> (Site, Target) {
        let port = Port::open(&["--insecure-plaintext", "--compass", "--no-worker", "--lease", "20"]);
        windlass_worker::raise_file_limit();
        let user = |name: &str| port.token(&["--role", "user", "--user", name]);
        let worker = |name: &str| port.token(&["--role", "worker", "--worker", name]);
        let (ann, eve, rogue, host) = (user("ann"), user("eve"), worker("rogue"), worker("h1"));
        // Users go through it to their own directories.
        std::fs::set_permissions(port.farm.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))
            .unwrap();
        std::fs::set_permissions(&port.dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let mut workers = Vec::new();
        for name in ["box1", "box2"] {
            workers.push(port.mapping_worker(&worker(name), name, "4", "ann=daemon,eve=games"));
        }
        wait_until("both workers are there", || port.admin(&["workers", "-o", "name"]).lines().count() == 2);
        // A user may fill the farm with long tasks: shares handle that, so it is not an attack.
        port.admin(&["queue", "set", "eve", "--quota", "4"]);
        let target =
            Target { host: port.host().to_owned(), dir: port.dir.clone(), eve, rogue, provider: host };
        (Site { port, _workers: workers, ann }, target)
    }

    fn keeper_pids(&self) -> Vec<u32> {
        ["box1", "box2"].map(|name| self.port.keeper_pid(name)).to_vec()
    }
}

/// The other submitter, by the HTTP interface.
struct Ann<'a> {
    target: &'a Target,
    token: &'a str,
}

impl Ann<'_> {
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, text) = self.target.ask(method, path, self.token, &body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    fn submit(&self, command: &[&str]) -> u64 {
        let resources = json!({ "cpus": 0.1 });
        let step = json!({ "command": command, "cwd": "/", "resources": resources });
        self.ask("POST", "/api/v1/jobs", &json!({ "steps": [step] }))["job"].as_u64().unwrap()
    }

    /// The time from the submission of a task to its start.
    fn start(&self) -> Duration {
        let clock = Instant::now();
        let job = self.submit(&["true"]);
        let took = clock.elapsed();
        let ended = self.ask("GET", &format!("/api/v1/jobs/{job}/wait"), &Value::Null);
        let task = self.ask("GET", &format!("/api/v1/tasks/{job}.0"), &Value::Null);
        let started = task["started_ms"].as_u64().unwrap_or_else(|| panic!("{task} {ended}"));
        let created =
            self.ask("GET", &format!("/api/v1/jobs/{job}"), &Value::Null)["created_ms"].as_u64().unwrap();
        took + Duration::from_millis(started.saturating_sub(created))
    }

    /// The time until the cancel of a running task returns.
    fn cancel(&self) -> Duration {
        let job = self.submit(&["sleep", "100"]);
        let clock = Instant::now();
        self.ask("POST", &format!("/api/v1/jobs/{job}/cancel"), &Value::Null);
        clock.elapsed()
    }
}

#[test]
fn twenty_attacks_at_once_go_unnoticed() {
    let _machine = crate::machine();
    if !is_root("adversary") {
        return;
    }
    let seconds = std::env::var("WINDLASS_ADVERSARY_S").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let (site, target) = Site::open();
    let ann = Ann { target: &target, token: &site.ann };
    let up = target.dir.join("long.up");
    let held = format!("echo $$ >> {}; exec sleep 100000", up.display());
    let long = ann.submit(&["sh", "-c", &held]);
    let begun = || std::fs::read_to_string(&up).unwrap_or_default();
    wait_until("the long task runs", || !begun().is_empty());
    let quiet: Vec<Duration> = (0..20).map(|_| ann.start()).collect();
    let (stop, keepers) = (Arc::new(AtomicBool::new(false)), site.keeper_pids());
    let (mut starts, mut cancels) = (Vec::new(), Vec::new());
    let made: Vec<(&'static str, Arc<AtomicU64>)> = std::thread::scope(|scope| {
        let running = attacks::begin(scope, &target, &stop);
        let until = Instant::now() + Duration::from_secs(seconds);
        let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while Instant::now() < until {
                starts.push(ann.start());
                if starts.len().is_multiple_of(8) {
                    cancels.push(ann.cancel());
                }
                std::thread::park_timeout(PAUSE);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(failed) = work {
            std::panic::resume_unwind(failed);
        }
        running
    });
    let (server, keeper) =
        (peak_mib(site.port.pid()), keepers.iter().map(|pid| peak_mib(*pid)).max().unwrap());
    let (mut quiet, count) = (quiet, starts.len());
    let (p50, p99, most) =
        (percentile(&mut starts, 0.5), percentile(&mut starts, 0.99), percentile(&mut starts, 1.0));
    let cancel = percentile(&mut cancels, 1.0);
    println!(
        "{seconds} s, {count} jobs of another: submission to start p50 {p50:?} (alone {:?}), p99 {p99:?}, at most {most:?}; \
         {} cancels, at most {cancel:?}; server {server} MiB, keepers {keeper} MiB",
        percentile(&mut quiet, 0.5),
        cancels.len()
    );
    for (name, made) in &made {
        let made = made.load(Ordering::Relaxed);
        println!("  {made:>7} {name}");
        assert!(made > 0, "the attack '{name}' never came to anything");
    }
    assert!(p99 < START_P99_MAX && most < START_MAX, "p99 {p99:?}, at most {most:?}\n{}", site.port.log());
    assert!(cancel < CANCEL_MAX, "{cancel:?}");
    assert!(server < SERVER_MIB_MAX, "server {server} MiB");
    assert!(keeper < KEEPER_MIB_MAX, "keeper {keeper} MiB");
    assert_eq!(begun().lines().count(), 1, "the long task was started again");
    let pid: i32 = begun().trim().parse().unwrap_or(0);
    let shown = ann.ask("GET", &format!("/api/v1/tasks/{long}.0"), &Value::Null);
    assert_eq!(
        (&shown["state"], &shown["attempt"]),
        (&json!("running"), &json!(1)),
        "process {pid}: {shown}"
    );
    assert_eq!(site.keeper_pids(), keepers, "a keeper ended");
    let clock = ann.cancel();
    assert!(clock < CANCEL_MAX);
    drop_workers(&site, &keepers);
}

/// Ends the keepers, which outlive their agents, and the tasks.
fn drop_workers(site: &Site, keepers: &[u32]) {
    for keeper in keepers {
        support::kill(*keeper as i32, "KILL");
        wait_until("the keeper ends", || !Path::new("/proc").join(keeper.to_string()).exists());
    }
    _ = site.port.admin_output(&["server", "stop"]);
}

/// Ends with its test.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
