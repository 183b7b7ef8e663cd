//! The failed tasks with which a job is stopped: `3`, or `5%` of its tasks.

use crate::quantity::digits;
use windlass_core::job::FailLimit;

/// A text that says neither a number of tasks nor a percentage.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a number of failed tasks: write 3, or 5% for more than 5 of 100 tasks")]
pub struct BadFailLimit(String);

/// Reads a number of tasks from 1, or a percentage below 100.
pub fn parse_fail_limit(text: &str) -> Result<FailLimit, BadFailLimit> {
    let bad = || BadFailLimit(text.chars().take(80).collect());
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent = digits(percent).filter(|percent: &u8| *percent < 100).ok_or_else(bad)?;
            Ok(FailLimit::Percent(percent))
        }
        None => Ok(FailLimit::Tasks(digits(text).filter(|tasks: &u32| *tasks > 0).ok_or_else(bad)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_a_percentage() {
        assert_eq!(parse_fail_limit("3"), Ok(FailLimit::Tasks(3)));
        assert_eq!(parse_fail_limit("0%"), Ok(FailLimit::Percent(0)));
        assert_eq!(parse_fail_limit("99%"), Ok(FailLimit::Percent(99)));
        for text in ["", "%", "0", "-1", "100%", "5 %", "+3", "4294967296", "many", "1.5%"] {
            let error = parse_fail_limit(text).unwrap_err().to_string();
            assert!(error.contains("write 3, or 5%"), "{text:?}: {error}");
        }
    }
}
