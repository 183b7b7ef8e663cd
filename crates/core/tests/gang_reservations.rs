//! Workers that are reserved for tasks that start together, while workers go and come back.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{Farm, GIB, REQUEST, cores, spec, step};
use windlass_core::engine::{Event, Settings};
use windlass_core::job::StepSpec;
use windlass_core::{Resources, WorkerId};

/// How wide the gang is.
const NODES: u32 = 4;
/// How long a worker is drained.
const DRAINED_S: u64 = 15;
/// Beyond this the gang has not started at all.
const MOST_S: u64 = 600;

/// Workers of two cores, small tasks for all of them for longer than a test looks, and a gang that needs four workers.
fn busy_farm(workers: usize) -> LiveFarm {
    let workers = vec![Resources::new(200, 64 * GIB); workers];
    let mut farm = LiveFarm::of(Farm::with_workers(Settings::default(), workers));
    farm.accept(spec("small", [StepSpec { body: run((3, 9), 0), ..step(3_000, cores(1)) }]));
    farm.settle();
    farm.advance(5);
    let wide = StepSpec { nodes: Some(NODES), body: run((5, 5), 0), ..step(NODES, cores(2)) };
    farm.accept(spec("wide", [wide]));
    farm.settle();
    farm
}

fn reserved(farm: &LiveFarm) -> Vec<WorkerId> {
    farm.engine.planner().reservations().holders().map(|(worker, _)| worker).collect()
}

fn drain(farm: &mut LiveFarm, worker: WorkerId, draining: bool) {
    farm.hear(Event::Drain { request: REQUEST, worker, draining, note: None });
    farm.settle();
}

/// After how many seconds the gang starts, if a worker that is reserved for it is drained for a while, up to that many
/// times in a row. At each second all that it needs is reserved for it, or nothing.
fn seconds_to_start(workers: usize, drains: usize) -> u64 {
    let mut farm = busy_farm(workers);
    let (mut left, mut drained): (usize, Option<(WorkerId, u64)>) = (drains, None);
    for second in 1..=MOST_S {
        farm.advance(1);
        if farm.starts_of(0, "wide").next().is_some() {
            assert_eq!(farm.starts_of(0, "wide").count(), NODES as usize);
            assert_eq!(reserved(&farm), [], "what it was given is free again");
            return second;
        }
        if let Some((worker, until)) = drained
            && until <= second
        {
            drain(&mut farm, worker, false);
            drained = None;
        }
        if let Some(first) = reserved(&farm).first().copied().filter(|_| left > 0 && drained.is_none()) {
            drain(&mut farm, first, true);
            (left, drained) = (left - 1, Some((first, second + DRAINED_S)));
            assert!(!reserved(&farm).contains(&first), "nothing can start there");
        }
        let held = reserved(&farm).len();
        assert!(held == 0 || held == NODES as usize, "{held} workers are reserved");
    }
    panic!("it did not start, with {left} drains left");
}

#[test]
fn a_gang_that_loses_a_reserved_worker_gets_another_at_once() {
    let undisturbed = seconds_to_start(8, 0);
    for drains in [1, 2, usize::MAX] {
        let seconds = seconds_to_start(8, drains);
        assert!(seconds < undisturbed + 45, "{seconds} s with {drains} drains, {undisturbed} s without");
    }
}

#[test]
fn a_gang_for_which_no_other_worker_is_left_keeps_the_time_that_it_was_blocked() {
    let undisturbed = seconds_to_start(NODES as usize, 0);
    let seconds = seconds_to_start(NODES as usize, 1);
    // As long as the worker is away the gang is not blocked by others: that time it must wait again.
    let most = undisturbed + 2 * DRAINED_S + 25;
    assert!(seconds < most, "{seconds} s, {undisturbed} s without a drain");
}
