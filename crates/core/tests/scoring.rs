//! Every numeric vector of Gradient's rules, and where ours are repaired, why.

use windlass_core::cache_keys::{CacheKeys, Missing, Reads, missing};
use windlass_core::job::{Hints, Jobserver, Kind};
use windlass_core::score::context::{Amounts, InstanceContext, JobContext, Pair, WorkerContext};
use windlass_core::score::history::Prediction;
use windlass_core::score::policy::{Verdict, packing, policy_by_name};
use windlass_core::score::rule::Contribution;
use windlass_core::score::windows::{Metric, Windowed};
use windlass_core::worker::Saturation;

const MIB: u64 = 1 << 20;
const UNKNOWN_SIZE: Option<u64> = None;

/// A build that needs an architecture, on a worker of which nothing is known, on a farm without history.
#[derive(Clone, Copy, Default)]
struct Case {
    job: JobContext,
    worker: WorkerContext,
    farm: InstanceContext,
    missing: Option<Missing>,
    step_cpu: u32,
    warmth: f64,
    others_wait: bool,
    load: f64,
}

impl Case {
    fn new(change: impl FnOnce(&mut Case)) -> Case {
        let mut case = Case::default();
        case.job.has_arch = true;
        case.worker.has_arch = true;
        case.missing = Some(Missing::default());
        change(&mut case);
        case
    }

    fn and(mut self, change: impl FnOnce(&mut Case)) -> Case {
        change(&mut self);
        self
    }

    fn pair(&self) -> Pair<'_> {
        Pair {
            job: &self.job,
            worker: &self.worker,
            instance: &self.farm,
            missing: self.missing,
            step_cpu: self.step_cpu,
            warmth: self.warmth,
            others_wait: self.others_wait,
            load: self.load,
        }
    }

    fn hour(&mut self, metric: Metric, mean: f64) {
        self.farm.windows.set(metric, Windowed { w1h: Some(mean), ..Windowed::default() });
    }

    fn day(&mut self, metric: Metric, mean: f64) {
        self.farm.windows.set(metric, Windowed { w24h: Some(mean), ..Windowed::default() });
    }

    fn says(&self, rule: &str) -> Contribution {
        let policies = ["resource-aware", "pressure", "packing"].map(|name| policy_by_name(name).0);
        let mut rules = policies.iter().flat_map(|policy| policy.rules());
        rules.find(|r| r.name() == rule).unwrap().contribution(&self.pair())
    }

    /// The points of a rule that does not hold.
    fn points(&self, rule: &str) -> f64 {
        match self.says(rule) {
            Contribution::Points { value, .. } => value,
            Contribution::Veto { reason } => panic!("{rule} holds: {reason}"),
        }
    }

    fn is_held(&self, rule: &str) -> bool {
        matches!(self.says(rule), Contribution::Veto { .. })
    }
}

fn lacks(keys: u32) -> Option<Missing> {
    Some(Missing { keys, bytes: 0 })
}

fn fetches(bytes: u64) -> Option<Missing> {
    Some(Missing { keys: 1, bytes })
}

fn predicts(change: impl FnOnce(&mut Prediction)) -> Option<Prediction> {
    let mut prediction = Prediction { samples: 5, ..Prediction::default() };
    change(&mut prediction);
    Some(prediction)
}

fn predicts_mib(mib: u64) -> Option<Prediction> {
    predicts(|p| p.peak_memory = Some(mib * MIB))
}

#[test]
fn missing_keys() {
    let case = Case::new(|c| c.hour(Metric::MissingKeys, 10.0));
    let points = |missing| case.and(|c| c.missing = missing).points("MissingPathsRule");
    assert_eq!(points(lacks(0)), 200.0);
    assert_eq!(points(None), 0.0);
    assert!(points(lacks(2)) > points(lacks(10)));
    assert_eq!((points(lacks(10)), points(lacks(20)), points(lacks(u32::MAX))), (100.0, 0.0, 0.0));
    // A farm that missed nothing of late: a bonus for lacking nothing, and none for anything.
    let none = Case::new(|c| c.hour(Metric::MissingKeys, 0.0));
    assert_eq!(none.points("MissingPathsRule"), 200.0);
    assert_eq!(none.and(|c| c.missing = lacks(1)).points("MissingPathsRule"), 0.0);
    // Without history a mean step lacks 20.
    assert_eq!(Case::new(|c| c.missing = lacks(20)).points("MissingPathsRule"), 100.0);
}

