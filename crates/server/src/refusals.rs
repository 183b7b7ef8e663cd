//! What was refused, told in the log, but not so often that garbage could fill a disk.

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use std::fmt::Display;
use std::time::{Duration, Instant};

/// Lines in a window.
const LINES_MAX: u32 = 20;
/// The time in which refusals are counted together.
const WINDOW: Duration = Duration::from_secs(10);

/// Counts refusals, and tells some of them.
pub struct Refusals {
    counter: Counter,
    window: Mutex<Window>,
}

struct Window {
    begun: Instant,
    told: u32,
    hidden: u64,
}

impl Refusals {
    pub fn new(counter: Counter) -> Self {
        let window = Window { begun: Instant::now(), told: 0, hidden: 0 };
        Refusals { counter, window: Mutex::new(window) }
    }

    /// Says who was refused and why; false where that was not written, because much was just before.
    pub fn tell(&self, peer: impl Display, why: impl Display) -> bool {
        self.counter.inc();
        let Some(hidden) = self.may_tell(Instant::now()) else { return false };
        if hidden > 0 {
            tracing::warn!("{hidden} more were refused meanwhile");
        }
        tracing::warn!("refused {peer}: {why}");
        true
    }

    /// Counts one of which no more is to be said.
    pub fn count(&self) {
        self.counter.inc();
    }

    /// How many were not told, if this one may be.
    fn may_tell(&self, now: Instant) -> Option<u64> {
        let mut window = self.window.lock();
        if now.duration_since(window.begun) >= WINDOW {
            (window.begun, window.told) = (now, 0);
        }
        if window.told == LINES_MAX {
            window.hidden += 1;
            return None;
        }
        window.told += 1;
        Some(std::mem::take(&mut window.hidden))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_told_in_part() {
        let refusals = Refusals::new(Counter::default());
        let now = Instant::now();
        let told = (0..1000).filter(|_| refusals.may_tell(now).is_some()).count();
        assert_eq!(told, LINES_MAX as usize);
        assert_eq!(refusals.may_tell(now + WINDOW), Some(1000 - u64::from(LINES_MAX)));
        assert_eq!(refusals.may_tell(now + WINDOW), Some(0));
    }
}
