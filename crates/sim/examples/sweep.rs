//! temporary
use std::collections::BTreeMap;
use windlass_sim::{Faults, run_seed};
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let faults = if args.get(2) == Some(&0) { Faults::none() } else { Faults::all() };
    let mut whys: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let t = std::time::Instant::now();
    let mut n = (0u64, 0u64, 0u64);
    for seed in args[0]..args[1] {
        let r = std::panic::catch_unwind(|| run_seed(seed, &faults));
        let what = match r {
            Ok(Ok(s)) => {
                n.0 += s.tally.steps;
                n.1 += s.jobs;
                n.2 += s.tally.starts;
                if args.len() > 3 {
                    println!("{s:?}");
                }
                continue;
            }
            Ok(Err(v)) => {
                if args[1] - args[0] == 1 {
                    println!("{v}")
                }
                v.what.chars().filter(|c| !c.is_ascii_digit()).take(90).collect()
            }
            Err(p) => format!(
                "PANIC {:?}",
                p.downcast_ref::<String>().cloned().or(p.downcast_ref::<&str>().map(|s| s.to_string()))
            ),
        };
        whys.entry(what).or_default().push(seed);
    }
    for (w, s) in &whys {
        println!("{} {w} {:?}", s.len(), &s[..s.len().min(8)]);
    }
    println!("steps {} jobs {} starts {} in {:?}", n.0, n.1, n.2, t.elapsed());
}
