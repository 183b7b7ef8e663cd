//! Places of outside clients: who gets them, for how long they wait, and what a restart makes of them.

use crate::kit::{Farm, REQUEST, START, cores, set_queue, spec, step, task};
use std::collections::BTreeMap;
use windlass_core::client_places::{NoPlace, PlaceRequest};
use windlass_core::engine::{Event, Hello, PlaceInUse, Reply, Settings};
use windlass_core::explain::{self, Reason};
use windlass_core::ids::AllocId;
use windlass_core::job::StepSpec;
use windlass_core::plan::PlanSettings;
use windlass_core::queues::{Charge, QueueRecord, TurnSettings};
use windlass_core::tags::{EXCLUSIVE, Need, SERVES};
use windlass_core::time::NS_PER_S;
use windlass_core::{RequestId, Resources, WorkerId};

fn ask(farm: &mut Farm, place: PlaceRequest) -> RequestId {
    let request = farm.ask(|request| Event::Alloc { request, place: Box::new(place) });
    farm.settle();
    request
}

/// Asks for one core in a client's queue.
fn core(farm: &mut Farm, client: &str, wait_s: u64) -> RequestId {
    ask(farm, PlaceRequest { wait_max_ms: wait_s * 1_000, ..place(client) })
}

fn place(client: &str) -> PlaceRequest {
    PlaceRequest { queue: client.to_owned(), amounts: cores(1), ..PlaceRequest::default() }
}

fn place_of(farm: &Farm, request: RequestId) -> Option<(AllocId, WorkerId)> {
    match farm.replies.get(&request) {
        Some(Reply::Placed { alloc, worker }) => Some((*alloc, *worker)),
        _ => None,
    }
}

/// Who was given a place, in order.
fn given(farm: &Farm) -> Vec<RequestId> {
    let placed = farm.out.volatile.iter().filter(|(_, reply)| matches!(reply, Reply::Placed { .. }));
    placed.map(|(request, _)| *request).collect()
}

fn free(farm: &mut Farm, request: RequestId) {
    let (alloc, _) = place_of(farm, request).expect("it has a place");
    farm.tell(Event::Release { alloc });
}

#[test]
fn a_request_waits_until_a_place_is_free_or_its_time_is_up() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    let first = core(&mut farm, "ann", 0);
    let (second, third) = (core(&mut farm, "ann", 30), core(&mut farm, "ann", 30));
    assert!(place_of(&farm, first).is_some() && farm.replies.len() == 1);
    farm.pass(29);
    free(&mut farm, first);
    assert!(place_of(&farm, second).is_some());
    assert_eq!(farm.engine.next_wakeup(), Some(START.after(30 * NS_PER_S)));
    farm.pass(1);
    assert_eq!(farm.replies[&third], Reply::NoPlace(NoPlace::Expired));
    assert_eq!(farm.engine.places().waiting_count(), 0);
}

/// The class of a request is gone with it, while the round goes on with the tasks beside it.
#[test]
fn a_request_that_goes_before_tasks_of_its_queue_leaves_them_the_rest_of_the_round() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
    let whole = ask(&mut farm, PlaceRequest { amounts: cores(4), ..place("q") });
    let job = farm.accept(spec("q", [step(2, cores(1))]));
    // The worker is warm for it.
    let half = ask(&mut farm, PlaceRequest { amounts: cores(2), wait_max_ms: 30_000, ..place("q") });
    free(&mut farm, whole);
    assert!(place_of(&farm, half).is_some());
    assert!((0..2).all(|index| farm.is_placed(task(job, index))));
}

#[test]
fn without_a_worker_that_could_have_it_nobody_waits() {
    let mut farm = Farm::with_workers(Settings::default(), []);
    let request = core(&mut farm, "ann", 30);
    assert_eq!(farm.replies[&request], Reply::NoPlace(NoPlace::NoWorkers));
}

#[test]
fn a_client_that_is_gone_gets_nothing() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    let (first, second, third) =
        (core(&mut farm, "ann", 0), core(&mut farm, "ann", 30), core(&mut farm, "ann", 30));
    farm.tell(Event::Unalloc { alloc: second });
    assert_eq!(farm.replies[&second], Reply::NoPlace(NoPlace::Withdrawn), "its gateway waits for that");
    free(&mut farm, first);
    assert!(place_of(&farm, third).is_some());
    farm.tell(Event::Unalloc { alloc: third });
    assert!(place_of(&farm, third).is_some(), "it was answered before");
    let queue = farm.engine.queues().id("ann").unwrap();
    assert_eq!((farm.engine.places().waiting_count(), farm.engine.queues().get(queue).booked_cpu), (0, 100));
}

