//! One test for each promise that a plausible farm once found broken: held work, dead pins, idle farms that
//! somebody else comes to, restarts, clocks that lie, keys of jobs that are gone, and what `why` says of holds.

use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{
    Engine, Event, Held, HeldPhase, Hello, Inventory, Outbox, Reply, Report, Settings, StoredState, Submit,
    WorkerCommand,
};
use windlass_core::explain::Reason;
use windlass_core::job::{End, JobRecord, JobSpec, JobState, StepSpec, TaskResult, TaskRow, TaskState};
use windlass_core::plan::placement::Ineligible;
use windlass_core::queues::TurnSettings;
use windlass_core::time::{NS_PER_MS, NS_PER_S};
use windlass_core::worker::{WorkerRecord, WorkerState};
use windlass_core::{Epoch, JobId, RequestId, Resources, TaskId, Time, WorkerId};

const GIB: u64 = 1 << 30;
const START: Time = Time(1_000_000 * NS_PER_S);

/// A task that runs: its worker, epoch and attempt, when it started, and its exit code.
type Running = (WorkerId, Epoch, u32, Time, i32);

/// An engine whose batches are durable at once, and workers that run what they are sent. A step's body says how
/// many seconds its tasks run and with what they exit.
struct Farm {
    engine: Engine,
    now: Time,
    ends: BTreeMap<(Time, TaskId), Running>,
    /// Starts in order: seconds since the farm began, the queue, the task.
    starts: Vec<(u64, String, TaskId)>,
    /// What workers say of the start, the end and the memory of each task, in the place of what is true.
    lie: Option<(Time, Time, u64)>,
}

impl Farm {
    fn new() -> Farm {
        // A first task out of turn would hide who is behind.
        let turn = TurnSettings { express: None, ..TurnSettings::default() };
        let settings = Settings { turn, lease_ns: None, ..Settings::default() };
        Farm::of(Engine::new(settings))
    }

    fn of(engine: Engine) -> Farm {
        Farm { engine, now: START, ends: BTreeMap::new(), starts: Vec::new(), lie: None }
    }

    fn worker(&mut self, name: &str, cpus: u32) {
        let inventory = Inventory::default();
        self.tell(hello(name, cpus, inventory));
    }

    fn tell(&mut self, event: Event) -> Vec<Reply> {
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        let mut answers = self.go_out(out);
        loop {
            let mut out = Outbox::default();
            let booked = self.engine.round(self.now, 1_000, &mut out);
            answers.extend(self.go_out(out));
            self.engine.check().expect("the engine's books are right");
            if booked == 0 {
                return answers;
            }
        }
    }

    fn go_out(&mut self, out: Outbox) -> Vec<Reply> {
        self.engine.committed(&out);
        for send in &out.sends {
            let WorkerCommand::Start { task, step, attempt, .. } = &send.order else { continue };
            let job = self.engine.job(task.job).expect("what starts is known");
            let shape = &job.spec.steps[usize::from(*step)].hints.shape;
            let (seconds, exit) = shape.split_once('/').expect("seconds and exit code");
            let (seconds, exit): (u64, i32) = (seconds.parse().unwrap(), exit.parse().unwrap());
            let epoch = self.engine.attempt(*task).expect("it is booked").epoch;
            let at = self.now.since(START) / NS_PER_S;
            self.starts.push((at, job.spec.queue.clone(), *task));
            let ends = self.now.after(seconds * NS_PER_S);
            self.ends.insert((ends, *task), (send.worker, epoch, *attempt, self.now, exit));
            let by = Report { worker: send.worker, epoch, task: *task, attempt: *attempt };
            let at = self.lie.map_or(self.now, |(started, ..)| started);
            let mut out = Outbox::default();
            self.engine.handle(self.now, Event::Started { by, at }, &mut out);
            self.engine.committed(&out);
        }
        out.answers.into_iter().map(|(_, answer)| answer).collect()
    }

    fn submit_spec(&mut self, spec: JobSpec) -> (JobId, bool) {
        let request = RequestId(1);
        let submit = Submit::new(request, spec);
        match self.tell(Event::Submit(Box::new(submit))).as_slice() {
            [Reply::Submitted { job, existing, .. }] => (*job, *existing),
            other => panic!("{other:?}"),
        }
    }

    fn submit(&mut self, queue: &str, step: StepSpec) -> JobId {
        self.submit_spec(JobSpec { queue: queue.to_owned(), steps: vec![step], ..JobSpec::default() }).0
    }

