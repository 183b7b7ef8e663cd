//! The unsolicited reports of a real agent, to a server that the test plays.

use super::golden::reports;
use super::place::Agent;
use super::stream::{Door, End};
use prost::Message as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::time::timeout;
use windlass_api::wire::{Greeting, Load, Order, Resync, ToWorker, order, report};

async fn order(end: &End, what: order::What) {
    end.out.send(ToWorker { orders: vec![Order::plain(what)] }.encode_to_vec()).await.unwrap();
}

/// The load reports until the report of the caches, which comes after a hello.
async fn until_caches(end: &mut End) -> Vec<Load> {
    let (mut greeted, mut loads) = (false, Vec::new());
    loop {
        let message = timeout(crate::support::PATIENCE, end.incoming.message()).await;
        for what in reports(&message.expect("the agent is silent").unwrap().expect("the agent hung up")) {
            match what {
                report::What::Hello(_) => greeted = true,
                report::What::Load(load) => loads.push(load),
                report::What::Caches(caches) if greeted => {
                    assert_eq!(caches.entries, [], "it has no caches, and knows it");
                    return loads;
                }
                _ => {}
            }
        }
    }
}

/// Lets this thread, and what it starts, use one cpu. False where there is only one.
fn confine() -> bool {
    let all = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
    all.count() > 1
}

#[tokio::test]
async fn the_load_comes_as_often_as_the_server_says_and_the_caches_after_each_hello() {
    let mut door = Door::open();
    let confined = confine();
    let _agent = Agent::start(&door.url, "w1");
    let mut end = timeout(crate::support::PATIENCE, door.streams.recv()).await.unwrap().unwrap();
    let greeting = Greeting { store: 1, beat_ms: 60_000, load_ms: Some(100), ..Greeting::default() };
    order(&end, order::What::Greeting(greeting)).await;
    let mut loads = until_caches(&mut end).await;
    let begun = std::time::Instant::now();
    while loads.len() < 12 {
        let message = end.incoming.message().await.unwrap().unwrap();
        loads.extend(reports(&message).into_iter().filter_map(|what| match what {
            report::What::Load(load) => Some(load),
            _ => None,
        }));
    }
    // Within the second between two reports of an agent with the default interval.
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    let last = loads.last().unwrap();
    assert!(last.cpu_used.is_some_and(|used| used <= 1.0), "{last:?}");
    assert_eq!(last.confined, confined, "{last:?}");
    order(&end, order::What::Resync(Resync {})).await;
    until_caches(&mut end).await;
}
