//! Why tasks failed: the same is told by every command that shows a failed job.

use crate::support::port::Port;
use crate::support::{Farm, show};
use serde_json::Value;

/// Standard error of a command that may end with any code.
fn errors_of(farm: &Farm, args: &[&str]) -> String {
    String::from_utf8(farm.run(args).stderr).unwrap()
}

/// Submits a job with these arguments and waits until it has ended. Returns its id and what it is shown as.
fn ended(farm: &Farm, args: &[&str]) -> (String, Value) {
    let id = farm.ok(&[&["submit", "--quiet"], args].concat()).trim().to_owned();
    farm.run(&["job", "wait", &id]);
    let shown = farm.json(&["job", "show", &id]);
    (id, shown)
}

#[test]
fn a_directory_that_a_worker_lacks_is_told_by_every_command() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let id = farm.ok(&["submit", "--quiet", "--cwd", "/no/such/place", "--", "true"]);
    let id = id.trim();
    let told = [
        farm.fails(127, &["job", "wait", id]),
        farm.fails(127, &["submit", "--wait", "--cwd", "/no/such/place", "--", "true"]),
        farm.fails(127, &["run", "--cwd", "/no/such/place", "--", "true"]),
        farm.fails(127, &["events", id]),
        errors_of(&farm, &["logs", id]),
        errors_of(&farm, &["logs", &format!("{id}.0")]),
        errors_of(&farm, &["logs", "--failed", id]),
        errors_of(&farm, &["logs", "-f", id]),
        farm.ok(&["job", "show", id]),
        farm.ok(&["why", id]),
    ];
    for text in &told {
        let is_told = text.contains("cannot enter the working directory '/no/such/place'");
        assert!(is_told && text.contains("--cwd DIR"), "{text}\n--- of ---\n{}", told.join("\n--\n"));
    }
    for list in [farm.ok(&["jobs"]), farm.ok(&["job", "tasks", id])] {
        assert!(list.contains("REASON") && list.contains("cannot enter the working directory"), "{list}");
    }
    assert!(farm.run(&["logs", id]).status.success(), "the output is shown as asked");
    let shown = farm.json(&["job", "show", id]);
    assert_eq!(shown["reason"]["word"], "directory", "{shown}");
    let group = &shown["failures"]["groups"][0];
    assert_eq!((&group["cause"], &group["first"]["task"]), (&"directory".into(), &format!("{id}.0").into()));
    let waited = farm.run(&["job", "wait", id, "-o", "json"]);
    let waited: Value = serde_json::from_slice(&waited.stdout).unwrap();
    assert_eq!(waited[0]["failures"], shown["failures"]);
}

#[test]
fn each_cause_has_its_word_and_what_to_do() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let cases: [(&[&str], &str, &str, &str); 6] = [
        (&["--", "sh", "-c", "echo too >&2; echo dark >&2; exit 4"], "exit_code", "exit code 4", ""),
        (&["--", "sh", "-c", "exit 127"], "exit_code", "exit code 127", "--env"),
        (&["--", "sh", "-c", "kill -SEGV $$"], "signal", "killed by signal 11 (SIGSEGV)", ""),
        (
            &["--time-limit", "100ms", "--", "sleep", "1005.5"],
            "time_limit",
            "over its time limit of 100ms",
            "--time-limit 200ms",
        ),
        (&["--", "/no/such/program"], "program", "cannot start '/no/such/program'", "path of a program"),
        (
            &[
                "--memory",
                "64MiB",
                "--",
                "sh",
                "-c",
                "x=$(head -c 500000000 /dev/zero | tr '\\0' x); sleep 1005.6",
            ],
            "out_of_memory",
            "over its memory limit of 64 MiB",
            "--memory",
        ),
    ];
    for (args, cause, summary, advice) in cases {
        let (_, shown) = ended(&farm, args);
        let first = &shown["failures"]["groups"][0]["first"];
        assert_eq!((&first["cause"], &shown["reason"]["word"]), (&cause.into(), &cause.into()), "{shown}");
        assert!(first["summary"].as_str().unwrap().starts_with(summary), "{first}");
        assert!(first["advice"].as_str().unwrap_or_default().contains(advice), "{first}");
        if summary == "exit code 4" {
            assert_eq!(first["stderr"], serde_json::json!(["too", "dark"]), "{first}");
        }
    }
}

