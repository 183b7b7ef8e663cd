//! Turns of commands on clients' machines: places that take turns inside their queue, hold limits, are sized by what was
//! learned, and are booked again after a restart.

use crate::kit::places::{ask, free, place_of};
use crate::kit::{Farm, GIB, START, cores, set_limit, spec, step, task};
use proptest::collection::vec;
use proptest::prelude::*;
use windlass_core::bounds::PLACE_PARTS_MAX;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Event, Settings, StoredState, Write};
use windlass_core::explain::{self, Known, Reason};
use windlass_core::ids::AllocId;
use windlass_core::job::{JobSpec, StepSpec};
use windlass_core::licences::Limit;
use windlass_core::load::pressure::LoadReport;
use windlass_core::plan::PlanSettings;
use windlass_core::queues::{Charge, TurnSettings};
use windlass_core::score::history::{Sample, Signature};
use windlass_core::{RequestId, Resources, WorkerId};

fn settings() -> Settings {
    let turn = TurnSettings { charge: Charge::Task, express: None };
    Settings { plan: PlanSettings { turn, ..PlanSettings::default() }, ..Settings::default() }
}

fn turn(turn_of: &str) -> PlaceRequest {
    PlaceRequest {
        queue: "ann".to_owned(),
        turn_of: Some(turn_of.to_owned()),
        amounts: cores(1),
        wait_max_ms: 3_600_000,
        ..PlaceRequest::default()
    }
}

fn booked_cpu(farm: &Farm, worker: u64) -> u32 {
    farm.engine.workers().get(WorkerId(worker)).unwrap().booked.sum().cpu
}

/// One worktree has many turns that wait. The first of another one, and a job of the person, come after one more at most.
#[test]
fn worktrees_of_a_user_take_turns_with_each_other_and_with_the_user_s_jobs() {
    let mut farm = Farm::with_workers(settings(), [cores(1)]);
    let mut many: Vec<RequestId> = (0..20).map(|_| ask(&mut farm, turn("/src/a"))).collect();
    let other = ask(&mut farm, turn("/src/b"));
    let job = JobSpec { user: "ann".to_owned(), ..spec("ann", [step(1, cores(1))]) };
    let job = task(farm.submit(job), 0);
    let mut served = Vec::new();
    for _ in 0..4 {
        if farm.is_placed(job) {
            served.push("job");
            farm.end(job, 0);
        } else if place_of(&farm, other).is_some() && !served.contains(&"b") {
            served.push("b");
            free(&mut farm, other);
        } else {
            served.push("a");
            let first = many.remove(0);
            free(&mut farm, first);
        }
    }
    assert!(served.contains(&"b") && served.contains(&"job"), "{served:?}");
}

#[test]
fn parts_of_a_queue_are_bounded_however_many_worktrees_a_client_names() {
    let mut farm = Farm::with_workers(settings(), [cores(1)]);
    farm.checks = false;
    for n in 0..PLACE_PARTS_MAX + 100 {
        ask(&mut farm, turn(&format!("/src/{n}")));
    }
    let queue = farm.engine.queues().id("ann").unwrap();
    assert_eq!(farm.engine.queues().parts(queue).count(), PLACE_PARTS_MAX);
    assert_eq!(farm.engine.places().waiting_count(), PLACE_PARTS_MAX + 99);
    farm.check();
}

#[test]
fn a_turn_holds_its_limits_as_tasks_do() {
    for limit in [Limit::of(1), Limit { max: None, per_worker: Some(1), ..Limit::of(1) }] {
        let mut farm = Farm::with_workers(settings(), [cores(4)]);
        farm.tell(set_limit("link", limit));
        let link = || PlaceRequest { limits: ["link".to_owned()].into(), ..turn("/src/a") };
        let (first, second) = (ask(&mut farm, link()), ask(&mut farm, link()));
        assert!(place_of(&farm, first).is_some() && place_of(&farm, second).is_none());
        let linker = StepSpec { limits: ["link".to_owned()].into(), ..step(1, cores(1)) };
        let job = task(farm.submit(spec("bob", [linker])), 0);
        assert!(!farm.is_placed(job), "what a place holds counts for tasks");
        free(&mut farm, first);
        assert!(place_of(&farm, second).is_some() != farm.is_placed(job), "one of them has it");
        if farm.is_placed(job) {
            farm.end(job, 0);
        } else {
            free(&mut farm, second);
        }
        assert!(place_of(&farm, second).is_some());
    }
}

#[test]
fn a_turn_that_waits_says_why() {
    let mut farm = Farm::with_workers(settings(), [cores(1)]);
    farm.tell(set_limit("link", Limit::of(0)));
    let first = ask(&mut farm, turn("/src/a"));
    let full = ask(&mut farm, turn("/src/a"));
    let linker = ask(&mut farm, PlaceRequest { limits: ["link".to_owned()].into(), ..turn("/src/b") });
    let mut known = Known::default();
    let mut reason = |request| explain::request_reason(&farm.engine, request, &mut known);
    assert_eq!(reason(first), None, "it waits no more");
    assert_eq!(reason(full), Some(Reason::Full));
    let limit = Reason::Limit { name: "link".to_owned(), max: 0, first: None, waiting_holder: None };
    assert_eq!(reason(linker), Some(limit.clone()));
    let why = explain::waiting_request(&farm.engine, linker).unwrap();
    assert_eq!((why.reason, why.turn.unwrap().queue), (limit, "ann".to_owned()));
    // By the queue it is the one that waits longest, in whichever part.
    assert_eq!(explain::waiting_place(&farm.engine, "ann").unwrap().reason, Reason::Full);
}

