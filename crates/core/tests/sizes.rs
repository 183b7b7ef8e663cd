//! Learned sizes: they follow the workers, and no task waits for memory or cpus that nobody asked for.

use crate::kit::{self, Farm, GIB, REQUEST, cores, hello, spec, step, task};
use proptest::prelude::*;
use windlass_core::class::Class;
use windlass_core::engine::{Event, Hello, Settings};
use windlass_core::explain::{self, Reason};
use windlass_core::ids::StepKey;
use windlass_core::job::{End, Hints, StepSpec, TaskResult};
use windlass_core::load::pressure::{DiskSpace, LoadReport};
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, Resources, TaskId, WorkerId};

const LARGE: WorkerId = WorkerId(1);
const SMALL: WorkerId = WorkerId(2);

/// What is booked after a task that held 1.5 GiB: a tenth more, rounded up.
const LEARNED: u64 = 1_792 << 20;

/// One core and 4 GiB, with a lease.
fn large() -> Hello {
    Hello { fences: true, ..hello("large", Resources::new(100, 4 * GIB)) }
}

/// A farm of the large worker, which ran a task that held 1.5 GiB, and a worker of 1 GiB that came since.
fn farm() -> Farm {
    let mut farm = Farm::new(Settings::default());
    farm.join(large());
    let job = farm.submit(spec("q", [step(1, cores(1))]));
    ends(&mut farm, task(job, 0), 3 * GIB / 2);
    farm.worker("small", Resources::new(100, GIB));
    farm
}

/// The task ends well, and held this many bytes.
fn ends(farm: &mut Farm, task: TaskId, bytes: u64) {
    let by = farm.report(task);
    let result = TaskResult { peak_memory: Some(bytes), ..TaskResult::bare(End::Exited(0)) };
    farm.tell(Event::Finished { by, result });
}

fn class(farm: &Farm, job: JobId, step: u16) -> &Class {
    farm.engine.class_of(StepKey { job, step }).expect("it is active")
}

fn memory(farm: &Farm, job: JobId) -> u64 {
    class(farm, job, 0).request.memory
}

fn workers_of(farm: &Farm, job: JobId) -> Vec<WorkerId> {
    farm.engine.attempts_of(job).map(|(_, attempt)| attempt.worker).collect()
}

fn forget(farm: &mut Farm, worker: WorkerId) {
    farm.tell(Event::Forget { request: REQUEST, worker, force: true });
}

fn drain(farm: &mut Farm, worker: WorkerId, draining: bool) {
    farm.tell(Event::Drain { request: REQUEST, worker, draining, note: None });
}

/// A worker says how much its disk of 100 GiB has free.
fn say_space(farm: &mut Farm, worker: WorkerId, free_bytes: u64) {
    let state_space = Some(DiskSpace { free_bytes, total_bytes: 100 * GIB });
    let report = LoadReport { state_space, ..LoadReport::default() };
    farm.tell(Event::Load { worker, report: Box::new(report) });
}

#[test]
fn a_guess_does_not_outlive_the_worker_that_has_room_for_it() {
    type Happens = fn(&mut Farm);
    let ways: [(&str, Happens, Happens); 4] = [
        ("forgotten", |farm| forget(farm, LARGE), |farm| _ = farm.join(large())),
        // Its lease runs out. The small one has none, and is not watched.
        ("expired", |farm| farm.pass(301), |farm| _ = farm.join(large())),
        ("drained", |farm| drain(farm, LARGE, true), |farm| drain(farm, LARGE, false)),
        ("full", |farm| say_space(farm, LARGE, 0), |farm| say_space(farm, LARGE, 50 * GIB)),
    ];
    for (way, leave, come_back) in ways {
        let mut farm = farm();
        let job = farm.submit(spec("q", [step(3, cores(1))]));
        assert_eq!((memory(&farm, job), workers_of(&farm, job)), (LEARNED, vec![LARGE]), "{way}");
        leave(&mut farm);
        assert_eq!(memory(&farm, job), GIB, "{way}: what the small worker has");
        assert!(workers_of(&farm, job).contains(&SMALL), "{way}: what waited runs there");
        let later = farm.submit(spec("q", [step(1, cores(1))]));
        assert_eq!(memory(&farm, later), GIB, "{way}: what comes later would fit it, too");
        assert_ne!(farm.why(task(later, 0)).reason, Reason::FitsNowhere, "{way}");
        come_back(&mut farm);
        assert_eq!((memory(&farm, job), memory(&farm, later)), (LEARNED, LEARNED), "{way}");
    }
}