#[test]
fn missing_bytes() {
    let case = Case::new(|c| c.hour(Metric::MissingBytes, (100 * MIB) as f64));
    let points = |missing| case.and(|c| c.missing = missing).points("MissingNarSizeRule");
    assert_eq!(points(None), 0.0);
    assert_eq!(points(fetches(0)), 500.0);
    assert_eq!((points(fetches(100 * MIB)), points(fetches(100 << 30))), (250.0, 0.0));
    assert_eq!(Case::new(|c| c.missing = fetches(1 << 30)).points("MissingNarSizeRule"), 250.0);
    assert_eq!(case.and(|c| c.hour(Metric::MissingBytes, 0.0)).points("MissingNarSizeRule"), 500.0);
}

#[test]
fn keys_of_unknown_size_are_no_bargain() {
    // Repaired: Gradient counts an unknown size as nothing, so that 40 unknown keys (550 points with the
    // bonus for an architecture) beat one known GiB (495).
    let unknown = (0..40).map(|i| (format!("k{i}"), UNKNOWN_SIZE));
    let (unknown, one) =
        (Reads::of(&unknown.collect()), Reads::of(&[("big".to_owned(), Some(1 << 30))].into()));
    let held = CacheKeys::default();
    let total = |reads| {
        let case = Case::new(|c| c.missing = Some(missing(reads, &held, None)));
        match policy_by_name("simple").0.score(&case.pair()) {
            Verdict::Score(score) => score,
            Verdict::Vetoed { reason, .. } => panic!("{reason}"),
        }
    };
    assert_eq!(total(&one), 495.0);
    assert_eq!(total(&unknown), 50.0);
    let mean = Some(3 * MIB);
    assert_eq!(missing(&unknown, &held, mean), Missing { keys: 40, bytes: 120 * MIB });
    let held = CacheKeys::of(["k0".to_owned(), "big".to_owned()].iter());
    assert_eq!(missing(&unknown, &held, mean), Missing { keys: 39, bytes: 117 * MIB });
    assert_eq!(missing(&one, &held, mean), Missing::default());
    assert_eq!(missing(&Reads::default(), &held, mean), Missing::default());
}

#[test]
fn builds_without_architecture_yield() {
    let points = |change: fn(&mut Case)| Case::new(change).points("BuiltinDeprioritizeRule");
    assert_eq!(points(|_| ()), 50.0);
    assert_eq!(points(|c| c.worker.has_arch = false), 50.0);
    assert_eq!(points(|c| c.job.has_arch = false), 0.0);
    let neither = |c: &mut Case| (c.job.has_arch, c.worker.has_arch) = (false, false);
    assert_eq!(points(neither), 100.0);
    assert_eq!(points(|c| c.job.kind = Kind::Evaluation), 0.0);
}

#[test]
fn dependents() {
    let case = Case::new(|c| c.hour(Metric::Dependents, 10.0));
    let points = |dependents| case.and(|c| c.job.dependents = dependents).points("DependencyCountRule");
    assert_eq!((points(0.0), points(1.0), points(15.0), points(100_000.0)), (0.0, 2.5, 37.5, 50.0));
    assert_eq!(Case::new(|c| c.job.dependents = 1.0).points("DependencyCountRule"), 2.5);
    let none = case.and(|c| c.hour(Metric::Dependents, 0.0));
    assert_eq!(none.points("DependencyCountRule"), 0.0);
    assert_eq!(none.and(|c| c.job.dependents = 1.0).points("DependencyCountRule"), 50.0);
    let evaluation = case.and(|c| (c.job.kind, c.job.dependents) = (Kind::Evaluation, 9.0));
    assert_eq!(evaluation.points("DependencyCountRule"), 0.0);
}

#[test]
fn waiting_counts_against_a_deadline() {
    let points = |waited_s: u64, deadline_ms| {
        let change = |c: &mut Case| (c.job.waited_ms, c.job.deadline_ms) = (waited_s * 1_000, deadline_ms);
        Case::new(change).points("WaitTimeRule")
    };
    assert_eq!((points(0, None), points(60, None), points(10_000, None)), (0.0, 60.0, 4_000.0));
    assert!(points(10_000, None) > 1_140.0);
    assert_eq!((points(60, Some(30_000)), points(600, Some(6_000_000))), (120.0, 6.0));
    // Repaired: Gradient measures by the farm's mean wait. A mean of zero made any wait worth 4000, and a
    // farm that is late throughout gave 60 for being as late as all.
    for mean in [0.0, 3_600.0] {
        let change = |c: &mut Case| (c.job.waited_ms, ()) = (60_000, c.hour(Metric::WaitS, mean));
        assert_eq!(Case::new(change).points("WaitTimeRule"), 60.0);
    }
    // A measured zero: nobody may wait.
    assert_eq!((points(0, Some(0)), points(1, Some(0))), (0.0, 4_000.0));
}

