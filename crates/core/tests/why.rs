//! Thirteen reasons for which a task waits: each is named, with a change, and after that change the task starts.

use std::collections::BTreeSet;
use windlass_core::engine::{Engine, Event, Hello, Outbox, Report, Settings, Submit, WorkerCommand};
use windlass_core::explain::{Change, Explanation, Reason};
use windlass_core::job::{Dependency, DependencyKind, End, JobSpec, StepSpec, TaskResult, TaskState};
use windlass_core::licences::{Busy, Limit};
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures, Stall};
use windlass_core::plan::placement::Ineligible;
use windlass_core::queues::QueueRecord;
use windlass_core::time::NS_PER_S;
use windlass_core::{Epoch, JobId, RequestId, Resources, TaskId, Time, WorkerId};

const GIB: u64 = 1 << 30;

/// An engine whose every batch is durable at once.
struct Farm {
    engine: Engine,
    now: Time,
    jobs: u64,
}

impl Farm {
    fn new() -> Farm {
        Farm { engine: Engine::new(Settings::default()), now: Time(1_000 * NS_PER_S), jobs: 0 }
    }

    fn tell(&mut self, event: Event) {
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        self.engine.committed(&out);
        let mut out = Outbox::default();
        while self.engine.round(self.now, 100, &mut out) > 0 {}
        self.engine.committed(&out);
        self.engine.check().unwrap();
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(seconds * NS_PER_S);
        self.tell(Event::Tick);
    }

    fn worker(&mut self, name: &str, cpus: u32, memory: u64, tag: Option<&str>) {
        let attributes = tag.map(|tag| (tag.to_owned(), BTreeSet::new())).into_iter().collect();
        self.tell(Event::Hello(Box::new(Hello {
            fences: true,
            new_link: false,
            attributes,
            ..Hello::new(name, 1, Resources::new(cpus * 100, memory))
        })));
    }

    fn submit(&mut self, queue: &str, steps: Vec<StepSpec>) -> JobId {
        self.jobs += 1;
        let spec = JobSpec { queue: queue.to_owned(), steps, ..JobSpec::default() };
        let request = RequestId(self.jobs);
        let submit = Submit::new(request, spec);
        self.tell(Event::Submit(Box::new(submit)));
        JobId(self.jobs)
    }

    fn why(&self, job: JobId, index: u32) -> Explanation {
        windlass_core::explain::task(&self.engine, TaskId { job, index }).unwrap()
    }

    fn is_placed(&self, job: JobId, index: u32) -> bool {
        self.why(job, index).state == TaskState::Booked
    }

    fn finish(&mut self, job: JobId, index: u32) {
        self.end(job, index, 0);
    }

    fn end(&mut self, job: JobId, index: u32, exit: i32) {
        let task = TaskId { job, index };
        let attempt = self.engine.attempt(task).unwrap();
        let by = Report { worker: attempt.worker, epoch: Epoch(1), task, attempt: attempt.number };
        self.tell(Event::Finished { by, result: TaskResult::bare(End::Exited(exit)) });
    }

    /// Half of the time of a worker's machine is lost for memory, or so many percent.
    fn memory_pressure(&mut self, worker: u64, percent: f64) {
        let some = Some(Stall { avg10: percent, ..Stall::default() });
        let memory = Some(Pressure { some, full: None });
        let report =
            LoadReport { machine: Pressures { memory, ..Pressures::default() }, ..LoadReport::default() };
        self.tell(Event::Load { worker: WorkerId(worker), report: Box::new(report) });
    }
}

fn step(cpus: u32, memory: u64) -> StepSpec {
    StepSpec {
        name: "main".to_owned(),
        tasks: 1,
        request: Resources::new(cpus * 100, memory),
        ..StepSpec::default()
    }
}

/// What is in the way on the worker that comes first.
fn unmet(why: &Explanation) -> &[Ineligible] {
    match &why.changes[0] {
        Change::Worker { unmet, .. } => unmet,
        other => panic!("{other:?} is no change of a worker"),
    }
}

