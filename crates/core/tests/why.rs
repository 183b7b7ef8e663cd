//! Thirteen reasons for which a task waits: each is named, with a change, and after that change the task starts.

use crate::kit::{self, Farm, GIB, REQUEST, hello, set_limit, set_queue, spec, task};
use std::collections::BTreeSet;
use windlass_core::engine::{Event, Fact, Hello, Settings, WorkerCommand};
use windlass_core::explain::{Advice, Change, Edit, Explanation, FirstForLimit, Reason, Starts};
use windlass_core::job::{Dependency, DependencyKind, JobSpec, RunningCap, StepSpec, TaskState};
use windlass_core::licences::{Busy, Limit};
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures, Stall};
use windlass_core::plan::placement::{Ineligible, VetoedUse};
use windlass_core::queues::QueueRecord;
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, Resources, WorkerId};

/// Its keeper fences, so it has a lease, and it says hello over the same connection each time.
fn worker(farm: &mut Farm, name: &str, cpus: u32, memory: u64, tag: Option<&str>) {
    let attributes = tag.map(|tag| (tag.to_owned(), BTreeSet::new())).into_iter().collect();
    let hello = hello(name, Resources::new(cpus * 100, memory));
    farm.join(Hello { fences: true, new_link: false, attributes, ..hello });
}

/// A farm with one worker of this number of cores.
fn farm_of(cpus: u32) -> Farm {
    let mut farm = Farm::new(Settings::default());
    worker(&mut farm, "w", cpus, GIB, None);
    farm
}

/// A worker's machine loses this part of its time, in percent, to waiting for memory.
fn memory_pressure(farm: &mut Farm, worker: u64, percent: f64) {
    let some = Some(Stall { avg10: percent, ..Stall::default() });
    let memory = Some(Pressure { some, full: None });
    let report =
        LoadReport { machine: Pressures { memory, ..Pressures::default() }, ..LoadReport::default() };
    farm.tell(Event::Load { worker: WorkerId(worker), report: Box::new(report) });
}

/// As it is explained, which is how users see it.
fn is_placed(farm: &Farm, job: JobId, index: u32) -> bool {
    farm.why(task(job, index)).state == TaskState::Booked
}

fn step(cpus: u32, memory: u64) -> StepSpec {
    kit::step(1, Resources::new(cpus * 100, memory))
}

/// What is in the way on the worker that comes first.
fn unmet(why: &Explanation) -> &[Ineligible] {
    match &why.changes[0].change {
        Change::Worker { unmet, .. } => unmet,
        other => panic!("{other:?} is not a change of a worker"),
    }
}

#[test]
fn a_missing_tag() {
    let mut farm = farm_of(2);
    let needs = vec![windlass_core::tags::Need::parse("gpu")];
    let job = farm.submit(spec("q", [StepSpec { needs: needs.clone(), ..step(1, 0) }]));
    let why = farm.why(task(job, 0));
    assert_eq!(
        (&why.reason, unmet(&why)),
        (&Reason::FitsNowhere, &[Ineligible::Attribute(needs[0].clone())][..])
    );
    worker(&mut farm, "w", 2, GIB, Some("gpu"));
    assert!(is_placed(&farm, job, 0));
}

#[test]
fn more_memory_than_any_worker_has() {
    let mut farm = Farm::new(Settings::default());
    worker(&mut farm, "small", 2, 4 * GIB, None);
    worker(&mut farm, "large", 2, 8 * GIB, None);
    let job = farm.submit(spec("q", [step(1, 64 * GIB)]));
    let why = farm.why(task(job, 0));
    assert_eq!(why.reason, Reason::FitsNowhere);
    let edits = vec![Edit::Less("memory".to_owned(), 8 * GIB)];
    assert_eq!(
        why.changes[0].change,
        Change::Resubmit { worker: "large".to_owned(), edits },
        "the smallest change is on the largest worker"
    );
    let job = farm.submit(spec("q", [step(1, 8 * GIB)]));
    assert!(is_placed(&farm, job, 0));
}

