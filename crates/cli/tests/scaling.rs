//! How many workers are wanted, as a server tells it, and the manual's script that starts and stops them.

use crate::support::port::Port;
use crate::support::{kill, names, show, wait_until, windlass};
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A server without a worker, which can have up to two workers of one cpu.
fn port() -> Port {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    std::fs::write(&config, "[scaling.classes.cloud]\ncpus = 1\nmax = 2\n").unwrap();
    let config = config.to_str().unwrap().to_owned();
    Port::open_in(dir, &["--no-worker", "--config", &config])
}

fn admin_json(port: &Port, args: &[&str]) -> Value {
    serde_json::from_str(&port.admin(args)).unwrap()
}

#[test]
fn a_server_tells_how_many_workers_are_wanted_and_names_jobs_to_their_users_alone() {
    let port = port();
    let [ann, bob] = ["ann", "bob"].map(|user| port.token(&["--role", "user", "--user", user]));
    let viewer = port.token(&["--role", "viewer", "--user", "screen"]);
    // No worker is there. A machine of the class could run the first job, and none the second, as the exit code says.
    let jobs =
        [(["submit", "--array", "1-5", "--", "true"], 0), (["submit", "--cpus", "64", "--", "true"], 6)];
    for (job, code) in jobs {
        let output = port.run_as(&ann, &job);
        assert_eq!(output.status.code(), Some(code), "{}", show(&output));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr).contains("no worker"),
            code == 6,
            "{}",
            show(&output)
        );
    }
    let mut told = Value::Null;
    // The answer may be a second old.
    wait_until("both jobs count", || {
        told = admin_json(&port, &["api", "GET", "/scaling"]);
        told["none"]["tasks"] == 1 && told["classes"][0]["tasks"] == 5
    });
    let class = &told["classes"][0];
    assert_eq!((&class["name"], &class["wanted"], &class["here"]), (&json!("cloud"), &json!(2), &json!(0)));
    assert_eq!(told["none"], json!({"work_classes": 1, "tasks": 1, "jobs": [2]}));
    for (token, jobs) in [(&ann, json!([2])), (&bob, Value::Null), (&viewer, Value::Null)] {
        let theirs: Value = serde_json::from_str(&port.ok_as(token, &["api", "GET", "/scaling"])).unwrap();
        assert_eq!((&theirs["none"]["tasks"], &theirs["none"]["jobs"]), (&json!(1), &jobs), "{theirs}");
        assert_eq!(theirs["classes"], told["classes"]);
    }
    let metrics = port.admin(&["api", "GET", "/metrics"]);
    for line in ["wanted{class=\"cloud\"} 2", "wanted{class=\"none\"} 1", "spare{class=\"cloud\"} 0"] {
        assert!(metrics.contains(&format!("windlass_workers_{line}\n")), "{line}: {metrics}");
    }
    let table = port.admin_output(&["worker", "wanted"]);
    let (rows, notes) = (String::from_utf8_lossy(&table.stdout), String::from_utf8_lossy(&table.stderr));
    assert!(rows.contains("5 tasks wait") && rows.contains("at most 2 workers"), "{}", show(&table));
    assert!(notes.contains("could run 1 task, of jobs 2"), "{}", show(&table));
}

/// Programs that start and stop workers in processes of this machine, in the places of machines.
struct Machines<'a> {
    port: &'a Port,
    dir: PathBuf,
}

