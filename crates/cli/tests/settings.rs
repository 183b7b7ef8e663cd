//! Queues and limits, set by administrators, and hints on the command line.

use crate::support::{self, Farm};
use serde_json::json;
use windlass_api::client::{Address, Client};

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
fn a_server_that_was_killed_is_started_again_with_its_settings() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    std::fs::write(&config, "[board]\nenabled = false\n").unwrap();
    let mut farm = Farm::in_dir(dir, &["--config", config.to_str().unwrap(), "--tag", "kept"]);
    let has_settings = |farm: &Farm| {
        let board = farm.fails(3, &["api", "GET", "/board/me"]);
        let worker = farm.json(&["workers"])[0].to_string();
        assert!(board.contains("this server has no board") && worker.contains("kept"), "{board}\n{worker}");
    };
    has_settings(&farm);
    farm.kill_server();
    farm.ok(&["run", "--", "true"]);
    has_settings(&farm);
    // One that ends in good order is started as all others are.
    farm.ok(&["server", "stop"]);
    farm.ok(&["run", "--", "true"]);
    farm.ok(&["api", "GET", "/board/me"]);
}

#[test]
fn a_limit_is_set_counted_and_removed() {
    let mut farm = Farm::with_server(&["--cpus", "2", "--name", "box"]);
    let shown = |farm: &Farm| {
        let client = Client::new(Address::Unix(farm.socket())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { client.limit("maya").await }).unwrap()
    };
    farm.ok(&["limit", "set", "maya", "2"]);
    farm.ok(&["limit", "set", "nuke", "0"]);
    let gate = farm.work().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let job = farm.ok(&["submit", "-o", "name", "--limit", "maya", "--", "cat", gate.to_str().unwrap()]);
    support::wait_until("the task holds one", || farm.json(&["limit", "list"])[0]["used"] == 1);
    let holders = shown(&farm).holders;
    assert_eq!(holders.len(), 1);
    assert_eq!((&*holders[0].task, &*holders[0].worker), (&*format!("{}.0", job.trim()), "box"));
    assert_eq!(farm.json(&["limit", "set", "maya", "5"]), json!({"name": "maya", "max": 5, "used": 1}));
    std::fs::write(&gate, "").unwrap();
    farm.ok(&["job", "wait", job.trim()]);
    farm.ok(&["limit", "remove", "nuke"]);
    farm.kill_server();
    farm.start();
    assert_eq!(farm.json(&["limit", "list"]), json!([{"name": "maya", "max": 5, "used": 0}]));
    let free = shown(&farm);
    assert_eq!((free.name.as_str(), free.max, free.used, free.holders), ("maya", Some(5), 0, Vec::new()));
    let unknown = farm.fails(3, &["limit", "remove", "nuke"]);
    assert!(unknown.contains("there is no limit 'nuke'") && unknown.contains("limit list"), "{unknown}");
}

#[test]
fn a_job_runs_no_more_tasks_at_a_time_than_it_may() {
    let mut farm = Farm::with_server(&["--cpus", "4"]);
    let gate = farm.work().join("gate");
    let script = format!("until [ -e {} ]; do read -t 0.01 x </dev/zero; done; true", gate.display());
    let wait = ["submit", "-o", "name", "--max-running", "2", "--array", "1-4", "--", "bash", "-c", &script];
    let job = farm.ok(&wait);
    let job = job.trim();
    support::wait_until("two run", || farm.json(&["job", "show", job])["counts"]["running"] == 2);
    farm.kill_server();
    farm.start();
    let why = farm.json(&["why", &format!("{job}.3")]);
    assert_eq!(why["reason"], "max_running", "{why}");
    assert_eq!(farm.json(&["job", "show", job])["max_running"], 2);
    std::fs::write(&gate, "").unwrap();
    farm.ok(&["job", "wait", job]);
    assert!(farm.fails(2, &["submit", "--max-running", "0", "--", "true"]).contains("max-running"));
}

