//! Parked jobs: they are shown and changed like all others, and survive the server.

use crate::support::{self, Farm};
use serde_json::{Value, json};

const JOBS: u64 = 40;

fn show(farm: &Farm, job: u64) -> Value {
    farm.json(&["job", "show", &job.to_string()])
}

fn parked(farm: &Farm) -> u64 {
    let queues = farm.json(&["queue", "list"]);
    queues.as_array().unwrap().iter().map(|queue| queue["parked_jobs"].as_u64().unwrap()).sum()
}

/// A server with room for four steps in memory, whose only slot is taken, and 40 jobs that wait for it.
fn full_farm() -> (Farm, std::path::PathBuf) {
    let farm = Farm::with_server(&["--cpus", "1", "--set", "cache.steps=4"]);
    let gate = farm.work().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    farm.ok(&["submit", "--", "cat", gate.to_str().unwrap()]);
    for job in 2..=JOBS + 1 {
        farm.ok(&["submit", "--key", &format!("key {job}"), "--", "true"]);
    }
    (farm, gate)
}

#[test]
fn parked_jobs_are_there_for_everybody() {
    let (farm, gate) = full_farm();
    let away = parked(&farm);
    assert!((JOBS - 6..JOBS).contains(&away), "{away} jobs are parked");

    let listed = farm.json(&["jobs"]);
    assert_eq!(listed.as_array().unwrap().len() as u64, JOBS + 1);
    let pending = listed.as_array().unwrap().iter().filter(|job| job["state"] == "pending").count();
    assert_eq!(pending as u64, JOBS, "{listed}");
    assert_eq!(show(&farm, 30)["counts"]["ready"], 1);
    let why = farm.json(&["why", "30.0"]);
    assert_eq!((&why["reason"], &why["state"]), (&json!("parked"), &json!("ready")), "{why}");
    assert!(why["message"].as_str().unwrap().contains("behind 28 others of its queue"), "{why}");
    let tasks = farm.json(&["job", "tasks", "30"]);
    assert_eq!((tasks.as_array().unwrap().len(), &tasks[0]["state"]), (1, &json!("ready")));

    // The same key returns the same job.
    let again = farm.ok(&["submit", "-o", "name", "--key", "key 31", "--", "true"]);
    assert_eq!(again.trim(), "31");
    farm.ok(&["job", "cancel", "20"]);
    assert_eq!(show(&farm, 20)["state"], "canceled");
    farm.ok(&["job", "hold", "25"]);
    assert_eq!(show(&farm, 25)["state"], "held");
    let refused = farm.run(&["job", "retry", "26"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no failed or cancelled task"), "{refused:?}");
    let after = farm.ok(&["submit", "-o", "name", "--after", "35", "--", "true"]);
    let after: u64 = after.trim().parse().unwrap();
    assert_eq!(show(&farm, after)["counts"]["waiting"], 1);

    std::fs::write(&gate, "").unwrap();
    farm.ok(&["job", "wait", &after.to_string()]);
    farm.ok(&["job", "wait", &(JOBS + 1).to_string()]);
    farm.ok(&["job", "release", "25"]);
    farm.ok(&["job", "wait", "25"]);
    for job in (1..=JOBS + 1).filter(|job| *job != 20) {
        farm.ok(&["job", "wait", &job.to_string()]);
    }
    assert_eq!(parked(&farm), 0);
    // No task ran twice.
    let states = farm.json(&["jobs", "--state", "succeeded"]);
    assert_eq!(
        states.as_array().unwrap().len() as u64,
        JOBS + 1,
        "all but the cancelled one, and the one after"
    );
}

#[test]
fn parked_jobs_survive_the_server() {
    let (mut farm, gate) = full_farm();
    for _ in 0..3 {
        farm.kill_server();
        farm.start();
    }
    let away = parked(&farm);
    assert!((JOBS - 6..JOBS).contains(&away), "{away} jobs are parked");
    farm.ok(&["job", "cancel", "33"]);
    std::fs::write(&gate, "").unwrap();
    support::wait_until("some have ended", || show(&farm, 10)["state"] == "succeeded");
    farm.kill_server();
    farm.start();
    for job in (1..=JOBS + 1).filter(|job| *job != 33) {
        farm.ok(&["job", "wait", &job.to_string()]);
    }
    assert_eq!((parked(&farm), &show(&farm, 33)["state"]), (0, &json!("canceled")));
}
