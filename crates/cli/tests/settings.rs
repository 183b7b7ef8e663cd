//! Queues and limits, set by administrators, and hints on the command line.

mod support;

use serde_json::json;
use support::Farm;

#[test]
fn a_queue_is_set_and_stays_so() {
    let mut farm = Farm::with_server(&["--cpus", "1"]);
    let set = farm.json(&["queue", "set", "team a/b", "--weight", "300", "--quota", "2.5"]);
    assert_eq!(
        (&set["name"], &set["weight"], &set["quota_cpus"]),
        (&json!("team a/b"), &json!(300), &json!(2.5))
    );
    farm.ok(&["queue", "set", "team a/b", "--weight", "7"]);
    farm.kill_server();
    farm.start();
    let shown = farm.json(&["queue", "show", "team a/b"]);
    assert_eq!((&shown["weight"], &shown["quota_cpus"]), (&json!(7), &json!(2.5)));
    farm.ok(&["queue", "set", "team a/b", "--quota", "none"]);
    let listed = farm.json(&["queue", "list"]);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert!(listed[0].get("quota_cpus").is_none() && listed[0]["weight"] == 7, "{listed}");
    let table = farm.ok(&["queues"]);
    assert!(table.contains("QUOTA") && table.contains("team a/b"), "{table}");
}

#[test]
fn a_limit_is_set_counted_and_removed() {
    let mut farm = Farm::with_server(&["--cpus", "2"]);
    farm.ok(&["limit", "set", "maya", "2"]);
    farm.ok(&["limit", "set", "nuke", "0"]);
    let gate = farm.work().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let job = farm.ok(&["submit", "-o", "name", "--limit", "maya", "--", "cat", gate.to_str().unwrap()]);
    support::wait_until("the task holds one", || farm.json(&["limit", "list"])[0]["used"] == 1);
    assert_eq!(farm.json(&["limit", "set", "maya", "5"]), json!({"name": "maya", "max": 5, "used": 1}));
    std::fs::write(&gate, "").unwrap();
    farm.ok(&["job", "wait", job.trim()]);
    farm.ok(&["limit", "remove", "nuke"]);
    farm.kill_server();
    farm.start();
    assert_eq!(farm.json(&["limit", "list"]), json!([{"name": "maya", "max": 5, "used": 0}]));
    let unknown = farm.fails(3, &["limit", "remove", "nuke"]);
    assert!(unknown.contains("there is no limit 'nuke'") && unknown.contains("limit list"), "{unknown}");
}

#[test]
fn what_cannot_be_set_says_why() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    for (args, says) in [
        (&["queue", "set", "q", "--weight", "0"][..], "weight must be from 1 to 10000, not 0"),
        (&["queue", "set", "q", "--weight", "10001"], "weight must be from 1 to 10000, not 10001"),
        (&["queue", "set", "q", "--weight", "-1"], "unexpected argument"),
        (&["queue", "set", "q", "--quota", "0"], "a quota of 0 would let nothing run"),
        (&["queue", "set", "q", "--quota", "nan"], "no number of cpus"),
        (&["queue", "set", "q"], "required"),
        (&["limit", "set", "l", "-1"], "unexpected argument"),
        (&["limit", "set", "l", "5000000000"], "invalid value"),
    ] {
        let output = farm.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{args:?}: {said}");
    }
    let long = "l".repeat(256);
    let refused = farm.fails(2, &["limit", "set", &long, "1"]);
    assert!(refused.contains("256 bytes"), "{refused}");
    farm.fails(3, &["queue", "show", "q"]);
    assert_eq!(farm.json(&["queue", "list"]), json!([]));
}

#[test]
fn hints_are_shown_with_the_job() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["limit", "set", "maya", "1"]);
    let flags = "--limit maya --cache tc=2GiB --cache assets --network-bound --prefer-local --deadline 90s \
                 --kind evaluation --cpus auto --quiet";
    let mut args: Vec<&str> = std::iter::once("run").chain(flags.split_whitespace()).collect();
    args.extend(["--", "true", "a.c"]);
    farm.ok(&args);
    let step = &farm.json(&["job", "show", "last"])["steps"][0];
    assert_eq!(step["limits"], json!(["maya"]));
    assert_eq!(step["caches"], json!({"tc": 2u64 << 30, "assets": null}));
    assert_eq!((&step["shape"], &step["kind"]), (&json!("true *.c"), &json!("evaluation")));
    assert_eq!((&step["deadline_ms"], &step["cpus_auto"]), (&json!(90_000), &json!(true)));
    let text = farm.ok(&["job", "show", "last"]);
    let said = "one of each limit maya, an evaluation, network-bound, local if it can be, cpus found out, \
                cached assets, tc of 2 GiB, to start within 1m30s";
    assert!(text.contains(said), "{text}");
}

/// What the engine goes by: the policy that placed a task, and the memory pressure from which it places none.
fn in_force(farm: &Farm) -> (serde_json::Value, serde_json::Value) {
    farm.ok(&["run", "--quiet", "--", "true"]);
    let placed = farm.json(&["why", "last"]);
    let worker = farm.json(&["why", "--worker", "here"]);
    (placed["policy"].clone(), worker["thresholds"]["memory"].clone())
}

#[test]
fn how_places_are_chosen_is_set_by_file_variable_and_flag() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    std::fs::write(&config, "[score]\npolicy = 'simple'\n[load]\nmax_memory_pressure = 41\n").unwrap();
    let file = ["--name", "here", "--config", config.to_str().unwrap()];
    let farm = Farm::with_server(&file);
    assert_eq!(in_force(&farm), (json!("simple"), json!(41.0)));
    drop(farm);

    let farm = Farm::with_server(
        &[&file[..], &["--scoring-policy", "packing", "--max-memory-pressure", "43"]].concat(),
    );
    assert_eq!(in_force(&farm), (json!("packing"), json!(43.0)));
    drop(farm);

    let farm = Farm::new();
    let mut command = farm.command(&["server", "start"]);
    command.arg("--listen").arg(format!("unix:{}", farm.socket().display())).args(file);
    command.env("WINDLASS_SCORING_POLICY", "pressure").env("WINDLASS_MAX_MEMORY_PRESSURE", "42");
    let mut server = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    support::wait_until("the server answers", || farm.run(&["server", "status"]).status.success());
    assert_eq!(in_force(&farm), (json!("pressure"), json!(42.0)));
    drop(farm);
    server.wait().unwrap();
}

#[test]
fn an_unknown_policy_is_warned_of_once() {
    let farm = Farm::with_server(&["--name", "here", "--scoring-policy", "best"]);
    assert_eq!(in_force(&farm).0, "resource-aware");
    assert_eq!(
        farm.server_log().matches("there is no scoring policy 'best'").count(),
        1,
        "{}",
        farm.server_log()
    );
}
