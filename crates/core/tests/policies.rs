//! What holds of every policy and every rule, whatever numbers they are given.

use proptest::prelude::*;
use std::collections::BTreeSet;
use windlass_core::cache_keys::Missing;
use windlass_core::job::Kind;
use windlass_core::score::context::{Amounts, InstanceContext, JobContext, Pair, WorkerContext};
use windlass_core::score::history::Prediction;
use windlass_core::score::policy::{
    DEFAULT_POLICY, FREE_MEMORY, POLICIES, ScoringPolicy, Verdict, packing, policy_by_name, rule_catalog,
    winner,
};
use windlass_core::score::rule::Contribution;
use windlass_core::score::windows::{InstanceWindows, Metric, Windowed};
use windlass_core::worker::Saturation;

fn names(policy: &str) -> Vec<&'static str> {
    policy_by_name(policy).0.rules().iter().map(|rule| rule.name()).collect()
}

#[test]
fn names_are_a_contract() {
    // They are recorded with every decision: a name that changes makes history unreadable.
    let simple = [
        "RescoreWaitRule",
        "MissingPathsRule",
        "MissingNarSizeRule",
        "DependencyCountRule",
        "WaitTimeRule",
        "BuiltinDeprioritizeRule",
        "ReserveFetchWorkersRule",
    ];
    assert_eq!(names("simple"), simple);
    let more = [
        "ResourceFitRule",
        "PreferLocalBuildRule",
        "NetworkAffinityRule",
        "DiskAffinityRule",
        "LiveLocalityRule",
        "CacheWarmthRule",
        "SpreadRule",
    ];
    assert_eq!(names("resource-aware"), [&["ResourceSaturationRule"], &simple[..], &more].concat());
    assert_eq!(names("pressure"), ["MemorySaturationRule", "PressureRule", "WaitTimeRule"]);
    assert_eq!(names("packing"), ["ResourceSaturationRule", "PackingRule", "WaitTimeRule"]);
}

#[test]
fn policies_by_name() {
    for name in POLICIES {
        let (policy, known) = policy_by_name(name);
        assert_eq!((policy.name(), known), (name, true));
    }
    let (policy, known) = policy_by_name("no-such");
    assert_eq!((policy.name(), known), (DEFAULT_POLICY, false));
    assert_eq!(packing(Saturation { cores: true, memory: false }).name(), "packing");
}

#[test]
fn the_catalog_has_each_rule_once() {
    let catalog: Vec<&str> = rule_catalog().into_iter().map(|(name, _)| name).collect();
    let free_memory = FREE_MEMORY.rules().iter().map(|rule| rule.name());
    let all: BTreeSet<&str> = POLICIES.iter().flat_map(|policy| names(policy)).chain(free_memory).collect();
    assert_eq!(catalog, all.into_iter().collect::<Vec<_>>());
    assert!(!catalog.contains(&"FairShareRule"), "fairness is whose turn it is");
    assert!(rule_catalog().iter().all(|(_, description)| description.ends_with('.')));
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..1e6f64,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324]),
    ]
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..1u64 << 36]
}

fn cpu() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(u32::MAX), 0..10_000u32]
}

fn amounts() -> impl Strategy<Value = Amounts> {
    (cpu(), 0..5u32, bytes(), bytes()).prop_map(|(cpu, gpus, memory, gpu_memory)| Amounts {
        cpu,
        gpus,
        memory,
        gpu_memory,
    })
}

fn maybe<T: Strategy>(of: T) -> impl Strategy<Value = Option<T::Value>>
where
    T::Value: Clone,
{
    prop::option::of(of)
}

fn predictions() -> impl Strategy<Value = Prediction> {
    (maybe(bytes()), maybe(bytes()), maybe(number()), maybe(number()), number(), any::<u32>()).prop_map(
        |(peak_memory, memory_floor, cpu_ms, disk_bytes, oom_rate, samples)| Prediction {
            peak_memory,
            memory_floor,
            cpu_ms,
            wall_ms: cpu_ms,
            disk_bytes,
            oom_rate,
            samples,
        },
    )
}

