//! The notice in a worker's log that its token expires. The server says with each connection when that is, and from when
//! on it is to be told; until then nothing is said, and from then on once a day.

use std::time::Duration;
use tokio::time::Instant;

/// Interval between two notices.
const EVERY: Duration = Duration::from_secs(86_400);

/// The end of this worker's token.
#[derive(Clone, Copy, Debug)]
pub struct TokenNotice {
    ends: Instant,
    next: Instant,
}

impl TokenNotice {
    /// The notice of an end as the server's header tells it: the end, and from when on it is told, in milliseconds of the
    /// server's clock, which is `server_ms` now. `None` if it cannot be read.
    pub fn new(said: &str, server_ms: u64, now: Instant) -> Option<TokenNotice> {
        let (ends, told_from) = said.split_once(' ')?;
        let at = |ms: &str| {
            let left = ms.parse::<u64>().ok()?.saturating_sub(server_ms);
            now.checked_add(Duration::from_millis(left))
        };
        Some(TokenNotice { ends: at(ends)?, next: at(told_from)? })
    }

    /// The time that is left, if it is to be told now.
    pub fn due(&mut self, now: Instant) -> Option<Duration> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        Some(self.ends.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_from_its_time_on_and_once_a_day() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3_600));
        let mut notice = TokenNotice::new("360000000 180000000", 0, now).unwrap();
        assert_eq!(notice.due(now + 49 * hour), None);
        assert_eq!(notice.due(now + 50 * hour), Some(50 * hour));
        assert_eq!(notice.due(now + 73 * hour), None);
        assert_eq!(notice.due(now + 74 * hour), Some(26 * hour));
        // A worker that connects meanwhile is told at once, also by a server whose clock differs.
        let mut late = TokenNotice::new("360000000 180000000", 324_000_000, now).unwrap();
        assert_eq!(late.due(now), Some(10 * hour));
        assert!(["", "1", "x 1", "1 x"].iter().all(|said| TokenNotice::new(said, 0, now).is_none()));
    }
}