#[test]
fn unknown_caches_hold_for_20_seconds() {
    // Repaired: Gradient counts rescoring rounds of 5 s, up to 4.
    let held = |missing, waited_ms, kind| {
        Case::new(|c| (c.missing, c.job.waited_ms, c.job.kind) = (missing, waited_ms, kind))
            .is_held("RescoreWaitRule")
    };
    assert!(held(None, 0, Kind::Build));
    assert!(held(None, 19_999, Kind::Build));
    assert!(!held(None, 20_000, Kind::Build));
    assert!(!held(lacks(10), 0, Kind::Build));
    assert!(!held(None, 0, Kind::Evaluation));
}

#[test]
fn workers_that_fetch_are_kept() {
    let case = Case::new(|c| (c.job.kind, c.worker.fetches) = (Kind::Evaluation, true));
    let points = |idle, total| {
        case.and(|c| (c.farm.idle_workers, c.farm.total_workers) = (idle, total))
            .points("ReserveFetchWorkersRule")
    };
    assert_eq!((points(0, 4), points(1, 4), points(4, 4), points(0, 0)), (-300.0, -225.0, 0.0, -300.0));
    for change in [
        (|c| c.worker.fetches = false) as fn(&mut Case),
        |c| c.job.fetches = true,
        |c| c.job.kind = Kind::Build,
    ] {
        assert_eq!(case.and(change).points("ReserveFetchWorkersRule"), 0.0);
    }
}

#[test]
fn memory_overshoot() {
    let case = Case::new(|c| c.worker.memory_free = Some(1_000 * MIB));
    let points = |mib| case.and(|c| c.job.prediction = predicts_mib(mib)).points("ResourceFitRule");
    assert_eq!((points(1_000), points(1_500), points(3_000), points(9_000)), (0.0, -200.0, -800.0, -800.0));
    let doomed = case.and(|c| {
        c.job.prediction = predicts(|p| (p.peak_memory, p.oom_rate) = (Some(9_000 * MIB), 1.0));
        c.hour(Metric::OomRate, 1.0);
    });
    assert_eq!(doomed.points("ResourceFitRule"), -3_200.0);
    let eval = case.and(|c| (c.job.kind, c.job.prediction) = (Kind::Evaluation, predicts_mib(40_000)));
    assert!(eval.and(|c| c.worker.memory_free = Some(16_000 * MIB)).points("ResourceFitRule") < 0.0);
    assert_eq!(eval.and(|c| c.worker.memory_free = Some(64_000 * MIB)).points("ResourceFitRule"), 0.0);
    assert_eq!(eval.and(|c| c.worker.memory_free = None).points("ResourceFitRule"), 0.0);
    // Repaired: Gradient makes an exception of a worker with nothing free, and gives it no points off.
    assert_eq!(eval.and(|c| c.worker.memory_free = Some(0)).points("ResourceFitRule"), -800.0);
    assert_eq!(case.points("ResourceFitRule"), 0.0, "nothing is known of a step without samples");
}

#[test]
fn core_speed_is_relative() {
    // Repaired: Gradient divides by 1000 whatever the farm, where today's slowest cores score thousands.
    let case = Case::new(|c| {
        c.job.prediction = predicts(|p| p.cpu_ms = Some(120_000.0));
        c.farm.core_score = Some(1_000.0);
    });
    let points = |score| case.and(|c| c.worker.core_score = score).points("ResourceFitRule");
    assert_eq!((points(Some(1_500.0)), points(Some(100_000.0)), points(None)), (75.0, 100.0, 0.0));
    let modern = case.and(|c| (c.worker.core_score, c.farm.core_score) = (Some(6_000.0), Some(8_000.0)));
    assert_eq!(modern.points("ResourceFitRule"), 37.5);
    let light = modern.and(|c| c.job.prediction = predicts(|p| p.cpu_ms = Some(60_000.0)));
    assert_eq!(light.points("ResourceFitRule"), 0.0);
    assert_eq!(modern.and(|c| c.farm.core_score = Some(0.0)).points("ResourceFitRule"), 0.0);
    let build = modern.and(|c| c.job.has_jobserver = true);
    assert_eq!(build.points("ResourceFitRule"), 0.0, "it goes where its share is largest");
}