#[test]
fn a_worker_that_is_silent_for_a_moment_changes_no_size() {
    let mut farm = farm();
    let job = farm.submit(spec("q", [step(2, cores(1))]));
    let version = farm.engine.workers().sizes_version();
    farm.tell(Event::Lost { worker: LARGE });
    assert_eq!(memory(&farm, job), LEARNED, "it may be back before its lease runs out");
    farm.join(large());
    assert_eq!(memory(&farm, job), LEARNED);
    assert_eq!(farm.engine.workers().sizes_version(), version, "nothing was sized again");
}

#[test]
fn a_worker_without_a_lease_counts_while_it_is_linked() {
    let mut farm = Farm::with_workers(Settings::default(), [Resources::new(100, 4 * GIB)]);
    let job = farm.submit(spec("q", [step(1, cores(1))]));
    ends(&mut farm, task(job, 0), 3 * GIB / 2);
    farm.worker("small", Resources::new(100, GIB));
    let job = farm.submit(spec("q", [step(2, cores(1))]));
    assert_eq!(workers_of(&farm, job), [LARGE]);
    // No lease would ever run out.
    farm.tell(Event::Lost { worker: LARGE });
    assert_eq!((memory(&farm, job), workers_of(&farm, job)), (GIB, vec![LARGE, SMALL]));
}

#[test]
fn a_worker_with_more_memory_than_before_lets_sizes_grow() {
    let mut farm = farm();
    let job = farm.submit(spec("q", [step(2, cores(1))]));
    forget(&mut farm, LARGE);
    assert_eq!(memory(&farm, job), GIB);
    farm.worker("small", Resources::new(100, 2 * GIB));
    assert_eq!(memory(&farm, job), LEARNED);
}

#[test]
fn why_tells_what_was_learned_from_what_was_asked_for() {
    let mut farm = farm();
    let job = farm.submit(spec("q", [step(2, cores(1))]));
    let why = farm.why(task(job, 1));
    assert_eq!(why.reason, Reason::Full);
    let says: Vec<String> = why.ruled_out.iter().map(|(why, ..)| why.to_string()).collect();
    assert!(
        says.contains(&"too small, memory: needs 1.8 GiB (learned from earlier tasks), has 1 GiB".to_owned()),
        "{says:?}"
    );
    let on_small = why.changes.iter().find(|advice| advice.worker() == Some("small"));
    assert_eq!(on_small, None, "it did not ask for what was learned, so asking for less does not help");
}

#[test]
fn learned_cpus_and_learned_memory_fit_one_worker() {
    let workers = [Resources::new(200, 64 * GIB), Resources::new(1_600, 4 * GIB)];
    let mut farm = Farm::with_workers(Settings::default(), workers);
    let auto = StepSpec { hints: Hints { cpus_auto: true, ..Hints::default() }, ..step(1, cores(1)) };
    let on_large = StepSpec { targets: ["w1".to_owned()].into(), ..auto.clone() };
    let job = farm.submit(spec("q", [on_large]));
    farm.now = farm.now.after(100 * NS_PER_S);
    let (by, finished) = (farm.report(task(job, 0)), farm.now);
    let result = TaskResult {
        started: Some(kit::START),
        finished: Some(finished),
        cpu_ms: Some(800_000),
        peak_memory: Some(30 * GIB),
        ..TaskResult::bare(End::Exited(0))
    };
    farm.tell(Event::Finished { by, result });
    let job = farm.submit(spec("q", [auto]));
    let sized = &class(&farm, job, 0).request;
    assert!(sized.memory >= 33 * GIB && sized.cpu == 200, "as many cpus as the large worker has: {sized:?}");
    assert_eq!(workers_of(&farm, job), [LARGE]);
}

/// A server, and a client that starts with it.
fn pair() -> [StepSpec; 2] {
    let role = |name: &str, with| StepSpec { name: name.to_owned(), with, retries: 1, ..step(1, cores(1)) };
    [role("server", None), role("client", Some(0))]
}

#[test]
fn tasks_that_start_together_are_sized_together() {
    let mut farm = Farm::with_workers(Settings::default(), [Resources::new(400, 4 * GIB)]);
    let job = farm.submit(spec("q", pair()));
    (0..2).for_each(|index| ends(&mut farm, task(job, index), 3 * GIB));
    // Each would fit the worker with what it is known to hold, and both would not.
    let job = farm.submit(spec("q", pair()));
    assert_eq!(workers_of(&farm, job).len(), 2);
    (0..2).for_each(|index| farm.end(task(job, index), 0));
    // A second worker has room for the other one.
    farm.worker("w2", Resources::new(400, 4 * GIB));
    let job = farm.submit(spec("q", pair()));
    assert_eq!(workers_of(&farm, job).len(), 2);
    assert!((0..2).all(|step| class(&farm, job, step).request.memory > 3 * GIB));
}

