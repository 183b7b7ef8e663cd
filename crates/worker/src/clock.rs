//! The clock that leases count on.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since this machine booted, the time that it slept included.
pub fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
