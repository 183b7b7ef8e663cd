//! A thousand rounds of everything that comes and goes leave a server with the sizes of the beginning.

use super::garbage::say;
use super::golden::orders;
use super::place::Server;
use super::stream::{End, open};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use windlass_api::wire::{
    Amounts, Cpus, Finished, Hello, Inventory, Progress, Started, Task, finished, order, report,
};
use windlass_api::{CreateToken, JobState, Role, SetLimit, SetQueue, StepRequest, SubmitRequest};

const ROUNDS: u64 = 1_000;
/// Rounds that are under way at a time.
const LANES: u64 = 4;
/// Rounds between two in which settings and tokens come and go.
const SETTINGS_EVERY: u64 = 20;
/// How soon what has hung up is gone. Events are told at least each 15 s, which finds out that a listener is not there.
const SETTLED_MAX: Duration = Duration::from_secs(60);

/// Sends the beginning of a request.
fn begin(server: &Server, head: &str, more: &str) -> TcpStream {
    let host = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "{head} HTTP/1.1\r\nHost: {host}\r\n{more}").unwrap();
    stream
}

/// The entries of each table.
fn sizes(server: &Server) -> BTreeMap<String, u64> {
    let mut stream = begin(server, "GET /metrics", "Connection: close\r\n\r\n");
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("windlass_entries{table=\""));
    let entries = lines.filter_map(|line| line.split_once("\"} "));
    entries.map(|(table, count)| (table.to_owned(), count.parse().unwrap())).collect()
}

/// A user whom no other round has submits a job for a worker that no other round has.
async fn submit(server: &Server, number: u64, worker: &str) -> u64 {
    let command = ["sleep", "1000"].map(str::to_owned).to_vec();
    let step = StepRequest { command, workers: vec![worker.to_owned()], ..StepRequest::default() };
    let user = Some(format!("user{number}"));
    let request = SubmitRequest { user, steps: vec![step], ..SubmitRequest::default() };
    server.client.submit(&request).await.unwrap().job
}

/// Clients hang up while they wait for a job, follow its output, listen to its events and submit another one.
fn hang_up(server: &Server, job: u64) {
    begin(server, &format!("GET /api/v1/jobs/{job}/wait"), "\r\n");
    begin(server, &format!("GET /api/v1/tasks/{job}.0/log?follow=true"), "\r\n");
    begin(server, "POST /api/v1/jobs", "Content-Length: 1000\r\n\r\n{\"steps\":[");
    let mut listener = begin(server, &format!("GET /api/v1/events?job={job}"), "\r\n");
    let mut status = [0; 12];
    listener.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

/// A token, a queue and a limit are made and removed.
async fn set_and_remove(server: &Server, number: u64) {
    let client = &server.client;
    let token = CreateToken { user: Some(format!("user{number}")), ..CreateToken::of(Role::User) };
    let made = client.create_token(&token).await.unwrap();
    client.revoke_token(&made.token.id).await.unwrap();
    let name = format!("set{number}");
    for weight in [7, 100] {
        let change = SetQueue { weight: Some(weight), ..SetQueue::default() };
        client.set_queue(&name, &change).await.unwrap();
    }
    let limit = SetLimit { max: Some(Some(3)), ..SetLimit::default() };
    client.set_limit(&name, &limit).await.unwrap();
    client.remove_limit(&name).await.unwrap();
}

pub fn hello(name: &str, number: u64) -> Vec<u8> {
    let hello = Hello {
        name: name.to_owned(),
        identity: 1 + number,
        incarnation: 1 + number,
        fences: true,
        capacity: Some(Amounts { cpu: 100, ..Amounts::default() }),
        inventory: Some(Inventory::default()),
        ..Hello::default()
    };
    say(vec![report::What::Hello(hello)])
}

/// The task that the worker is told to start.
pub async fn started(end: &mut End) -> Task {
    loop {
        let message = end.incoming.message().await.unwrap().expect("the server hung up");
        let mut starts = orders(&message).into_iter().filter_map(|order| match order.what {
            Some(order::What::Start(start)) => start.task,
            _ => None,
        });
        if let Some(task) = starts.next() {
            return task;
        }
    }
}

async fn ended(server: &Server, job: u64, state: JobState) {
    let ended = server.client.wait(job, None).await.unwrap();
    assert_eq!(ended.state, state, "{}", server.log());
}

/// A worker comes, runs the job to its end or is lost with it, and is forgotten.
async fn work(server: &Server, number: u64, name: &str, job: u64) {
    let mut end = open(&server.url).await;
    end.out.send(hello(name, number)).await.unwrap();
    let task = Some(started(&mut end).await);
    let is_lost = !number.is_multiple_of(2);
    if is_lost {
        let runs = Started { task, epoch: 1, at: 1 };
        let said = Progress { task, epoch: 1, percent: Some(40.0), status: None };
        let cpus = Cpus { task, epoch: 1, share: 2, used: 1, wants: true, held_back: 0 };
        let all = vec![report::What::Started(runs), report::What::Progress(said), report::What::Cpus(cpus)];
        end.out.send(say(all)).await.unwrap();
        if number % SETTINGS_EVERY == 1 {
            let id = format!("{job}.0");
            let is_told = async || server.client.task(&id).await.unwrap().jobserver.is_some();
            server.until("the progress and the processes are told", async |_| is_told().await).await;
        }
    } else {
        let exited = Some(finished::End::Exited(0));
        let said = Finished { task, epoch: 1, end: exited, ..Finished::default() };
        end.out.send(say(vec![report::What::Finished(said)])).await.unwrap();
        ended(server, job, JobState::Succeeded).await;
    }
    drop(end);
    server.client.forget_worker(name, true).await.unwrap();
    if is_lost {
        server.client.act(job, "cancel").await.unwrap();
        ended(server, job, JobState::Canceled).await;
    }
}

async fn lane(server: &Server, first: u64) {
    for number in (first..ROUNDS).step_by(LANES as usize) {
        let name = format!("w{number}");
        let job = submit(server, number, &name).await;
        hang_up(server, job);
        if number.is_multiple_of(SETTINGS_EVERY) {
            set_and_remove(server, number).await;
        }
        work(server, number, &name, job).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_rounds_of_everything_end_with_the_sizes_of_the_beginning() {
    let server = Server::start(&["--store", "memory"]);
    let before = sizes(&server);
    assert!(before.contains_key("requests") && before.contains_key("links"), "{before:?}");
    tokio::join!(lane(&server, 0), lane(&server, 1), lane(&server, 2), lane(&server, 3));
    let began = Instant::now();
    server
        .until("all are gone", async |_| {
            let now = sizes(&server);
            assert!(now == before || began.elapsed() < SETTLED_MAX, "before: {before:?}\nnow: {now:?}");
            now == before
        })
        .await;
}
