//! Entitlement of many queues and loads of many domains, each beside a plain way to the same in this run.

use super::figures::{elapsed_ms, median};
use std::collections::BTreeMap;
use windlass_core::load::ledger::LoadAggregator;
use windlass_core::load::share::{Apportion, Claim, level};

/// Queues that share a pool.
const QUEUES: u64 = 10_000;
const DOMAINS: usize = 100_000;

/// Domain, weight, duty cycle.
type Record = (usize, usize, f64);

/// Entitlements and ledger, each the median of `runs`.
pub fn run(runs: u32) -> anyhow::Result<()> {
    queues(runs)?;
    let mut records = records();
    println!("loads of {DOMAINS} domains, ms        insert  calculate   two maps: insert  calculate   ratio");
    ledger("  recorded by rising domain  ", &records, runs)?;
    let mut random = Random(11);
    for place in (1..records.len()).rev() {
        records.swap(place, random.below(place as u64 + 1) as usize);
    }
    ledger("  recorded in random order   ", &records, runs)
}

fn queues(runs: u32) -> anyhow::Result<()> {
    let mut random = Random(7);
    let mut claim =
        |id| Claim { id, weight: 1 + random.below(10_000) as u32, demand: 1 + random.below(1_000) };
    let claims: Vec<Claim> = (0..QUEUES).map(&mut claim).collect();
    let wanted: u64 = claims.iter().map(|claim| claim.demand).sum();
    let (mut levels, mut rounds, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let mut apportion = Apportion::default();
    for run in 0..u64::from(runs) {
        let pool = wanted / 2 + run;
        levels.push(1e3 * elapsed_ms(|| level(pool, &claims)).0);
        let (ms, slots) = elapsed_ms(|| apportion.slots(pool, &claims));
        rounds.push(1e3 * ms);
        let (ms, theirs) = elapsed_ms(|| restarts(pool, &claims));
        plain.push(1e3 * ms);
        let (given, theirs): (u64, u64) = (slots?.iter().sum(), theirs.iter().sum());
        anyhow::ensure!(given == pool && theirs == pool, "{given} and {theirs} slots of {pool}");
    }
    let (level, round, plain) = (median(&mut levels), median(&mut rounds), median(&mut plain));
    println!("entitlement of {QUEUES} queues, exact: level {level:.0} µs, with whole slots {round:.0} µs");
    println!("  in floating point by restarts: {plain:.0} µs with whole slots, ratio {:.2}", plain / round);
    Ok(())
}

/// The plain way: every queue that demands less than its part gets its demand, until none does. Then all are rounded
/// down, and the slots that are left go to the largest remainders.
fn restarts(pool: u64, claims: &[Claim]) -> Vec<u64> {
    let mut open: Vec<usize> = (0..claims.len()).collect();
    let mut left = pool as f64;
    let mut slots = vec![0; claims.len()];
    let level = loop {
        let weights: f64 = open.iter().map(|at| f64::from(claims[*at].weight)).sum();
        let level = left / weights;
        let before = open.len();
        open.retain(|at| {
            let claim = &claims[*at];
            let met = claim.demand as f64 <= level * f64::from(claim.weight);
            if met {
                slots[*at] = claim.demand;
                left -= claim.demand as f64;
            }
            !met
        });
        if open.len() == before {
            break level;
        }
    };
    let mut parts = Vec::with_capacity(open.len());
    for at in open {
        let share = level * f64::from(claims[at].weight);
        slots[at] = share as u64;
        parts.push((share.fract(), at));
    }
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let over = pool.saturating_sub(slots.iter().sum());
    for (_, at) in parts.into_iter().take(over as usize) {
        slots[at] += 1;
    }
    slots
}

fn records() -> Vec<Record> {
    let mut random = Random(7);
    let mut record = |domain| {
        let (weight, duty) = (1 + random.below(10_000) as usize, (1 + random.below(1_000)) as f64 / 1e3);
        (domain, weight, duty)
    };
    (0..DOMAINS).map(&mut record).collect()
}

fn ledger(order: &str, records: &[Record], runs: u32) -> anyhow::Result<()> {
    let cpus = DOMAINS / 4;
    let (mut inserts, mut calculations) = (Vec::new(), Vec::new());
    let (mut map_inserts, mut map_calculations) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let (ms, ours) = elapsed_ms(|| -> anyhow::Result<LoadAggregator> {
            let mut ours = LoadAggregator::new(cpus, false);
            for (domain, weight, duty) in records {
                ours.record_dom_load(*domain, *weight, *duty)?;
            }
            Ok(ours)
        });
        inserts.push(ms);
        let ours = ours?;
        let (ms, ours) = elapsed_ms(|| ours.calculate());
        calculations.push(ms);
        let (ms, maps) = elapsed_ms(|| Maps::record(records));
        map_inserts.push(ms);
        let (ms, sums) = elapsed_ms(|| maps.calculate(cpus));
        map_calculations.push(ms);
        let (load, sum) = (ours.global_load_sum(), sums.iter().sum::<f64>());
        anyhow::ensure!((load - sum).abs() < 1e-9 * sum, "loads of {load} and {sum}");
    }
    let (insert, calculate) = (median(&mut inserts), median(&mut calculations));
    let (map_insert, map_calculate) = (median(&mut map_inserts), median(&mut map_calculations));
    let ratio = (map_insert + map_calculate) / (insert + calculate);
    println!(
        "{order}    {insert:9.2}  {calculate:9.2}   {map_insert:16.2}  {map_calculate:9.2}  {ratio:6.2}"
    );
    Ok(())
}

/// The plain way: a map of domains with a map of weights each, and one of all weights.
#[derive(Default)]
struct Maps {
    domains: BTreeMap<usize, BTreeMap<usize, f64>>,
    weights: BTreeMap<usize, f64>,
}

impl Maps {
    fn record(records: &[Record]) -> Maps {
        let mut maps = Maps::default();
        for (domain, weight, duty) in records {
            maps.domains.entry(*domain).or_default().insert(*weight, *duty);
            *maps.weights.entry(*weight).or_default() += duty;
        }
        maps
    }

    /// Load of each domain: from the heaviest weight down until the rest is feasible.
    fn calculate(&self, cpus: usize) -> Vec<f64> {
        let mut load: f64 = self.weights.iter().map(|(weight, duty)| *weight as f64 * duty).sum();
        let mut left = cpus as f64;
        for (weight, duty) in self.weights.iter().rev() {
            if load / left >= *weight as f64 {
                break;
            }
            load -= *weight as f64 * duty;
            left -= duty;
        }
        let capped = |(weight, duty): (&usize, &f64)| (*weight as f64).min(load / left) * duty;
        self.domains.values().map(|weights| weights.iter().map(capped).sum()).collect()
    }
}

/// SplitMix64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
