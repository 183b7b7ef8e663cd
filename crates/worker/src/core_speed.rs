//! The speed of one core of this machine, measured when an agent starts: the number `core_score`, by which the rule
//! `ResourceFitRule` prefers faster cores for work that is heavy on the processor. The reference core, of
//! [`REFERENCE_NS`], has 1000, and a core that is twice as fast has 2000.
//!
//! The measurement is short, has one thread, and computes the same on every machine: a chain of hashes (how fast one
//! instruction follows the other), four chains beside each other (how many run at a time), and a walk through memory
//! that does not fit the nearest caches. Each part counts a third.
//!
//! - Each part is measured in many slices of about a millisecond, and the fastest slice counts. What slows the
//!   others, such as another process in the same cache, says nothing of the core.
//! - A slice is timed by the thread's own processor time, and it is only believed if the thread had the core nearly
//!   all of the time. On a machine so busy that few slices are believed, the speed is unknown, and not low.
//! - The result is kept in the worker's directory with the model of the cpu and the release of this program, so a
//!   restart measures nothing.

use crate::identity;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

/// The file in the worker's directory that keeps the score.
const FILE: &str = "core-score";
/// Nanoseconds of a slice of each part on the reference core: a Zen 4 core of an AMD EPYC of 2.6 GHz, one thread on
/// it, measured with a release build in November 2026. There runs agreed within 1 part in 1000.
const REFERENCE_NS: [f64; PARTS] = [704_000.0, 488_000.0, 600_000.0];
/// The score of the reference core.
const REFERENCE_SCORE: f64 = 1_000.0;
const PARTS: usize = 3;
/// How long all slices together may take. At rest they take half of it.
const BUDGET: Duration = Duration::from_millis(100);
/// Slices of each part. The fastest of more is hardly faster.
const ROUNDS_MAX: u32 = 24;
/// Part of the time that the thread must have had the core for a slice to be believed.
const UNDISTURBED: f64 = 0.95;
/// Slices of a part that must be believed: the only one of many may be the one that found all caches cold. With four
/// busy processes for each core, single slices were 25 percent too slow.
const BELIEVED_MIN: u32 = 3;
/// Steps of a slice.
const CHAIN_STEPS: u64 = 650_000;
const LANES_STEPS: u64 = 1_200_000;
const WALK_STEPS: u64 = 160_000;
/// Entries of the table that is walked through, of 4 bytes: 256 KiB, more than a core's first cache holds. A table of
/// 2 MiB had to be fetched again after each other process, and halved the score of a busy machine.
const TABLE_ENTRIES: u32 = 1 << 16;
/// Scores beyond this are not of a machine.
const SCORE_MAX: f64 = 1e6;

/// The score of this machine's cores as an earlier agent measured it.
pub fn known(state: &Path) -> Option<f64> {
    recorded(&fs::read_to_string(state.join(FILE)).ok()?, &machine())
}

/// Measures, and keeps the score for the next start. `None` on a machine that is too busy.
pub fn measure_and_keep(state: &Path) -> Option<f64> {
    let (path, machine) = (state.join(FILE), machine());
    let score = measure()?;
    if let Err(e) = identity::write(&path, &format!("{machine}\n{score}\n")) {
        tracing::warn!(
            "cannot write {}: {e}; the speed of a core is measured again at the next start",
            path.display()
        );
    }
    Some(score)
}

/// The score in a file, if it is of this machine and program.
fn recorded(text: &str, machine: &str) -> Option<f64> {
    let (of, score) = text.split_once('\n')?;
    let score = score.trim().parse::<f64>().ok()?;
    (of == machine && score > 0.0 && score <= SCORE_MAX).then_some(score)
}

/// The key of the score, in one line: this program's release, and the model of the cpu as the kernel names it.
fn machine() -> String {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let cpu = fs::read_to_string("/proc/cpuinfo").map(|text| model(&text)).unwrap_or_default();
    format!("{} {build}, {cpu}", env!("CARGO_PKG_VERSION"))
}

