//! What placement promises, judged by a farm that runs what the engine sends it.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{self, Farm, GIB, cores, hello, set_limit, set_queue, spec, task};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::cache_keys::{CacheKeys, Reads};
use windlass_core::class::Class;
use windlass_core::engine::{Engine, Event, Hello, Settings};
use windlass_core::explain::Reason;
use windlass_core::explain::Word;
use windlass_core::ids::{ClassId, StepKey};
use windlass_core::job::{Hints, Kind, Step, StepSpec};
use windlass_core::licences::Limit;
use windlass_core::load::formula::LoadSettings;
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures, Stall};
use windlass_core::plan::placement::{self, MatchContext, PlacementOutcome, PlacementRequest, Reservation};
use windlass_core::plan::{PlanSettings, Policy};
use windlass_core::queues::QueueRecord;
use windlass_core::score::context::{InstanceContext, JobContext};
use windlass_core::score::policy::{POLICIES, policy_by_name};
use windlass_core::tags::{Attributes, Need};
use windlass_core::time::NS_PER_S;
use windlass_core::workers::WorkerSummary;
use windlass_core::{JobId, Resources, TaskId, Time, WorkerId};

/// It prefers no worker.
static NONE: BTreeSet<String> = BTreeSet::new();

/// Its workers say nothing of starts. What they say is charged earlier and changes the order of turns, and a wide task
/// waits longer where the order brings a backfilled task that outlasts its prediction.
fn live(farm: Farm) -> LiveFarm {
    let mut farm = LiveFarm::of(farm);
    farm.says_start = false;
    farm
}

fn random_farm(settings: Settings, workers: Vec<(Resources, Attributes)>) -> LiveFarm {
    let mut farm = live(Farm::new(settings));
    for (n, worker) in (1..).zip(workers) {
        join(&mut farm, n, worker);
    }
    farm
}

fn join(farm: &mut LiveFarm, n: u32, (capacity, attributes): (Resources, Attributes)) -> WorkerId {
    farm.join(Hello { attributes, ..hello(&format!("w{n}"), capacity) })
}

/// The shortest and the longest run time of its tasks, in seconds.
fn step(name: &str, tasks: u32, request: Resources, (least_s, most_s): (u8, u8)) -> StepSpec {
    let body = run((least_s.into(), most_s.into()), 0);
    StepSpec { name: name.to_owned(), body, ..kit::step(tasks, request) }
}

/// Tasks of 64 cores in a stream of tasks of one core, some short and some long, on sixteen workers of 64 cores.
#[test]
fn wide_tasks_start_when_what_ran_on_their_worker_has_ended_and_the_farm_stays_busy() {
    let mut farm = live(Farm::with_workers(Settings::default(), vec![Resources::new(6_400, 256 * GIB); 16]));
    farm.checks = false;
    farm.accept(spec("short", [step("short", 100_000, cores(1), (3, 9))]));
    farm.accept(spec("long", [step("long", 100_000, cores(1), (30, 90))]));
    farm.settle();
    farm.advance(200);
    let ready = farm.now;
    let before = farm.starts.len();
    farm.accept(spec("wide", [step("wide", 2, cores(64), (60, 60))]));
    farm.settle();
    farm.busy_ns = 0;
    // When a worker is reserved, what runs there and when the last of it ends.
    let mut bounds: BTreeMap<WorkerId, Time> = BTreeMap::new();
    let mut starts: BTreeSet<TaskId> = BTreeSet::new();
    while starts.len() < 2 && farm.now.since(ready) < 1_000 * NS_PER_S {
        farm.advance(1);
        let held: Vec<WorkerId> =
            farm.engine.planner().reservations().holders().map(|(worker, _)| worker).collect();
        for worker in held {
            let there = farm.ends.iter().filter(|(_, run)| run.by.worker == worker);
            bounds.entry(worker).or_insert(there.map(|((at, _), _)| *at).max().unwrap_or(farm.now));
        }
        for start in farm.starts_of(before, "wide") {
            if starts.insert(start.task) {
                let (task, at) = (start.task, start.at);
                let bound = bounds.remove(&start.worker).expect("its worker was reserved");
                assert!(at <= bound, "{task} starts {} s late", at.since(bound) / NS_PER_S);
                println!("{task} starts {} s after it was ready", at.since(ready) / NS_PER_S);
            }
        }
    }
    assert_eq!(starts.len(), 2);
    let capacity = u128::from(farm.now.since(ready)) * 102_400;
    let busy = 100.0 * farm.busy_ns as f64 / capacity as f64;
    println!("{busy:.1} % of cpus busy meanwhile");
    assert!(busy >= 95.0, "{busy:.1} % of cpus busy meanwhile");
}

