//! What the program says to a person who types something slightly wrong, and the words in which it speaks.

use crate::support::Farm;

#[test]
fn cancelled_is_spelt_in_one_way_for_people_and_in_one_for_programs() {
    let farm = Farm::with_server(&["--no-worker"]);
    for _ in 0..2 {
        farm.fails(6, &["submit", "--each", "a", "b", "--", "true"]);
    }
    let told = farm.run(&["job", "cancel", "1"]);
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("job 1 is cancelled"), "{told}");
    for args in [&["jobs"][..], &["job", "tasks", "1"], &["job", "show", "1"], &["why", "1.0"]] {
        let text = farm.ok(args);
        assert!(text.contains("cancelled") && !text.contains("canceled"), "{args:?}: {text}");
    }
    assert!(!farm.ok(&["job", "show", "1"]).contains("stopped"), "the state says it");
    assert_eq!(farm.json(&["jobs"])[1]["state"], "canceled");
    assert_eq!(farm.json(&["job", "tasks", "1"])[0]["state"], "canceled");
    for word in ["canceled", "cancelled", "failed,cancelled"] {
        assert_eq!(farm.ok(&["jobs", "--state", word, "-o", "name"]), "1\n", "{word}");
    }
    assert_eq!(farm.ok(&["job", "tasks", "1", "--state", "cancelled", "-o", "name"]), "1.0\n1.1\n");
    let help = farm.ok(&["jobs", "--help"]);
    assert!(help.contains("cancelled") && !help.contains("canceled"), "{help}");
}

#[test]
fn words_and_flags_of_other_schedulers_lead_to_the_command() {
    let farm = Farm::new();
    let cases: [(&[&str], &str); 7] = [
        (&["cancel", "3"], "'windlass job cancel 3' cancels a job"),
        (&["ps"], "'windlass jobs' lists the jobs"),
        (&["status"], "'windlass server status'"),
        (&["rerun", "last"], "'windlass job retry last'"),
        (&["run", "-c", "2", "--", "true"], "--cpus N books N cpus"),
        (&["submit", "-j", "4", "--", "true"], "--max-running N"),
        (&["run", "--retries", "-1", "--", "true"], "'--retries': it must be 0 or more"),
    ];
    for (args, expected) in cases {
        let told = farm.fails(2, args);
        assert!(told.contains(expected) && !told.contains("similar subcommand"), "{args:?}: {told}");
    }
    let told = farm.fails(2, &["run", "--priority", "high", "--", "true"]);
    assert!(told.contains("whole number") && told.contains("'high'"), "{told}");
    let told = farm.fails(2, &["cancel", "3", "-o", "json"]);
    let error: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(error["error"]["code"], "bad_request");
}

#[test]
fn a_shell_line_in_one_word_is_told_how_to_be_one() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let told = farm.fails(127, &["run", "echo a | wc -l"]);
    assert!(told.contains("cannot start 'echo a | wc -l'") && told.contains("sh -c"), "{told}");
    let told = farm.fails(127, &["run", "--", "/no/such/program"]);
    assert!(!told.contains("sh -c"), "{told}");
    let line = "echo ".to_owned() + &"a".repeat(400);
    assert!(farm.fails(127, &["run", &line]).contains("sh -c"), "a name of 400 characters is too long");
}

#[test]
fn a_replacement_string_without_values_is_noted() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let told = |args: &[&str]| String::from_utf8(farm.run(args).stderr).unwrap();
    assert!(told(&["run", "--", "echo", "{}"]).contains("note: {} stands for a value only with --each"));
    assert_eq!(told(&["run", "--each", "a", "--", "echo", "{}"]), "");
    assert_eq!(told(&["run", "--", "find", "/dev/null", "-exec", "true", "{}", ";"]), "");
}

#[test]
fn a_server_that_cannot_be_reached_is_told_by_its_reason() {
    let farm = Farm::new();
    // No resolver is asked for a name of such a length.
    let nobody = format!("{}.invalid:7117", "x".repeat(70));
    let told = farm.fails(5, &["--server", &nobody, "server", "status"]);
    assert!(told.contains("check") && !told.contains("server start"), "{told}");
    let told = farm.fails(5, &["--server", "127.0.0.1:1", "server", "status"]);
    assert!(told.contains("'windlass server start' starts one"), "{told}");
}

#[test]
fn a_backup_is_of_the_server_that_is_named() {
    let farm = Farm::with_server(&["--no-worker"]);
    let own = format!("unix:{}", farm.socket().display());
    farm.ok(&["--server", &own, "server", "backup", "first.db"]);
    assert!(farm.work().join("first.db").exists());
    // WINDLASS_STATE and WINDLASS_STORE are those of the user's own server, and not of the one that is named.
    let store = format!("sqlite:{}", farm.state().join("windlass.db").display());
    for named in ["farm.invalid:7117", "unix:/nowhere"] {
        let mut command = farm.command(&["server", "backup", "second.db"]);
        let output = command.env("WINDLASS_SERVER", named).env("WINDLASS_STORE", &store).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(named) && told.contains("--state"), "{told}");
        assert!(!farm.work().join("second.db").exists());
    }
    let state = farm.state();
    let named = ["--server", "farm.invalid:7117", "server", "backup", "third.db", "--state"];
    farm.ok(&[&named[..], &[state.to_str().unwrap()]].concat());
}

#[test]
fn jobs_of_scripts_are_named_by_them_and_commands_are_shown_quoted() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["run", "--", "sh", "-c", "set -e; echo one two >&2; exit 0"]);
    farm.ok(&["run", "--", "/bin/echo", "it's", ""]);
    let jobs = farm.json(&["jobs"]);
    assert_eq!((&jobs[1]["name"], &jobs[0]["name"]), (&"echo".into(), &"echo".into()), "{jobs}");
    let text = farm.ok(&["job", "show", "1"]);
    assert!(text.contains("sh -c 'set -e; echo one two >&2; exit 0'"), "{text}");
    let text = farm.ok(&["job", "show", "2"]);
    assert!(text.contains(r"/bin/echo 'it'\''s' ''"), "{text}");
}
