//! The memory of turns: what those are booked with of which something is known, how those share of which nothing is, and
//! how bookings follow what commands hold.

use crate::kit::places::{ask, free, place_of};
use crate::kit::{Farm, GIB, cores};
use proptest::collection::vec;
use proptest::prelude::*;
use windlass_core::client_places::{MemoryBasis, PlaceRequest};
use windlass_core::engine::{Event, Settings};
use windlass_core::explain;
use windlass_core::load::pressure::LoadReport;
use windlass_core::score::history::{Sample, Signature};
use windlass_core::time::NS_PER_S;
use windlass_core::{RequestId, Resources, Time, WorkerId};

const MIB: u64 = 1 << 20;
const WORKER: WorkerId = WorkerId(1);

/// What a linker is that writes this file, from exact to general.
fn shapes(target: &str) -> Vec<Signature> {
    let all = [format!("ld|link|{target}"), "ld|link".to_owned()];
    all.map(|shape| Signature { queue: "ann".to_owned(), step: String::new(), shape }).to_vec()
}

fn link(target: &str) -> PlaceRequest {
    PlaceRequest {
        queue: "ann".to_owned(),
        amounts: cores(1),
        shapes: shapes(target),
        wait_max_ms: 3_600_000,
        ..PlaceRequest::default()
    }
}

fn farm(cpus: u32, memory: u64) -> Farm {
    Farm::with_workers(Settings::default(), [Resources::new(cpus * 100, memory)])
}

/// Bytes that are booked for a turn that runs.
fn booked(farm: &Farm, request: RequestId) -> u64 {
    let alloc = place_of(farm, request).expect("it has a place");
    farm.engine.places().get(alloc).expect("it is held").amounts.memory
}

fn tell(farm: &mut Farm, request: RequestId, bytes: u64) {
    let alloc = place_of(farm, request).expect("it has a place");
    farm.tell(Event::OutsideWorkHolds { alloc, bytes });
}

fn ended(farm: &mut Farm, target: &str, peak: u64) {
    let sample = Sample { peak_memory: Some(peak), wall_ms: Some(900), ..Sample::default() };
    farm.tell(Event::OutsideWorkEnded { signatures: shapes(target), sample });
}

fn report(farm: &mut Farm, available: u64) {
    let report =
        LoadReport { memory_available: Some(available), memory_own: Some(0), ..LoadReport::default() };
    farm.tell(Event::Load { worker: WORKER, report: Box::new(report) });
}

#[test]
fn a_turn_is_booked_with_the_largest_peak_of_the_nearest_shape() {
    let mut farm = farm(8, 8 * GIB);
    // One was large, and thirty since were small: a mean, or all but the largest part of them, would miss it.
    ended(&mut farm, "large", GIB);
    (0..30).for_each(|n| ended(&mut farm, &format!("small{n}"), 100 * MIB));
    let (small, large, new) =
        (ask(&mut farm, link("small7")), ask(&mut farm, link("large")), ask(&mut farm, link("new")));
    assert_eq!(booked(&farm, small), 112 * MIB);
    assert_eq!((booked(&farm, large), booked(&farm, new)), (1_152 * MIB, 1_152 * MIB));
    let basis = |request| {
        let alloc = place_of(&farm, request)?;
        Some(farm.engine.places().get(alloc)?.memory.basis)
    };
    assert_eq!((basis(large), basis(new)), (Some(MemoryBasis::Exact), Some(MemoryBasis::Nearest)));
    // As far as the machine has it.
    ended(&mut farm, "huge", 20 * GIB);
    [small, large, new].into_iter().for_each(|request| free(&mut farm, request));
    let huge = ask(&mut farm, link("huge"));
    assert_eq!(booked(&farm, huge), 8 * GIB);
}