#[test]
fn a_quota() {
    let mut farm = farm_of(4);
    let quota = |cpu| set_queue(QueueRecord { quota_cpu: Some(cpu), ..QueueRecord::named("q") });
    farm.tell(quota(100));
    let job = farm.submit(spec("q", [StepSpec { tasks: 2, ..step(1, 0) }]));
    let why = farm.why(task(job, 1));
    assert_eq!(why.reason, Reason::Quota { quota_cpu: 100, booked_cpu: 100 });
    assert_eq!(why.turn.as_ref().unwrap().starts, None, "room alone does not start it");
    let Change::Quota(_, needed) = &why.changes[0].change else { panic!("{why:?}") };
    assert!(!is_placed(&farm, job, 1));
    farm.tell(quota(*needed as u32));
    assert!(is_placed(&farm, job, 1));
}

#[test]
fn one_is_not_said_as_many() {
    let says = |reason: Reason| reason.say(|_| String::new()).1;
    let quota = Reason::Quota { quota_cpu: 100, booked_cpu: 100 };
    assert_eq!(says(quota), "its queue holds 1 of the 1 cpu of its quota");
    let cap = Reason::MaxRunning(RunningCap { max: 1, is_of_job: true });
    assert_eq!(says(cap), "1 task of its job runs, and no more may at a time (max_running)");
    let pressed = Reason::Closed(Ineligible::UnderPressure("cpu"));
    assert!(says(pressed).ends_with("under cpu pressure, and no task has run there for 30 s"));
    let together = Reason::Together { tasks: 2, placed: 1 };
    assert_eq!(says(together), "it starts together with 1 other, and 1 of these 2 tasks has room now");
    let probing = Reason::Probing { running: 1 };
    assert_eq!(says(probing), "1 task of its profile runs first, to show how much memory it needs");
}

#[test]
fn a_saturated_worker() {
    let mut farm = Farm::new(Settings::default());
    worker(&mut farm, "large", 2, 8 * GIB, None);
    worker(&mut farm, "small", 2, GIB, None);
    memory_pressure(&mut farm, 1, 60.0);
    let job = farm.submit(spec("q", [step(1, 4 * GIB)]));
    let why = farm.why(task(job, 0));
    assert_eq!(why.reason, Reason::Closed(Ineligible::UnderPressure("memory")));
    assert_eq!(unmet(&why), [Ineligible::UnderPressure("memory")]);
    assert_eq!(noted(&mut farm, "large"), ["up", "held by memory pressure"]);
    memory_pressure(&mut farm, 1, 41.0);
    assert!(!is_placed(&farm, job, 0), "released below four fifths of 50");
    memory_pressure(&mut farm, 1, 39.0);
    assert!(is_placed(&farm, job, 0));
    assert_eq!(noted(&mut farm, "large"), ["no longer held by pressure"]);
}

/// The second task has room, and waits until the first one has ended or the machine is free of what keeps it off.
fn check_next(mut farm: Farm, expected: impl Fn(&Ineligible) -> bool) {
    let lasting = || StepSpec { time_limit_ms: Some(60_000), ..step(1, 0) };
    let first = farm.submit(spec("q", [lasting()]));
    assert!(is_placed(&farm, first, 0), "a farm does not stand still");
    let job = farm.submit(spec("q", [lasting()]));
    let why = farm.why(task(job, 0));
    let Reason::Closed(closed) = &why.reason else { panic!("{why:?}") };
    assert!(expected(closed), "{closed:?}");
    let wait = Advice { change: Change::Wait, starts: Starts::AfterTasks("w".to_owned()) };
    let change = Change::Worker { worker: "w".to_owned(), unmet: vec![closed.clone()] };
    assert_eq!(why.changes, [wait, Advice { change, starts: Starts::AtOnce }]);
    assert!(why.turn.is_some_and(|turn| turn.starts.is_some()), "the first one has a time limit");
    farm.end(task(first, 0), 0);
    assert!(is_placed(&farm, job, 0));
}

