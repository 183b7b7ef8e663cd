//! Open Job Description templates, run for real.

use crate::support::{self, Farm, wait_until};
use std::path::{Path, PathBuf};

const HEAD: &str = "specificationVersion: jobtemplate-2023-09\nname: T\n";

/// Writes a template into the farm's directory.
fn template(farm: &Farm, text: &str) -> String {
    let path = farm.work().join("job.yaml");
    std::fs::write(&path, format!("{HEAD}{text}")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A step whose tasks run this script of a shell.
fn step(script: &str, more: &str) -> String {
    let script = script.replace('\n', "\n        ");
    format!(
        "steps:\n- name: S\n  script:\n    actions:\n      onRun: {{command: sh, args: ['{{{{Task.File.Run}}}}']}}\n    \
         embeddedFiles:\n    - name: Run\n      type: TEXT\n      data: |\n        {script}\n{more}"
    )
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Waits until a file holds a line, and returns the whole file.
fn wait_for(path: &Path, line: &str) -> String {
    wait_until(&format!("{} holds {line}", path.display()), || read(path).lines().any(|l| l == line));
    read(path)
}

fn session_dirs(farm: &Farm) -> Vec<String> {
    support::names(&farm.state().join("sessions"))
}

#[test]
fn environments_are_entered_once_in_order_and_left_in_reverse() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let log = farm.work().join("log");
    let environment = |name: &str, extra: &str| {
        format!(
            "- name: {name}\n  variables: {{V_{name}: 'in {name}'}}\n  script:\n    embeddedFiles:\n    - {{name: Up, \
             type: TEXT, runnable: true, data: \"#!/bin/sh\\necho enter {name} $V_One $V_Two >> {log}\\n{extra}\"}}\n    \
             actions:\n      onEnter: {{command: '{{{{Env.File.Up}}}}'}}\n      onExit: {{command: sh, args: ['-c', \
             'echo leave {name} $MADE >> {log}']}}\n",
            log = log.display()
        )
    };
    let run =
        format!("echo task $V_One $V_Two $MADE ${{GONE-none}} {{{{Task.Param.N}}}} >> {}", log.display());
    let inner = environment("Two", "").lines().map(|line| format!("  {line}\n")).collect::<String>();
    let text = format!(
        "jobEnvironments:\n{}{}",
        environment("One", "echo 'openjd_env: MADE=here'\\necho 'openjd_unset_env: GONE'"),
        step(
            &run,
            &format!(
                "  stepEnvironments:\n{inner}  parameterSpace:\n    taskParameterDefinitions:\n    - {{name: N, type: \
                 INT, range: 1-6}}\n"
            )
        )
    );
    let file = template(&farm, &text);
    farm.ok(&["run", "--env", "GONE=1", "-f", &file]);
    let text = wait_for(&log, "leave One here");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["enter One in One", "enter Two in One in Two"], "{text}");
    let mut tasks = lines[2..8].to_vec();
    tasks.sort_unstable();
    let expected: Vec<String> = (1..=6).map(|n| format!("task in One in Two here none {n}")).collect();
    assert_eq!(tasks, expected);
    assert_eq!(lines[8..], ["leave Two here", "leave One here"]);
    wait_until("the session's directory is gone", || session_dirs(&farm).is_empty());
}

#[test]
fn files_paths_and_parameters_reach_the_task() {
    let farm = Farm::with_server(&[]);
    let rules = farm.work().join("rules.json");
    let rule = r#"{"source_path_format": "POSIX", "source_path": "/artist", "destination_path": "/farm"}"#;
    std::fs::write(&rules, format!(r#"{{"version": "pathmapping-1.0", "path_mapping_rules": [{rule}]}}"#))
        .unwrap();
    let script = "echo {{Param.In}} {{RawParam.In}} {{Task.Param.Tile}} {{Task.RawParam.Tile}}
echo '{{Param.Text}}'
echo {{Session.HasPathMappingRules}}
cat {{Session.PathMappingRulesFile}}; echo
test \"$PWD\" = {{Session.WorkingDirectory}} && echo at home
stat -c %a '{{Task.File.Run}}' '{{Session.WorkingDirectory}}'
echo $WINDLASS_VALUE";
    let definitions = "parameterDefinitions:\n- {name: In, type: PATH}\n- {name: Text, type: STRING}\n";
    let space = "  parameterSpace:\n    taskParameterDefinitions:\n    - {name: Tile, type: PATH, range: [/artist/t]}\n";
    let file = template(&farm, &format!("{definitions}{}", step(script, space)));
    let odd = "Text={{Task.Param.Tile}} {";
    let args =
        ["run", "-f", &file, "--path-mapping", rules.to_str().unwrap(), "-p", "In=/artist/a", "-p", odd];
    let out = farm.ok(&args);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "/farm/a /artist/a /farm/t /artist/t");
    assert_eq!(lines[1], "{{Task.Param.Tile}} {");
    assert_eq!(lines[2], "true");
    assert!(lines[3].contains("pathmapping-1.0") && lines[3].contains("/artist"), "{out}");
    assert_eq!(
        lines[4..],
        ["at home", "600", "700", "Tile=/farm/t"].map(|l| l.replace("/farm/t", "/artist/t"))
    );
}

#[test]
fn steps_chain_and_parameters_associate() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let text = "steps:
- name: Make
  parameterSpace:
    taskParameterDefinitions:
    - {name: Frame, type: INT, range: 1-2}
    - {name: Eye, type: STRING, range: [l, r]}
    - {name: Out, type: STRING, range: [x, y]}
    combination: Frame * (Eye, Out)
  script: {actions: {onRun: {command: touch, args: ['{{Param.Dir}}/{{Task.Param.Frame}}{{Task.Param.Eye}}{{Task.Param.Out}}']}}}
- name: List
  dependencies: [{dependsOn: Make}]
  script: {actions: {onRun: {command: ls, args: ['{{Param.Dir}}']}}}
parameterDefinitions:
- {name: Dir, type: PATH, default: made}
";
    let file = template(&farm, text);
    std::fs::create_dir(farm.work().join("made")).unwrap();
    assert_eq!(farm.ok(&["run", "-f", &file]), "1lx\n1ry\n2lx\n2ry\n");
    let tasks = farm.json(&["job", "tasks", "last"]);
    assert_eq!(tasks[3]["value"], "Frame=2 Eye=r Out=y");
}

#[test]
fn contiguous_chunks_have_two_ends_and_end_at_gaps() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    // As in the first example of RFC 0001: the script divides what it gets at the dash.
    let script = "range='{{Task.Param.Frame}}'\necho from ${range%-*} to ${range#*-}";
    let space = "  parameterSpace:\n    taskParameterDefinitions:\n    - {name: Frame, type: 'CHUNK[INT]', range: \
                 '{{Param.Frames}}', chunks: {defaultTaskCount: 10, rangeConstraint: CONTIGUOUS}}\n";
    let definitions = "extensions: [TASK_CHUNKING]\nparameterDefinitions:\n- {name: Frames, type: STRING, default: '1-12'}\n";
    let file = template(&farm, &format!("{definitions}{}", step(script, space)));
    assert_eq!(
        farm.ok(&["run", "-f", &file, "-p", "Frames=7,12-14,95"]),
        "from 7 to 7\nfrom 12 to 14\nfrom 95 to 95\n"
    );
    let job = farm.json(&["job", "show", "last"]);
    assert_eq!((&job["steps"][0]["tasks"], &job["steps"][0]["processes"]), (&5.into(), &3.into()), "{job}");
    assert!(farm.ok(&["job", "show", "last"]).contains("5 tasks in 3 processes"));
    assert_eq!(farm.ok(&["run", "-f", &file]), "from 1 to 6\nfrom 7 to 12\n");
}