#[test]
fn the_first_of_an_unknown_kind_share_and_the_others_wait_for_the_first_end() {
    let mut farm = farm(8, 3 * GIB);
    let all = ["a", "b", "c", "d", "e", "f"].map(|target| ask(&mut farm, link(target)));
    assert_eq!((booked(&farm, all[0]), booked(&farm, all[1])), (1_536 * MIB, 768 * MIB));
    assert!(all[2..].iter().all(|request| place_of(&farm, *request).is_none()));
    assert_eq!(farm.engine.places().will_book(all[2]), None, "nothing is known yet");
    let why = explain::unknown_memory(&farm.engine, all[2]).unwrap();
    assert!(why.ends_with("it starts where 1 GiB is free"), "{why}");
    // Work whose memory is known, or that books none, passes them by.
    let small = PlaceRequest { amounts: Resources::new(100, 100 * MIB), shapes: Vec::new(), ..link("g") };
    let none = PlaceRequest { shapes: Vec::new(), ..link("h") };
    let (small, none) = (ask(&mut farm, small), ask(&mut farm, none));
    assert!(place_of(&farm, small).is_some() && place_of(&farm, none).is_some());
    [small, none].into_iter().for_each(|request| free(&mut farm, request));
    ended(&mut farm, "a", 1_200 * MIB);
    assert_eq!(farm.engine.places().will_book(all[2]), Some(1_408 * MIB));
    assert_eq!(explain::unknown_memory(&farm.engine, all[2]), None);
    free(&mut farm, all[0]);
    assert!(place_of(&farm, all[2]).is_some() && place_of(&farm, all[3]).is_none());
}

#[test]
fn small_ends_let_all_go_on() {
    let mut farm = farm(8, 3 * GIB);
    let all: Vec<RequestId> = (0..8).map(|n| ask(&mut farm, link(&format!("t{n}")))).collect();
    let runs = |farm: &Farm| all.iter().filter(|request| place_of(farm, **request).is_some()).count();
    assert_eq!(runs(&farm), 2);
    ended(&mut farm, "t0", 50 * MIB);
    assert_eq!(runs(&farm), 8);
}

#[test]
fn where_memory_is_plentiful_no_turn_waits_because_nothing_is_known() {
    for cpus in [1, 2, 4, 16, 64] {
        let mut farm = farm(cpus, u64::from(cpus) * 2 * GIB);
        let all: Vec<RequestId> = (0..cpus).map(|n| ask(&mut farm, link(&format!("t{n}")))).collect();
        assert!(all.iter().all(|request| place_of(&farm, *request).is_some()), "{cpus}");
    }
}

#[test]
fn a_long_unknown_turn_is_booked_with_what_it_holds_and_others_start() {
    let mut farm = farm(8, 3 * GIB);
    let (first, second) = (ask(&mut farm, link("a")), ask(&mut farm, link("b")));
    let third = ask(&mut farm, link("c"));
    assert!(place_of(&farm, third).is_none());
    for bytes in [300 * MIB, 400 * MIB, 400 * MIB, 400 * MIB] {
        farm.pass(1);
        tell(&mut farm, first, bytes);
        tell(&mut farm, second, 1_200 * MIB);
    }
    assert_eq!(booked(&farm, first), 1_536 * MIB, "it may grow on");
    assert_eq!(booked(&farm, second), 1_200 * MIB, "it holds more than it was booked with");
    farm.pass(3);
    tell(&mut farm, first, 390 * MIB);
    assert_eq!(booked(&farm, first), 500 * MIB, "a quarter above its peak");
    assert!(place_of(&farm, third).is_some());
    // More than there is is not booked.
    tell(&mut farm, first, 8 * GIB);
    let on_worker = farm.engine.workers().get(WORKER).unwrap();
    assert_eq!(on_worker.booked.sum().memory, 3 * GIB);
    [first, second, third].into_iter().for_each(|request| free(&mut farm, request));
    assert_eq!(farm.engine.check_empty(), Ok(()));
}

#[test]
fn what_is_known_of_a_command_does_not_fall_with_what_it_holds() {
    let mut farm = farm(8, 3 * GIB);
    ended(&mut farm, "a", GIB);
    let (exact, asked) = (link("a"), PlaceRequest { amounts: Resources::new(100, GIB), ..link("b") });
    let (exact, asked) = (ask(&mut farm, exact), ask(&mut farm, asked));
    for _ in 0..100 {
        farm.pass(1);
        [exact, asked].into_iter().for_each(|request| tell(&mut farm, request, 10 * MIB));
    }
    assert_eq!((booked(&farm, exact), booked(&farm, asked)), (1_152 * MIB, GIB));
}

