//! Sizes, durations and amounts as people write and read them.

use std::time::{SystemTime, UNIX_EPOCH};
use windlass_api::client::server_ahead_ms;

/// Bytes from `500M`, `2GiB`, `1.5g` or a plain number; every unit is a power of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = split_number(text);
    let power = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        "p" | "pb" | "pib" => 5,
        _ => return Err(format!("invalid size '{text}': write 500M, 2GiB or 1.5g")),
    };
    scaled(number, 1u64 << (10 * power))
        .ok_or_else(|| format!("invalid size '{text}': write 500M, 2GiB or 1.5g"))
}

/// Cpus from `2` or `0.5`, in hundredths at the finest.
pub fn parse_cpus(text: &str) -> Result<f64, String> {
    let (number, rest) = split_number(text.trim());
    let cpus: f64 = match number.parse() {
        Ok(cpus) if rest.is_empty() => cpus,
        _ => return Err(format!("invalid number of cpus '{text}': write 2 or 0.5")),
    };
    if cpus > 0.0 && (cpus * 100.0).round() < 1.0 {
        return Err(format!("'{text}' is less than the smallest share of a cpu, 0.01"));
    }
    if cpus > 40_000_000.0 {
        return Err(format!("'{text}' is more cpus than any machine has"));
    }
    Ok(cpus)
}

/// Milliseconds from `90s`, `1h30m`, `500ms`, `HH:MM:SS`, or a plain number of seconds.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let bad = || format!("invalid duration '{text}': write 90s, 1h30m, 500ms, 01:30:00 or 90 (seconds)");
    let trimmed = text.trim();
    let ms = if trimmed.contains(':') { clock(trimmed) } else { units(trimmed) }.ok_or_else(bad)?;
    if ms == 0 {
        return Err(format!("the duration must be more than 0, not '{text}'"));
    }
    Ok(ms)
}

/// `HH:MM:SS`.
fn clock(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else { return None };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<u64>().ok())?;
    let (hours, minutes, seconds) = (digits(hours)?, digits(minutes)?, digits(seconds)?);
    if minutes > 59 || seconds > 59 {
        return None;
    }
    hours.checked_mul(3600)?.checked_add(minutes * 60 + seconds)?.checked_mul(1000)
}

/// A sum of numbers with units; a number alone is seconds.
fn units(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, tail) = split_number(rest);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let ms = match tail[..unit_end].trim() {
            // A number without a unit is valid only alone.
            "" if number.len() == text.len() => 1_000,
            "ms" => 1,
            "s" | "sec" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(scaled(number, ms)?)?;
        rest = &tail[unit_end..];
    }
    (!text.is_empty()).then_some(total)
}

/// The digits and dots at the start, and the rest.
fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

/// A number times a unit: exact if the number is whole, `None` if it is not a number or the product is too large.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    if !number.contains('.') {
        return number.parse::<u64>().ok()?.checked_mul(unit);
    }
    let value = number.parse::<f64>().ok()? * unit as f64;
    (value < u64::MAX as f64).then_some(value.round() as u64)
}

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

/// A duration as [`parse_duration`] reads it, without loss: `2s`, `1h30m`, `1s500ms`.
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

/// How long ago, in one unit: `3s`, `2m`, `5h`, `4d`.
pub fn age(since_ms: u64) -> String {
    match now_ms().saturating_sub(since_ms) / 1000 {
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

/// Milliseconds since the Unix epoch by the clock of the server that answered last. Ages computed with it are right
/// even if that clock or this machine's is wrong.
pub fn now_ms() -> u64 {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    here.saturating_add_signed(server_ahead_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("500M", 500 << 20),
            ("2GiB", 2 << 30),
            ("2 GiB", 2 << 30),
            ("1.5g", 3 << 29),
            ("1k", 1024),
            ("1KB", 1024),
            ("3t", 3 << 40),
            (".5k", 512),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn odd_sizes_are_refused() {
        for text in ["", " ", "M", ".", "-1", "1e9", "inf", "NaN", "1.2.3M", "5x", "5 M M", "20000000P", "९"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cpus_have_two_decimals() {
        assert_eq!(parse_cpus("2"), Ok(2.0));
        assert_eq!(parse_cpus("0.25"), Ok(0.25));
        assert_eq!(parse_cpus("0"), Ok(0.0));
        for text in ["", "-1", "0.001", "inf", "nan", "1e3", "2c", "40000001"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_come_in_many_forms() {
        for (text, ms) in [
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("1h 5m", 3_900_000),
            ("500ms", 500),
            ("2", 2_000),
            ("0.5", 500),
            ("1.5h", 5_400_000),
            ("01:30:00", 5_400_000),
            ("100:00:01", 360_001_000),
            ("2d", 172_800_000),
            ("2min", 120_000),
        ] {
            assert_eq!(parse_duration(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn odd_durations_are_refused() {
        for text in [
            "",
            "0",
            "0s",
            "-5",
            "s",
            "1h30",
            "5 5",
            "1x",
            "1:30",
            "00:60:00",
            "1:2:3:4",
            "+1:00:00",
            "1e3",
            "99999999999999999999",
            "999999999999999d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

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
