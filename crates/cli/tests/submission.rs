//! Submissions from files and by the command line: what is accepted, what is refused, and what only is said.

use crate::support::{Farm, show, wait_until};
use std::io::Write as _;
use std::process::Stdio;

/// Writes a file into the farm's directory and returns its path.
fn file(farm: &Farm, name: &str, text: &str) -> String {
    let path = farm.work().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs the program with this text on standard input.
fn fed(farm: &Farm, args: &[&str], text: &str) -> std::process::Output {
    let mut child = farm
        .command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_job_in_a_file_runs_with_its_dependences() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let text = "kind: windlass/job\nname: dag\nsteps:\n- name: first\n  command: [sh, -c, 'echo first >> out']\n\
                - name: second\n  command: [sh, -c, 'cat out; echo $MADE']\n  env: {MADE: here}\n  depends: [{on: \
                first}]\n";
    let yaml = file(&farm, "job.yaml", text);
    assert_eq!(farm.ok(&["run", "-f", &yaml]), "first\nhere\n");
    let toml = "kind = 'windlass/job'\n[[steps]]\ncommand = ['echo', '{}']\nparam.values = ['x']\n";
    let output = fed(&farm, &["run", "-f", "-"], toml);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n", "{}", show(&output));
    let json = r#"{"kind": "windlass/job", "steps": [{"command": ["true"]}]}"#;
    let json = file(&farm, "job.json", json);
    farm.ok(&["submit", "--wait", "--name", "other", "-f", &json]);
    assert_eq!(farm.json(&["job", "show", "last"])["name"], "other");
    let bad = file(&farm, "bad.yaml", &text.replace("depends", "dependz"));
    let said = farm.fails(2, &["submit", "-f", &bad]);
    assert!(
        said.contains("bad.yaml:9: steps[1] -> dependz") && said.contains("did you mean 'depends'?"),
        "{said}"
    );
    let without = file(&farm, "without.yaml", &text.replace("kind: windlass/job\n", ""));
    let said = farm.fails(2, &["run", "-f", &without]);
    assert!(said.contains("add kind: windlass/job"), "{said}");
}

#[test]
fn a_limit_that_is_not_set_is_refused_unless_that_is_wanted() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    farm.ok(&["limit", "set", "maya", "1"]);
    let said = farm.fails(2, &["run", "--limit", "mayaa", "--", "true"]);
    assert!(said.contains("there is no limit 'mayaa'; did you mean 'maya'?"), "{said}");
    assert!(said.contains("the limits are maya") && said.contains("--limit-unset-ok"), "{said}");
    assert_eq!(farm.json(&["jobs"]), serde_json::json!([]));
    farm.ok(&["run", "--limit", "nuke", "--limit-unset-ok", "--", "true"]);
    // A job that is there is answered for, and one whose limit is removed goes on.
    let first = farm.ok(&["submit", "-o", "name", "--key", "k", "--limit", "maya", "--", "true"]);
    farm.ok(&["limit", "remove", "maya"]);
    let again = farm.ok(&["submit", "-o", "name", "--key", "k", "--limit", "maya", "--", "true"]);
    assert_eq!(first, again);
    farm.ok(&["job", "wait", first.trim()]);
}

#[test]
fn a_queue_that_a_job_makes_is_said() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let output = farm.run(&["run", "--queue", "bbo", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("note: queue 'bbo' was created"), "{said}");
    for args in [&["run", "--queue", "bbo", "--", "true"][..], &["run", "--", "true"]] {
        let output = farm.run(args);
        assert!(output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("was created"));
    }
}

#[test]
fn a_queue_without_work_is_removed_for_good() {
    let mut farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["queue", "set", "flim", "--weight", "10"]);
    let job = farm.ok(&["submit", "-o", "name", "--queue", "flim", "--", "sleep", "1000"]);
    let said = farm.fails(1, &["queue", "remove", "flim"]);
    assert!(
        said.contains("queue 'flim' has unfinished jobs") && said.contains("windlass jobs --queue flim"),
        "{said}"
    );
    farm.ok(&["job", "cancel", job.trim()]);
    farm.fails(130, &["job", "wait", job.trim()]);
    // The job's end is told before it is forgotten.
    wait_until("the queue goes", || farm.run(&["queue", "remove", "flim"]).status.success());
    farm.fails(3, &["queue", "show", "flim"]);
    farm.fails(3, &["queue", "remove", "flim"]);
    farm.kill_server();
    farm.start();
    assert!(!farm.ok(&["queue", "list"]).contains("flim"));
}

