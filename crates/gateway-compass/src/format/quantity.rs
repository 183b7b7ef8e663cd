//! Amounts of memory and time in Compass CI's notation.

/// The largest amount of memory, in bytes. More is refused as a mistake.
const BYTES_MAX: f64 = (1u64 << 50) as f64;
/// The longest time, in seconds: ten years.
const SECONDS_MAX: f64 = 3_650.0 * 86_400.0;

/// Bytes of `8`, `8g`, `512M` or `0.5t`: powers of 1024, and gigabytes without a unit. `None` if it is not such an
/// amount, negative, or beyond a pebibyte.
pub fn parse_memory(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix('b').unwrap_or(&lower);
    let lower = lower.strip_suffix('i').unwrap_or(lower);
    let (number, shift) = match lower.char_indices().last()? {
        (at, 'k') => (&lower[..at], 10),
        (at, 'm') => (&lower[..at], 20),
        (at, 'g') => (&lower[..at], 30),
        (at, 't') => (&lower[..at], 40),
        _ => (lower, 30),
    };
    let bytes = plain(number)? * (1u64 << shift) as f64;
    (bytes <= BYTES_MAX).then_some(bytes as u64)
}

/// Seconds of `300`, `90s`, `5m`, `2h`, `1d` or `1w`, rounded up. `None` if it is not such a time, negative, or beyond
/// ten years.
pub fn parse_seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().last()? {
        (at, 's') => (&text[..at], 1.0),
        (at, 'm') => (&text[..at], 60.0),
        (at, 'h') => (&text[..at], 3_600.0),
        (at, 'd') => (&text[..at], 86_400.0),
        (at, 'w') => (&text[..at], 604_800.0),
        _ => (text, 1.0),
    };
    let seconds = plain(number)? * unit;
    (seconds <= SECONDS_MAX).then_some(seconds.ceil() as u64)
}

/// A number of digits with at most one dot. Signs, exponents, `inf` and `nan` are refused.
fn plain(text: &str) -> Option<f64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_without_a_unit_is_gigabytes() {
        assert_eq!(parse_memory("8"), Some(8 << 30));
        assert_eq!(parse_memory("8g"), Some(8 << 30));
        assert_eq!(parse_memory("512M"), Some(512 << 20));
        assert_eq!(parse_memory("512MiB"), Some(512 << 20));
        assert_eq!(parse_memory("0.5t"), Some(1 << 39));
        for bad in ["", "g", "-1", "1e9", "nan", "inf", "8gg", "9999999t", "1.2.3"] {
            assert_eq!(parse_memory(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_seconds("300"), Some(300));
        assert_eq!(parse_seconds("1.5m"), Some(90));
        assert_eq!(parse_seconds("2h"), Some(7_200));
        assert_eq!(parse_seconds("1w"), Some(604_800));
        for bad in ["", "s", "-5", "1y", "99999999999d", "NaN"] {
            assert_eq!(parse_seconds(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in ".*") {
            prop_assert!(parse_memory(&text).is_none_or(|bytes| bytes as f64 <= BYTES_MAX));
            prop_assert!(parse_seconds(&text).is_none_or(|seconds| seconds as f64 <= SECONDS_MAX));
        }
    }
}