#[test]
fn no_more_workers_are_reserved_than_may_be_and_all_get_theirs_in_the_end() {
    let mut settings = Settings::default();
    settings.plan.reserve.holders_max = 2;
    let mut farm = live(Farm::with_workers(settings, vec![Resources::new(800, 64 * GIB); 6]));
    farm.checks = false;
    farm.accept(spec("stream", [step("stream", 100_000, cores(1), (10, 40))]));
    farm.settle();
    farm.advance(100);
    let of = |n: u64| spec(&format!("wide{n}"), [step("wide", 1, Resources::new(800, n * GIB), (5, 5))]);
    let wide: Vec<JobId> = (0..5).map(|n| farm.accept(of(n))).collect();
    farm.settle();
    let mut most = 0;
    for _ in 0..600 {
        farm.advance(1);
        most = most.max(farm.engine.planner().reservations().holders().count());
    }
    assert_eq!(most, 2);
    assert!(wide.iter().all(|job| farm.starts.iter().any(|start| start.task == task(*job, 0))));
}

/// A worker of eight cores. Half of it runs for 100 s by its time limit, and wide work of that many cores waits behind
/// it: the worker is reserved for it, as soon as a first narrow task has overtaken it.
fn with_reservation(wide_cores: u32) -> LiveFarm {
    let mut settings = Settings::default();
    settings.plan.reserve.after_ns = 0;
    let mut farm = live(Farm::with_workers(settings, vec![Resources::new(800, 64 * GIB)]));
    farm.accept(spec("base", [limited("base", 4, 100, Some(100))]));
    farm.settle();
    farm.accept(spec("wide", [step("wide", 1, cores(wide_cores), (5, 5))]));
    farm.advance(1);
    farm.accept(spec("first", [step("first", 1, cores(1), (2, 2))]));
    farm.advance(4);
    assert_eq!(farm.engine.planner().reservations().holders().count(), 1, "the wide work has the worker");
    farm
}

fn limited(name: &str, of_cores: u32, runs_s: u8, limit_s: Option<u64>) -> StepSpec {
    StepSpec { time_limit_ms: limit_s.map(|s| s * 1_000), ..step(name, 1, cores(of_cores), (runs_s, runs_s)) }
}

fn is_started(farm: &mut LiveFarm, step: StepSpec) -> bool {
    let name = step.name.clone();
    let job = farm.accept(spec(&name, [step]));
    farm.settle();
    farm.starts.iter().any(|start| start.task == task(job, 0))
}

#[test]
fn a_time_limit_lets_a_first_task_go_before_a_reservation() {
    let mut farm = with_reservation(8);
    assert!(!is_started(&mut farm, limited("unknown", 1, 10, None)), "it may run for ever");
    assert!(
        !is_started(&mut farm, limited("long", 1, 10, Some(200))),
        "it may run when the wide task could start"
    );
    assert!(is_started(&mut farm, limited("short", 1, 10, Some(60))), "nothing like it ever ran");
    farm.advance(100);
    let wide = farm.starts_of(0, "wide").next().expect("it starts");
    assert_eq!(wide.at.since(farm.starts[0].at), 100 * NS_PER_S, "nothing delayed it");
}

