//! Several servers of one farm, as clients and workers see them: addresses where nobody listens, servers that refuse, and
//! ways to one server that are cut.

use crate::support::port::{KillOnDrop, Port};
use crate::support::proxy::{Behind, Proxy};
use crate::support::{Farm, show, wait_until};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tonic::{Request, Response, Status, Streaming};
use windlass_api::wire::workers_server::{Workers, WorkersServer};
use windlass_api::wire::{FromWorker, KeptOutputs, OutputsAreKept, Task, TaskFiles, ToWorker};

/// An address where nobody listens.
fn refused() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A command for the servers of this list.
fn at(farm: &Farm, servers: &[&str], args: &[&str]) -> Command {
    let mut command = farm.command(args);
    command.env("WINDLASS_SERVER", servers.join(","));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn any_listed_server_answers_and_if_none_does_each_is_named() {
    let farm = Farm::with_server(&["--no-worker"]);
    let (nobody, other) = (refused(), refused());
    let socket = format!("unix:{}", farm.socket().display());
    let listed = at(&farm, &[&nobody, &socket], &["jobs"]).output().unwrap();
    assert!(listed.status.success(), "{}", show(&listed));
    let failed = at(&farm, &[&nobody, &other], &["jobs"]).output().unwrap();
    let said = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(5), "{said}");
    for address in [&nobody, &other] {
        assert!(said.contains(&format!("http://{address}: Connection refused")), "{said}");
    }
    let doctor = at(&farm, &[&nobody, &socket], &["doctor", "-o", "jsonl"]).output().unwrap();
    let of = |address: &str| {
        let checks = text(&doctor.stdout);
        let found = checks.lines().find(|line| line.contains(&format!("{address}: "))).map(str::to_owned);
        found.unwrap_or_else(|| panic!("{}", show(&doctor)))
    };
    assert!(of(&nobody).contains(r#""state":"missing""#) && of(&socket).contains(r#""state":"ok""#));
    let stopped = at(&farm, &[&socket, &nobody], &["server", "stop"]).output().unwrap();
    assert_eq!(stopped.status.code(), Some(2), "{}", show(&stopped));
    let none = at(&farm, &[","], &["jobs"]).output().unwrap();
    assert_eq!(none.status.code(), Some(2), "{}", show(&none));
}

#[test]
fn the_output_of_a_run_is_whole_however_its_streams_are_cut() {
    const LINES: usize = 20_000;
    let farm = Farm::with_server(&[]);
    let proxies = [3, 7].map(|seed| {
        Proxy::cutting(Behind::Unix(farm.socket()), &["/log?", "/events?"], 20_000, 0x9e37_79b9 + seed)
    });
    let servers = [proxies[0].address.as_str(), proxies[1].address.as_str()];
    let command = format!("seq 1 {LINES}; seq 1 100 >&2; exit 3");
    let whole: String = (1..=LINES).map(|n| format!("{n}\n")).collect();
    let run = at(&farm, &servers, &["run", "--quiet", "--", "sh", "-c", &command]).output().unwrap();
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    assert!(text(&run.stdout) == whole, "{} of {} bytes", run.stdout.len(), whole.len());
    let errors = text(&run.stderr);
    let errors: Vec<&str> = errors.lines().filter(|line| !line.starts_with("note:")).collect();
    assert_eq!(errors, (1..=100).map(|n| n.to_string()).collect::<Vec<_>>());
    // The same of several tasks, and of one that is shown by itself.
    let several = ["run", "--quiet", "--array", "1-3", "--", "sh", "-c", "seq {}000 {}999"];
    let several = at(&farm, &servers, &several).output().unwrap();
    assert!(several.status.success(), "{}", show(&several));
    let mut shown: Vec<String> = text(&several.stdout).lines().map(str::to_owned).collect();
    shown.sort();
    assert_eq!(shown, (1000..4000).map(|n| n.to_string()).collect::<Vec<_>>());
    let task = at(&farm, &servers, &["logs", "-f", "1.0", "--stdout"]).output().unwrap();
    assert!(text(&task.stdout) == whole, "{}: {} bytes", text(&task.stderr), task.stdout.len());
    let tail =
        at(&farm, &servers, &["logs", "-f", "1.0", "--stdout", "--tail-bytes", "60000"]).output().unwrap();
    assert!(text(&tail.stdout) == whole[whole.len() - 60_000..], "{}", text(&tail.stderr));
    assert!(proxies.iter().all(|proxy| proxy.cuts() > 0), "{:?}", proxies.each_ref().map(Proxy::cuts));
}

#[test]
fn each_start_and_each_end_is_told_once_across_servers() {
    const TASKS: usize = 60;
    let farm = Farm::with_server(&[]);
    let proxies = [5, 11]
        .map(|seed| Proxy::cutting(Behind::Unix(farm.socket()), &["/events?"], 4_000, 0x1234_5678 + seed));
    let servers = [proxies[0].address.as_str(), proxies[1].address.as_str()];
    let gate = "while [ ! -e go ]; do :; done";
    let first = farm.ok(&["submit", "--quiet", "--", "sh", "-c", gate]);
    let array = format!("1-{TASKS}");
    let job = farm.ok(&["submit", "--quiet", "--after", first.trim(), "--array", &array, "--", "true"]);
    let job = job.trim();
    let mut events = at(&farm, &servers, &["events", job, "-o", "jsonl"]);
    let mut events = events.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(events.stdout.take().unwrap());
    let _events = KillOnDrop(events);
    wait_until("a server listens", || proxies.iter().any(|proxy| proxy.was_sent("/events?")));
    std::fs::write(farm.work().join("go"), "").unwrap();
    let mut told: BTreeMap<(u64, String), usize> = BTreeMap::new();
    for line in lines.lines() {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        for task in event["tasks"]["tasks"].as_array().into_iter().flatten() {
            let state = task["state"].as_str().unwrap().to_owned();
            *told.entry((task["index"].as_u64().unwrap(), state)).or_default() += 1;
        }
        if event["job"]["state"] == "succeeded" {
            break;
        }
    }
    let once = |state: &str| (0..TASKS as u64).all(|n| told.get(&(n, state.to_owned())) == Some(&1));
    assert!(once("running") && once("succeeded"), "{told:?}");
    assert_eq!(told.len(), 2 * TASKS, "{told:?}");
    assert!(proxies.iter().map(Proxy::cuts).sum::<u64>() > 0);
}

#[test]
fn events_of_a_job_outlive_the_only_server() {
    let farm = Farm::with_server(&[]);
    let proxy = Proxy::new(Behind::Unix(farm.socket()));
    let job = farm.ok(&["submit", "--quiet", "--", "sh", "-c", "while [ ! -e go ]; do :; done; exit 6"]);
    let mut events = at(&farm, &[&proxy.address], &["events", job.trim(), "-o", "jsonl"]);
    let mut events = events.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(events.stderr.take().unwrap()).lines();
    wait_until("it listens", || proxy.was_sent("/events?"));
    proxy.down();
    let said = errors.next().expect("it says that it waits").unwrap();
    assert!(said.contains("does not answer; retrying for 60 s"), "{said}");
    std::fs::write(farm.work().join("go"), "").unwrap();
    farm.fails(6, &["job", "wait", job.trim()]);
    proxy.up();
    let output = events.wait_with_output().unwrap();
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(6), "{told}");
    assert_eq!(told.matches("\"exit_code\":6").count(), 1, "the end that was missed is told: {told}");
    assert!(told.lines().last().is_some_and(|line| line.contains("\"failed\"")), "{told}");
}

#[test]
fn a_run_goes_on_after_no_server_answered_for_a_while() {
    let farm = Farm::with_server(&[]);
    let proxies = [(); 2].map(|()| Proxy::new(Behind::Unix(farm.socket())));
    let servers = [proxies[0].address.as_str(), proxies[1].address.as_str()];
    let gate = "echo before; while [ ! -e go ]; do :; done; echo after";
    let mut run = at(&farm, &servers, &["run", "--", "sh", "-c", gate]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut out, errors) = (BufReader::new(run.stdout.take().unwrap()), run.stderr.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "before\n");
    proxies.iter().for_each(Proxy::down);
    let mut errors = BufReader::new(errors).lines();
    let said = errors.next().expect("it says that it waits").unwrap();
    assert!(said.contains("none of the 2 servers answers") && said.contains("retrying for 60 s"), "{said}");
    std::fs::write(farm.work().join("go"), "").unwrap();
    proxies[1].up();
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "after\n");
    assert!(run.wait().unwrap().success());
    let rest: Vec<String> = errors.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.contains(servers[1]) && line.contains("answers")), "{rest:?}");
}

