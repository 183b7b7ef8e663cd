//! How many workers of each class are wanted, and why.

use crate::kit::{Farm, GIB, REQUEST, cores, hello, set_limit, set_queue, spec, step, task};
use std::collections::BTreeSet;
use windlass_core::engine::{Event, Hello, Processes, Reply, Settings, Submit};
use windlass_core::job::{Hints, JobSpec, Jobserver, StepSpec};
use windlass_core::licences::Limit;
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures, Stall};
use windlass_core::plan::PlanSettings;
use windlass_core::queues::QueueRecord;
use windlass_core::scaling::{
    ClassScaling, DeclaredClass, Scaling, ScalingSettings, startable_machines, survey,
};
use windlass_core::tags::{Attributes, MACHINE_CLASS, Need};
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, Resources, WorkerId};

fn asked(farm: &Farm) -> Scaling {
    survey(&farm.engine, &ScalingSettings::default())
}

fn declared(farm: &Farm, classes: &[DeclaredClass]) -> Scaling {
    survey(&farm.engine, &ScalingSettings { declared: classes.to_vec(), ..ScalingSettings::default() })
}

fn class(name: &str, of_cores: u32, max: u32) -> DeclaredClass {
    DeclaredClass { name: name.to_owned(), capacity: cores(of_cores), max, ..DeclaredClass::default() }
}

/// The one class of a farm whose workers are alike.
fn only(scaling: &Scaling) -> &ClassScaling {
    let [class] = &scaling.classes[..] else { panic!("{scaling:?}") };
    class
}

fn named<'a>(scaling: &'a Scaling, name: &str) -> &'a ClassScaling {
    scaling.classes.iter().find(|class| class.name == name).unwrap_or_else(|| panic!("{name}: {scaling:?}"))
}

fn tagged(name: &str, class: &str, of_cores: u32) -> Hello {
    let attributes = Attributes::from([(MACHINE_CLASS.to_owned(), BTreeSet::from([class.to_owned()]))]);
    Hello { attributes, ..hello(name, cores(of_cores)) }
}

/// Tasks of one core that take this many seconds, as their time limit says.
fn lasting(tasks: u32, seconds: u64) -> StepSpec {
    StepSpec { time_limit_ms: Some(seconds * 1_000), ..step(tasks, cores(1)) }
}

#[test]
fn a_running_build_leaves_no_room_in_the_cpu_that_it_uses() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(8)]);
    let hints = Hints { jobserver: Some(Jobserver::Auto), ..Hints::default() };
    farm.submit(spec("q", [StepSpec { hints, ..step(7, Resources::new(10, 0)) }]));
    assert_eq!(only(&asked(&farm)).wanted, 1);
    // Of these seven run in what is not booked, and seven wait. One after the other they take a quarter as many slots.
    farm.submit(spec("q", [lasting(14, 75)]));
    assert_eq!((only(&asked(&farm)).tasks, only(&asked(&farm)).wanted), (7, 2));
}

/// It books a tenth of a cpu, and waits only where no worker has that.
#[test]
fn a_waiting_build_counts_with_the_cpus_that_it_will_use() {
    let wanted = |hints: &Hints| {
        let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
        farm.submit(spec("q", [step(1, cores(4))]));
        let hints = hints.clone();
        farm.submit(spec("q", [StepSpec { hints, ..step(6, Resources::new(10, 0)) }]));
        only(&asked(&farm)).wanted
    };
    let auto = Hints { jobserver: Some(Jobserver::Auto), ..Hints::default() };
    assert_eq!((wanted(&Hints::default()), wanted(&auto)), (2, 3), "a cpu each");
    assert_eq!(wanted(&Hints { cpus_max: Some(200), ..auto.clone() }), 4);
    assert_eq!(wanted(&Hints { cpus_max: Some(6_400), ..auto }), 7, "no more than a worker has");
}

