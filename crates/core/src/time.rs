//! Time as the engine knows it: a number that its caller read off a clock.

/// Nanoseconds since the Unix epoch. The engine never reads a clock; it clamps what it is given so
/// that its own time does not run backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Time(pub u64);

/// Nanoseconds in a millisecond.
pub const NS_PER_MS: u64 = 1_000_000;

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

impl Time {
    /// Milliseconds since the Unix epoch, rounded down.
    pub const fn as_ms(self) -> u64 {
        self.0 / NS_PER_MS
    }

    /// The time `ns` nanoseconds later.
    pub const fn after(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this time, 0 where `earlier` is later.
    pub const fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
