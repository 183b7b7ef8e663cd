//! Tasks that wait for jobs that they submitted, and keep their memory meanwhile.

use crate::kit::{self, Farm, GIB, REQUEST, booked, cores, record, set_limit, set_queue, spec, step, task};
use windlass_core::engine::{
    Event, Held, HeldPhase, Hello, Inventory, Reply, Settings, StoredState, WorkerCommand,
};
use windlass_core::explain::{Advice, Change, Reason, Starts};
use windlass_core::job::{ChunkSize, Chunks, JobRecord, JobSpec, StepSpec, TaskRow};
use windlass_core::licences::Limit;
use windlass_core::queues::QueueRecord;
use windlass_core::{JobId, Resources, TaskId, WorkerId};

const ONE: WorkerId = WorkerId(1);

fn capacity() -> Resources {
    Resources::new(200, GIB)
}

/// Two tasks hold all memory of the only worker, and each waits for a job that it submitted.
fn all_wait() -> (Farm, JobId) {
    let mut farm = Farm::with_workers(Settings::default(), [capacity()]);
    let first = farm.submit(spec("q", [step(2, Resources::new(100, GIB / 2))]));
    (0..2).for_each(|index| wait(&mut farm, task(first, index)));
    (farm, first)
}

/// A task starts, and waits for a job that it submitted.
fn wait(farm: &mut Farm, task: TaskId) {
    let by = farm.report(task);
    farm.tell(Event::Started { by, at: farm.now });
    farm.tell(Event::Lend { task });
}

/// A job that was submitted by a task, which waits for it.
fn inside(parent: TaskId, steps: impl Into<Vec<StepSpec>>) -> JobSpec {
    JobSpec { parent: Some(parent), ..spec("q", steps) }
}

/// A farm of one worker with four cores, and a queue that may hold one.
fn farm_with_quota() -> Farm {
    let mut farm = Farm::with_workers(Settings::default(), [Resources::new(400, GIB)]);
    farm.tell(set_queue(QueueRecord { quota_cpu: Some(100), ..QueueRecord::named("q") }));
    farm
}

/// Hundredths of a core that the queue holds.
fn held_cpu(farm: &Farm) -> u64 {
    farm.engine.queues().by_name().find(|queue| queue.name() == "q").map_or(0, |queue| queue.booked_cpu)
}

