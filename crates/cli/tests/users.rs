//! Limits per user, and what users must not see or use of others.

use crate::support::port::Port;
use crate::support::{Farm, show, wait_until};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// A server of which ann and bob have tokens.
fn with_users(config: &str) -> (Port, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    std::fs::write(&path, config).unwrap();
    let port = Port::open(&["--config", path.to_str().unwrap()]);
    let token = |user: &str| port.token(&["--role", "user", "--user", user]);
    let tokens = (token("ann"), token("bob"));
    (port, tokens.0, tokens.1)
}

#[test]
fn h6_a_queue_is_for_its_users() {
    let (port, ann, bob) = with_users("");
    let submit = |queue: &str| ["submit", "--cwd", "/", "--queue", queue, "--", "true"].map(str::to_owned);
    let denied = |token: &str, queue: &str| {
        let args = submit(queue);
        port.denied(token, &args.each_ref().map(String::as_str))
    };
    let taken = |token: &str, queue: &str| {
        let args = submit(queue);
        port.ok_as(token, &args.each_ref().map(String::as_str))
    };
    for queue in ["vip", "ann", "film"] {
        let said = denied(&bob, queue);
        assert!(said.contains(&format!("may not submit to queue '{queue}'")), "{said}");
        assert!(said.contains(&format!("windlass queue set {queue} --users")), "{said}");
    }
    taken(&bob, "bob");
    taken(&bob, "idle");
    port.admin(&["queue", "set", "film", "--users", "ann,cy", "--weight", "300"]);
    taken(&ann, "film");
    assert!(denied(&bob, "film").contains("its users are ann, cy"));
    port.admin(&["queue", "set", "film", "--users", "*"]);
    taken(&bob, "film");
    let urgent = ["submit", "--cwd", "/", "--priority", "1000000", "--", "true"];
    assert!(port.denied(&bob, &urgent).contains("a priority above 1000 is for administrators"));
    port.admin(&urgent);
    // The list is kept, and in a high band the queue's own user must be on it, too.
    port.admin(&["queue", "set", "bob", "--band", "5"]);
    assert!(denied(&bob, "bob").contains("no users are listed"));
}

#[test]
fn queues_of_the_settings_file_hold_and_are_changed_nowhere_else() {
    let file = "[queues.film]\nweight = 300\nusers = ['*']\nuser_weights = { ann = 200 }";
    let (port, ann, bob) = with_users(file);
    for token in [&ann, &bob] {
        port.ok_as(token, &["submit", "--cwd", "/", "--queue", "film", "--", "true"]);
    }
    let shown = |port: &Port| -> serde_json::Value {
        serde_json::from_str(&port.admin(&["queue", "show", "film", "-o", "json"])).unwrap()
    };
    assert_eq!((&shown(&port)["weight"], &shown(&port)["user_weights"]["ann"]), (&300.into(), &200.into()));
    let refused = port.admin_output(&["queue", "set", "film", "--weight", "7"]);
    assert!(!refused.status.success());
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("weight of queue 'film' is set in the server's settings file"), "{refused}");
    assert!(refused.contains("[queues.film]"), "{refused}");
    port.admin(&["queue", "set", "film", "--quota", "2", "--turns", "jobs"]);
    let film = shown(&port);
    assert_eq!((&film["quota_cpus"], &film["turns"]), (&2.0.into(), &"jobs".into()));
    let text = port.admin(&["queue", "show", "film"]);
    assert!(text.contains("its jobs stand in one line"), "{text}");
}

#[test]
fn m1_what_a_task_wrote_and_runs_is_its_user_s() {
    const SECRET: &str = "the-secret-of-ann";
    let script = format!("echo {SECRET}");
    let run = ["run", "--cwd", "/", "--", "sh", "-c", &script];
    let (port, ann, bob) = with_users("");
    assert!(port.ok_as(&ann, &run).contains(SECRET));
    let said = port.denied(&bob, &["logs", "1.0"]);
    assert!(said.contains("belongs to another user") && !said.contains(SECRET), "{said}");
    for looked in [&["job", "show", "1"][..], &["job", "tasks", "1"], &["jobs"]] {
        let said = show(&port.run_as(&bob, &[looked, &["-o", "json"]].concat()));
        assert!(said.contains("succeeded") && !said.contains(SECRET), "{looked:?}: {said}");
    }
    assert!(port.ok_as(&ann, &["job", "show", "1", "-o", "json"]).contains(SECRET));
    assert!(port.admin(&["logs", "1.0"]).contains(SECRET));
    let (port, ann, bob) = with_users("[auth]\nread = \"all\"\n");
    port.ok_as(&ann, &run);
    assert!(port.ok_as(&bob, &["logs", "1.0"]).contains(SECRET));
}

#[test]
fn h5_one_user_takes_only_a_part_of_the_store() {
    let submit = ["submit", "--cwd", "/", "--", "true"];
    let (port, ann, bob) = with_users("[users]\njobs = 2\nbytes = 100000\n");
    port.ok_as(&ann, &submit);
    port.ok_as(&ann, &submit);
    assert!(port.denied(&ann, &submit).contains("has 2 jobs here"));
    let large = format!("V={}", "x".repeat(100_000));
    port.ok_as(&bob, &["submit", "--cwd", "/", "--env", &large, "--", "true"]);
    let said = port.denied(&bob, &submit);
    assert!(said.contains("of the store, of 97.7 KiB at most"), "{said}");
    port.admin(&submit);
    let (port, ann, bob) = with_users("[users]\nsubmissions_per_minute = 2\n");
    port.ok_as(&ann, &submit);
    port.ok_as(&ann, &submit);
    let said = show(&port.run_as(&ann, &submit));
    assert!(said.contains("submitted 2 jobs within a minute") && said.contains("--array"), "{said}");
    port.ok_as(&bob, &submit);
}

