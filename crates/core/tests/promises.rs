//! One test for each promise that a plausible farm once found broken: held work, dead pins, idle farms that
//! a new user comes to, restarts, clocks that lie, keys of jobs that are gone, and what `why` says of holds.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{self, Farm, GIB, REQUEST, START, booked, cores, hello, record, spec, task};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{
    Event, Held, HeldPhase, Hello, Inventory, Refusal, Reply, Settings, StoredState, Submit, Write,
};
use windlass_core::explain::Reason;
use windlass_core::job::{JobRecord, JobSpec, JobState, StepSpec, TaskRow, TaskState};
use windlass_core::plan::PlanSettings;
use windlass_core::plan::placement::Ineligible;
use windlass_core::queues::TurnSettings;
use windlass_core::time::{NS_PER_MS, NS_PER_S};
use windlass_core::worker::{WorkerRecord, WorkerState};
use windlass_core::{Epoch, JobId, Resources, Time, WorkerId};

/// A first task out of turn would hide who is behind.
fn settings() -> Settings {
    let turn = TurnSettings { express: None, ..TurnSettings::default() };
    Settings { plan: PlanSettings { turn, ..PlanSettings::default() }, lease_ns: None, ..Settings::default() }
}

fn live(farm: Farm) -> LiveFarm {
    let mut farm = LiveFarm::of(farm);
    farm.peak_memory = Some(64 << 20);
    farm
}

/// A farm with one worker for each of these numbers of cores.
fn farm_of(cpus: &[u32]) -> LiveFarm {
    live(Farm::with_workers(settings(), cpus.iter().map(|cpus| room(*cpus))))
}

fn room(cpus: u32) -> Resources {
    Resources::new(cpus * 100, 64 * GIB)
}

fn submit(farm: &mut LiveFarm, queue: &str, step: StepSpec) -> JobId {
    farm.submit(spec(queue, [step]))
}

/// The job, and whether it was there before.
fn submit_keyed(farm: &mut LiveFarm, spec: JobSpec) -> (JobId, bool) {
    let reply = farm.submission(spec);
    farm.settle();
    match reply {
        Reply::Submitted { job, existing, .. } => (job, existing),
        other => panic!("{other:?}"),
    }
}

/// Seconds after which tasks of the queue started.
fn starts_of(farm: &LiveFarm, queue: &str) -> Vec<u64> {
    farm.starts_of(0, queue).map(|start| start.at.since(START) / NS_PER_S).collect()
}

fn is_placed(farm: &LiveFarm, job: JobId) -> bool {
    farm.is_placed(task(job, 0))
}

/// One core each; they run for `seconds` and exit with `exit`.
fn step(tasks: u32, seconds: u64, exit: i32) -> StepSpec {
    let mut step = StepSpec { body: run((seconds, seconds), exit), ..kit::step(tasks, cores(1)) };
    // Other lengths are other work, of which nothing is known.
    step.hints.shape = format!("{seconds}/{exit}");
    step
}

fn on(target: &str, step: StepSpec) -> StepSpec {
    StepSpec { targets: BTreeSet::from([target.to_owned()]), ..step }
}

/// A farm on which 70 jobs of queue `qa` failed on w1, which is idle, and wait for w2, which is full.
fn farm_of_held_jobs() -> (LiveFarm, Vec<JobId>) {
    let mut farm = farm_of(&[4, 4]);
    submit(&mut farm, "filler", on("w2", StepSpec { request: cores(4), ..step(1, 100_000, 0) }));
    submit(&mut farm, "qb", step(1, 20, 0));
    let jobs = (0..70).map(|_| submit(&mut farm, "qa", StepSpec { retries: 1, ..step(1, 1, 1) })).collect();
    farm.advance(60);
    (farm, jobs)
}

