//! A server whose store is a PostgreSQL database: it survives the server, one server at a time decides, and the farm moves
//! to a file and back.

#[path = "../../store/tests/support/postgres.rs"]
mod database;
mod support;

use serde_json::json;
use support::Farm;

fn succeeded(farm: &Farm) -> usize {
    farm.json(&["jobs", "--state", "succeeded"]).as_array().unwrap().len()
}

#[test]
fn a_farm_on_postgres_survives_its_server_and_has_one_at_a_time() {
    let Some(address) = database::database() else { return };
    let with_password = address.replace("windlass@", "windlass:hush-hush@");
    let mut farm = Farm::with_server(&["--cpus", "2", "--store", &with_password]);
    farm.ok(&["run", "--array", "1-100", "--", "true"]);
    // Another server on the same database names this one, and does not start.
    let other = farm.work().join("other");
    let listen = format!("unix:{}", farm.work().join("other.sock").display());
    let other = other.to_str().unwrap();
    let start =
        ["server", "start", "--state", other, "--listen", &listen, "--no-worker", "--store", &with_password];
    let refused = farm.run(&start);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("is in use by the server"), "{said}");
    // A task runs on while the server is killed, and the next server takes over its result.
    let gate = farm.work().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    farm.ok(&["submit", "--", "cat", gate.to_str().unwrap()]);
    support::wait_until("it runs", || farm.json(&["job", "show", "2"])["counts"]["running"] == json!(1));
    farm.kill_server();
    farm.start();
    std::fs::write(&gate, "").unwrap();
    farm.ok(&["job", "wait", "2"]);
    farm.ok(&["run", "--", "true"]);
    assert_eq!(succeeded(&farm), 3);
    let status = farm.ok(&["doctor", "server", "--store", &with_password]);
    let shown =
        format!("{status}{said}{}{}", farm.server_log(), farm.ok(&["server", "status", "-o", "json"]));
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
    farm.set_options(&["--cpus", "2", "--store", &address]);
    farm.start();
    assert_eq!(succeeded(&farm), 1);
    farm.ok(&["run", "--array", "1-20", "--", "true"]);
    farm.ok(&["server", "stop"]);
    let back = format!("sqlite:{}", farm.work().join("back.db").display());
    farm.ok(&["store", "copy", &address, &back]);
    farm.set_options(&["--cpus", "2", "--store", &back]);
    farm.start();
    assert_eq!(succeeded(&farm), 2);
    farm.ok(&["run", "--", "true"]);
}
