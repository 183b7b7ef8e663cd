//! A thousand rounds of everything that comes and goes leave an engine with the sizes of the beginning.

use crate::kit::{Farm, REQUEST, cores, hello, set_limit, set_queue, spec, step, task};
use windlass_core::bounds::LEASE_NS;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Event, Hello, NextBatch, Reply, Settings, Submit};
use windlass_core::job::{JobSpec, StepSpec};
use windlass_core::licences::Limit;
use windlass_core::queues::QueueRecord;
use windlass_core::{JobId, RequestId};

const ROUNDS: u64 = 1_000;
/// Rounds between two in which a commit fails, and between two after which the books are checked.
const FAILURE_EVERY: u64 = 10;
const CHECK_EVERY: u64 = 100;
/// Seconds after each round, and after which workers and queues that nobody uses are forgotten.
const HOUR: u64 = 3_600;
const LONG: u64 = 8 * 24 * HOUR;

fn sizes(farm: &Farm) -> Vec<(&'static str, usize)> {
    let engine = &farm.engine;
    let mut all = engine.entries();
    all.extend([
        ("workers", engine.workers().len()),
        ("queues and users", engine.queues().parts_with_ids().count()),
        ("limits", engine.licences().limits().len()),
    ]);
    all
}

/// Clients ask for more places than there are. Those that wait hang up, and the others give theirs back.
fn ask_for_places(farm: &mut Farm, queue: &str) {
    let place = PlaceRequest {
        queue: queue.to_owned(),
        amounts: cores(2),
        wait_max_ms: 60_000,
        ..PlaceRequest::default()
    };
    let mut requests: Vec<RequestId> = Vec::new();
    for _ in 0..4 {
        let place = Box::new(place.clone());
        requests.push(farm.ask(|request| Event::Alloc { request, place }));
    }
    farm.settle();
    let places = farm.engine.places();
    assert!(places.waiting_count() > 0 && places.held().count() > 0);
    for request in requests {
        let placed = match farm.replies.get(&request) {
            Some(Reply::Placed { alloc, .. }) => Some(*alloc),
            _ => None,
        };
        farm.tell(match placed {
            Some(alloc) => Event::Release { alloc },
            None => Event::Unalloc { alloc: request },
        });
    }
}

/// Two jobs, of which one comes after the other, are submitted in a batch that never becomes durable.
fn lose_a_commit(farm: &mut Farm, queue: &str) {
    let submit = |spec| Event::Submit(Box::new(Submit::new(REQUEST, spec)));
    farm.handle(submit(spec(queue, [step(1, cores(1))])));
    let first = farm.engine.jobs().last().expect("it was submitted").id;
    farm.handle(submit(JobSpec { after: vec![first], ..spec(queue, [step(1, cores(1))]) }));
    fail_the_commit(farm);
    // All workers were asked to say hello again.
    farm.join(hello("base", cores(2)));
}

/// The batch that forms does not become durable, and the store has none of the jobs that it is about.
fn fail_the_commit(farm: &mut Farm) {
    let batch = farm.pipeline.next_batch(&mut farm.engine);
    assert!(matches!(batch, Some(NextBatch::Commit(_))));
    drop(batch);
    _ = farm.pipeline.failed(&mut farm.engine);
    let now = farm.now;
    farm.pipeline.reload(&mut farm.engine, now, Vec::new(), Vec::new());
    farm.commit();
}

/// A new queue, new users, a new limit and a new worker: jobs that end, are cancelled and lose their worker, lent cpus,
/// places, and a commit that fails.
fn round(farm: &mut Farm, number: u64) {
    let (name, queue, limit) = (format!("w{number}"), format!("q{number}"), format!("l{number}"));
    let expires = number.is_multiple_of(2);
    let worker = farm.join(Hello { fences: expires, ..hello(&name, cores(4)) });
    farm.tell(set_queue(QueueRecord { weight: 3, ..QueueRecord::named(&queue) }));
    farm.tell(set_limit(&limit, Limit { max: Some(2), ..Limit::default() }));
    let of = |user: &str, steps: Vec<StepSpec>| JobSpec {
        user: format!("{user}{number}"),
        key: Some(format!("{user}'s key")),
        ..spec(&queue, steps)
    };
    let ends = farm.submit(of("ann", vec![step(2, cores(1))]));
    let after = farm.submit(JobSpec { after: vec![ends], ..of("bob", vec![step(1, cores(1))]) });
    let there = StepSpec { targets: [name].into(), limits: [limit.clone()].into(), ..step(1, cores(1)) };
    let lost = farm.submit(of("cyn", vec![there]));
    assert!(farm.is_placed(task(lost, 0)) && (0..2).all(|index| farm.is_placed(task(ends, index))));
    ask_for_places(farm, &queue);
    let waiting = task(ends, 0);
    farm.tell(Event::Lend { task: waiting });
    farm.tell(Event::Reclaim { request: REQUEST, task: waiting });
    farm.tell(Event::Cancel { request: REQUEST, job: after });
    (0..2).for_each(|index| farm.end(task(ends, index), 0));
    farm.tell(Event::Lost { worker });
    if !expires {
        farm.tell(Event::Forget { request: REQUEST, worker, force: true });
    }
    farm.pass(HOUR);
    farm.tell(Event::Cancel { request: REQUEST, job: lost });
    if number.is_multiple_of(FAILURE_EVERY) {
        lose_a_commit(farm, &queue);
    }
    let jobs: [JobId; 3] = [ends, after, lost];
    farm.tell(Event::Deleted(jobs.into()));
    farm.tell(Event::SetLimit { request: REQUEST, name: limit, limit: None });
    farm.tell(set_queue(QueueRecord::named(&queue)));
    farm.take();
}

/// What nobody uses is forgotten: parts of queues before the queues, and some at a time.
fn rest(farm: &mut Farm) {
    (0..4).for_each(|_| farm.pass(LONG));
    farm.check();
    farm.engine.check_empty().expect("nothing is under way");
}

#[test]
fn a_thousand_rounds_of_everything_end_with_the_sizes_of_the_beginning() {
    let mut farm = Farm::new(Settings { lease_ns: Some(LEASE_NS), ..Settings::default() });
    // It walks all, and would take most of the time.
    farm.checks = false;
    farm.worker("base", cores(2));
    // The number of the last worker is kept, so there is one more from the first round on.
    round(&mut farm, 0);
    rest(&mut farm);
    let before = sizes(&farm);
    for number in 1..=ROUNDS {
        round(&mut farm, number);
        if number.is_multiple_of(CHECK_EVERY) {
            farm.check();
        }
    }
    rest(&mut farm);
    assert_eq!(sizes(&farm), before);
}

#[test]
fn a_wait_for_lent_cpus_is_over_when_the_store_does_not_have_the_task() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    let job = farm.submit(spec("q", [step(1, cores(1))]));
    farm.tell(Event::Lend { task: task(job, 0) });
    let request = farm.ask(|request| Event::Reclaim { request, task: task(job, 0) });
    assert_eq!(farm.replies.get(&request), None, "its worker has not given them back");
    farm.handle(Event::Hold { request: REQUEST, job, held: true });
    fail_the_commit(&mut farm);
    assert_eq!(farm.replies.get(&request), Some(&Reply::Done));
    farm.engine.check_empty().expect("the job is gone");
}
