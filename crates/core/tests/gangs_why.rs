//! What is said of tasks that start together, and of workers that could run some of them.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{Farm, GIB, cores, spec, step, task};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::Resources;
use windlass_core::engine::{Event, Settings};
use windlass_core::explain::{self, PassedVerdict, Reason, Word, WorkerReason};
use windlass_core::job::{Dependency, DependencyKind, End, Hints, JobSpec, StepSpec, TaskResult};
use windlass_core::plan::placement::Ineligible;

fn farm_of(workers: usize, of_cores: u32) -> Farm {
    Farm::with_workers(Settings::default(), vec![Resources::new(of_cores * 100, 64 * GIB); workers])
}

/// A step of one task of one core, which starts with the first if it is not that itself.
fn role(name: &str, with: Option<u16>) -> StepSpec {
    StepSpec { name: name.to_owned(), with, ..step(1, cores(1)) }
}

fn on(worker: &str, step: StepSpec) -> StepSpec {
    StepSpec { targets: BTreeSet::from([worker.to_owned()]), ..step }
}

#[test]
fn a_rule_that_holds_the_leader_is_the_reason_of_all() {
    let mut farm = farm_of(2, 1);
    let busy = farm.submit(spec("q", [on("w2", step(1, cores(1)))]));
    let hints = Hints { prefers: BTreeSet::from(["w2".to_owned()]), ..Hints::default() };
    let leader = StepSpec { hints, ..role("server", None) };
    let job = farm.submit(spec("q", [leader, role("client", Some(0))]));
    for index in 0..2 {
        let why = farm.why(task(job, index));
        assert_eq!(why.reason, Reason::Together { tasks: 2, placed: 1 });
        assert_eq!(why.turn.expect("its leader stands in a queue").queue, "q");
    }
    // Its worker is free, and no round has judged the gang again.
    let by = farm.report(task(busy, 0));
    farm.hear(Event::Finished { by, result: TaskResult::bare(End::Exited(0)) });
    for index in 0..2 {
        let why = farm.why(task(job, index));
        assert!(matches!(why.reason, Reason::Closed(Ineligible::Vetoed { .. })), "{why:?}");
        assert!(why.turn.is_some() && why.open_workers > 0, "{why:?}");
    }
    farm.settle();
    assert!(farm.is_placed(task(job, 0)) && farm.is_placed(task(job, 1)));
}

#[test]
fn no_task_of_a_gang_waits_for_what_is_reserved_for_the_gang() {
    let workers = vec![Resources::new(200, 64 * GIB); 4];
    let mut farm = LiveFarm::of(Farm::with_workers(Settings::default(), workers));
    farm.accept(spec("small", [StepSpec { body: run((3, 9), 0), ..step(1_500, cores(1)) }]));
    farm.settle();
    let large = |step: StepSpec| StepSpec { body: run((5, 5), 0), request: cores(2), ..step };
    let leader = StepSpec { nodes: Some(2), tasks: 2, ..role("mpi", None) };
    let job = farm.accept(spec("wide", [large(leader), large(role("probe", Some(0)))]));
    let mut was_reserved = false;
    for _ in 0..600 {
        farm.advance(1);
        if farm.is_placed(task(job, 2)) {
            break;
        }
        was_reserved |= farm.engine.planner().reservations().holders().next().is_some();
        for index in [0, 2] {
            let why = farm.why(task(job, index));
            let is_reserved =
                |(why, ..): &(Ineligible, usize, Vec<String>)| matches!(why, Ineligible::Reserved(_));
            assert!(!why.ruled_out.iter().any(is_reserved), "{why:?}");
        }
    }
    assert!(was_reserved && farm.is_placed(task(job, 2)));
}

#[test]
fn all_tasks_of_a_gang_are_counted_by_what_it_waits_for() {
    let mut farm = farm_of(2, 1);
    farm.submit(spec("q", [on("w2", step(1, cores(1)))]));
    farm.submit(spec("q", [role("server", None), role("client", Some(0))]));
    let waiting = explain::waiting_tasks(&farm.engine);
    assert_eq!(waiting, BTreeMap::from([(Word::Together, 2)]));
    let mut farm = farm_of(1, 2);
    farm.submit(spec("q", [role("server", None), on("w9", role("client", Some(0)))]));
    assert_eq!(explain::waiting_tasks(&farm.engine), BTreeMap::from([(Word::FitsNowhere, 2)]));
    // What is ready waits for its mate, which is not.
    let mut farm = farm_of(1, 3);
    let depends = vec![Dependency { on: 0, kind: DependencyKind::Step }];
    let client = StepSpec { depends, ..role("client", Some(1)) };
    farm.submit(spec("q", [role("first", None), role("server", None), client]));
    assert_eq!(explain::waiting_tasks(&farm.engine), BTreeMap::from([(Word::Together, 1)]));
}

#[test]
fn a_worker_with_room_for_a_part_of_a_gang_waits_for_the_others() {
    let mut farm = farm_of(3, 4);
    farm.submit(spec("q", [on("w1", step(1, cores(3)))]));
    farm.submit(spec("q", [StepSpec { nodes: Some(3), ..step(3, cores(2)) }]));
    let second = farm.engine.workers().by_name("w2").expect("it is there").record.id;
    let why = explain::worker(&farm.engine, second).expect("it is there");
    assert_eq!(why.reason, WorkerReason::Together);
    assert_eq!(why.steps[0].verdict, PassedVerdict::Together { tasks: 3, placed: 2 });
    // What only a step that starts with the first could do there counts, too.
    let mut farm = farm_of(2, 1);
    farm.submit(spec("q", [on("w1", step(1, cores(1)))]));
    farm.submit(spec("q", [on("w1", role("server", None)), on("w2", role("client", Some(0)))]));
    let second = farm.engine.workers().by_name("w2").expect("it is there").record.id;
    let why = explain::worker(&farm.engine, second).expect("it is there");
    assert_eq!(why.reason, WorkerReason::Together, "{why:?}");
}

#[test]
fn the_last_of_a_gang_waits_for_a_worker_alone() {
    let mut farm = farm_of(2, 1);
    let mpi = StepSpec { nodes: Some(2), retries: 1, ..step(2, cores(1)) };
    let job = farm.submit(spec("q", [mpi]));
    farm.end(task(job, 0), 0);
    farm.submit(spec("q", [step(1, cores(1))]));
    let by = farm.report(task(job, 1));
    farm.submit(JobSpec { priority: 1, ..spec("q", [step(1, cores(1))]) });
    farm.tell(Event::Finished { by, result: TaskResult::bare(End::Exited(1)) });
    let why = farm.why(task(job, 1));
    assert_eq!(why.reason, Reason::Together { tasks: 1, placed: 0 });
    let (_, says) = why.say(|_| String::new());
    assert_eq!(says, "the others with which it starts have succeeded, and no worker has room for it now");
}