/// A task that waits for its turn at the cpus of a build starts at once on another worker.
#[test]
fn a_build_that_has_long_used_all_that_it_is_given_leaves_no_room_for_what_waits() {
    // The worker says nothing for a minute, and is there all the same.
    let plan = PlanSettings { suspect_ns: 100 * NS_PER_S, ..PlanSettings::default() };
    let settings = Settings { plan, lease_ns: None, ..Settings::default() };
    let mut farm = Farm::with_workers(settings, [cores(4)]);
    let hints = Hints { jobserver: Some(Jobserver::Auto), ..Hints::default() };
    let build = task(farm.submit(spec("red", [StepSpec { hints, ..step(1, Resources::new(10, 0)) }])), 0);
    let by = farm.report(build);
    farm.tell(Event::Started { by, at: farm.now });
    let said = Processes { share: 4, used: 4, is_held_back: false };
    farm.tell(Event::Processes { worker: WorkerId(1), task: build, attempt: 1, said });
    let blue = farm.submit(spec("blue", [lasting(3, 300)]));
    assert_eq!((only(&asked(&farm)).tasks, only(&asked(&farm)).wanted), (1, 1));
    for index in 0..2 {
        let by = farm.report(task(blue, index));
        farm.tell(Event::Started { by, at: farm.now });
    }
    // It uses what the others leave.
    let said = Processes { share: 2, used: 2, is_held_back: false };
    farm.tell(Event::Processes { worker: WorkerId(1), task: build, attempt: 1, said });
    farm.pass(61);
    assert_eq!((only(&asked(&farm)).tasks, only(&asked(&farm)).wanted), (1, 2));
}

#[test]
fn tasks_of_unknown_length_have_a_slot_each() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
    farm.submit(spec("q", [step(100, cores(1))]));
    let scaling = asked(&farm);
    let class = only(&scaling);
    assert_eq!((&*class.name, class.here, class.busy, class.wanted, class.spare), ("4cpus", 1, 1, 25, 0));
    assert_eq!((class.tasks, class.unknown_tasks, class.tasks_at_a_time, class.work_ms), (96, 96, 96, 0));
    assert_eq!(
        class.reason(scaling.target_wait_ms),
        "96 tasks wait, to run for an unknown time; 96 at a time start all within 5 min; 1 of 1 workers run something"
    );
}

#[test]
fn short_tasks_share_slots_so_that_the_last_one_starts_within_the_target() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
    farm.submit(spec("q", [lasting(100, 10)]));
    // 100 tasks of 10 s are 1000 s of work: four slots for 300 s are enough.
    assert_eq!(only(&asked(&farm)).wanted, 1);
    farm.submit(spec("q", [lasting(100, 30)]));
    // With 3000 s more ten slots would be, and fourteen take four workers.
    let scaling = asked(&farm);
    let class = only(&scaling);
    assert_eq!((class.wanted, class.tasks, class.unknown_tasks), (4, 196, 0));
    assert_eq!(class.work_ms, 960_000 + 3_000_000);
}

/// A task of the length of the target, or of more, has a slot for itself however many of them run.
#[test]
fn what_runs_for_longer_than_the_target_leaves_no_room() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4), cores(4)]);
    farm.submit(spec("q", [lasting(8, 3_600)]));
    let scaling = asked(&farm);
    assert_eq!((only(&scaling).wanted, only(&scaling).tasks), (2, 0));
    assert_eq!(only(&scaling).reason(scaling.target_wait_ms), "nothing waits; 2 of 2 workers run something");
    farm.submit(spec("q", [lasting(40, 30)]));
    assert_eq!(only(&asked(&farm)).wanted, 3, "4 slots for 1200 s of work");
}

#[test]
fn the_size_of_the_backlog_changes_the_number_and_not_the_work() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
    farm.checks = false;
    farm.submit(spec("q", [step(1_000_000, cores(1))]));
    assert_eq!(only(&asked(&farm)).wanted, 100_000, "no farm has more workers");
}

#[test]
fn workers_that_run_nothing_and_are_not_wanted_are_named() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(2), cores(2), cores(2)]);
    let job = farm.submit(spec("q", [step(3, cores(2))]));
    assert_eq!((only(&asked(&farm)).wanted, only(&asked(&farm)).spare), (3, 0));
    let one = farm.engine.attempt(task(job, 0)).expect("it runs").worker;
    farm.end(task(job, 0), 0);
    let scaling = asked(&farm);
    let class = only(&scaling);
    let name = farm.engine.workers().get(one).map(|worker| worker.record.name.clone());
    assert_eq!((class.wanted, class.spare, class.spare_workers.first()), (2, 1, name.as_ref()));
    // One that is drained is not counted, and what it runs is not either.
    farm.tell(Event::Drain { request: REQUEST, worker: one, draining: true, note: None });
    let scaling = asked(&farm);
    assert_eq!((only(&scaling).here, only(&scaling).wanted, only(&scaling).spare), (2, 2, 0));
}

