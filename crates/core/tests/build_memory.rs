//! Memory of builds with a jobserver: the next one is booked with what one process of earlier ones held, and a build that
//! lost a process because memory was short runs again with more.

use crate::kit::{Farm, GIB, spec, step, task};
use windlass_core::engine::{Event, Settings, WorkerCommand, Write};
use windlass_core::ids::StepKey;
use windlass_core::job::{End, Hints, Jobserver, StepSpec, TaskResult, TaskState};
use windlass_core::load::pressure::LoadReport;
use windlass_core::{JobId, Resources, WorkerId};

const MIB: u64 = 1 << 20;

/// One worker of two cores and 3 GiB.
fn farm() -> Farm {
    Farm::with_workers(Settings::default(), [Resources::new(200, 3 * GIB)])
}

fn build() -> StepSpec {
    let hints = Hints { jobserver: Some(Jobserver::Auto), ..Hints::default() };
    StepSpec { hints, ..step(1, Resources::new(10, 0)) }
}

fn submit(farm: &mut Farm, step: StepSpec) -> JobId {
    farm.submit(spec("q", [step]))
}

/// The task of a job ends so. Its processes held `all_mib` together, and the largest of them `one_mib`.
fn ends(farm: &mut Farm, job: JobId, end: End, (all_mib, one_mib): (u64, u64)) {
    let by = farm.report(task(job, 0));
    let (peak_memory, process_memory) = (Some(all_mib * MIB), Some(one_mib * MIB));
    let result = TaskResult { peak_memory, process_memory, ..TaskResult::bare(end) };
    farm.tell(Event::Finished { by, result });
}

/// MiB that are kept free for the task of a job; `None` if it does not run.
fn kept_mib(farm: &Farm, job: JobId) -> Option<u64> {
    farm.engine.attempt(task(job, 0)).map(|attempt| attempt.headroom_bytes / MIB)
}

/// The number of its attempt, and how many failed and were lost before.
fn tries(farm: &Farm, job: JobId) -> (u32, u32, u32) {
    let attempt = farm.engine.attempt(task(job, 0)).expect("it runs again");
    (attempt.number, attempt.failures, attempt.losses)
}

/// What became of the tasks whose attempts ended since this was asked last, and what was said of each.
fn said(farm: &mut Farm) -> Vec<(TaskState, String)> {
    let writes = farm.take().writes.into_iter();
    let ends = writes.filter_map(|write| match write {
        Write::Requeued { result, .. } => Some((TaskState::Ready, result.message.unwrap_or_default())),
        Write::End { state, result, .. } => Some((state, result.message.unwrap_or_default())),
        _ => None,
    });
    ends.collect()
}

#[test]
fn two_builds_whose_links_fit_run_and_the_third_waits() {
    let mut farm = farm();
    let first = submit(&mut farm, build());
    // Two compilers ran beside the link.
    ends(&mut farm, first, End::Exited(0), (2_400, 1_229));
    farm.take();
    let jobs: Vec<JobId> = (0..3).map(|_| submit(&mut farm, build())).collect();
    let kept = |farm: &Farm| jobs.iter().map(|job| kept_mib(farm, *job)).collect::<Vec<_>>();
    assert_eq!(kept(&farm), [Some(1_408), Some(1_408), None], "a tenth more than the link held");
    let sends = farm.take().sends.into_iter();
    let starts: Vec<(u64, Option<u64>)> = sends
        .filter_map(|send| match send.command {
            WorkerCommand::Start { headroom_bytes, memory_limit, .. } => {
                Some((headroom_bytes / MIB, memory_limit))
            }
            _ => None,
        })
        .collect();
    assert_eq!(starts, [(1_408, None); 2], "their keeper is told, and kills nothing for it");
    ends(&mut farm, jobs[0], End::Exited(0), (1_300, 1_229));
    assert_eq!(kept(&farm), [None, Some(1_408), Some(1_408)]);
}

#[test]
fn a_build_that_lost_a_process_runs_again_with_more_until_it_had_all() {
    let mut farm = farm();
    let job = submit(&mut farm, build());
    farm.take();
    ends(&mut farm, job, End::OutOfMemory, (1_536, 1_024));
    assert_eq!((tries(&farm, job), kept_mib(&farm, job)), ((2, 0, 1), Some(1_920)));
    let held = "it held 1.5 GiB of the 3 GiB of w1, 1 GiB of that in one process";
    let again = |booked: &str| (TaskState::Ready, format!("{held}; it runs again with {booked} booked"));
    assert_eq!(said(&mut farm), [again("1.9 GiB")]);
    ends(&mut farm, job, End::OutOfMemory, (1_536, 1_024));
    assert_eq!((tries(&farm, job), kept_mib(&farm, job)), ((3, 0, 2), Some(3_072)));
    assert_eq!(said(&mut farm), [again("3 GiB")]);
    ends(&mut farm, job, End::OutOfMemory, (3_000, 2_900));
    let held = "it held 2.9 GiB of the 3 GiB of w1, 2.8 GiB of that in one process";
    assert_eq!(said(&mut farm), [(TaskState::Failed, held.to_owned())], "no worker has more");
}

