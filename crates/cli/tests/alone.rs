//! Tests that measure delays, pressure or load, or that need all of this machine. They are a program of their own, and
//! one of them runs at a time, so that no other test takes the processor from them. `--test alone hog::` runs one file.

mod adversary;
mod chaos;
mod cluster_kills;
#[allow(dead_code, reason = "the benches use the rest")]
#[path = "../../bench/src/core_group.rs"]
mod core_group;
#[path = "../../store/tests/support/postgres.rs"]
mod database;
#[path = "support/flood.rs"]
mod flood;
mod hog;
mod listeners;
#[path = "support/listening.rs"]
mod listening;
mod load;
mod notice_load;
#[path = "support/opencue.rs"]
mod site;
#[allow(dead_code, reason = "the tests in all.rs use the rest")]
mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static MACHINE: Mutex<()> = Mutex::new(());

/// The machine, which each test here keeps from its first line to its end.
fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value that a part of all do not exceed.
fn percentile(all: &mut [Duration], part: f64) -> Duration {
    all.sort();
    all[((all.len() - 1) as f64 * part) as usize]
}
