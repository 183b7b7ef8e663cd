//! What `run` shows of its tasks, and the results that it keeps in a directory.

use crate::support::{Farm, kill, names, show, wait_until};
use std::path::Path;

/// Of three tasks the second fails; each writes a line to both streams.
const ONE_FAILS: &str = "echo out-{}; echo err-{} >&2; test {} != b";

fn run(farm: &Farm, flags: &[&str], code: i32) -> (String, String) {
    let mut args = vec!["run"];
    args.extend(flags);
    args.extend(["--each", "a", "b", "c/d", "--", "sh", "-c", ONE_FAILS]);
    let output = farm.run(&args);
    assert_eq!(output.status.code(), Some(code), "{}", show(&output));
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn a_run_shows_all_output_that_of_failed_tasks_or_none() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let (out, err) = run(&farm, &[], 1);
    assert!(["out-a\n", "out-b\n", "out-c/d\n"].iter().all(|line| out.contains(line)), "{out}");
    assert!(err.contains("err-c/d\n") && err.contains("task 1.1 (b) failed: exit code 1"), "{err}");
    let (out, err) = run(&farm, &["--show", "failed"], 1);
    assert_eq!(out, "out-b\n");
    assert!(err.contains("err-b\n") && !err.contains("err-a") && err.contains("2.1 (b) failed"), "{err}");
    let (out, err) = run(&farm, &["--show", "none"], 1);
    assert_eq!(out, "");
    assert!(!err.contains("err-a") && err.contains("task 3.1 (b) failed: exit code 1"), "{err}");
    let (out, _) = run(&farm, &["--show", "prefixed"], 1);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["4.0 | out-a", "4.1 | out-b", "4.2 | out-c/d"]);
}

#[test]
fn a_prefix_stands_before_each_line_of_a_live_task_too() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let out = farm.ok(&["run", "--show", "prefixed", "--", "printf", "a\\nb"]);
    assert_eq!(out, "1.0 | a\n1.0 | b\n");
}

#[test]
fn results_are_a_directory_for_each_task() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let dir = farm.work().join("res/ults");
    run(&farm, &["--show", "none", "--results", "res/ults"], 1);
    assert_eq!(names(&dir), ["1.0-a", "1.1-b", "1.2-c_d"]);
    assert_eq!(names(&dir.join("1.1-b")), ["result.json", "stderr", "stdout"]);
    assert_eq!(read(&dir.join("1.1-b/stdout")), "out-b\n");
    assert_eq!(read(&dir.join("1.2-c_d/stderr")), "err-c/d\n");
    let result: serde_json::Value = serde_json::from_str(&read(&dir.join("1.1-b/result.json"))).unwrap();
    assert_eq!((&result["state"], &result["exit_code"]), (&"failed".into(), &1.into()), "{result}");
    assert_eq!((&result["id"], &result["value"]), (&"1.1".into(), &"b".into()), "{result}");
    // The same later, and of one task.
    farm.ok(&["logs", "1", "--results", "later"]);
    let later = farm.work().join("later");
    assert_eq!(names(&later), ["1.0-a", "1.1-b", "1.2-c_d"]);
    assert_eq!(read(&later.join("1.0-a/stdout")), "out-a\n");
    farm.ok(&["logs", "1.2", "--results", "one"]);
    assert_eq!(names(&farm.work().join("one")), ["1.2-c_d"]);
}

#[test]
fn results_of_cancelled_tasks_are_kept_after_ctrl_c() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let script = "echo begun; : > ready; while :; do sleep 1; done";
    let run = farm.spawn(&["run", "--results", "kept", "--each", "a", "b", "--", "sh", "-c", script]);
    wait_until("the first task runs", || farm.work().join("ready").exists());
    kill(run.id() as i32, "INT");
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", show(&output));
    let dir = farm.work().join("kept");
    assert_eq!(read(&dir.join("1.0-a/stdout")), "begun\n");
    let result: serde_json::Value = serde_json::from_str(&read(&dir.join("1.0-a/result.json"))).unwrap();
    assert_eq!(result["state"], "canceled", "{result}");
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_before_anything_runs() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    std::fs::write(farm.work().join("file"), "").unwrap();
    let told = farm.fails(2, &["run", "--results", "file", "--", "true"]);
    assert!(told.contains("--results: cannot use the directory file") && told.contains("hint:"), "{told}");
    assert_eq!(farm.ok(&["jobs", "-o", "name"]), "");
    farm.fails(2, &["run", "--detach", "--results", "r", "--", "true"]);
}