/// What a worker says of the attempt that the task has.
fn held(task: TaskId, phase: HeldPhase) -> Held {
    Held { task, attempt: 1, phase }
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

/// Another server takes over the workers of a farm, with these jobs.
fn taken_over(before: &Farm, jobs: Vec<JobRecord>) -> Farm {
    let workers = before.engine.workers().iter().map(|worker| worker.stored()).collect();
    let stored = StoredState { workers, jobs, ..StoredState::default() };
    Farm::restored(Settings::default(), stored, before.now)
}

/// The worker says hello over a new connection, with what it holds, and a round follows.
fn greet(farm: &mut Farm, capacity: Resources, held: Vec<Held>) {
    let inventory = Inventory { seq: 0, held };
    farm.tell(Event::Hello(Box::new(Hello { inventory, ..kit::hello("w1", capacity) })));
    farm.round();
}

/// The server that takes over does not know who lends before it hears of it.
#[test]
fn what_runs_beside_those_that_wait_survives_another_server() {
    let (first, inner) = (JobId(1), JobId(2));
    let of = |job, index, phase| held(task(job, index), phase);
    let (runs, lent) = (HeldPhase::Running(kit::START), HeldPhase::Lent(kit::START));
    let held = vec![of(inner, 0, runs), of(first, 0, lent), of(first, 1, lent)];
    for held in [held.clone(), held.into_iter().rev().collect()] {
        let before = Farm::with_workers(Settings::default(), [capacity()]);
        let rows = (0..2).map(|index| TaskRow { index, ..booked(ONE) }).collect();
        let outer = record(1, spec("q", [step(2, Resources::new(100, GIB / 2))]), rows);
        let inside = record(2, spec("q", [step(1, Resources::new(100, GIB / 4))]), vec![booked(ONE)]);
        let mut farm = taken_over(&before, vec![outer, inside]);
        greet(&mut farm, capacity(), held);
        assert!(is_within_capacity(&farm));
        farm.end(task(inner, 0), 0);
        (0..2).for_each(|index| farm.end(task(first, index), 0));
        farm.engine.check_empty().expect("all have ended");
    }
}

#[test]
fn lent_cpus_leave_the_quota_and_come_back_to_it_at_once() {
    let mut farm = farm_with_quota();
    let outer = task(farm.submit(spec("q", [step(1, cores(1))])), 0);
    wait(&mut farm, outer);
    let inner = farm.submit(inside(outer, [step(2, cores(1))]));
    assert!(farm.is_placed(task(inner, 0)) && !farm.is_placed(task(inner, 1)));
    assert_eq!(held_cpu(&farm), 100, "what the outer task lends does not count");
    farm.tell(Event::Reclaim { request: REQUEST, task: outer });
    assert_eq!(held_cpu(&farm), 200, "it waits for no quota");
    let why = farm.why(task(inner, 1)).reason;
    assert_eq!(why, Reason::Quota { quota_cpu: 100, booked_cpu: 200 });
    assert_eq!(why.say(|_| String::new()).1, "its queue holds more than its quota, 2 of 1 cpu");
    farm.end(task(inner, 0), 0);
    assert!(!farm.is_placed(task(inner, 1)), "the outer task holds the quota again");
    let by = farm.report(outer);
    farm.tell(Event::Reclaimed { by });
    assert_eq!(held_cpu(&farm), 100);
    farm.tell(Event::Lend { task: outer });
    assert!(farm.is_placed(task(inner, 1)));
    farm.tell(Event::Reclaim { request: REQUEST, task: outer });
    // It waits for another job before it had its cpus back.
    farm.tell(Event::Lend { task: outer });
    assert_eq!(held_cpu(&farm), 100);
    farm.end(outer, 0);
    assert_eq!(held_cpu(&farm), 100, "the inner task alone");
    farm.end(task(inner, 1), 0);
    assert_eq!(held_cpu(&farm), 0);
    farm.engine.check_empty().expect("all have ended");
}

/// Each way in which a task may be over, while it lends and while it has asked its cpus back.
#[test]
fn a_lender_that_is_over_leaves_nothing_in_its_queue() {
    let ways: [fn(&mut Farm, TaskId); 4] = [
        |farm, outer| farm.end(outer, 0),
        |farm, outer| {
            farm.tell(Event::Cancel { request: REQUEST, job: outer.job });
            farm.end(outer, 1);
        },
        // Its worker has another keeper, so it is lost, and runs again.
        |farm, _| {
            let hello =
                Hello { incarnation: 1, new_link: false, ..kit::hello("w1", Resources::new(400, GIB)) };
            farm.tell(Event::Hello(Box::new(hello)));
        },
        |farm, _| farm.tell(Event::Forget { request: REQUEST, worker: ONE, force: true }),
    ];
    for (way, is_over) in ways.into_iter().enumerate() {
        for asks_back in [false, true] {
            let mut farm = farm_with_quota();
            let outer = task(farm.submit(spec("q", [step(1, cores(1))])), 0);
            wait(&mut farm, outer);
            assert_eq!(held_cpu(&farm), 0);
            if asks_back {
                farm.tell(Event::Reclaim { request: REQUEST, task: outer });
            }
            is_over(&mut farm, outer);
            let runs = u64::from(farm.is_placed(outer));
            assert_eq!(held_cpu(&farm), 100 * runs, "way {way}, asks back: {asks_back}");
            assert_eq!(runs, u64::from(way == 2));
        }
    }
}

#[test]
fn the_quota_has_the_same_figures_after_a_restart_and_a_failed_commit() {
    let (outer, inner) = (task(JobId(1), 0), task(JobId(2), 0));
    let jobs = || {
        let inside = inside(outer, [step(2, cores(1))]);
        vec![
            record(1, spec("q", [step(1, cores(1))]), vec![booked(ONE)]),
            record(2, inside, vec![booked(ONE)]),
        ]
    };
    let mut farm = taken_over(&farm_with_quota(), jobs());
    farm.tell(set_queue(QueueRecord { quota_cpu: Some(100), ..QueueRecord::named("q") }));
    assert_eq!(held_cpu(&farm), 200, "its worker has not said that the outer task lends");
    let runs_and_lends =
        vec![held(inner, HeldPhase::Running(kit::START)), held(outer, HeldPhase::Lent(kit::START))];
    greet(&mut farm, Resources::new(400, GIB), runs_and_lends.clone());
    assert_eq!(held_cpu(&farm), 100);
    assert!(!farm.is_placed(task(inner.job, 1)));
    // The next commit fails, and the jobs are read again: what lends is in no row.
    for job in [outer.job, inner.job] {
        farm.handle(Event::Hold { request: REQUEST, job, held: true });
    }
    assert!(farm.pipeline.next_batch(&mut farm.engine).is_some(), "there is something to write");
    farm.pipeline.failed(&mut farm.engine);
    let stalled = farm.pipeline.stalled().cloned().expect("jobs are to be read");
    let records = jobs().into_iter().filter(|record| stalled.contains(&record.id)).collect();
    farm.pipeline.reload(&mut farm.engine, farm.now, records, Vec::new());
    farm.commit();
    assert_eq!(held_cpu(&farm), 100);
    greet(&mut farm, Resources::new(400, GIB), runs_and_lends);
    assert_eq!(held_cpu(&farm), 100);
    farm.tell(Event::Reclaim { request: REQUEST, task: outer });
    assert_eq!(held_cpu(&farm), 200);
}

/// Two tasks that one process runs, and that hold all memory.
fn chunk() -> StepSpec {
    let chunks = Chunks { block: 2, runs: Vec::new(), size: ChunkSize::Fixed(2) };
    StepSpec { chunks: Some(chunks), ..step(2, Resources::new(100, GIB)) }
}

#[test]
fn a_task_starts_beside_a_process_that_runs_several_tasks_and_waits() {
    let mut farm = Farm::with_workers(Settings::default(), [capacity()]);
    let outer = farm.submit(spec("q", [chunk()]));
    assert!(farm.engine.attempt(task(outer, 1)).is_some_and(|attempt| attempt.rides));
    wait(&mut farm, task(outer, 0));
    let inner = farm.submit(inside(task(outer, 0), [step(2, Resources::new(100, GIB / 4))]));
    assert!(farm.is_placed(task(inner, 0)) && !farm.is_placed(task(inner, 1)), "one at a time");
    farm.end(task(inner, 0), 0);
    assert!(farm.is_placed(task(inner, 1)) && is_within_capacity(&farm));
    farm.end(task(inner, 1), 0);
    (0..2).for_each(|index| farm.end(task(outer, index), 0));
    farm.engine.check_empty().expect("all have ended");
}

#[test]
fn a_process_that_runs_several_tasks_and_waits_survives_another_server() {
    let (outer, inner) = (JobId(1), JobId(2));
    let before = Farm::with_workers(Settings::default(), [capacity()]);
    let row = |index, amounts| TaskRow { index, amounts: Some(amounts), ..booked(ONE) };
    let rows = vec![row(0, (100, GIB)), row(1, (0, 0))];
    let inside = inside(task(outer, 0), [step(2, Resources::new(100, GIB / 4))]);
    let jobs = vec![record(1, spec("q", [chunk()]), rows), record(2, inside, Vec::new())];
    let mut farm = taken_over(&before, jobs);
    let lent = held(task(outer, 0), HeldPhase::Lent(kit::START));
    greet(&mut farm, capacity(), vec![lent, held(task(outer, 1), HeldPhase::Queued)]);
    assert!(farm.is_placed(task(inner, 0)) && !farm.is_placed(task(inner, 1)), "one at a time");
    farm.end(task(inner, 0), 0);
    assert!(farm.is_placed(task(inner, 1)));
    farm.end(task(inner, 1), 0);
    (0..2).for_each(|index| farm.end(task(outer, index), 0));
    farm.engine.check_empty().expect("all have ended");
}

#[test]
fn a_task_in_the_process_of_another_has_nothing_to_lend() {
    let mut farm = Farm::with_workers(Settings::default(), [capacity()]);
    let outer = farm.submit(spec("q", [chunk()]));
    let by = farm.report(task(outer, 0));
    farm.tell(Event::Started { by, at: farm.now });
    farm.take();
    farm.tell(Event::Lend { task: task(outer, 1) });
    let inner = farm.submit(inside(task(outer, 1), [step(1, Resources::new(100, GIB / 4))]));
    assert!(!farm.is_placed(task(inner, 0)), "the process of both does not wait");
    let request = farm.ask(|request| Event::Reclaim { request, task: task(outer, 1) });
    assert_eq!(farm.replies.get(&request), Some(&Reply::Done));
    let sends = farm.take().sends;
    let lends = |command: &WorkerCommand| {
        matches!(command, WorkerCommand::Lend { .. } | WorkerCommand::Reclaim { .. })
    };
    assert!(!sends.iter().any(|send| lends(&send.command)));
}

#[test]
fn a_limit_that_the_outer_task_holds_is_named_with_it() {
    let mut farm = Farm::with_workers(Settings::default(), [Resources::new(400, GIB)]);
    let licensed = || StepSpec { limits: ["maya".to_owned()].into(), ..step(1, cores(1)) };
    let set = |max| set_limit("maya", Limit { max: Some(max), ..Limit::default() });
    let limit =
        |max, waiting_holder| Reason::Limit { name: "maya".to_owned(), max, first: None, waiting_holder };
    farm.tell(set(1));
    let outer = task(farm.submit(spec("q", [licensed()])), 0);
    let inner = task(farm.submit(inside(outer, [licensed()])), 0);
    assert_eq!(farm.why(inner).reason, limit(1, None), "the outer task does not wait yet");
    wait(&mut farm, outer);
    let why = farm.why(inner);
    assert_eq!(why.reason, limit(1, Some(outer)));
    assert_eq!(
        why.say(|_| String::new()).1,
        "task 1.0 holds the one of the limit 'maya', and waits for this job: neither goes on unless there are more of \
         the limit, or one of the two is run without it"
    );
    assert_eq!(why.changes[0].change, Change::Limit("maya".to_owned(), 2));
    // A task of a job of the inner job's own waits for both.
    farm.tell(set(2));
    wait(&mut farm, inner);
    let inmost = task(farm.submit(inside(inner, [licensed()])), 0);
    assert_eq!(farm.why(inmost).reason, limit(2, Some(inner)));
    // What a stranger holds becomes free some day.
    farm.tell(set(3));
    farm.end(inmost, 0);
    let stranger = task(farm.submit(spec("q", [licensed()])), 0);
    assert!(farm.is_placed(stranger));
    let other = task(farm.submit(inside(inner, [licensed()])), 0);
    assert_eq!(farm.why(other).reason, limit(3, None));
    farm.end(stranger, 0);
    assert!(farm.is_placed(other));
}

#[test]
fn a_task_that_does_not_wait_is_waited_for_and_one_that_waits_is_not() {
    let mut farm = Farm::with_workers(Settings::default(), [Resources { gpus: 1, ..capacity() }]);
    let outer =
        task(farm.submit(spec("q", [step(1, Resources { gpus: 1, ..Resources::new(100, GIB / 2) })])), 0);
    wait(&mut farm, outer);
    let small = task(farm.submit(spec("q", [step(1, Resources::new(100, GIB / 4))])), 0);
    let inner = task(farm.submit(inside(outer, [step(1, Resources::new(100, GIB / 2))])), 0);
    let when_free = Advice { change: Change::Wait, starts: Starts::WhenFree("w1".to_owned()) };
    assert!(farm.is_placed(small) && !farm.is_placed(inner));
    assert_eq!(farm.why(inner).changes[0], when_free, "when the small task has ended");
    farm.end(small, 0);
    assert!(farm.is_placed(inner));
    farm.end(inner, 0);
    // A gpu is not lent: no end of another task gives it to the inner one.
    let gpu = || step(1, Resources { gpus: 1, ..Resources::new(100, 0) });
    let never = task(farm.submit(inside(outer, [gpu()])), 0);
    let why = farm.why(never);
    assert!(
        !farm.is_placed(never) && why.changes.iter().all(|advice| advice.change != Change::Wait),
        "{why:?}"
    );
    assert_eq!(why.turn.and_then(|turn| turn.starts), None);
    let stranger = task(farm.submit(spec("q", [gpu()])), 0);
    farm.tell(Event::Cancel { request: REQUEST, job: never.job });
    assert_eq!(farm.why(stranger).changes[0], when_free, "for others the outer task ends");
}
