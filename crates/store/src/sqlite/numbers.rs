//! Unsigned numbers and times as integers of SQLite.

use windlass_core::Time;

/// SQLite's integers are signed. The cast is undone by the same cast when the number is read.
pub fn int(n: u64) -> i64 {
    n as i64
}

/// A time in nanoseconds since the Unix epoch.
pub fn time(at: Time) -> i64 {
    int(at.0)
}
