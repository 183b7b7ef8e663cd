//! Two real workers with a core each, each in control groups of its own, and a hog beside one.

use crate::core_group::{CoreGroup, Hog, HogProcess};
use crate::support::{local_token, show, wait_until, windlass};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Percent of memory pressure from which a worker gets no work here: the hog causes far more, sooner or later.
const MAX_MEMORY_PRESSURE: &str = "25";

/// The program that acts as a hog. Cargo puts it beside the one under test.
fn bench() -> PathBuf {
    Path::new(windlass()).with_file_name("windlass-bench")
}

/// A server and two workers, `w0` and `w1`.
struct Site {
    /// Dropped first: then the server's workers are silent.
    server: Child,
    groups: [CoreGroup; 2],
    dir: tempfile::TempDir,
    url: String,
    token: String,
}

impl Site {
    /// `None` if this machine cannot run the test.
    fn start(limited: bool, flags: &[&str]) -> Option<Site> {
        if !bench().exists() {
            println!(
                "SKIP a hog beside a worker: 'cargo test --workspace' builds windlass-bench, which is the hog"
            );
            return None;
        }
        let mut groups = match CoreGroup::pair(limited) {
            Ok(groups) => groups,
            Err(why) => {
                println!("SKIP a hog beside a worker: {why}");
                return None;
            }
        };
        // The memory hog reads from a real disk.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new(windlass());
        command.args(["server", "start", "--no-worker", "--store", "memory", "--listen", &address]);
        command.args(["--set", "score.policy=pressure", "--state"]).arg(dir.path().join("state")).args(flags);
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let url = format!("http://{address}");
        let token = local_token(&dir.path().join("state"));
        for (group, name) in groups.iter_mut().zip(["w0", "w1"]) {
            let place = (url.as_str(), token.as_str());
            group.start_worker(Path::new(windlass()), place, name, &dir.path().join(name)).unwrap();
        }
        let site = Site { server, groups, dir, url, token };
        wait_until("both workers report", || {
            ["w0", "w1"].iter().all(|name| site.load(name)["cpu_foreign"].is_number())
        });
        Some(site)
    }

    fn hog(&self, hog: Hog) -> Option<HogProcess> {
        hog.start(&bench(), &self.groups[0], &self.dir.path().join("pages")).unwrap()
    }

    fn run(&self, args: &[&str]) -> std::process::Output {
        let mut command = Command::new(windlass());
        command.env("WINDLASS_TOKEN", &self.token);
        command.args(["--server", &self.url]).args(args).current_dir(self.dir.path()).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// A worker's last load report.
    fn load(&self, worker: &str) -> Value {
        self.json(&["worker", "show", worker])["load"].clone()
    }

    fn submit(&self, command: &[&str]) -> String {
        let output = self.run(&[&["submit", "-o", "name", "--"], command].concat());
        assert!(output.status.success(), "{}", show(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn task(&self, job: &str) -> Value {
        self.json(&["job", "tasks", job])[0].clone()
    }

    /// Where the job's task ran.
    fn worker_of(&self, job: &str) -> String {
        let waited = self.run(&["job", "wait", job]);
        assert!(waited.status.success(), "{}", show(&waited));
        self.task(job)["worker"].as_str().unwrap().to_owned()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        _ = self.server.kill();
        _ = self.server.wait();
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// Pause between two reports of a worker.
const REPORT: Duration = Duration::from_secs(1);
/// How long other processes may keep a core of this machine busy.
const QUIET_PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_cpu_hog_keeps_work_away_only_where_pressure_counts() {
    let _machine = crate::machine();
    const TASKS: usize = 6;
    let mut at_the_hog = Vec::new();
    for setting in ["load.pressure=false", "load.pressure=true"] {
        let Some(site) = Site::start(false, &["--set", setting]) else { return };
        let _hog = site.hog(Hog::Cpu);
        let mut count = 0;
        for _ in 0..TASKS {
            // Other processes on this machine must not act as a second hog.
            let foreign = |worker| number(&site.load(worker)["cpu_foreign"]);
            let deadline = Instant::now() + QUIET_PATIENCE;
            while foreign("w0") <= 0.8 || foreign("w1") >= 0.6 {
                if Instant::now() > deadline {
                    println!("SKIP a hog on one core: something else keeps the other busy");
                    return;
                }
                // Polling without pauses would keep a core busy itself.
                std::thread::park_timeout(REPORT);
            }
            let job = site.submit(&["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]);
            count += usize::from(site.worker_of(&job) == "w0");
        }
        at_the_hog.push(count);
    }
    assert_eq!(at_the_hog[0], TASKS, "by bookings alone both are idle, and the name decides");
    assert!(at_the_hog[1] <= 1, "{} of {TASKS} ran beside the hog", at_the_hog[1]);
}

#[test]
fn an_idle_worker_without_memory_gets_nothing_until_its_hog_ends() {
    let _machine = crate::machine();
    let setting = format!("load.max_memory_pressure={MAX_MEMORY_PRESSURE}");
    let Some(site) = Site::start(true, &["--set", &setting]) else { return };
    let hog = site.hog(Hog::Memory);
    let held: f64 = MAX_MEMORY_PRESSURE.parse().unwrap();
    wait_until("memory is short", || number(&site.load("w0")["own"]["memory"]["some"]["avg10"]) > 1.2 * held);
    for _ in 0..4 {
        let job = site.submit(&["true"]);
        assert_eq!(site.worker_of(&job), "w1", "{}", site.load("w0"));
    }
    let long = site.submit(&["sh", "-c", "while [ ! -e go ]; do :; done"]);
    wait_until("it runs", || site.task(&long)["state"] == "running");
    assert_eq!(site.task(&long)["worker"], "w1");
    // The other worker is full now: the next task waits, although this worker is idle.
    let next = site.submit(&["true"]);
    let why = site.run(&["why", &format!("{next}.0")]);
    assert!(show(&why).contains("memory pressure"), "{}", show(&why));
    assert_eq!(site.task(&next)["state"], "ready");
    drop(hog);
    assert_eq!(site.worker_of(&next), "w0");
    std::fs::write(site.dir.path().join("go"), "").unwrap();
    assert_eq!(site.worker_of(&long), "w1");
}