#[test]
fn m15_a_known_user_s_refusals_do_not_push_out_what_was_done_before() {
    let (port, ann, bob) = with_users("");
    port.ok_as(&ann, &["run", "--cwd", "/", "--", "true"]);
    let clock = std::time::Instant::now();
    for _ in 0..30 {
        port.denied(&bob, &["job", "cancel", "1"]);
        port.denied(&bob, &["worker", "drain", "x"]);
        port.denied(&bob, &["queue", "pause", "x"]);
    }
    let audit = port.audit();
    let of_bob = audit.lines().filter(|line| line.contains("\"bob\"")).count();
    // Sixty and twenty at first, then one each second.
    let most = 80 + usize::try_from(clock.elapsed().as_secs()).unwrap();
    assert!(of_bob > 0 && of_bob <= most, "{of_bob} lines, at most {most} expected");
    assert!(audit.contains("\"ann\""));
}

/// Submits a job of that user to that queue; the status, and the answer.
fn submit_for(port: &Port, token: &str, user: &str, queue: &str) -> (String, String) {
    let steps = serde_json::json!([{ "command": ["sh", "-c", "echo of-this-user; sleep 1000"], "cwd": "/" }]);
    let body = serde_json::json!({ "user": user, "queue": queue, "steps": steps }).to_string();
    let (bearer, url) = (format!("Authorization: Bearer {token}"), format!("{}/api/v1/jobs", port.url()));
    let output =
        Command::new("curl").args(["-s", "-w", "\n%{http_code}", "-H", &bearer, "-d", &body, &url]).output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    let (answer, status) = said.rsplit_once('\n').unwrap();
    (status.to_owned(), answer.to_owned())
}

#[test]
fn a_submitter_has_the_jobs_of_its_users_in_its_queue_and_nothing_else() {
    let (port, ann, _) = with_users("");
    let submitter = port.token(&["--role", "submitter", "--for-users", "film-*", "--queue", "opencue"]);
    for (user, queue) in
        [("ann", "opencue"), ("root", "opencue"), ("film-ann", "default"), ("film-ann", "film-ann")]
    {
        let (status, answer) = submit_for(&port, &submitter, user, queue);
        assert_eq!(status, "403", "{user} {queue}: {answer}");
        assert!(answer.contains("it is for the users film-* and queue 'opencue'"), "{answer}");
    }
    let (status, answer) = submit_for(&port, &submitter, "film-ann", "opencue");
    assert_eq!(status, "201", "{answer}");
    port.ok_as(&submitter, &["job", "hold", "1"]);
    port.ok_as(&submitter, &["job", "release", "1"]);
    wait_until("its task runs", || show(&port.run_as(&submitter, &["logs", "1.0"])).contains("of-this-user"));
    assert!(port.ok_as(&submitter, &["job", "show", "1", "-o", "json"]).contains("of-this-user"));
    port.ok_as(&submitter, &["workers"]);
    // Jobs of others, and of its users in other queues, are as a viewer sees them.
    port.ok_as(&ann, &["submit", "--cwd", "/", "--", "echo", "of-ann"]);
    assert_eq!(submit_for(&port, &port.token(&["--role", "admin"]), "film-ann", "default").0, "201");
    for job in ["2", "3"] {
        for action in ["cancel", "hold", "release", "retry"] {
            let said = port.denied(&submitter, &["job", action, job]);
            assert!(said.contains("belongs to another user"), "{action} {job}: {said}");
        }
        let seen = port.ok_as(&submitter, &["job", "show", job, "-o", "json"]);
        assert!(!seen.contains("of-ann") && !seen.contains("of-this-user"), "{seen}");
    }
    for refused in [
        &["job", "priority", "1", "7"][..],
        &["token", "list"],
        &["worker", "drain", "x"],
        &["queue", "pause", "opencue"],
        &["server", "stop"],
    ] {
        port.denied(&submitter, refused);
    }
    port.ok_as(&submitter, &["job", "cancel", "1"]);
    port.admin(&["job", "cancel", "3"]);
    let listed = port.admin(&["token", "list"]);
    assert!(listed.contains("film-* in opencue"), "{listed}");
}

#[test]
fn m17_a_database_is_copied_while_its_server_runs() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["run", "--", "true"]);
    let copy = farm.work().join("copy.db");
    let file = copy.to_str().unwrap();
    let said = farm.ok(&["server", "backup", file]);
    assert!(said.contains("start a server with it"), "{said}");
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let again = farm.fails(1, &["server", "backup", file]);
    assert!(again.contains("no copy was made") && again.contains("exists"), "{again}");
    assert!(farm.fails(1, &["server", "backup", "other.db", "--state", "none"]).contains("none"));
    farm.ok(&["run", "--", "true"]);
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("state")).unwrap();
    std::fs::rename(&copy, state.path().join("state/windlass.db")).unwrap();
    let other = Farm::in_dir(state, &["--cpus", "1"]);
    assert_eq!(other.ok(&["jobs", "-o", "name"]).trim(), "1");
}