#[test]
fn a_missing_tag() {
    let mut farm = Farm::new();
    farm.worker("w", 2, GIB, None);
    let needs = vec![windlass_core::tags::Need::parse("gpu")];
    let job = farm.submit("q", vec![StepSpec { needs: needs.clone(), ..step(1, 0) }]);
    let why = farm.why(job, 0);
    assert_eq!(
        (&why.reason, unmet(&why)),
        (&Reason::FitsNowhere, &[Ineligible::Attribute(needs[0].clone())][..])
    );
    farm.worker("w", 2, GIB, Some("gpu"));
    assert!(farm.is_placed(job, 0));
}

#[test]
fn more_memory_than_any_worker_has() {
    let mut farm = Farm::new();
    farm.worker("small", 2, 4 * GIB, None);
    farm.worker("large", 2, 8 * GIB, None);
    let job = farm.submit("q", vec![step(1, 64 * GIB)]);
    let why = farm.why(job, 0);
    assert_eq!(why.reason, Reason::FitsNowhere);
    let [Ineligible::TooSmall(short)] = unmet(&why) else { panic!("{why:?}") };
    assert_eq!(
        (&*short.resource, short.have),
        ("memory", 8 * GIB),
        "the smallest change is on the largest worker"
    );
    let job = farm.submit("q", vec![step(1, short.have)]);
    assert!(farm.is_placed(job, 0));
}

#[test]
fn a_quota() {
    let mut farm = Farm::new();
    farm.worker("w", 4, GIB, None);
    let set = |farm: &mut Farm, quota: u64| {
        let queue = QueueRecord { quota_cpu: Some(quota as u32), ..QueueRecord::named("q") };
        farm.tell(Event::SetQueue { request: RequestId(0), queue });
    };
    set(&mut farm, 100);
    let job = farm.submit("q", vec![StepSpec { tasks: 2, ..step(1, 0) }]);
    let why = farm.why(job, 1);
    assert_eq!(why.reason, Reason::Quota { quota_cpu: 100, booked_cpu: 100 });
    assert_eq!(why.turn.as_ref().unwrap().starts, None, "room alone does not start it");
    let Change::Quota(_, needed) = &why.changes[0] else { panic!("{why:?}") };
    assert!(!farm.is_placed(job, 1));
    set(&mut farm, *needed);
    assert!(farm.is_placed(job, 1));
}

#[test]
fn a_saturated_worker() {
    let mut farm = Farm::new();
    farm.worker("large", 2, 8 * GIB, None);
    farm.worker("small", 2, GIB, None);
    farm.memory_pressure(1, 60.0);
    let job = farm.submit("q", vec![step(1, 4 * GIB)]);
    let why = farm.why(job, 0);
    assert_eq!(why.reason, Reason::Closed(Ineligible::UnderPressure("memory")));
    assert_eq!(unmet(&why), [Ineligible::UnderPressure("memory")]);
    farm.memory_pressure(1, 41.0);
    assert!(!farm.is_placed(job, 0), "released below four fifths of 50");
    farm.memory_pressure(1, 39.0);
    assert!(farm.is_placed(job, 0));
}

#[test]
fn a_step_that_comes_first() {
    let mut farm = Farm::new();
    farm.worker("w", 2, GIB, None);
    let depends = vec![Dependency { on: 0, kind: DependencyKind::Step }];
    let second = StepSpec { name: "second".to_owned(), depends, ..step(1, 0) };
    let job = farm.submit("q", vec![step(1, 0), second]);
    assert_eq!(farm.why(job, 1).reason, Reason::Steps(vec![("main".to_owned(), 1, 0)]));
    farm.finish(job, 0);
    assert!(farm.is_placed(job, 1));
}