#[test]
fn a1_held_steps_of_one_queue_close_their_class_for_no_other() {
    let (mut farm, held) = farm_of_held_jobs();
    assert!(held.iter().all(|job| !is_placed(&farm, *job)), "they failed on w1, and w2 is full");
    let others: Vec<JobId> = (0..3).map(|_| submit(&mut farm, "qb", step(1, 20, 0))).collect();
    assert!(others.iter().all(|job| is_placed(&farm, *job)), "w1 is idle: they start at once");
    // Nor for the rest of their own queue.
    let own = submit(&mut farm, "qa", step(1, 20, 0));
    farm.advance(2);
    assert!(is_placed(&farm, own));
}

#[test]
fn a1_held_steps_start_when_another_worker_has_room() {
    let (mut farm, held) = farm_of_held_jobs();
    farm.worker("w3", room(1));
    assert_eq!(held.iter().filter(|job| is_placed(&farm, **job)).count(), 1, "at once, on w3");
    farm.advance(100);
    assert!(held.iter().all(|job| farm.engine.job(*job).is_none()), "one second each");
}

/// When a job as wide as the only worker starts beside a stream of narrow tasks.
fn wide_starts(pins: usize) -> u64 {
    let mut farm = farm_of(&[]);
    for pin in 0..pins {
        submit(&mut farm, "default", on(&format!("gone{pin}"), step(1, 1, 0)));
    }
    farm.worker("w1", room(4));
    let mut stream = step(2_000, 3, 0);
    stream.name = "stream".to_owned();
    submit(&mut farm, "default", stream);
    farm.advance(10);
    let wide = submit(&mut farm, "default", StepSpec { request: cores(4), ..step(1, 5, 0) });
    let from = farm.now.since(START) / NS_PER_S;
    for _ in 0..600 {
        if is_placed(&farm, wide) {
            return farm.now.since(START) / NS_PER_S - from;
        }
        farm.advance(1);
    }
    panic!("it never started");
}

#[test]
fn a2_classes_that_fit_no_worker_keep_nobody_from_a_reservation() {
    let alone = wide_starts(0);
    assert!((60..75).contains(&alone), "{alone} s");
    for pins in [64, 70] {
        let beside_pins = wide_starts(pins);
        assert!(beside_pins <= alone + 3, "{beside_pins} s beside {pins} dead pins, {alone} s without");
    }
}

/// A farm of four slots on which queue `qa` begins alone.
fn idle_farm_of(first: StepSpec) -> LiveFarm {
    let mut farm = farm_of(&[4]);
    submit(&mut farm, "qa", first);
    farm
}

#[test]
fn a3_who_had_an_idle_farm_is_not_starved_by_whoever_comes() {
    let mut farm = idle_farm_of(step(12, 120, 0));
    farm.advance(112);
    submit(&mut farm, "qb", step(2_000, 1, 0));
    farm.advance(60);
    let starts = starts_of(&farm, "qa");
    assert_eq!(&starts[..4], [0; 4]);
    // The other had all four slots for eight seconds while `qb` waited, which now has as much first.
    assert!(starts.get(4).is_some_and(|at| *at <= 129), "slots were free from 120 s on: {starts:?}");
    assert!(starts_of(&farm, "qb").len() > 50, "and the other has its share");
}

#[test]
fn a3_an_idle_queue_comes_in_level_with_one_that_runs_and_has_nothing_that_waits() {
    let mut farm = idle_farm_of(step(4, 1_000, 0));
    farm.advance(990);
    submit(&mut farm, "qb", step(2_000, 1, 0));
    submit(&mut farm, "qa", step(8, 120, 0));
    farm.advance(60);
    let starts = starts_of(&farm, "qa");
    assert!(starts.get(4).is_some_and(|at| *at <= 1_012), "slots were free from 1000 s on: {starts:?}");
}

