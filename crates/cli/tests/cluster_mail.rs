//! What servers of one farm leave for each other in their database: which rows the owner serves, what it writes into its
//! audit log, and what stays in the database.

#[path = "../../store/tests/support/postgres.rs"]
mod database;
mod support;

use serde_json::{Value, json};
use std::process::Output;
use support::cluster::Server;
use support::{show, wait_until};

/// The name of the database at an address.
fn name_of(store: &str) -> String {
    store.split_once("@/").unwrap().1.split_once('?').unwrap().0.to_owned()
}

/// Lines of a server's audit log about submissions that came by another server.
fn submissions_by_another(server: &Server) -> Vec<Value> {
    let text = std::fs::read_to_string(server.farm.state().join("audit.log")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["path"] == "/api/v1/jobs" && line.get("server").is_some()).collect()
}

#[test]
fn the_owner_audits_what_it_does_for_others_and_the_database_keeps_none_of_it() {
    let Some(cluster) = database::cluster() else { return };
    let store = cluster.database();
    let one = Server::start("one", &store);
    let two = Server::start("two", &store);
    let token = one.ok(&["token", "create", "--role", "user", "--user", "ann"]).trim().to_owned();
    let id = token.split('_').nth(1).unwrap();
    let submit = ["submit", "--quiet", "--", "echo", "canary"];
    // The farm has no worker, so each job is accepted and waits.
    let waits = |output: Output| assert_eq!(output.status.code(), Some(6), "{}", show(&output));
    waits(two.run(&submit));
    let mut of_ann = two.farm.command(&submit);
    waits(of_ann.env("WINDLASS_SERVER", &two.address).env("WINDLASS_TOKEN", &token).output().unwrap());
    // The token in the state directory is known to that server's process alone.
    waits(two.farm.command(&submit).env("WINDLASS_SERVER", &two.address).output().unwrap());
    wait_until("the owner's audit log has all", || submissions_by_another(&one).len() == 3);
    let lines = submissions_by_another(&one);
    let of = |line: &Value| ["server", "role", "peer"].map(|key| line[key].as_str().unwrap().to_owned());
    assert_eq!(of(&lines[0]), ["two", "admin", "unix"], "{lines:?}");
    assert!(lines[0].get("token").is_none(), "{lines:?}");
    let [server, role, peer] = of(&lines[1]);
    assert_eq!((server.as_str(), role.as_str()), ("two", "user"), "{lines:?}");
    assert!(peer.starts_with("127.0.0.1:"), "{lines:?}");
    assert_eq!((lines[1]["user"].as_str(), lines[1]["token"].as_str()), (Some("ann"), Some(id)), "{lines:?}");
    let [_, role, peer] = of(&lines[2]);
    assert!(role == "admin" && peer.starts_with("127.0.0.1:"), "{lines:?}");
    assert!(submissions_by_another(&two).is_empty(), "its clients came by no other server");
    // Answers that were read go within a second or two, and with them what was asked.
    let database = name_of(&store);
    wait_until("no request is left", || cluster.sql(&database, "SELECT count(*) FROM requests") == "0");
}

#[test]
fn a_row_that_no_server_signed_does_nothing_and_is_noted() {
    let Some(cluster) = database::cluster() else { return };
    let store = cluster.database();
    let one = Server::start("one", &store);
    let _two = Server::start("two", &store);
    let database = name_of(&store);
    let head = json!({
        "method": "POST", "uri": "/api/v1/jobs", "content_type": "application/json", "user": "root", "role": "admin",
        "worker": null, "token": null, "session": null, "peer": "unix", "key": "k", "one_part": false
    });
    let job = json!({ "steps": [{ "command": ["true"], "cwd": "/" }] });
    for signature in [String::new(), "00".repeat(64)] {
        let forge = format!(
            "INSERT INTO requests (asked_by, kind, body, signature)
            SELECT id, 'http', convert_to($j${head}$j$ || chr(10) || $j${job}$j$, 'UTF8'), decode('{signature}', 'hex')
            FROM servers WHERE name = 'two'"
        );
        cluster.sql(&database, &forge);
    }
    let refused = "SELECT count(*) FROM requests WHERE status = 403 AND body IS NULL";
    wait_until("the owner has refused both", || cluster.sql(&database, refused) == "2");
    assert_eq!(cluster.sql(&database, "SELECT count(*) FROM jobs"), "0");
    assert!(one.log().contains("it is not signed by the server"), "{}", one.log());
    wait_until("the audit log has both", || submissions_by_another(&one).len() == 2);
    for line in submissions_by_another(&one) {
        assert_eq!((line["server"].as_str(), line["status"].as_u64()), (Some("two"), Some(403)), "{line}");
        assert!(line.get("user").is_none() && line.get("role").is_none(), "{line}");
    }
}
