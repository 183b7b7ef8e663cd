//! Seeds: each is a world with its own machines, jobs and faults, in which no promise may break.
//!
//! `SEED=n cargo test -p windlass-sim --test all seeds::` runs that seed alone and prints its transcript,
//! `SEEDS=a..b` runs a range of one's own, to its end, and prints each seed that fails. `SEEDS_S=n` runs n seconds of
//! seeds that no run had before, besides the 256 of every run.

use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windlass_sim::{Faults, Tally, Violation, run_seed, run_seed_traced};

/// A seed that a run of `SEED=n` asks for.
fn wanted_seed() -> Option<u64> {
    std::env::var("SEED").ok()?.parse().ok()
}

fn wanted_range() -> Option<Range<u64>> {
    let text = std::env::var("SEEDS").ok()?;
    let (first, end) = text.split_once("..")?;
    Some(first.parse().ok()?..end.parse().ok()?)
}

/// How long new seeds run. `./test` sets it.
fn wanted_time() -> Option<Duration> {
    std::env::var("SEEDS_S").ok()?.parse().ok().map(Duration::from_secs)
}

fn run_all(seeds: Range<u64>) -> Result<Tally, Violation> {
    let mut sum = Tally::default();
    for seed in seeds {
        sum.add(&run_seed(seed, &Faults::all())?.tally);
    }
    Ok(sum)
}

/// Runs all seeds of a requested range. The first violation is returned, and all are printed in a line each.
fn run_range(seeds: Range<u64>) -> Result<(), Violation> {
    let (mut sum, mut first) = (Tally::default(), None);
    for seed in seeds.clone() {
        match run_seed(seed, &Faults::all()) {
            Ok(summary) => sum.add(&summary.tally),
            Err(violation) => {
                eprintln!("seed {seed}, step {}: {}", violation.step, violation.what);
                first.get_or_insert(violation);
            }
        }
    }
    eprintln!("seeds {seeds:?}: {sum:?}");
    first.map_or(Ok(()), Err)
}

/// Runs seeds from `first` on, on all cores and for this time. Each violation is printed in a line, and one is returned
/// beside the number of seeds.
fn run_for(time: Duration, first: u64) -> (u64, Result<(), Violation>) {
    let (next, until) = (AtomicU64::new(first), Instant::now() + time);
    let run = || {
        let mut broken = None;
        while Instant::now() < until {
            if let Err(violation) = run_seed(next.fetch_add(1, Ordering::Relaxed), &Faults::all()) {
                eprintln!("seed {}, step {}: {}", violation.seed, violation.step, violation.what);
                broken.get_or_insert(violation);
            }
        }
        broken
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let broken = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(run)).collect();
        threads.into_iter().find_map(|thread| thread.join().unwrap())
    });
    (next.into_inner() - first, broken.map_or(Ok(()), Err))
}

/// What the seeds are for happens in them.
fn every_fault_struck(sum: &Tally) {
    let all = [
        sum.failed_commits,
        sum.unknown_commits,
        sum.bodies_read,
        sum.retired,
        sum.pages,
        sum.failed_reads,
        sum.refused_writes,
        sum.scheduler_deaths,
        sum.keeper_deaths,
        sum.cut_links,
        sum.lost_messages,
        sum.clock_steps,
        sum.refused_names,
        sum.expiries,
        sum.fencings,
        sum.forgotten,
        sum.deleted,
        sum.lies,
        sum.hang_ups,
        sum.lost_results,
    ];
    assert!(all.iter().all(|count| *count > 0), "some fault never struck: {sum:?}");
}

// Two halves, so that two cores share them.

#[test]
fn even_half_of_the_seeds_breaks_no_promise() -> Result<(), Violation> {
    if let Some(seed) = wanted_seed() {
        let (outcome, trace) = run_seed_traced(seed, &Faults::all());
        // Not by a macro: those are captured where the test succeeds.
        let text = format!("{}\n{:?}\n", trace.join("\n"), outcome.as_ref().ok());
        std::io::stdout().write_all(text.as_bytes()).ok();
        return outcome.map(|_| ());
    }
    if let Some(seeds) = wanted_range() {
        return run_range(seeds);
    }
    every_fault_struck(&run_all(0..128)?);
    Ok(())
}

#[test]
fn other_half_of_the_seeds_breaks_no_promise() -> Result<(), Violation> {
    if wanted_seed().is_none() && wanted_range().is_none() {
        every_fault_struck(&run_all(128..256)?);
    }
    Ok(())
}

/// The number of these seeds depends on the machine.
#[test]
fn new_seeds_break_no_promise() -> Result<(), Violation> {
    let Some(time) = wanted_time().filter(|_| wanted_seed().is_none() && wanted_range().is_none()) else {
        return Ok(());
    };
    // A seed takes longer than a millisecond, so no run has the seeds of the run before.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let first = now.as_millis() as u64;
    let (count, outcome) = run_for(time, first);
    // Not by a macro, as above.
    let text = format!("new seeds: {count} from {first} on, in {} s\n", time.as_secs());
    std::io::stdout().write_all(text.as_bytes()).ok();
    outcome
}

/// Seeds that broke a promise once, in the worlds as they are now.
const ONCE_BROKEN: [u64; 8] = [118_593, 212_263, 256_820, 706_989, 751_053, 1_009_547, 1_105_115, 2_054_877];

#[test]
fn seeds_that_broke_a_promise_once_break_none() -> Result<(), Violation> {
    if wanted_seed().is_none() && wanted_range().is_none() {
        for seed in ONCE_BROKEN {
            run_seed(seed, &Faults::all())?;
        }
    }
    Ok(())
}

#[test]
fn a_world_without_faults_breaks_no_promise() -> Result<(), Violation> {
    if wanted_seed().is_none() {
        for seed in 1000..1016 {
            run_seed(seed, &Faults::none())?;
        }
    }
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_transcript() -> Result<(), Violation> {
    let (first, first_lines) = run_seed_traced(7, &Faults::all());
    let (second, second_lines) = run_seed_traced(7, &Faults::all());
    let differ = first_lines.iter().zip(&second_lines).find(|(a, b)| a != b);
    assert_eq!(differ, None);
    assert_eq!(first_lines.len(), second_lines.len());
    assert_eq!(first?, second?);
    Ok(())
}

/// The hash is of the transcript that the engine has now: `UPDATE_EXPECT=1` writes it again when the
/// engine decides otherwise. Between two machines it must not differ.
#[test]
fn every_machine_gives_the_same_transcript() -> Result<(), Box<dyn std::error::Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seed-7.hash");
    let actual = format!("{:016x}\n", run_seed(7, &Faults::all())?.hash);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &actual)?;
    }
    assert_eq!(std::fs::read_to_string(&path)?, actual);
    Ok(())
}
