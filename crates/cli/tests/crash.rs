//! Crashes: kill -9 of the server and of the keeper at any moment, and a full disk.

use crate::support::tmpfs::Tmpfs;
use crate::support::{self, Farm, Random, is_root, kill, names, show, wait_until};
use std::io::Write as _;
use std::path::Path;

/// Each task holds a lock file while it runs and writes one line when it is done.
const LOCKED: &str = "exec 9>locks/{}; flock -n 9 || { echo {} >> double; exit 1; }; echo {} >> ran/{}; \
                      i=0; while [ $i -lt 200 ]; do i=$((i+1)); done";

#[test]
fn tasks_survive_twenty_kills_of_the_server() {
    const TASKS: usize = 2000;
    let mut farm = Farm::with_server(&["--cpus", "4"]);
    for dir in ["locks", "ran"] {
        std::fs::create_dir(farm.work().join(dir)).unwrap();
    }
    let array = format!("1-{TASKS}");
    farm.ok(&["submit", "--array", &array, "--", "sh", "-c", LOCKED]);
    // A random moment of the work, not of the clock: after this number of further tasks has begun.
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..20 {
        let until = names(&farm.work().join("ran")).len() + random.below(90) as usize;
        wait_until("more tasks began", || {
            let ran = names(&farm.work().join("ran")).len();
            ran >= until || ran == TASKS
        });
        farm.kill_server();
        farm.start();
    }
    farm.ok(&["job", "wait", "1"]);
    assert!(!farm.work().join("double").exists(), "two attempts of a task ran at once");
    let job = farm.json(&["job", "show", "1"]);
    let job = if job.is_array() { job[0].clone() } else { job };
    assert_eq!(job["counts"]["succeeded"], TASKS, "{job}");
    let ran = names(&farm.work().join("ran"));
    assert_eq!(ran.len(), TASKS);
    // The keeper survived all of it: no task ran a second time.
    for name in ran {
        let text = std::fs::read_to_string(farm.work().join("ran").join(&name)).unwrap();
        assert_eq!(text.lines().count(), 1, "task {name} ran more than once");
    }
}

#[test]
fn tasks_of_a_killed_keeper_end_with_it_and_run_again() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let command = "echo {} >> begun; [ -e second ] || sleep 1000.75";
    farm.ok(&["submit", "--array", "1-2", "--", "setsid", "-w", "sh", "-c", command]);
    let begun = || std::fs::read_to_string(farm.work().join("begun")).unwrap_or_default().lines().count();
    wait_until("both run", || begun() == 2);
    std::fs::write(farm.work().join("second"), "").unwrap();
    let keeper = farm.keeper_pid();
    kill(keeper, "KILL");
    farm.ok(&["job", "wait", "1"]);
    assert_eq!(begun(), 4);
    assert_ne!(farm.keeper_pid(), keeper);
    assert!(support::processes_with("sleep 1000.75").is_empty(), "something outlived its keeper");
    let task = farm.json(&["job", "tasks", "1"])[0].clone();
    assert_eq!(task["attempt"], 2, "{task}");
}

#[test]
fn keeper_and_server_killed_together_lose_no_job() {
    let mut farm = Farm::with_server(&["--cpus", "2"]);
    let command = "echo {} >> begun; [ -e second ] || setsid -w sleep 1000.125";
    farm.ok(&["submit", "--array", "1-6", "--", "sh", "-c", command]);
    let begun = || std::fs::read_to_string(farm.work().join("begun")).unwrap_or_default().lines().count();
    wait_until("two run", || begun() == 2);
    std::fs::write(farm.work().join("second"), "").unwrap();
    let keeper = farm.keeper_pid();
    farm.kill_server();
    kill(keeper, "KILL");
    farm.start();
    farm.ok(&["job", "wait", "1"]);
    let begun = std::fs::read_to_string(farm.work().join("begun")).unwrap().lines().count();
    assert_eq!(begun, 8, "two ran again, four ran once");
    assert!(support::processes_with("sleep 1000.125").is_empty(), "something outlived its keeper");
}

#[test]
fn results_of_tasks_that_outlive_the_server_arrive() {
    let mut farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["submit", "--", "sh", "-c", "touch up; while [ ! -e go ]; do :; done; echo kept; exit 9"]);
    wait_until("it runs", || farm.work().join("up").exists());
    farm.kill_server();
    std::fs::write(farm.work().join("go"), "").unwrap();
    wait_until("its output is there", || {
        std::fs::read_to_string(farm.state().join("logs/1/0.1.out")).is_ok_and(|text| text == "kept\n")
    });
    farm.start();
    farm.fails(9, &["job", "wait", "1"]);
    assert_eq!(farm.ok(&["logs", "1.0"]), "kept\n");
}

