//! The clock of leases. Agent and keeper read the same one, so a time in a message means the same to both. It
//! is not the wall clock and never jumps.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since this machine booted, including the time that it slept.
pub fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
