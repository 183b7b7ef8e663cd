//! The worker's clocks. Leases use the time since boot: agent and keeper read the same clock, so a time in a message
//! means the same to both, and it never jumps. Results carry the wall clock.

use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since this machine booted, including the time that it slept.
pub fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds since the Unix epoch, by the wall clock.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