#[test]
fn a_run_goes_on_when_its_server_is_killed() {
    let mut farm = Farm::with_server(&["--cpus", "1"]);
    let run = farm.spawn(&[
        "run",
        "--array",
        "1-2",
        "--",
        "sh",
        "-c",
        "touch up{}; while [ ! -e go ]; do :; done; echo {}",
    ]);
    wait_until("it runs", || farm.work().join("up1").exists());
    farm.kill_server();
    std::fs::write(farm.work().join("go"), "").unwrap();
    farm.start();
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(output.stdout, b"1\n2\n", "{}", show(&output));
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    if !is_root("the full disk") {
        return;
    }
    let Some(disk) = Tmpfs::mount("8m") else { return };
    // Logs of the server and of the keeper are on it too.
    let farm = Farm::in_dir(tempfile::tempdir_in(disk.path()).unwrap(), &["--cpus", "1"]);
    let hold = "while [ ! -e go ]; do :; done";
    farm.ok(&["submit", "--", "sh", "-c", hold]);
    let mut filler = std::fs::File::create(disk.path().join("filler")).unwrap();
    while filler.write_all(&[7; 4096]).is_ok() {}
    // The database's own files may have free room: submit until a submission is refused.
    let mut accepted = vec![1];
    let refused = loop {
        let output = farm.run(&["submit", "-o", "name", "--", "sh", "-c", "echo ran >> ran"]);
        match output.status.code() {
            Some(0) => accepted.push(String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()),
            _ => break output,
        }
        assert!(accepted.len() < 5000, "the disk does not fill");
    };
    assert_eq!(refused.status.code(), Some(5), "{}", show(&refused));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("no space is left"), "{said}");
    // Long enough for many attempts, each of which logs something.
    for _ in 0..5 {
        farm.fails(5, &["submit", "--", "true"]);
    }
    drop(filler);
    std::fs::remove_file(disk.path().join("filler")).unwrap();
    std::fs::write(farm.work().join("go"), "").unwrap();
    for id in &accepted {
        farm.ok(&["job", "wait", &id.to_string()]);
    }
    let ran = std::fs::read_to_string(farm.work().join("ran")).unwrap_or_default().lines().count();
    assert_eq!(ran, accepted.len() - 1, "what was accepted ran, what was refused did not");
    farm.ok(&["run", "--", "true"]);
    drop(farm);
}

/// Fills a file system to the last byte, repeatedly, because a process may have deleted something for others.
fn fill(disk: &Path, file: &mut std::fs::File) {
    for bytes in [65_536, 4096, 1] {
        while file.write_all(&vec![7; bytes]).is_ok() {}
    }
    assert!(disk.exists());
}

/// It takes five leases; `WINDLASS_DISK_FULL_S=600` takes ten minutes.
#[test]
fn h5_a_full_disk_of_the_server_ends_no_running_task_and_loses_no_result() {
    const LEASE: std::time::Duration = std::time::Duration::from_secs(2);
    if !is_root("a full disk beside a worker") {
        return;
    }
    let Some(disk) = Tmpfs::mount("64m") else { return };
    let lease = LEASE.as_secs().to_string();
    let flags = ["--no-worker", "--lease", &lease];
    let mut port = support::port::Port::open_in(tempfile::tempdir_in(disk.path()).unwrap(), &flags);
    let elsewhere = tempfile::tempdir().unwrap();
    let token = port.token(&["--role", "worker", "--worker", "box1"]);
    let _worker = port.worker_in(elsewhere.path(), &token, "box1");
    wait_until("the worker is there", || port.admin(&["workers", "-o", "name"]).contains("box1"));
    let there = |name: &str| elsewhere.path().join(name).display().to_string();
    let hold = |name: &str, code: u8| {
        let (up, go) = (there(&format!("{name}.up")), there(&format!("{name}.go")));
        let script = format!("echo $$ >> {up}; while [ ! -e {go} ]; do :; done; exit {code}");
        port.admin(&["submit", "--cwd", "/", "--cpus", "0.1", "-o", "name", "--", "sh", "-c", &script]);
    };
    hold("long", 0);
    hold("short", 7);
    let started = |name: &str| std::fs::read_to_string(there(&format!("{name}.up"))).unwrap_or_default();
    wait_until("both run", || ["long", "short"].iter().all(|name| !started(name).is_empty()));
    assert!(port.farm.state().join("ballast").exists());
    let mut filler = std::fs::File::create(disk.path().join("filler")).unwrap();
    fill(disk.path(), &mut filler);
    let clock = std::time::Instant::now();
    let said = show(&port.admin_output(&["submit", "--", "true"]));
    assert!(said.contains("no space is left"), "{said}");
    // The results of tasks that end now are known later. Space that is freed for them is filled, too.
    std::fs::write(there("short.go"), "").unwrap();
    let seconds = std::env::var("WINDLASS_DISK_FULL_S").ok().and_then(|text| text.parse().ok());
    let full = seconds.map_or(5 * LEASE, std::time::Duration::from_secs);
    while clock.elapsed() < full {
        fill(disk.path(), &mut filler);
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    assert_eq!(started("long").lines().count(), 1, "it was started again");
    let shown = port.admin(&["worker", "show", "box1", "-o", "json"]);
    // Its last hello could not be written, so it may be suspect; but it has its lease.
    assert!(!shown.contains("expired"), "{shown}");
    drop(filler);
    std::fs::remove_file(disk.path().join("filler")).unwrap();
    std::fs::write(there("long.go"), "").unwrap();
    assert_eq!(port.admin_output(&["job", "wait", "1"]).status.code(), Some(0));
    assert_eq!(port.admin_output(&["job", "wait", "2"]).status.code(), Some(7));
    for name in ["long", "short"] {
        assert_eq!(started(name).lines().count(), 1, "{name} ran twice");
    }
    port.admin(&["submit", "--cwd", "/", "--", "true"]);
    port.stop();
}