#[test]
fn the_only_worker_is_under_pressure_and_runs_something() {
    let mut farm = farm_of(2);
    memory_pressure(&mut farm, 1, 60.0);
    check_next(farm, |closed| *closed == Ineligible::UnderPressure("memory"));
}

#[test]
fn other_programs_use_the_cores_of_the_only_worker() {
    let mut farm = farm_of(2);
    let report = LoadReport { cpu_foreign: Some(2.0), ..LoadReport::default() };
    farm.tell(Event::Load { worker: WorkerId(1), report: Box::new(report) });
    check_next(farm, |closed| closed.vetoed_use() == Some(VetoedUse::Cores));
}

/// What was told of a worker since the last time.
fn noted(farm: &mut Farm, of: &str) -> Vec<&'static str> {
    let notes = farm.take().facts.into_iter();
    let of_worker = notes.filter_map(|note| match note {
        Fact::Worker { name, what, .. } if name == of => Some(what),
        _ => None,
    });
    of_worker.collect()
}

#[test]
fn a_step_that_comes_first() {
    let mut farm = farm_of(2);
    let depends = vec![Dependency { on: 0, kind: DependencyKind::Step }];
    let second = StepSpec { name: "second".to_owned(), depends, ..step(1, 0) };
    let job = farm.submit(spec("q", [step(1, 0), second]));
    assert_eq!(farm.why(task(job, 1)).reason, Reason::Steps(vec![("s".to_owned(), 1, 0)]));
    farm.end(task(job, 0), 0);
    assert!(is_placed(&farm, job, 1));
}

#[test]
fn another_queues_turn() {
    let mut farm = farm_of(1);
    let important = farm.submit(spec("vip", [StepSpec { tasks: 3, ..step(1, 0) }]));
    let job = farm.submit(spec("q", [step(1, 0)]));
    let why = farm.why(task(job, 0));
    assert_eq!(why.reason, Reason::Behind("vip".to_owned()));
    let next_on = |change| Advice { change, starts: Starts::WhenFree("w".to_owned()) };
    assert_eq!(
        why.changes,
        [next_on(Change::Band("q".to_owned(), 9)), next_on(Change::Pause("vip".to_owned()))],
        "weights do not count between bands"
    );
    let turn = why.turn.unwrap();
    // All queues of a higher band come first, whatever their weights are.
    assert_eq!((turn.queues_ahead, turn.pool.contended, turn.pool.entitled_cpu), (1, true, 0.0));
    farm.tell(Event::Hold { request: REQUEST, job: important, held: true });
    farm.end(task(important, 0), 0);
    assert!(is_placed(&farm, job, 0));
}

#[test]
fn a_drained_farm() {
    let mut farm = farm_of(2);
    let drain = |draining| Event::Drain { request: REQUEST, worker: WorkerId(1), draining, note: None };
    farm.tell(drain(true));
    let job = farm.submit(spec("q", [step(1, 0)]));
    let why = farm.why(task(job, 0));
    assert_eq!(
        (&why.reason, unmet(&why)),
        (&Reason::Closed(Ineligible::Draining(None)), &[Ineligible::Draining(None)][..])
    );
    farm.tell(drain(false));
    assert!(is_placed(&farm, job, 0));
}

#[test]
fn a_worker_that_is_not_heard_from() {
    let mut farm = farm_of(2);
    memory_pressure(&mut farm, 1, 10.0);
    farm.pass(100);
    assert!(farm.engine.workers().by_name("w").unwrap().reported.load().is_none(), "what it said is stale");
    let job = farm.submit(spec("q", [step(1, 0)]));
    let why = farm.why(task(job, 0));
    assert_eq!(
        (&why.reason, unmet(&why)),
        (&Reason::Closed(Ineligible::Suspect), &[Ineligible::Suspect][..])
    );
    worker(&mut farm, "w", 2, GIB, None);
    assert!(is_placed(&farm, job, 0));
}