/// One that takes no work leaves what waits to others, and goes first.
#[test]
fn a_worker_that_takes_no_work_does_not_count_as_room() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1), cores(1)]);
    farm.tell(Event::Lost { worker: WorkerId(1) });
    assert_eq!((only(&asked(&farm)).wanted, only(&asked(&farm)).unusable), (0, 1));
    farm.submit(spec("q", [step(2, cores(1))]));
    let scaling = asked(&farm);
    let class = only(&scaling);
    assert_eq!((class.here, class.busy, class.unusable, class.wanted), (2, 1, 1, 3));
    assert!(class.reason(300_000).contains("1 of 2 workers run something, and 1 of the others take no work"));
}

#[test]
fn a_declared_class_is_told_from_nothing_and_within_its_bounds() {
    let mut farm = Farm::new(Settings::default());
    farm.submit(spec("q", [step(100, cores(2))]));
    let small = DeclaredClass { min: 2, ..class("small", 1, 9) };
    let scaling = declared(&farm, &[class("big", 64, 3), class("mid", 8, 5), small]);
    let of = |name: &str| (named(&scaling, name).here, named(&scaling, name).wanted);
    // 20 tasks fit the five of the smaller class, and the next class has the others.
    assert_eq!((of("small"), of("mid"), of("big")), ((0, 2), (0, 5), (0, 3)));
    assert!(named(&scaling, "mid").is_at_max && !named(&scaling, "big").is_at_max);
    assert_eq!((named(&scaling, "mid").tasks, named(&scaling, "big").tasks), (100, 0));
    assert_eq!(scaling.unrunnable.tasks, 0);
    assert!(named(&scaling, "mid").reason(300_000).ends_with("; the class has at most 5 workers"));
    assert_eq!(
        named(&scaling, "big").reason(300_000),
        "of the tasks that count for other classes 80 at a time have room here; 0 of 0 workers run something"
    );
    assert_eq!(
        named(&scaling, "small").reason(300_000),
        "nothing waits; 0 of 0 workers run something, and at least 2 are kept"
    );
}

#[test]
fn what_a_declared_class_could_run_is_not_what_no_worker_could_run() {
    let mut farm = Farm::new(Settings::default());
    let settings = ScalingSettings { declared: vec![class("c", 4, 2)], ..ScalingSettings::default() };
    let startable = startable_machines(&settings);
    let unplaceable = |farm: &mut Farm, step: StepSpec| {
        let startable = startable.clone();
        let submit = |request| Submit { startable, ..Submit::new(request, spec("q", [step])) };
        let request = farm.ask(|request| Event::Submit(Box::new(submit(request))));
        let Reply::Submitted { unplaceable, .. } = &farm.replies[&request] else { panic!("it is refused") };
        unplaceable.len()
    };
    let gang = |nodes: u32| StepSpec { nodes: Some(nodes), ..step(nodes, cores(4)) };
    assert_eq!(unplaceable(&mut farm, step(9, cores(4))), 0);
    assert_eq!(unplaceable(&mut farm, step(1, cores(5))), 1);
    assert_eq!((unplaceable(&mut farm, gang(2)), unplaceable(&mut farm, gang(3))), (0, 1));
    farm.join(tagged("a", "c", 4));
    assert_eq!(unplaceable(&mut farm, gang(3)), 0, "two besides the one that is there");
}

/// It has free cpus that nothing gets: other programs use them, or it is under pressure.
#[test]
fn work_behind_a_worker_that_gets_no_more_wants_another_one() {
    let some = Some(Stall { avg10: 60.0, ..Stall::default() });
    let memory = Some(Pressure { some, full: None });
    let pressed =
        LoadReport { machine: Pressures { memory, ..Pressures::default() }, ..LoadReport::default() };
    let used = LoadReport { cpu_foreign: Some(4.0), ..LoadReport::default() };
    for report in [pressed, used] {
        let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
        farm.tell(Event::Load { worker: WorkerId(1), report: Box::new(report) });
        farm.submit(spec("q", [step(3, cores(1))]));
        let scaling = asked(&farm);
        let class = only(&scaling);
        assert_eq!((class.busy, class.tasks, class.confined, class.wanted), (1, 2, 1, 2));
        let reason = class.reason(300_000);
        assert!(reason.ends_with("1 of 1 workers run something, of which 1 get no more for now"), "{reason}");
    }
}

