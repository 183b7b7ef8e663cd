//! Tasks that wait for jobs that they submitted, and keep their memory meanwhile.

use crate::kit::{self, Farm, GIB, booked, record, spec, step, task};
use windlass_core::engine::{Event, Held, HeldPhase, Hello, Inventory, Settings, StoredState};
use windlass_core::job::TaskRow;
use windlass_core::{JobId, Resources, WorkerId};

const ONE: WorkerId = WorkerId(1);

fn capacity() -> Resources {
    Resources::new(200, GIB)
}

/// Two tasks hold all memory of the only worker, and each waits for a job that it submitted.
fn all_wait() -> (Farm, JobId) {
    let mut farm = Farm::with_workers(Settings::default(), [capacity()]);
    let first = farm.submit(spec("q", [step(2, Resources::new(100, GIB / 2))]));
    for index in 0..2 {
        let by = farm.report(task(first, index));
        farm.tell(Event::Started { by, at: farm.now });
        farm.tell(Event::Lend { task: task(first, index) });
    }
    (farm, first)
}

fn is_within_capacity(farm: &Farm) -> bool {
    farm.engine.workers().get(ONE).expect("it is there").booked.sum().fits(&capacity())
}

#[test]
fn a_task_starts_beside_those_that_wait_for_it_and_hold_all_memory() {
    let (mut farm, first) = all_wait();
    let inner = farm.submit(spec("q", [step(3, Resources::new(100, GIB / 4))]));
    let placed = |farm: &Farm| (0..3).filter(|index| farm.is_placed(task(inner, *index))).collect::<Vec<_>>();
    assert_eq!(placed(&farm), [0], "one at a time: it has what the others leave");
    assert!(is_within_capacity(&farm));
    for index in 0..3 {
        farm.end(task(inner, index), 0);
        farm.round();
        assert!(is_within_capacity(&farm));
    }
    for index in 0..2 {
        farm.end(task(first, index), 0);
    }
    farm.engine.check_empty().expect("all have ended");
}

#[test]
fn a_task_that_waits_beside_others_that_wait_lets_the_next_start() {
    let (mut farm, _) = all_wait();
    let middle = farm.submit(spec("q", [step(1, Resources::new(100, GIB))]));
    let by = farm.report(task(middle, 0));
    farm.tell(Event::Started { by, at: farm.now });
    let inner = farm.submit(spec("q", [step(1, Resources::new(200, GIB))]));
    assert!(!farm.is_placed(task(inner, 0)));
    farm.tell(Event::Lend { task: task(middle, 0) });
    farm.round();
    assert!(farm.is_placed(task(inner, 0)) && is_within_capacity(&farm));
}

/// The server that takes over does not know who lends before it hears of it.
#[test]
fn what_runs_beside_those_that_wait_survives_another_server() {
    let (first, inner) = (JobId(1), JobId(2));
    let of = |job, index, phase| Held { task: task(job, index), attempt: 1, phase };
    let (runs, lent) = (HeldPhase::Running(kit::START), HeldPhase::Lent(kit::START));
    let held = vec![of(inner, 0, runs), of(first, 0, lent), of(first, 1, lent)];
    for held in [held.clone(), held.into_iter().rev().collect()] {
        let before = Farm::with_workers(Settings::default(), [capacity()]);
        let rows = (0..2).map(|index| TaskRow { index, ..booked(ONE) }).collect();
        let outer = record(1, spec("q", [step(2, Resources::new(100, GIB / 2))]), rows);
        let inside = record(2, spec("q", [step(1, Resources::new(100, GIB / 4))]), vec![booked(ONE)]);
        let stored = StoredState {
            workers: before.engine.workers().iter().map(|worker| worker.stored()).collect(),
            jobs: vec![outer, inside],
            ..StoredState::default()
        };
        let mut farm = Farm::restored(Settings::default(), stored, before.now);
        let inventory = Inventory { seq: 0, held };
        farm.tell(Event::Hello(Box::new(Hello { inventory, ..kit::hello("w1", capacity()) })));
        farm.round();
        assert!(is_within_capacity(&farm));
        farm.end(task(inner, 0), 0);
        (0..2).for_each(|index| farm.end(task(first, index), 0));
        farm.engine.check_empty().expect("all have ended");
    }
}