#[test]
fn a4_after_a_restart_what_runs_is_charged_from_then_on() {
    let ten_hours = 36_000 * NS_PER_S;
    let hello = hello("w1", room(3));
    let worker = WorkerRecord {
        id: WorkerId(1),
        name: hello.name.clone(),
        epoch: Epoch(1),
        identity: hello.identity,
        incarnation: hello.incarnation,
        state: WorkerState::Up,
        draining: false,
        note: None,
        lease_until: None,
        capacity: hello.capacity.clone(),
        attributes: BTreeMap::new(),
    };
    let began = Time(START.0 - ten_hours);
    let row = TaskRow { booked: began, amounts: Some((100, 0)), ..booked(WorkerId(1)) };
    let job = record(1, spec("qa", [step(1, 72_000, 0)]), vec![row]);
    let job = JobRecord { created: began, ..job };
    let stored = StoredState { workers: vec![worker], jobs: vec![job], ..StoredState::default() };
    let mut farm = live(Farm::restored(settings(), stored, START));
    let held = Held { task: task(JobId(1), 0), attempt: 1, phase: HeldPhase::Running(began) };
    farm.join(Hello { inventory: Inventory { seq: 1, held: vec![held] }, ..hello });
    submit(&mut farm, "qb", step(200, 1, 0));
    submit(&mut farm, "qa", step(200, 1, 0));
    farm.advance(60);
    let (qa, qb) = (starts_of(&farm, "qa").len(), starts_of(&farm, "qb").len());
    // One slot is qa's all the time: half of another one makes its share whole.
    assert!((20..=40).contains(&qa) && qb >= 80, "{qa} of qa and {qb} of qb");
}

#[test]
fn a5_what_a_worker_says_of_times_and_memory_charges_nobody_for_more_than_was() {
    let lies = [
        (Time(0), Time(NS_PER_S), 64 << 20),
        (Time(0), Time(u64::MAX), u64::MAX),
        (Time(u64::MAX - NS_PER_S), Time(u64::MAX), 1),
    ];
    for lie in lies {
        let mut farm = farm_of(&[2]);
        (farm.lie, farm.peak_memory) = (Some((lie.0, lie.1)), Some(lie.2));
        submit(&mut farm, "qa", step(100, 1, 0));
        farm.advance(5);
        submit(&mut farm, "qb", step(100, 1, 0));
        farm.advance(20);
        let late = |queue: &str| starts_of(&farm, queue).into_iter().filter(|at| *at > 10).count();
        let (qa, qb) = (late("qa"), late("qb"));
        assert!(qa >= 5 && qb >= 5, "{lie:?}: {qa} of qa and {qb} of qb");
        let worker = farm.engine.workers().by_name("w1").unwrap();
        let expected = worker.booked.running().iter().filter_map(|task| farm.engine.attempt(*task));
        assert!(expected.map(|attempt| attempt.headroom_bytes).all(|bytes| bytes <= 64 * GIB), "{lie:?}");
    }
}

#[test]
fn a5_results_keep_their_length_where_a_clock_is_off() {
    let mut farm = farm_of(&[1]);
    // Ahead by an hour.
    farm.lie = Some((farm.now.after(3_600 * NS_PER_S), farm.now.after(3_610 * NS_PER_S)));
    let job = submit(&mut farm, "qa", step(1, 10, 0));
    farm.settle();
    farm.now = START.after(10 * NS_PER_S);
    let (by, result) = farm.end_first();
    farm.hear(Event::Finished { by, result });
    let ended = farm.out.writes.iter().find_map(|write| match write {
        Write::End { result, .. } => result.started.zip(result.finished),
        _ => None,
    });
    assert_eq!(ended, Some((START, START.after(10_000 * NS_PER_MS))), "job {job}");
}