#[test]
fn a_job_is_submitted_once_although_the_first_answer_is_lost() {
    let farm = Farm::with_server(&["--no-worker"]);
    // Every answer to a submission is cut at its beginning.
    let lost = Proxy::cutting(Behind::Unix(farm.socket()), &["POST /api/v1/jobs "], 1, 1);
    let well = Proxy::new(Behind::Unix(farm.socket()));
    let submit = ["submit", "--quiet", "--", "true"];
    let submitted = at(&farm, &[&lost.address, &well.address], &submit).output().unwrap();
    assert!(submitted.status.success(), "{}", show(&submitted));
    assert!(lost.cuts() > 0 && well.was_sent("POST /api/v1/jobs "));
    assert_eq!(farm.json(&["jobs"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_wait_whose_answer_is_lost_is_asked_elsewhere() {
    let farm = Farm::with_server(&[]);
    let lost = Proxy::cutting(Behind::Unix(farm.socket()), &["/wait"], 1, 1);
    let well = Proxy::new(Behind::Unix(farm.socket()));
    farm.ok(&["submit", "--quiet", "--", "sh", "-c", "exit 9"]);
    let waited = at(&farm, &[&lost.address, &well.address], &["job", "wait", "1"]).output().unwrap();
    assert_eq!(waited.status.code(), Some(9), "{}", show(&waited));
    assert!(lost.cuts() > 0 && well.was_sent("/wait"));
}

/// A server that does not own the scheduling, and names the owner.
struct NotOwner {
    owner: String,
    asked: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Workers for NotOwner {
    type WorkStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<ToWorker, Status>> + Send>>;

    async fn work(&self, _: Request<Streaming<FromWorker>>) -> Result<Response<Self::WorkStream>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut status = Status::unavailable("another server owns the scheduling");
        status.metadata_mut().insert(windlass_api::OWNER_METADATA, self.owner.parse().unwrap());
        Err(status)
    }

    async fn files_of(&self, _: Request<Task>) -> Result<Response<TaskFiles>, Status> {
        Err(Status::unimplemented("no worker gets a task here"))
    }

    async fn keep_outputs(&self, _: Request<KeptOutputs>) -> Result<Response<OutputsAreKept>, Status> {
        Err(Status::unimplemented("no worker gets a task here"))
    }
}

/// Serves until the test ends; returns the address and how often it was asked.
fn not_owner(owner: &str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let service = WorkersServer::new(NotOwner { owner: owner.to_owned(), asked: asked.clone() });
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let incoming = tonic::transport::server::TcpIncoming::from(listener);
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        });
    });
    (address, asked)
}