#[test]
fn a_template_comes_from_standard_input() {
    let farm = Farm::with_server(&[]);
    let path = PathBuf::from(template(&farm, &step("echo hello", "")));
    let mut command = farm.command(&["run", "-f", "-"]);
    let output = command.stdin(std::fs::File::open(path).unwrap()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "{}", support::show(&output));
}

#[test]
fn mistakes_are_told_with_their_lines() {
    let farm = Farm::with_server(&[]);
    let file = template(&farm, &step("true", "  colour: red\n"));
    let error = farm.fails(2, &["run", "-f", &file]);
    assert!(error.contains("job.yaml:13: steps[0]"), "{error}");
    assert!(error.contains("colour"), "{error}");
}

#[test]
fn a_timeout_ends_an_action() {
    let farm = Farm::with_server(&[]);
    let text = step("sleep 60", "").replace("onRun: {", "onRun: {timeout: 1, ");
    let file = template(&farm, &text);
    let error = farm.fails(124, &["run", "-f", &file]);
    assert!(error.contains("time limit"), "{error}");
}

#[test]
fn a_cancelled_task_is_notified_and_environments_are_left() {
    let farm = Farm::with_server(&[]);
    let log = farm.work().join("log");
    let script = format!(
        "trap 'cat cancel_info.json >> {log}; echo told >> {log}; exit 3' TERM\necho started >> {log}\nwhile :; do sleep \
         0.05; done",
        log = log.display()
    );
    let environments = format!(
        "jobEnvironments:\n- name: E\n  script: {{actions: {{onEnter: {{command: 'true'}}, onExit: {{command: sh, args: \
         ['-c', 'echo left >> {}']}}}}}}\n",
        log.display()
    );
    let text = format!("{environments}{}", step(&script, ""));
    let text = text.replace(
        "onRun: {",
        "onRun: {cancelation: {mode: NOTIFY_THEN_TERMINATE, notifyPeriodInSeconds: 60}, ",
    );
    let file = template(&farm, &text);
    let job = farm.ok(&["submit", "-f", &file, "-o", "name"]);
    wait_for(&log, "started");
    farm.ok(&["job", "cancel", job.trim()]);
    let text = wait_for(&log, "left");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("{\"NotifyEnd\": \"20") && lines[1].ends_with("Z\"}"), "{text}");
    assert_eq!((lines[2], lines[3]), ("told", "left"));
}

