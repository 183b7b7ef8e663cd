//! The rate of something over the last seconds, such as bookings.

use std::time::Instant;

/// Seconds that are counted separately. The rate is the mean of all but the one under way.
const SECONDS: u64 = 11;

/// Counts of the last seconds.
#[derive(Debug, Default)]
pub(super) struct RecentRate {
    /// The time of the first count.
    began: Option<Instant>,
    /// The second under way, from the beginning.
    newest: u64,
    /// What each second had, at its place modulo their number.
    counts: [u64; SECONDS as usize],
}

impl RecentRate {
    pub(super) fn add(&mut self, count: u64, now: Instant) {
        self.advance(now);
        self.counts[(self.newest % SECONDS) as usize] += count;
    }

    /// The mean of the last ten seconds, or of those since the beginning; `None` in the first one.
    pub(super) fn per_s(&mut self, now: Instant) -> Option<f64> {
        self.advance(now);
        let whole = self.newest.min(SECONDS - 1);
        if whole == 0 {
            return None;
        }
        let under_way = self.counts[(self.newest % SECONDS) as usize];
        let all: u64 = self.counts.iter().sum();
        Some((all - under_way) as f64 / whole as f64)
    }

    /// Forgets what is older than the seconds that are counted.
    fn advance(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let second = now.saturating_duration_since(began).as_secs();
        // More steps than there are places would only clear the same ones.
        self.newest = self.newest.max(second.saturating_sub(SECONDS));
        while self.newest < second {
            self.newest += 1;
            self.counts[(self.newest % SECONDS) as usize] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_rate_is_the_mean_of_the_last_ten_seconds() {
        let (mut rate, start) = (RecentRate::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        rate.add(50, start);
        assert_eq!(rate.per_s(at(900)), None, "one second is not over");
        rate.add(10, at(1_100));
        assert_eq!(rate.per_s(at(1_200)), Some(50.0), "the second under way does not count");
        assert_eq!(rate.per_s(at(2_000)), Some(30.0));
        assert_eq!(rate.per_s(at(10_000)), Some(6.0));
        assert_eq!(rate.per_s(at(11_000)), Some(1.0), "the first second is forgotten");
        assert_eq!(rate.per_s(at(12_000)), Some(0.0));
        rate.add(7, at(1_000_000));
        assert_eq!(rate.per_s(at(1_001_000)), Some(0.7));
    }
}
