//! Durations and moments as people read them.

use std::time::{SystemTime, UNIX_EPOCH};
use windlass_api::client::server_ahead_ms;

/// An elapsed time with its two largest units: `350 ms`, `3.2 s`, `2m 05s`, `1h 02m`, `3d 4h`.
pub fn elapsed(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A duration without loss: `2s`, `1h30m`, `1s500ms`. [`parse_duration`](windlass_api::quantity::parse_duration) reads
/// it back.
pub fn exact(ms: u64) -> String {
    let parts = [
        (ms / 86_400_000, "d"),
        (ms / 3_600_000 % 24, "h"),
        (ms / 60_000 % 60, "m"),
        (ms / 1000 % 60, "s"),
        (ms % 1000, "ms"),
    ];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// How long ago, in one unit.
pub fn age(since_ms: u64) -> String {
    in_one_unit(now_ms().saturating_sub(since_ms))
}

/// An elapsed time in one unit: `3s`, `2m`, `5h`, `4d`.
pub fn in_one_unit(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7200 => format!("{}m", s / 60),
        s @ 7200..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// A predicted time from now, rounded: `at once`, `in 20 s`, `in 3 min`, `in 2 h`.
pub fn in_about(ms: u64) -> String {
    match ms.div_ceil(1000) {
        0 => "at once".to_owned(),
        s @ 1..90 => format!("in {s} s"),
        s @ 90..5400 => format!("in {} min", (s + 30) / 60),
        s => format!("in {} h", (s + 1800) / 3600),
    }
}

/// The time of day of a moment of the server's clock, in the time zone of this machine.
pub fn clock_time(ms: u64) -> String {
    let moment = moment(ms);
    moment.split_once(' ').map_or(moment.clone(), |(_, time)| time.to_owned())
}

/// A moment of the server's clock, shown by the clock and time zone of this machine.
pub fn moment(ms: u64) -> String {
    let ms = ms.saturating_add_signed(server_ahead_ms().saturating_neg());
    let stamp = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    stamp.map_or_else(
        || format!("{ms} ms after 1970"),
        |stamp| stamp.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// The same with milliseconds.
pub fn exact_moment(ms: u64) -> String {
    let here_ms = ms.saturating_add_signed(server_ahead_ms().saturating_neg());
    format!("{}.{:03}", moment(ms), here_ms % 1000)
}

/// Milliseconds since the Unix epoch by the clock of the server that answered last. Ages computed with it are right
/// even if that clock or this machine's is wrong.
pub fn now_ms() -> u64 {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    here.saturating_add_signed(server_ahead_ms())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::quantity::parse_duration;

    #[test]
    fn exact_durations_are_read_back() {
        for ms in [1, 500, 1_000, 1_500, 59_999, 60_000, 3_600_001, 90_061_001, 86_400_000] {
            assert_eq!(parse_duration(&exact(ms)), Ok(ms));
        }
        assert_eq!(exact(5_400_000), "1h30m");
    }

    #[test]
    fn what_is_expected_is_rounded() {
        let all = [0, 1, 20_000, 89_000, 90_000, 181_000, 5_399_000, 5_400_000, 90_000_000].map(in_about);
        let said = [
            "at once",
            "in 1 s",
            "in 20 s",
            "in 89 s",
            "in 2 min",
            "in 3 min",
            "in 90 min",
            "in 2 h",
            "in 25 h",
        ];
        assert_eq!(all, said);
    }

    #[test]
    fn elapsed_time_is_as_precise_as_it_matters() {
        assert_eq!(elapsed(350), "350 ms");
        assert_eq!(elapsed(3_249), "3.2 s");
        assert_eq!(elapsed(125_000), "2m 05s");
        assert_eq!(elapsed(3_720_000), "1h 02m");
        assert_eq!(elapsed(273_600_000), "3d 4h");
    }
}
