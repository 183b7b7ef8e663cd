//! `windlass run` as people use it: output, exit codes, values, dependencies, waiting, holding.

use crate::support::{self, Farm, show, wait_until};

#[test]
fn output_and_exit_code_are_the_commands_own() {
    let farm = Farm::new();
    let output = farm.run(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", show(&output));
    assert_eq!(output.stdout, b"out\n");
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("err\n") && err.contains("exit code 3"), "{err}");
    assert_eq!(farm.run(&["run", "--", "sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    assert_eq!(farm.run(&["run", "--", "sh", "-c", "kill -TERM $$"]).status.code(), Some(143));
    let missing = farm.fails(127, &["run", "--", "/no/such/program"]);
    assert!(missing.contains("/no/such/program") && missing.contains("No such file"), "{missing}");
}

#[test]
fn values_fill_in_as_in_gnu_parallel() {
    let farm = Farm::new();
    let mut lines: Vec<String> = farm
        .ok(&["run", "--each", "a/b.c", "d.e", "--", "echo", "{}", "{.}", "{/}", "{//}", "{/.}"])
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    assert_eq!(lines, ["a/b.c a/b b.c a b", "d.e d d.e . d"]);
    assert_eq!(farm.ok(&["run", "--each", "x", "--", "echo", "no-string"]), "no-string x\n");
    let squares = farm.ok(&["run", "--array", "3-9:3", "--", "sh", "-c", "echo $WINDLASS_VALUE {}"]);
    let mut squares: Vec<&str> = squares.lines().collect();
    squares.sort();
    assert_eq!(squares, ["3 3", "6 6", "9 9"]);
    std::fs::write(farm.work().join("list"), "one\ntwo words\n").unwrap();
    let listed = farm.ok(&["run", "--each-line", "list", "--", "printf", "<%s>\n"]);
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort();
    assert_eq!(listed, ["<one>", "<two words>"]);
}

#[test]
fn environment_and_directory_are_the_callers() {
    let farm = Farm::new();
    let mut command = farm.command(&["run", "--", "sh", "-c", "echo $COLOUR; pwd"]);
    let output = command.env("COLOUR", "red green").output().unwrap();
    let work = farm.work();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("red green\n{}\n", work.display()));
    let chosen = farm.ok(&[
        "run",
        "--env",
        "none",
        "--env",
        "A=1",
        "--cwd",
        "/",
        "--",
        "/bin/sh",
        "-c",
        "echo $A$WINDLASS_STATE; pwd",
    ]);
    assert_eq!(chosen, "1\n/\n");
}

#[test]
fn the_first_failed_task_in_task_order_gives_the_exit_code() {
    let farm = Farm::with_server(&["--cpus", "4"]);
    let command = "case {} in 1) while [ ! -e later ]; do :; done; exit 11;; 3) touch later; exit 13;; esac";
    farm.fails(11, &["run", "--array", "0-3", "--", "sh", "-c", command]);
}

#[test]
fn limits_end_tasks_with_their_codes() {
    let farm = Farm::new();
    let late = farm.fails(124, &["run", "--time-limit", "100ms", "--", "sleep", "1000.0625"]);
    assert!(late.contains("time limit"), "{late}");
    // A task that ignores the first signal is killed too.
    farm.fails(
        124,
        &["run", "--time-limit", "100ms", "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
    );
    assert!(support::processes_with("sleep 1000.0625").is_empty());
}

#[test]
fn a_range_of_cpus_takes_what_is_idle_and_says_how_many() {
    let farm = Farm::with_server(&["--cpus", "6"]);
    let cpus = |range: &str| farm.ok(&["run", "--cpus", range, "--", "sh", "-c", "echo $WINDLASS_CPUS"]);
    assert_eq!((cpus("2-16").as_str(), cpus("1-4").as_str(), cpus("0.5").as_str()), ("6\n", "4\n", "0.5\n"));
    farm.fails(2, &["run", "--cpus", "4-2", "--", "true"]);
}

#[test]
fn what_can_never_run_is_refused_at_once() {
    let farm = Farm::with_server(&["--cpus", "2", "--memory", "1GiB", "--name", "box"]);
    let wide = farm.fails(6, &["run", "--cpus", "3", "--", "true"]);
    assert!(wide.contains("cpus: needs 3, has 2"), "{wide}");
    let tag = farm.fails(6, &["run", "--tag", "arch=vax", "--", "true"]);
    assert!(tag.contains("lacks arch=vax"), "{tag}");
    assert_eq!(farm.ok(&["jobs", "-o", "name"]), "", "nothing was left behind");
    // Submitted, it waits for a worker that fits, and says so.
    let output = farm.run(&["submit", "--memory", "2GiB", "-o", "name", "--", "true"]);
    assert_eq!(output.status.code(), Some(6), "{}", show(&output));
    assert_eq!(output.stdout, b"1\n");
    let why = farm.json(&["why", "1.0"]);
    let why = if why.is_array() { why[0].clone() } else { why };
    assert_eq!(why["reason"], "fits_nowhere");
    assert!(why["changes"][0]["steps"][0].as_str().unwrap().contains("--memory 1GiB:"), "{why}");
}

#[test]
fn retries_spend_themselves_and_leave_a_history() {
    let farm = Farm::new();
    let command = "n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n; echo try $n; [ $n = 2 ]";
    assert_eq!(farm.ok(&["run", "--retries", "3", "--", "sh", "-c", command]), "try 2\n");
    let task = farm.json(&["job", "tasks", "1"]);
    assert_eq!(task[0]["attempt"], 3);
    let first = farm.ok(&["logs", "1.0", "--attempt", "1"]);
    assert_eq!(first, "try 0\n");
    farm.fails(1, &["run", "--retries", "2", "--", "false"]);
    assert_eq!(farm.json(&["job", "tasks", "2"])[0]["attempt"], 3);
}

#[test]
fn jobs_come_after_jobs() {
    let farm = Farm::new();
    let first = farm.ok(&["submit", "-o", "name", "--", "sh", "-c", "echo a >> order"]);
    farm.ok(&["run", "--after", first.trim(), "--", "sh", "-c", "echo b >> order"]);
    assert_eq!(std::fs::read_to_string(farm.work().join("order")).unwrap(), "a\nb\n");
    farm.fails(1, &["run", "--", "false"]);
    let skipped = farm.fails(1, &["run", "--after", "last", "--", "touch", "never"]);
    assert!(skipped.contains("job 3"), "{skipped}");
    assert!(!farm.work().join("never").exists());
    farm.fails(3, &["run", "--after", "99", "--", "true"]);
}

#[test]
fn tasks_come_after_the_tasks_of_another_job() {
    let farm = Farm::with_server(&["--cpus", "4"]);
    let first = "while [ ! -e go{} ]; do :; done; echo a{} >> order; [ {} != 2 ] || [ -e mended ]";
    farm.ok(&["submit", "--array", "0-2", "--", "sh", "-c", first]);
    farm.ok(&["submit", "--array", "0-2", "--after-each", "last", "--", "sh", "-c", "echo b{} >> order"]);
    let states = |job: &str| {
        let tasks = farm.json(&["job", "tasks", job]);
        let tasks = tasks.as_array().expect("a list of tasks").clone();
        tasks.iter().map(|task| task["state"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let order = || std::fs::read_to_string(farm.work().join("order")).unwrap();
    std::fs::write(farm.work().join("go1"), "").unwrap();
    wait_until("what comes after task 1 has run", || states("2")[1] == "succeeded");
    assert_eq!(order(), "a1\nb1\n");
    let why = farm.ok(&["why", "2.0"]);
    assert!(why.contains("it waits for task 1.0"), "{why}");
    std::fs::write(farm.work().join("go0"), "").unwrap();
    std::fs::write(farm.work().join("go2"), "").unwrap();
    farm.fails(1, &["job", "wait", "2"]);
    assert_eq!(states("2"), ["succeeded", "succeeded", "skipped"]);
    let shown = farm.json(&["job", "show", "2"]);
    let job = if shown.is_array() { &shown[0] } else { &shown };
    assert_eq!(job["after_tasks"], 1, "{job}");
    let stopped = job["stopped"].to_string();
    assert!(stopped.contains("a task of job 1") && stopped.contains("did not succeed: task 1."), "{job}");
    // Once the task has succeeded after all, a retry of what was skipped runs it.
    std::fs::write(farm.work().join("mended"), "").unwrap();
    farm.ok(&["job", "retry", "1"]);
    farm.ok(&["job", "wait", "1"]);
    let shown = farm.ok(&["job", "show", "2"]);
    assert!(shown.contains("job 1 has succeeded since, and 'windlass job retry 2' runs this one"), "{shown}");
    farm.ok(&["job", "retry", "2"]);
    farm.ok(&["job", "wait", "2"]);
    assert!(order().ends_with("a2\nb2\n"), "{}", order());
    let refused = farm.run(&["submit", "--array", "0-1", "--after-each", "1", "--", "true"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("it has 2 tasks, and that one 3"), "{said}");
    farm.fails(3, &["submit", "--after-each", "99", "--", "true"]);
}

#[test]
fn fail_fast_stops_or_kills_the_rest() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let command =
        "case {} in 0) while [ ! -e go ]; do :; done; touch finished;; 1) exit 5;; *) touch late;; esac";
    let run = ["run", "--fail-fast", "finish", "--array", "0-9", "--", "sh", "-c", command];
    let run = farm.spawn(&run);
    wait_until("the second has failed", || {
        let tasks = farm.run(&["job", "tasks", "1", "-o", "json"]).stdout;
        let tasks: serde_json::Value = serde_json::from_slice(&tasks).unwrap_or_default();
        tasks[1]["state"] == "failed"
    });
    std::fs::write(farm.work().join("go"), "").unwrap();
    assert_eq!(run.wait_with_output().unwrap().status.code(), Some(5));
    assert!(farm.work().join("finished").exists() && !farm.work().join("late").exists());
    let counts = &farm.json(&["job", "show", "1"]);
    let counts = if counts.is_array() { counts[0]["counts"].clone() } else { counts["counts"].clone() };
    assert_eq!(
        (counts["succeeded"].as_u64(), counts["failed"].as_u64(), counts["canceled"].as_u64()),
        (Some(1), Some(1), Some(8))
    );
    let command = "case {} in 0) touch up; sleep 1000.25;; 1) while [ ! -e up ]; do :; done; exit 6;; esac";
    farm.fails(6, &["run", "--fail-fast", "kill", "--array", "0-1", "--", "sh", "-c", command]);
    assert!(support::processes_with("sleep 1000.25").is_empty());
}

#[test]
fn a_detached_job_is_waited_for_later() {
    let farm = Farm::new();
    farm.ok(&["run", "--detach", "--", "sh", "-c", "while [ ! -e go ]; do :; done; echo done; exit 4"]);
    wait_until("it runs", || farm.ok(&["jobs", "--state", "running", "-o", "name"]) == "1\n");
    std::fs::write(farm.work().join("go"), "").unwrap();
    farm.fails(4, &["job", "wait", "1"]);
    assert_eq!(farm.ok(&["logs", "1"]), "done\n");
}

#[test]
fn a_held_job_waits_for_its_release_and_a_cancelled_one_can_be_retried() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["submit", "--array", "0-1", "--", "sh", "-c", "touch s{}; while [ ! -e go ]; do :; done"]);
    wait_until("the first runs", || farm.work().join("s0").exists());
    farm.ok(&["job", "hold", "1"]);
    std::fs::write(farm.work().join("go"), "").unwrap();
    wait_until("the first ends", || farm.json(&["job", "tasks", "1"])[0]["state"] == "succeeded");
    let why = farm.ok(&["why", "1.1"]);
    assert!(why.contains("held"), "{why}");
    assert!(!farm.work().join("s1").exists());
    farm.ok(&["job", "cancel", "1"]);
    farm.fails(130, &["job", "wait", "1"]);
    farm.ok(&["job", "retry", "1"]);
    wait_until("it is held still, or runs", || farm.json(&["job", "tasks", "1"])[1]["state"] != "canceled");
    farm.ok(&["job", "release", "1"]);
    farm.ok(&["job", "wait", "1"]);
    let again = farm.fails(1, &["job", "retry", "1"]);
    assert!(again.contains("no failed or cancelled task"), "{again}");
    farm.fails(1, &["job", "cancel", "1"]);
    farm.fails(3, &["job", "cancel", "77"]);
}

#[test]
fn an_interrupt_cancels_the_job() {
    let farm = Farm::new();
    let run = farm.spawn(&["run", "--", "sh", "-c", "touch up; sleep 1000.375"]);
    wait_until("it runs", || farm.work().join("up").exists());
    support::kill(run.id() as i32, "INT");
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", show(&output));
    assert!(support::processes_with("sleep 1000.375").is_empty());
    assert_eq!(farm.json(&["jobs"])[0]["state"], "canceled");
}

#[test]
fn a_run_inside_a_task_finishes_on_one_slot() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let nested = format!("{0} run --array 1-3 -- {0} run -- echo deep && echo outer", support::windlass());
    let lines = farm.ok(&["run", "--", "sh", "-c", &nested]);
    assert_eq!(lines, "deep\ndeep\ndeep\nouter\n");
    let workers = farm.json(&["workers"]);
    assert_eq!(workers[0]["booked"]["cpus"], 0.0, "{workers}");
}

#[test]
fn a_run_inside_a_task_finishes_in_a_queue_with_a_quota() {
    let farm = Farm::with_server(&["--cpus", "4"]);
    farm.ok(&["queue", "set", "narrow", "--quota", "1"]);
    let nested = format!("{} run --queue narrow --array 1-2 -- echo deep && echo outer", support::windlass());
    let lines = farm.ok(&["run", "--queue", "narrow", "--", "sh", "-c", &nested]);
    assert_eq!(lines, "deep\ndeep\nouter\n");
}

#[test]
fn a_task_that_waits_for_several_jobs_lends_until_the_last() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let w = support::windlass();
    let several = format!("for i in 1 2 3 4; do {w} run -- echo $i & done; wait; echo all");
    let lines = farm.ok(&["run", "--", "sh", "-c", &several]);
    let mut lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.pop(), Some("all"));
    lines.sort_unstable();
    assert_eq!(lines, ["1", "2", "3", "4"]);
    let detached = format!("{w} run --detach -q -- touch made >/dev/null && {w} job wait last && ls made");
    assert_eq!(farm.ok(&["run", "--", "sh", "-c", &detached]), "made\n");
    assert_eq!(farm.json(&["workers"])[0]["booked"]["cpus"], 0.0);
}

#[test]
fn eight_runs_at_once_share_the_machine() {
    let farm = Farm::new();
    // No server runs: all eight race to start one, and one server counts the cores.
    let command = "mkdir here-$$; ls -d here-* | wc -l >> seen; rmdir here-$$";
    let cores = std::thread::available_parallelism().unwrap().get();
    let runs: Vec<_> =
        (0..8).map(|_| farm.spawn(&["run", "--array", "1-20", "--", "sh", "-c", command])).collect();
    for run in runs {
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", show(&output));
    }
    let seen = std::fs::read_to_string(farm.work().join("seen")).unwrap();
    let seen: Vec<usize> = seen.lines().map(|n| n.trim().parse().unwrap()).collect();
    assert_eq!(seen.len(), 160);
    assert!(seen.iter().all(|n| *n <= cores), "more than {cores} at once: {seen:?}");
}

#[test]
fn a_foreground_run_leaves_nothing() {
    let farm = Farm::new();
    let mut command = farm.command(&["run", "--foreground", "--each", "a", "b", "--", "echo", "{}"]);
    let temp = farm.work().join("tmp");
    std::fs::create_dir(&temp).unwrap();
    let output = command.env("TMPDIR", &temp).output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(output.stdout.len(), 4);
    assert!(support::names(&temp).is_empty(), "{:?}", support::names(&temp));
    assert!(!farm.socket().exists());
    assert!(support::processes_with(temp.to_str().unwrap()).is_empty(), "its keeper is gone");
}

#[test]
fn a_foreground_dry_run_asks_the_server_of_the_run() {
    let farm = Farm::new();
    let text = farm.ok(&["run", "--foreground", "--dry-run", "--", "touch", "never"]);
    assert!(text.contains("(1 task) would be accepted") && text.contains("would start now: 1 on "), "{text}");
    assert!(!farm.socket().exists(), "no other server is started");
    assert!(!farm.work().join("never").exists());
}

#[test]
fn what_lists_print_is_what_programs_read() {
    let farm = Farm::new();
    farm.ok(&["run", "--name", "first", "--priority", "7", "--", "true"]);
    farm.fails(1, &["run", "--name", "second", "--", "false"]);
    assert_eq!(farm.ok(&["jobs", "-o", "name"]), "2\n1\n");
    let jobs = farm.json(&["jobs"]);
    assert_eq!((&jobs[0]["name"], &jobs[0]["state"]), (&"second".into(), &"failed".into()));
    assert_eq!((&jobs[1]["name"], &jobs[1]["priority"]), (&"first".into(), &7.into()));
    let lines = farm.ok(&["jobs", "-o", "jsonl"]);
    assert_eq!(lines.lines().count(), 2);
    lines.lines().for_each(|line| _ = serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert_eq!(farm.ok(&["job", "tasks", "1", "-o", "name"]), "1.0\n");
    assert_eq!(farm.ok(&["jobs", "--state", "failed", "-o", "name"]), "2\n");
    let table = farm.ok(&["jobs"]);
    assert!(table.contains("second") && !table.contains('\u{1b}'), "{table}");
}

#[test]
fn one_key_is_one_job() {
    let farm = Farm::new();
    let submit = ["submit", "--key", "nightly", "-o", "name", "--", "sh", "-c", "echo x >> count"];
    assert_eq!(farm.ok(&submit), "1\n");
    farm.ok(&["job", "wait", "1"]);
    assert_eq!(farm.ok(&submit), "1\n");
    assert_eq!(std::fs::read_to_string(farm.work().join("count")).unwrap(), "x\n");
}

#[test]
fn logs_follow_a_running_task() {
    use std::io::{BufRead, BufReader};
    let farm = Farm::new();
    farm.ok(&["submit", "--", "sh", "-c", "echo one; while [ ! -e go ]; do :; done; echo two"]);
    let mut logs = farm.spawn(&["logs", "-f", "1.0"]);
    let mut lines = BufReader::new(logs.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    std::fs::write(farm.work().join("go"), "").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    assert!(lines.next().is_none());
    assert!(logs.wait().unwrap().success());
}

#[test]
fn the_background_server_ends_when_nobody_needs_it() {
    let farm = Farm::new();
    let mut command = farm.command(&["run", "--", "true"]);
    let output = command.env("WINDLASS_IDLE_MINUTES", "0.002").output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    let state = farm.state();
    wait_until("the server and its keeper end", || {
        !farm.socket().exists() && support::processes_with(state.to_str().unwrap()).is_empty()
    });
    farm.ok(&["run", "--", "true"]);
    assert_eq!(farm.ok(&["jobs", "-o", "name"]), "2\n1\n");
}

#[test]
fn a_million_lines_are_a_job() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let lines: String = (0..1_000_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(farm.work().join("lines"), lines).unwrap();
    let id = farm.ok(&["submit", "--queue", "idle", "--each-line", "lines", "-o", "name", "--", "true"]);
    assert_eq!(id, "1\n");
    farm.ok(&["run", "--", "true"]);
    farm.ok(&["job", "cancel", "1"]);
}

#[test]
fn the_program_documents_and_examines_itself() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    for shell in ["bash", "zsh", "fish"] {
        assert!(farm.ok(&["completion", shell]).contains("windlass"), "{shell}");
    }
    let pages = farm.work().join("man");
    std::fs::create_dir_all(&pages).unwrap();
    farm.ok(&["man", pages.to_str().unwrap()]);
    let pages = support::names(&pages);
    assert!(pages.iter().any(|page| page.contains("windlass-run")), "{pages:?}");
    let findings = farm.json(&["doctor"]);
    let whats: Vec<&str> = findings.as_array().unwrap().iter().filter_map(|f| f["what"].as_str()).collect();
    assert!(whats.contains(&"control groups") && whats.contains(&"server"), "{whats:?}");
    let version = farm.ok(&["version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let status = farm.ok(&["server", "status"]);
    assert!(status.contains("1 worker"), "{status}");
}

#[test]
fn events_tell_what_happens() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let mut events = farm.events();
    // The stream is open once something comes through it.
    let mut submitted = 0;
    let first = std::thread::scope(|scope| {
        let reader = scope.spawn(|| events.next());
        while !reader.is_finished() {
            farm.ok(&["run", "--", "true"]);
            submitted += 1;
        }
        reader.join().unwrap()
    });
    assert!(submitted > 0 && first.unwrap().to_string().contains("job"));
    farm.fails(5, &["run", "--name", "told", "--", "sh", "-c", "exit 5"]);
    let ended = std::iter::from_fn(|| events.next()).find(|event| {
        let text = event.to_string();
        text.contains("\"failed\"") && text.contains("\"exit_code\":5")
    });
    assert!(ended.is_some());
}

#[test]
fn a_drained_worker_takes_no_new_work() {
    let farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    farm.ok(&["worker", "drain", "box"]);
    farm.ok(&["submit", "--", "touch", "ran"]);
    let why = farm.ok(&["why", "1.0"]);
    assert!(why.contains("draining") && why.contains("resume box"), "{why}");
    assert!(farm.ok(&["worker", "show", "box"]).contains("draining"));
    farm.ok(&["worker", "resume", "box"]);
    farm.ok(&["job", "wait", "1"]);
    assert!(farm.work().join("ran").exists());
    let missing = farm.fails(3, &["worker", "drain", "nobody"]);
    assert!(missing.contains("no worker 'nobody'"), "{missing}");
    assert!(farm.json(&["worker", "detect"])["capacity"]["cpus"].as_f64().unwrap() >= 1.0);
}

#[test]
fn a_task_without_an_environment_finds_programs_and_its_home() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let env = farm.ok(&["run", "--env", "none", "--env", "MINE=1", "--", "env"]);
    let theirs: Vec<&str> = env.lines().filter(|line| !line.starts_with("WINDLASS_")).collect();
    assert!(theirs.contains(&"PATH=/usr/local/bin:/usr/bin:/bin") && theirs.contains(&"MINE=1"), "{env}");
    assert!(theirs.iter().any(|line| line.starts_with("HOME=/")) && theirs.len() == 3, "{env}");
    assert_eq!(farm.ok(&["run", "--env", "PATH=/bin", "--", "sh", "-c", "echo $PATH"]), "/bin\n");
    let told = farm.fails(127, &["run", "--cwd", "/no/such/place", "--", "true"]);
    assert!(told.contains("'/no/such/place'") && told.contains("--cwd DIR"), "{told}");
}