#[test]
fn a_kill_is_forgotten_once_a_build_that_held_about_as_much_ended_well() {
    for (held_mib, next_mib) in [(900, 1_920), (1_000, 1_152)] {
        let mut farm = farm();
        let job = submit(&mut farm, build());
        ends(&mut farm, job, End::OutOfMemory, (1_024, 1_024));
        ends(&mut farm, job, End::Exited(0), (held_mib, held_mib));
        let next = submit(&mut farm, build());
        assert_eq!(kept_mib(&farm, next), Some(next_mib), "after one of {held_mib} MiB");
    }
}

#[test]
fn want_of_memory_spends_no_retry_of_a_build() {
    let mut farm = farm();
    let job = submit(&mut farm, StepSpec { retries: 1, ..build() });
    ends(&mut farm, job, End::OutOfMemory, (500, 500));
    ends(&mut farm, job, End::Exited(2), (500, 500));
    assert_eq!(tries(&farm, job), (3, 1, 1));
    farm.take();
    ends(&mut farm, job, End::Exited(2), (500, 500));
    assert_eq!(said(&mut farm), [(TaskState::Failed, String::new())]);
}

#[test]
fn what_else_lost_a_process_runs_again_only_by_its_retries() {
    let mut farm = farm();
    let plain = || step(1, Resources::new(100, 0));
    let job = submit(&mut farm, plain());
    farm.take();
    ends(&mut farm, job, End::OutOfMemory, (1_024, 1_024));
    let held = "it held 1 GiB of the 3 GiB of w1";
    assert_eq!(said(&mut farm), [(TaskState::Failed, held.to_owned())]);
    // The memory that a build asks for is its limit.
    let job = submit(&mut farm, StepSpec { request: Resources::new(10, 2 * GIB), ..build() });
    farm.take();
    ends(&mut farm, job, End::OutOfMemory, (2_048, 1_024));
    assert_eq!(said(&mut farm), [(TaskState::Failed, String::new())]);
    let mut farm = self::farm();
    let job = submit(&mut farm, StepSpec { retries: 1, ..plain() });
    ends(&mut farm, job, End::OutOfMemory, (1_024, 1_024));
    assert_eq!((tries(&farm, job), kept_mib(&farm, job)), ((2, 1, 0), Some(1_920)));
}

#[test]
fn a_kill_below_a_tasks_own_limit_does_not_raise_the_limit() {
    let mut farm = farm();
    let job = submit(&mut farm, StepSpec { retries: 1, ..step(1, Resources::new(100, 2 * GIB)) });
    farm.take();
    ends(&mut farm, job, End::OutOfMemory, (1_024, 1_024));
    assert_eq!((tries(&farm, job), kept_mib(&farm, job)), ((2, 1, 0), Some(0)));
    let held = "it held 1 GiB of the 3 GiB of w1; it runs again";
    assert_eq!(said(&mut farm), [(TaskState::Ready, held.to_owned())]);
    // At its limit it is as before: the next one may hold more.
    ends(&mut farm, job, End::OutOfMemory, (2_048, 2_048));
    let next = submit(&mut farm, step(1, Resources::new(100, 2 * GIB)));
    let class = farm.engine.class_of(StepKey { job: next, step: 0 }).expect("it is active");
    assert_eq!(class.request.memory, 3 * GIB);
}

#[test]
fn no_build_begins_while_memory_is_nearly_used_up() {
    let mut farm = farm();
    submit(&mut farm, build());
    let report = |farm: &mut Farm, available_mib: u64| {
        let (memory_available, memory_own) = (Some(available_mib * MIB), Some((3_000 - available_mib) * MIB));
        let report = LoadReport { memory_available, memory_own, ..LoadReport::default() };
        farm.tell(Event::Load { worker: WorkerId(1), report: Box::new(report) });
    };
    report(&mut farm, 200);
    let other = submit(&mut farm, build());
    assert!(!farm.is_placed(task(other, 0)), "of which nothing is known");
    report(&mut farm, 2_000);
    farm.pass(5);
    assert!(farm.is_placed(task(other, 0)));
}
