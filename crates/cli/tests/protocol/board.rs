//! The board: loads, waiting work and decisions, on a farm whose workers are played by the test.

use super::garbage::say;
use super::place::Server;
use super::stream::open;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use windlass_api::WorkerState;
use windlass_api::wire::{
    Amounts, Attribute, Beat, DiskSpace, Hello, Inventory, Load, Pressure, Pressures, Stall, report,
};

/// Loads are reported once and stay valid for the whole test.
const LASTING: [&str; 4] = ["--set", "load.report_ms=60000", "--set", "load.stale_reports=60"];
/// Much shorter than a worker may be silent.
const BEAT: Duration = Duration::from_secs(1);

/// Opens a stream as a worker that takes tasks and never starts one. It lives as long as the test.
async fn worker(server: &Server, name: &str, cpus: u32, tags: &[(&str, &str)], load: Option<Load>) {
    let mut end = open(&server.url).await;
    let attributes = tags.iter().map(|(key, value)| Attribute {
        key: (*key).to_owned(),
        values: Some((*value).to_owned()).filter(|value| !value.is_empty()).into_iter().collect(),
    });
    let hello = Hello {
        name: name.to_owned(),
        identity: name.len() as u64 * 1_000 + u64::from(name.as_bytes()[0]),
        incarnation: 78,
        fences: true,
        capacity: Some(Amounts { cpu: cpus * 100, memory: 8 << 30, ..Amounts::default() }),
        attributes: attributes.collect(),
        inventory: Some(Inventory::default()),
        ..Hello::default()
    };
    end.out.send(say(vec![report::What::Hello(hello)])).await.unwrap();
    server
        .until("the worker is up", async |client| {
            client.worker(name).await.is_ok_and(|worker| worker.state == WorkerState::Up)
        })
        .await;
    if let Some(load) = load {
        end.out.send(say(vec![report::What::Load(load)])).await.unwrap();
    }
    tokio::spawn(async move {
        let mut beats = tokio::time::interval(BEAT);
        loop {
            tokio::select! {
                _ = beats.tick() => {
                    let beat = Beat { sent: 1, inventory: Some(Inventory::default()) };
                    if end.out.send(say(vec![report::What::Beat(beat)])).await.is_err() {
                        return;
                    }
                }
                heard = end.incoming.message() => {
                    if !matches!(heard, Ok(Some(_))) {
                        return;
                    }
                }
            }
        }
    });
}

/// Percent of stall time.
fn load(cpu: f64, memory: f64, io: f64) -> Load {
    let some = |avg10| Pressure { some: Some(Stall { avg10, ..Stall::default() }), full: None };
    let machine = Pressures { cpu: Some(some(cpu)), memory: Some(some(memory)), io: Some(some(io)) };
    Load { machine: Some(machine), ..Load::default() }
}