/// What a turn has booked and does not hold yet is not to be had for others, also where other programs hold a part of the
/// memory.
#[test]
fn memory_that_a_turn_will_use_is_not_given_to_another_one() {
    let mut farm = farm(8, 8 * GIB);
    ended(&mut farm, "a", 1_200 * MIB);
    report(&mut farm, 3 * GIB);
    let first = ask(&mut farm, link("a"));
    let (second, third) = (ask(&mut farm, link("a")), ask(&mut farm, link("a")));
    assert!(place_of(&farm, second).is_some() && place_of(&farm, third).is_none());
    tell(&mut farm, first, 1_200 * MIB);
    tell(&mut farm, second, 100 * MIB);
    report(&mut farm, 3 * GIB - 1_300 * MIB);
    assert!(place_of(&farm, third).is_none(), "the second one has not used the rest yet");
    free(&mut farm, second);
    assert!(place_of(&farm, third).is_some());
}

#[test]
fn a_turn_that_was_killed_books_twice_its_peak_until_less_is_learned() {
    let mut farm = farm(8, 3 * GIB);
    let holder = PlaceRequest { amounts: Resources::new(100, 3 * GIB), shapes: Vec::new(), ..link("x") };
    let holder = ask(&mut farm, holder);
    let killed = Sample { peak_memory: Some(1_800 * MIB), oom: true, ..Sample::default() };
    farm.tell(Event::OutsideWorkEnded { signatures: shapes("a"), sample: killed });
    let again = ask(&mut farm, link("a"));
    let will_book = |farm: &Farm| farm.engine.places().will_book(again);
    assert_eq!(will_book(&farm), Some(1_920 * MIB));
    ended(&mut farm, "b", 200 * MIB);
    assert_eq!(will_book(&farm), Some(1_920 * MIB), "that was another one");
    ended(&mut farm, "a", 1_000 * MIB);
    assert_eq!(will_book(&farm), Some(1_152 * MIB));
    free(&mut farm, holder);
    assert_eq!(booked(&farm, again), 1_152 * MIB);
}

#[test]
fn a_queue_pays_for_what_was_booked_while_it_was_booked() {
    let mut farm = farm(8, 3 * GIB);
    let turn = ask(&mut farm, link("a"));
    farm.pass(1);
    tell(&mut farm, turn, 300 * MIB);
    farm.pass(5);
    tell(&mut farm, turn, 300 * MIB);
    assert_eq!(booked(&farm, turn), 375 * MIB);
    farm.pass(4);
    free(&mut farm, turn);
    let queue = farm.engine.queues().id("ann").unwrap();
    // Half of the machine, which has 8 cores, for 6 s, and then one core.
    assert_eq!(farm.engine.queues().get(queue).charged, 400 * 6_000 + 100 * 4_000);
}

/// Linkers that begin at one moment on a machine, as a shell of the engine sees them. Each grows to its size, holds it for
/// a while, and ends.
struct Links {
    farm: Farm,
    has: u64,
    /// What other programs hold.
    foreign: u64,
    bytes: u64,
    grows_s: u64,
    lasts_s: u64,
    running: Vec<(RequestId, String, Time)>,
    waiting: Vec<(RequestId, String)>,
    /// The most that ran side by side.
    most: usize,
}

impl Links {
    fn begin(count: usize, (has, foreign): (u64, u64), bytes: u64, (grows_s, lasts_s): (u64, u64)) -> Links {
        let mut farm = farm(16, has);
        report(&mut farm, has - foreign);
        let targets = (0..count).map(|n| format!("t{n}"));
        let waiting = targets.map(|target| (ask(&mut farm, link(&target)), target)).collect();
        let running = Vec::new();
        Links { farm, has, foreign, bytes, grows_s, lasts_s, running, waiting, most: 0 }
    }