    /// Advances the clock by `seconds`; tasks that end and timers that are due on the way are handled.
    fn pass(&mut self, seconds: u64) {
        let until = self.now.after(seconds * NS_PER_S);
        loop {
            let end = self.ends.first_key_value().map(|((at, _), _)| *at);
            let wakes = self.engine.next_wakeup();
            let Some(next) = end.into_iter().chain(wakes).min().filter(|at| *at <= until) else { break };
            self.now = self.now.max(next);
            let due = self.ends.first_key_value().filter(|((at, _), _)| *at <= self.now);
            match due.map(|(key, _)| *key) {
                Some(key) => {
                    let (worker, epoch, attempt, started, exit) = self.ends.remove(&key).unwrap();
                    let by = Report { worker, epoch, task: key.1, attempt };
                    let (started, finished, peak) = self.lie.unwrap_or((started, self.now, 64 << 20));
                    let (started, finished) = (Some(started), Some(finished));
                    let peak_memory = Some(peak);
                    let bare = TaskResult::bare(End::Exited(exit));
                    self.tell(Event::Finished {
                        by,
                        result: TaskResult { started, finished, peak_memory, ..bare },
                    });
                }
                None => _ = self.tell(Event::Tick),
            }
        }
        self.now = until;
    }

    fn starts_of(&self, queue: &str) -> Vec<u64> {
        self.starts.iter().filter(|(_, name, _)| name == queue).map(|(at, ..)| *at).collect()
    }

    fn is_placed(&self, job: JobId) -> bool {
        self.engine.attempts_of(job).next().is_some()
    }

    fn why(&self, job: JobId) -> Reason {
        windlass_core::explain::task(&self.engine, TaskId { job, index: 0 }).expect("it is active").reason
    }
}

fn hello(name: &str, cpus: u32, inventory: Inventory) -> Event {
    Event::Hello(Box::new(Hello {
        incarnation: 1,
        inventory,
        ..Hello::new(name, name.bytes().map(u64::from).sum(), Resources::new(cpus * 100, 64 * GIB))
    }))
}

/// One core each; they run for `seconds` and exit with `exit`.
fn step(tasks: u32, seconds: u64, exit: i32) -> StepSpec {
    let mut step = StepSpec { name: "s".to_owned(), tasks, ..StepSpec::default() };
    step.request = Resources::new(100, 0);
    step.hints.shape = format!("{seconds}/{exit}");
    step
}

fn on(target: &str, step: StepSpec) -> StepSpec {
    StepSpec { targets: BTreeSet::from([target.to_owned()]), ..step }
}

/// A farm on which 70 jobs of queue `qa` failed on w1, which is idle, and wait for w2, which is full.
fn farm_of_held_jobs() -> (Farm, Vec<JobId>) {
    let mut farm = Farm::new();
    farm.worker("w1", 4);
    farm.worker("w2", 4);
    farm.submit("filler", on("w2", StepSpec { request: Resources::new(400, 0), ..step(1, 100_000, 0) }));
    farm.submit("qb", step(1, 20, 0));
    let jobs = (0..70).map(|_| farm.submit("qa", StepSpec { retries: 1, ..step(1, 1, 1) })).collect();
    farm.pass(60);
    (farm, jobs)
}

#[test]
fn a1_held_steps_of_one_queue_close_their_class_for_no_other() {
    let (mut farm, held) = farm_of_held_jobs();
    assert!(held.iter().all(|job| !farm.is_placed(*job)), "they failed on w1, and w2 is full");
    let others: Vec<JobId> = (0..3).map(|_| farm.submit("qb", step(1, 20, 0))).collect();
    assert!(others.iter().all(|job| farm.is_placed(*job)), "w1 is idle: they start at once");
    // Nor for the rest of their own queue.
    let own = farm.submit("qa", step(1, 20, 0));
    farm.pass(2);
    assert!(farm.is_placed(own));
}

#[test]
fn a1_held_steps_start_when_another_worker_has_room() {
    let (mut farm, held) = farm_of_held_jobs();
    farm.worker("w3", 1);
    assert_eq!(held.iter().filter(|job| farm.is_placed(**job)).count(), 1, "at once, on w3");
    farm.pass(100);
    assert!(held.iter().all(|job| farm.engine.job(*job).is_none()), "one second each");
}

