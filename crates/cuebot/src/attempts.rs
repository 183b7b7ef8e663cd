//! Attempts at a transaction that PostgreSQL ended for waiting in a circle with others, and the pauses between them.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Attempts at most. All transactions lock in one order (`locks.rs`), so that only other programs are met.
const ATTEMPTS_MAX: u32 = 8;
/// The first pause is at most this long.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest of all pauses.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The attempts at one transaction.
#[derive(Default)]
pub struct Attempts {
    failed: u32,
}

impl Attempts {
    /// Waits for the next attempt. False if there is none.
    pub async fn again(&mut self) -> bool {
        self.failed += 1;
        if self.failed >= ATTEMPTS_MAX {
            return false;
        }
        tokio::time::sleep(pause(self.failed, random_number())).await;
        true
    }
}

/// The pause after this number of failures, from a random number. The longest one doubles with each failure. Those that
/// met each other pause for different times, and so do not meet again.
pub(crate) fn pause(failed: u32, random: u64) -> Duration {
    let longest = PAUSE.saturating_mul(2_u32.saturating_pow(failed.saturating_sub(1))).min(PAUSE_MAX);
    longest / 1_000 * (random % 1_000 + 1) as u32
}

/// A number for the next pause.
pub(crate) fn random_number() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        assert_eq!(pause(1, 999), PAUSE);
        assert_eq!(pause(1, 499), PAUSE / 2);
        assert_eq!(pause(3, 1_999), PAUSE * 4);
        for failed in [7, 40, u32::MAX] {
            assert_eq!(pause(failed, 999), PAUSE_MAX);
        }
        assert!(pause(1, 0) > Duration::ZERO);
    }
}