#[test]
fn a_declared_class_has_the_tags_that_are_said_of_it() {
    let mut farm = Farm::new(Settings::default());
    farm.join(tagged("a", "plain", 4));
    let needs = vec![Need::parse("ssd"), Need::parse("class=fast")];
    farm.submit(spec("q", [StepSpec { needs, ..step(3, cores(4)) }]));
    let attributes = Attributes::from([("ssd".to_owned(), BTreeSet::new())]);
    let fast = DeclaredClass { attributes, ..class("fast", 4, 9) };
    let scaling = declared(&farm, &[fast, class("plain", 4, 9)]);
    assert_eq!((named(&scaling, "fast").wanted, named(&scaling, "plain").wanted), (3, 0));
    assert_eq!(scaling.unrunnable.classes, 0);
    let scaling = declared(&farm, &[class("fast", 4, 9)]);
    assert_eq!((scaling.unrunnable.classes, scaling.unrunnable.tasks), (1, 3), "no worker has that tag");
}

#[test]
fn workers_that_there_are_come_before_further_ones() {
    let mut farm = Farm::new(Settings::default());
    farm.join(hello("old", cores(8)));
    farm.join(tagged("a", "cloud", 2));
    farm.submit(spec("q", [step(10, cores(1))]));
    farm.submit(spec("q", [StepSpec { name: "short".to_owned(), ..lasting(120, 10) }]));
    // All ten cores are taken by tasks of unknown length, and four slots are wanted besides.
    let scaling = asked(&farm);
    assert_eq!((named(&scaling, "cloud").wanted, named(&scaling, "8cpus").wanted), (3, 1));
    assert!(!named(&scaling, "8cpus").grows);
    for index in 0..8 {
        farm.end(task(JobId(1), index), 0);
    }
    // The tasks that run now end soon, so their worker has room for the rest.
    let scaling = asked(&farm);
    assert_eq!((named(&scaling, "cloud").wanted, named(&scaling, "8cpus").wanted), (1, 1), "{scaling:?}");
}

#[test]
fn what_no_worker_could_run_is_told_apart() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
    let wide = farm.submit(spec("q", [step(7, cores(8))]));
    let targets = BTreeSet::from(["w1".to_owned()]);
    farm.submit(spec("q", [StepSpec { targets, ..step(9, cores(4)) }]));
    let scaling = asked(&farm);
    assert_eq!((scaling.unrunnable.classes, scaling.unrunnable.tasks), (1, 7));
    assert_eq!(scaling.unrunnable.jobs, [wide]);
    // Further workers have other names.
    assert_eq!((scaling.bound_tasks, only(&scaling).wanted), (8, 1));
}

#[test]
fn work_that_more_workers_would_not_start_wants_none() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    farm.submit(spec("q", [step(1, cores(1))]));
    farm.tell(set_queue(QueueRecord { quota_cpu: Some(300), ..QueueRecord::named("quota") }));
    farm.tell(set_queue(QueueRecord { paused: Some(String::new()), ..QueueRecord::named("paused") }));
    farm.tell(set_limit("licence", Limit::of(2)));
    farm.submit(spec("quota", [step(50, cores(1))]));
    assert_eq!(only(&asked(&farm)).wanted, 4, "three cpus of the quota");
    farm.submit(spec("quota", [step(50, cores(2))]));
    let scaling = asked(&farm);
    assert_eq!((only(&scaling).wanted, scaling.blocked_tasks, scaling.unrunnable.classes), (4, 97, 0));
    farm.submit(spec("paused", [step(50, cores(1))]));
    assert_eq!(only(&asked(&farm)).wanted, 4);
    let limits = BTreeSet::from(["licence".to_owned()]);
    farm.submit(spec("q", [StepSpec { limits, ..step(50, cores(1)) }]));
    assert_eq!(only(&asked(&farm)).wanted, 6, "two licences");
    farm.submit(spec("q", [StepSpec { max_running: Some(1), ..step(50, cores(1)) }]));
    assert_eq!(only(&asked(&farm)).wanted, 7);
    farm.submit(JobSpec { max_running: Some(2), ..spec("q", [step(50, cores(1))]) });
    assert_eq!(only(&asked(&farm)).wanted, 9);
    let held = farm.submit(spec("q", [step(50, cores(1))]));
    assert_eq!(only(&asked(&farm)).wanted, 59);
    farm.tell(Event::Hold { request: REQUEST, job: held, held: true });
    assert_eq!(only(&asked(&farm)).wanted, 9);
    assert_eq!(asked(&farm).paused_tasks, 100, "of a paused queue and of a held job");
}

