//! Records the messages between a real agent and a real server with a proxy.

use super::golden::{By, RECORDED, Recording};
use super::place::{Agent, Server};
use super::play::marks;
use super::stream::{Door, End, open};
use crate::support::kill;
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use windlass_api::client::LogQuery;
use windlass_api::wire::{
    Cached, Caches, CpuShare, Cpus, DropBody, DropLogs, Finished, FromWorker, Greeting, Jobserver, Load,
    Order, Outputs, Pressure, Pressures, Report, Resync, ShareCpus, Stall, Start, Task, ToWorker, cpus,
    finished, jobserver, order, report,
};
use windlass_api::{Param, Range, Resources, Session, StepRequest, SubmitRequest};

/// All kinds of messages that a real agent and a real server send here.
const SAID: &str = "Ack Beat Body Caches Finished:Canceled Finished:Exited Finished:Fenced Finished:NotStarted \
                    Finished:OutOfMemory Finished:Recalled Finished:Signaled Finished:TimeLimit Greeting Hello \
                    Kill Lease Lend Load Log Lost Progress ReadLog Recall Reclaim Reclaimed Refused Start Started \
                    Welcome";

type Streams = Arc<Mutex<Vec<Recording>>>;

/// Stands between agents and a server.
struct Recorder {
    url: String,
    streams: Streams,
    cut: watch::Sender<bool>,
}

impl Recorder {
    fn start(server: String) -> Recorder {
        let Door { url, mut streams } = Door::open();
        let (cut, recorded) = (watch::Sender::new(false), Streams::default());
        let recorder = Recorder { url, streams: recorded.clone(), cut: cut.clone() };
        tokio::spawn(async move {
            while let Some(agent) = streams.recv().await {
                if *cut.borrow() {
                    continue;
                }
                let number = {
                    let mut all = recorded.lock().unwrap();
                    all.push(Recording::default());
                    all.len() - 1
                };
                tokio::spawn(pass(agent, open(&server).await, recorded.clone(), number, cut.subscribe()));
            }
        });
        recorder
    }

    fn stream(&self, number: usize) -> Recording {
        self.streams.lock().unwrap().get(number).cloned().unwrap_or_default()
    }

    /// True if the stream has such a message.
    fn has(&self, number: usize, kind: &str) -> bool {
        self.stream(number).kinds().iter().any(|said| said.starts_with(kind))
    }
}

/// Carries messages both ways until either side closes the stream, or the connection is cut.
async fn pass(
    mut agent: End,
    mut server: End,
    streams: Streams,
    number: usize,
    mut cut: watch::Receiver<bool>,
) {
    let note = |by, bytes: &[u8]| streams.lock().unwrap()[number].0.push((by, bytes.to_vec()));
    loop {
        tokio::select! {
            said = agent.incoming.message() => {
                let Ok(Some(said)) = said else { return };
                note(By::Worker, &said);
                if server.out.send(said).await.is_err() {
                    return;
                }
            }
            said = server.incoming.message() => {
                let Ok(Some(said)) = said else { return };
                note(By::Server, &said);
                if agent.out.send(said).await.is_err() {
                    return;
                }
            }
            () = is_cut(&mut cut) => return,
        }
    }
}

/// Rare messages: after a broken disk, after days or after many steps.
fn made() -> Recording {
    let orders = vec![
        Order { seq: 41, what: Some(order::What::Resync(Resync {})) },
        Order::plain(order::What::DropBody(DropBody { job: 3, step: 999 })),
        Order::plain(order::What::DropLogs(DropLogs { jobs: vec![1, 2, 70_000_000_000] })),
    ];
    Recording(vec![(By::Server, ToWorker { orders }.encode_to_vec())])
}

