//! Durations in settings of servers and workers: a plain number counts the unit of its setting.

use crate::ui::quantity::parse_duration;

/// A duration in units of `unit_ms`: a plain number counts these units, and all that [`parse_duration`] reads is converted.
fn parse_in(text: &str, unit_ms: u64) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) => Ok(number),
        Err(_) => parse_duration(text).map(|ms| ms as f64 / unit_ms as f64),
    }
}

/// Seconds from `90`, `90s` or `5m`.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    parse_in(text, 1000)
}

/// Minutes from `10`, `90s` or `1h`.
pub fn parse_minutes(text: &str) -> Result<f64, String> {
    parse_in(text, 60_000)
}

/// Days from `14`, `14d` or `12h`.
pub fn parse_days(text: &str) -> Result<f64, String> {
    parse_in(text, 86_400_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_without_a_unit_count_that_of_their_flag() {
        assert_eq!((parse_seconds("90"), parse_seconds("1m30s")), (Ok(90.0), Ok(90.0)));
        assert_eq!((parse_minutes("0.5"), parse_minutes("30s")), (Ok(0.5), Ok(0.5)));
        assert_eq!((parse_days("14"), parse_days("12h")), (Ok(14.0), Ok(0.5)));
        assert!(parse_seconds("soon").is_err() && parse_days("").is_err());
    }
}