#[test]
fn a_paused_queue_says_what_lets_it_go_on() {
    let mut farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["queue", "set", "film", "--band", "5", "--quota", "1", "--burst", "4"]);
    farm.ok(&["queue", "pause", "film", "--note", "the disk is full"]);
    let job = farm.ok(&["submit", "-o", "name", "--queue", "film", "--", "true"]);
    let job = job.trim();
    farm.kill_server();
    farm.start();
    let shown = farm.json(&["queue", "show", "film"]);
    let said =
        (&shown["band"], &shown["quota_cpus"], &shown["burst_cpus"], &shown["paused"], &shown["waiting"]);
    let expected = (json!(5), json!(1.0), json!(4.0), json!("the disk is full"), json!(1));
    assert_eq!(said, (&expected.0, &expected.1, &expected.2, &expected.3, &expected.4));
    let table = farm.ok(&["queue", "list"]);
    assert!(table.contains("paused: the disk is full"), "{table}");
    support::wait_until("the worker is there", || farm.json(&["why", job])["reason"] == "paused");
    let why = farm.ok(&["why", job]);
    assert!(why.contains("its queue is paused: the disk is full"), "{why}");
    let change = "windlass queue resume film";
    assert!(why.contains(&format!("'{change}'")), "{why}");
    let words: Vec<&str> = change.split(' ').skip(1).collect();
    assert_eq!(farm.json(&words).get("paused"), None);
    farm.ok(&["job", "wait", job]);
    let share = farm.json(&["queue", "show", "film"]);
    assert_eq!((&share["booked"], &share["waiting"]), (&json!(1), &json!(0)), "{share}");
}

#[test]
fn a_busy_licence_is_tried_again_and_is_no_failure() {
    let mut farm = Farm::with_server(&["--cpus", "2"]);
    let set = farm.json(&[
        "limit",
        "set",
        "maya",
        "5",
        "--per-worker",
        "1",
        "--busy-exit",
        "11",
        "--back-off",
        "1h",
    ]);
    let expected = json!({
        "name": "maya", "max": 5, "used": 0, "per_worker": 1, "busy_exits": [11], "back_off_ms": 3_600_000
    });
    assert_eq!(set, expected);
    let there = farm.work().join("there");
    let script = format!("test -e {} || exit 11", there.display());
    let job = farm.ok(&["submit", "-o", "name", "--limit", "maya", "--", "sh", "-c", &script]);
    let job = job.trim();
    support::wait_until("it backs off", || farm.json(&["why", job])["reason"] == "licence_busy");
    let why = farm.ok(&["why", job]);
    assert!(why.contains("its step backs off: licence 'maya' was busy\n  backs off until "), "{why}");
    assert!(farm.ok(&["limit", "list"]).contains("1h"));
    farm.kill_server();
    farm.start();
    support::wait_until("it still backs off", || farm.json(&["limit", "list"])[0]["backing_off"] == 1);
    let shown = farm.json(&["why", job]);
    let said = shown["changes"][0]["steps"][0].as_str().unwrap();
    let change = said.split('\'').nth(1).unwrap();
    assert_eq!(change, "windlass limit set maya --back-off 3600000ms");
    std::fs::write(&there, "").unwrap();
    let words: Vec<&str> = change.split(' ').skip(1).collect();
    farm.ok(&words);
    farm.ok(&["job", "wait", job]);
    let task = &farm.json(&["job", "tasks", job])[0];
    assert_eq!((&task["state"], &task["attempt"]), (&json!("succeeded"), &json!(2)), "{task}");
}