#[test]
fn another_queues_turn() {
    let mut farm = Farm::new();
    farm.worker("w", 1, GIB, None);
    let important = farm.submit("vip", vec![StepSpec { tasks: 3, ..step(1, 0) }]);
    let job = farm.submit("q", vec![step(1, 0)]);
    let why = farm.why(job, 0);
    assert_eq!(why.reason, Reason::Behind("vip".to_owned()));
    assert!(why.changes.contains(&Change::Ahead("vip".to_owned())), "{:?}", why.changes);
    let turn = why.turn.unwrap();
    assert_eq!((turn.queues_ahead, turn.pool.contended, turn.pool.entitled_cpu), (1, true, 50.0));
    farm.tell(Event::Hold { request: RequestId(0), job: important, held: true });
    farm.finish(important, 0);
    assert!(farm.is_placed(job, 0));
}

#[test]
fn a_drained_farm() {
    let mut farm = Farm::new();
    farm.worker("w", 2, GIB, None);
    let drain = |draining| Event::Drain { request: RequestId(0), worker: WorkerId(1), draining };
    farm.tell(drain(true));
    let job = farm.submit("q", vec![step(1, 0)]);
    let why = farm.why(job, 0);
    assert_eq!(
        (&why.reason, unmet(&why)),
        (&Reason::Closed(Ineligible::Draining), &[Ineligible::Draining][..])
    );
    farm.tell(drain(false));
    assert!(farm.is_placed(job, 0));
}

#[test]
fn a_worker_that_is_not_heard_from() {
    let mut farm = Farm::new();
    farm.worker("w", 2, GIB, None);
    farm.memory_pressure(1, 10.0);
    farm.wait(100);
    assert!(farm.engine.workers().by_name("w").unwrap().load.is_none(), "what it said is stale");
    let job = farm.submit("q", vec![step(1, 0)]);
    let why = farm.why(job, 0);
    assert_eq!(
        (&why.reason, unmet(&why)),
        (&Reason::Closed(Ineligible::Suspect), &[Ineligible::Suspect][..])
    );
    farm.worker("w", 2, GIB, None);
    assert!(farm.is_placed(job, 0));
}

#[test]
fn a_reserved_worker() {
    let mut farm = Farm::new();
    farm.worker("w", 2, GIB, None);
    let narrow = farm.submit("narrow", vec![StepSpec { tasks: 4, ..step(1, 0) }]);
    let wide = farm.submit("wide", vec![StepSpec { name: "wide".to_owned(), ..step(2, 0) }]);
    // Narrow work goes on beside what runs, and the wide one waits.
    farm.wait(5);
    farm.finish(narrow, 0);
    assert!(farm.is_placed(narrow, 2) && !farm.is_placed(wide, 0));
    for _ in 0..4 {
        farm.wait(20);
    }
    farm.finish(narrow, 1);
    let why = farm.why(narrow, 3);
    assert!(matches!(why.reason, Reason::Closed(Ineligible::Reserved(_))), "{why:?}");
    assert!(matches!(unmet(&why), [Ineligible::Reserved(_)]));
    // What runs there ends, so the holder starts; when it has ended the other does.
    farm.finish(narrow, 2);
    assert!(farm.is_placed(wide, 0) && !farm.is_placed(narrow, 3));
    farm.finish(wide, 0);
    assert!(farm.is_placed(narrow, 3));
}

#[test]
fn a_licence() {
    let mut farm = Farm::new();
    farm.worker("w", 4, GIB, None);
    let set =
        |max| Event::SetLimit { request: RequestId(0), name: "nuke".to_owned(), limit: Some(Limit::of(max)) };
    farm.tell(set(1));
    let limits = BTreeSet::from(["nuke".to_owned()]);
    let job = farm.submit("q", vec![StepSpec { tasks: 3, limits, ..step(1, 0) }]);
    let why = farm.why(job, 1);
    assert_eq!(why.reason, Reason::Limit { name: "nuke".to_owned(), max: 1 });
    assert_eq!(why.turn.as_ref().unwrap().starts, None, "room alone does not start it");
    let Change::Limit(_, needed) = &why.changes[0] else { panic!("{why:?}") };
    farm.tell(set(*needed));
    assert!(farm.is_placed(job, 1) && !farm.is_placed(job, 2));
    farm.finish(job, 0);
    assert!(farm.is_placed(job, 2), "a licence that is given back is taken");
}