#[test]
fn nodes_are_no_larger_than_as_many_workers_are() {
    let workers = [Resources::new(100, 4 * GIB), Resources::new(100, GIB)];
    let mut farm = Farm::with_workers(Settings::default(), workers);
    let nodes = StepSpec { nodes: Some(2), ..step(2, cores(1)) };
    let job = farm.submit(spec("q", [nodes.clone()]));
    (0..2).for_each(|index| ends(&mut farm, task(job, index), 2 * GIB));
    let job = farm.submit(spec("q", [nodes]));
    assert_eq!((memory(&farm, job), workers_of(&farm, job).len()), (GIB, 2));
}

#[test]
fn what_a_finished_mate_held_keeps_no_task_waiting() {
    let mut farm = Farm::new(Settings::default());
    farm.join(Hello { capacity: Resources::new(200, 4 * GIB), ..large() });
    let job = farm.submit(spec("q", pair()));
    (0..2).for_each(|index| ends(&mut farm, task(job, index), 3 * GIB / 2));
    let job = farm.submit(spec("q", pair()));
    assert_eq!(workers_of(&farm, job), [LARGE, LARGE]);
    ends(&mut farm, task(job, 1), 3 * GIB / 2);
    farm.worker("small", Resources::new(200, GIB));
    forget(&mut farm, LARGE);
    assert_eq!(workers_of(&farm, job), [SMALL]);
}

/// A worker of the histories below: its size follows from its number, and those of odd numbers have a lease.
fn worker_of(number: u8) -> Hello {
    let capacity = Resources::new(100 * u32::from(1 + number % 3), (1_u64 << (number % 4)) * GIB);
    Hello { fences: number % 2 == 1, ..hello(&format!("w{number}"), capacity) }
}

fn job_of(number: u8) -> Vec<StepSpec> {
    let asks = Resources::new(100, u64::from(number % 2) * GIB);
    let step = |name: &str| StepSpec { name: name.to_owned(), retries: 2, ..step(1, asks.clone()) };
    let hints = Hints { cpus_auto: number.is_multiple_of(5), ..Hints::default() };
    match number % 3 {
        0 => vec![StepSpec { tasks: 3, hints, ..step("plain") }],
        1 => vec![StepSpec { tasks: 2, nodes: Some(2), hints, ..step("nodes") }],
        _ => vec![step("server"), StepSpec { with: Some(0), ..step("client") }],
    }
}

/// What happens to a farm: a number for what, one for whom, and GiB.
fn happen(farm: &mut Farm, (what, whom, gib): (u8, u8, u64)) {
    let known: Vec<WorkerId> = farm.engine.workers().iter().map(|worker| worker.record.id).collect();
    let worker = known.get(usize::from(whom) % known.len().max(1)).copied().unwrap_or(LARGE);
    match what {
        0 | 1 => _ = farm.join(worker_of(whom % 6)),
        2 => drain(farm, worker, gib % 2 == 0),
        3 => forget(farm, worker),
        4 => farm.tell(Event::Lost { worker }),
        5 => farm.pass(100 * gib),
        6 => say_space(farm, worker, gib % 2 * GIB),
        7 | 8 => _ = farm.submit(spec("q", job_of(whom))),
        _ => {
            let running: Vec<TaskId> = farm.engine.attempts().map(|(task, _)| task).collect();
            let Some(task) = running.get(usize::from(whom) % running.len().max(1)).copied() else { return };
            let by = farm.report(task);
            let end = if what == 9 { End::OutOfMemory } else { End::Exited(i32::from(what == 10)) };
            let result = TaskResult { peak_memory: Some(gib * GIB), ..TaskResult::bare(end) };
            farm.tell(Event::Finished { by, result });
        }
    }
}

proptest! {
    /// The farm checks after each event that every step is of the size that follows from what is known by then.
    #[test]
    fn no_task_fits_nowhere_for_what_was_learned(
        history in prop::collection::vec((0_u8..14, any::<u8>(), 0_u64..10), 1..60),
    ) {
        let mut farm = Farm::new(Settings::default());
        farm.join(worker_of(3));
        for event in history {
            happen(&mut farm, event);
            for job in farm.engine.jobs().filter(|job| !job.has_gangs && job.ended.is_none()) {
                let fits = |step: &StepSpec| {
                    farm.engine.workers().present().any(|worker| step.request.fits(&worker.record.capacity))
                };
                if !job.spec.steps.iter().all(fits) {
                    continue;
                }
                for index in 0..job.spec.steps[0].tasks {
                    let why = explain::task(&farm.engine, task(job.id, index)).expect("it is active");
                    prop_assert_ne!(why.reason, Reason::FitsNowhere);
                }
            }
        }
    }
}
