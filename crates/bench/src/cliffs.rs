//! Cost of a round on farms that have far more of something than most: keys of caches, vetoed steps, tasks short enough
//! to be sent ahead, requirements that no worker meets.

use super::place::Farm;
use std::collections::BTreeSet;
use std::time::Instant;
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::Event;
use windlass_core::job::{JobSpec, StepSpec};
use windlass_core::score::policy::policy_by_name;
use windlass_core::tags::Need;
use windlass_core::{Resources, WorkerId};

const GIB: u64 = 1 << 30;
/// Rounds that are timed.
const ROUNDS: u32 = 2_000;

pub fn run() {
    keys();
    held();
    short();
    requirements();
}

fn farm(workers: u64, cores: u32) -> Farm {
    let (policy, _) = policy_by_name("resource-aware");
    let mut farm = Farm::new(policy, 0, Vec::new());
    (1..=workers).for_each(|id| farm.join(id, Resources::new(cores * 100, 256 * GIB)));
    farm
}

fn step(name: &str, tasks: u32) -> StepSpec {
    StepSpec { name: name.to_owned(), tasks, request: Resources::new(100, 0), ..StepSpec::default() }
}

fn job(queue: &str, steps: Vec<StepSpec>) -> JobSpec {
    JobSpec { queue: queue.to_owned(), steps, ..JobSpec::default() }
}

/// Microseconds of an end and the round after it, as the mean of [`ROUNDS`].
fn end_and_round_us(farm: &mut Farm) -> f64 {
    while farm.round() > 0 {}
    let clock = Instant::now();
    for _ in 0..ROUNDS {
        farm.end_oldest();
        farm.round();
    }
    clock.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

fn told(with: f64, without: f64, against: &str) {
    let ratio = with / without;
    println!("  {with:.1} µs for an end and the round after it, {without:.1} {against}; ratio {ratio:.2}");
}

/// One worker that holds 4,096 keys, and steps that read 1,000, against the same without keys.
fn keys() {
    let time = |read: usize| {
        let mut farm = farm(1, 64);
        let held: Vec<String> = (0..4_096).map(|key| format!("/nix/store/{key:032}")).collect();
        farm.tell(Event::Caches { worker: WorkerId(1), keys: CacheKeys::of(held.iter()) });
        for number in 0..500_usize {
            let mut step = step("s", 5);
            let keys = (0..read).map(|key| (format!("/nix/store/{:032}", key * 5 + number), Some(GIB)));
            step.hints.caches = keys.collect();
            farm.submit(job("q", vec![step]));
        }
        end_and_round_us(&mut farm)
    };
    let (without, with) = (time(0), time(1_000));
    println!("a worker of 4096 keys, 500 steps that read 1000 each");
    told(with, without, "without keys");
}

/// Steps of another queue that a rule holds, against none.
fn held() {
    let time = |steps: usize| {
        let mut farm = farm(50, 4);
        for number in 0..steps {
            let mut step = step(&format!("s{}", number % 16), 1);
            step.request = Resources::new(100 + number as u32 % 16, 0);
            // For twenty seconds it waits for a worker that never registers.
            step.hints.prefers = BTreeSet::from(["absent".to_owned()]);
            farm.submit(job("held", vec![step]));
        }
        farm.submit(job("q", vec![step("plain", 100_000)]));
        end_and_round_us(&mut farm)
    };
    let (without, with) = (time(0), time(9_000));
    println!("9000 steps that a rule holds, 50 workers");
    told(with, without, "without them");
}

/// Short tasks on a large farm, with a longer one whose turn is before, against a small farm.
fn short() {
    let time = |workers: u64| {
        let mut farm = farm(workers, 2);
        farm.submit(job("short", vec![step("short", 1_000_000)]));
        // Their lengths become known: nothing.
        while farm.round() > 0 {}
        (0..100).for_each(|_| farm.end_oldest());
        farm.submit(job("long", vec![step("long", 1_000_000)]));
        end_and_round_us(&mut farm)
    };
    let (few, many) = (time(50), time(5_000));
    println!("short tasks on 5000 workers of two cores");
    told(many, few, "on 50 workers");
}

/// A job of 1,000 steps that each ask for something that no worker has, against one whose steps differ in memory.
fn requirements() {
    let time = |asks: bool| {
        let mut farm = farm(2_000, 4);
        let steps = (0..1_000).map(|number| StepSpec {
            needs: asks.then(|| Need::parse(&format!("new{number}"))).into_iter().collect(),
            request: Resources::new(100, if asks { 0 } else { number << 20 }),
            ..step(&format!("s{number}"), 1)
        });
        let spec = job("q", steps.collect());
        let clock = Instant::now();
        farm.submit(spec);
        while farm.round() > 0 {}
        clock.elapsed().as_secs_f64() * 1e3
    };
    let (without, with) = (time(false), time(true));
    println!("a job of 1000 steps with a new requirement each, 2000 workers");
    println!(
        "  accepted and looked at in {with:.1} ms, {without:.1} where they differ in memory instead; ratio {:.2}",
        with / without
    );
}