#[test]
fn what_fits_beside_the_holder_of_a_reservation_may_run_as_long_as_it_likes() {
    let mut farm = with_reservation(6);
    // Of eight cores two are left beside the six.
    assert!(is_started(&mut farm, limited("one", 1, 200, None)));
    assert!(!is_started(&mut farm, limited("two", 2, 200, None)), "one core is left");
    assert!(is_started(&mut farm, limited("another", 1, 200, None)));
    assert!(!is_started(&mut farm, limited("late", 1, 200, None)));
    farm.advance(100);
    let wide = farm.starts_of(0, "wide").next().expect("it starts");
    assert_eq!(wide.at.since(farm.starts[0].at), 100 * NS_PER_S, "nothing delayed it");
}

#[test]
fn expected_starts_are_kept_where_lengths_are_known() {
    let mut farm = live(Farm::with_workers(Settings::default(), vec![cores(4); 3]));
    let id = farm.accept(spec("q", [step("even", 60, cores(1), (10, 10))]));
    farm.settle();
    farm.advance(13);
    let expected: Vec<(TaskId, Time)> = (24..36)
        .filter_map(|index| {
            let task = task(id, index);
            Some((task, windlass_core::explain::task(&farm.engine, task)?.turn?.starts?))
        })
        .collect();
    assert_eq!(expected.len(), 12, "lengths are known after the first tasks");
    farm.advance(20);
    let started: BTreeMap<TaskId, Time> = farm.starts.iter().map(|start| (start.task, start.at)).collect();
    for (task, expected) in expected {
        assert_eq!(started[&task], expected, "{task}");
    }
}

/// A step that is like the one before it is not judged. One that differs in a single thing still wins.
#[test]
fn a_worker_gets_the_step_of_the_queue_that_suits_it_best() {
    let step = |name: &str| StepSpec { name: name.to_owned(), ..kit::step(1, cores(1)) };
    let hurried = || StepSpec { hints: Hints { deadline_ms: Some(1_000), ..Hints::default() }, ..step("d") };
    for (last, is_preferred) in [(step("d"), false), (step("warm"), true), (hurried(), true)] {
        let mut farm = Farm::with_workers(Settings::default(), vec![cores(2)]);
        let [_, other] = ["warm", "other"].map(|name| farm.submit(spec("q", [step(name)])));
        let steps = [step("a"), step("b"), step("c"), last];
        let jobs = steps.map(|step| farm.accept(spec("q", [step])));
        farm.pass(10);
        farm.end(task(other, 0), 0);
        let placed: Vec<bool> = jobs.iter().map(|job| farm.is_placed(task(*job, 0))).collect();
        assert_eq!(placed, [!is_preferred, false, false, is_preferred]);
    }
}

/// What a round knows of rivals counts for several bookings, and the one that is preferred may be used up by the first.
#[test]
fn a_rival_without_further_tasks_is_passed_over_in_the_same_round() {
    let named = |name: &str, tasks, cpus| StepSpec { name: name.to_owned(), ..kit::step(tasks, cores(cpus)) };
    let mut farm = Farm::with_workers(Settings::default(), vec![cores(4)]);
    let [_, wide] = [named("warm", 1, 1), named("wide", 1, 3)].map(|step| farm.submit(spec("q", [step])));
    let [first, warm] = [named("a", 2, 1), named("warm", 1, 1)].map(|step| farm.accept(spec("q", [step])));
    farm.pass(10);
    farm.end(task(wide, 0), 0);
    assert!([task(first, 0), task(first, 1), task(warm, 0)].iter().all(|task| farm.is_placed(*task)));
}

fn random_worker() -> impl Strategy<Value = (Resources, Attributes)> {
    (1u32..9, 1u64..17, 0u8..3).prop_map(|(cores, gib, kind)| {
        let attributes = Attributes::from([("kind".to_owned(), BTreeSet::from([kind.to_string()]))]);
        (Resources::new(cores * 100, gib * GIB), attributes)
    })
}

