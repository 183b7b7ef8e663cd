//! temporary
fn main() {
    let seed: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let (outcome, trace) = windlass_sim::run_seed_traced(seed, &windlass_sim::Faults::all());
    println!("{}", trace.join("\n"));
    println!("{:?}", outcome.map_err(|v| v.what));
}