#[test]
fn a_reserved_worker() {
    let mut farm = farm_of(2);
    let narrow = farm.submit(spec("narrow", [StepSpec { tasks: 4, ..step(1, 0) }]));
    let wide = farm.submit(spec("wide", [StepSpec { name: "wide".to_owned(), ..step(2, 0) }]));
    // Narrow work goes on beside what runs, and the wide one waits.
    farm.pass(5);
    farm.end(task(narrow, 0), 0);
    assert!(is_placed(&farm, narrow, 2) && !is_placed(&farm, wide, 0));
    let waits = |starts| [Advice { change: Change::Wait, starts }];
    let why = farm.why(task(wide, 0));
    assert_eq!(why.changes, waits(Starts::AfterSmaller("w".to_owned())));
    assert!(why.turn.unwrap().may_be_overtaken);
    for _ in 0..4 {
        farm.pass(20);
    }
    let why = farm.why(task(wide, 0));
    assert_eq!(why.changes, waits(Starts::WhenFree("w".to_owned())));
    assert!(!why.turn.unwrap().may_be_overtaken, "a worker is reserved for it");
    farm.end(task(narrow, 1), 0);
    let why = farm.why(task(narrow, 3));
    assert!(matches!(why.reason, Reason::Closed(Ineligible::Reserved(_))), "{why:?}");
    assert_eq!(why.changes, [], "nobody can do anything about it but wait");
    // What runs there ends, so the holder starts; when it has ended the other does.
    farm.end(task(narrow, 2), 0);
    assert!(is_placed(&farm, wide, 0) && !is_placed(&farm, narrow, 3));
    farm.end(task(wide, 0), 0);
    assert!(is_placed(&farm, narrow, 3));
}

#[test]
fn a_licence() {
    let mut farm = farm_of(4);
    farm.tell(set_limit("nuke", Limit::of(1)));
    let limits = BTreeSet::from(["nuke".to_owned()]);
    let job = farm.submit(spec("q", [StepSpec { tasks: 3, limits, ..step(1, 0) }]));
    let why = farm.why(task(job, 1));
    assert_eq!(
        why.reason,
        Reason::Limit { name: "nuke".to_owned(), max: 1, first: None, waiting_holder: None }
    );
    assert_eq!(why.turn.as_ref().unwrap().starts, None, "room alone does not start it");
    let Change::Limit(_, needed) = &why.changes[0].change else { panic!("{why:?}") };
    farm.tell(set_limit("nuke", Limit::of(*needed)));
    assert!(is_placed(&farm, job, 1) && !is_placed(&farm, job, 2));
    farm.end(task(job, 0), 0);
    assert!(is_placed(&farm, job, 2), "a licence that is given back is taken");
}

#[test]
fn a_limit_for_which_another_queue_is_first() {
    let mut farm = farm_of(4);
    farm.tell(set_limit("nuke", Limit::of(1)));
    let licensed = |tasks| StepSpec { tasks, limits: BTreeSet::from(["nuke".to_owned()]), ..step(1, 0) };
    let job = farm.submit(spec("q", [licensed(2)]));
    let important = farm.submit(spec("vip", [licensed(1)]));
    let limit = |first| Reason::Limit { name: "nuke".to_owned(), max: 1, first, waiting_holder: None };
    let why = farm.why(task(job, 1));
    assert_eq!(why.reason, limit(Some(FirstForLimit::Queue("vip".to_owned()))));
    assert_eq!(why.turn.unwrap().queues_ahead, 1);
    assert_eq!(farm.why(task(important, 0)).reason, limit(None));
    farm.end(task(job, 0), 0);
    assert!(is_placed(&farm, important, 0) && !is_placed(&farm, job, 1));
    let why = farm.why(task(job, 1));
    assert_eq!((why.reason, why.turn.unwrap().queues_ahead), (limit(None), 0));
}