/// When a job as wide as the only worker starts beside a stream of narrow tasks.
fn wide_starts(pins: usize) -> u64 {
    let mut farm = Farm::new();
    for pin in 0..pins {
        farm.submit("default", on(&format!("gone{pin}"), step(1, 1, 0)));
    }
    farm.worker("w1", 4);
    let mut stream = step(2_000, 3, 0);
    stream.name = "stream".to_owned();
    farm.submit("default", stream);
    farm.pass(10);
    let wide = farm.submit("default", StepSpec { request: Resources::new(400, 0), ..step(1, 5, 0) });
    let from = farm.now.since(START) / NS_PER_S;
    for second in 0..600 {
        if farm.is_placed(wide) {
            return farm.now.since(START) / NS_PER_S - from;
        }
        let _ = second;
        farm.pass(1);
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
fn idle_farm_of(first: StepSpec) -> Farm {
    let mut farm = Farm::new();
    farm.worker("w1", 4);
    farm.submit("qa", first);
    farm
}

#[test]
fn a3_who_had_an_idle_farm_is_not_starved_by_whoever_comes() {
    let mut farm = idle_farm_of(step(12, 120, 0));
    farm.pass(112);
    farm.submit("qb", step(2_000, 1, 0));
    farm.pass(60);
    let starts = farm.starts_of("qa");
    assert_eq!(&starts[..4], [0; 4]);
    // The other had all four slots for eight seconds while `qb` waited, which now has as much first.
    assert!(starts.get(4).is_some_and(|at| *at <= 129), "slots were free from 120 s on: {starts:?}");
    assert!(farm.starts_of("qb").len() > 50, "and the other has its share");
}

#[test]
fn a3_an_idle_queue_comes_in_level_with_one_that_runs_and_has_nothing_that_waits() {
    let mut farm = idle_farm_of(step(4, 1_000, 0));
    farm.pass(990);
    farm.submit("qb", step(2_000, 1, 0));
    farm.submit("qa", step(8, 120, 0));
    farm.pass(60);
    let starts = farm.starts_of("qa");
    assert!(starts.get(4).is_some_and(|at| *at <= 1_012), "slots were free from 1000 s on: {starts:?}");
}

#[test]
fn a4_after_a_restart_what_runs_is_charged_from_then_on() {
    let ten_hours = 36_000 * NS_PER_S;
    let worker = WorkerRecord {
        id: WorkerId(1),
        name: "w1".to_owned(),
        epoch: Epoch(1),
        identity: hello_identity("w1"),
        incarnation: 1,
        state: WorkerState::Up,
        draining: false,
        lease_until: None,
        capacity: Resources::new(300, 64 * GIB),
        attributes: BTreeMap::new(),
    };
    let began = Time(START.0 - ten_hours);
    let row = TaskRow {
        index: 0,
        state: TaskState::Booked,
        attempt: 1,
        failures: 0,
        losses: 0,
        worker: WorkerId(1),
        epoch: Epoch(1),
        booked: began,
        amounts: Some((100, 0)),
    };
    let spec = JobSpec { queue: "qa".to_owned(), steps: vec![step(1, 72_000, 0)], ..JobSpec::default() };
    let job = JobRecord {
        id: JobId(1),
        spec: spec.into(),
        created: began,
        state: JobState::Active,
        stop: None,
        held: false,
        parked: None,
        tasks: vec![row],
        ended: Vec::new(),
        back_offs: BTreeMap::new(),
    };
    let turn = TurnSettings { express: None, ..TurnSettings::default() };
    let settings = Settings { turn, lease_ns: None, ..Settings::default() };
    let ground = StoredState { workers: vec![worker], jobs: vec![job], ..StoredState::default() };
    let mut farm = Farm::of(Engine::restore(settings, ground));
    farm.engine.settle_restored(START, &mut Outbox::default());
    let held =
        Held { task: TaskId { job: JobId(1), index: 0 }, attempt: 1, phase: HeldPhase::Running(began) };
    farm.tell(hello("w1", 3, Inventory { seq: 1, held: vec![held] }));
    farm.submit("qb", step(200, 1, 0));
    farm.submit("qa", step(200, 1, 0));
    farm.pass(60);
    let (qa, qb) = (farm.starts_of("qa").len(), farm.starts_of("qb").len());
    // One slot is qa's all the time: half of another one makes its share whole.
    assert!((20..=40).contains(&qa) && qb >= 80, "{qa} of qa and {qb} of qb");
}

fn hello_identity(name: &str) -> u64 {
    name.bytes().map(u64::from).sum()
}

#[test]
fn a5_what_a_worker_says_of_times_and_memory_charges_nobody_for_more_than_was() {
    let lies = [
        (Time(0), Time(NS_PER_S), 64 << 20),
        (Time(0), Time(u64::MAX), u64::MAX),
        (Time(u64::MAX - NS_PER_S), Time(u64::MAX), 1),
    ];
    for lie in lies {
        let mut farm = Farm::new();
        farm.worker("w1", 2);
        farm.lie = Some(lie);
        farm.submit("qa", step(100, 1, 0));
        farm.pass(5);
        farm.submit("qb", step(100, 1, 0));
        farm.pass(20);
        let late = |queue: &str| farm.starts_of(queue).into_iter().filter(|at| *at > 10).count();
        let (qa, qb) = (late("qa"), late("qb"));
        assert!(qa >= 5 && qb >= 5, "{lie:?}: {qa} of qa and {qb} of qb");
        let worker = farm.engine.workers().by_name("w1").unwrap();
        let expected = worker.running.iter().filter_map(|task| farm.engine.attempt(*task));
        assert!(expected.map(|attempt| attempt.expects).all(|bytes| bytes <= 64 * GIB), "{lie:?}");
    }
}

#[test]
fn a5_results_keep_their_length_where_a_clock_is_off() {
    let mut farm = Farm::new();
    farm.worker("w1", 1);
    // Ahead by an hour.
    farm.lie = Some((farm.now.after(3_600 * NS_PER_S), farm.now.after(3_610 * NS_PER_S), 0));
    let job = farm.submit("qa", step(1, 10, 0));
    let mut out = Outbox::default();
    let ((at, task), (worker, epoch, attempt, ..)) = farm.ends.pop_first().unwrap();
    let by = Report { worker, epoch, task, attempt };
    let (started, finished, _) = farm.lie.unwrap();
    let bare = TaskResult::bare(End::Exited(0));
    let result = TaskResult { started: Some(started), finished: Some(finished), ..bare };
    farm.engine.handle(at, Event::Finished { by, result }, &mut out);
    let ended = out.writes.iter().find_map(|write| match write {
        windlass_core::engine::Write::End { result, .. } => result.started.zip(result.finished),
        _ => None,
    });
    assert_eq!(ended, Some((START, START.after(10_000 * NS_PER_MS))), "job {job}");
}

#[test]
fn a6_a_key_whose_job_is_gone_names_nothing() {
    let mut farm = Farm::new();
    farm.worker("w1", 1);
    let nightly =
        || JobSpec { key: Some("nightly".to_owned()), steps: vec![step(1, 1, 0)], ..JobSpec::default() };
    let (first, existing) = farm.submit_spec(nightly());
    assert!(!existing);
    farm.pass(5);
    assert_eq!(farm.submit_spec(nightly()), (first, true), "it ended, and its row is there");
    farm.tell(Event::Deleted(BTreeSet::from([first])));
    let (second, existing) = farm.submit_spec(nightly());
    assert!(!existing && second != first, "job {second}");
    assert!(farm.is_placed(second), "it runs");
}

#[test]
fn a6_a_refused_retry_pins_no_key() {
    let mut farm = Farm::new();
    farm.worker("w1", 1);
    let spec = JobSpec { key: Some("nightly".to_owned()), steps: vec![step(1, 1, 0)], ..JobSpec::default() };
    // The engine that ran it is gone: this one knows of the job by the store alone.
    let mut out = Outbox::default();
    farm.engine.handle(farm.now, Event::Retry { request: RequestId(1), job: JobId(1) }, &mut out);
    let [fetch] = out.fetches.as_slice() else { panic!("{out:?}") };
    let row = TaskRow {
        index: 0,
        state: TaskState::Succeeded,
        attempt: 1,
        failures: 0,
        losses: 0,
        worker: WorkerId(1),
        epoch: Epoch(1),
        booked: START,
        amounts: None,
    };
    let record = JobRecord {
        id: JobId(1),
        spec: spec.clone().into(),
        created: START,
        state: JobState::Succeeded,
        stop: None,
        held: false,
        parked: None,
        tasks: vec![row],
        ended: Vec::new(),
        back_offs: BTreeMap::new(),
    };
    let answers = farm.tell(Event::Fetched { number: fetch.number, records: Some(vec![record]) });
    assert!(matches!(answers.as_slice(), [Reply::Refused(_)]), "{answers:?}");
    // Retention deletes it.
    farm.tell(Event::Deleted(BTreeSet::from([JobId(1)])));
    assert!(!farm.submit_spec(spec).1);
}

#[test]
fn a7_why_names_the_rule_that_holds_a_retry() {
    let mut farm = Farm::new();
    farm.worker("w1", 4);
    farm.worker("w2", 4);
    farm.submit("filler", on("w2", StepSpec { request: Resources::new(400, 0), ..step(1, 100_000, 0) }));
    let job = farm.submit("qa", StepSpec { retries: 1, ..step(1, 1, 1) });
    farm.pass(5);
    assert!(!farm.is_placed(job));
    let explanation = windlass_core::explain::task(&farm.engine, TaskId { job, index: 0 }).unwrap();
    assert_ne!(explanation.reason, Reason::Turn, "a rule holds it");
    let names_it = |why: &Ineligible| matches!(why, Ineligible::Vetoed { rule: "retry", .. });
    assert!(explanation.ruled_out.iter().any(|(why, ..)| names_it(why)), "{explanation:?}");
    assert_eq!(explanation.open_workers, 0);
    // Where w2 is gone for good, w1 is as good as any.
    let w2 = farm.engine.workers().by_name("w2").unwrap().id;
    farm.tell(Event::Lost { worker: w2 });
    farm.pass(2);
    assert!(farm.is_placed(job) || farm.engine.job(job).is_none(), "{:?}", farm.why(job));
}
