//! Recorded streams against today's server and today's agent.

use super::golden::{ALL, By, Recording, index, orders, reports};
use super::later::later;
use super::place::{Agent, Server};
use super::record::all_ends;
use super::stream::{Door, End as StreamEnd, open};
use prost::Message as _;
use std::collections::BTreeSet;
use tokio::time::timeout;
use windlass_api::client::TasksQuery;
use windlass_api::wire::{FromWorker, Task, ToWorker, order, report};
use windlass_api::{End, JobState};

/// The event that the next message waits for, in words such as `Start 1.0.1`.
pub fn marks(stream: &Recording) -> Vec<String> {
    let each = stream.0.iter().flat_map(|(by, bytes)| match by {
        By::Worker => worker_marks(bytes),
        By::Server => server_marks(bytes),
    });
    each.collect()
}

fn mark(what: &str, task: Option<&Task>) -> String {
    task.map_or_else(|| what.to_owned(), |t| format!("{what} {}.{}.{}", t.job, t.index, t.attempt))
}

fn worker_marks(bytes: &[u8]) -> Vec<String> {
    let each = reports(bytes).into_iter().filter_map(|what| match what {
        report::What::Hello(_) => Some(mark("Hello", None)),
        report::What::Started(started) => Some(mark("Started", started.task.as_ref())),
        report::What::Finished(finished) => Some(mark("Finished", finished.task.as_ref())),
        report::What::Reclaimed(reclaimed) => Some(mark("Reclaimed", reclaimed.task.as_ref())),
        _ => None,
    });
    each.collect()
}

fn server_marks(bytes: &[u8]) -> Vec<String> {
    let each = orders(bytes).into_iter().filter_map(|order| match order.what? {
        order::What::Greeting(_) => Some(mark("Greeting", None)),
        order::What::Welcome(_) => Some(mark("Welcome", None)),
        order::What::Start(start) => Some(mark("Start", start.task.as_ref())),
        order::What::Ack(task) => Some(mark("Ack", Some(&task))),
        _ => None,
    });
    each.collect()
}

/// The next message; fails if the other side hangs or closes the stream.
async fn next(end: &mut StreamEnd) -> Vec<u8> {
    let message = timeout(crate::support::PATIENCE, end.incoming.message()).await;
    message.expect("the other side is silent").unwrap().expect("the other side hung up")
}

/// How a message is changed on its way.
type Alter = fn(By, &[u8]) -> Vec<u8>;

/// As it was recorded.
fn same(_: By, message: &[u8]) -> Vec<u8> {
    message.to_vec()
}

/// Sends the recorded worker's messages, each when the server has sent what came before it in the recording.
async fn play_worker(url: &str, recording: &Recording, alter: Alter) {
    let mut end = open(url).await;
    let (mut heard, mut needed) = (BTreeSet::new(), BTreeSet::new());
    for (by, bytes) in &recording.0 {
        match by {
            By::Server => needed.extend(server_marks(bytes)),
            By::Worker => {
                while !needed.is_subset(&heard) {
                    heard.extend(server_marks(&next(&mut end).await));
                }
                end.out.send(alter(By::Worker, bytes)).await.unwrap();
            }
        }
    }
    while !needed.is_subset(&heard) {
        heard.extend(server_marks(&next(&mut end).await));
    }
}

/// Sends the recorded server's messages in the same way; returns the agent's reports.
async fn play_server(door: &mut Door, recording: &Recording, alter: Alter) -> Vec<report::What> {
    let mut end = timeout(crate::support::PATIENCE, door.streams.recv()).await.unwrap().unwrap();
    let (mut heard, mut needed, mut said) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let last = (By::Server, Vec::new());
    for (by, bytes) in recording.0.iter().chain([&last]) {
        if *by == By::Worker {
            needed.extend(worker_marks(bytes));
            continue;
        }
        while !needed.is_subset(&heard) {
            let message = next(&mut end).await;
            heard.extend(worker_marks(&message));
            said.extend(reports(&message));
        }
        end.out.send(alter(By::Server, &echo_sent(bytes, &said))).await.unwrap();
    }
    said
}

/// A lease counts from a time of this worker's clock.
fn echo_sent(bytes: &[u8], said: &[report::What]) -> Vec<u8> {
    let sent = said.iter().rev().find_map(|what| match what {
        report::What::Hello(hello) => Some(hello.sent),
        report::What::Beat(beat) => Some(beat.sent),
        _ => None,
    });
    let mut message = ToWorker::decode(bytes).unwrap();
    for order in &mut message.orders {
        if let Some(order::What::Lease(lease)) = &mut order.what {
            lease.sent = sent.unwrap();
        }
    }
    message.encode_to_vec()
}

