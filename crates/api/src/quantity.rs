//! Sizes, durations and numbers of cpus as people write them in flags and files.

use std::str::FromStr;

/// The reason why a text is not a valid quantity.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadQuantity {
    /// Not a number with a unit of [`parse_size`], or more than 2^64 bytes.
    #[error("invalid size '{0}': write 500M, 2GiB or 1.5g")]
    Size(String),
    #[error("invalid number of cpus '{0}': write 2 or 0.5")]
    Cpus(String),
    #[error("'{0}' is less than the smallest share of a cpu, 0.01")]
    SmallShare(String),
    #[error("'{0}' is more cpus than any machine has")]
    ManyCpus(String),
    /// Not a duration of [`parse_duration`], or one of more than 2^64 ms.
    #[error("invalid duration '{0}': write 90s, 1h30m, 500ms, 01:30:00 or 90 (seconds)")]
    Duration(String),
    #[error("the duration must be more than 0, not '{0}'")]
    NoDuration(String),
    #[error("invalid umask '{0}': write up to four octal digits, such as 022 or 0077")]
    Umask(String),
}

impl From<BadQuantity> for String {
    fn from(bad: BadQuantity) -> String {
        bad.to_string()
    }
}

/// Bytes from `500M`, `2GiB`, `1.5g` or a plain number; every unit is a power of 1024.
pub fn parse_size(text: &str) -> Result<u64, BadQuantity> {
    let text = text.trim();
    let bad = || BadQuantity::Size(text.to_owned());
    let (number, unit) = split_number(text);
    let power = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        "p" | "pb" | "pib" => 5,
        _ => return Err(bad()),
    };
    scaled(number, 1u64 << (10 * power)).ok_or_else(bad)
}

/// Cpus from `2` or `0.5`, in hundredths at the finest.
pub fn parse_cpus(text: &str) -> Result<f64, BadQuantity> {
    let (number, rest) = split_number(text.trim());
    let cpus: f64 = match number.parse() {
        Ok(cpus) if rest.is_empty() => cpus,
        _ => return Err(BadQuantity::Cpus(text.to_owned())),
    };
    if cpus > 0.0 && (cpus * 100.0).round() < 1.0 {
        return Err(BadQuantity::SmallShare(text.to_owned()));
    }
    if cpus > 40_000_000.0 {
        return Err(BadQuantity::ManyCpus(text.to_owned()));
    }
    Ok(cpus)
}

/// A umask from one to four octal digits, such as `022`: the permissions that new files lack.
pub fn parse_umask(text: &str) -> Result<u32, BadQuantity> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mask = u32::from_str_radix(text, 8).ok().filter(|mask| is_octal && text.len() <= 4 && *mask <= 0o777);
    mask.ok_or_else(|| BadQuantity::Umask(text.to_owned()))
}

/// A umask as [`parse_umask`] reads it, with the four digits that shells print.
pub fn umask_text(mask: u32) -> String {
    format!("{mask:04o}")
}

/// Milliseconds from `90s`, `1h30m`, `500ms`, `HH:MM:SS`, or a plain number of seconds.
pub fn parse_duration(text: &str) -> Result<u64, BadQuantity> {
    let trimmed = text.trim();
    let ms = if trimmed.contains(':') { clock(trimmed) } else { units(trimmed) };
    match ms {
        Some(0) => Err(BadQuantity::NoDuration(text.to_owned())),
        Some(ms) => Ok(ms),
        None => Err(BadQuantity::Duration(text.to_owned())),
    }
}

/// Seconds from `90`, or from what [`parse_duration`] reads. For settings in seconds.
pub fn parse_seconds(text: &str) -> Result<f64, BadQuantity> {
    parse_in(text, 1000)
}

/// Minutes from `10`, or from what [`parse_duration`] reads. For settings in minutes.
pub fn parse_minutes(text: &str) -> Result<f64, BadQuantity> {
    parse_in(text, 60_000)
}

/// Days from `14`, or from what [`parse_duration`] reads. For settings in days.
pub fn parse_days(text: &str) -> Result<f64, BadQuantity> {
    parse_in(text, 86_400_000)
}

/// A duration in units of `unit_ms`. A plain number counts these units.
fn parse_in(text: &str, unit_ms: u64) -> Result<f64, BadQuantity> {
    match text.trim().parse::<f64>() {
        Ok(number) => Ok(number),
        Err(_) => parse_duration(text).map(|ms| ms as f64 / unit_ms as f64),
    }
}

/// A number of digits alone: no sign, no space.
pub fn digits<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Milliseconds of a time `HH:MM:SS`.
fn clock(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else { return None };
    let (hours, minutes, seconds): (u64, u64, u64) = (digits(hours)?, digits(minutes)?, digits(seconds)?);
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
    fn umasks_are_octal() {
        for (text, mask, shown) in
            [("022", 0o22, "0022"), ("7", 7, "0007"), ("0777", 0o777, "0777"), ("0", 0, "0000")]
        {
            assert_eq!(parse_umask(text).map(|mask| (mask, umask_text(mask))), Ok((mask, shown.to_owned())));
        }
        for text in ["", "8", "1000", "00022", "+22", "u=rwx", " 022"] {
            assert!(parse_umask(text).is_err(), "{text}");
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
    fn durations_without_a_unit_count_that_of_their_setting() {
        assert_eq!((parse_seconds("90"), parse_seconds("1m30s")), (Ok(90.0), Ok(90.0)));
        assert_eq!((parse_minutes("0.5"), parse_minutes("30s")), (Ok(0.5), Ok(0.5)));
        assert_eq!((parse_days("14"), parse_days("12h")), (Ok(14.0), Ok(0.5)));
        assert!(parse_seconds("soon").is_err() && parse_days("").is_err());
    }
}