#[test]
fn a6_a_key_whose_job_is_gone_names_nothing() {
    let mut farm = farm_of(&[1]);
    let nightly = || JobSpec { key: Some("nightly".to_owned()), ..spec("", [step(1, 1, 0)]) };
    let (first, existing) = submit_keyed(&mut farm, nightly());
    assert!(!existing);
    farm.advance(5);
    assert_eq!(submit_keyed(&mut farm, nightly()), (first, true), "it ended, and its row is there");
    farm.tell(Event::Deleted(BTreeSet::from([first])));
    let (second, existing) = submit_keyed(&mut farm, nightly());
    assert!(!existing && second != first, "job {second}");
    assert!(is_placed(&farm, second), "it runs");
}

#[test]
fn a6_a_key_that_was_read_too_early_is_read_again() {
    let settings = Settings { recent_jobs_max: 1, ..settings() };
    let mut farm = live(Farm::with_workers(settings, [room(1)]));
    let keyed = |key: &str| JobSpec { key: Some(key.to_owned()), ..spec("", [step(1, 1, 0)]) };
    let (first, _) = submit_keyed(&mut farm, keyed("nightly"));
    farm.advance(5);
    submit_keyed(&mut farm, keyed("weekly"));
    farm.advance(5);
    // The engine has forgotten the first key by now. Whether the job is told apart follows from when the store was read.
    let mut again = |read_before: u64, existing| {
        let spec = keyed("nightly");
        let submit =
            |request| Submit { existing, read_before: JobId(read_before), ..Submit::new(request, spec) };
        let request = farm.ask(|request| Event::Submit(Box::new(submit(request))));
        farm.replies[&request].clone()
    };
    assert_eq!(again(first.0, None), Reply::Refused(Refusal::KeyReadTooEarly));
    let known = Reply::Submitted { job: first, existing: true, unplaceable: Vec::new() };
    assert_eq!(again(first.0 + 1, Some(first)), known);
}

#[test]
fn a6_a_refused_retry_pins_no_key() {
    let mut farm = farm_of(&[1]);
    let spec = JobSpec { key: Some("nightly".to_owned()), ..spec("", [step(1, 1, 0)]) };
    // The engine that ran it is gone: this one knows of the job by the store alone.
    farm.hear(Event::Retry { request: REQUEST, job: JobId(1) });
    let out = farm.take();
    let [fetch] = out.fetches.as_slice() else { panic!("{out:?}") };
    let row = TaskRow { state: TaskState::Succeeded, ..booked(WorkerId(1)) };
    let record = JobRecord { state: JobState::Succeeded, ..record(1, spec.clone(), vec![row]) };
    farm.tell(Event::Fetched { number: fetch.number, records: Some(vec![record]) });
    let answers = &farm.out.replies;
    assert!(matches!(answers.as_slice(), [(REQUEST, Reply::Refused(_))]), "{answers:?}");
    // Retention deletes it.
    farm.tell(Event::Deleted(BTreeSet::from([JobId(1)])));
    assert!(!submit_keyed(&mut farm, spec).1);
}

#[test]
fn a7_why_names_the_rule_that_holds_a_retry() {
    let mut farm = farm_of(&[4, 4]);
    submit(&mut farm, "filler", on("w2", StepSpec { request: cores(4), ..step(1, 100_000, 0) }));
    let job = submit(&mut farm, "qa", StepSpec { retries: 1, ..step(1, 1, 1) });
    farm.advance(5);
    assert!(!is_placed(&farm, job));
    let explanation = farm.why(task(job, 0));
    assert_ne!(explanation.reason, Reason::Turn, "a rule holds it");
    let names_it = |why: &Ineligible| matches!(why, Ineligible::Vetoed { rule: "retry", .. });
    assert!(explanation.ruled_out.iter().any(|(why, ..)| names_it(why)), "{explanation:?}");
    assert_eq!(explanation.open_workers, 0);
    // Where w2 is gone for good, w1 is as good as any.
    let w2 = farm.engine.workers().by_name("w2").unwrap().record.id;
    farm.tell(Event::Lost { worker: w2 });
    farm.advance(2);
    assert!(is_placed(&farm, job) || farm.engine.job(job).is_none(), "{:?}", farm.why(task(job, 0)).reason);
}