#[test]
fn tasks_beyond_max_running_are_told_as_blocked() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
    farm.submit(spec("q", [StepSpec { max_running: Some(1), ..step(5, cores(1)) }]));
    farm.submit(JobSpec { max_running: Some(2), ..spec("q", [step(9, cores(1))]) });
    let scaling = asked(&farm);
    assert_eq!((only(&scaling).wanted, only(&scaling).tasks, scaling.blocked_tasks), (1, 0, 4 + 7));
    // The caps are not reached, and let two of the nine start.
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    farm.submit(spec("q", [step(1, cores(1))]));
    farm.submit(JobSpec { max_running: Some(2), ..spec("q", [step(9, cores(1))]) });
    let scaling = asked(&farm);
    assert_eq!((only(&scaling).wanted, only(&scaling).tasks, scaling.blocked_tasks), (3, 2, 7));
}

#[test]
fn a_limit_of_each_worker_and_a_gang_take_a_worker_for_each_task() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
    farm.tell(set_limit("port", Limit { per_worker: Some(1), ..Limit::default() }));
    let limits = BTreeSet::from(["port".to_owned()]);
    let job = farm.submit(spec("q", [StepSpec { limits, ..step(3, cores(1)) }]));
    assert_eq!(only(&asked(&farm)).wanted, 3);
    (0..3).for_each(|index| farm.end(task(job, index), 0));
    farm.submit(spec("q", [StepSpec { nodes: Some(3), ..step(3, cores(1)) }]));
    assert_eq!((only(&asked(&farm)).wanted, only(&asked(&farm)).tasks), (3, 3));
}

#[test]
fn a_gang_has_idle_workers_of_other_classes_first() {
    let mut farm = Farm::new(Settings::default());
    for name in ["a", "b", "c"] {
        farm.join(tagged(name, "big", 2));
    }
    farm.submit(spec("q", [StepSpec { nodes: Some(4), ..step(4, cores(1)) }]));
    let scaling = declared(&farm, &[class("small", 1, 9)]);
    let of = |name: &str| (named(&scaling, name).here, named(&scaling, name).wanted);
    assert_eq!((of("big"), of("small")), ((3, 3), (0, 1)));
    assert_eq!((named(&scaling, "big").spare, named(&scaling, "small").tasks), (0, 4));
}

#[test]
fn parked_jobs_count() {
    let mut farm = Farm::new(Settings { cache_steps: 4, ..Settings::default() });
    for _ in 0..40 {
        farm.submit(spec("q", [step(1, cores(1))]));
    }
    assert!(farm.engine.subqueues().away().ready > 20, "most of them are in the store alone");
    let scaling = declared(&farm, &[class("c", 4, 99)]);
    assert_eq!((only(&scaling).tasks, only(&scaling).wanted), (40, 10));
}

#[test]
fn a_class_offers_what_its_workers_have_in_common() {
    let mut farm = Farm::new(Settings::default());
    let tags = |host: &str, more: &[&str]| -> Attributes {
        let tags = more.iter().map(|tag| ((*tag).to_owned(), BTreeSet::new()));
        let own = |key: &str, value: &str| (key.to_owned(), BTreeSet::from([value.to_owned()]));
        tags.chain([own("host", host), own("arch", "arm")]).collect()
    };
    let memory = |gib: u64| Resources::new(400, gib * GIB - GIB / 4);
    farm.join(Hello { attributes: tags("a", &["ssd", "x"]), ..hello("a", memory(16)) });
    farm.join(Hello { attributes: tags("b", &["ssd"]), ..hello("b", Resources::new(400, 16 * GIB)) });
    let scaling = asked(&farm);
    assert_eq!((&*only(&scaling).name, only(&scaling).here), ("arm-4cpus-16GiB", 2));
    assert_eq!(only(&scaling).capacity, memory(16));
    farm.submit(spec("q", [StepSpec { needs: vec![Need::parse("ssd")], ..step(3, cores(4)) }]));
    assert_eq!(only(&asked(&farm)).wanted, 3);
    farm.submit(spec("q", [StepSpec { needs: vec![Need::parse("x")], ..step(3, cores(4)) }]));
    assert_eq!((only(&asked(&farm)).wanted, asked(&farm).bound_tasks), (3, 3));
}

#[test]
fn classes_are_bounded_however_many_sizes_workers_have() {
    let mut farm = Farm::with_workers(Settings::default(), (1..=40).map(cores));
    let scaling = asked(&farm);
    let here: u32 = scaling.classes.iter().map(|class| class.here).sum();
    assert_eq!((scaling.classes.len(), here, named(&scaling, "other").here), (33, 40, 8));
    farm.submit(spec("q", [step(1_000, cores(33))]));
    assert!(!named(&asked(&farm), "other").grows);
    // A name that answers use for something else is not a class.
    farm.join(tagged("x", "none", 50));
    assert_eq!(named(&asked(&farm), "other").here, 9);
}
