//! What survives: kill -9 of the server and of the keeper at any moment, a full disk.

mod support;

use std::io::Write as _;
use std::path::Path;
use support::{Farm, Random, is_root, kill, names, show, wait_until};

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
    // A random moment of the work, not of the clock: after that many more tasks have begun.
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
    // The keeper lived on through all of it: no task was run a second time.
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

/// A small file system that is unmounted with the test.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(bytes: &str) -> Option<Tmpfs> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        let options = format!("size={bytes}");
        let mounted = mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            println!("SKIP the full disk: no tmpfs can be mounted here");
            return None;
        }
        Some(Tmpfs(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        _ = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
    }
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
    // Some room may be left inside the database's own files: submit until it says no.
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
    // Long enough for many tries, each of which has something to say.
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
