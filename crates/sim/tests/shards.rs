//! Seeds of a farm that is divided into three shards: each is a world with three schedulers over one store, in which no
//! promise may break.
//!
//! `SEED=n cargo test -p windlass-sim --test shards` runs that seed alone and prints its transcript, `SEEDS=a..b` runs a
//! range of one's own.

use std::io::Write;
use std::ops::Range;
use windlass_sim::{Faults, Tally, Violation, run_divided_seed, run_divided_seed_traced};

fn wanted_seed() -> Option<u64> {
    std::env::var("SEED").ok()?.parse().ok()
}

fn wanted_range() -> Option<Range<u64>> {
    let text = std::env::var("SEEDS").ok()?;
    let (first, end) = text.split_once("..")?;
    Some(first.parse().ok()?..end.parse().ok()?)
}

fn run_all(seeds: Range<u64>) -> Result<Tally, Violation> {
    let mut sum = Tally::default();
    for seed in seeds {
        sum.add(&run_divided_seed(seed, &Faults::all())?.tally);
    }
    Ok(sum)
}

/// What the seeds are for happens in them.
fn every_fault_struck(sum: &Tally) {
    let all = [
        sum.failed_commits,
        sum.refused_writes,
        sum.scheduler_deaths,
        sum.keeper_deaths,
        sum.lost_messages,
        sum.expiries,
        sum.messages,
        sum.guest_starts,
        sum.limited_guest_starts,
        sum.quota_guest_starts,
        sum.capped_guest_starts,
        sum.shared_reloads,
    ];
    assert!(all.iter().all(|count| *count > 0), "some fault never struck: {sum:?}");
}

// Two halves, so that two cores share them.

#[test]
fn even_half_of_the_seeds_breaks_no_promise() -> Result<(), Violation> {
    if let Some(seed) = wanted_seed() {
        let (outcome, trace) = run_divided_seed_traced(seed, &Faults::all());
        // Not by a macro: those are captured where the test succeeds.
        let text = format!("{}\n{:?}\n", trace.join("\n"), outcome.as_ref().ok());
        std::io::stdout().write_all(text.as_bytes()).ok();
        return outcome.map(|_| ());
    }
    let sum = run_all(wanted_range().unwrap_or(0..128))?;
    every_fault_struck(&sum);
    Ok(())
}

#[test]
fn other_half_of_the_seeds_breaks_no_promise() -> Result<(), Violation> {
    if wanted_seed().is_none() && wanted_range().is_none() {
        every_fault_struck(&run_all(128..256)?);
    }
    Ok(())
}

#[test]
fn a_divided_farm_without_faults_breaks_no_promise() -> Result<(), Violation> {
    if wanted_seed().is_none() {
        let mut sum = Tally::default();
        for seed in 1000..1016 {
            sum.add(&run_divided_seed(seed, &Faults::none())?.tally);
        }
        assert!(sum.guest_starts > 0, "no work moved: {sum:?}");
    }
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_transcript() -> Result<(), Violation> {
    let (first, first_lines) = run_divided_seed_traced(7, &Faults::all());
    let (second, second_lines) = run_divided_seed_traced(7, &Faults::all());
    assert_eq!(first_lines.iter().zip(&second_lines).find(|(a, b)| a != b), None);
    assert_eq!(first?, second?);
    Ok(())
}
