//! Load reports of workers, from real files and processes to the CLI's output.

use crate::support::{Farm, wait_until};
use serde_json::Value;
use std::process::{Child, Command};

/// Uses a core until it is killed.
const BUSY: &str = "while :; do :; done";

/// Shows the worker repeatedly until its load is as wanted.
fn until(farm: &Farm, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
    let mut shown = Value::Null;
    wait_until(what, || {
        shown = farm.json(&["worker", "show", "here"]);
        holds(&shown)
    });
    shown
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn the_load_is_told_again_and_tasks_are_not_foreign() {
    let _machine = crate::machine();
    let farm = Farm::with_server(&["--name", "here"]);
    let first = until(&farm, "a first report", |shown| !shown["load"].is_null());
    let later = until(&farm, "another", |shown| {
        shown["load"]["at_ms"].as_u64() > first["load"]["at_ms"].as_u64()
            && !shown["load"]["cpu_used"].is_null()
    });
    let load = &later["load"];
    assert!(number(&load["memory_available"]) > 0.0 && load["load_average"].is_array(), "{load}");
    if std::fs::read_to_string("/proc/pressure/cpu").is_ok_and(|text| text.starts_with("some")) {
        assert!(load["machine"]["cpu"]["some"]["window"].is_number(), "{load}");
    }
    for dir in ["state_space", "session_space"] {
        assert!(number(&load[dir]["free_bytes"]) <= number(&load[dir]["total_bytes"]), "{dir}: {load}");
    }
    assert!(load["cache_space"].is_null(), "it has no caches: {load}");
    assert_eq!(later["cache_keys"], 0, "a worker without caches knows that: {later}");
    if load["cpu_foreign"].is_null() {
        println!("SKIP what tasks use: there are no control groups");
        return;
    }
    farm.ok(&["submit", "--", "sh", "-c", BUSY]);
    let busy = until(&farm, "the task's core is in use, and its memory", |shown| {
        let load = &shown["load"];
        number(&load["cpu_used"]) - number(&load["cpu_foreign"]) > 0.3 && number(&load["memory_own"]) > 0.0
    });
    assert!(number(&busy["load"]["memory_own"]) < (64 << 20).into(), "{busy}");
    farm.ok(&["job", "cancel", "1"]);
    let mut others: Vec<Child> =
        (0..2).map(|_| Command::new("sh").args(["-c", BUSY]).spawn().unwrap()).collect();
    until(&farm, "others take a core", |shown| number(&shown["load"]["cpu_foreign"]) > 0.5);
    for other in &mut others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    let text = farm.ok(&["worker", "show", "here"]);
    assert!(text.contains("cores in use") && text.contains("pressure   cpu "), "{text}");
}

#[test]
fn a_core_is_measured_once_unless_its_score_is_given() {
    let _machine = crate::machine();
    let given = Farm::with_server(&["--name", "here", "--tag", "core_score=500"]);
    let shown = until(&given, "a report", |shown| !shown["load"].is_null());
    assert_eq!((&shown["core_score"], &shown["load"]["core_score"]), (&500.0.into(), &Value::Null));
    assert!(given.ok(&["worker", "show", "here"]).contains("core score 500 (by its tag)"));
    if given.json(&["worker", "detect"])["core_score"].is_null() {
        println!("SKIP the speed of a core: this machine is too busy to measure it");
        return;
    }
    let mut farm = Farm::with_server(&["--name", "here"]);
    let shown = until(&farm, "a score", |shown| shown["core_score"].is_number());
    assert_eq!(shown["core_score"], shown["load"]["core_score"]);
    farm.kill_server();
    farm.start();
    let again = until(&farm, "it is known at once", |shown| !shown["load"].is_null());
    assert_eq!(again["core_score"], shown["core_score"], "what was measured is kept");
}

#[test]
fn caches_and_speeds_are_told() {
    let _machine = crate::machine();
    let dir = tempfile::tempdir().unwrap();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let cache = dir.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::write(cache.join("a"), "a").unwrap();
    std::fs::write(cache.join("b"), "b").unwrap();
    let named = format!("worker.caches=c={}", cache.display());
    let farm = Farm::with_server(&["--name", "here", "--set", &named]);
    until(&farm, "both keys", |shown| shown["cache_keys"] == 2);
    // The first line names an entry of the directory, the second one elsewhere; the third is ignored.
    let fetch = format!(
        "echo x > {0}/new; echo windlass_cache_fetch: c/new 1000000 10; \
         echo windlass_cache_fetch: elsewhere/x 1000000 10; echo windlass_cache_fetch: y >&2; \
         head -c 9000000 /dev/zero > {1}/written",
        cache.display(),
        disk.path().display()
    );
    farm.ok(&["run", "--", "sh", "-c", &fetch]);
    let shown = until(&farm, "what was fetched", |shown| shown["cache_keys"] == 4);
    let load = until(&farm, "speeds", |shown| shown["load"]["network_mbit_s"].is_number())["load"].clone();
    assert!((number(&load["network_mbit_s"]) - 800.0).abs() < 1e-6, "{shown}");
    assert!(number(&load["disk_mb_s"]) > 1.0, "{load}");
    std::fs::remove_file(cache.join("a")).unwrap();
    farm.ok(&["run", "--", "sh", "-c", "echo windlass_cache_fetch: c/gone 1 1"]);
    until(&farm, "what is not there any more", |shown| shown["cache_keys"] == 3);
    let said = farm.fails(2, &["worker", "start", "--cache", "c=relative"]);
    assert!(said.contains("whole path"), "{said}");
}

#[test]
fn caches_of_the_servers_own_worker_can_be_set_in_its_file() {
    let _machine = crate::machine();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("entry"), "x").unwrap();
    let config = dir.path().join("server.toml");
    let text = format!("[worker]\nname = \"here\"\ncaches.c = {:?}\n", dir.path());
    std::fs::write(&config, text).unwrap();
    let farm = Farm::with_server(&["--config", config.to_str().unwrap()]);
    until(&farm, "its keys", |shown| shown["cache_keys"] == 2);
    std::fs::write(&config, "[worker.caches]\nc = \"relative\"\n").unwrap();
    let (config, state) = (config.to_str().unwrap(), dir.path().join("state"));
    let other =
        ["--listen", "127.0.0.1:0", "--as-root", "--state", state.to_str().unwrap(), "--config", config];
    let said = farm.fails(1, &[&["server", "start"], &other[..]].concat());
    assert!(said.contains("whole path"), "{said}");
}
