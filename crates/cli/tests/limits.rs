//! Memory, whole trees, output.

use crate::support::{self, Farm, processes_with, wait_until};

/// Python holds memory in one process; the shell's `sleep` beside it stands for the rest of the group.
fn hog(mib: u32, mark: &str) -> String {
    format!("sleep {mark} & python3 -c 'x = bytearray({mib} << 20); import time; time.sleep(1000)'")
}

fn has_python(test: &str) -> bool {
    let found = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !found {
        println!("SKIP {test}: python3 is not installed");
    }
    found
}

#[test]
fn over_its_memory_limit_the_whole_group_is_gone() {
    if !has_python("the memory limit") {
        return;
    }
    let farm = Farm::new();
    let said = farm.fails(137, &["run", "--memory", "64MiB", "--", "sh", "-c", &hog(256, "1001.1")]);
    assert!(said.contains("over its memory limit of 64 MiB"), "{said}");
    assert!(processes_with("sleep 1001.1").is_empty());
    let task = &farm.json(&["job", "tasks", "1"])[0];
    assert_eq!((&task["end"], &task["exit_code"]), (&"oom".into(), &137.into()));
    // The slot is usable again: a task within its limit runs on it.
    farm.ok(&["run", "--memory", "128MiB", "--", "python3", "-c", "x = bytearray(32 << 20)"]);
    let task = &farm.json(&["job", "tasks", "2"])[0];
    assert!(task["peak_memory"].as_u64().unwrap() > 32 << 20, "{task}");
}

#[test]
fn a_memory_limit_counts_the_tree_and_not_one_process() {
    if !has_python("the memory limit of a tree") {
        return;
    }
    let farm = Farm::new();
    let one = "python3 -c 'x = bytearray(40 << 20); import time; time.sleep(1000)'";
    farm.fails(
        137,
        &["run", "--memory", "100MiB", "--", "sh", "-c", &format!("{one} & {one} & {one} & {one} & wait")],
    );
}

/// A process that fills 100 MiB and forks six times: about 110 MiB in truth, and 700 as a sum of resident sizes.
const FORKS: &str = "import os, time\nx = b'1' * (100 << 20)\nfor _ in range(6):\n    if os.fork() == 0: break\n\
                     time.sleep(1.5)";

#[test]
fn memory_that_processes_share_counts_once() {
    if !has_python("shared memory") {
        return;
    }
    let farm = Farm::new();
    // With a control group that counts it, and, where memory is still a controller of version 1, without one.
    for flags in [&["run", "--memory", "300MiB", "--"][..], &["run", "--"]] {
        farm.ok(&[flags, &["python3", "-c", FORKS]].concat());
    }
    for job in ["1", "2"] {
        let peak = farm.json(&["job", "tasks", job])[0]["peak_memory"].as_u64().unwrap();
        assert!((100 << 20..250 << 20).contains(&peak), "job {job}: {peak}");
    }
}