    /// One second passes. Returns what all hold before that, in bytes.
    fn second(&mut self) -> u64 {
        let now = self.farm.now;
        let began = self.waiting.extract_if(.., |(request, _)| place_of(&self.farm, *request).is_some());
        self.running.extend(began.map(|(request, target)| (request, target, now)));
        self.most = self.most.max(self.running.len());
        let age = |since: Time| now.since(since) / NS_PER_S;
        let holds = |since: Time| self.bytes * age(since).min(self.grows_s) / self.grows_s;
        let held = self.foreign + self.running.iter().map(|(.., since)| holds(*since)).sum::<u64>();
        report(&mut self.farm, self.has.saturating_sub(held));
        let told: Vec<_> = self.running.iter().map(|(request, _, since)| (*request, holds(*since))).collect();
        let over = self.running.extract_if(.., |(.., since)| age(*since) >= self.lasts_s).collect::<Vec<_>>();
        for (request, bytes) in told.into_iter().filter(|(_, bytes)| *bytes > 0) {
            tell(&mut self.farm, request, bytes);
        }
        for (request, target, _) in over {
            ended(&mut self.farm, &target, self.bytes);
            free(&mut self.farm, request);
        }
        self.farm.pass(1);
        held
    }

    /// Lets all of them end. Returns in how many seconds they did.
    fn finish(&mut self) -> u64 {
        let mut seconds = 0;
        while !self.running.is_empty() || !self.waiting.is_empty() {
            let held = self.second();
            assert!(held <= self.has, "the kernel kills one of {}: {held} bytes", self.running.len());
            seconds += 1;
            assert!(seconds < 10_000, "{:?} wait for ever", self.waiting);
        }
        seconds
    }
}

#[test]
fn six_links_of_1_2_gib_under_3_gib_all_end() {
    for foreign in [0, 200 * MIB, 600 * MIB, GIB] {
        let mut links = Links::begin(6, (3 * GIB, foreign), 1_229 * MIB, (3, 6));
        let seconds = links.finish();
        // Two at a time where two have room beside the others, and never longer than one after the other.
        assert_eq!(links.most, if foreign < 300 * MIB { 2 } else { 1 }, "{foreign}");
        assert!(seconds <= 6 * 8, "{seconds} s");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Links that begin at one moment never hold more together than there is, and all end.
    #[test]
    fn links_of_one_size_never_take_more_than_there_is(
        count in 1..12usize,
        gib in 3..17u64,
        foreign_percent in 0..6u64,
        bytes in 100 * MIB..1_229 * MIB,
        grows_s in 1..8u64,
        holds_s in 1..8u64,
    ) {
        let has = gib * GIB;
        let mut links =
            Links::begin(count, (has, has * foreign_percent / 100), bytes, (grows_s, grows_s + holds_s));
        let seconds = links.finish();
        prop_assert!(seconds <= (count as u64 + 1) * (grows_s + holds_s + 3));
    }

    /// Whatever clients tell of what they hold, no more is booked than there is, and nothing is left at the end.
    #[test]
    fn bookings_stay_within_the_machine(steps in vec((0..5_u8, any::<usize>(), 0..6 * GIB), 1..80)) {
        let mut farm = farm(4, 4 * GIB);
        let mut open: Vec<RequestId> = Vec::new();
        for (what, pick, bytes) in steps {
            let target = ["a", "b", "c"][pick % 3];
            match what {
                0 => open.push(ask(&mut farm, link(target))),
                1 => ended(&mut farm, target, bytes),
                2 => {
                    report(&mut farm, (4 * GIB).saturating_sub(bytes));
                    farm.pass(pick as u64 % 9);
                }
                _ if open.is_empty() => {}
                3 => {
                    let request = open[pick % open.len()];
                    if place_of(&farm, request).is_some() {
                        tell(&mut farm, request, bytes);
                    }
                }
                _ => {
                    let request = open.swap_remove(pick % open.len());
                    give_up(&mut farm, request);
                }
            }
            let worker = farm.engine.workers().get(WORKER).unwrap();
            prop_assert!(worker.booked.sum().memory <= 4 * GIB);
        }
        open.into_iter().for_each(|request| give_up(&mut farm, request));
        prop_assert_eq!(farm.engine.places().waiting_count(), 0);
        prop_assert_eq!(farm.engine.check_empty(), Ok(()));
    }
}

/// A client is gone, whether it waits or has its place.
fn give_up(farm: &mut Farm, request: RequestId) {
    match place_of(farm, request) {
        Some(alloc) => farm.tell(Event::Release { alloc }),
        None => farm.tell(Event::Unalloc { alloc: request }),
    }
}
