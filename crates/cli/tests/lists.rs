//! Lists and logs as people read them: as wide as their terminal, sorted, limited in time, and by lines.

use crate::support::{Farm, show, windlass};
use std::process::{Command, Stdio};

const LONG: &str = "a-job-with-a-name-that-is-longer-than-a-narrow-terminal-has-room-for";

#[test]
fn lists_are_sorted_and_limited_in_time() {
    let farm = Farm::new();
    for name in ["c", "a", "b"] {
        farm.ok(&["run", "--name", name, "--", "true"]);
    }
    let names = |args: &[&str]| farm.ok(&[&["jobs", "-o", "name"][..], args].concat());
    assert_eq!(names(&[]), "3\n2\n1\n");
    assert_eq!(names(&["--sort", "name"]), "2\n3\n1\n");
    assert_eq!(names(&["--sort", "NAME:desc", "--limit", "2"]), "1\n3\n");
    assert_eq!(names(&["--since", "1h"]), "3\n2\n1\n");
    assert_eq!(names(&["--since", "2100-01-01"]), "");
    assert_eq!(farm.ok(&["job", "tasks", "1", "--since", "1h", "-o", "name"]), "1.0\n");
    assert_eq!(farm.ok(&["job", "tasks", "1", "--since", "2100-01-01", "-o", "name"]), "");
    let sorted = farm.json(&["jobs", "--sort", "name"]);
    assert_eq!(
        sorted.as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect::<Vec<_>>(),
        [2, 3, 1]
    );
    let error = farm.fails(2, &["queues", "--sort", "colour"]);
    assert!(error.contains("the columns are name, band, weight"), "{error}");
    let error = farm.fails(2, &["jobs", "--watch"]);
    assert!(error.contains("standard output is not one") && error.contains("windlass events"), "{error}");
}

#[test]
fn a_failed_task_is_not_done() {
    let farm = Farm::new();
    farm.fails(1, &["run", "--name", "bad", "--array", "1-3", "--", "sh", "-c", "test {} != 2"]);
    let table = farm.ok(&["jobs"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(row[1] == "failed" && row.contains(&"2/3"), "{table}");
    let output = farm.run(&["run", "--progress", "--array", "1-2", "--", "false"]);
    assert!(show(&output).contains("0 of 2 done, 2 failed"), "{}", show(&output));
}

#[test]
fn logs_are_read_by_lines() {
    let farm = Farm::new();
    let long = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); printf '%0200d\\n' $i; done; echo end >&2";
    farm.ok(&["run", "-q", "--", "sh", "-c", long]);
    let lines = |args: &[&str]| farm.ok(&[&["logs", "1.0", "--stdout"][..], args].concat());
    assert_eq!(lines(&["-n", "2"]), format!("{:0200}\n{:0200}\n", 299, 300));
    assert_eq!(lines(&["-n", "0"]), "");
    // Their bytes are more than are read at first.
    assert_eq!(lines(&["-n", "100"]).lines().next(), Some(&*format!("{:0200}", 201)));
    assert_eq!(lines(&["-n", "1000"]).lines().count(), 300);
    assert_eq!(lines(&["-f", "-n", "1"]), format!("{:0200}\n", 300));

    farm.ok(&["run", "-q", "--each", "a", "b", "--", "printf", "%s\\nno end", "{}"]);
    assert_eq!(farm.ok(&["logs", "2"]), "a\nno endb\nno end", "what is piped stays as it was");
    let prefixed = "2.0 | a\n2.0 | no end\n2.1 | b\n2.1 | no end\n";
    assert_eq!(farm.ok(&["logs", "2", "--prefix"]), prefixed);
    let mut followed: Vec<String> =
        farm.ok(&["logs", "2", "--prefix", "-f"]).lines().map(str::to_owned).collect();
    followed.sort();
    assert_eq!(followed, prefixed.lines().collect::<Vec<_>>());
}

/// What a command prints on a terminal of that width, without colours.
fn on_terminal(farm: &Farm, columns: usize, args: &str) -> String {
    let of_farm = farm.command(&[]);
    let mut script = Command::new("script");
    let command = format!("{} {args}", windlass());
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    for (name, value) in of_farm.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.env("COLUMNS", columns.to_string()).env("NO_COLOR", "1").current_dir(farm.work());
    let output = script.stdin(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap().replace('\r', "")
}

#[test]
fn tables_are_as_wide_as_their_terminal() {
    if Command::new("script").arg("--version").output().is_err() {
        return println!("SKIP tables_are_as_wide_as_their_terminal: needs script of util-linux");
    }
    let farm = Farm::new();
    farm.ok(&["run", "-q", "--name", LONG, "--array", "1-2", "--", "echo", "frame", "{}"]);
    for columns in [60, 80, 100, 120, 200] {
        for list in ["jobs", "job tasks 1", "job show 1", "workers", "queues"] {
            let text = on_terminal(&farm, columns, list);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(
                widest.is_some_and(|widest| widest > 10 && widest <= columns),
                "{columns} {list}:\n{text}"
            );
        }
    }
    let narrow = on_terminal(&farm, 60, "jobs");
    assert!(narrow.contains("a-job-with") && narrow.contains('…') && !narrow.contains(LONG), "{narrow}");
    for whole in [on_terminal(&farm, 60, "jobs -o wide"), farm.ok(&["jobs"])] {
        assert!(whole.contains(LONG) && whole.contains("PRIORITY"), "{whole}");
    }
    let logs = on_terminal(&farm, 60, "logs 1");
    assert_eq!(logs, "1.0 | frame 1\n1.1 | frame 2\n");
}