#[test]
fn what_runs_already_is_booked_at_once_and_once() {
    let mut farm = Farm::with_workers(settings(), [cores(1)]);
    let before = ask(&mut farm, turn("/src/a"));
    let runs = ask(&mut farm, PlaceRequest { runs: true, ..turn("/src/b") });
    assert!(place_of(&farm, runs).is_some());
    assert_eq!(booked_cpu(&farm, 1), 200, "more than there is, because it runs");
    let waits = ask(&mut farm, turn("/src/a"));
    free(&mut farm, before);
    assert!(place_of(&farm, waits).is_none());
    free(&mut farm, runs);
    assert!(place_of(&farm, waits).is_some());
    assert_eq!(booked_cpu(&farm, 1), 100);
}

/// Its clients may come back before its workers do.
#[test]
fn a_restarted_engine_books_what_runs_on_a_worker_that_is_not_heard_from_yet() {
    let farm = Farm::with_workers(settings(), [cores(1)]);
    let record = farm.engine.workers().get(WorkerId(1)).unwrap().record.clone();
    let stored = StoredState { workers: vec![record], ..StoredState::default() };
    let mut farm = Farm::restored(Settings { first_alloc: 9_000, ..settings() }, stored, START);
    let runs = ask(&mut farm, PlaceRequest { runs: true, ..turn("/src/a") });
    assert_eq!(place_of(&farm, runs), Some(AllocId(9_000)));
    let waits = ask(&mut farm, turn("/src/b"));
    farm.worker("w1", cores(1));
    assert!(place_of(&farm, waits).is_none());
    free(&mut farm, runs);
    assert!(place_of(&farm, waits).is_some());
}

#[test]
fn the_memory_of_a_shape_is_learned_and_outlives_the_engine() {
    let signature =
        |shape: &str| Signature { queue: "ann".to_owned(), step: String::new(), shape: shape.to_owned() };
    let (exact, general) = (signature("rustc|link|app"), signature("rustc|link"));
    let mut farm = Farm::with_workers(settings(), [Resources::new(400, 8 * GIB)]);
    assert_eq!(farm.engine.profiles().reserve_outside(&general), None, "unknown is not 0");
    farm.take();
    let sample = Sample { peak_memory: Some(GIB), wall_ms: Some(900), ..Sample::default() };
    farm.tell(Event::OutsideWorkEnded { signatures: vec![exact.clone(), general.clone()], sample });
    let reserve = farm.engine.profiles().reserve_outside(&general).unwrap();
    assert!((GIB..=GIB + GIB / 4).contains(&reserve), "{reserve}");
    assert!(farm.take().writes.is_empty(), "the end of a turn waits for no commit");
    farm.engine.save_histories(&mut farm.pipeline.forming);
    farm.commit();
    let writes = farm.take().writes;
    let histories = writes.into_iter().filter_map(|write| match write {
        Write::History { signature, samples, .. } => Some((signature, samples)),
        _ => None,
    });
    let history: Vec<(String, Vec<Sample>)> = histories.collect();
    assert_eq!(history.len(), 2);
    farm.engine.save_histories(&mut farm.pipeline.forming);
    farm.commit();
    assert!(farm.take().writes.is_empty(), "they are written once");
    let stored = StoredState { history, ..StoredState::default() };
    let restored = Farm::restored(settings(), stored, START);
    assert_eq!(restored.engine.profiles().reserve_outside(&exact), Some(reserve));
}

/// The commands of turns are other programs to the worker: what they use of their booking is missing from what it reports
/// as available.
#[test]
fn memory_that_a_turn_uses_is_taken_off_once() {
    let amounts = Resources::new(100, 2 * GIB);
    let of = |available: u64| {
        let mut farm = Farm::with_workers(settings(), [Resources::new(800, 4 * GIB)]);
        let place = || PlaceRequest { amounts: amounts.clone(), ..turn("/src/a") };
        ask(&mut farm, place());
        let report =
            LoadReport { memory_available: Some(available), memory_own: Some(0), ..LoadReport::default() };
        farm.tell(Event::Load { worker: WorkerId(1), report: Box::new(report) });
        let second = ask(&mut farm, place());
        place_of(&farm, second).is_some()
    };
    assert!(of(2 * GIB), "the first holds all that it booked");
    assert!(!of(GIB), "another program holds a part of the rest");
}

proptest! {
    /// Whatever clients ask, withdraw and give back, the books are right after each step, and nothing is left.
    #[test]
    fn turns_leave_nothing_behind(steps in vec((0..6_u8, 0..3_usize, any::<usize>()), 1..60)) {
        let mut farm = Farm::with_workers(settings(), [cores(2), cores(1)]);
        farm.tell(set_limit("link", Limit { per_worker: Some(1), ..Limit::of(2) }));
        let mut open: Vec<RequestId> = Vec::new();
        for (what, who, pick) in steps {
            let place = turn(["/src/a", "/src/b", "ann"][who]);
            let limits = ["link".to_owned()].into();
            match what {
                0 => open.push(ask(&mut farm, place)),
                1 => open.push(ask(&mut farm, PlaceRequest { limits, ..place })),
                2 => open.push(ask(&mut farm, PlaceRequest { limits, runs: true, ..place })),
                _ if open.is_empty() => {}
                3 => farm.pass(pick as u64 % 7),
                _ => {
                    let request = open.swap_remove(pick % open.len());
                    give_up(&mut farm, request);
                }
            }
        }
        open.into_iter().for_each(|request| give_up(&mut farm, request));
        prop_assert_eq!(farm.engine.places().waiting_count(), 0);
        prop_assert_eq!(farm.engine.places().held().count(), 0);
        prop_assert!(farm.engine.licences().taken().is_empty());
        prop_assert_eq!((booked_cpu(&farm, 1), booked_cpu(&farm, 2)), (0, 0));
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
