//! A farm of several shards on one PostgreSQL database, with an engine for each, spread over two servers: a job's tasks run
//! in all shards, what people ask reaches the shard that knows, and a server that dies or is drained leaves its shards to
//! the other. Workers go to the shard to which they belong, and servers have the shards that their weights and pins say.

#[path = "../../store/tests/support/postgres.rs"]
mod database;
mod support;

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use support::cluster::{Server, worker_with};
use support::notices::Deaf;
use support::port::KillOnDrop;
use support::{kill, show, wait_until};

const SHARDS: [&str; 2] = ["--shards", "4"];

/// A task that notes if it runs twice at once, and if more tasks run than the workers have cpus.
const AUDITED: &str = r#"exec 9>locks/{}; flock -n 9 || { echo {} runs twice >> wrong; exit 1; }
    [ -e done/{} ] && echo {} runs again >> wrong
    for slot in 0 1 2 3 4 5 6 7; do
        exec 8>slot$slot; if flock -n 8; then echo {}; sleep 0.2; : > done/{}; exit; fi
    done; echo {} has no cpu >> wrong; exit 1"#;

/// A farm of four shards, of which each has a worker.
struct Divided {
    one: Server,
    two: Server,
    token: String,
    _workers: Vec<KillOnDrop>,
}

impl Divided {
    /// `None` where there is no PostgreSQL.
    fn start() -> Option<Divided> {
        let store = database::database()?;
        let one = Server::start_with("one", &store, &SHARDS);
        let two = Server::start_with("two", &store, &SHARDS);
        wait_until("both servers own shards", || {
            let owners = two.owners();
            owners.len() == 4 && owners.values().collect::<BTreeSet<_>>().len() == 2
        });
        let token = one.ok(&["token", "create", "--role", "admin"]).trim().to_owned();
        let worker = |shard: u32| {
            let (name, shard) = (format!("w{shard}"), shard.to_string());
            worker_with(&one, &name, &[&one, &two], &["--shard", &shard])
        };
        let workers = (1..=4).map(worker).collect();
        for directory in ["locks", "done"] {
            std::fs::create_dir(one.farm.work().join(directory)).unwrap();
        }
        Some(Divided { one, two, token, _workers: workers })
    }

    /// A command for whichever server answers.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.one.farm.command(args);
        let servers = format!("{},{}", self.two.address, self.one.address);
        command.env("WINDLASS_SERVER", servers).env("WINDLASS_TOKEN", &self.token);
        command
    }

    fn logs(&self) -> String {
        format!("{}\n== two\n{}", self.one.log(), self.two.log())
    }

    fn begun(&self) -> usize {
        std::fs::read_dir(self.one.farm.work().join("locks")).unwrap().count()
    }

    fn wrong(&self) -> String {
        std::fs::read_to_string(self.one.farm.work().join("wrong")).unwrap_or_default()
    }
}

/// The workers on which tasks of a job ran.
fn ran_on(server: &Server, job: &str) -> BTreeSet<String> {
    let tasks = server.json(&["job", "tasks", job]);
    let names = tasks.as_array().unwrap().iter().filter_map(|task| task["worker"].as_str());
    names.map(str::to_owned).collect()
}

/// Runs a command in the background and gathers the lines that it prints.
fn listen(mut command: Command) -> (KillOnDrop, Arc<Mutex<Vec<String>>>) {
    let mut process = KillOnDrop(command.stdout(Stdio::piped()).spawn().unwrap());
    let (lines, output) = (Arc::<Mutex<Vec<String>>>::default(), process.0.stdout.take().unwrap());
    let gathered = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            gathered.lock().unwrap().push(line);
        }
    });
    (process, lines)
}

