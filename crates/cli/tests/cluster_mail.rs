//! What servers of one farm leave for each other in their database: which rows the owner serves, how often it does what they
//! ask, what it writes into its audit log, and what stays in the database.

use crate::database;
use crate::support::cluster::{Server, worker};
use crate::support::{show, wait_until};
use serde_json::{Value, json};
use std::process::{Output, Stdio};

/// Each second time that an answer is written, that fails. A sequence does not go back with the statement that failed.
const EACH_ANSWER_FAILS_FIRST: &str = "CREATE SEQUENCE answers;
    CREATE FUNCTION fail_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('answers') % 2 = 1 THEN RAISE EXCEPTION 'the answer is not taken'; END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER fail_first BEFORE UPDATE ON requests FOR EACH ROW
        WHEN (NEW.answered IS NOT NULL) EXECUTE FUNCTION fail_first()";
/// No answer to a request that changes something is written.
const NO_ANSWER: &str = r#"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'the answer is not taken';
    END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON requests FOR EACH ROW
        WHEN (NEW.answered IS NOT NULL AND position('"method":"POST"'::bytea IN OLD.body) > 0)
        EXECUTE FUNCTION refuse()"#;

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

/// Submits a job where the farm has no worker, and returns what the command said.
fn submitted(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(6), "it is accepted and waits: {}", show(output));
    let said = show(output);
    assert!(said.contains("Submitted job") && !said.contains("Submitted before"), "{said}");
    said
}

fn state_of(server: &Server, job: &str) -> Value {
    server.json(&["job", "show", job])["state"].clone()
}

#[test]
fn an_answer_that_is_not_taken_is_written_again_and_nothing_is_done_twice() {
    let Some(cluster) = database::cluster() else { return };
    let store = cluster.database();
    let database = name_of(&store);
    let one = Server::start("one", &store);
    let two = Server::start("two", &store);
    cluster.sql(&database, EACH_ANSWER_FAILS_FIRST);
    submitted(&two.run(&["submit", "--", "true"]));
    two.ok(&["job", "cancel", "1"]);
    assert_eq!(state_of(&one, "1"), json!("canceled"));
    two.ok(&["job", "retry", "1"]);
    assert_eq!(state_of(&one, "1"), json!("pending"));
    two.ok(&["job", "hold", "1"]);
    two.ok(&["job", "release", "1"]);
    two.ok(&["job", "priority", "1", "7"]);
    assert_eq!(one.json(&["job", "show", "1"])["priority"], json!(7));
    two.ok(&["queue", "set", "q", "--weight", "3"]);
    two.ok(&["limit", "set", "nuke", "3"]);
    two.ok(&["limit", "remove", "nuke"]);
    two.ok(&["job", "cancel", "1"]);
    let gone = worker(&one, "w1", &[&one, &two]);
    two.ok(&["worker", "drain", "w1"]);
    two.ok(&["worker", "resume", "w1"]);
    drop(gone);
    two.ok(&["worker", "forget", "w1", "--force"]);
    assert_eq!(one.json(&["jobs"]).as_array().unwrap().len(), 1);
    assert!(one.log().contains("the answer to another server is written later"), "{}", one.log());
    wait_until("no row is left", || {
        let left = "SELECT (SELECT count(*) FROM requests) + (SELECT count(*) FROM done_requests)";
        cluster.sql(&database, left) == "0"
    });
}

#[test]
fn what_an_owner_did_whose_answer_nobody_got_the_next_one_answers_and_does_not_do_again() {
    let Some(cluster) = database::cluster() else { return };
    let store = cluster.database();
    let database = name_of(&store);
    let mut one = Server::start("one", &store);
    let two = Server::start("two", &store);
    for _ in 0..2 {
        submitted(&one.run(&["submit", "--", "true"]));
    }
    one.ok(&["job", "cancel", "2"]);
    cluster.sql(&database, NO_ANSWER);
    let asks = [&["submit", "--", "true"][..], &["job", "cancel", "1"], &["job", "retry", "2"]].map(|args| {
        let mut command = two.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    wait_until("all three are done", || cluster.sql(&database, "SELECT count(*) FROM done_requests") == "3");
    assert_eq!(state_of(&one, "1"), json!("canceled"));
    assert_eq!(state_of(&one, "2"), json!("pending"));
    // A second retry would run the job again after this.
    one.ok(&["job", "cancel", "2"]);
    one.end("KILL");
    cluster.sql(&database, "DROP TRIGGER refuse ON requests");
    let [submission, cancel, retry] = asks.map(|ask| ask.wait_with_output().unwrap());
    submitted(&submission);
    assert!(cancel.status.success(), "{}", show(&cancel));
    assert!(retry.status.success(), "{}", show(&retry));
    two.await_owner("two");
    assert_eq!(state_of(&two, "2"), json!("canceled"), "it was not retried again");
    assert_eq!(two.json(&["jobs"]).as_array().unwrap().len(), 3);
}

#[test]
fn a_row_that_no_owner_signed_does_not_pass_for_a_request_that_was_done() {
    let Some(cluster) = database::cluster() else { return };
    let store = cluster.database();
    let database = name_of(&store);
    let one = Server::start("one", &store);
    let two = Server::start("two", &store);
    submitted(&one.run(&["submit", "--", "true"]));
    // The key of a request is known to readers of the table, before the owner reads it.
    let forge = r#"CREATE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO done_requests (key, answer, done_by, signature)
                SELECT (split_part(convert_from(NEW.body, 'UTF8'), chr(10), 1)::json)->>'key', '"done"', id, decode(repeat('00', 64), 'hex')
                FROM servers WHERE name = 'one';
            RETURN NEW;
        END $$;
        CREATE TRIGGER forge BEFORE INSERT ON requests FOR EACH ROW
            WHEN (position('"method":"POST"'::bytea IN NEW.body) > 0) EXECUTE FUNCTION forge()"#;
    cluster.sql(&database, forge);
    let refused = two.run(&["job", "cancel", "1"]);
    assert!(
        !refused.status.success() && show(&refused).contains("is not signed by the server"),
        "{}",
        show(&refused)
    );
    assert_eq!(state_of(&one, "1"), json!("pending"));
    let audit = std::fs::read_to_string(one.farm.state().join("audit.log")).unwrap();
    let noted = audit.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let noted = noted.filter(|line| line["status"] == json!(403)).map(|line| line["server"].clone());
    assert_eq!(noted.collect::<Vec<_>>(), [json!("two")], "{audit}");
}
