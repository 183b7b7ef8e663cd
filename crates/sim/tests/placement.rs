//! Scenarios too long to be read as transcripts: the same workload placed in different ways.

use std::fmt::Write as _;
use windlass_sim::script::run_script;

/// Builds of sixteen projects, each of which reads its project's key, on eight workers that have room for
/// four keys each. Returns starts that found the key, and those that did not.
fn cold_starts(policy: &str, cache: &str) -> Result<(u32, u32), Box<dyn std::error::Error>> {
    let mut script = format!("> settings policy={policy}\n");
    for worker in 1..=8 {
        writeln!(script, "> worker w{worker} cpus=4 memory=64GiB keeps=4 {cache}")?;
    }
    script += "> advance 2s\n";
    let mut random = 7_u64;
    for job in 0..150 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let project = random >> 60;
        writeln!(
            script,
            "> submit name=j{job} step=build shape=p{project} reads=p{project}:1GiB tasks=2 runs=5s..9s"
        )?;
        script += "> advance 600ms\n";
    }
    script += "> advance 2m\n> tally failed<=0\n";
    let played = run_script(&script)?;
    let tally = played.lines().last().ok_or("no tally")?;
    let words: Vec<&str> = tally.split(' ').collect();
    let of = words.iter().position(|word| *word == "of").ok_or("nothing was cold")?;
    let (cold, all): (u32, u32) = (words[of - 1].parse()?, words[of + 1].parse()?);
    assert_eq!(all, 300, "{tally}");
    println!("{policy} {cache}: {cold} of {all} cold");
    Ok((cold, all))
}

#[test]
fn warmth_halves_cold_starts() -> Result<(), Box<dyn std::error::Error>> {
    // The worker reports no caches: only the tasks that ran there tell where a key is.
    let (blind, _) = cold_starts("simple", "mute")?;
    let (warm, _) = cold_starts("resource-aware", "mute")?;
    let (told, _) = cold_starts("resource-aware", "")?;
    assert!(warm * 2 <= blind, "{warm} of {blind} cold starts are left");
    assert!(told <= warm, "{told} where caches are told, {warm} where they are not");
    Ok(())
}