#[test]
fn a_limit_of_each_worker_says_so() {
    let farm = Farm::with_server(&["--cpus", "2", "--name", "here"]);
    farm.ok(&["limit", "set", "probe", "--per-worker", "1"]);
    let gates = ["one", "two"].map(|name| farm.work().join(name));
    assert!(std::process::Command::new("mkfifo").args(&gates).status().unwrap().success());
    let [one, two] = gates.each_ref().map(|gate| gate.to_str().unwrap());
    let args = ["submit", "-o", "name", "--limit", "probe", "--each", one, two, "--", "cat", "{}"];
    let job = farm.ok(&args);
    let second = format!("{}.1", job.trim());
    support::wait_until("one runs", || farm.json(&["limit", "list"])[0]["used"] == 1);
    let why = farm.json(&["why", &second]);
    assert_eq!(
        (&why["reason"], &why["ruled_out"][0]["reason"]),
        (&json!("worker_limit"), &json!("worker_limit"))
    );
    let why = farm.ok(&["why", &second]);
    assert!(why.contains("every worker that could run it holds the one of the limit 'probe'"), "{why}");
    assert!(why.contains("'windlass limit set probe --per-worker 2'"), "{why}");
    farm.ok(&["limit", "set", "probe", "--per-worker", "2"]);
    support::wait_until("both run", || farm.json(&["limit", "list"])[0]["used"] == 2);
    gates.iter().for_each(|gate| std::fs::write(gate, "").unwrap());
    farm.ok(&["job", "wait", job.trim()]);
}

#[test]
fn what_cannot_be_set_says_why() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    for (args, says) in [
        (&["queue", "set", "q", "--weight", "0"][..], "weight must be from 1 to 10000, not 0"),
        (&["queue", "set", "q", "--weight", "10001"], "weight must be from 1 to 10000, not 10001"),
        (&["queue", "set", "q", "--weight", "-1"], "must be 0 or more"),
        (&["queue", "set", "q", "--quota", "0"], "with a quota of 0 nothing could run; pause"),
        (&["queue", "set", "q", "--band", "10"], "band must be from 0 to 9, not 10"),
        (&["queue", "set", "q", "--band", "high"], "give 0 to 9, or auto"),
        (&["queue", "set", "q", "--burst", "3"], "set a quota too"),
        (&["queue", "set", "q", "--quota", "3", "--burst", "2"], "at least the quota of 3 cpus, not 2"),
        (&["queue", "resume", "q"], "there is no queue 'q'"),
        (&["limit", "set", "l"], "required"),
        (&["limit", "set", "l", "--per-worker", "0"], "per_worker must be more than 0"),
        (&["limit", "set", "l", "1", "--busy-exit", "0"], "busy_exits must be from 1 to 255, not 0"),
        (&["limit", "set", "l", "1", "--back-off", "5s"], "set these too"),
        (
            &["limit", "set", "l", "1", "--busy-exit", "3", "--back-off", "99ms"],
            "back_off_ms must be from 100",
        ),
        (&["limit", "set", "l", "none"], "a limit needs max, per_worker or busy_exits"),
        (&["queue", "set", "q", "--quota", "nan"], "invalid number of cpus"),
        (&["queue", "set", "q"], "required"),
        (&["limit", "set", "l", "-1"], "-1"),
        (&["limit", "set", "l", "5000000000"], "give 0 to 4294967295"),
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
    let flags = "--limit maya --cache tc=2GiB --cache assets --network-bound --prefer-local --max-wait 90s \
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
    let said = "one of each limit maya, an evaluation, network-bound, prefer-local, cpus auto, \
                cached assets, tc of 2 GiB, to start within 1m30s";
    assert!(text.contains(said), "{text}");
}

/// The engine's settings: the policy that placed a task, and the memory pressure from which it places none.
fn in_force(farm: &Farm) -> (serde_json::Value, serde_json::Value) {
    farm.ok(&["run", "--quiet", "--", "true"]);
    let placed = farm.json(&["why", "last"]);
    let worker = farm.json(&["why", "--worker", "here"]);
    (placed["policy"].clone(), worker["thresholds"]["memory"].clone())
}