#[test]
fn a_start_says_what_it_is_allowed_to_hold() {
    let mut farm = Farm::new();
    farm.worker("w", 4, 8 * GIB, None);
    let mut out = Outbox::default();
    let spec = JobSpec {
        steps: vec![step(1, GIB), StepSpec { name: "free".to_owned(), ..step(1, 0) }],
        ..JobSpec::default()
    };
    let submit = Submit::new(RequestId(9), spec);
    farm.engine.handle(farm.now, Event::Submit(Box::new(submit)), &mut out);
    farm.engine.round(farm.now, 10, &mut out);
    let limits: Vec<_> = out
        .sends
        .iter()
        .filter_map(|send| match &send.order {
            WorkerCommand::Start { memory_limit, .. } => Some(*memory_limit),
            _ => None,
        })
        .collect();
    assert_eq!(limits, [Some(GIB), None]);
}

fn set_limit(farm: &mut Farm, name: &str, limit: Limit) {
    farm.tell(Event::SetLimit { request: RequestId(0), name: name.to_owned(), limit: Some(limit) });
}

fn limited(tasks: u32) -> StepSpec {
    StepSpec { tasks, limits: ["maya".to_owned()].into(), ..step(1, 0) }
}

#[test]
fn a_paused_queue() {
    let mut farm = Farm::new();
    farm.worker("w", 2, GIB, None);
    let set = |farm: &mut Farm, paused: Option<&str>| {
        let queue = QueueRecord { paused: paused.map(str::to_owned), ..QueueRecord::named("q") };
        farm.tell(Event::SetQueue { request: RequestId(0), queue });
    };
    set(&mut farm, Some("backup"));
    let job = farm.submit("q", vec![step(1, 0)]);
    let why = farm.why(job, 0);
    assert_eq!(why.reason, Reason::Paused("backup".to_owned()));
    assert_eq!(why.turn.as_ref().unwrap().starts, None, "room alone does not start it");
    let Change::Resume(queue) = &why.changes[0] else { panic!("{why:?}") };
    assert_eq!(queue, "q");
    set(&mut farm, None);
    assert!(farm.is_placed(job, 0));
}

#[test]
fn a_worker_that_holds_all_of_a_limit_that_it_may() {
    let mut farm = Farm::new();
    farm.worker("w", 4, GIB, None);
    farm.worker("other", 1, GIB, Some("gpu"));
    let each = |max| Limit { per_worker: Some(max), ..Limit::default() };
    set_limit(&mut farm, "maya", each(1));
    let job = farm.submit("q", vec![StepSpec { targets: ["w".to_owned()].into(), ..limited(3) }]);
    let full = Ineligible::Limit { name: "maya".to_owned(), max: 1 };
    let why = farm.why(job, 1);
    assert_eq!((&why.reason, unmet(&why)), (&Reason::Closed(full.clone()), &[full][..]));
    set_limit(&mut farm, "maya", each(2));
    assert!(farm.is_placed(job, 1) && !farm.is_placed(job, 2));
    farm.finish(job, 0);
    assert!(farm.is_placed(job, 2), "what is given back is there for the next");
}

#[test]
fn a_busy_licence() {
    let mut farm = Farm::new();
    farm.worker("w", 2, GIB, None);
    let limit = Limit { busy: Some(Busy { exits: [11].into(), back_off_ms: 20_000 }), ..Limit::of(5) };
    set_limit(&mut farm, "maya", limit.clone());
    let job = farm.submit("q", vec![limited(1)]);
    farm.end(job, 0, 11);
    let why = farm.why(job, 0);
    let until = farm.now.after(20 * NS_PER_S);
    assert_eq!(why.reason, Reason::BackOff { name: "maya".to_owned(), until, times: 1 });
    assert_eq!(why.changes[0], Change::TryAgain("maya".to_owned(), 20_000));
    farm.wait(19);
    assert!(!farm.is_placed(job, 0));
    set_limit(&mut farm, "maya", limit);
    assert!(farm.is_placed(job, 0), "who sets the limit has it tried at once");
}