/// The fields that distinguish models: the names on x86, and the numbers that stand for them on ARM.
fn model(cpuinfo: &str) -> String {
    const OF_A_MODEL: [&str; 8] = [
        "model name",
        "cpu family",
        "model",
        "stepping",
        "CPU implementer",
        "CPU variant",
        "CPU part",
        "CPU revision",
    ];
    let first = cpuinfo.split("\n\n").next().unwrap_or_default();
    let fields = first.lines().filter_map(|line| line.split_once(':'));
    let of_model = fields.filter(|(name, _)| OF_A_MODEL.contains(&name.trim()));
    of_model.map(|(_, value)| value.trim()).collect::<Vec<_>>().join(" ")
}

/// Measures for a tenth of a second at most, and one slice more. `None` on a machine that is too busy.
pub fn measure() -> Option<f64> {
    let table = cycle();
    let mut fastest = [(f64::INFINITY, 0); PARTS];
    let began = Instant::now();
    'rounds: for round in 0..ROUNDS_MAX {
        for (part, (fastest_ns, believed)) in fastest.iter_mut().enumerate() {
            if began.elapsed() > BUDGET {
                break 'rounds;
            }
            if let Some(took_ns) = slice(|| run(part, round.into(), &table)) {
                *fastest_ns = fastest_ns.min(took_ns);
                *believed += 1;
            }
        }
    }
    score(fastest)
}

/// The score of the fastest slice of each part, in nanoseconds; unknown if too few slices of a part were believed.
fn score(fastest: [(f64, u32); PARTS]) -> Option<f64> {
    let mut relative = 0.0;
    for ((took_ns, believed), reference_ns) in fastest.into_iter().zip(REFERENCE_NS) {
        if believed < BELIEVED_MIN {
            return None;
        }
        relative += took_ns / reference_ns;
    }
    let score = (REFERENCE_SCORE * PARTS as f64 / relative).round();
    (1.0..=SCORE_MAX).contains(&score).then_some(score)
}

/// Nanoseconds of processor time of a slice; `None` if the thread did not have its core all the time.
fn slice(work: impl FnOnce() -> u64) -> Option<f64> {
    let (began, cpu_began) = (Instant::now(), cpu_ns());
    black_box(work());
    let (cpu, wall) = (cpu_ns() - cpu_began, began.elapsed().as_nanos() as f64);
    (cpu > 0.0 && cpu >= wall * UNDISTURBED).then_some(cpu)
}

/// Processor time of this thread.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// One slice of a part. Returns what it computed, so that the compiler cannot leave it out.
fn run(part: usize, seed: u64, table: &[u32]) -> u64 {
    match part {
        0 => chain(seed),
        1 => lanes(seed),
        _ => walk(seed, table),
    }
}