/// What a server answers to a path, as its administrator.
fn get(server: &Server, path: &str) -> String {
    let mut stream = UnixStream::connect(server.farm.state().join("admin.sock")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    body.to_owned()
}

fn get_json(server: &Server, path: &str) -> Value {
    serde_json::from_str(&get(server, path)).unwrap()
}

/// While tasks of a job run on all eight cpus: what people look at is of the whole farm, from any server.
fn figures_are_of_all_shards(farm: &Divided, job: &str) {
    let (one, two) = (&farm.one, &farm.two);
    wait_until("a job counts what runs in all shards", || {
        let counts = two.json(&["job", "show", job])["counts"].clone();
        let listed = one.json(&["job", "list"]);
        let listed = listed
            .as_array()
            .unwrap()
            .iter()
            .find(|listed| listed["id"].as_u64() == job.parse().ok())
            .cloned();
        let running = |counts: &Value| counts["running"].as_u64().unwrap();
        let all: u64 =
            ["running", "ready", "waiting", "succeeded"].map(|of| counts[of].as_u64().unwrap()).iter().sum();
        running(&counts) >= 8 && running(&listed.unwrap()["counts"]) >= 8 && all == 40
    });
    wait_until("the overview is of all shards", || {
        let seen = get_json(two, "/api/v1/board/overview");
        let running = seen["tasks"]["running"].as_u64().unwrap();
        seen["workers"]["online"] == 4
            && (&seen["cpus"]["total"], &seen["cpus"]["booked"]) == (&json!(8.0), &json!(8.0))
            && seen["jobs"]["running"] == 1
            && running >= 8
            && seen["holds"] == json!([])
    });
    wait_until("the job's queue has what it has in all shards", || {
        let queues = one.json(&["queue", "list"]);
        queues.as_array().unwrap().iter().any(|queue| queue["running_cpus"] == json!(8.0))
    });
    wait_until("lists are of all shards, page by page", || {
        let workers = get_json(two, "/api/v1/board/workers")["message"].clone();
        let page = get_json(one, "/api/v1/scheduler/server_loads?limit=3");
        let rest = get_json(one, &format!("/api/v1/scheduler/server_loads?cursor={}", page["ids"][2]));
        let count = |page: &Value| page["servers"].as_array().unwrap().len();
        names(&workers).len() == 4
            && (count(&page), &page["next"]) == (3, &page["ids"][2])
            && (count(&rest), rest.get("next")) == (1, None)
    });
    let grid = get_json(two, &format!("/api/v1/jobs/{job}/grid"));
    let runs = grid["runs"].as_array().unwrap().iter().filter(|run| run[0] == "r" || run[0] == "p");
    assert!(runs.map(|run| run[1].as_u64().unwrap()).sum::<u64>() >= 8, "{grid}");
    wait_until("the other shards have their tasks", || {
        let shards = get_json(two, &format!("/api/v1/jobs/{job}/shards"));
        let shards = shards.as_array().unwrap();
        let runs = |shard: &Value| shard["shard"].as_u64() > Some(1) && shard["running"].as_u64() >= Some(2);
        shards.len() == 3 && shards.iter().all(runs)
    });
    let why = one.ok(&["why", job]);
    assert!(
        ["in shard 2: ", "in shard 3: ", "in shard 4: "].iter().all(|there| why.contains(there)),
        "{why}"
    );
    // Each shard is told by the server that runs it, and by no other one.
    let metrics = [get(one, "/metrics"), get(two, "/metrics")].concat();
    for shard in 1..=4 {
        let up = format!("windlass_workers{{shard=\"{shard}\",state=\"up\"}} 1");
        assert_eq!(metrics.lines().filter(|line| *line == up).count(), 1, "{up}\n{metrics}");
    }
    assert!(!metrics.contains("windlass_workers{state="), "{metrics}");
}

/// The answer of the database to a query.
fn ask(store: &str, sql: &str) -> String {
    let name = store.split_once("@/").unwrap().1.split_once('?').unwrap().0;
    database::cluster().unwrap().sql(name, sql)
}

fn names(workers: &Value) -> BTreeSet<&str> {
    workers.as_array().unwrap().iter().map(|worker| worker["name"].as_str().unwrap()).collect()
}

#[test]
fn a_job_runs_in_all_shards_and_what_people_ask_reaches_them() {
    let Some(farm) = Divided::start() else { return };
    let (one, two) = (&farm.one, &farm.two);
    let all = BTreeSet::from(["w1", "w2", "w3", "w4"]);
    assert_eq!(names(&one.json(&["worker", "list"])), all);
    assert_eq!(names(&two.json(&["worker", "list"])), all, "from the server that stands by");
    let list = two.ok(&["scheduler", "list"]);
    assert!(list.contains("owns shard 1 (epoch 1, "), "{list}");
    // Each start and each end is told once, in whichever shard it is.
    let (first, gate) = (one.farm.work().join("first"), one.farm.work().join("go"));
    let until = |gate: &Path| format!("while [ ! -e {} ]; do sleep 0.01; done; echo {{}}", gate.display());
    let before = two.ok(&["submit", "--quiet", "--", "sh", "-c", &until(&first)]);
    let after = format!("--after={}", before.trim());
    let job = two.ok(&["submit", "--quiet", &after, "--array", "1-40", "--", "sh", "-c", &until(&gate)]);
    let job = job.trim();
    let (_listening, events) = listen(farm.command(&["events", job, "-o", "jsonl"]));
    wait_until("events are told", || {
        one.ok(&["job", "hold", job]);
        two.ok(&["job", "release", job]);
        !events.lock().unwrap().is_empty()
    });
    std::fs::write(&first, "").unwrap();
    wait_until("tasks run in all shards", || ran_on(two, job).len() == 4);
    let away = two.json(&["job", "tasks", job, "--state", "running"]);
    let away = away.as_array().unwrap().iter().find(|task| task["worker"] == "w3").unwrap().clone();
    let id = away["id"].as_str().unwrap();
    assert!(one.ok(&["why", id]).contains("w3"), "{}", farm.logs());
    figures_are_of_all_shards(&farm, job);
    let follow = farm.command(&["logs", "-f", id, "--stdout"]).stdout(Stdio::piped()).spawn().unwrap();
    std::fs::write(&gate, "").unwrap();
    two.ok(&["job", "wait", job]);
    let followed = follow.wait_with_output().unwrap();
    let value = (away["index"].as_u64().unwrap() + 1).to_string();
    assert_eq!(String::from_utf8(followed.stdout).unwrap().trim(), value, "{}", farm.logs());
    assert_eq!(two.ok(&["logs", id, "--stdout"]).trim(), value);
    let told = || {
        let mut told = BTreeMap::<(u64, String), u32>::new();
        for line in events.lock().unwrap().iter() {
            let event: Value = serde_json::from_str(line).unwrap();
            for task in event["tasks"]["tasks"].as_array().into_iter().flatten() {
                let key = (task["index"].as_u64().unwrap(), task["state"].as_str().unwrap().to_owned());
                *told.entry(key).or_default() += 1;
            }
        }
        told
    };
    wait_until("all starts and ends were told", || told().len() == 80);
    assert!(told().values().all(|times| *times == 1), "{:?}", told());
    wait_until("what came of attempts is known of all shards", || {
        let history = get_json(one, "/api/v1/board/history");
        let workers: BTreeSet<&str> = history["workers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|record| record["worker"].as_str().unwrap())
            .collect();
        history["tasks"] == 41 && workers == all
    });
    // Requests about one worker reach its shard.
    two.ok(&["worker", "drain", "w3", "--note", "disk"]);
    assert_eq!(one.json(&["worker", "show", "w3"])["state"], json!("draining"));
    assert!(two.ok(&["why", "--worker", "w3"]).contains("draining"), "{}", farm.logs());
    one.ok(&["worker", "resume", "w3"]);
    assert_eq!(two.json(&["worker", "show", "w3"])["state"], json!("up"));
    let unknown = two.run(&["worker", "show", "w9"]);
    assert!(show(&unknown).contains("there is no worker 'w9'"), "{}", show(&unknown));
}

#[test]
fn a_killed_servers_shards_are_served_by_the_other_and_each_result_counts_once() {
    const TASKS: usize = 400;
    let Some(mut farm) = Divided::start() else { return };
    let array = format!("1-{TASKS}");
    let mut run = farm.command(&["run", "--quiet", "--array", &array, "--", "sh", "-c", AUDITED]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let jobs = || farm.two.json(&["job", "list"]).as_array().cloned().unwrap_or_default();
    wait_until("the job is accepted", || !jobs().is_empty());
    let job = jobs()[0]["id"].to_string();
    wait_until("tasks run in all shards", || ran_on(&farm.two, &job).len() == 4);
    farm.one.end("KILL");
    let kept = farm.begun();
    wait_until("the other one owns all shards", || {
        let owners = farm.two.owners();
        owners.len() == 4 && owners.values().all(|owner| owner == "two")
    });
    wait_until("tasks begin again", || farm.begun() > kept + 16);
    farm.one.start_again();
    wait_until("the first one has its part again", || farm.two.owners().values().any(|owner| owner == "one"));
    farm.two.end("KILL");
    farm.two.start_again();
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{}", show(&output), farm.logs());
    assert_eq!(farm.wrong(), "", "{}", farm.logs());
    let mut told: Vec<usize> =
        String::from_utf8(output.stdout).unwrap().lines().map(|n| n.parse().unwrap()).collect();
    told.sort_unstable();
    assert_eq!(told, (1..=TASKS).collect::<Vec<_>>(), "each task's output is told once");
    let counts = farm.one.json(&["job", "show", &job])["counts"].clone();
    assert_eq!(counts["succeeded"], json!(TASKS), "{counts}");
    for server in [&farm.one, &farm.two] {
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
}

#[test]
fn a_drained_server_gives_its_shards_up_and_gets_some_again() {
    let Some(farm) = Divided::start() else { return };
    let (one, two) = (&farm.one, &farm.two);
    let array = ["submit", "--quiet", "--array", "1-200", "--", "sh", "-c", AUDITED];
    let job = one.ok(&array);
    let job = job.trim();
    wait_until("tasks run in all shards", || ran_on(two, job).len() == 4);
    one.ok(&["scheduler", "drain", "two"]);
    wait_until("the first one owns all shards", || one.owners().values().all(|owner| owner == "one"));
    one.ok(&["scheduler", "resume", "two"]);
    wait_until("the other one has its part again", || one.owners().values().any(|owner| owner == "two"));
    two.ok(&["job", "wait", job]);
    assert_eq!(farm.wrong(), "", "{}", farm.logs());
    assert_eq!(one.json(&["job", "show", job])["counts"]["succeeded"], json!(200));
    assert_eq!(names(&two.json(&["worker", "list"])).len(), 4);
}

/// Milliseconds from each submission, through a server that owns neither shard 1 nor the shard that has all workers, to the
/// start of its task there, from least to most.
fn waits_ms(store: &str, jobs: usize) -> Vec<f64> {
    let start = |name| Server::start_with(name, store, &["--shards", "3"]);
    let servers = [start("one"), start("two"), start("three")];
    // These names spread the shards so. While servers join, a shard may have no owner for a moment.
    let spread =
        BTreeMap::from([(1, "one"), (2, "two"), (3, "three")].map(|(shard, name)| (shard, name.to_owned())));
    wait_until("each server has its shard", || servers[0].owners() == spread);
    let asked = &servers[1];
    let all: Vec<&Server> = servers.iter().collect();
    let _worker = worker_with(&servers[0], "away", &all, &["--shard", "3"]);
    let work = asked.farm.work();
    let mut waits_ms = Vec::new();
    let now_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0;
    for _ in 0..jobs {
        let asked_ms = now_ms();
        let job = asked.ok(&["submit", "--quiet", "--", "sh", "-c", "date +%s%3N > began"]);
        asked.ok(&["job", "wait", job.trim()]);
        assert_eq!(ran_on(asked, job.trim()), BTreeSet::from(["away".to_owned()]));
        let began_ms: f64 = std::fs::read_to_string(work.join("began")).unwrap().trim().parse().unwrap();
        assert!(began_ms >= asked_ms.floor(), "a task of an earlier job ran");
        waits_ms.push(began_ms - asked_ms);
    }
    waits_ms.sort_by(f64::total_cmp);
    waits_ms
}

#[test]
fn a_task_starts_in_another_shard_soon_after_its_submission() {
    let Some(store) = database::database() else { return };
    let waits_ms = waits_ms(&store, 15);
    println!("submission through a server to the start in another one's shard: {waits_ms:.0?} ms");
    assert_eq!(waits_ms.len(), 15);
}

#[test]
fn without_notifications_a_task_starts_in_another_shard() {
    let Some(store) = database::database() else { return };
    let deaf = Deaf::new(database::cluster().unwrap().dir().join(".s.PGSQL.5432"));
    let name = store.split_once("@/").unwrap().1.split_once('?').unwrap().0;
    let address = format!("postgres://{}@{}/{name}?sslmode=disable", database::USER, deaf.address);
    let waits_ms = waits_ms(&address, 7);
    println!("the same without notifications: {waits_ms:.0?} ms");
    assert!(deaf.lost() > 0, "the servers would have been notified");
}

#[test]
fn workers_that_were_there_before_go_to_their_shards_when_nothing_is_booked_on_them() {
    let Some(store) = database::database() else { return };
    let mut one = Server::start("one", &store);
    let worker = |name: &str, shard: &str| worker_with(&one, name, &[&one], &["--shard", shard]);
    let _workers = [worker("idle", "2"), worker("busy", "2"), worker("drained", "2"), worker("stays", "1")];
    let gates = ["first", "second"].map(|name| one.farm.work().join(name));
    let [first, second] = gates
        .each_ref()
        .map(|gate| format!("echo begun; while [ ! -e {} ]; do sleep 0.01; done", gate.display()));
    let job = one.ok(&["submit", "--quiet", "--worker", "busy", "--", "sh", "-c", &first]);
    let job = job.trim();
    wait_until("the task runs", || one.json(&["job", "tasks", job])[0]["state"] == json!("running"));
    one.ok(&["worker", "drain", "drained"]);
    one.end("TERM");
    one.start_again_with(&["--shards", "2"]);
    // Shard and state: 0 is up, 1 is draining, and 4, which is left out, forgotten.
    let place_of = |name: &str| {
        ask(&store, &format!("SELECT shard, state FROM workers WHERE name = '{name}' AND state <> 4"))
    };
    wait_until("the idle worker is in its shard", || place_of("idle") == "2|0");
    wait_until("the busy one is connected", || place_of("busy") == "1|0");
    // Where it is now it gets work.
    let array = one.ok(&["submit", "--quiet", "--array", "1-20", "--", "sh", "-c", &second]);
    let array = array.trim();
    wait_until("tasks run in the second shard", || ran_on(&one, array).contains("idle"));
    wait_until("all are connected", || {
        [place_of("busy"), place_of("stays"), place_of("drained")] == ["1|0", "1|0", "1|1"]
    });
    gates.iter().for_each(|gate| std::fs::write(gate, "").unwrap());
    one.ok(&["job", "wait", job]);
    one.ok(&["job", "wait", array]);
    wait_until("the busy one follows when it has nothing to do", || place_of("busy") == "2|0");
    let task = one.json(&["job", "tasks", job])[0].clone();
    assert_eq!((&task["attempt"], &task["state"]), (&json!(1), &json!("succeeded")), "{}", one.log());
    let id = task["id"].as_str().unwrap();
    assert_eq!(one.ok(&["logs", id, "--stdout"]).trim(), "begun", "its output is on the same machine");
    assert_eq!(one.json(&["job", "show", array])["counts"]["succeeded"], json!(20));
    // A drained worker stays where it is known to be drained.
    assert_eq!(place_of("drained"), "1|1");
    one.ok(&["worker", "resume", "drained"]);
    wait_until("the resumed one follows", || place_of("drained") == "2|0");
    assert_eq!(place_of("stays"), "1|0");
    let all = BTreeSet::from(["busy", "drained", "idle", "stays"]);
    wait_until("the list has each once", || {
        let list = one.json(&["worker", "list"]);
        list.as_array().unwrap().len() == 4 && names(&list) == all
    });
    assert!(!one.log().contains("panicked"), "{}", one.log());
}

#[test]
fn a_server_has_the_shards_that_it_pins_and_its_part_by_weight() {
    let Some(store) = database::database() else { return };
    let one = Server::start_with("one", &store, &SHARDS);
    let flags = ["--shards", "4", "--shard", "3", "--shard-weight", "0"];
    let mut two = Server::start_with("two", &store, &flags);
    let shared = BTreeMap::from([(1, "one"), (2, "one"), (3, "two"), (4, "one")]);
    let owners_are = |wanted: &BTreeMap<u64, &str>| {
        let owners = one.owners();
        owners.len() == wanted.len() && wanted.iter().all(|(shard, name)| owners[shard] == *name)
    };
    wait_until("each server has its part", || owners_are(&shared));
    let list = one.ok(&["scheduler", "list"]);
    let of = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(of("two").contains("; weight 0; pins 3") && !of("one").contains("weight"), "{list}");
    two.end("KILL");
    let alone: BTreeMap<u64, &str> = shared.keys().map(|shard| (*shard, "one")).collect();
    wait_until("the other one has the pinned shard", || owners_are(&alone));
    two.start_again();
    wait_until("the pinned shard is back", || owners_are(&shared));
}

/// Two servers with a shard each, of which only the second's has a worker.
fn with_a_worker_in_the_second_shard() -> Option<(Server, Server, String, KillOnDrop)> {
    let store = database::database()?;
    let one = Server::start_with("one", &store, &["--shards", "2"]);
    let two = Server::start_with("two", &store, &["--shards", "2", "--shard", "2"]);
    wait_until("the second server has the second shard", || {
        one.owners() == BTreeMap::from([(1, "one".to_owned()), (2, "two".to_owned())])
    });
    let token = one.ok(&["token", "create", "--role", "admin"]).trim().to_owned();
    let worker = worker_with(&one, "w2", &[&one, &two], &["--shard", "2"]);
    Some((one, two, token, worker))
}

#[test]
fn a_task_in_another_servers_shard_lends_its_cpus_while_it_waits() {
    let Some((one, two, token, _worker)) = with_a_worker_in_the_second_shard() else { return };
    // Both cpus of the only worker are taken by tasks that wait for jobs of their own.
    let nested = format!("{} run --quiet --cwd / -- echo nested", support::windlass());
    let mut command = one.farm.command(&["run", "--quiet", "--array", "1-2", "--env", "WINDLASS_TOKEN"]);
    command.env("WINDLASS_SERVER", &one.address).env("WINDLASS_TOKEN", &token);
    let mut run = command.args(["--", "sh", "-c", &nested]).stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the tasks have ended", || run.try_wait().unwrap().is_some());
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{}", one.log(), two.log());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "nested\nnested\n");
    assert_eq!(one.json(&["workers"])[0]["booked"]["cpus"], json!(0.0));
}

#[test]
fn when_a_task_in_another_servers_shard_began_and_how_far_it_is_is_told() {
    let Some((one, two, _token, _worker)) = with_a_worker_in_the_second_shard() else { return };
    let (go_on, template) = (one.farm.work().join("go-on"), one.farm.work().join("job.yaml"));
    let script = format!(
        "echo openjd_progress: 42.5; echo openjd_status: loading; while [ ! -e {} ]; do sleep 0.05; done",
        go_on.display()
    );
    let text = format!(
        "specificationVersion: jobtemplate-2023-09\nname: T\nsteps:\n- name: S\n  script:\n    actions:\n      \
         onRun: {{command: sh, args: ['-c', '{script}']}}\n"
    );
    std::fs::write(&template, text).unwrap();
    let job = one.ok(&["submit", "-f", template.to_str().unwrap(), "-o", "name"]);
    let job = job.trim();
    wait_until("progress is told", || two.json(&["job", "tasks", job])[0]["progress"] == 42.5);
    let task = one.json(&["job", "tasks", job])[0].clone();
    assert_eq!((&task["status"], &task["worker"]), (&json!("loading"), &json!("w2")), "{task}");
    assert!(task["started_ms"].as_u64() >= task["booked_ms"].as_u64(), "{task}");
    assert!(two.ok(&["job", "show", job]).contains("42.5% loading"));
    // Of a shard that does not answer nothing is told, and the list comes.
    kill(two.process_id(), "STOP");
    let task = one.json(&["job", "tasks", job])[0].clone();
    assert_eq!((&task["state"], task.get("progress")), (&json!("running"), None), "{task}");
    kill(two.process_id(), "CONT");
    std::fs::write(&go_on, "").unwrap();
    one.ok(&["job", "wait", job]);
    let task = one.json(&["job", "tasks", job])[0].clone();
    assert_eq!((&task["state"], task.get("progress")), (&json!("succeeded"), None), "{task}");
}