#[test]
fn a_dry_run_says_what_would_happen_and_submits_nothing() {
    let farm = Farm::with_server(&["--cpus", "2", "--name", "here"]);
    wait_until("the worker is there", || farm.json(&["workers"])[0]["state"] == "up");
    let args = ["submit", "--dry-run", "--queue", "film", "--array", "1-5", "--", "true"];
    let text = farm.ok(&args);
    assert!(text.contains("(5 tasks) would be accepted in queue film, which would be created"), "{text}");
    assert!(text.contains("would start now: 2 on here"), "{text}");
    assert!(text.contains("3 tasks would wait: every worker that could run it is busy"), "{text}");
    let json = farm.ok(&[&["submit", "-o", "json"][..], &args[1..]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let step = &json["steps"][0];
    assert_eq!((&step["step"]["resources"]["cpus"], &step["waiting"]), (&1.0.into(), &3.into()), "{json}");
    assert_eq!(step["starts"], serde_json::json!([{"worker": "here", "tasks": 2}]));
    assert_eq!(step["why"]["reason"], "full");
    assert_eq!(
        (farm.json(&["jobs"]), farm.json(&["queues"])),
        (serde_json::json!([]), serde_json::json!([]))
    );
    // The checks of a submission hold.
    farm.fails(6, &["submit", "--dry-run", "--cpus", "3", "--", "true"]);
    farm.fails(6, &["run", "--dry-run", "--cpus", "3", "--", "true"]);
    let said = farm.fails(2, &["run", "--dry-run", "--limit", "maya", "--", "true"]);
    assert!(said.contains("there is no limit 'maya'"), "{said}");
    let paused = ["queue", "set", "ann", "--weight", "10"];
    farm.ok(&paused);
    farm.ok(&["queue", "pause", "ann", "--note", "backup"]);
    let text = farm.ok(&["submit", "--dry-run", "--queue", "ann", "--", "true"]);
    assert!(text.contains("1 task would wait: its queue is paused: backup"), "{text}");
    farm.fails(1, &["run", "--", "false"]);
    let text = farm.ok(&["submit", "--dry-run", "--after", "1", "--", "true"]);
    let skipped = "1 task would be skipped at once: job 1, which it comes after, did not succeed";
    assert!(text.contains(skipped), "{text}");
    let text = farm.ok(&["submit", "--dry-run", "--after-each", "1", "--", "true"]);
    assert!(text.contains("1 task would be skipped at once: no task of job 1 succeeded"), "{text}");
    let named = ["submit", "-o", "name", "--dry-run", "--key", "k", "--", "true"];
    assert_eq!(farm.ok(&named), "", "a job that is not submitted has no id");
    let job = farm.ok(&["submit", "-o", "name", "--key", "k", "--", "true"]);
    assert_eq!(farm.ok(&named), job);
    let text = farm.ok(&["submit", "--dry-run", "--key", "k", "--", "true"]);
    assert_eq!(text, format!("nothing would be submitted: job {} has this key\n", job.trim()));
}

#[test]
fn parameters_of_a_template_are_listed_and_misspelt_ones_named() {
    let farm = Farm::new();
    let text = "specificationVersion: jobtemplate-2023-09\nname: T\nparameterDefinitions:\n- {name: Frames, type: \
                STRING, default: 1-3, description: What is rendered}\n- {name: Kind, type: STRING, allowedValues: [a, \
                b]}\nsteps:\n- name: S\n  script:\n    actions:\n      onRun: {command: 'true'}\n";
    let template = file(&farm, "job.yaml", text);
    let list = farm.ok(&["submit", "-f", &template, "--parameters"]);
    assert!(list.contains("Frames") && list.contains("1-3") && list.contains("What is rendered"), "{list}");
    let json = farm.json(&["run", "-f", &template, "--parameters"]);
    assert_eq!(json[1], serde_json::json!({"name": "Kind", "type": "STRING", "allowed": ["a", "b"]}));
    let said = farm.fails(2, &["run", "-f", &template, "-p", "Frame=1-10", "-p", "Kind=a"]);
    assert!(said.contains("no parameter 'Frame'; did you mean 'Frames'? It has Frames, Kind"), "{said}");
    assert!(said.contains("--parameters"), "{said}");
    // A mistake of the template itself is not about its values.
    let wrong = file(&farm, "wrong.yaml", &text.replace("onRun", "onRum"));
    let said = farm.fails(2, &["run", "-f", &wrong]);
    assert!(!said.contains("hint:"), "{said}");
}

#[test]
fn a_wait_ends_at_its_timeout_and_the_job_goes_on() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let gate = farm.work().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let job = farm.ok(&["submit", "-o", "name", "--", "cat", gate.to_str().unwrap()]);
    let said = farm.fails(124, &["job", "wait", "--timeout", "100ms", job.trim()]);
    assert!(said.contains("not ended within 100ms"), "{said}");
    wait_until("it runs", || farm.json(&["job", "show", job.trim()])["state"] == "running");
    std::fs::write(&gate, "").unwrap();
    farm.ok(&["job", "wait", "--timeout", "5m", job.trim()]);
}

#[test]
fn values_are_numbers_in_lists_padded_or_end_with_nul_bytes() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let sorted = |text: &str| {
        let mut parts: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        parts.sort_unstable();
        parts.concat()
    };
    let said = farm.ok(&["run", "--array", "1,08-10", "--", "echo", "f{}"]);
    assert_eq!(sorted(&said), "f08\nf09\nf1\nf10\n");
    let output = fed(&farm, &["run", "-0", "--each-line", "-", "--", "printf", "<%s>"], "a b\0c\nd\0");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("<a b>") && said.contains("<c\nd>"), "{}", show(&output));
    std::fs::write(farm.work().join("odd"), b"ok\n\xff\n").unwrap();
    let said = farm.fails(2, &["run", "--each-line", "odd", "--", "true"]);
    assert!(said.contains("line 2 is not valid UTF-8") && said.contains("--array"), "{said}");
}

#[test]
fn a_list_that_is_still_being_written_starts_at_once() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let args = ["submit", "-o", "name", "--stream", "--each-line", "-", "--", "true"];
    let mut child = farm.command(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a\nb\n").unwrap();
    wait_until("the first values are a job", || farm.json(&["jobs"])[0]["counts"]["total"] == 2);
    stdin.write_all(b"c\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    let ids = String::from_utf8(output.stdout).unwrap();
    assert_eq!(ids.lines().count(), 2, "{ids}");
    let shown = farm.json(&["job", "show", "last"]);
    assert_eq!(
        (&shown["counts"]["total"], &shown["steps"][0]["command"]),
        (&1.into(), &serde_json::json!(["true", "{}"]))
    );
}