/// Additions to the first version: reports of load and caches, and fields.
fn measured() -> Recording {
    let task = Some(Task { job: 1, index: 0, attempt: 1 });
    let stall = Stall { avg10: 1.5, avg60: 0.25, avg300: 0.0, total_us: 1 << 40, window: Some(2.75) };
    let pressure = Some(Pressure { some: Some(stall), full: None });
    let load = Load {
        confined: true,
        machine: Some(Pressures { cpu: pressure, memory: None, io: pressure }),
        own: Some(Pressures::default()),
        load_average: vec![0.5, 1.0, 2.0],
        memory_available: Some(1 << 33),
        memory_own: Some(0),
        cpu_used: Some(1.25),
        cpu_foreign: Some(0.0),
        disk_mb_s: None,
        network_mbit_s: Some(940.0),
        core_score: None,
        network_in_mbit_s: None,
        network_out_mbit_s: None,
        network_percent: None,
        state_space: None,
        session_space: None,
        cache_space: None,
    };
    let entries = vec![Cached { key: "nix/a".to_owned(), bytes: 4096 }];
    let end = Some(finished::End::Exited(0));
    let finished = Finished { task, epoch: 1, end, disk_bytes: Some(1 << 20), ..Finished::default() };
    let said = [
        report::What::Load(load),
        report::What::Caches(Caches { entries }),
        report::What::Finished(finished),
    ];
    let reports = said.map(|what| Report { what: Some(what) }).to_vec();
    let greeting = Greeting { load_ms: Some(1_000), ..Greeting::default() };
    let start = Start { task, memory_limit: Some(0), ..Start::default() };
    let orders = vec![Order::plain(order::What::Greeting(greeting)), Order::plain(order::What::Start(start))];
    Recording(vec![
        (By::Server, ToWorker { orders }.encode_to_vec()),
        (By::Worker, FromWorker { reports }.encode_to_vec()),
    ])
}

/// A question about old output, which a worker asks after days.
fn asked() -> Recording {
    let greeting = Greeting { now: Some(1_795_229_607_770_000_000), ..Greeting::default() };
    let orders = vec![Order::plain(order::What::Greeting(greeting))];
    let what = Some(report::What::Outputs(Outputs { jobs: vec![1, 2, 70_000_000_000] }));
    let reports = vec![Report { what }];
    Recording(vec![
        (By::Server, ToWorker { orders }.encode_to_vec()),
        (By::Worker, FromWorker { reports }.encode_to_vec()),
    ])
}

/// A task with a jobserver: what it is started with, what it shares, and what its keeper says of it.
fn shared() -> Recording {
    let task = Some(Task { job: 1, index: 0, attempt: 1 });
    let form = jobserver::Form::Pipes.into();
    let start =
        Start { task, jobserver: Some(Jobserver { form, processes_max: Some(16) }), ..Start::default() };
    let shares = vec![CpuShare { task, weight: 300 }];
    let share = Order { seq: 7, what: Some(order::What::ShareCpus(ShareCpus { cpu: 400, shares })) };
    let held_back = cpus::HeldBack::Memory.into();
    let cpus = Cpus { task, epoch: 1, share: 3, used: 2, wants: true, held_back };
    let end = Some(finished::End::Exited(0));
    let finished = Finished { task, epoch: 1, end, token_cpu_ms: Some(2_500), ..Finished::default() };
    let reports = [report::What::Cpus(cpus), report::What::Finished(finished)];
    let reports = reports.map(|what| Report { what: Some(what) }).to_vec();
    let orders = vec![Order::plain(order::What::Start(start)), share];
    Recording(vec![
        (By::Server, ToWorker { orders }.encode_to_vec()),
        (By::Worker, FromWorker { reports }.encode_to_vec()),
    ])
}

async fn is_cut(cut: &mut watch::Receiver<bool>) {
    _ = cut.wait_for(|cut| *cut).await;
}

fn step(name: &str, command: &[&str]) -> StepRequest {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
    StepRequest {
        name: Some(name.to_owned()),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        env: BTreeMap::from([("PATH".to_owned(), path)]),
        ..StepRequest::default()
    }
}

fn job(steps: Vec<StepRequest>) -> SubmitRequest {
    SubmitRequest { user: Some("ann".to_owned()), steps, ..SubmitRequest::default() }
}

/// The job of the stream `run`: a task for each way in which a task can end by itself.
pub fn all_ends() -> SubmitRequest {
    let numbered = Param::Range(Range { start: 1, end: 2, step: 1 });
    let says =
        "echo openjd_status: half; echo openjd_progress: 50; sleep 1; echo openjd_fail: no film; exit 4";
    let limited = |memory| Some(Resources { cpus: 1.0, memory, ..Resources::default() });
    job(vec![
        StepRequest { param: Some(numbered), ..step("well", &["sh", "-c", "echo out {}; echo err >&2"]) },
        step("badly", &["sh", "-c", "exit 3"]),
        step("signal", &["sh", "-c", "kill -9 $$"]),
        step("nowhere", &["/nonexistent/program"]),
        StepRequest { time_limit_ms: Some(200), ..step("long", &["sleep", "1007"]) },
        StepRequest { resources: limited(32 << 20), ..step("large", &["tail", "/dev/zero"]) },
        StepRequest { session: Some(Session::default()), ..step("says", &["sh", "-c", says]) },
    ])
}

