//! The clock of the server that answered last, beside this machine's: times are shown by the server's.

use crate::CLOCK_HEADER;
use reqwest::header::HeaderMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A smaller difference of clocks is taken for the latency of the answer.
const CLOCKS_AGREE_MS: u64 = 2_000;

/// The value of [`server_ahead_ms`].
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// Milliseconds by which the clock of the server that answered last is ahead of this machine's; 0 if they agree within
/// two seconds.
pub fn server_ahead_ms() -> i64 {
    AHEAD_MS.load(Ordering::Relaxed)
}

/// Takes in the time that an answer's headers tell.
pub(super) fn note_clock(headers: &HeaderMap) {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    AHEAD_MS.store(ahead_ms(headers, here), Ordering::Relaxed);
}

fn ahead_ms(headers: &HeaderMap, here_ms: i64) -> i64 {
    let said = headers.get(CLOCK_HEADER).and_then(|value| value.to_str().ok()?.parse::<i64>().ok());
    let ahead = said.map_or(0, |there_ms| there_ms.saturating_sub(here_ms));
    if ahead.unsigned_abs() < CLOCKS_AGREE_MS { 0 } else { ahead }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn a_server_with_another_clock_is_believed_of_its_times() {
        let ahead = |said: &'static str| {
            let headers =
                HeaderMap::from_iter([(CLOCK_HEADER.parse().unwrap(), HeaderValue::from_static(said))]);
            ahead_ms(&headers, 5_000_000)
        };
        assert_eq!((ahead("5001999"), ahead("4998001")), (0, 0));
        assert_eq!((ahead("8600000"), ahead("0")), (3_600_000, -5_000_000));
        assert_eq!(ahead("9223372036854775807"), i64::MAX - 5_000_000);
        assert_eq!((ahead("soon"), ahead_ms(&HeaderMap::new(), 5_000_000)), (0, 0));
    }
}
