//! Tasks that take what is idle on their worker.

use crate::kit::{Farm, GIB, cores, set_queue, spec, step, task};
use windlass_core::Resources;
use windlass_core::engine::{Settings, WorkerCommand};
use windlass_core::job::{Hints, StepSpec};
use windlass_core::queues::QueueRecord;

fn range(tasks: u32, least: u32, most: u32) -> StepSpec {
    StepSpec { hints: Hints { cpus_max: Some(most * 100), ..Hints::default() }, ..step(tasks, cores(least)) }
}

fn farm(capacities: &[u32]) -> Farm {
    let capacities = capacities.iter().map(|of| Resources::new(of * 100, 64 * GIB));
    Farm::with_workers(Settings::default(), capacities)
}

/// Cores of what starts now, in the order of the orders.
fn starts_now(farm: &mut Farm) -> Vec<u32> {
    farm.settle();
    farm.check();
    let sends = farm.take().sends.into_iter();
    let cores = sends.filter_map(|send| match send.command {
        WorkerCommand::Start { request, .. } => Some(request.cpu / 100),
        _ => None,
    });
    cores.collect()
}

#[test]
fn a_task_takes_what_is_idle_on_its_worker_up_to_its_most() {
    let mut farm_of_16 = farm(&[16]);
    farm_of_16.accept(spec("q", [range(1, 2, 64)]));
    assert_eq!(starts_now(&mut farm_of_16), [16]);
    let mut farm_of_64 = farm(&[64]);
    let job = farm_of_64.accept(spec("q", [range(1, 2, 16)]));
    assert_eq!(starts_now(&mut farm_of_64), [16]);
    assert_eq!(farm_of_64.engine.workers().by_name("w1").unwrap().booked.sum().cpu, 1_600);
    farm_of_64.end(task(job, 0), 0);
    assert_eq!(farm_of_64.engine.workers().by_name("w1").unwrap().booked.sum().cpu, 0);
}

#[test]
fn nothing_that_waits_gets_less_for_it() {
    let mut farm = farm(&[16]);
    farm.submission(spec("a", [range(1, 2, 16)]));
    farm.submission(spec("b", [step(10, cores(1))]));
    let mut started = starts_now(&mut farm);
    started.sort_unstable();
    assert_eq!(started, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6], "what ten others leave");
}

#[test]
fn tasks_of_one_worker_share_what_is_idle() {
    let mut farm = farm(&[16]);
    farm.submission(spec("a", [range(2, 2, 16)]));
    farm.submission(spec("b", [range(1, 2, 3)]));
    let mut started = starts_now(&mut farm);
    started.sort_unstable();
    assert_eq!(started, [3, 6, 7], "what one cannot use is the others'");
}

#[test]
fn many_tasks_run_at_a_time_before_one_gets_more() {
    let mut farm = farm(&[16]);
    let job = farm.accept(spec("a", [range(9, 2, 16)]));
    assert_eq!(starts_now(&mut farm), [2; 8]);
    farm.end(task(job, 0), 0);
    assert_eq!(starts_now(&mut farm), [2], "the last one has the room of the first");
}

#[test]
fn a_quota_holds() {
    let mut farm = farm(&[16]);
    farm.tell(set_queue(QueueRecord { quota_cpu: Some(500), ..QueueRecord::named("a") }));
    farm.accept(spec("a", [range(1, 2, 16)]));
    assert_eq!(starts_now(&mut farm), [5]);
}

#[test]
fn what_waits_for_the_first_tasks_of_its_step_has_their_room_next() {
    let mut farm = farm(&[16]);
    let step = range(9, 2, 16);
    farm.accept(spec("a", [StepSpec { request: Resources::new(200, GIB), ..step }]));
    assert_eq!(starts_now(&mut farm), [2; 4], "four tasks first, to see what memory they hold");
}

#[test]
fn what_is_reserved_is_not_taken() {
    let mut settings = Settings::default();
    settings.plan.reserve.after_ns = 0;
    let mut farm = Farm::with_workers(settings, [Resources::new(1_600, 64 * GIB)]);
    let limited =
        |cpus: u32, limit_s: u64| StepSpec { time_limit_ms: Some(limit_s * 1_000), ..step(1, cores(cpus)) };
    farm.accept(spec("base", [limited(8, 1_000)]));
    assert_eq!(starts_now(&mut farm), [8]);
    farm.accept(spec("wide", [step(1, cores(16))]));
    farm.accept(spec("narrow", [limited(1, 1)]));
    assert_eq!(starts_now(&mut farm), [1], "it overtakes the wide one");
    farm.accept(spec("other", [limited(1, 1)]));
    assert_eq!(starts_now(&mut farm), [1]);
    assert_eq!(farm.engine.planner().reservations().holders().count(), 1);
    farm.accept(spec("range", [StepSpec { hints: range(1, 1, 16).hints, ..limited(1, 1) }]));
    assert_eq!(
        starts_now(&mut farm),
        [1],
        "it ends before the wide one can start, and takes no more than it must"
    );
}