/// A worker of 16 cores and 16000 MiB of which others use `percent` percent of the cores.
fn busy(percent: f64, change: impl FnOnce(&mut Case)) -> Case {
    let case = Case::new(|c| {
        c.worker.capacity = Amounts { cpu: 1_600, memory: 16_000 * MIB, ..Amounts::default() };
        c.worker.foreign_cpu = Some(percent * 0.16);
        c.job.request.cpu = 100;
    });
    case.and(change)
}

const SATURATION: &str = "ResourceSaturationRule";

#[test]
fn saturation_by_others_holds() {
    // Repaired throughout: Gradient's HEAD takes 1000 points off, which other rules can out-vote. And its
    // measure is the whole machine's use, so that a worker which our own tasks fill gets nothing more.
    assert!(busy(95.0, |_| ()).is_held(SATURATION));
    assert!(busy(80.0, |_| ()).is_held(SATURATION));
    assert_eq!(busy(79.0, |_| ()).points(SATURATION), 0.0);
    assert!(busy(85.0, |_| ()).is_held(SATURATION));
    assert!(!busy(85.0, |c| c.job.has_arch = false).is_held(SATURATION));
    assert!(busy(90.0, |c| c.job.has_arch = false).is_held(SATURATION));
    assert!(!busy(95.0, |c| c.job.kind = Kind::Evaluation).is_held(SATURATION));
    assert!(
        !busy(95.0, |c| c.job.has_jobserver = true).is_held(SATURATION),
        "its tokens follow what is left"
    );
    assert!(!busy(95.0, |c| c.job.request.cpu = 0).is_held(SATURATION), "what it is part of holds the cpu");
    assert!(!busy(95.0, |c| c.worker.foreign_cpu = None).is_held(SATURATION));
    for no_number in [f64::INFINITY, f64::NAN, -1.0] {
        assert!(
            !busy(0.0, |c| c.worker.foreign_cpu = Some(no_number)).is_held(SATURATION),
            "that is unknown"
        );
    }
    let own = busy(0.0, |c| c.worker.booked = c.worker.capacity);
    assert!(!own.is_held(SATURATION), "a full booking of tasks does not count");
}

#[test]
fn under_pressure_processors_of_others_rank_and_do_not_hold() {
    // Where others use all workers' cores, a hold would keep the farm idle for as long as they do.
    let (policy, _) = policy_by_name("pressure");
    let verdict = |case: &Case| policy.score(&case.pair());
    assert!(matches!(verdict(&busy(100.0, |_| ())), Verdict::Score(_)));
    let short = busy(100.0, |c| c.worker.memory_available = Some(0));
    assert!(matches!(verdict(&short), Verdict::Vetoed { rule: "MemorySaturationRule", .. }));
    let predicted = busy(0.0, |c| {
        (c.job.prediction, c.worker.memory_free) = (predicts_mib(10_000), Some(8_000 * MIB));
    });
    assert!(matches!(verdict(&predicted), Verdict::Vetoed { rule: "MemorySaturationRule", .. }));
}

#[test]
fn scarce_memory_holds_what_would_take_more() {
    let scarce = |available, change: fn(&mut Case)| {
        busy(10.0, |c| c.worker.memory_available = available).and(change).is_held(SATURATION)
    };
    let mib = |mib: u64| Some(mib * MIB);
    assert!(scarce(mib(800), |_| ()));
    assert!(!scarce(mib(8_000), |_| ()));
    assert!(!scarce(None, |_| ()));
    assert!(scarce(Some(0), |_| ()), "zero is a measurement");
    assert!(scarce(mib(1_600), |_| ()), "a tenth is too little");
    assert!(!scarce(mib(800), |c| c.job.kind = Kind::Evaluation));
    // Repaired: it may be our own tasks that hold the memory, as they should. What is known to fit goes.
    assert!(!scarce(mib(800), |c| c.job.request.memory = 800 * MIB));
    assert!(scarce(mib(800), |c| c.job.request.memory = 801 * MIB));
    assert!(!scarce(mib(800), |c| {
        (c.job.request.memory, c.job.prediction) = (2_000 * MIB, predicts_mib(100));
    }));
}