/// Steps of which some fit nowhere: no worker is of kind 3, none has twelve cores.
fn random_step() -> impl Strategy<Value = StepSpec> {
    let cpu = prop_oneof![4 => 1u32..9, 1 => 12u32..13];
    (cpu, 0u64..9, prop::option::of(0u8..4), 1u32..9, (1u8..4, 0u8..6), prop::option::of(0u8..2)).prop_map(
        |(halves, gib, kind, tasks, (least_s, more_s), limit)| StepSpec {
            needs: kind.map(|kind| Need::parse(&format!("kind={kind}"))).into_iter().collect(),
            limits: limit.map(|limit| format!("l{limit}")).into_iter().collect(),
            ..step(
                &format!("s{halves}-{gib}"),
                tasks,
                Resources::new(halves * 50, gib * GIB),
                (least_s, least_s + more_s),
            )
        },
    )
}

fn random_load() -> impl Strategy<Value = LoadReport> {
    let stall = |percent: Option<u8>| {
        let stall = percent.map(|percent| Stall { avg10: percent.into(), ..Stall::default() });
        stall.map(|stall| Pressure { some: Some(stall), full: None })
    };
    let percent = || prop::option::of(0u8..101);
    (percent(), percent(), prop::option::of(0u8..9), prop::option::of(0u64..16), prop::option::of(0u64..8))
        .prop_map(move |(memory, io, foreign, available, own)| LoadReport {
            machine: Pressures { cpu: None, memory: stall(memory), io: stall(io) },
            cpu_foreign: foreign.map(f64::from),
            memory_available: available.map(|gib| gib * GIB),
            memory_own: own.map(|gib| gib * GIB),
            ..LoadReport::default()
        })
}

fn settings(policy: usize) -> Settings {
    let load = LoadSettings { pressure: true, stale_ns: 3_600 * NS_PER_S, ..LoadSettings::default() };
    let policy = Policy(policy_by_name(POLICIES[policy]).0);
    let plan = PlanSettings { policy, load, suspect_ns: 360_000 * NS_PER_S, ..PlanSettings::default() };
    Settings { plan, lease_ns: None, ..Settings::default() }
}

/// Every step of active jobs that has ready tasks.
fn ready(engine: &Engine) -> impl Iterator<Item = (StepKey, &Step)> {
    let steps =
        engine.jobs().flat_map(|job| (0u16..).zip(&job.steps).map(move |(n, step)| (job.id, n, step)));
    steps.filter(|(.., step)| !step.ready.is_empty()).map(|(job, step, of)| (StepKey { job, step }, of))
}