#[test]
fn grandchildren_in_new_sessions_are_gone_when_cancelled() {
    let farm = Farm::new();
    let escape = "setsid sh -c 'trap \"\" TERM HUP; setsid sleep 1002.2 & setsid sleep 1002.2' & \
                  (setsid setsid nohup sleep 1002.2 >/dev/null 2>&1 &) ; touch up; wait";
    farm.ok(&["submit", "--", "sh", "-c", escape]);
    // Two shells name it in their command lines, and three processes are it.
    wait_until("all of them run", || processes_with("sleep 1002.2").len() >= 5);
    farm.ok(&["job", "cancel", "1"]);
    farm.fails(130, &["job", "wait", "1"]);
    let left: Vec<i32> = processes_with("sleep 1002.2");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_a_task_leaves_behind_ends_with_it() {
    let farm = Farm::new();
    farm.ok(&["run", "--", "sh", "-c", "setsid sleep 1003.3 & exit 0"]);
    assert!(processes_with("sleep 1003.3").is_empty());
}

#[test]
fn processor_time_and_memory_are_recorded() {
    let farm = Farm::new();
    farm.ok(&["run", "--", "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]);
    let task = &farm.json(&["job", "tasks", "1"])[0];
    assert!(task["cpu_ms"].as_u64().unwrap() > 10, "{task}");
    assert!(task["peak_memory"].as_u64().unwrap() > 100_000, "{task}");
    let (started, finished) = (task["started_ms"].as_u64().unwrap(), task["finished_ms"].as_u64().unwrap());
    assert!(finished >= started && started >= task["booked_ms"].as_u64().unwrap());
}

#[test]
fn a_log_over_its_limit_keeps_its_beginning_and_its_end() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"log_bytes_max = 3_000_000\n").unwrap();
    let farm = Farm::with_server(&["--config", file.path().to_str().unwrap()]);
    // Long enough for the keeper to measure it, with an end that is known.
    let write = "echo first; i=0; while [ $i -lt 40 ]; do head -c 500000 /dev/zero | tr '\\0' x; i=$((i+1)); \
                 sleep 0.05; done; echo; echo last";
    farm.ok(&["submit", "--", "sh", "-c", write]);
    farm.ok(&["job", "wait", "1"]);
    let text = farm.ok(&["logs", "1.0"]);
    assert!(text.starts_with("first\nxxx") && text.ends_with("x\nlast\n"), "{} bytes", text.len());
    assert!(text.contains("bytes are left out here") && !text.contains('\0'), "the gap is told");
    assert!(text.len() < 8_000_000, "{} bytes of 20 million are kept", text.len());
}

/// A user without privileges: no control groups and, with the system's limit at 0, no namespaces.
#[test]
fn without_privileges_limits_and_trees_hold_too() {
    if !support::is_root("a worker without privileges") || !has_python("a worker without privileges") {
        return;
    }
    let nobody = |farm: &Farm, args: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"]);
        command.arg(farm.work().join("windlass")).args(args).env_clear().env("PATH", "/usr/bin:/bin");
        command
            .env("WINDLASS_STATE", farm.work().join("state"))
            .env("WINDLASS_RUNTIME", farm.work().join("run"));
        command.current_dir(farm.work()).output().unwrap()
    };
    let farm = Farm::new();
    std::fs::copy(support::windlass(), farm.work().join("windlass")).unwrap();
    for dir in [farm.work(), farm.work().parent().unwrap().to_owned()] {
        std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
    }
    let run = |args: &[&str]| nobody(&farm, &[&["run", "--foreground"], args].concat());
    let output = run(&["--", "sh", "-c", "id -u; setsid sleep 1004.4 & exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", support::show(&output));
    assert_eq!(output.stdout, b"65534\n");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(told.matches("no control groups for this user").count(), 1, "{told}");
    // In the log of a server it is one line, and no warning.
    let output = nobody(&farm, &["run", "--", "true"]);
    let log = std::fs::read_to_string(farm.work().join("state/server.log")).unwrap_or_default();
    nobody(&farm, &["server", "stop"]);
    let mut lines = log.lines().filter(|line| line.contains("no control groups"));
    let line = lines.next().unwrap_or_else(|| panic!("{log}\n{}", support::show(&output)));
    assert!(line.contains(" INFO ") && lines.next().is_none(), "{log}");
    assert!(processes_with("sleep 1004.4").is_empty(), "left behind");
    let hog = "x = b'1' * (300 << 20); import time; time.sleep(1000)";
    let output = run(&["--memory", "64MiB", "--", "python3", "-c", hog]);
    assert_eq!(output.status.code(), Some(137), "{}", support::show(&output));
    // Here the limit is held by samples, which must not count shared memory for each process.
    let output = run(&["--memory", "300MiB", "--", "python3", "-c", FORKS]);
    assert_eq!(output.status.code(), Some(0), "{}", support::show(&output));
    let output =
        run(&["--time-limit", "100ms", "--", "sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 1005.5'"]);
    assert_eq!(output.status.code(), Some(124), "{}", support::show(&output));
    assert!(processes_with("sleep 1005.5").is_empty(), "left behind");
}

#[test]
fn what_would_fill_the_keepers_memory_is_refused() {
    let farm = Farm::with_server(&[]);
    let (value, places) = ("x".repeat(100_000), "{}".repeat(20_000));
    let said = farm.fails(127, &["run", "--each", &value, "--", "true", &places]);
    assert!(said.contains("too long once its value is filled in"), "{said}");
    farm.ok(&["run", "--", "true"]);
}

#[test]
fn a_million_pending_tasks_are_small() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", farm.server_pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    farm.ok(&["submit", "--array", "1-10", "--", "sh", "-c", "while [ ! -e go ]; do :; done"]);
    let before = resident();
    farm.ok(&["submit", "--array", "1-1000000", "--", "true"]);
    let grown = resident().saturating_sub(before);
    assert!(grown < 50 << 20, "{grown} bytes more");
    // All of them are counted, and each can be shown.
    let job = farm.json(&["job", "show", "2"]);
    let job = if job.is_array() { job[0].clone() } else { job };
    assert_eq!(job["counts"]["ready"], 1_000_000, "{job}");
    let why = farm.ok(&["why", "2.999999"]);
    assert!(why.contains("busy"), "{why}");
}
