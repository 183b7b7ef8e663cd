//! Figures of a farm: the overview, the scheduler at work, the tasks of a job as a grid.

use crate::support::{Farm, wait_until};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

/// The status and the body of an answer over the server's socket.
fn ask(farm: &Farm, head: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(farm.socket()).unwrap();
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn get(farm: &Farm, path: &str) -> Value {
    let (status, body) = ask(farm, &format!("GET {path}"), "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Polls until the condition holds.
fn until(farm: &Farm, path: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
    let mut shown = Value::Null;
    wait_until(path, || {
        shown = get(farm, path);
        holds(&shown)
    });
    shown
}

#[test]
fn the_farm_is_told_at_a_glance() {
    let farm = Farm::with_server(&["--cpus", "2", "--name", "box"]);
    farm.ok(&["run", "--array", "1-3", "--", "true"]);
    farm.fails(7, &["run", "--", "sh", "-c", "exit 7"]);
    farm.ok(&["submit", "--array", "1-5", "--", "sleep", "1000"]);
    farm.ok(&["submit", "--after", "3", "--array", "1-2", "--", "true"]);
    let overview = until(&farm, "/api/v1/board/overview", |shown| {
        shown["tasks"]["running"] == 2 && shown["per_minute"]["started"] == 6.0
    });
    assert_eq!(overview["workers"]["online"], 1, "{overview}");
    assert_eq!((&overview["cpus"]["total"], &overview["cpus"]["booked"]), (&json!(2.0), &json!(2.0)));
    assert_eq!(overview["cpus"]["by_queue"].as_array().unwrap().len(), 1, "{overview}");
    assert_eq!(overview["jobs"], json!({"running": 1, "waiting": 1, "held": 0}));
    assert_eq!((&overview["tasks"]["ready"], &overview["tasks"]["waiting"]), (&json!(3), &json!(2)));
    let waiting = &overview["waiting"][0];
    assert_eq!((&waiting["reason"], &waiting["tasks"]), (&json!("full"), &json!(3)), "{overview}");
    let ended = (&overview["per_minute"]["succeeded"], &overview["per_minute"]["failed"]);
    assert_eq!(ended, (&json!(3.0), &json!(1.0)), "{overview}");
    assert!(overview["wait_ms"]["p95"].as_f64().unwrap() >= overview["wait_ms"]["p50"].as_f64().unwrap());
    assert_eq!((&overview["suffering"], &overview["holds"]), (&json!([]), &json!([])));
    farm.ok(&["worker", "drain", "box"]);
    let overview = until(&farm, "/api/v1/board/overview", |shown| shown["workers"]["draining"] == 1);
    // What an operator asked for ails no worker, but it holds the farm.
    assert_eq!(overview["suffering"], json!([]));
    assert_eq!(overview["holds"], json!(["no worker takes work: 1 drained"]));
    farm.ok(&["job", "cancel", "3"]);
    let overview = until(&farm, "/api/v1/board/overview", |shown| shown["cpus"]["booked"] == 0.0);
    let free = (&overview["cpus"]["usable"], &overview["cpus"]["out_of_service"]);
    assert_eq!(free, (&json!(0.0), &json!(2.0)), "{overview}");

    let scheduler = until(&farm, "/api/v1/board/scheduler", |shown| shown["decisions_per_s"] != 0.0);
    assert!(scheduler["commit_ms"]["p50"].as_f64().unwrap() > 0.0, "{scheduler}");
    assert!(scheduler["round_ms"]["p95"].as_f64().unwrap() > 0.0, "{scheduler}");
    assert_eq!((&scheduler["late_results"], &scheduler["store_failures"]), (&json!(0), &json!(0)));
}

#[test]
fn the_tasks_of_a_job_are_a_grid_while_it_runs_and_when_it_has_ended() {
    let farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    let work = farm.work();
    farm.fails(1, &["run", "--array", "0-4", "--", "sh", "-c", "exit $((({} == 2)))"]);
    assert_eq!(get(&farm, "/api/v1/jobs/1/grid")["runs"], json!([["s", 2], ["f", 1], ["s", 2]]));
    let from = get(&farm, "/api/v1/jobs/1/grid?from=2");
    assert_eq!(from, json!({"tasks": 5, "from": 2, "runs": [["f", 1], ["s", 2]]}));

    let blocks = format!("if [ {{}} -ge 2 ]; then read x < {}/never; fi", work.display());
    rustix::fs::mkfifoat(rustix::fs::CWD, work.join("never"), rustix::fs::Mode::RWXU).unwrap();
    farm.ok(&["submit", "--array", "0-6", "--", "sh", "-c", &blocks]);
    farm.ok(&["submit", "--after", "2", "--", "true"]);
    let shown = until(&farm, "/api/v1/jobs/2/grid", |shown| {
        shown["runs"][0] == json!(["s", 2]) && shown["runs"][1][0] == "r"
    });
    // Short tasks are sent ahead: these are placed, and wait at the worker.
    let rest = shown["runs"].as_array().unwrap()[2..].iter().map(|run| run[1].as_u64().unwrap());
    assert_eq!((&shown["runs"][0], &shown["runs"][1], rest.sum()), (&json!(["s", 2]), &json!(["r", 1]), 4));
    assert_eq!(get(&farm, "/api/v1/jobs/3/grid")["runs"], json!([["b", 1]]));
    farm.ok(&["job", "cancel", "2"]);
    until(&farm, "/api/v1/jobs/2/grid", |shown| shown["runs"] == json!([["s", 2], ["c", 5]]));
    until(&farm, "/api/v1/jobs/3/grid", |shown| shown["runs"] == json!([["l", 1]]));
    assert_eq!(ask(&farm, "GET /api/v1/jobs/77/grid", "").0, 404);
    assert_eq!(ask(&farm, "GET /api/v1/jobs/1/grid?from=x", "").0, 400);
}

#[test]
fn a_running_task_is_expected_to_take_as_long_as_those_of_its_step_before_it() {
    let farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    let work = farm.work();
    let gate = |n: u32| work.join(format!("gate-{n}"));
    (1..=2).for_each(|n| rustix::fs::mkfifoat(rustix::fs::CWD, gate(n), rustix::fs::Mode::RWXU).unwrap());
    let waits = format!("read x < {}/gate-{{}}", work.display());
    farm.ok(&["submit", "--array", "1-2", "--", "sh", "-c", &waits]);
    let running = |task: &Value| task["state"] == "running";
    let first = until(&farm, "/api/v1/tasks/1.0", running);
    assert_eq!(first["expected_end_ms"], Value::Null, "nothing is known yet");
    assert_eq!(get(&farm, "/api/v1/jobs/1")["expected_end_ms"], Value::Null);
    std::fs::write(gate(1), "x\n").unwrap();
    let second = until(&farm, "/api/v1/tasks/1.1", running);
    let time = |task: &Value, name: &str| task[name].as_i64().unwrap_or_else(|| panic!("{name}: {task}"));
    let first = get(&farm, "/api/v1/tasks/1.0");
    let took_ms = time(&first, "finished_ms") - time(&first, "started_ms");
    let left_ms = time(&second, "expected_end_ms") - time(&second, "started_ms");
    assert!((left_ms - took_ms).abs() <= 2, "{took_ms} ms before, {left_ms} ms now: {first} {second}");
    assert_eq!(first["expected_end_ms"], Value::Null, "it is over");
    // The job is expected to end with its last task, and later if that is late already.
    let listed = get(&farm, "/api/v1/jobs")["items"][0].clone();
    let (of_job_ms, of_task_ms) = (time(&listed, "expected_end_ms"), time(&second, "expected_end_ms"));
    assert!(of_job_ms + 2 >= of_task_ms, "{listed} {second}");
    std::fs::write(gate(2), "x\n").unwrap();
    farm.ok(&["job", "wait", "1"]);
    assert_eq!(get(&farm, "/api/v1/jobs/1")["expected_end_ms"], Value::Null);
}

#[test]
fn series_and_decisions_outlive_the_server() {
    let mut farm = Farm::with_server(&["--cpus", "2", "--name", "box"]);
    farm.ok(&["submit", "--array", "1-3", "--", "sleep", "1000"]);
    // The farm is looked at in the middle of each step of ten seconds.
    let is_running = |shown: &Value| shown.as_array().is_some_and(|all| all.last() == Some(&json!(2.0)));
    let series = until(&farm, "/api/v1/board/series", |shown| is_running(&shown["running"]));
    assert_eq!((&series["step_ms"], series["end_ms"].as_u64().unwrap() % 10_000), (&json!(10_000), 0));
    assert!(is_running(&series["busy_cpus"]) && is_running(&series["total_cpus"]), "{series}");
    let worker = get(&farm, "/api/v1/workers/box/series?span=hour");
    assert!(is_running(&worker["busy_cpus"]), "{worker}");
    assert_eq!(worker["busy_cpus"].as_array().unwrap().len(), worker["load"].as_array().unwrap().len());
    assert!(is_running(&series["queues"][0]["busy_cpus"]), "{series}");
    assert_eq!(ask(&farm, "GET /api/v1/board/series?span=week", "").0, 400);
    assert_eq!(ask(&farm, "GET /api/v1/workers/nobody/series", "").0, 404);
    // The third task may have been sent ahead.
    let are_placed = |shown: &Value| {
        let decisions = shown["message"].as_array().unwrap();
        ["1.0", "1.1"].iter().all(|task| decisions.iter().any(|decision| decision["task"] == *task))
    };
    assert!(are_placed(&get(&farm, "/api/v1/board/jobs/decisions")));

    farm.ok(&["server", "stop"]);
    farm.kill_server();
    farm.start();
    // What was known is there before the next look, the step of the day that was not over too.
    let has_run = |shown: &Value| shown.as_array().is_some_and(|all| all.contains(&json!(2.0)));
    let series = until(&farm, "/api/v1/board/series", |shown| has_run(&shown["running"]));
    assert!(has_run(&series["queues"][0]["busy_cpus"]), "{series}");
    assert!(has_run(&get(&farm, "/api/v1/workers/box/series")["busy_cpus"]));
    let decisions = until(&farm, "/api/v1/board/jobs/decisions", are_placed);
    let oldest = &decisions["message"].as_array().unwrap().last().unwrap()["at"];
    let older = get(&farm, &format!("/api/v1/board/jobs/decisions?before={oldest}"));
    assert_eq!(older["message"], json!([]));
    let summary = get(&farm, "/api/v1/board/scoring/summary");
    assert!(summary["message"]["sample_size"].as_u64().unwrap() >= 2, "{summary}");
}

#[test]
fn what_ended_is_told_by_cause_and_by_cost_and_after_a_restart() {
    let mut farm = Farm::with_server(&["--cpus", "2", "--name", "box"]);
    farm.ok(&["run", "--array", "1-3", "--", "true"]);
    farm.fails(7, &["run", "--retries", "1", "--", "sh", "-c", "exit 7"]);
    let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    farm.ok(&["run", "--cpus", "2", "--", "sh", "-c", busy]);
    let told = |farm: &Farm| {
        let history = get(farm, "/api/v1/board/history");
        let counts = ["tasks", "succeeded", "failed", "canceled"].map(|field| history[field].clone());
        assert_eq!(json!(counts), json!([6, 4, 2, 0]), "{history}");
        let jobs = json!([{"job": 2, "tasks": 2}]);
        assert_eq!(history["failures"], json!([{"cause": "exit 7", "tasks": 2, "jobs": jobs}]));
        assert_eq!(history["workers"], json!([{"worker": "box", "failed": 2, "tasks": 6}]));
        let dearest = &history["expensive"][0];
        assert_eq!((&dearest["task"], &dearest["cpus"]), (&json!("3.0"), &json!(2.0)), "{history}");
        assert_eq!(dearest["worker"], "box");
        let columns = history["durations"]["tasks"].as_array().unwrap();
        assert_eq!(columns.iter().filter_map(Value::as_u64).sum::<u64>(), 6);
        assert_eq!(get(farm, "/api/v1/board/history?worker=other")["tasks"], 0);
        // The sums by day are those of the same attempts. The test may run into the next day.
        let usage = get(farm, "/api/v1/board/usage?days=2");
        let rows = usage["rows"].as_array().unwrap();
        let sum = |field: &str| rows.iter().filter_map(|row| row[field].as_u64()).sum::<u64>();
        assert_eq!((sum("tasks"), sum("failed")), (6, 2), "{usage}");
        assert!(sum("cpu_ms") > 0 && rows.iter().all(|row| row["queue"] == row["user"]), "{usage}");
    };
    told(&farm);
    farm.ok(&["server", "stop"]);
    farm.kill_server();
    farm.start();
    told(&farm);
    assert_eq!(ask(&farm, "GET /api/v1/board/history?hours=0", "").0, 400);
    assert_eq!(ask(&farm, "GET /api/v1/board/usage?days=401", "").0, 400);
}

#[test]
fn decisions_keep_their_names_when_the_job_has_ended() {
    let farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    farm.ok(&["run", "--name", "film", "--queue", "idle", "--", "true"]);
    let decisions = get(&farm, "/api/v1/board/jobs/decisions");
    let decision = &decisions["message"][0];
    let names = ["task", "job_name", "name", "queue", "winner"].map(|field| decision[field].clone());
    assert_eq!(json!(names[..2]), json!(["1.0", "film"]), "{decisions}");
    assert_eq!((&names[3], &names[4]), (&json!("idle"), &json!("box")), "{decisions}");
    assert!(decision["user"].is_string() && decision["name"].is_string() && decision["kind"] == "build");
}

#[test]
fn a_priority_is_changed_and_lasts() {
    let mut farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    farm.ok(&["submit", "--", "sleep", "1000"]);
    farm.ok(&["submit", "--", "true"]);
    farm.ok(&["submit", "--", "true"]);
    farm.ok(&["job", "priority", "2", "-5"]);
    farm.ok(&["job", "priority", "3", "7"]);
    let pending = get(&farm, "/api/v1/board/jobs/pending");
    let order: Vec<u64> = pending["message"]["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["job_id"].as_u64().unwrap())
        .collect();
    assert_eq!(order, [3, 2], "{pending}");
    farm.kill_server();
    farm.start();
    let priority = |job: u64| get(&farm, &format!("/api/v1/jobs/{job}"))["priority"].clone();
    assert_eq!([1, 2, 3].map(priority), [json!(0), json!(-5), json!(7)]);
    farm.fails(3, &["job", "priority", "9", "1"]);
    assert_eq!(ask(&farm, "POST /api/v1/jobs/2/priority", r#"{"priority": "high"}"#).0, 400);
    farm.ok(&["job", "cancel", "2"]);
    assert_eq!(ask(&farm, "POST /api/v1/jobs/2/priority", r#"{"priority": 1}"#).0, 409);
}

#[test]
fn a_drained_worker_says_why_and_so_do_the_tasks_that_wait_for_it() {
    let mut farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    farm.ok(&["worker", "drain", "box", "--note", "new disk"]);
    farm.ok(&["submit", "--", "true"]);
    farm.kill_server();
    farm.start();
    let worker = until(&farm, "/api/v1/workers/box", |worker| worker["connected"] == true);
    assert_eq!((&worker["state"], &worker["note"]), (&json!("draining"), &json!("new disk")));
    assert!(farm.ok(&["worker", "show", "box"]).contains("draining: new disk"));
    let why = farm.ok(&["why", "1"]);
    assert!(why.contains("is drained (new disk)"), "{why}");
    assert!(farm.ok(&["why", "--worker", "box"]).contains("it is drained (new disk)"));
    let long = format!(r#"{{"note": "{}"}}"#, "x".repeat(1_001));
    assert_eq!(ask(&farm, "POST /api/v1/workers/box/drain", &long).0, 400);
    // Who drains it without a note takes the note away, and so does who resumes it.
    assert_eq!(ask(&farm, "POST /api/v1/workers/box/drain", "").0, 200);
    assert_eq!(get(&farm, "/api/v1/workers/box")["note"], Value::Null);
    farm.ok(&["worker", "drain", "box", "--note", "again"]);
    farm.ok(&["worker", "resume", "box"]);
    assert_eq!(get(&farm, "/api/v1/workers/box")["note"], Value::Null);
    farm.ok(&["job", "wait", "1"]);
}

/// The names that begin with `windlass_` in a text.
fn metric_names(text: &str) -> std::collections::BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_of_name(c));
    words.filter(|word| word.starts_with("windlass_")).map(str::to_owned).collect()
}

/// A farm in which every metric that has labels has a value, and its text.
fn all_metrics() -> String {
    let farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    farm.ok(&["run", "--", "true"]);
    farm.ok(&["submit", "--array", "1-4", "--cpus", "1", "--", "sleep", "1000"]);
    let mut text = String::new();
    wait_until("a queue is charted", || {
        let (status, body) = ask(&farm, "GET /metrics", "");
        assert_eq!(status, 200);
        text = body;
        text.contains("windlass_queue_effective_weight{") && text.contains("windlass_attempts_ended_total{")
    });
    text
}

#[test]
fn dashboard_alerts_and_manual_name_metrics_that_there_are() {
    let text = all_metrics();
    assert!(text.contains("windlass_worker_load{worker=\"box\"}"), "{text}");
    // A metric without a value is in the text, too, in its `# TYPE` line. A kernel may measure no pressure.
    let known = metric_names(&text);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana/windlass.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 20 && queries.iter().all(|query| query.contains("windlass_")), "{queries:?}");
    let alerts = read("packaging/prometheus/alerts.yml");
    assert!(alerts.matches("- alert: ").count() >= 8);
    let manual = read("docs/src/board.md");
    for (file, named) in [("dashboard", queries.join(" ")), ("alerts", alerts), ("manual", manual.clone())] {
        let unknown: Vec<String> = metric_names(&named).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}, which are not among\n{text}");
    }
    // The manual has every metric of the server; gateways have theirs in their own pages.
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let is_gateway_s = |name: &str| name.contains("nix") || name.starts_with("windlass_cas_");
    let lacking: Vec<&str> =
        types.filter(|name| !is_gateway_s(name) && !manual.contains(&format!("`{name}"))).collect();
    assert!(lacking.is_empty(), "the manual lacks {lacking:?}");
}

#[test]
fn looks_for_workers_are_counted_with_their_candidates() {
    let farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    let metric = |name: &str| -> u64 {
        let (_, text) = ask(&farm, "GET /metrics", "");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("windlass_{name}_total ")));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    };
    assert_eq!(["searches", "candidates", "searches_without_candidate"].map(metric), [0, 0, 0]);
    farm.ok(&["run", "--", "true"]);
    assert_eq!(["searches", "candidates", "searches_without_candidate"].map(metric), [1, 1, 0]);
    // The second finds the only worker full, and is not looked for again while it is.
    farm.ok(&["submit", "--", "sleep", "1000"]);
    farm.ok(&["submit", "--memory", "1MiB", "--", "sleep", "1000"]);
    wait_until("both were looked for", || metric("searches") >= 3);
    assert_eq!(metric("candidates"), 2);
    assert_eq!(metric("searches_without_candidate"), metric("searches") - 2);
}