fn jobs() -> impl Strategy<Value = JobContext> {
    let flags = any::<[bool; 7]>();
    (flags, bytes(), maybe(bytes()), number(), amounts(), maybe(bytes()), maybe(predictions())).prop_map(
        |(flags, waited_ms, deadline_ms, dependents, request, largest_memory, prediction)| JobContext {
            kind: if flags[0] { Kind::Build } else { Kind::Evaluation },
            has_arch: flags[1],
            network_bound: flags[2],
            prefer_local: flags[3],
            fetches: flags[4],
            has_jobserver: flags[5],
            is_external: flags[6],
            waited_ms,
            deadline_ms,
            dependents,
            request,
            largest_memory,
            prediction,
        },
    )
}

fn workers() -> impl Strategy<Value = WorkerContext> {
    let numbers = [maybe(number()), maybe(number()), maybe(number()), maybe(number())];
    (amounts(), amounts(), maybe(bytes()), maybe(bytes()), numbers, any::<(bool, bool)>()).prop_map(
        |(capacity, booked, memory_free, memory_available, numbers, (fetches, has_arch))| WorkerContext {
            capacity,
            booked,
            memory_free,
            memory_available,
            foreign_cpu: numbers[0],
            foreign_cpu_beside_clients: numbers[3],
            core_score: numbers[1],
            disk_mb_s: numbers[2],
            network_mbit_s: numbers[3],
            fetches,
            has_arch,
        },
    )
}

fn farms() -> impl Strategy<Value = InstanceContext> {
    let metrics = [
        Metric::MissingKeys,
        Metric::MissingBytes,
        Metric::Dependents,
        Metric::CpuMs,
        Metric::OomRate,
        Metric::NetworkMbitS,
        Metric::DiskBytes,
    ];
    (prop::collection::vec(maybe(number()), metrics.len()), 0..9u32, 0..9u32, maybe(number())).prop_map(
        move |(means, idle_workers, total_workers, core_score)| {
            let mut windows = InstanceWindows::default();
            for (metric, mean) in metrics.into_iter().zip(means) {
                windows.set(metric, Windowed { w5m: mean, w1h: mean, w24h: mean });
            }
            InstanceContext { windows, idle_workers, total_workers, core_score, deadline_ms: None }
        },
    )
}

type Facts = (Option<Missing>, u32, f64, bool, f64);

fn facts() -> impl Strategy<Value = Facts> {
    let missing = maybe((any::<u32>(), bytes()).prop_map(|(keys, bytes)| Missing { keys, bytes }));
    (missing, cpu(), number(), any::<bool>(), number())
}

fn pair<'a>(
    job: &'a JobContext,
    worker: &'a WorkerContext,
    instance: &'a InstanceContext,
    (missing, step_cpu, warmth, others_wait, load): Facts,
) -> Pair<'a> {
    Pair { job, worker, instance, missing, step_cpu, warmth, others_wait, load }
}