#[test]
fn how_places_are_chosen_is_set_by_file_variable_and_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    std::fs::write(&config, "[score]\npolicy = 'simple'\n[load]\nmax_memory_pressure = 41\n").unwrap();
    let file = ["--name", "here", "--config", config.to_str().unwrap()];
    let farm = Farm::with_server(&file);
    assert_eq!(in_force(&farm), (json!("simple"), json!(41.0)));
    drop(farm);

    let farm = Farm::with_server(
        &[&file[..], &["--set", "score.policy=packing", "--set", "load.max_memory_pressure=43"]].concat(),
    );
    assert_eq!(in_force(&farm), (json!("packing"), json!(43.0)));
    drop(farm);

    let farm = Farm::new();
    let mut command = farm.command(&["server", "start"]);
    command.arg("--listen").arg(format!("unix:{}", farm.socket().display())).args(file);
    command.env("WINDLASS_SCORE_POLICY", "pressure").env("WINDLASS_MAX_MEMORY_PRESSURE", "42");
    let mut server = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    support::wait_until("the server answers", || farm.run(&["server", "status"]).status.success());
    assert_eq!(in_force(&farm), (json!("pressure"), json!(42.0)));
    drop(farm);
    server.wait().unwrap();
}

#[test]
fn an_unknown_policy_is_warned_of_once() {
    let farm = Farm::with_server(&["--name", "here", "--set", "score.policy=best"]);
    assert_eq!(in_force(&farm).0, "resource-aware");
    assert_eq!(
        farm.server_log().matches("there is no scoring policy 'best'").count(),
        1,
        "{}",
        farm.server_log()
    );
}

#[test]
fn how_turns_are_taken_is_set_by_file_variable_and_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    std::fs::write(&config, "[turn]\ncharge = 'task'\nexpress = 0\n").unwrap();
    let file = ["--config", config.to_str().unwrap()];
    let charge = |farm: &Farm| {
        farm.ok(&["run", "--quiet", "--queue", "film", "--", "true"]);
        let shown = farm.ok(&["queue", "show", "film"]);
        assert!(shown.contains("share      100.0% of its band's"), "{shown}");
        farm.json(&["queue", "show", "film"])["charge"].clone()
    };
    assert_eq!(charge(&Farm::with_server(&file)), json!("task"));
    assert_eq!(
        charge(&Farm::with_server(&[&file[..], &["--set", "turn.charge=time"]].concat())),
        json!("time")
    );

    let farm = Farm::new();
    let mut command = farm.command(&["server", "start", "--set", "turn.express=3"]);
    command.arg("--listen").arg(format!("unix:{}", farm.socket().display()));
    command.env("WINDLASS_CHARGE", "task");
    let mut server = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    support::wait_until("the server answers", || farm.run(&["server", "status"]).status.success());
    assert_eq!(charge(&farm), json!("task"));
    drop(farm);
    server.wait().unwrap();
}

#[test]
fn a_flag_of_an_earlier_release_is_answered_with_its_setting() {
    let farm = Farm::new();
    for (flags, advice) in [
        (&["--max-cpu-pressure", "70"][..], "--set load.max_cpu_pressure=VALUE"),
        (&["--core-saturation"], "--set placement.core_saturation=true"),
        (&["--keep-days=12h"], "--set keep_days=VALUE"),
    ] {
        let said = farm.fails(2, &[&["server", "start"], flags].concat());
        assert!(said.contains(advice), "{flags:?}: {said}");
    }
}

#[test]
fn a_setting_that_makes_no_sense_is_refused_where_it_is_typed() {
    let farm = Farm::new();
    for (set, why) in [
        ("load.max_cpu_pressure=hot", "'hot' is not a valid number"),
        ("load.max_cpu_presure=70", "there is no setting 'load.max_cpu_presure'"),
        ("load.max_cpu_pressure", "write SETTING=VALUE"),
        ("store=postgres://windlass:secret@db.example/windlass", "a password belongs in the config file"),
        ("queues.film.weight=5", "windlass queue set"),
    ] {
        let said = farm.fails(2, &["server", "start", "--set", set]);
        assert!(said.contains(why), "{set}: {said}");
    }
}