/// FNV-1a over a counter: each step needs the one before.
fn chain(seed: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ black_box(seed);
    for n in 0..CHAIN_STEPS {
        hash = (hash ^ (n & 0xff)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

/// Four generators (xorshift) that do not need each other.
fn lanes(seed: u64) -> u64 {
    let seed = black_box(seed);
    let (mut a, mut b, mut c, mut d) = (seed | 1, seed | 2, seed | 4, seed | 8);
    let next = |mut x: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^ (x << 17)
    };
    for _ in 0..LANES_STEPS / 4 {
        (a, b, c, d) = (next(a), next(b), next(c), next(d));
    }
    a ^ b ^ c ^ d
}

/// Follows the table from entry to entry: each step waits for the load before.
fn walk(seed: u64, table: &[u32]) -> u64 {
    let mut at = (black_box(seed) as u32).wrapping_mul(0x9e37_79b9) % TABLE_ENTRIES;
    for _ in 0..WALK_STEPS {
        at = table[at as usize];
    }
    at.into()
}

/// A table whose entries form one cycle through all of them, in an order that no prefetcher guesses: a linear
/// congruential generator of full period.
fn cycle() -> Vec<u32> {
    (0..TABLE_ENTRIES)
        .map(|n| n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % TABLE_ENTRIES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_core_has_1000_and_one_that_is_twice_as_fast_2000() {
        let with = |factor: f64, believed| score(REFERENCE_NS.map(|ns| (ns * factor, believed)));
        assert_eq!(with(1.0, BELIEVED_MIN), Some(1_000.0));
        assert_eq!(with(0.5, 20), Some(2_000.0));
        let [chain, lanes, _] = REFERENCE_NS.map(|ns| (ns, BELIEVED_MIN));
        assert_eq!(score([chain, lanes, (4.0 * REFERENCE_NS[2], 9)]), Some(500.0), "each part is a third");
    }

    #[test]
    fn too_few_slices_that_are_believed_leave_it_unknown() {
        let [chain, lanes, walk] = REFERENCE_NS.map(|ns| (ns, BELIEVED_MIN));
        assert_eq!(score([chain, lanes, (walk.0, BELIEVED_MIN - 1)]), None);
        assert_eq!(score([(f64::INFINITY, 0); PARTS]), None);
        assert_eq!(score([(0.0, 9), (0.0, 9), (0.0, 9)]), None, "no core is so fast");
    }

    #[test]
    fn a_slice_in_which_the_thread_had_no_core_is_not_believed() {
        let waits = || {
            let (sender, receiver) = std::sync::mpsc::channel::<()>();
            let waited = receiver.recv_timeout(Duration::from_millis(5)).is_err();
            drop(sender);
            waited.into()
        };
        assert_eq!(slice(waits), None);
    }

    #[test]
    fn a_measurement_ends_soon_and_is_of_a_possible_core() {
        let began = Instant::now();
        let measured = measure();
        // On a machine that is busy beyond all measure the last slice may take long, and nothing is known.
        let is_short = began.elapsed() < 10 * BUDGET;
        match measured {
            Some(score) => assert!((10.0..=20_000.0).contains(&score) && is_short, "{score}"),
            None => println!("SKIP the speed of a core: this machine is too busy to measure it"),
        }
    }

    #[test]
    fn the_walk_goes_through_the_whole_table() {
        let table = cycle();
        let (mut seen, mut at) = (0, 0);
        loop {
            (at, seen) = (table[at as usize], seen + 1);
            if at == 0 {
                break;
            }
        }
        assert_eq!(seen, TABLE_ENTRIES);
    }

    #[test]
    fn what_was_measured_before_counts_for_the_same_cpu_and_release_only() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(known(dir.path()), None);
        fs::write(dir.path().join(FILE), format!("{}\n1234\n", machine())).unwrap();
        assert_eq!(known(dir.path()), Some(1234.0));
        let again = measure_and_keep(dir.path());
        assert_eq!(known(dir.path()), again.or(Some(1234.0)), "what was measured is kept");
        assert_eq!(recorded("0.1.0 release, 25 17 AMD EPYC 1\n1000\n", "0.1.0 release, 6 85 Xeon 7"), None);
        for bad in ["", "m", "m\n", "m\nNaN", "m\n0", "m\n-5", "m\ninf", "m\n1e7", "m\n1 2"] {
            assert_eq!(recorded(bad, "m"), None, "{bad}");
        }
        assert_eq!(recorded("m\n731.5\n", "m"), Some(731.5));
    }

    #[test]
    fn models_are_told_apart_on_x86_and_on_arm() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\
                   stepping\t: 1\ncpu MHz\t\t: 2596.1\n\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(model(x86), "25 17 AMD EPYC 1");
        let arm = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\n\
                   CPU part\t: 0xd0c\n";
        assert_eq!(model(arm), "0x41 0x3 0xd0c");
        assert_eq!(model(""), "");
    }
}