fn all_policies() -> Vec<&'static dyn ScoringPolicy> {
    let flags = [(true, false), (false, true), (true, true)];
    let packings = flags.map(|(cores, memory)| packing(Saturation { cores, memory }));
    POLICIES.iter().map(|name| policy_by_name(name).0).chain(packings).chain([FREE_MEMORY]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn points_are_finite_and_in_range(job in jobs(), worker in workers(), farm in farms(), facts in facts()) {
        let pair = pair(&job, &worker, &farm, facts);
        for policy in all_policies() {
            for rule in policy.rules() {
                let (least, most) = rule.range();
                match rule.contribution(&pair) {
                    Contribution::Points { value, reason } => {
                        prop_assert!(value >= least && value <= most, "{}: {value} {reason}", rule.name());
                    }
                    Contribution::Veto { reason } => prop_assert!(!reason.is_empty()),
                }
            }
        }
    }

    #[test]
    fn the_breakdown_is_the_score(job in jobs(), worker in workers(), farm in farms(), facts in facts()) {
        let pair = pair(&job, &worker, &farm, facts);
        for policy in all_policies() {
            let detail = policy.detail(&pair);
            prop_assert_eq!(detail.rules.len(), policy.rules().len());
            match policy.score(&pair) {
                Verdict::Score(score) => {
                    prop_assert_eq!(detail.holds().count(), 0);
                    prop_assert_eq!(score, detail.total);
                }
                Verdict::Vetoed { rule, reason } => prop_assert_eq!(detail.holds().next(), Some((rule, reason))),
            }
        }
    }

    #[test]
    fn the_winner_is_the_best_that_is_not_held(
        jobs in prop::collection::vec((jobs(), facts()), 0..12), worker in workers(), farm in farms(),
    ) {
        let policy = policy_by_name(DEFAULT_POLICY).0;
        let pairs = jobs.iter().enumerate().map(|(key, (job, facts))| (key, pair(job, &worker, &farm, *facts)));
        let won = winner(policy, pairs.clone());
        let mut open: Vec<(usize, f64, f64)> = pairs
            .filter_map(|(key, pair)| match policy.score(&pair) {
                Verdict::Score(score) => Some((key, score, pair.load)),
                Verdict::Vetoed { .. } => None,
            })
            .collect();
        open.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.total_cmp(&b.2)).then(a.0.cmp(&b.0)));
        prop_assert_eq!(won, open.first().map(|(key, score, _)| (*key, *score)));
    }
}

#[test]
fn a_held_best_candidate_does_not_block_the_next() {
    // Gradient sorts held candidates with the others and looks only at the first: the worker idles.
    let (worker, farm) = (WorkerContext::default(), InstanceContext::default());
    let old = JobContext { has_arch: true, waited_ms: 19_000, deadline_ms: Some(1), ..JobContext::default() };
    let fresh = JobContext { has_arch: true, ..JobContext::default() };
    let pairs = [
        ("old", pair(&old, &worker, &farm, (None, 0, 0.0, false, 0.0))),
        ("fresh", pair(&fresh, &worker, &farm, (Some(Missing::default()), 0, 0.0, false, 0.0))),
    ];
    for policy in ["simple", "resource-aware"].map(|name| policy_by_name(name).0) {
        assert!(policy.detail(&pairs[0].1).total > policy.detail(&pairs[1].1).total);
        assert_eq!(winner(policy, pairs).map(|(key, _)| key), Some("fresh"));
        assert_eq!(winner(policy, [pairs[0]]), None);
    }
}

#[test]
fn an_hour_of_waiting_beats_a_warm_cache() {
    let (worker, farm) = (WorkerContext::default(), InstanceContext::default());
    let old = JobContext { has_arch: true, waited_ms: 3_600_000, ..JobContext::default() };
    let fresh = JobContext { has_arch: true, ..JobContext::default() };
    let pairs = [
        (1, pair(&fresh, &worker, &farm, (Some(Missing::default()), 0, 0.0, false, 0.0))),
        (2, pair(&old, &worker, &farm, (None, 0, 0.0, false, 0.0))),
    ];
    assert_eq!(winner(policy_by_name("simple").0, pairs), Some((2, 3_650.0)));
}

#[test]
fn ties_go_to_the_least_loaded_and_then_the_first() {
    let (job, worker, farm) = (JobContext::default(), WorkerContext::default(), InstanceContext::default());
    let at = |load| pair(&job, &worker, &farm, (Some(Missing::default()), 0, 0.0, false, load));
    let policy = policy_by_name("simple").0;
    assert_eq!(
        winner(policy, [("a", at(2.0)), ("c", at(1.0)), ("b", at(1.0))]).map(|(key, _)| key),
        Some("b")
    );
}
