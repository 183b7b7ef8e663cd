//! The end of the token that the server was shown which answered last.

use crate::{CLOCK_HEADER, TOKEN_END_HEADER};
use reqwest::header::HeaderMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The value of [`token_ends_ms`]; 0 for `None`.
static ENDS_MS: AtomicU64 = AtomicU64::new(0);

/// When the token of this process expires, by the server's clock in milliseconds since the Unix epoch. `None` if no answer
/// said that this is soon.
pub fn token_ends_ms() -> Option<u64> {
    Some(ENDS_MS.load(Ordering::Relaxed)).filter(|ends_ms| *ends_ms > 0)
}

/// Takes in the end that an answer's headers tell.
pub(super) fn note_token_end(headers: &HeaderMap) {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    if let Some(ends_ms) = near_end(headers, here) {
        ENDS_MS.store(ends_ms, Ordering::Relaxed);
    }
}

fn near_end(headers: &HeaderMap, here_ms: u64) -> Option<u64> {
    let clock = headers.get(CLOCK_HEADER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let (ends, told_from) = headers.get(TOKEN_END_HEADER)?.to_str().ok()?.split_once(' ')?;
    let (ends_ms, told_from_ms): (u64, u64) = (ends.parse().ok()?, told_from.parse().ok()?);
    (clock.unwrap_or(here_ms) >= told_from_ms).then_some(ends_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn an_end_counts_from_when_it_is_to_be_told() {
        let near = |clock: &'static str, end: &'static str| {
            let pairs = [(CLOCK_HEADER, clock), (TOKEN_END_HEADER, end)].into_iter();
            let pairs = pairs.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            near_end(&HeaderMap::from_iter(pairs), 9_000)
        };
        assert_eq!((near("6999", "8000 7000"), near("7000", "8000 7000")), (None, Some(8000)));
        assert_eq!(near("", "8000 7000"), Some(8000), "by this machine's clock");
        for bad in ["", "8000", "8000 soon", "later 7000"] {
            assert_eq!(near("7000", bad), None, "{bad}");
        }
        assert_eq!(near_end(&HeaderMap::new(), 9_000), None);
    }
}
