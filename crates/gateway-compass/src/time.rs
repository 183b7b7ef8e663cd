//! Times of the interface: seconds since the Unix epoch, and their texts.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::{SystemTime, UNIX_EPOCH};

/// The current time, in seconds since the Unix epoch.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The text of a time in seconds since the Unix epoch: `2026-01-02T03:04:05+0000`.
pub(crate) fn time_text(seconds: u64) -> String {
    let at = Timestamp::from_second(i64::try_from(seconds).unwrap_or(0)).unwrap_or_default();
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S%z").to_string()
}

/// The day of a time in seconds since the Unix epoch: `2026-01-02`.
pub(crate) fn date_text(seconds: u64) -> String {
    time_text(seconds)[..10].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_texts_of_utc() {
        assert_eq!(time_text(0), "1970-01-01T00:00:00+0000");
        assert_eq!(date_text(86_400), "1970-01-02");
    }
}