#[test]
fn one_compile_waits_for_a_turn_and_not_for_two_thousand() {
    let turn = TurnSettings { charge: Charge::Time, express: None };
    let mut farm = Farm::with_workers(
        Settings { plan: PlanSettings { turn, ..PlanSettings::default() }, ..Settings::default() },
        [cores(4), cores(4)],
    );
    for _ in 0..2_008 {
        core(&mut farm, "many", 3_600);
    }
    farm.pass(2);
    let one = core(&mut farm, "one", 3_600);
    let held = given(&farm);
    assert_eq!(held.len(), 8);
    free(&mut farm, held[0]);
    if place_of(&farm, one).is_none() {
        free(&mut farm, held[1]);
    }
    assert!(place_of(&farm, one).is_some(), "it waited for more than one turn");
}

#[test]
fn clients_share_by_weight_with_each_other() {
    let turn = TurnSettings { charge: Charge::Task, express: None };
    let mut farm = Farm::with_workers(
        Settings { plan: PlanSettings { turn, ..PlanSettings::default() }, ..Settings::default() },
        [cores(2)],
    );
    let queue = QueueRecord { weight: 300, ..QueueRecord::named("ci") };
    farm.tell(set_queue(queue));
    let clients: BTreeMap<RequestId, &str> = (0..200)
        .flat_map(|_| [(core(&mut farm, "ci", 3_600), "ci"), (core(&mut farm, "dev", 3_600), "dev")])
        .collect();
    let mut next = 0;
    while given(&farm).len() < 82 {
        let request = given(&farm)[next];
        next += 1;
        free(&mut farm, request);
    }
    let of_ci = given(&farm)[2..].iter().filter(|request| clients[request] == "ci").count();
    assert!((59..=61).contains(&of_ci), "{of_ci} of 80 at weights 300 and 100");
}

#[test]
fn a_place_of_an_earlier_start_frees_nobody_elses() {
    let settings = |first_alloc| Settings { first_alloc, ..Settings::default() };
    let mut before = Farm::with_workers(settings(77), [cores(1)]);
    let request = core(&mut before, "ann", 0);
    let (old, _) = place_of(&before, request).unwrap();
    let mut farm = Farm::with_workers(settings(9_000), [cores(1)]);
    let request = core(&mut farm, "bob", 0);
    farm.tell(Event::Release { alloc: old });
    let (alloc, worker) = place_of(&farm, request).unwrap();
    assert!(farm.engine.places().get(alloc).is_some() && old != alloc);
    assert_eq!(farm.engine.workers().get(worker).unwrap().booked.sum().cpu, 100);
}

#[test]
fn places_in_use_are_taken_up_again_and_given_back() {
    let mut farm = Farm::with_workers(Settings { first_alloc: 9_000, ..Settings::default() }, [cores(2)]);
    let in_use = |alloc| PlaceInUse { alloc: AllocId(alloc), queue: "ann".to_owned(), amounts: cores(1) };
    let worker = WorkerId(1);
    farm.tell(Event::PlacesInUse { worker, places: vec![in_use(77), in_use(78)] });
    let waits = core(&mut farm, "bob", 30);
    assert!(place_of(&farm, waits).is_none(), "both cores are in use");
    assert_eq!(farm.engine.queues().get(farm.engine.queues().id("ann").unwrap()).booked_cpu, 200);
    farm.tell(Event::PlacesInUse { worker, places: vec![in_use(78)] });
    assert!(place_of(&farm, waits).is_none(), "said again, it is the same place");
    farm.tell(Event::Release { alloc: AllocId(77) });
    let (alloc, _) = place_of(&farm, waits).expect("one is free");
    farm.tell(Event::PlacesInUse { worker, places: vec![in_use(78)] });
    assert!(farm.engine.places().get(alloc).is_some(), "one that was just given stays");
}

#[test]
fn a_worker_that_is_gone_holds_no_places() {
    let mut farm =
        Farm::with_workers(Settings { lease_ns: Some(60 * NS_PER_S), ..Settings::default() }, [cores(1)]);
    let request = core(&mut farm, "ann", 0);
    let (alloc, worker) = place_of(&farm, request).unwrap();
    farm.tell(Event::Lost { worker });
    farm.tell(Event::Forget { request: REQUEST, worker, force: true });
    assert!(farm.engine.places().get(alloc).is_none());
    assert!(farm.engine.workers().get(worker).unwrap().booked.places().is_empty());
}

#[test]
fn a_place_goes_where_its_toolchain_is_and_not_where_it_failed() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4), cores(4), cores(4)]);
    let reads: BTreeMap<String, Option<u64>> = [("toolchain/abc".to_owned(), Some(60 << 20))].into();
    let keys = windlass_core::cache_keys::CacheKeys::of([&"toolchain/abc".to_owned()].into_iter());
    for worker in 1..=3 {
        let held = if worker == 3 { keys.clone() } else { Default::default() };
        farm.tell(Event::Caches { worker: WorkerId(worker), keys: held });
    }
    let place = PlaceRequest { reads, ..place("ann") };
    let request = ask(&mut farm, place.clone());
    assert_eq!(place_of(&farm, request).unwrap().1, WorkerId(3));
    let request = ask(&mut farm, PlaceRequest { avoids: Some(WorkerId(3)), ..place });
    assert_ne!(place_of(&farm, request).unwrap().1, WorkerId(3));
}