#[test]
fn predicted_memory_holds() {
    let held = |free: Option<u64>, change: fn(&mut Case)| {
        let case = busy(10.0, |c| c.job.prediction = predicts_mib(10_000));
        case.and(|c| c.worker.memory_free = free.map(|mib| mib * MIB)).and(change).is_held(SATURATION)
    };
    assert!(held(Some(8_000), |_| ()));
    assert!(held(Some(10_999), |_| ()));
    assert!(!held(Some(11_000), |_| ()));
    assert!(!held(Some(12_000), |_| ()));
    assert!(!held(None, |_| ()));
    assert!(held(Some(0), |_| ()));
    assert!(!held(Some(8_000), |c| c.job.prediction = None));
    // Gradient takes 2000 off for both reasons; one hold is enough.
    assert!(held(Some(8_000), |c| c.worker.foreign_cpu = Some(15.9)));
    // Repaired: what is killed for memory is killed, whatever its kind.
    assert!(held(Some(8_000), |c| c.job.kind = Kind::Evaluation));
    // A floor is exact, without a margin.
    let floor = |c: &mut Case| c.job.prediction = predicts(|p| p.memory_floor = Some(8_000 * MIB));
    assert!(!held(Some(8_000), floor) && held(Some(7_999), floor));
}

#[test]
fn what_fits_nowhere_gets_the_largest_worker_alone() {
    let case = busy(0.0, |c| {
        c.job.prediction = predicts_mib(40_000);
        c.job.largest_memory = Some(16_000 * MIB);
        c.worker.memory_free = Some(15_500 * MIB);
    });
    assert!(!case.is_held(SATURATION));
    assert!(case.and(|c| c.worker.booked.memory = 1).is_held(SATURATION));
    assert!(case.and(|c| c.job.largest_memory = Some(32_000 * MIB)).is_held(SATURATION));
    assert!(case.and(|c| c.job.largest_memory = None).is_held(SATURATION));
    assert!(case.and(|c| c.job.largest_memory = Some(64_000 * MIB)).is_held(SATURATION));
}

#[test]
fn network() {
    let case = Case::new(|c| (c.job.network_bound, c.worker.network_mbit_s) = (true, Some(50.0)));
    let points = |change: fn(&mut Case)| case.and(change).points("NetworkAffinityRule");
    assert_eq!(points(|_| ()), 40.0);
    assert_eq!(points(|c| c.job.network_bound = false), 0.0);
    assert_eq!(points(|c| c.worker.network_mbit_s = None), 0.0);
    assert_eq!(points(|c| c.day(Metric::NetworkMbitS, 10.0)), 80.0);
    assert_eq!(points(|c| c.day(Metric::NetworkMbitS, 0.0)), 80.0);
    // Repaired: Gradient's 0 of 0 is NaN, and that counts as the full 80.
    let neither =
        |c: &mut Case| (c.worker.network_mbit_s, ()) = (Some(0.0), c.day(Metric::NetworkMbitS, 0.0));
    assert_eq!(points(neither), 0.0);
}

#[test]
fn disk() {
    let points = |mib: u64, change: fn(&mut Case)| {
        let case = Case::new(|c| {
            c.job.prediction = predicts(|p| p.disk_bytes = Some((mib * MIB) as f64));
            c.worker.disk_mb_s = Some(500.0);
        });
        case.and(change).points("DiskAffinityRule")
    };
    assert_eq!((points(500, |_| ()), points(1, |_| ())), (60.0, 0.0));
    assert_eq!(points(500, |c| c.worker.disk_mb_s = Some(100.0)), 12.0);
    assert_eq!(points(500, |c| c.worker.disk_mb_s = None), 0.0);
    assert_eq!(points(500, |c| c.job.prediction = None), 0.0);
    assert_eq!(points(500, |c| c.job.has_jobserver = true), 0.0, "it goes where its share is largest");
    assert!(points(50, |c| c.day(Metric::DiskBytes, (10 * MIB) as f64)) > 0.0);
    assert_eq!(points(50, |_| ()), 0.0);
}

#[test]
fn prefer_local() {
    let points = |keys, mean: Option<f64>| {
        let case = Case::new(|c| (c.job.prefer_local, c.missing) = (true, keys));
        let case = mean.map_or(case, |mean| case.and(|c| c.hour(Metric::MissingKeys, mean)));
        case.points("PreferLocalBuildRule").round()
    };
    assert_eq!([0, 2, 100].map(|keys| points(lacks(keys), None)), [150.0, 110.0, 0.0]);
    assert_eq!([10, 5].map(|keys| points(lacks(keys), Some(5.0))), [0.0, 75.0]);
    assert_eq!((points(lacks(2), Some(0.0)), points(None, None)), (110.0, 0.0));
    assert_eq!(Case::new(|_| ()).points("PreferLocalBuildRule"), 0.0);
}

