//! A server whose store is a PostgreSQL database: the farm survives its server, and moves to a file and back.

use crate::database;
use crate::support::cluster::{Server, worker};
use crate::support::{self, Farm};
use serde_json::{Value, json};

fn succeeded(jobs: &Value) -> usize {
    jobs.as_array().unwrap().iter().filter(|job| job["state"] == "succeeded").count()
}

#[test]
fn a_farm_on_postgres_survives_its_server_and_shows_no_password() {
    let Some(address) = database::database() else { return };
    let with_password = address.replace("windlass@", "windlass:hush-hush@");
    let mut server = Server::start("one", &with_password);
    let _worker = worker(&server, "w1", &[&server]);
    server.ok(&["run", "--array", "1-100", "--", "true"]);
    let mut short = server.command(&["server", "start", "--lease", "10", "--store", &with_password]);
    let short =
        short.arg("--listen").arg(format!("unix:{}", server.farm.socket().display())).output().unwrap();
    let said = String::from_utf8_lossy(&short.stderr).into_owned();
    assert!(!short.status.success() && said.contains("Give --lease 15 or more"), "{said}");
    // A task runs on while the server is killed, and the next server takes over its result.
    let gate = server.farm.work().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    server.ok(&["submit", "--", "cat", gate.to_str().unwrap()]);
    support::wait_until("it runs", || server.json(&["job", "show", "2"])["counts"]["running"] == json!(1));
    server.end("KILL");
    server.start_again();
    std::fs::write(&gate, "").unwrap();
    server.ok(&["job", "wait", "2"]);
    server.ok(&["run", "--", "true"]);
    assert_eq!(succeeded(&server.json(&["jobs"])), 3);
    let doctor = server.ok(&["doctor", "server", "--store", &with_password]);
    assert!(doctor.contains("they arrive") && doctor.contains("it agrees with this machine's"), "{doctor}");
    let status = server.ok(&["server", "status", "-o", "json"]);
    let shown = format!("{doctor}{said}{}{status}", server.log());
    assert!(!shown.contains("hush-hush"), "{shown}");
}

#[test]
fn a_farm_moves_from_a_file_to_postgres_and_back() {
    let Some(address) = database::database() else { return };
    let mut farm = Farm::with_server(&["--cpus", "2"]);
    farm.ok(&["run", "--array", "1-20", "--", "true"]);
    let file = format!("sqlite:{}", farm.state().join("windlass.db").display());
    let in_use = farm.run(&["store", "copy", &file, &address]);
    assert!(String::from_utf8_lossy(&in_use.stderr).contains("in use"), "{in_use:?}");
    farm.ok(&["server", "stop"]);
    let copied = farm.json(&["store", "copy", &file, &address]);
    let tasks = copied["tables"].as_array().unwrap().iter().find(|table| table["table"] == "tasks").unwrap();
    assert_eq!(tasks["rows"], json!(20), "{copied}");
    let mut server = Server::start("one", &address);
    assert_eq!(succeeded(&server.json(&["jobs"])), 1);
    let worker = worker(&server, "w1", &[&server]);
    server.ok(&["run", "--array", "1-20", "--", "true"]);
    let back = format!("sqlite:{}", farm.work().join("back.db").display());
    let in_use = farm.run(&["store", "copy", &address, &back]);
    assert!(String::from_utf8_lossy(&in_use.stderr).contains("is in use by the server 'one'"), "{in_use:?}");
    drop(worker);
    server.end("TERM");
    farm.ok(&["store", "copy", &address, &back]);
    farm.set_options(&["--cpus", "2", "--store", &back]);
    farm.start();
    assert_eq!(succeeded(&farm.json(&["jobs"])), 2);
    farm.ok(&["run", "--", "true"]);
}
