//! What the board shows of a farm: every answer, over HTTP, on a real PostgreSQL.

use crate::postgres;
use deadpool_postgres::{Manager, Pool};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;
use windlass_gateway_opencue::board::{Board, PAGE_MAX};
use windlass_gateway_opencue::scheduler::Instance;
use windlass_gateway_opencue::scheduler::config::Config;
use windlass_server::TokenDoor;

/// Two shows, of which one is scheduled here. A job with 250 frames of which two run, one is dead and two have
/// succeeded, and with ten that depend on them; a paused job; a job that has ended. A host that is open, one that is
/// locked, and one that is silent.
const FARM: &str = "
INSERT INTO facility(pk_facility, str_name) VALUES ('fac', 'f');
INSERT INTO dept(pk_dept, str_name) VALUES ('dept', 'd');
INSERT INTO alloc(pk_alloc, str_name, str_tag, pk_facility) VALUES ('alloc', 'f.general', 'general', 'fac');
INSERT INTO show(pk_show, str_name, b_scheduler_managed) VALUES ('s1', 'film', true), ('s2', 'advert', false);
INSERT INTO subscription(pk_subscription, pk_alloc, pk_show, int_size, int_burst, int_cores)
    VALUES ('b1', 'alloc', 's1', 30000, 40000, 200), ('b2', 'alloc', 's2', 10000, 10000, 0);
INSERT INTO folder(pk_folder, pk_show, str_name, pk_dept)
    VALUES ('o1', 's1', 'film', 'dept'), ('o2', 's2', 'advert', 'dept');
INSERT INTO point(pk_point, pk_dept, pk_show) VALUES ('t1', 'dept', 's1'), ('t2', 'dept', 's2');
INSERT INTO host(pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem, int_mem_idle)
    VALUES ('h1', 'alloc', 'render01', 'OPEN', 800, 600, 8388608, 8188608),
           ('h2', 'alloc', 'render02', 'LOCKED', 400, 400, 8388608, 8388608),
           ('h3', 'alloc', 'render03', 'OPEN', 400, 400, 8388608, 8388608);
INSERT INTO host_stat(pk_host_stat, pk_host, int_mem_total, int_mem_free, int_load, str_state, str_os, ts_ping)
    SELECT pk_host, pk_host, int_mem, int_mem, 150, 'UP', 'linux',
        now() - CASE WHEN pk_host = 'h3' THEN interval '1 hour' ELSE interval '0' END FROM host;
INSERT INTO host_tag(pk_host_tag, pk_host, str_tag, str_tag_type) SELECT pk_host, pk_host, 'general', 'ALLOC' FROM host;
INSERT INTO job(pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot, str_user,
    str_state, b_paused, int_frame_count, int_layer_count, ts_started) VALUES
    ('j1', 'o1', 's1', 'fac', 'dept', 'film-sh1-ann_light', 'film-sh1-ann_light', 'sh1', 'ann', 'PENDING', false, 260, 2,
        now() - interval '3 minutes'),
    ('j2', 'o1', 's1', 'fac', 'dept', 'film-sh2-bob_test', 'film-sh2-bob_test', 'sh2', 'bob', 'PENDING', true, 1, 1,
        now() - interval '2 minutes'),
    ('j3', 'o2', 's2', 'fac', 'dept', 'advert-a-ann_old', 'advert-a-ann_old', 'a', 'ann', 'FINISHED', false, 0, 0,
        now() - interval '1 minute');
UPDATE job_resource SET int_cores = 200, int_priority = 7, int_max_cores = 100000 WHERE pk_job = 'j1';
INSERT INTO layer(pk_layer, pk_job, str_name, str_cmd, str_range, int_dispatch_order, str_type, str_tags, int_mem_min)
    VALUES ('l1', 'j1', 'beauty', 'true', '1-250', 1, 'Render', 'general | gpu', 524288),
           ('l2', 'j1', 'comp', 'true', '1-10', 2, 'Render', 'general', 524288),
           ('l3', 'j2', 'test', 'true', '1-1', 1, 'Render', 'general', 524288);
INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order, str_host, int_cores,
    int_mem_reserved, int_mem_used, int_exit_status, int_retries, ts_started)
    SELECT 'f' || n, 'l1', 'j1', to_char(n, 'FM0000') || '-beauty',
        CASE WHEN n <= 2 THEN 'RUNNING' WHEN n = 3 THEN 'DEAD' WHEN n <= 5 THEN 'SUCCEEDED' ELSE 'WAITING' END, n, n,
        CASE WHEN n <= 5 THEN 'render01' END, CASE WHEN n <= 2 THEN 100 ELSE 0 END,
        CASE WHEN n <= 2 THEN 100000 ELSE 0 END, CASE WHEN n = 1 THEN 50000 ELSE 0 END,
        CASE WHEN n = 3 THEN 1 WHEN n IN (4, 5) THEN 0 ELSE -1 END, CASE WHEN n = 3 THEN 3 ELSE 0 END,
        CASE WHEN n <= 5 THEN now() END FROM generate_series(1, 250) n;
INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order, int_depend_count)
    SELECT 'c' || n, 'l2', 'j1', to_char(n, 'FM0000') || '-comp', 'DEPEND', n, n, 1 FROM generate_series(1, 10) n;
INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
    VALUES ('t1', 'l3', 'j2', '0001-test', 'WAITING', 1, 1);
INSERT INTO proc(pk_proc, pk_host, pk_job, pk_show, pk_layer, pk_frame, int_cores_reserved, int_mem_reserved,
    int_mem_used) VALUES ('p1', 'h1', 'j1', 's1', 'l1', 'f1', 100, 100000, 50000),
                         ('p2', 'h1', 'j1', 's1', 'l1', 'f2', 100, 100000, 0);
UPDATE layer_stat SET int_waiting_count = 245, int_running_count = 2, int_dead_count = 1, int_succeeded_count = 2,
    int_total_count = 250 WHERE pk_layer = 'l1';
UPDATE layer_stat SET int_depend_count = 10, int_total_count = 10 WHERE pk_layer = 'l2';
UPDATE layer_stat SET int_waiting_count = 1, int_total_count = 1 WHERE pk_layer = 'l3';
UPDATE job_stat SET int_waiting_count = 245, int_running_count = 2, int_dead_count = 1, int_succeeded_count = 2,
    int_depend_count = 10 WHERE pk_job = 'j1';
UPDATE job_stat SET int_waiting_count = 1 WHERE pk_job = 'j2';
UPDATE layer_resource SET int_cores = 200 WHERE pk_layer = 'l1';
UPDATE layer_usage SET int_clock_time_success = 120, int_frame_success_count = 2 WHERE pk_layer = 'l1'";