/// A worker of these servers; its log is in its directory.
fn worker(port: &Port, token: &str, servers: &[&str]) -> KillOnDrop {
    let mut command = port.farm.command(&["worker", "start", "--name", "w1", "--cpus", "1", "--as-root"]);
    command.env("WINDLASS_STATE", port.dir.join("w1")).env("WINDLASS_TOKEN", token);
    let log = std::fs::File::create(port.dir.join("w1.log")).unwrap();
    command.env("WINDLASS_SERVER", servers.join(",")).stderr(log);
    KillOnDrop(command.spawn().unwrap())
}

#[test]
fn a_worker_finds_the_owner_and_its_tasks_outlive_the_way_to_it() {
    let port = Port::open(&["--no-worker"]);
    let token = port.token(&["--role", "worker", "--worker", "w1"]);
    let proxies = [(); 2].map(|()| Proxy::new(Behind::Tcp(port.host().to_owned())));
    let unlisted = TcpListener::bind("127.0.0.1:0").unwrap();
    unlisted.set_nonblocking(true).unwrap();
    let (misled, misled_asked) = not_owner(&unlisted.local_addr().unwrap().to_string());
    let (led, led_asked) = not_owner(&proxies[0].address);
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = hangs.local_addr().unwrap().to_string();
    let servers = [refused(), silent, misled, led, proxies[1].address.clone(), proxies[0].address.clone()];
    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    let log = || std::fs::read_to_string(port.dir.join("w1.log")).unwrap_or_default();
    let begun = Instant::now();
    let _worker = worker(&port, &token, &servers);
    wait_until("the worker is connected", || log().contains("connected to"));
    // One server says nothing and three refuse: no pause lies between.
    assert!(begun.elapsed() < Duration::from_secs(30), "{}", log());
    assert!(log().contains(&format!("connected to http://{}", proxies[0].address)), "{}", log());
    assert_eq!((misled_asked.load(Ordering::SeqCst), led_asked.load(Ordering::SeqCst)), (1, 1), "{}", log());
    wait_until("the server knows the worker", || port.admin(&["workers", "-o", "name"]).contains("w1"));
    let gate = "echo $WINDLASS_SERVER; touch up; while [ ! -e go ]; do :; done; echo done";
    let submit = ["submit", "--quiet", "--cwd", port.dir.to_str().unwrap(), "--", "sh", "-c", gate];
    let job = port.admin(&submit).trim().to_owned();
    wait_until("the task runs", || port.dir.join("up").exists());
    proxies[0].down();
    let other = format!("connected to http://{}", proxies[1].address);
    wait_until("the worker goes on with the other way", || log().contains(&other));
    std::fs::write(port.dir.join("go"), "").unwrap();
    port.admin(&["job", "wait", &job]);
    let shown = port.admin(&["logs", &job]);
    let listed: Vec<String> = servers.iter().map(|server| format!("http://{server}")).collect();
    assert_eq!(shown, format!("{}\ndone\n", listed.join(",")));
    let task: serde_json::Value =
        serde_json::from_str(&port.admin(&["job", "tasks", &job, "-o", "json"])).unwrap();
    assert_eq!(task[0]["attempt"], 1, "{task}");
    assert!(unlisted.accept().is_err(), "the worker went to an address that nobody listed");
}