async fn record_run() -> Recording {
    let server = Server::start(&["--lease", "20"]);
    let recorder = Recorder::start(server.url.clone());
    let _agent = Agent::start(&recorder.url, "w1");
    server.client.submit(&all_ends()).await.unwrap();
    server.client.wait(1, None).await.unwrap();
    server.until("a beat", async |_| recorder.has(0, "Beat")).await;
    let last = "1.7.1";
    server
        .until("the last is acknowledged", async |_| {
            marks(&recorder.stream(0)).contains(&format!("Ack {last}"))
        })
        .await;
    recorder.stream(0)
}

/// The server's requests to a worker, a second worker of the same name, and a keeper that ends its tasks.
async fn record_control() -> [Recording; 3] {
    let server = Server::start(&["--lease", "4"]);
    let client = &server.client;
    let recorder = Recorder::start(server.url.clone());
    let agent = Agent::start(&recorder.url, "w1");
    let sleeper = job(vec![step("sleep", &["sleep", "1008"])]);
    let runs = async |stream, task| {
        let started = format!("Started {task}");
        server
            .until("it runs", async |_| {
                marks(&recorder.stream(stream)).iter().any(|mark| mark.starts_with(&started))
            })
            .await;
    };
    client.submit(&sleeper).await.unwrap();
    runs(0, "1.0.").await;
    // It lends its cpu to another job and gets it back.
    client.submit(&job(vec![step("inner", &["sh", "-c", "sleep 0.7; echo inner"])])).await.unwrap();
    client.wait(2, Some("1.0")).await.unwrap();
    client.log("2.0", &LogQuery { stream: "stdout", ..LogQuery::default() }).await.map(drop).unwrap();
    client.act(1, "cancel").await.unwrap();
    client.wait(1, None).await.unwrap();
    // Short tasks are prefetched and recalled.
    let many = Param::Range(Range { start: 1, end: 1_000_000, step: 1 });
    let short = StepRequest { param: Some(many), ..step("short", &["true"]) };
    client.submit(&job(vec![short])).await.unwrap();
    server.until("some wait", async |client| client.worker("w1").await.unwrap().queued > 0).await;
    // All of them may have started when the recall arrives: then again.
    server
        .until("it gives some back", async |client| {
            client.act(3, "hold").await.unwrap();
            let gives_back = recorder.has(0, "Finished:Recalled");
            if !gives_back {
                client.act(3, "release").await.unwrap();
            }
            gives_back
        })
        .await;
    client.act(3, "cancel").await.unwrap();
    client.wait(3, None).await.unwrap();
    let second = Agent::start(&recorder.url, "w1");
    server.until("the second is refused", async |_| recorder.has(1, "Refused")).await;
    kill(agent.keeper(), "KILL");
    let hellos = |stream: &Recording| stream.kinds().iter().filter(|kind| *kind == "Hello").count();
    server.until("another keeper", async |_| hellos(&recorder.stream(0)) == 2).await;
    client.submit(&sleeper).await.unwrap();
    runs(0, "4.0.").await;
    recorder.cut.send_replace(true);
    server
        .until("it is fenced", async |_| {
            std::fs::read_to_string(agent.state.join("keeper.log")).unwrap_or_default().contains("ran out")
        })
        .await;
    drop(second);
    recorder.cut.send_replace(false);
    server.until("it says so", async |_| recorder.has(2, "Finished:Fenced")).await;
    client.act(4, "cancel").await.unwrap();
    [0, 1, 2].map(|number| recorder.stream(number))
}

/// Today's agent and server still send all kinds of messages that they sent when the streams were recorded.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_and_a_server_say_every_kind() {
    let [control, claim, fenced] = record_control().await;
    let said = [record_run().await, control, claim, fenced];
    let mut kinds: Vec<String> = said.iter().flat_map(Recording::kinds).collect();
    kinds.sort();
    kinds.dedup();
    if std::env::var_os("RECORD_PROTOCOL").is_some() {
        said.iter().zip(RECORDED).for_each(|(stream, name)| stream.write(name));
        made().write("made");
        measured().write("measured");
        asked().write("asked");
        shared().write("shared");
    }
    assert_eq!(kinds.join(" "), SAID, "in {said:#?}");
}