#[test]
fn a_pipe_in_the_place_of_a_file_does_not_hold_the_keeper_up() {
    let farm = Farm::with_server(&[]);
    let log = farm.work().join("log");
    let script = format!(
        "mkfifo cancel_info.json\ntrap 'echo told >> {0}; exit 3' TERM\necho started >> {0}\n\
         while :; do sleep 0.05; done",
        log.display()
    );
    let text = step(&script, "").replace(
        "onRun: {",
        "onRun: {cancelation: {mode: NOTIFY_THEN_TERMINATE, notifyPeriodInSeconds: 60}, ",
    );
    let job = farm.ok(&["submit", "-f", &template(&farm, &text), "-o", "name"]);
    wait_for(&log, "started");
    farm.ok(&["job", "cancel", job.trim()]);
    wait_for(&log, "told");
    farm.run(&["job", "wait", job.trim()]);
    farm.ok(&["run", "--", "true"]);
}

#[test]
fn a_task_that_is_terminated_is_not_asked() {
    let farm = Farm::with_server(&[]);
    let log = farm.work().join("log");
    let script = format!(
        "trap 'echo told >> {0}' TERM\necho started >> {0}\nwhile :; do sleep 0.05; done",
        log.display()
    );
    let file = template(&farm, &step(&script, ""));
    let job = farm.ok(&["submit", "-f", &file, "-o", "name"]);
    wait_for(&log, "started");
    farm.ok(&["job", "cancel", job.trim()]);
    farm.run(&["job", "wait", job.trim()]);
    assert_eq!(read(&log), "started\n");
}

#[test]
fn an_environment_that_cannot_be_entered_fails_the_task_and_is_left() {
    let farm = Farm::with_server(&[]);
    let log = farm.work().join("log");
    let environments = format!(
        "jobEnvironments:\n- name: E\n  script: {{actions: {{onEnter: {{command: sh, args: ['-c', 'echo openjd_fail: no \
         licence; exit 7']}}, onExit: {{command: sh, args: ['-c', 'echo left >> {}']}}}}}}\n",
        log.display()
    );
    let environments = environments
        .replace("'echo openjd_fail: no", "'echo \"openjd_fail: no")
        .replace("licence;", "licence\";");
    let environments = environments.replace("['-c', 'echo \"openjd", "[-c, 'echo \"openjd");
    let file = template(&farm, &format!("{environments}{}", step("echo never", "")));
    let error = farm.fails(7, &["run", "-f", &file]);
    assert!(error.contains("entering the environment 'E' failed: no licence"), "{error}");
    wait_for(&log, "left");
    let task = farm.json(&["job", "tasks", "last"]);
    assert_eq!(task[0]["message"], "entering the environment 'E' failed: no licence");
}

#[test]
fn progress_is_shown_while_a_task_runs() {
    let farm = Farm::with_server(&[]);
    let go_on = farm.work().join("go-on");
    let script = format!(
        "echo 'openjd_progress: 42.5'\necho 'openjd_status: loading' >&2\nwhile ! test -e {}; do sleep 0.05; done\necho \
         'openjd_fail: too dark'\nexit 9",
        go_on.display()
    );
    let file = template(&farm, &step(&script, ""));
    let job = farm.ok(&["submit", "-f", &file, "-o", "name"]);
    let job = job.trim();
    wait_until("progress is told", || farm.json(&["job", "tasks", job])[0]["progress"] == 42.5);
    assert_eq!(farm.json(&["job", "tasks", job])[0]["status"], "loading");
    assert!(farm.ok(&["job", "tasks", job]).contains("42.5% loading"));
    assert!(farm.ok(&["job", "show", job]).contains("42.5% loading"));
    std::fs::write(&go_on, "").unwrap();
    farm.run(&["job", "wait", job]);
    let task = &farm.json(&["job", "tasks", job])[0];
    assert_eq!((&task["exit_code"], &task["message"]), (&9.into(), &"too dark".into()));
    assert!(task.get("progress").is_none(), "{task}");
}

#[test]
fn a_job_over_http_uses_the_same_words() {
    let farm = Farm::with_server(&[]);
    let body = serde_json::json!({ "steps": [{
        "command": ["echo", "{{Task.Param.N}}", "{}"],
        "param": { "space": { "params": [{ "name": "N", "values": { "ranges": [{ "start": 5, "end": 5 }] } }] } },
    }] });
    _ = rustls::crypto::ring::default_provider().install_default();
    let request: windlass_api::SubmitRequest = serde_json::from_value(body).unwrap();
    let client =
        windlass_api::client::Client::new(windlass_api::client::Address::Unix(farm.socket())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let job = runtime.block_on(async { client.submit(&request).await }).unwrap().job.to_string();
    farm.ok(&["job", "wait", &job]);
    assert_eq!(farm.ok(&["logs", &job]), "5 {}\n");
    let mut bad = request;
    bad.steps[0].command.push("{{Task.Param.M}}".to_owned());
    let error = runtime.block_on(async { client.submit(&bad).await }).unwrap_err();
    assert!(error.to_string().contains("refers to '{{Task.Param.M}}'"), "{error}");
}
