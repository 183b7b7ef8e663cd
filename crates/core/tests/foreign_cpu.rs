//! Cpus that other programs use: what counts as theirs, and what goes on beside them.

use crate::kit::places::{self, free, place_of};
use crate::kit::{Farm, cores, spec, step, task};
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Event, Processes, Settings};
use windlass_core::explain::{self, Reason};
use windlass_core::job::{Hints, Jobserver, StepSpec};
use windlass_core::load::pressure::LoadReport;
use windlass_core::plan::placement::{Ineligible, VetoedUse};
use windlass_core::{RequestId, WorkerId};

const ONE: WorkerId = WorkerId(1);

fn farm(cpus: u32) -> Farm {
    Farm::with_workers(Settings::default(), [cores(cpus)])
}

/// The worker's machine runs programs that are not its tasks on this number of cores, those of clients among them.
fn foreign(farm: &mut Farm, cpus: f64) {
    let report = LoadReport { cpu_foreign: Some(cpus), ..LoadReport::default() };
    farm.tell(Event::Load { worker: ONE, report: Box::new(report) });
}

/// A client asks for a turn of one cpu.
fn ask(farm: &mut Farm) -> RequestId {
    let place = PlaceRequest {
        queue: "ann".to_owned(),
        amounts: cores(1),
        wait_max_ms: 3_600_000,
        ..PlaceRequest::default()
    };
    places::ask(farm, place)
}

/// Turns that ended lately are still in what was measured last.
#[test]
fn what_turns_used_is_not_foreign_after_they_have_ended() {
    let mut farm = farm(16);
    let turns: Vec<RequestId> = (0..16).map(|_| ask(&mut farm)).collect();
    foreign(&mut farm, 16.0);
    turns[1..].iter().for_each(|turn| free(&mut farm, *turn));
    let next = ask(&mut farm);
    assert!(place_of(&farm, next).is_some());
    let worker = farm.engine.workers().get(ONE).expect("it is there");
    assert_eq!(worker.reported.load().and_then(|load| load.cpu_foreign), Some(0.0));
    free(&mut farm, next);
    // In the second after the next report one turn was held, and something else used the rest.
    foreign(&mut farm, 16.0);
    foreign(&mut farm, 16.0);
    let waits = ask(&mut farm);
    assert!(place_of(&farm, waits).is_none());
}

/// A command may use more than its turn booked, and others less. That cannot be told apart.
#[test]
fn a_turn_takes_off_what_it_booked_and_no_more() {
    let mut farm = farm(8);
    farm.submit(spec("q", [step(1, cores(1))]));
    let first = ask(&mut farm);
    assert!(place_of(&farm, first).is_some());
    foreign(&mut farm, 8.0);
    let worker = farm.engine.workers().get(ONE).expect("it is there");
    assert_eq!(worker.reported.load().and_then(|load| load.cpu_foreign), Some(7.0));
}

#[test]
fn turns_go_on_one_at_a_time_on_a_machine_that_others_keep_busy() {
    let mut farm = farm(8);
    farm.submit(spec("q", [step(1, cores(1))]));
    foreign(&mut farm, 8.0);
    let (first, second) = (ask(&mut farm), ask(&mut farm));
    assert!(place_of(&farm, first).is_some(), "it does not wait for the task, which may run for hours");
    assert!(place_of(&farm, second).is_none());
    let why = explain::waiting_request(&farm.engine, second).expect("it waits");
    let Reason::Closed(closed) = &why.reason else { panic!("{why:?}") };
    assert_eq!(closed.vetoed_use(), Some(VetoedUse::Cores));
    let said = why.say(|_| "w1".to_owned()).1;
    assert!(said.ends_with(
        "something else uses the worker's processors, so turns and other work of clients go on one at a time"
    ));
    free(&mut farm, first);
    assert!(place_of(&farm, second).is_some());
}

#[test]
fn tasks_go_on_one_at_a_time_beside_builds_and_turns_on_such_a_machine() {
    let mut farm = farm(8);
    let hints = Hints { jobserver: Some(Jobserver::Auto), ..Hints::default() };
    farm.submit(spec("q", [StepSpec { hints, ..step(1, cores(1)) }]));
    let turn = ask(&mut farm);
    assert!(place_of(&farm, turn).is_some());
    foreign(&mut farm, 8.9);
    let tasks = farm.submit(spec("q", [step(3, cores(1))]));
    assert_eq!((0..3).filter(|index| farm.is_placed(task(tasks, *index))).count(), 1);
    let why = farm.why(task(tasks, 1));
    assert!(matches!(why.reason, Reason::Closed(Ineligible::Vetoed { .. })), "{why:?}");
    farm.end(task(tasks, 0), 0);
    assert!(farm.is_placed(task(tasks, 1)) && !farm.is_placed(task(tasks, 2)));
}

/// Builds of another system, for example: their processes are none of the worker's tasks.
#[test]
fn what_submitters_run_themselves_counts_like_turns() {
    let mut farm = farm(8);
    let external = |queue| spec(queue, [StepSpec { is_external: true, ..step(1, cores(1)) }]);
    let first = farm.submit(external("q"));
    foreign(&mut farm, 8.5);
    let worker = farm.engine.workers().get(ONE).expect("it is there");
    assert_eq!(worker.reported.load().and_then(|load| load.cpu_foreign), Some(7.5));
    let (second, own) = (farm.submit(external("p")), farm.submit(spec("q", [step(1, cores(1))])));
    assert_eq!((farm.is_placed(task(second, 0)), farm.is_placed(task(own, 0))), (false, true));
    farm.end(task(first, 0), 0);
    assert!(farm.is_placed(task(second, 0)));
}

/// A build's processes are those of its worker's tasks.
#[test]
fn what_a_build_uses_keeps_no_turn_waiting_beyond_its_turn() {
    let mut farm = farm(8);
    let hints = Hints { jobserver: Some(Jobserver::Auto), ..Hints::default() };
    let job = farm.submit(spec("q", [StepSpec { hints, ..step(1, cores(1)) }]));
    let said = Processes { share: 8, used: 2, is_held_back: false };
    farm.tell(Event::Processes { worker: ONE, task: task(job, 0), attempt: 1, said });
    foreign(&mut farm, 0.0);
    let turns: Vec<RequestId> = (0..8).map(|_| ask(&mut farm)).collect();
    assert_eq!(turns.iter().filter(|turn| place_of(&farm, **turn).is_some()).count(), 6);
}
