//! Many notices to an address that hangs: they delay no submission and no other address, and none is lost.

use crate::support::receiver::Receiver;
use crate::support::{Farm, wait_until};
use crate::{machine, percentile};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use windlass_api::client::{Address, Client};
use windlass_api::{OnEnd, StepRequest, SubmitRequest};

const NOTICES: usize = 10_000;
/// Submissions that are timed, one after the other.
const TIMED: usize = 400;
/// Submissions under way at a time while the jobs are made.
const AT_A_TIME: usize = 32;
/// Requests that were answered when the server is killed.
const KILLED_AFTER: usize = 1_000;
/// By how much the slowest submissions may be slower: a machine that is used by others is not quiet for long.
const SLOWER_MAX: u32 = 3;
/// Below this a quantile is noise.
const NOISE: Duration = Duration::from_millis(15);

/// A job that no worker runs.
fn request(after: Vec<u64>, url: Option<String>) -> SubmitRequest {
    let step = StepRequest {
        command: vec!["true".to_owned()],
        workers: vec!["nowhere".to_owned()],
        ..StepRequest::default()
    };
    let on_end = url.map(|url| OnEnd { url, only_failures: false }).into_iter().collect();
    SubmitRequest { steps: vec![step], after, on_end, ..SubmitRequest::default() }
}

async fn submit_all(client: &Client, first: u64, url: &str) {
    let mut under_way = JoinSet::new();
    for _ in 0..NOTICES {
        if under_way.len() == AT_A_TIME {
            under_way.join_next().await.unwrap().unwrap();
        }
        let (client, request) = (client.clone(), request(vec![first], Some(url.to_owned())));
        under_way.spawn(async move { _ = client.submit(&request).await.unwrap() });
    }
    while let Some(done) = under_way.join_next().await {
        done.unwrap();
    }
}

/// The time that the slowest hundredth of submissions takes at least.
async fn slow_submission(client: &Client) -> Duration {
    let mut took = Vec::new();
    for _ in 0..TIMED {
        let began = Instant::now();
        let job = client.submit(&request(Vec::new(), None)).await.unwrap().job;
        took.push(began.elapsed());
        client.act(job, "cancel").await.unwrap();
    }
    percentile(&mut took, 0.99)
}

#[test]
fn notices_to_an_address_that_hangs_delay_nothing_and_none_is_lost() {
    let _machine = machine();
    let (hangs, answers) = (Receiver::hanging(), Receiver::answering());
    let allow = format!("notify.allow={},{}", hangs.host, answers.host);
    let mut farm = Farm::with_server(&["--cpus", "1", "--set", &allow]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = Client::new(Address::Unix(farm.socket())).unwrap();
    let (before, during) = runtime.block_on(async {
        let first = client.submit(&request(Vec::new(), None)).await.unwrap().job;
        let before = slow_submission(&client).await;
        submit_all(&client, first, &format!("http://{}/hook", hangs.host)).await;
        // All end with the job that they come after.
        client.act(first, "cancel").await.unwrap();
        let url = format!("http://{}/hook", answers.host);
        client.submit(&request(vec![first], Some(url))).await.unwrap();
        (before, slow_submission(&client).await)
    });
    wait_until("the address that answers is told", || answers.count() == 1);
    wait_until("the one that hangs was tried", || hangs.requests() > 0);
    assert_eq!(hangs.count(), 0);
    println!("99% of submissions took at most {before:?} before, {during:?} with {NOTICES} notices owed");
    assert!(during <= before.max(NOISE) * SLOWER_MAX, "{before:?} {during:?}");
    hangs.answer();
    wait_until("some are delivered", || hangs.count() >= KILLED_AFTER);
    farm.kill_server();
    farm.start();
    let told = || -> BTreeSet<u64> {
        hangs.taken().iter().map(|taken| taken.json()["job"].as_u64().unwrap()).collect()
    };
    wait_until("all are delivered", || hangs.count() >= NOTICES && told().len() == NOTICES);
    println!("{} requests for {NOTICES} notices", hangs.count());
}