#[test]
fn recorded_messages_mean_what_they_meant_and_encode_to_the_same_bytes() {
    let mut kinds = BTreeSet::new();
    for name in ALL {
        let recording = Recording::read(name);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            // The bytes are fixed; their index shows fields that were added since as absent.
            std::fs::write(super::golden::path(&format!("{name}.txt")), recording.describe()).unwrap();
        }
        assert_eq!(recording.describe(), index(name), "{name}");
        for (by, bytes) in &recording.0 {
            let again = match by {
                By::Worker => FromWorker::decode(&**bytes).unwrap().encode_to_vec(),
                By::Server => ToWorker::decode(&**bytes).unwrap().encode_to_vec(),
            };
            assert_eq!(again, *bytes, "{name}");
        }
        kinds.extend(recording.kinds());
    }
    // All messages in the description of the protocol.
    let known = "Ack Beat Body Caches Cpus DropBody DropLogs Finished:Canceled Finished:Exited Finished:Fenced \
                 Finished:NotStarted Finished:OutOfMemory Finished:Recalled Finished:Signaled \
                 Finished:TimeLimit Greeting Hello Kill Lease Lend Load Log Lost Outputs Progress ReadLog Recall \
                 Reclaim Reclaimed Refused Resync ShareCpus Start Started Welcome";
    assert_eq!(kinds.into_iter().collect::<Vec<_>>().join(" "), known);
}

/// How the tasks of the stream `run` ended, with their exit codes.
const ENDS: [(Option<End>, Option<i32>); 8] = [
    (Some(End::Exited), Some(0)),
    (Some(End::Exited), Some(0)),
    (Some(End::Exited), Some(3)),
    (Some(End::Signal), Some(137)),
    (Some(End::NotStarted), Some(127)),
    (Some(End::TimeLimit), Some(124)),
    (Some(End::Oom), Some(137)),
    (Some(End::Exited), Some(4)),
];

async fn recorded_agent_works(alter: Alter) {
    let server = Server::start(&["--lease", "20"]);
    let submitted = server.client.submit(&all_ends()).await.unwrap();
    play_worker(&server.url, &Recording::read("run"), alter).await;
    let job = server.client.wait(submitted.job, None).await.unwrap();
    assert_eq!(job.state, JobState::Failed, "{}", server.log());
    let tasks = server.client.tasks(submitted.job, &TasksQuery::default()).await.unwrap().items;
    let ends: Vec<_> = tasks.iter().map(|task| (task.attempt.end, task.attempt.exit_code)).collect();
    assert_eq!(ends, ENDS, "{}", server.log());
    assert_eq!(tasks[7].attempt.message.as_deref(), Some("no film"));
    assert!(tasks.iter().all(|task| task.attempt.attempt == 1 && task.history.is_empty()));
    assert!(!server.log().contains("refused"), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_agent_works_for_todays_server() {
    recorded_agent_works(same).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_a_later_release_works_for_todays_server() {
    recorded_agent_works(later).await;
}

async fn recorded_server_is_obeyed(alter: Alter) {
    let mut door = Door::open();
    let agent = Agent::start(&door.url, "w1");
    let recording = Recording::read("run");
    let said = play_server(&mut door, &recording, alter).await;
    // Sums and times are this run's.
    let ends = |all: Vec<report::What>| {
        let each = all.into_iter().filter_map(|what| match what {
            report::What::Finished(f) => {
                Some((f.task.unwrap().key(), f.epoch, f.end, f.message, f.out_bytes, f.err_bytes))
            }
            _ => None,
        });
        let mut each: Vec<_> = each.collect();
        each.sort_by_key(|(task, ..)| *task);
        each
    };
    let recorded = recording.0.iter().filter(|(by, _)| *by == By::Worker);
    let recorded = recorded.flat_map(|(_, bytes)| reports(bytes)).collect();
    assert_eq!(ends(said), ends(recorded), "{}", agent.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_server_is_obeyed_by_todays_agent() {
    recorded_server_is_obeyed(same).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_a_later_release_is_obeyed_by_todays_agent() {
    recorded_server_is_obeyed(later).await;
}