#[test]
fn a_quota_that_another_user_gets_first() {
    let mut farm = farm_of(4);
    farm.tell(set_queue(QueueRecord { quota_cpu: Some(100), ..QueueRecord::named("q") }));
    let of =
        |user: &str| JobSpec { user: user.to_owned(), ..spec("q", [StepSpec { tasks: 2, ..step(1, 0) }]) };
    let ann = farm.submit(of("ann"));
    let bob = farm.submit(of("bob"));
    let users_ahead = |job: JobId, index: u32| {
        let why = farm.why(task(job, index));
        assert_eq!(why.reason, Reason::Quota { quota_cpu: 100, booked_cpu: 100 });
        why.turn.unwrap().users_ahead
    };
    assert_eq!(users_ahead(ann, 1) + users_ahead(bob, 0), 1, "one of them is first");
}

#[test]
fn a_start_says_what_it_is_allowed_to_hold() {
    let mut farm = Farm::new(Settings::default());
    worker(&mut farm, "w", 4, 8 * GIB, None);
    farm.submit(spec("q", [step(1, GIB), StepSpec { name: "free".to_owned(), ..step(1, 0) }]));
    let limits: Vec<_> = farm
        .take()
        .sends
        .iter()
        .filter_map(|send| match &send.command {
            WorkerCommand::Start { memory_limit, .. } => Some(*memory_limit),
            _ => None,
        })
        .collect();
    assert_eq!(limits, [Some(GIB), None]);
}

fn limited(tasks: u32) -> StepSpec {
    StepSpec { tasks, limits: ["maya".to_owned()].into(), ..step(1, 0) }
}

#[test]
fn a_paused_queue() {
    let mut farm = farm_of(2);
    farm.tell(set_queue(QueueRecord { paused: Some("backup".to_owned()), ..QueueRecord::named("q") }));
    let job = farm.submit(spec("q", [step(1, 0)]));
    let why = farm.why(task(job, 0));
    assert_eq!(why.reason, Reason::Paused("backup".to_owned()));
    assert_eq!(why.turn.as_ref().unwrap().starts, None, "room alone does not start it");
    let Change::Resume(queue) = &why.changes[0].change else { panic!("{why:?}") };
    assert_eq!(queue, "q");
    farm.tell(set_queue(QueueRecord::named("q")));
    assert!(is_placed(&farm, job, 0));
}

#[test]
fn a_worker_that_holds_all_of_a_limit_that_it_may() {
    let mut farm = farm_of(4);
    worker(&mut farm, "other", 1, GIB, Some("gpu"));
    let each = |max| Limit { per_worker: Some(max), ..Limit::default() };
    farm.tell(set_limit("maya", each(1)));
    let job = farm.submit(spec("q", [StepSpec { targets: ["w".to_owned()].into(), ..limited(3) }]));
    let full = Ineligible::Limit { name: "maya".to_owned(), max: 1 };
    let why = farm.why(task(job, 1));
    assert_eq!((&why.reason, unmet(&why)), (&Reason::Closed(full.clone()), &[full][..]));
    farm.tell(set_limit("maya", each(2)));
    assert!(is_placed(&farm, job, 1) && !is_placed(&farm, job, 2));
    farm.end(task(job, 0), 0);
    assert!(is_placed(&farm, job, 2), "what is given back is there for the next");
}

#[test]
fn a_busy_licence() {
    let mut farm = farm_of(2);
    let limit = Limit { busy: Some(Busy { exits: [11].into(), back_off_ms: 20_000 }), ..Limit::of(5) };
    farm.tell(set_limit("maya", limit.clone()));
    let job = farm.submit(spec("q", [limited(1)]));
    farm.end(task(job, 0), 11);
    let why = farm.why(task(job, 0));
    let until = farm.now.after(20 * NS_PER_S);
    assert_eq!(why.reason, Reason::BackOff { name: "maya".to_owned(), until, times: 1 });
    assert_eq!(why.changes[0].change, Change::TryAgain("maya".to_owned(), 20_000));
    farm.pass(19);
    assert!(!is_placed(&farm, job, 0));
    farm.tell(set_limit("maya", limit));
    assert!(is_placed(&farm, job, 0), "who sets the limit has it tried at once");
}