/// The body of an answer, with its status.
fn get(server: &Server, path: &str) -> (u16, String) {
    let host = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn get_json(server: &Server, path: &str) -> Value {
    let (status, body) = get(server, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// The `message` of the board's answer.
fn board(server: &Server, path: &str) -> Value {
    let mut body = get_json(server, &format!("/api/v1/board{path}"));
    assert_eq!(body["error"], false, "{body}");
    body["message"].take()
}

/// Polls until the condition holds, because the worker's reports arrive asynchronously.
async fn until(server: &Server, path: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
    let mut shown = Value::Null;
    server
        .until(path, async |_| {
            shown = get_json(server, path);
            holds(&shown)
        })
        .await;
    shown
}

/// Submits a job, which may be one that fits nowhere yet.
fn submit(server: &Server, args: &[&str]) {
    let output = server.farm.run(&[&["--server", &server.url, "submit"], args, &["--", "true"]].concat());
    assert!(matches!(output.status.code(), Some(0 | 6)), "{}", crate::support::show(&output));
}

fn why(server: &Server, args: &[&str]) -> String {
    server.farm.ok(&[&["--server", &server.url, "why"], args].concat())
}

fn metric(server: &Server, name: &str) -> f64 {
    let (_, text) = get(server, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_are_told_with_what_is_unknown_as_null() {
    let server = Server::start(&LASTING);
    worker(&server, "calm", 8, &[], Some(load(45.2, 12.3, 8.7))).await;
    worker(&server, "pressed", 4, &[], Some(load(1.0, 60.0, 2.0))).await;
    worker(&server, "quiet", 2, &[], None).await;
    submit(&server, &["--array", "1-3", "--cpus", "2", "--worker", "calm"]);
    let path = "/api/v1/scheduler/server_loads";
    let all = until(&server, path, |all| {
        all["servers"][0]["jobs_assigned"] == 3 && all["servers"][1]["accepting_jobs"] == false
    })
    .await;
    // Cpu pressure does not count where Windlass's own tasks are booked.
    let effective = (600.0 + 100.0) / 800.0 * (1.0 + 2.0 * 0.123) * (1.0 + 0.5 * 0.087);
    let mut calm = all["servers"][0].clone();
    assert!((calm["effective_load"].take().as_f64().unwrap() - effective).abs() < 1e-9, "{all}");
    let expected = json!({"server_id": "calm", "num_cpus": 8.0, "jobs_assigned": 3, "job_load": 0.75,
        "cpu_pressure": 45.2, "memory_pressure": 12.3, "io_pressure": 8.7, "network_use": null,
        "state_free_bytes": null, "session_free_bytes": null, "cache_free_bytes": null, "effective_load": null,
        "accepting_jobs": true});
    assert_eq!(calm, expected);
    assert_eq!(all["servers"][1]["reason"], "under memory pressure");
    let expected = json!({"server_id": "quiet", "num_cpus": 2.0, "jobs_assigned": 0, "job_load": 0.0,
        "cpu_pressure": null, "memory_pressure": null, "io_pressure": null, "network_use": null,
        "state_free_bytes": null, "session_free_bytes": null, "cache_free_bytes": null, "effective_load": 0.5,
        "accepting_jobs": true});
    assert_eq!(all["servers"][2], expected);
    assert!(all.get("next").is_none(), "{all}");
    let first = get_json(&server, &format!("{path}?limit=2"));
    assert_eq!((first["servers"].as_array().unwrap().len(), &first["next"]), (2, &json!(2)));
    let rest = get_json(&server, &format!("{path}?limit=2&cursor=2"));
    assert_eq!((&rest["servers"][0]["server_id"], rest.get("next")), (&json!("quiet"), None));
    let (status, body) = get(&server, &format!("{path}?limit=0"));
    assert!(status == 400 && body.contains("limit must be from 1 to 10000, not 0"), "{body}");
    submit(&server, &["--cpus", "1", "--worker", "calm", "--array", "1-3"]);
    let full = until(&server, path, |all| all["servers"][0]["jobs_assigned"] == 5).await;
    assert_eq!(full["servers"][0]["reason"], "its cpus are all booked");
    assert_eq!(full["servers"][0]["accepting_jobs"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_space_gets_no_work_and_one_with_a_full_link_no_network_bound_work() {
    let server = Server::start(&LASTING);
    let space = |free_bytes| Some(DiskSpace { free_bytes, total_bytes: 100 << 30 });
    let full = Load { state_space: space(50 << 30), session_space: space(3 << 20), ..Load::default() };
    worker(&server, "full", 4, &[], Some(full)).await;
    let path = "/api/v1/scheduler/server_loads";
    let all = until(&server, path, |all| all["servers"][0]["accepting_jobs"] == false).await;
    let shown = &all["servers"][0];
    assert_eq!(shown["reason"], "its session directory has 3 MiB free, and needs 640 MiB");
    assert_eq!(
        (&shown["state_free_bytes"], &shown["session_free_bytes"]),
        (&json!(50u64 << 30), &json!(3 << 20))
    );
    submit(&server, &["--network-bound"]);
    let text = why(&server, &["1"]);
    assert!(
        text.contains("too little free space in its session directory (3 MiB free, 640 MiB needed)"),
        "{text}"
    );
    assert!(text.contains("of full until 640 MiB are free (3 MiB are)"), "{text}");
    assert_eq!(get_json(&server, "/api/v1/workers/full/why")["reason"], "low_space");
    assert_eq!(
        (metric(&server, "windlass_workers_low_space"), metric(&server, "windlass_workers_saturated")),
        (1.0, 0.0)
    );

    let used = Load { network_percent: Some(97.0), state_space: space(600 << 20), ..Load::default() };
    worker(&server, "used", 4, &[], Some(used)).await;
    let path = "/api/v1/workers/used/why";
    let shown = until(&server, path, |why| why["saturated"] == json!(["network"])).await;
    assert_eq!((&shown["pressure"]["network"], &shown["running"]), (&json!(97.0), &json!(1)), "it was idle");
    submit(&server, &["--network-bound"]);
    submit(&server, &[]);
    let shown = until(&server, path, |why| why["running"] == 2 && why["steps"][0]["job"] == 2).await;
    assert_eq!(shown["reason"], "saturated", "{shown}");
    assert!(why(&server, &["2"]).contains("its network is in use, and the step is network-bound"));
    assert!(why(&server, &["--worker", "used"]).contains("network in use 97% of 90%"));
    assert_eq!(metric(&server, "windlass_workers_network_saturated"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_why_it_gets_no_work() {
    let server = Server::start(&LASTING);
    worker(&server, "pressed", 4, &[], Some(load(1.0, 60.0, 2.0))).await;
    let (path, get_json) = ("/api/v1/workers/pressed/why", |path| get_json(&server, path));
    let shown = until(&server, path, |why| why["reason"] == "saturated").await;
    assert_eq!((&shown["saturated"], &shown["pressure"]["memory"]), (&json!(["memory"]), &json!(60.0)));
    assert_eq!(shown["thresholds"], json!({"cpu": 80.0, "memory": 50.0, "io": 75.0, "network": 90.0}));
    let text = why(&server, &["--worker", "pressed"]);
    assert!(
        text.starts_with("worker pressed is up: it is under memory pressure\n  runs 0 tasks, 0 of 4"),
        "{text}"
    );
    assert!(text.contains("\n  pressure cpu 1% of 80%, memory 60% of 50%, io 2% of 75%\n"), "{text}");
    assert!(text.contains("\n  gets no work until its memory pressure falls\n"), "{text}");
    assert_eq!(metric(&server, "windlass_workers_saturated"), 1.0);

    worker(&server, "good", 2, &[], None).await;
    assert_eq!(get_json("/api/v1/workers/good/why")["reason"], "nothing_waits");
    submit(&server, &["--cpus", "2", "--name", "first"]);
    submit(&server, &["--cpus", "1", "--array", "1-2", "--name", "next"]);
    let full = until(&server, "/api/v1/workers/good/why", |why| why["reason"] == "busy").await;
    assert_eq!((&full["running"], &full["steps"][0]["tasks"]), (&json!(1), &json!(2)));
    let text = why(&server, &["--worker", "good"]);
    assert!(text.contains("it is full: its tasks hold what the waiting work needs"), "{text}");
    assert!(text.contains("of job 2 in queue") && text.contains("busy, cpus: needs 1, has 0"), "{text}");

    worker(&server, "small", 1, &[], None).await;
    submit(&server, &["--cpus", "2", "--name", "wide"]);
    server.client.act(2, "cancel").await.unwrap();
    let fits_none = until(&server, "/api/v1/workers/small/why", |why| why["reason"] == "fits_none").await;
    assert_eq!(fits_none["steps"][0]["message"], "too small, cpus: needs 2, has 1");
    server.client.act_on_worker("small", "drain").await.unwrap();
    assert_eq!(get_json("/api/v1/workers/small/why")["reason"], "draining");
    let (status, body) = get(&server, "/api/v1/workers/nobody/why");
    assert!(status == 404 && body.contains("there is no worker 'nobody'"), "{body}");
    let said = server.farm.run(&["--server", &server.url, "why", "1", "--worker", "good"]);
    assert_eq!(said.status.code(), Some(2), "both a task and a worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_board_shows_what_waits_and_what_workers_have() {
    let server = Server::start(&[]);
    let tags = [("arch", "riscv"), ("ssd", ""), ("site", "here")];
    worker(&server, "a", 4, &tags, None).await;
    worker(&server, "b", 2, &[("arch", "arm"), ("fetch", "")], None).await;
    submit(&server, &["--queue", "film", "--cpus", "2", "--array", "1-4", "--name", "render"]);
    submit(&server, &["--queue", "film", "--cpus", "64", "--kind", "evaluation"]);
    submit(&server, &["--queue", "film", "--tag", "nowhere", "--array", "1-7"]);
    server.client.act(3, "hold").await.unwrap();
    let path = "/api/v1/board/jobs/pending";
    let body = until(&server, path, |body| {
        body["message"]["jobs"].as_array().is_some_and(|jobs| jobs.len() == 2)
            && body["message"]["jobs"][0]["reason"] == "full"
    })
    .await;
    assert_eq!(body["error"], false);
    let pending = &body["message"];
    let mut first = pending["jobs"][0].clone();
    assert!(first["queued_at"].take().as_u64().unwrap() > 1_600_000_000_000, "{pending}");
    for field in ["name", "job_name", "user"] {
        first[field].take();
    }
    let expected = json!({"kind": "build", "queue": "film", "job_id": 1, "job_name": null,
        "user": null, "name": null, "task_id": "1.3", "tasks": 1,
        "queued_at": null, "dependency_count": 0, "dependents": 0.0, "reason": "full",
        "message": "every worker that could run it is busy or takes no new work"});
    assert_eq!(first, expected);
    let second = &pending["jobs"][1];
    assert_eq!(
        (&second["reason"], &second["kind"], &second["task_id"]),
        (&json!("fits_nowhere"), &json!("evaluation"), &json!("2.0"))
    );
    assert_eq!(pending["other_pending"], 7, "those of the held job: {pending}");
    let words = [("turn", 0.0), ("full", 1.0), ("fits_nowhere", 1.0), ("quota", 0.0), ("held", 7.0)];
    for (word, tasks) in words {
        assert_eq!(metric(&server, &format!("windlass_waiting_tasks{{reason=\"{word}\"}}")), tasks, "{word}");
    }
    assert_eq!(metric(&server, "windlass_stranded_cores"), 0.0);
    assert_eq!(metric(&server, "windlass_workers{state=\"up\"}"), 2.0);

    let workers = board(&server, "/workers");
    let a = &workers[0];
    assert_eq!((&a["name"], &a["cpus"], &a["architectures"]), (&json!("a"), &json!(4.0), &json!(["riscv"])));
    assert_eq!((&a["cpu_usage_pct"], &a["ram_free_mb"]), (&Value::Null, &Value::Null), "unknown is not 0");
    assert_eq!(
        (&a["ram_total_mb"], &a["assigned_jobs"], &a["fetch"]),
        (&json!(8192), &json!(2), &json!(false))
    );
    assert_eq!((&workers[1]["assigned_jobs"], &workers[1]["fetch"]), (&json!(1), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_tell_what_they_are_entitled_to_and_what_their_weights_count_as() {
    let server = Server::start(&[]);
    worker(&server, "a", 8, &[], None).await;
    for (queue, weight, tasks) in
        [("heavy", "10000", "1-2"), ("film", "200", "1-50"), ("light", "100", "1-50")]
    {
        server.farm.ok(&["--server", &server.url, "queue", "set", queue, "--weight", weight]);
        submit(&server, &["--queue", queue, "--cpus", "1", "--array", tasks]);
    }
    let shown = until(&server, "/api/v1/queues/light", |queue| queue["demand_cpus"] == 50.0).await;
    assert_eq!((&shown["entitled_cpus"], &shown["effective_weight"]), (&json!(2.0), &json!(100.0)));
    // Two cpus are what a weight of 100 gives, so more weight is of no use to a queue that wants two.
    let heavy = get_json(&server, "/api/v1/queues/heavy");
    let told = |field: &str| heavy[field].as_f64().unwrap();
    assert_eq!([told("demand_cpus"), told("entitled_cpus"), told("effective_weight")], [2.0, 2.0, 100.0]);
    let text = server.farm.ok(&["--server", &server.url, "queue", "show", "heavy"]);
    assert!(text.contains("to 2 of the 2 cpus that it wants; its weight counts as 100.0"), "{text}");
    let of =
        |what: &str, queue: &str| metric(&server, &format!("windlass_queue_{what}{{queue=\"{queue}\"}}"));
    assert_eq!([of("demand_cpus", "film"), of("entitled_cpus", "film")], [50.0, 4.0]);
    assert_eq!([of("effective_weight", "film"), of("effective_weight", "heavy")], [200.0, 100.0]);
    let booked = ["heavy", "film", "light"].map(|queue| of("booked_cpus", queue));
    assert!(booked.iter().sum::<f64>() <= 8.0, "{booked:?}");
    // A queue without work has no lines.
    server.farm.ok(&["--server", &server.url, "queue", "set", "empty", "--weight", "5"]);
    assert!(!get(&server, "/metrics").1.contains("empty"));
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_told_and_summed_up() {
    let server = Server::start(&["--set", "score.policy=pressure"]);
    let rules = board(&server, "/scoring/rules");
    let names: Vec<&str> =
        rules.as_array().unwrap().iter().map(|rule| rule["rule"].as_str().unwrap()).collect();
    assert!(names.len() >= 15 && names.contains(&"WaitTimeRule") && names.is_sorted(), "{names:?}");
    assert!(rules.as_array().unwrap().iter().all(|rule| !rule["description"].as_str().unwrap().is_empty()));
    let nothing = board(&server, "/scoring/summary");
    assert_eq!((&nothing["sample_size"], &nothing["score_min"]), (&json!(0), &Value::Null));
    worker(&server, "a", 4, &[], None).await;
    worker(&server, "b", 2, &[], None).await;
    submit(&server, &["--array", "1-3", "--cpus", "1"]);
    let path = "/api/v1/board/jobs/decisions";
    let decisions =
        until(&server, path, |body| body["message"].as_array().is_some_and(|all| all.len() == 3)).await;
    let first = &decisions["message"][2];
    assert_eq!(
        (&first["task"], &first["policy"], &first["kind"]),
        (&json!("1.0"), &json!("pressure"), &json!("build"))
    );
    let candidates = first["candidates"].as_array().unwrap();
    assert_eq!((&first["winner"], &first["worker_id"]), (&json!("a"), &json!(1)), "the less loaded one");
    assert_eq!(
        (candidates.len(), &candidates[0]["name"], &candidates[1]["name"]),
        (2, &json!("a"), &json!("b"))
    );
    assert_eq!((&candidates[0]["won"], &candidates[1]["won"]), (&json!(true), &json!(false)));
    assert_eq!((&candidates[0]["load"], &candidates[1]["load"]), (&json!(0.25), &json!(0.5)));
    for candidate in candidates {
        let points =
            candidate["rules"].as_array().unwrap().iter().map(|rule| rule["points"].as_f64().unwrap());
        let sum: f64 = points.sum();
        assert!((sum - candidate["score"].as_f64().unwrap()).abs() < 1e-9, "{candidate}");
    }
    assert_eq!(board(&server, "/jobs/decisions?limit=1").as_array().unwrap().len(), 1);
    let summary = board(&server, "/scoring/summary?window_hours=1&limit=2");
    assert_eq!(summary["sample_size"], 2);
    let columns = summary["histogram"].as_array().unwrap();
    assert_eq!((columns.len(), columns.iter().map(|c| c["count"].as_u64().unwrap()).sum::<u64>()), (12, 2));
    assert!(
        summary["rules"].as_array().unwrap().iter().any(|rule| rule["rule"] == "PressureRule"),
        "{summary}"
    );
    for bad in ["window_hours=0", "limit=0", "limit=10001", "limit=x", "day=1"] {
        assert_eq!(get(&server, &format!("/api/v1/board/scoring/summary?{bad}")).0, 400, "{bad}");
    }
    let placed = why(&server, &["1.0"]);
    assert!(placed.contains(" by pressure:\n") && placed.contains("PressureRule"), "{placed}");
    let lost = why(&server, &["--worker", "b"]);
    assert!(lost.contains("task 1.0 went to a at "), "{lost}");
    server.client.act(1, "cancel").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn measures_that_cannot_be_are_counted() {
    let server = Server::start(&LASTING);
    worker(&server, "liar", 4, &[], Some(load(f64::NAN, 0.0, 0.0))).await;
    server
        .until("it is refused", async |_| metric(&server, "windlass_load_reports_refused_total") > 0.0)
        .await;
    assert!(server.log().contains("machine.cpu.some.avg10"), "{}", server.log());
    let all = get_json(&server, "/api/v1/scheduler/server_loads");
    assert_eq!(all["servers"][0]["cpu_pressure"], Value::Null, "{all}");
}
