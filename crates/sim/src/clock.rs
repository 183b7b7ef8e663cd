//! Virtual time, in nanoseconds.

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const S: u64 = 1_000 * MS;
/// The time at which clocks begin, in nanoseconds. It is far enough from 0 to be stepped back.
pub const CLOCK_START: u64 = 1_000_000 * S;