#[test]
fn why_and_logs_of_a_failed_job_are_about_its_failed_task() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let script = "echo task {}; test {} != 2 || { echo it is broken >&2; exit 4; }";
    let (id, _) = ended(&farm, &["--array", "0-3", "--", "sh", "-c", script]);
    let why = farm.ok(&["why", &id]);
    assert!(why.starts_with(&format!("task {id}.2 is failed: exit code 4\n")), "{why}");
    assert!(why.contains("it is broken") && !why.contains("decided"), "{why}");
    assert!(farm.ok(&["why", &id, "-v"]).contains("decided"));
    let succeeded = farm.ok(&["why", &format!("{id}.0")]);
    assert!(succeeded.contains("it succeeded on") && succeeded.lines().count() == 1, "{succeeded}");
    let failed = farm.run(&["logs", "--failed", &id]);
    assert_eq!(String::from_utf8_lossy(&failed.stdout), "task 2\n");
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(said.contains("it is broken") && said.contains(&format!("{id}.2 (2) failed")), "{said}");
    let all = farm.run(&["logs", &id]);
    assert_eq!(all.stdout.split(|byte| *byte == b'\n').count(), 5, "{}", show(&all));
    assert!(String::from_utf8_lossy(&all.stderr).contains("exit code 4"), "{}", show(&all));
    farm.fails(2, &["logs", "--failed", &format!("{id}.2")]);
    let (fine, _) = ended(&farm, &["--", "true"]);
    let none = farm.run(&["logs", "--failed", &fine]);
    assert!(none.status.success() && none.stdout.is_empty(), "{}", show(&none));
    assert!(String::from_utf8_lossy(&none.stderr).contains("has failed"), "{}", show(&none));
}

/// From the number of the job to each cause and its line of standard error in one command.
#[test]
fn a_large_job_s_failures_are_told_by_cause() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let script = "n={}; if [ $n -le 329 ]; then echo no film for $n >&2; exit 4; fi
        if [ $n -le 338 ]; then echo crashes >&2; kill -SEGV $$; fi
        if [ $n -le 340 ]; then echo no licence >&2; exit 77; fi";
    let array = ["--array", "1-2382", "--cpus", "0.1", "--", "sh", "-c", script];
    let (id, shown) = ended(&farm, &array);
    let failures = &shown["failures"];
    assert_eq!((&failures["failed"], &failures["not_looked_at"]), (&340.into(), &0.into()), "{failures}");
    let groups: Vec<(i64, &str)> = failures["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (group["tasks"].as_i64().unwrap(), group["summary"].as_str().unwrap()))
        .collect();
    let expected = [(329, "exit code 4"), (9, "killed by signal 11 (SIGSEGV)"), (2, "exit code 77")];
    assert_eq!(groups, expected);
    let waited = farm.fails(4, &["job", "wait", &id]);
    for line in [
        "340 tasks failed:",
        "  329 x exit code 4, first ",
        "    no film for 1\n",
        "  9 x killed by signal 11 (SIGSEGV), first ",
        "  2 x exit code 77, first ",
        "    no licence\n",
    ] {
        assert!(waited.contains(line), "{line:?} is not in\n{waited}");
    }
    assert!(waited.contains(&format!("windlass logs --failed {id}")), "{waited}");
}