impl Machines<'_> {
    fn of(port: &Port) -> Machines<'_> {
        let dir = port.dir.join("machines");
        std::fs::create_dir_all(dir.join("bin")).unwrap();
        for name in ["cloud-1", "cloud-2", "hand"] {
            let token = port.token(&["--role", "worker", "--worker", name]);
            std::fs::write(dir.join(format!("{name}.token")), token).unwrap();
        }
        symlink(windlass(), dir.join("bin/windlass")).unwrap();
        let machines = Machines { port, dir };
        machines.program(
            "start-worker",
            &format!(
                "WINDLASS_SERVER={} WINDLASS_STATE=$PWD/$1 WINDLASS_TOKEN=$(cat $1.token) \
                 windlass worker start --name $1 --cpus 1 --as-root --tag class=cloud </dev/null >$1.log 2>&1 &\n\
                 echo $! >$1.pid\n",
                port.url()
            ),
        );
        machines.program("stop-worker", "kill $(cat $1.pid)\nrm $1.pid\n");
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/scaling.md");
        let page = std::fs::read_to_string(page).unwrap();
        let script = page.split("```sh\n").find(|part| part.starts_with("#!/bin/sh\n# scale.sh")).unwrap();
        std::fs::write(machines.dir.join("scale.sh"), script.split("```").next().unwrap()).unwrap();
        machines
    }

    fn program(&self, name: &str, commands: &str) {
        let path = self.dir.join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\nset -eu\n{commands}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Starts a worker of the class without the script.
    fn start_by_hand(&self, name: &str) {
        self.run(&["bin/start-worker", name]);
    }

    /// Runs the script of the manual once.
    fn look(&self) {
        self.run(&["scale.sh", "cloud"]);
    }

    fn run(&self, script: &[&str]) {
        let path = format!("{}:{}", self.dir.join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WINDLASS_"))
        {
            command.env_remove(name);
        }
        let farm = &self.port.farm;
        let server = format!("unix:{}", farm.state().join("admin.sock").display());
        command.env("PATH", path).env("WINDLASS_STATE", farm.state()).env("WINDLASS_SERVER", server);
        command.env("WINDLASS_RUNTIME", farm.path().join("run")).current_dir(&self.dir).stdin(Stdio::null());
        let output = command.args(script).output().unwrap();
        assert!(output.status.success(), "{}\n{}", show(&output), self.port.log());
    }

    /// What the script notes of the workers that it started.
    fn noted(&self) -> Vec<String> {
        let dir = self.dir.join("cloud");
        let read = |name: &String| std::fs::read_to_string(dir.join(name)).unwrap().trim().to_owned();
        names(&dir).iter().map(read).collect()
    }
}

impl Drop for Machines<'_> {
    fn drop(&mut self) {
        for file in names(&self.dir).iter().filter(|name| name.ends_with(".pid")) {
            let pid = std::fs::read_to_string(self.dir.join(file)).unwrap_or_default();
            if let Ok(pid) = pid.trim().parse() {
                kill(pid, "KILL");
            }
        }
    }
}

#[test]
fn the_script_of_the_manual_starts_workers_and_stops_them_without_losing_a_task() {
    if Command::new("jq").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIP scaling: there is no jq");
        return;
    }
    let port = port();
    let machines = Machines::of(&port);
    let work = port.farm.work();
    let gate = |n: u32| work.join(format!("gate-{n}"));
    (1..=3).for_each(|n| rustix::fs::mkfifoat(rustix::fs::CWD, gate(n), rustix::fs::Mode::RWXU).unwrap());
    let waits = format!("read x < {}/gate-{{}}", work.display());
    port.admin_output(&["submit", "--array", "1-3", "--", "sh", "-c", &waits]);
    wait_until("two workers are started", || {
        machines.look();
        machines.noted() == ["up", "up"]
    });
    // The first two tasks run, and the third one follows on the worker that is free first.
    (1..=3).for_each(|n| std::fs::write(gate(n), "x\n").unwrap());
    port.admin(&["job", "wait", "1"]);
    wait_until("both are drained", || {
        machines.look();
        !machines.noted().contains(&"up".to_owned())
    });
    // A job that comes now has a worker again, drained or new.
    port.admin_output(&["submit", "--", "true"]);
    wait_until("the second job has run", || {
        machines.look();
        admin_json(&port, &["job", "show", "2", "-o", "json"])["state"] == "succeeded"
    });
    wait_until("all workers are stopped and forgotten", || {
        machines.look();
        machines.noted().is_empty() && admin_json(&port, &["workers", "-o", "json"]) == json!([])
    });
    for job in ["1", "2"] {
        let tasks = admin_json(&port, &["job", "tasks", job, "-o", "json"]);
        let once = |task: &Value| task["state"] == "succeeded" && task["attempt"] == 1;
        assert!(tasks.as_array().unwrap().iter().all(once), "{tasks}");
    }
}

#[test]
fn the_script_of_the_manual_starts_no_machine_for_what_others_of_the_class_do() {
    if Command::new("jq").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIP scaling: there is no jq");
        return;
    }
    let port = port();
    let machines = Machines::of(&port);
    let gate = port.farm.work().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::RWXU).unwrap();
    machines.start_by_hand("hand");
    let class = || admin_json(&port, &["worker", "wanted", "-o", "json"])[0].clone();
    wait_until("the worker is there", || class()["here"] == 1);
    port.admin_output(&["submit", "--", "sh", "-c", &format!("read x < {}", gate.display())]);
    wait_until("it is busy", || class()["busy"] == 1);
    machines.look();
    assert!(machines.noted().is_empty(), "one worker is wanted, and is there");
    port.admin_output(&["submit", "--", "true"]);
    wait_until("another one is wanted", || class()["wanted"] == 2);
    machines.look();
    assert_eq!(machines.noted(), ["up"]);
    std::fs::write(&gate, "x\n").unwrap();
    port.admin(&["job", "wait", "1", "2"]);
    wait_until("it is stopped, and the other one is not", || {
        machines.look();
        machines.noted().is_empty()
    });
    let left = admin_json(&port, &["workers", "-o", "json"]);
    assert_eq!((left.as_array().unwrap().len(), &left[0]["name"]), (1, &json!("hand")), "{left}");
}
