//! Single tasks of a job: cancelled and retried by themselves. Jobs that stop after some failures, or come after any
//! end of another one.

use crate::support::{Farm, wait_until};
use serde_json::Value;

/// The state of each task of a job.
fn states(farm: &Farm, job: &str) -> Vec<String> {
    let tasks = farm.json(&["job", "tasks", job]);
    let tasks = tasks.as_array().expect("a list of tasks");
    tasks.iter().map(|task| task["state"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A count of the job's tasks.
fn counted(farm: &Farm, job: &str, what: &str) -> Option<u64> {
    let shown = farm.json(&["job", "show", job]);
    let shown = shown.get(0).unwrap_or(&shown);
    shown["counts"][what].as_u64()
}

#[test]
fn tasks_are_cancelled_and_retried_by_themselves() {
    let mut farm = Farm::with_server(&["--cpus", "2"]);
    let command = "touch s{}; while [ ! -e go ]; do :; done; echo out {}";
    farm.ok(&["submit", "--array", "0-4", "--", "sh", "-c", command]);
    wait_until("two run", || farm.work().join("s0").exists() && farm.work().join("s1").exists());
    farm.ok(&["job", "cancel", "1.1,3"]);
    wait_until("the second is killed", || states(&farm, "1")[1] == "canceled");
    assert_eq!(states(&farm, "1")[3], "canceled");
    // The cancel holds under the next server.
    farm.kill_server();
    farm.start();
    std::fs::write(farm.work().join("go"), "").unwrap();
    farm.fails(130, &["job", "wait", "1"]);
    assert_eq!(states(&farm, "1"), ["succeeded", "canceled", "succeeded", "canceled", "succeeded"]);
    assert!(!farm.work().join("s3").exists());
    let ended = farm.fails(1, &["job", "cancel", "1.0"]);
    assert!(ended.contains("job 1 has ended") && ended.contains("windlass job retry 1"), "{ended}");
    farm.ok(&["job", "retry", "1.0-1"]);
    farm.fails(130, &["job", "wait", "1"]);
    assert_eq!(states(&farm, "1"), ["succeeded", "succeeded", "succeeded", "canceled", "succeeded"]);
    assert_eq!(farm.ok(&["logs", "1.1"]), "out 1\n");
    let nothing = farm.fails(1, &["job", "retry", "1.0"]);
    assert!(nothing.contains("none of these tasks of job 1 failed or was cancelled"), "{nothing}");
    let missing = farm.fails(3, &["job", "retry", "1.7"]);
    assert!(missing.contains("there is no task 1.7"), "{missing}");
    farm.ok(&["job", "retry", "last.3"]);
    farm.ok(&["job", "wait", "1"]);
    let ended = farm.fails(1, &["job", "cancel", "1"]);
    assert!(ended.contains("job 1 has ended") && !ended.contains("job retry"), "nothing failed: {ended}");
    let usage = farm.fails(2, &["job", "retry", "1.x"]);
    assert!(usage.contains("write 12.6, 12.3-9 or 12.1,4-6"), "{usage}");
}

#[test]
fn a_retry_by_hand_loses_no_attempt() {
    let farm = Farm::new();
    farm.fails(4, &["run", "--", "sh", "-c", "echo try; [ -e fixed ] || exit 4"]);
    std::fs::write(farm.work().join("fixed"), "").unwrap();
    farm.ok(&["job", "retry", "1.0"]);
    farm.ok(&["job", "wait", "1"]);
    let mut stream = std::os::unix::net::UnixStream::connect(farm.socket()).unwrap();
    let head = "GET /api/v1/tasks/1.0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    let task: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let seen = |attempt: &Value| (attempt["attempt"].as_u64(), attempt["exit_code"].as_i64());
    assert_eq!(seen(&task), (Some(2), Some(0)), "{task}");
    let first = &task["history"][0];
    assert_eq!(seen(first), (Some(1), Some(4)), "{task}");
    assert!(first["booked_ms"].as_u64() <= first["started_ms"].as_u64(), "{task}");
    assert!(first["booked_ms"].is_u64() && task["history"][1].is_null(), "{task}");
    assert_eq!(farm.ok(&["logs", "1.0", "--attempt", "1"]), "try\n");
}

#[test]
fn why_of_a_job_is_about_a_task_that_waits() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["submit", "--array", "1-2", "--", "sh", "-c", "while [ ! -e go ]; do :; done"]);
    wait_until("the first one runs", || farm.ok(&["jobs", "--state", "running", "-o", "name"]) == "1\n");
    let why = farm.ok(&["why", "1"]);
    assert!(why.starts_with("task 1.1 is ready"), "{why}");
    std::fs::write(farm.work().join("go"), "").unwrap();
    farm.ok(&["job", "wait", "1"]);
}

#[test]
fn a_job_may_bear_some_failures() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let two = "case {} in 1|2) exit 3;; *) while [ ! -e never ]; do :; done;; esac";
    farm.fails(3, &["run", "--fail-fast", "kill:2", "--array", "1-9", "--", "sh", "-c", two]);
    assert_eq!((counted(&farm, "1", "failed"), counted(&farm, "1", "canceled")), (Some(2), Some(7)));
    let why = farm.ok(&["why", "1.8"]);
    assert!(why.contains("it was cancelled: 2 tasks of the job failed (--fail-fast 2)"), "{why}");
    let three = "case {} in 1|2|3) exit 4;; *) while [ ! -e never ]; do :; done;; esac";
    farm.fails(4, &["run", "--fail-fast", "kill:20%", "--array", "1-10", "--", "sh", "-c", three]);
    assert_eq!((counted(&farm, "2", "failed"), counted(&farm, "2", "canceled")), (Some(3), Some(7)));
    let usage = farm.fails(2, &["run", "--fail-fast", "101%", "--", "true"]);
    assert!(usage.contains("is not finish, kill, a number such as 3"), "{usage}");
}

#[test]
fn jobs_come_after_any_end_and_after_failures() {
    let farm = Farm::new();
    farm.fails(1, &["run", "--", "false"]);
    farm.ok(&["run", "--after-any", "1", "--", "true"]);
    farm.ok(&["run", "--after-not-ok", "1", "--", "true"]);
    let not_needed = farm.fails(1, &["run", "--after-not-ok", "2", "--", "touch", "never"]);
    assert!(not_needed.contains("job 2 succeeded, and it comes after a failure"), "{not_needed}");
    assert!(!farm.work().join("never").exists());
    farm.ok(&["submit", "--", "sh", "-c", "while [ ! -e go ]; do :; done; exit 9"]);
    farm.ok(&["submit", "--after-not-ok", "last", "--", "touch", "cleaned"]);
    let why = farm.ok(&["why", "last"]);
    assert!(why.contains("it comes after job 5, which has not ended"), "{why}");
    std::fs::write(farm.work().join("go"), "").unwrap();
    farm.ok(&["job", "wait", "6"]);
    assert!(farm.work().join("cleaned").exists());
    let twice = farm.fails(2, &["submit", "--after", "1", "--after-any", "1", "--", "true"]);
    assert!(twice.contains("comes after job 1 in two ways"), "{twice}");
}