#[test]
fn events_of_a_job_end_with_it() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let (bad, _) = ended(&farm, &["--", "sh", "-c", "echo dark >&2; exit 9"]);
    let output = farm.run(&["events", &bad]);
    assert_eq!(output.status.code(), Some(9), "{}", show(&output));
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(told.contains(&format!("job {bad} failed")), "{told}");
    assert!(said.contains("exit code 9") && said.contains("dark"), "{said}");
    let (good, _) = ended(&farm, &["--", "true"]);
    let told = farm.ok(&["events", &good, "-o", "jsonl"]);
    let event: Value = serde_json::from_str(told.trim()).unwrap();
    assert_eq!(
        (&event["job"]["job"], &event["job"]["state"]),
        (&good.parse::<u64>().unwrap().into(), &"succeeded".into())
    );
    // One that ends while its events are told.
    let gate = "while [ ! -e go ]; do :; done; exit 6";
    let id = farm.ok(&["submit", "--quiet", "--", "sh", "-c", gate]);
    let mut listening = farm.spawn(&["events", id.trim(), "-o", "jsonl"]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(listening.stdout.take().unwrap()));
    // The stream is open once something came through it.
    let first = std::thread::scope(|scope| {
        let reader = scope.spawn(|| lines.next());
        while !reader.is_finished() {
            farm.run(&["job", "hold", id.trim()]);
            farm.run(&["job", "release", id.trim()]);
        }
        reader.join().unwrap()
    });
    assert!(first.is_some());
    // The command starts the server again, which ended in good order.
    farm.ok(&["server", "stop"]);
    std::fs::write(farm.work().join("go"), "").unwrap();
    let last = lines.map_while(Result::ok).last().unwrap_or_default();
    assert!(last.contains("\"failed\""), "{last}");
    assert_eq!(listening.wait().unwrap().code(), Some(6));
}

#[test]
fn a_list_of_jobs_says_why_they_wait() {
    let farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    farm.ok(&["worker", "drain", "box"]);
    farm.ok(&["submit", "--", "true"]);
    let (jobs, why) = (farm.ok(&["jobs"]), farm.json(&["why", "1.0"]));
    assert!(jobs.contains(why["message"].as_str().unwrap()), "{jobs}\n{why}");
    assert_eq!(farm.json(&["job", "show", "1"])["reason"]["word"], why["reason"]);
    let after = farm.ok(&["submit", "--quiet", "--after", "1", "--", "true"]);
    let shown = farm.json(&["job", "show", after.trim()]);
    assert_eq!(shown["reason"]["word"], "after_jobs", "{shown}");
    farm.ok(&["job", "cancel", "1"]);
    farm.fails(1, &["job", "wait", after.trim()]);
    let shown = farm.json(&["job", "show", after.trim()]);
    assert_eq!(shown["reason"]["word"], "dependency", "{shown}");
    // It could only run on what the first one did not make.
    let told = farm.fails(1, &["job", "retry", after.trim()]);
    assert!(told.contains("job 2 comes after job 1, which did not succeed"), "{told}");
    assert!(told.contains("windlass job retry 1 2") && told.contains("--force"), "{told}");
    assert_eq!(farm.json(&["job", "show", after.trim()])["state"], "failed");
    farm.ok(&["job", "retry", "1", after.trim()]);
    assert_eq!(farm.json(&["job", "show", after.trim()])["reason"]["word"], "after_jobs");
    farm.ok(&["job", "cancel", "1"]);
    farm.fails(1, &["job", "wait", after.trim()]);
    farm.ok(&["job", "retry", "--force", after.trim()]);
    assert_eq!(farm.json(&["job", "show", after.trim()])["state"], "pending");
}

#[test]
fn others_are_told_the_cause_alone() {
    const SECRET: &str = "the-secret-of-ann";
    let port = Port::open(&[]);
    let token = |user: &str| port.token(&["--role", "user", "--user", user]);
    let (ann, bob) = (token("ann"), token("bob"));
    let place = format!("/{SECRET}");
    let script = format!("echo {SECRET} >&2; exit 4");
    port.run_as(&ann, &["run", "--name", "one", "--cwd", &place, "--", "true"]);
    port.run_as(&ann, &["run", "--name", "two", "--cwd", "/", "--", "sh", "-c", &script]);
    for (job, cause) in [("1", "directory"), ("2", "exit_code")] {
        let looks: [&[&str]; 4] = [&["job", "show", job], &["why", job], &["jobs"], &["job", "tasks", job]];
        for looked in looks {
            for format in ["table", "json"] {
                let said = show(&port.run_as(&bob, &[looked, &["-o", format]].concat()));
                assert!(!said.contains(SECRET), "{looked:?}: {said}");
            }
        }
        let told = show(&port.run_as(&bob, &["job", "show", job, "-o", "json"]));
        assert!(told.contains(cause), "{told}");
        assert!(port.ok_as(&ann, &["job", "show", job]).contains(SECRET));
    }
}