/// A worker that gives places to `sccache` and runs no tasks.
fn giver(farm: &mut Farm, name: &str) {
    let one = |text: &str| [text.to_owned()].into();
    let attributes = [(EXCLUSIVE.to_owned(), one("sccache")), (SERVES.to_owned(), one("sccache"))].into();
    farm.tell(Event::Hello(Box::new(Hello { attributes, ..Hello::new(name, 77, cores(1)) })));
}

fn served(client: &str, wait_s: u64) -> PlaceRequest {
    let needs = vec![Need { key: SERVES.to_owned(), any_of: ["sccache".to_owned()].into() }];
    PlaceRequest { needs, wait_max_ms: wait_s * 1_000, ..place(client) }
}

#[test]
fn a_slot_takes_its_part_of_the_cores_and_there_are_as_many_as_are_offered() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(8)]);
    let worker = WorkerId(1);
    let name = || "sccache_places".to_owned();
    let offer = |count| Event::OfferPlaces { worker, name: name(), count };
    let amounts = Resources { custom: [(name(), 1)].into(), ..Resources::new(50, 0) };
    let slot = PlaceRequest { amounts, is_slot: true, wait_max_ms: 3_600_000, ..place("ann") };
    let before = ask(&mut farm, slot.clone());
    assert_eq!(farm.replies[&before], Reply::NoPlace(NoPlace::NoWorkers), "none is offered");
    farm.tell(offer(10));
    let asked: Vec<RequestId> = (0..12).map(|_| ask(&mut farm, slot.clone())).collect();
    assert_eq!(given(&farm), asked[..10]);
    assert_eq!(farm.engine.workers().get(worker).unwrap().booked.sum().cpu, 800, "all cores are held");
    // The build server is slow: the places that are held stay, and no other is given.
    farm.tell(offer(9));
    free(&mut farm, asked[0]);
    assert_eq!(given(&farm).len(), 10);
    farm.tell(offer(10));
    assert_eq!(given(&farm).len(), 11);
    farm.tell(offer(0));
    free(&mut farm, asked[1]);
    let why = explain::waiting_place(&farm.engine, "ann").unwrap();
    assert_eq!(given(&farm).len(), 11);
    let (_, said) = why.reason.say(|_| String::new());
    assert!(said.ends_with("gives no places for a while, because it did not take jobs"), "{said}");
    assert!(farm.engine.check().is_ok());
}

#[test]
fn no_task_runs_where_only_places_are_given_whatever_it_asks_for() {
    let mut farm = Farm::with_workers(Settings::default(), []);
    giver(&mut farm, "10.0.0.1:10501");
    let needs =
        [EXCLUSIVE, SERVES].map(|key| Need { key: key.to_owned(), any_of: ["sccache".to_owned()].into() });
    let job = farm.submit(spec("ann", [StepSpec { needs: needs.to_vec(), ..step(1, cores(1)) }]));
    assert!(farm.engine.attempts_of(job).next().is_none());
    let request = ask(&mut farm, served("ann", 0));
    assert!(place_of(&farm, request).is_some(), "an outside client gets it");
}

#[test]
fn who_could_have_it_is_found_among_many_others_without_a_look_at_them() {
    let mut farm = Farm::with_workers(Settings::default(), (0..50).map(|_| cores(1)));
    let request = ask(&mut farm, served("ann", 30));
    assert_eq!(farm.replies[&request], Reply::NoPlace(NoPlace::NoWorkers));
    giver(&mut farm, "10.0.0.1:10501");
    let request = ask(&mut farm, served("ann", 30));
    assert!(place_of(&farm, request).is_some());
}

#[test]
fn why_explains_places_as_it_explains_tasks() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    let first = core(&mut farm, "ann", 0);
    let (alloc, worker) = place_of(&farm, first).unwrap();
    let held = explain::held_place(&farm.engine, alloc).unwrap();
    assert_eq!(held.reason, Reason::Placed { worker, started: Some(START), queued: false });
    assert!(explain::waiting_place(&farm.engine, "ann").is_none());
    core(&mut farm, "ann", 30);
    core(&mut farm, "bob", 30);
    let waiting = explain::waiting_place(&farm.engine, "ann").unwrap();
    assert!(matches!(waiting.reason, Reason::Full | Reason::Behind(_)), "{waiting:?}");
    let turn = waiting.turn.unwrap();
    assert_eq!((turn.queue.as_str(), turn.pool.demand_cpu, turn.pool.own_demand_cpu), ("ann", 300, 200));
    let queue = QueueRecord { paused: Some("repair".to_owned()), ..QueueRecord::named("ann") };
    farm.tell(set_queue(queue));
    let paused = explain::waiting_place(&farm.engine, "ann").unwrap();
    assert_eq!(paused.reason, Reason::Paused("repair".to_owned()));
    free(&mut farm, first);
    assert!(explain::held_place(&farm.engine, alloc).is_none());
}
