//! Warnings of what a caller can repeat as often as it likes: one is logged each 10 s, and the others are counted.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The least time between two warnings of a kind.
const PAUSE: Duration = Duration::from_secs(10);

/// One kind of warning.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    told: Option<Instant>,
    left_out: u64,
}

impl Seldom {
    /// The number of warnings that were left out since the last one. `None` where this one is left out, too.
    pub(crate) fn tell(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state.told.is_some_and(|told| now.saturating_duration_since(told) < PAUSE) {
            state.left_out += 1;
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_warning_of_a_pause_is_counted_with_the_next() {
        let (seldom, now) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.tell(now), Some(0));
        assert_eq!((seldom.tell(now), seldom.tell(now + PAUSE / 2)), (None, None));
        assert_eq!(seldom.tell(now + PAUSE), Some(2));
        assert_eq!(seldom.tell(now + PAUSE * 2), Some(0));
    }
}
