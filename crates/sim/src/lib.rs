//! A simulation of Windlass: the real engine, a store in memory, workers, a network and a clock, under faults
//! that a seed chooses. After every step the promises are checked against what really happened. The same seed
//! gives the same transcript on every machine.
//!
//! - [`run_seed`] runs one seed and returns the promise that broke, if any.
//! - [`script`] runs scripted transcripts, the engine's readable test cases.
//! - [`swf`] replays recorded workloads without faults, and measures the outcome.
//!
//! The README beside this crate describes the promises, the faults and the language of scripts. Nothing here
//! uses a real clock for a decision, a network or a file, except that `swf` opens traces.

mod brief;
mod cache;
mod clock;
mod counted;
mod delays;
mod events;
mod faults;
mod gangs;
mod held_back;
mod jobs;
mod machine;
mod people;
mod promises;
mod rng;
mod run;
mod scheduler;
pub mod script;
mod shell;
pub mod swf;
mod tally;
mod trace;
mod twists;
mod waits;
mod world;

pub use faults::Faults;
pub use run::{Summary, Violation, run_seed, run_seed_traced};
pub use tally::Tally;

/// The shell command that runs one seed again.
fn replay_command(seed: u64) -> String {
    format!("SEED={seed} cargo test -p windlass-sim --test all seeds::")
}
