//! Environment variables of the program: an empty one counts as unset.

use crate::support::{Farm, show, windlass};
use std::collections::BTreeSet;

/// The names of all variables that help names, and those of settings.
fn variables(farm: &Farm) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for command in [&["run"][..], &["server", "start"], &["worker", "start"], &["server", "backup"]] {
        let mut args = command.to_vec();
        args.push("--help");
        let help = farm.ok(&args);
        for part in help.split("WINDLASS_").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
            names.insert(format!("WINDLASS_{}", name.trim_end_matches('_')));
        }
    }
    names.extend(["WINDLASS_LOG", "WINDLASS_KEEP_DAYS", "WINDLASS_IDLE_MINUTES"].map(str::to_owned));
    names
}

#[test]
fn an_empty_variable_is_an_unset_one() {
    let farm = Farm::new();
    let names = variables(&farm);
    for expected in ["WINDLASS_OUTPUT", "WINDLASS_SERVER", "WINDLASS_LEASE", "WINDLASS_WORKER_CPUS"] {
        assert!(names.contains(expected), "{expected}: {names:?}");
    }
    // The directories of the test's farm stay as they are.
    let emptied =
        names.iter().filter(|name| !["WINDLASS_STATE", "WINDLASS_RUNTIME"].contains(&name.as_str()));
    let emptied: Vec<(&String, &str)> = emptied.map(|name| (name, "")).collect();
    let run = |args: &[&str]| farm.command(args).envs(emptied.iter().copied()).output().unwrap();
    // It starts the server, too, with the same environment.
    let output = run(&["run", "--", "sh", "-c", "echo \"${WINDLASS_TOKEN-unset} $WINDLASS_JOB\""]);
    assert!(output.status.success(), "{}\n{}", show(&output), farm.server_log());
    assert_eq!(output.stdout, b"unset 1\n");
    for args in [&["jobs"][..], &["doctor", "worker"], &["server", "backup", "copy"]] {
        let output = run(args);
        assert!(output.status.code() == Some(0) || args[0] == "doctor", "{args:?}: {}", show(&output));
        assert!(!String::from_utf8_lossy(&output.stderr).contains("invalid value"), "{}", show(&output));
    }
}

#[test]
fn a_value_that_is_empty_stays_a_value_of_its_task() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let nested = format!("exec {} run -- sh -c 'echo \"${{WINDLASS_VALUE-unset}}\"'", windlass());
    let out = farm.ok(&["run", "--each=", "--", "sh", "-c", &nested]);
    assert_eq!(out, "\n");
}