/// A statement that gives all rows of all tables with what last wrote each, as one digest for each table.
const DIGESTS: &str = "SELECT string_agg(format(
    'SELECT %L, md5(coalesce(string_agg(t::text || t.xmin::text, ''|'' ORDER BY t::text), '''')) FROM %I t',
    tablename, tablename), ' UNION ALL ' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'";

/// A farm with its board.
struct Site {
    database: String,
    address: SocketAddr,
    instance: Instance,
    _serving: JoinSet<()>,
}

impl Site {
    async fn open() -> Option<Site> {
        let cluster = postgres::cluster()?;
        let database = cluster.database_name();
        cluster.sql(&database, FARM);
        let config: tokio_postgres::Config = cluster.address(&database).parse().unwrap();
        let pool = || Pool::builder(Manager::new(config.clone(), NoTls)).max_size(3).build().unwrap();
        let settings = Config::parse("").unwrap().instance;
        let instance = Instance::new(pool(), config.clone(), settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = TokenDoor::new(address, Vec::new(), None).unwrap();
        let routes = Board::new(pool(), &instance).routes();
        let mut serving = JoinSet::new();
        serving.spawn(door.serve(listener, routes));
        Some(Site { database, address, instance, _serving: serving })
    }

    fn sql(&self, sql: &str) -> String {
        postgres::cluster().unwrap().sql(&self.database, sql)
    }

    fn digests(&self) -> String {
        self.sql(&self.sql(DIGESTS))
    }

    /// The status and the JSON of an answer.
    async fn ask(&self, path: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {answer}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}")))
    }

    /// An answer that must succeed, of the farm's paths.
    async fn get(&self, path: &str) -> Value {
        let path = format!("/api/v1/opencue/{path}");
        let (status, answer) = self.ask(&path).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }
}

/// A field of all items of a list.
fn fields<'a>(list: &'a Value, field: &str) -> Vec<&'a Value> {
    list["items"].as_array().unwrap().iter().map(|item| &item[field]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_and_the_shows_tell_how_the_farm_is_used() {
    let Some(site) = Site::open().await else { return };
    let farm = site.get("overview").await;
    assert_eq!(farm["hosts"], json!({ "total": 3, "up": 2, "open": 1 }));
    assert_eq!(farm["cores"], json!({ "total": 12.0, "used": 2.0, "idle": 6.0 }));
    assert_eq!(farm["jobs"], json!({ "open": 2, "paused": 1 }));
    assert_eq!(farm["frames"], json!({ "waiting": 245, "paused": 1, "running": 2, "depend": 10, "dead": 1 }));
    let scheduler = &farm["scheduler"];
    assert_eq!((&scheduler["is_healthy"], &scheduler["last_pass"]), (&json!(true), &Value::Null));
    assert_eq!((&scheduler["booked_per_s"], &farm["faults"]), (&Value::Null, &json!([])));
    assert!(farm["time_ms"].as_i64().unwrap() > 1_600_000_000_000);

    let shows = site.get("shows").await;
    assert_eq!(fields(&shows, "name"), ["advert", "film"]);
    assert_eq!(fields(&shows, "scheduled"), [&json!(false), &json!(true)]);
    let film = &shows["items"][1];
    assert_eq!((&film["jobs"], &film["waiting"], &film["running"]), (&json!(2), &json!(246), &json!(2)));
    assert_eq!((&film["share"], &film["paused"]), (&json!(0.75), &json!(false)));
    let cores = json!([{ "alloc": "f.general", "size": 300.0, "burst": 400.0, "cores": 2.0 }]);
    assert_eq!((&film["subscriptions"], &film["cores"]), (&cores, &json!(2.0)));
    let first = site.get("shows?limit=1").await;
    assert_eq!(fields(&first, "name"), ["advert"]);
    assert_eq!(first["next"], "advert");
    let rest = site.get("shows?limit=1&cursor=advert").await;
    assert_eq!(fields(&rest, "name"), ["film"]);
    assert_eq!(rest["next"], Value::Null);

    let (status, me) = site.ask("/api/v1/board/me").await;
    assert_eq!((status, &me["farm"], &me["role"]), (200, &json!("opencue"), &json!("viewer")));
    assert_eq!(me["signed_in_by"], "none");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_and_layers_have_the_counts_that_opencue_keeps() {
    let Some(site) = Site::open().await else { return };
    let cases = [
        ("jobs", vec!["j2", "j1"]),
        ("jobs?state=open", vec!["j2", "j1"]),
        ("jobs?state=pending", vec!["j1"]),
        ("jobs?state=paused", vec!["j2"]),
        ("jobs?state=finished", vec!["j3"]),
        ("jobs?show=film&user=ann", vec!["j1"]),
        ("jobs?name=LIGHT", vec!["j1"]),
        ("jobs?name=%25", vec![]),
        ("jobs?show=advert", vec![]),
    ];
    for (path, expected) in cases {
        assert_eq!(fields(&site.get(path).await, "id"), expected, "{path}");
    }
    let first = site.get("jobs?limit=1").await;
    assert_eq!(fields(&first, "id"), ["j2"]);
    let rest = site.get(&format!("jobs?limit=1&cursor={}", first["next"].as_str().unwrap())).await;
    assert_eq!(fields(&rest, "id"), ["j1"]);
    assert_eq!(rest["next"], Value::Null);

    let job = site.get("jobs/j1").await;
    let counts = json!({ "waiting": 245, "running": 2, "depend": 10, "dead": 1, "succeeded": 2, "eaten": 0,
        "checkpoint": 0 });
    assert_eq!((&job["counts"], &job["frames"], &job["layers"]), (&counts, &json!(260), &json!(2)));
    assert_eq!(
        (&job["state"], &job["priority"], &job["show"]),
        (&json!("pending"), &json!(7), &json!("film"))
    );
    assert_eq!((&job["cores"], &job["cores_max"]), (&json!(2.0), &json!(1_000.0)));
    assert_eq!((&job["stopped_ms"], &job["group"]), (&Value::Null, &json!("film")));
    assert_eq!(site.get("jobs/j2").await["state"], "paused");

    let layers = site.get("jobs/j1/layers").await;
    assert_eq!(fields(&layers, "name"), ["beauty", "comp"]);
    let beauty = &layers["items"][0];
    assert_eq!((&beauty["tags"], &beauty["kind"]), (&json!(["general", "gpu"]), &json!("render")));
    assert_eq!((&beauty["memory_bytes"], &beauty["cores_min"]), (&json!(512 << 20), &json!(1.0)));
    assert_eq!((&beauty["frames"], &beauty["counts"]["waiting"]), (&json!(250), &json!(245)));
    assert_eq!((&beauty["cores"], &beauty["mean_ms"]), (&json!(2.0), &json!(60_000.0)));
    assert_eq!(layers["items"][1]["mean_ms"], Value::Null, "none has succeeded");
    let first = site.get("jobs/j1/layers?limit=1").await;
    let next = first["next"].as_str().unwrap();
    assert_eq!(fields(&site.get(&format!("jobs/j1/layers?cursor={next}")).await, "name"), ["comp"]);
}

/// The numbers of all frames that a list gives, page by page.
async fn numbers(site: &Site, list: &str) -> Vec<i64> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    for _ in 0..100 {
        let page = site.get(&format!("{list}&limit=100{cursor}")).await;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 100, "{}", items.len());
        found.extend(items.iter().map(|frame| frame["number"].as_i64().unwrap()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
    panic!("{list} does not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_are_listed_by_number_however_they_are_found() {
    let Some(site) = Site::open().await else { return };
    let list = "jobs/j1/frames?layer=beauty";
    let all: Vec<i64> = (1..=250).collect();
    assert_eq!(numbers(&site, list).await, all);
    assert_eq!(numbers(&site, &format!("{list}&state=waiting")).await, &all[5..]);
    assert_eq!(numbers(&site, &format!("{list}&state=dead")).await, [3]);
    assert_eq!(numbers(&site, "jobs/j1/frames?layer=comp&state=depend").await.len(), 10);
    let page = site.get(&format!("{list}&limit=4")).await;
    let [running, second, dead, done] = page["items"].as_array().unwrap().as_slice() else {
        panic!("{page}")
    };
    assert_eq!((&running["state"], &running["host"]), (&json!("running"), &json!("render01")));
    assert_eq!((&running["cores"], &running["reserved_bytes"]), (&json!(1.0), &json!(100_000 << 10)));
    assert_eq!((&running["used_bytes"], &second["used_bytes"]), (&json!(50_000 << 10), &Value::Null));
    assert_eq!((&running["exit_status"], &done["exit_status"]), (&Value::Null, &json!(0)));
    assert_eq!(
        (&dead["state"], &dead["exit_status"], &dead["retries"]),
        (&json!("dead"), &json!(1), &json!(3))
    );
    assert_eq!((&running["name"], &dead["cores"]), (&json!("0001-beauty"), &Value::Null));

    // Where OpenCue counts more than are sorted, frames in a state are looked for by name.
    site.sql("UPDATE layer_stat SET int_waiting_count = 20000 WHERE pk_layer = 'l1'");
    assert_eq!(numbers(&site, &format!("{list}&state=waiting")).await, &all[5..]);
    // What cannot be read as a range is sorted by the database.
    site.sql("UPDATE layer SET str_range = 'as the artist likes' WHERE pk_layer = 'l1'");
    assert_eq!(numbers(&site, list).await, all);
    assert_eq!(numbers(&site, &format!("{list}&state=waiting")).await, &all[5..]);
    // Every second frame of another range.
    site.sql("UPDATE layer SET str_range = '250-1', int_chunk_size = 2 WHERE pk_layer = 'l1'");
    let even: Vec<i64> = (1..=125).map(|n| 2 * n).collect();
    assert_eq!(numbers(&site, list).await, even);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_tell_what_they_have_and_what_runs_there() {
    let Some(site) = Site::open().await else { return };
    let cases = [
        ("hosts", vec!["render01", "render02", "render03"]),
        ("hosts?state=open", vec!["render01"]),
        ("hosts?state=locked", vec!["render02"]),
        ("hosts?state=away", vec!["render03"]),
        ("hosts?name=ER02", vec!["render02"]),
        ("hosts?name=none", vec![]),
        ("hosts?limit=1&cursor=render01", vec!["render02"]),
    ];
    for (path, expected) in cases {
        assert_eq!(fields(&site.get(path).await, "name"), expected, "{path}");
    }
    let host = site.get("hosts/render01").await;
    assert_eq!((&host["state"], &host["alloc"]), (&json!("open"), &json!("f.general")));
    assert_eq!((&host["cores"], &host["cores_idle"], &host["load"]), (&json!(8.0), &json!(6.0), &json!(1.5)));
    assert_eq!((&host["memory_bytes"], &host["frames"]), (&json!(8_388_608_i64 << 10), &json!(2)));
    assert_eq!((&host["tags"], &host["left_out_ms"]), (&json!(["general"]), &Value::Null));
    let procs = host["procs"].as_array().unwrap();
    let one = procs.iter().find(|proc| proc["frame"] == "0001-beauty").unwrap();
    assert_eq!((procs.len(), &one["job"], &one["layer"]), (2, &json!("j1"), &json!("beauty")));
    assert_eq!((&one["cores"], &one["used_bytes"]), (&json!(1.0), &json!(50_000 << 10)));
    assert_eq!(site.get("hosts/render03").await["state"], "away");
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_what_the_command_says() {
    let Some(site) = Site::open().await else { return };
    for (path, job, part) in [
        ("jobs/j1/why", "j1", None),
        ("jobs/j1/why?part=comp", "j1", Some("comp")),
        ("jobs/j1/why?part=0003-beauty", "j1", Some("0003-beauty")),
        ("jobs/j2/why", "j2", None),
    ] {
        let answer = site.get(path).await;
        let told = site.instance.why(job, part).await.unwrap();
        let told: Vec<Value> = told
            .iter()
            .map(|layer| json!({ "name": layer.layer, "frames": layer.frames, "reasons": layer.reasons }))
            .collect();
        assert!(!told.is_empty(), "{path}");
        assert_eq!((&answer["layers"], &answer["left_out"]), (&Value::Array(told), &json!(0)), "{path}");
    }
    let dead = site.get("jobs/j1/why?part=0003-beauty").await;
    let said = dead["layers"][0]["reasons"][0].as_str().unwrap();
    assert_eq!(said, "frame 0003-beauty is dead after 3 retries, with exit status 1");
    assert_eq!(site.get("jobs/j2/why").await["layers"][0]["reasons"], json!(["the job is paused"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_or_makes_no_sense_is_said_and_nothing_is_written() {
    let Some(site) = Site::open().await else { return };
    let before = site.digests();
    let long = "x".repeat(1_000);
    let cases = [
        ("jobs/none", 404, "there is no job 'none'"),
        ("jobs/none/why", 404, "there is no job 'none' with layers"),
        ("jobs/j1/why?part=none", 404, "there is no layer or frame 'none' of job 'j1'"),
        ("jobs/j1/frames?layer=none", 404, "there is no layer 'none' of job 'j1'"),
        ("hosts/none", 404, "there is no host 'none'"),
        ("none", 404, "there is nothing at this path"),
        ("jobs/j1/frames", 400, "layer"),
        ("jobs?limit=0", 400, "limit must be from 1 to 1000, not 0"),
        ("jobs?limit=1001", 400, "limit must be from 1 to 1000, not 1001"),
        ("jobs?cursor=7", 400, "'7' is not a valid cursor"),
        ("jobs?name=%00", 400, "name must not contain the character NUL"),
        ("jobs?colour=green", 400, "unknown field"),
        ("jobs?state=green", 400, "unknown variant"),
        ("hosts/%00", 400, "must not contain the character NUL"),
    ];
    for (path, status, why) in cases {
        let path = format!("/api/v1/opencue/{path}");
        let (found, answer) = site.ask(&path).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(found == status && message.contains(why), "{path}: {found} {message}");
    }
    let (status, _) = site.ask(&format!("/api/v1/opencue/jobs?name={long}")).await;
    assert_eq!((status, PAGE_MAX), (400, 1_000));
    for path in
        ["overview", "shows", "jobs", "jobs/j1", "jobs/j1/layers", "jobs/j1/why", "hosts", "hosts/render01"]
    {
        site.get(path).await;
    }
    numbers(&site, "jobs/j1/frames?layer=beauty").await;
    assert_eq!(site.digests(), before, "a row was written");
}

/// Paths of the farm, where `*` is anything.
const PATHS: [&str; 9] = [
    "overview",
    "shows",
    "jobs",
    "jobs/*",
    "jobs/*/layers",
    "jobs/*/frames",
    "jobs/*/why",
    "hosts",
    "hosts/*",
];
const NAMES: [&str; 9] = ["limit", "cursor", "state", "name", "show", "user", "layer", "part", "colour"];

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        let _ = write!(all, "%{byte:02X}");
        all
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn any_parameters_are_answered_or_refused() {
    let Some(site) = Site::open().await else { return };
    let before = site.digests();
    let value = || {
        prop_oneof![
            "(?s).{0,12}",
            "-?[0-9]{1,20}",
            "-?[0-9]{1,20}\\.[a-z0-9]{0,9}",
            "j1|j2|beauty|comp|film|ann|render01|waiting|dead|open|away|0003-beauty",
        ]
    };
    let parameters = prop::collection::vec((prop::sample::select(&NAMES), value()), 0..4);
    let requests = (prop::sample::select(&PATHS), value(), parameters);
    let mut runner = TestRunner::deterministic();
    let mut answered = 0;
    for _ in 0..400 {
        let (path, name, parameters) = requests.new_tree(&mut runner).unwrap().current();
        let name = if name.is_empty() { "x".to_owned() } else { encoded(&name) };
        let mut path = format!("/api/v1/opencue/{}?", path.replace('*', &name));
        for (key, value) in parameters {
            let _ = write!(path, "{key}={}&", encoded(&value));
        }
        let (status, answer) = site.ask(&path).await;
        assert!(matches!(status, 200 | 400 | 404), "{path}: {status} {answer}");
        assert_eq!(status == 200, answer["error"].is_null(), "{path}: {answer}");
        answered += u32::from(status == 200);
    }
    assert!(answered > 40, "{answered} of 400 made sense");
    assert_eq!(site.digests(), before, "a row was written");
}