/// What is asked in each pause of a random farm without reports and quotas.
fn nothing_idles(engine: &Engine) -> Result<(), TestCaseError> {
    let reserved: BTreeSet<WorkerId> =
        engine.planner().reservations().holders().map(|(worker, _)| worker).collect();
    let mut no_fit = 0;
    for (key, step) in ready(engine) {
        let class = engine.class_of(key).expect("a step has a class");
        let could = engine.workers().present().any(|worker| placement::eligible_when_idle(class, worker));
        let task = task(key.job, step.ready.first().expect("it has ready tasks"));
        let reason = windlass_core::explain::task(engine, task).expect("it is explained").reason;
        if !could {
            no_fit += u64::from(step.ready.len());
            prop_assert_eq!(&reason, &Reason::FitsNowhere);
        }
        let taken = |name: &String| {
            let (max, taken) = (
                engine.licences().limits().get(name),
                engine.licences().taken().get(name).copied().unwrap_or(0),
            );
            max.and_then(|limit| limit.max).is_some_and(|max| taken >= max)
        };
        let waits_for_others = step.enlisted.is_none() || class.limits.iter().any(taken);
        let mut open = engine
            .workers()
            .iter()
            .filter(|worker| placement::fits_now(class, worker) && !reserved.contains(&worker.record.id));
        if let Some(worker) = open.next().filter(|_| !waits_for_others) {
            return Err(TestCaseError::fail(format!(
                "{task} waits, and {} has room: {reason:?}",
                worker.record.name
            )));
        }
    }
    let said = windlass_core::explain::waiting_tasks(engine).get(&Word::FitsNowhere).copied().unwrap_or(0);
    // Tasks that are held back for reasons of their own are counted there.
    prop_assert!(said <= no_fit);
    if engine.licences().limits().is_empty() {
        prop_assert_eq!(said, no_fit);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_queue_never_idles_the_farm(
        policy in 0usize..POLICIES.len(),
        workers in prop::collection::vec(random_worker(), 1..7),
        jobs in prop::collection::vec(prop::collection::vec(random_step(), 1..4), 1..8),
        queues in 1u8..3,
        limit in prop::option::of(0u32..4),
    ) {
        let mut farm = random_farm(settings(policy), workers);
        if let Some(max) = limit {
            farm.hear(set_limit("l0", Limit::of(max)));
        }
        for (number, steps) in jobs.into_iter().enumerate() {
            let mut steps = steps;
            steps.iter_mut().enumerate().for_each(|(place, step)| step.name += &format!("-{place}"));
            farm.accept(spec(&format!("q{}", number % usize::from(queues)), steps));
            farm.settle();
            nothing_idles(&farm.engine)?;
            farm.advance(7);
            nothing_idles(&farm.engine)?;
        }
        farm.advance(200);
        nothing_idles(&farm.engine)?;
        prop_assert_eq!(farm.engine.check(), Ok(()));
        // All that fits somewhere, and whose licences there are, has run.
        let left = ready(&farm.engine).filter(|(key, _)| {
            let class = farm.engine.class_of(*key).expect("a step has a class");
            let could = farm.engine.workers().iter().any(|worker| placement::eligible_when_idle(class, worker));
            could && !(limit == Some(0) && class.limits.contains("l0"))
        });
        prop_assert_eq!(left.count(), 0);
    }

    #[test]
    fn a_quota_is_kept_and_is_the_reason(
        workers in prop::collection::vec(random_worker(), 1..5),
        steps in prop::collection::vec(random_step(), 1..4),
        quota in 1u32..8,
    ) {
        let mut farm = random_farm(settings(1), workers);
        let queue = QueueRecord { quota_cpu: Some(quota * 100), ..QueueRecord::named("q") };
        farm.hear(set_queue(queue));
        for (number, mut step) in steps.into_iter().enumerate() {
            step.name += &format!("-{number}");
            farm.accept(spec("q", [step]));
            farm.settle();
            farm.advance(2);
            let held = farm.engine.queues().by_name().find(|q| q.name() == "q").map_or(0, |q| q.booked_cpu);
            prop_assert!(held <= u64::from(quota) * 100);
            for (key, step) in ready(&farm.engine) {
                let task = task(key.job, step.ready.first().expect("it has ready tasks"));
                let reason = farm.why(task).reason;
                prop_assert!(reason != Reason::Turn, "{task} waits for its turn after a round");
            }
        }
    }

    /// Who is held is never chosen, and never in the way of who is not; what is chosen is the best of all.
    #[test]
    fn no_score_out_votes_a_hold_and_no_hold_blocks_the_next(
        policy in 0usize..POLICIES.len(),
        workers in prop::collection::vec((random_worker(), prop::option::of(random_load()), prop::option::of(any::<bool>())), 1..12),
        reserved in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(0u64..20)), 0..3),
        busy in prop::collection::vec(random_step(), 0..4),
        asked in random_step(),
        (reads, evaluation, predicted_s, waited_s) in (any::<bool>(), any::<bool>(), prop::option::of(1u64..20), 0u64..40),
        spare_cpu in prop_oneof![Just(0u32), 50u32..400],
    ) {
        let mut farm = live(Farm::new(settings(policy)));
        for (n, (worker, load, cache)) in (1..).zip(workers) {
            let worker = join(&mut farm, n, worker);
            if let Some(warm) = cache {
                let keys: Vec<String> = warm.then(|| "k".to_owned()).into_iter().collect();
                let keys = CacheKeys::of(keys.iter());
                farm.hear(Event::Caches { worker, keys });
            }
            if let Some(load) = load {
                farm.hear(Event::Load { worker, report: Box::new(load) });
            }
        }
        if !busy.is_empty() {
            let steps = busy.into_iter().enumerate().map(|(n, step)| StepSpec { name: n.to_string(), ..step });
            farm.accept(spec("q", steps.collect::<Vec<_>>()));
            farm.settle();
        }
        let all: Vec<WorkerId> = farm.engine.workers().iter().map(|worker| worker.record.id).collect();
        let reserved: BTreeMap<WorkerId, Reservation> = reserved.into_iter().map(|(index, starts_s)| {
            let starts = starts_s.map(|s| farm.now.after(s * NS_PER_S));
            let spare = Resources::new(spare_cpu, 64 * GIB);
            (*index.get(&all), Reservation { class: ClassId(7), band: 3, starts, spare })
        }).collect();
        let class = Class { request: asked.request.clone(), needs: asked.needs.clone(), ..Class::default() };
        let hints = Hints { kind: if evaluation { Kind::Evaluation } else { Kind::Build }, ..Hints::default() };
        let reads = Reads::of(&reads.then(|| ("k".to_owned(), Some(GIB))).into_iter().collect());
        let mut context = JobContext::of(&hints, false, (&class.request).into());
        context.waited_ms = waited_s * 1_000;
        let ask = PlacementRequest {
            avoids: None,
            step: StepKey { job: JobId(99), step: 0 },
            class_id: ClassId(0),
            band: 3,
            class: &class,
            job: context,
            reads: &reads,
            profile: 0,
            longest_ms: predicted_s.map(|s| s as f64 * 1e3),
            others_wait: false,
            locality: true,
            prefers: &NONE,
            turn: None,
        };
        let context = MatchContext {
            now: farm.now,
            workers: farm.engine.workers(),
            reserved: &reserved,
            policy: farm.engine.planner().policy(),
            instance: &InstanceContext::default(),
            known: None,
        key_bytes: None,
        };
        // Judged by what the rules say one by one, and by the reservation as it is meant.
        let ends = predicted_s.map(|s| farm.now.after(s * NS_PER_S));
        let delays = |id: &WorkerId| {
            let starts = reserved.get(id).map(|reserved| reserved.starts);
            let met = starts.is_some_and(|starts| ends.zip(starts).is_none_or(|(ends, starts)| ends > starts));
            met && !class.request.fits(&Resources::new(spare_cpu, 64 * GIB))
        };
        let fitting: Vec<_> = context.workers.iter().filter(|worker| placement::fits_now(&class, worker)).collect();
        for worker in context.workers.iter() {
            let says = |now| placement::ineligibilities(&class, worker, now).next().is_none();
            prop_assert_eq!(placement::fits_now(&class, worker), says(true));
            prop_assert_eq!(placement::eligible_when_idle(&class, worker), placement::ineligibilities(&class, worker, false).all(|why| !why.is_lasting()));
        }
        let open = fitting.iter().filter(|worker| !delays(&worker.record.id)).filter_map(|worker| {
            let seen = WorkerSummary::of(worker, context.workers.load_settings());
            let load = worker.load_with(class.request.cpu, context.workers.load_settings());
            let breakdown = context.policy.detail(&context.pair(&ask, worker, seen.context(), load));
            breakdown.holds().next().is_none().then_some((worker.record.id, breakdown.total))
        });
        let open: BTreeMap<WorkerId, f64> = open.collect();
        let best = open.values().copied().fold(f64::NEG_INFINITY, f64::max);
        match placement::place_task(&ask, &context, None) {
            PlacementOutcome::Best(ranked) => {
                prop_assert_eq!(open.get(&ranked[0].worker), Some(&best));
                prop_assert!(ranked.iter().all(|ranked| open.contains_key(&ranked.worker)));
            }
            PlacementOutcome::Vetoed(..) => prop_assert!(open.is_empty() && !fitting.is_empty()),
            PlacementOutcome::NoRoom => prop_assert!(fitting.is_empty()),
        }
    }
}
