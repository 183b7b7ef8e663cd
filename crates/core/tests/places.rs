//! Places of outside clients: who gets them, for how long they wait, and what a restart makes of them.

use std::collections::BTreeMap;
use windlass_core::engine::{Engine, Event, Hello, Outbox, PlaceInUse, Reply, Settings};
use windlass_core::ids::AllocId;
use windlass_core::places::{NoPlace, PlaceRequest};
use windlass_core::queues::{Charge, QueueRecord, TurnSettings};
use windlass_core::time::NS_PER_S;
use windlass_core::{RequestId, Resources, Time, WorkerId};

struct Farm {
    engine: Engine,
    now: Time,
    requests: u64,
    replies: BTreeMap<RequestId, Reply>,
    /// In the order in which they were given.
    given: Vec<(RequestId, AllocId, WorkerId)>,
}

impl Farm {
    fn new(settings: Settings, cpus: &[u32]) -> Farm {
        let (engine, now) = (Engine::new(settings), Time(1_000 * NS_PER_S));
        let mut farm = Farm { engine, now, requests: 0, replies: BTreeMap::new(), given: Vec::new() };
        for (n, cpus) in (1..).zip(cpus) {
            let hello = Hello::new(&format!("w{n}"), n, Resources::new(cpus * 100, 0));
            farm.tell(Event::Hello(Box::new(hello)));
        }
        farm
    }

    fn tell(&mut self, event: Event) {
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        while self.engine.round(self.now, 1_000, &mut out) > 0 {}
        self.engine.committed(&out);
        self.engine.check().unwrap();
        for (request, reply) in out.volatile {
            if let Reply::Placed { alloc, worker } = reply {
                self.given.push((request, alloc, worker));
            }
            self.replies.insert(request, reply);
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.after(seconds * NS_PER_S);
        self.tell(Event::Tick);
    }

    fn ask(&mut self, place: PlaceRequest) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.tell(Event::Alloc { request, place: Box::new(place) });
        request
    }

    /// Asks for one core in a client's queue.
    fn core(&mut self, client: &str, wait_s: u64) -> RequestId {
        self.ask(PlaceRequest {
            queue: client.to_owned(),
            amounts: Resources::new(100, 0),
            wait_max_ms: wait_s * 1_000,
            ..PlaceRequest::default()
        })
    }

    fn place_of(&self, request: RequestId) -> Option<(AllocId, WorkerId)> {
        self.given.iter().find(|(of, ..)| *of == request).map(|(_, alloc, worker)| (*alloc, *worker))
    }

    fn free(&mut self, request: RequestId) {
        let (alloc, _) = self.place_of(request).expect("it has a place");
        self.tell(Event::Release { alloc });
    }
}

#[test]
fn a_request_waits_until_a_place_is_free_or_its_time_is_up() {
    let mut farm = Farm::new(Settings::default(), &[1]);
    let first = farm.core("ann", 0);
    let (second, third) = (farm.core("ann", 30), farm.core("ann", 30));
    assert!(farm.place_of(first).is_some() && farm.replies.len() == 1);
    farm.pass(29);
    farm.free(first);
    assert!(farm.place_of(second).is_some());
    assert_eq!(farm.engine.next_wakeup(), Some(Time(1_030 * NS_PER_S)));
    farm.pass(1);
    assert_eq!(farm.replies[&third], Reply::NoPlace(NoPlace::Expired));
    assert_eq!(farm.engine.places().waiting_count(), 0);
}

#[test]
fn without_a_worker_that_could_have_it_nobody_waits() {
    let mut farm = Farm::new(Settings::default(), &[]);
    let request = farm.core("ann", 30);
    assert_eq!(farm.replies[&request], Reply::NoPlace(NoPlace::NoWorkers));
}

#[test]
fn a_client_that_is_gone_gets_nothing() {
    let mut farm = Farm::new(Settings::default(), &[1]);
    let (first, second, third) = (farm.core("ann", 0), farm.core("ann", 30), farm.core("ann", 30));
    farm.tell(Event::Unalloc { alloc: second });
    farm.free(first);
    assert!(farm.place_of(second).is_none() && farm.place_of(third).is_some());
}

#[test]
fn one_compile_waits_for_a_turn_and_not_for_two_thousand() {
    let turn = TurnSettings { charge: Charge::Time, express: None };
    let mut farm = Farm::new(Settings { turn, ..Settings::default() }, &[4, 4]);
    for _ in 0..2_008 {
        farm.core("many", 3_600);
    }
    farm.pass(2);
    let one = farm.core("one", 3_600);
    let held: Vec<RequestId> = farm.given.iter().map(|(request, ..)| *request).collect();
    assert_eq!(held.len(), 8);
    farm.free(held[0]);
    if farm.place_of(one).is_none() {
        farm.free(held[1]);
    }
    assert!(farm.place_of(one).is_some(), "it waited for more than one turn");
}

