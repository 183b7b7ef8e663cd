//! Cost of judging pairs of step and worker.

use super::figures::{elapsed_ms, median};
use windlass_core::cache_keys::Missing;
use windlass_core::job::{Hints, Kind};
use windlass_core::score::context::{Amounts, InstanceContext, JobContext, Pair, WorkerContext};
use windlass_core::score::history::Prediction;
use windlass_core::score::policy::{ScoringPolicy, Verdict, policy_by_name, winner};
use windlass_core::score::windows::{InstanceWindows, Metric, Windowed};

/// Runs of each kind, of which the median counts.
const RUNS: usize = 101;
const GIB: u64 = 1 << 30;

/// A candidate, and the facts about it and the worker together.
struct Candidate {
    job: JobContext,
    missing: Option<Missing>,
    step_cpu: u32,
    warmth: f64,
}

/// The best of `count` candidates.
pub fn run(count: usize) {
    let (policy, _) = policy_by_name("resource-aware");
    let (worker, farm) = (worker(0), farm());
    let candidates: Vec<Candidate> = (0..count as u64).map(candidate).collect();
    let pairs = || candidates.iter().enumerate().map(|(key, c)| (key, pair(c, &worker, &farm)));
    let (mut lean_ms, mut detailed_ms) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (ms, best) = elapsed_ms(|| winner(policy, pairs()));
        lean_ms.push(ms);
        let (ms, plain) = elapsed_ms(|| plainly(policy, pairs()));
        detailed_ms.push(ms);
        assert_eq!(best, plain, "both ways find the same");
    }
    let held = pairs().filter(|(_, pair)| matches!(policy.score(pair), Verdict::Vetoed { .. })).count();
    let (lean_ms, detailed_ms) = (median(&mut lean_ms), median(&mut detailed_ms));
    println!("{count} candidates for one worker, resource-aware, {held} of them held");
    println!(
        "  winner in {lean_ms:.3} ms, {:.0} ns a candidate; every breakdown and a sort {detailed_ms:.2} ms; ratio {:.1}",
        lean_ms * 1e6 / count as f64,
        detailed_ms / lean_ms
    );
}

/// The plain way: each rule of each candidate recorded, then all candidates sorted.
fn plainly<'a>(
    policy: &dyn ScoringPolicy,
    pairs: impl Iterator<Item = (usize, Pair<'a>)>,
) -> Option<(usize, f64)> {
    let mut all: Vec<_> = pairs.map(|(key, pair)| (key, policy.detail(&pair))).collect();
    all.sort_by(|a, b| b.1.total.total_cmp(&a.1.total).then(a.0.cmp(&b.0)));
    let best = all.iter().find(|(_, detail)| detail.holds().next().is_none());
    best.map(|(key, detail)| (*key, detail.total))
}

fn pair<'a>(candidate: &'a Candidate, worker: &'a WorkerContext, instance: &'a InstanceContext) -> Pair<'a> {
    let load = f64::from(worker.booked.cpu + candidate.job.request.cpu) / f64::from(worker.capacity.cpu);
    Pair {
        job: &candidate.job,
        worker,
        instance,
        missing: candidate.missing,
        step_cpu: candidate.step_cpu,
        warmth: candidate.warmth,
        others_wait: true,
        load,
    }
}

/// Numbers without order, the same each run.
fn scatter(of: u64, salt: u64) -> u64 {
    let mixed = (of ^ salt << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
}

/// Builds and some evaluations, nearly all with history, some that fetch much.
fn candidate(of: u64) -> Candidate {
    let any = |salt, below| scatter(of, salt) % below;
    let peak = any(1, 12 * GIB);
    let prediction = Prediction {
        peak_memory: Some(peak),
        memory_floor: None,
        cpu_ms: Some(any(2, 200_000) as f64),
        wall_ms: Some(any(3, 200_000) as f64),
        disk_bytes: Some(any(4, GIB) as f64),
        oom_rate: any(5, 10) as f64 / 100.0,
        samples: 200,
    };
    let hints = Hints {
        kind: if any(6, 10) == 0 { Kind::Evaluation } else { Kind::Build },
        network_bound: any(8, 8) == 0,
        prefer_local: any(9, 4) == 0,
        fetches: any(10, 2) == 0,
        deadline_ms: (any(12, 4) == 0).then_some(300_000),
        ..Hints::default()
    };
    let request = Amounts { cpu: 100, memory: GIB, ..Amounts::default() };
    let job = JobContext {
        waited_ms: any(11, 600_000),
        dependents: any(13, 40) as f64,
        largest_memory: Some(64 * GIB),
        prediction: (any(14, 16) != 0).then_some(prediction),
        ..JobContext::of(&hints, any(7, 8) != 0, request)
    };
    let missing = Missing { keys: any(15, 50) as u32, bytes: any(16, 4 * GIB) };
    let missing = (any(17, 50) != 0).then_some(missing);
    Candidate { job, missing, step_cpu: any(18, 3) as u32 * 100, warmth: any(19, 64) as f64 / 64.0 }
}

fn worker(of: u64) -> WorkerContext {
    let cores = 16 << (scatter(of, 1) % 3) as u32;
    let memory = u64::from(cores) * (2 + scatter(of, 2) % 4) * GIB;
    WorkerContext {
        capacity: Amounts { cpu: cores * 100, memory, ..Amounts::default() },
        booked: Amounts { cpu: cores * 10, memory: memory / 10, ..Amounts::default() },
        memory_free: Some(memory / 4),
        memory_available: Some(memory / 4),
        foreign_cpu: Some(1.5),
        foreign_cpu_beside_clients: None,
        core_score: Some(5_000.0),
        disk_mb_s: Some(400.0),
        network_mbit_s: Some(900.0),
        fetches: true,
        has_arch: true,
    }
}

fn farm() -> InstanceContext {
    let mut windows = InstanceWindows::default();
    for (metric, mean) in [
        (Metric::MissingKeys, 12.0),
        (Metric::MissingBytes, 1e9),
        (Metric::Dependents, 9.0),
        (Metric::CpuMs, 90_000.0),
        (Metric::OomRate, 0.02),
        (Metric::NetworkMbitS, 800.0),
        (Metric::DiskBytes, 3e8),
    ] {
        windows.set(metric, Windowed { w5m: Some(mean), w1h: Some(mean), w24h: Some(mean) });
    }
    InstanceContext {
        windows,
        idle_workers: 3,
        total_workers: 40,
        core_score: Some(6_000.0),
        deadline_ms: None,
    }
}
