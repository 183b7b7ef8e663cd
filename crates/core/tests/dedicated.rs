//! Workers for some queues alone.

use crate::kit::{Farm, REQUEST, cores, hello, spec, starts, step, task};
use std::collections::BTreeSet;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Event, Hello, Reply, Settings};
use windlass_core::ids::StepKey;
use windlass_core::job::StepSpec;
use windlass_core::tags::FOR_QUEUE;

/// A worker of this number of cores that takes only the work of these queues.
fn worker_for(farm: &mut Farm, name: &str, of_cores: u32, queues: &[&str]) {
    let queues: BTreeSet<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
    farm.join(Hello { attributes: [(FOR_QUEUE.to_owned(), queues)].into(), ..hello(name, cores(of_cores)) });
}

/// Where what starts now starts.
fn starts_now(farm: &mut Farm) -> Vec<String> {
    farm.settle();
    let starts = starts(&farm.take()).into_iter();
    let mut names: Vec<_> = starts
        .map(|(worker, _)| farm.engine.workers().get(worker).unwrap().record.name.to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn a_worker_for_one_queue_takes_no_other_work() {
    let mut farm = Farm::new(Settings::default());
    farm.worker("w1", cores(1));
    worker_for(&mut farm, "m1", 2, &["maya", "houdini"]);
    farm.accept(spec("other", [step(3, cores(1))]));
    assert_eq!(starts_now(&mut farm), ["w1"]);
    farm.accept(spec("maya", [step(1, cores(1))]));
    farm.accept(spec("houdini", [step(1, cores(1))]));
    assert_eq!(starts_now(&mut farm), ["m1", "m1"]);
}

#[test]
fn its_queue_has_the_other_workers_too() {
    let mut farm = Farm::new(Settings::default());
    farm.worker("w1", cores(1));
    worker_for(&mut farm, "m1", 1, &["maya"]);
    farm.accept(spec("maya", [step(3, cores(1))]));
    assert_eq!(starts_now(&mut farm), ["m1", "w1"]);
}

#[test]
fn what_waits_already_gets_the_worker_that_comes_for_its_queue() {
    let mut farm = Farm::new(Settings::default());
    farm.worker("w1", cores(1));
    let job = farm.accept(spec("maya", [step(3, cores(1))]));
    let gang = StepSpec { nodes: Some(2), ..step(2, cores(1)) };
    farm.accept(spec("gangs", [gang]));
    farm.accept(spec("other", [step(2, cores(1))]));
    assert_eq!(starts_now(&mut farm), ["w1"]);
    worker_for(&mut farm, "m1", 1, &["maya"]);
    assert_eq!(starts_now(&mut farm), ["m1"]);
    worker_for(&mut farm, "g1", 1, &["gangs"]);
    worker_for(&mut farm, "g2", 1, &["gangs"]);
    assert_eq!(starts_now(&mut farm), ["g1", "g2"], "each part of a gang");
    farm.end(task(job, 0), 0);
    assert_eq!(starts_now(&mut farm), ["w1"]);
    // It comes back, and is for all again.
    farm.join(hello("g1", cores(2)));
    assert_eq!(starts_now(&mut farm), ["g1", "g1"]);
}

#[test]
fn a_queue_is_part_of_classes_while_a_worker_is_for_it_alone() {
    let mut farm = Farm::new(Settings::default());
    farm.worker("w1", cores(1));
    let job = farm.accept(spec("maya", [step(1, cores(9))]));
    let is_part = |farm: &Farm| {
        let class = farm.engine.class_of(StepKey { job, step: 0 }).expect("it waits");
        assert_eq!(farm.engine.workers().queue_in_class("maya"), class.queue);
        class.queue.is_some()
    };
    let forget = |farm: &mut Farm, name: &str| {
        let worker = farm.engine.workers().by_name(name).expect("it is known").record.id;
        farm.tell(Event::Forget { request: REQUEST, worker, force: true });
    };
    assert!(!is_part(&farm));
    worker_for(&mut farm, "m1", 1, &["maya"]);
    worker_for(&mut farm, "m2", 1, &["maya", "houdini"]);
    assert!(is_part(&farm));
    forget(&mut farm, "m1");
    assert!(is_part(&farm), "of the other one");
    farm.join(hello("m2", cores(1)));
    assert!(!is_part(&farm), "it is for all from now on");
    worker_for(&mut farm, "m1", 1, &["maya"]);
    assert!(is_part(&farm));
    worker_for(&mut farm, "m1", 1, &["houdini"]);
    assert!(!is_part(&farm));
    worker_for(&mut farm, "m1", 1, &["maya"]);
    forget(&mut farm, "m1");
    assert!(!is_part(&farm));
}

#[test]
fn a_request_that_waits_already_gets_the_worker_that_comes_for_its_queue() {
    let mut farm = Farm::new(Settings::default());
    farm.worker("w1", cores(1));
    let asks = PlaceRequest {
        queue: "maya".to_owned(),
        amounts: cores(1),
        wait_max_ms: 60_000,
        ..PlaceRequest::default()
    };
    let requests = [asks.clone(), asks].map(|place| {
        let request = farm.ask(|request| Event::Alloc { request, place: Box::new(place) });
        farm.settle();
        request
    });
    worker_for(&mut farm, "m1", 1, &["maya"]);
    for request in requests {
        assert!(matches!(farm.replies.get(&request), Some(Reply::Placed { .. })), "{request:?}");
    }
}

#[test]
fn it_is_said_whom_a_worker_is_for() {
    let mut farm = Farm::new(Settings::default());
    worker_for(&mut farm, "m1", 1, &["maya"]);
    let Reply::Submitted { job, unplaceable, .. } = farm.submission(spec("other", [step(1, cores(1))]))
    else {
        panic!("it is taken")
    };
    let reasons: Vec<String> = unplaceable[0].reasons.iter().map(|(why, _)| why.to_string()).collect();
    assert_eq!(reasons, ["takes only the work of queue maya"]);
    let said = format!("{:?}", farm.why(task(job, 0)));
    assert!(said.contains("OtherQueues({\"maya\"})"), "{said}");
    let Reply::Submitted { unplaceable, .. } = farm.submission(spec("maya", [step(1, cores(1))])) else {
        panic!("it is taken")
    };
    assert_eq!(unplaceable.len(), 0);
}