#[test]
fn clients_share_by_weight_with_each_other() {
    let turn = TurnSettings { charge: Charge::Task, express: None };
    let mut farm = Farm::new(Settings { turn, ..Settings::default() }, &[2]);
    let queue = QueueRecord { weight: 300, ..QueueRecord::named("ci") };
    farm.tell(Event::SetQueue { request: RequestId(0), queue });
    let clients: BTreeMap<RequestId, &str> =
        (0..200).flat_map(|_| [(farm.core("ci", 3_600), "ci"), (farm.core("dev", 3_600), "dev")]).collect();
    let mut next = 0;
    while farm.given.len() < 82 {
        let (request, ..) = farm.given[next];
        next += 1;
        farm.free(request);
    }
    let of_ci = farm.given[2..].iter().filter(|(request, ..)| clients[request] == "ci").count();
    assert!((59..=61).contains(&of_ci), "{of_ci} of 80 at weights 300 and 100");
}

#[test]
fn a_place_of_an_earlier_start_frees_nobody_elses() {
    let settings = |first_alloc| Settings { first_alloc, ..Settings::default() };
    let mut before = Farm::new(settings(77), &[1]);
    let request = before.core("ann", 0);
    let (old, _) = before.place_of(request).unwrap();
    let mut farm = Farm::new(settings(9_000), &[1]);
    let request = farm.core("bob", 0);
    farm.tell(Event::Release { alloc: old });
    let (alloc, worker) = farm.place_of(request).unwrap();
    assert!(farm.engine.places().get(alloc).is_some() && old != alloc);
    assert_eq!(farm.engine.workers().get(worker).unwrap().booked.cpu, 100);
}

#[test]
fn places_in_use_are_taken_up_again_and_given_back() {
    let mut farm = Farm::new(Settings { first_alloc: 9_000, ..Settings::default() }, &[2]);
    let in_use = |alloc| PlaceInUse {
        alloc: AllocId(alloc),
        queue: "ann".to_owned(),
        amounts: Resources::new(100, 0),
    };
    let worker = WorkerId(1);
    farm.tell(Event::PlacesInUse { worker, places: vec![in_use(77), in_use(78)] });
    let waits = farm.core("bob", 30);
    assert!(farm.place_of(waits).is_none(), "both cores are in use");
    assert_eq!(farm.engine.queues().get(farm.engine.queues().id("ann").unwrap()).booked_cpu, 200);
    farm.tell(Event::PlacesInUse { worker, places: vec![in_use(78)] });
    assert!(farm.place_of(waits).is_none(), "said again, it is the same place");
    farm.tell(Event::Release { alloc: AllocId(77) });
    let (alloc, _) = farm.place_of(waits).expect("one is free");
    farm.tell(Event::PlacesInUse { worker, places: vec![in_use(78)] });
    assert!(farm.engine.places().get(alloc).is_some(), "one that was just given stays");
}

#[test]
fn a_worker_that_is_gone_holds_no_places() {
    let mut farm = Farm::new(Settings { lease_ns: Some(60 * NS_PER_S), ..Settings::default() }, &[1]);
    let request = farm.core("ann", 0);
    let (alloc, worker) = farm.place_of(request).unwrap();
    farm.tell(Event::Lost { worker });
    farm.tell(Event::Forget { request: RequestId(0), worker, force: true });
    assert!(farm.engine.places().get(alloc).is_none());
    assert!(farm.engine.workers().get(worker).unwrap().allocs.is_empty());
}

#[test]
fn a_place_goes_where_its_toolchain_is_and_not_where_it_failed() {
    let mut farm = Farm::new(Settings::default(), &[4, 4, 4]);
    let reads: BTreeMap<String, Option<u64>> = [("toolchain/abc".to_owned(), Some(60 << 20))].into();
    let keys = windlass_core::cache_keys::CacheKeys::of([&"toolchain/abc".to_owned()].into_iter());
    for worker in 1..=3 {
        let held = if worker == 3 { keys.clone() } else { Default::default() };
        farm.tell(Event::Caches { worker: WorkerId(worker), keys: held });
    }
    let place = PlaceRequest {
        queue: "ann".to_owned(),
        amounts: Resources::new(100, 0),
        reads,
        ..PlaceRequest::default()
    };
    let request = farm.ask(place.clone());
    assert_eq!(farm.place_of(request).unwrap().1, WorkerId(3));
    let request = farm.ask(PlaceRequest { avoids: Some(WorkerId(3)), ..place });
    assert_ne!(farm.place_of(request).unwrap().1, WorkerId(3));
}