#[test]
fn what_runs_or_ran_here() {
    assert_eq!(Case::new(|c| c.step_cpu = 1).points("LiveLocalityRule"), 150.0);
    assert_eq!(Case::new(|_| ()).points("LiveLocalityRule"), 0.0);
    assert_eq!(
        [0.0, 0.25, 1.0, 7.0].map(|w| Case::new(|c| c.warmth = w).points("CacheWarmthRule")),
        [0.0, 25.0, 100.0, 100.0]
    );
}

#[test]
fn one_step_holds_a_quarter_while_others_wait() {
    let points = |step_cpu, cpu, others_wait| {
        let case =
            busy(0.0, |c| (c.step_cpu, c.job.request.cpu, c.others_wait) = (step_cpu, cpu, others_wait));
        case.points("SpreadRule")
    };
    assert_eq!((points(300, 100, true), points(301, 100, true)), (0.0, -300.0));
    assert_eq!(points(1_500, 100, false), 0.0, "it alone waits");
    assert_eq!(points(0, 1_600, true), 0.0, "the first goes anywhere");
    // It draws more than running and warm caches attract, or it would not spread anything.
    let warm =
        busy(0.0, |c| (c.step_cpu, c.job.request.cpu, c.others_wait, c.warmth) = (800, 100, true, 1.0));
    let drawn = ["LiveLocalityRule", "CacheWarmthRule", "SpreadRule"].map(|rule| warm.points(rule));
    assert!(drawn.iter().sum::<f64>() < 0.0);
}

#[test]
fn least_load_wins() {
    let points = |load| Case::new(|c| c.load = load).points("PressureRule");
    assert_eq!([0.0, 1.0, 3.0, f64::INFINITY, f64::NAN].map(points), [1_000.0, 500.0, 250.0, 0.0, 0.0]);
}

#[test]
fn packing_cost() {
    let half_gpu = Case::new(|c| {
        c.worker.capacity = Amounts { cpu: 400, memory: 8_000, gpus: 2, gpu_memory: 1_000 };
        c.worker.booked = Amounts { cpu: 100, memory: 0, gpus: 1, gpu_memory: 0 };
        c.job.request = Amounts { cpu: 100, memory: 2_000, gpus: 1, gpu_memory: 500 };
    });
    let e = |x: f64| x.exp();
    let parts = [e(0.5) - e(0.25), e(0.25) - 1.0, 4.0 * (e(1.0) - e(0.5)), e(0.5) - 1.0];
    let cost =
        |signs: [f64; 4]| -100.0 * parts.iter().zip(signs).map(|(part, sign)| part * sign).sum::<f64>();
    let score = |cores, memory| {
        let policy = packing(Saturation { cores, memory });
        match policy.score(&half_gpu.pair()) {
            Verdict::Score(score) => score,
            Verdict::Vetoed { reason, .. } => panic!("{reason}"),
        }
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} and {b}");
    near(score(false, false), cost([1.0, 1.0, 1.0, 1.0]));
    near(score(true, false), cost([-1.0, 1.0, 1.0, 1.0]));
    near(score(false, true), cost([1.0, -1.0, 1.0, 1.0]));
    near(score(true, true), cost([-1.0, -1.0, 1.0, 1.0]));
    // The emptier worker costs less; with saturation the fuller one does.
    let fuller = half_gpu.and(|c| c.worker.booked.cpu = 200);
    assert!(fuller.points("PackingRule") < half_gpu.points("PackingRule"));
    let build = half_gpu.and(|c| c.job.has_jobserver = true);
    assert_eq!(build.points("PackingRule"), 0.0, "it goes where its share is largest");
}

#[test]
fn a_job_context_says_what_the_step_says() {
    let hints = Hints {
        kind: Kind::Evaluation,
        network_bound: true,
        prefer_local: true,
        fetches: true,
        deadline_ms: Some(7),
        jobserver: Some(Jobserver::Pipes),
        ..Hints::default()
    };
    let request = Amounts { cpu: 100, ..Amounts::default() };
    let expected = JobContext {
        kind: Kind::Evaluation,
        has_arch: true,
        network_bound: true,
        prefer_local: true,
        fetches: true,
        has_jobserver: true,
        deadline_ms: Some(7),
        request,
        ..JobContext::default()
    };
    assert_eq!(JobContext::of(&hints, true, request), expected);
}
