//! The numbers of `--array`.

use windlass_api::Range;
use windlass_core::bounds::TASKS_PER_JOB_MAX;

/// The tasks of an array.
#[derive(Clone, PartialEq, Debug)]
pub enum ArrayArg {
    /// Numbers of one range.
    Range(Range),
    /// Numbers of several ranges, or with leading zeros, as they are written.
    List(Vec<String>),
}

/// A range with the number of digits to which its numbers are filled up with zeros; 0 is none.
struct PaddedRange {
    range: Range,
    digits: usize,
}

/// `1-100`, `1-100:5`, `7`, `1,3,7-9:2`, `001-100`; numbers may be negative.
pub fn parse_array(text: &str) -> Result<ArrayArg, String> {
    let ranges: Vec<PaddedRange> = text.split(',').map(parse_range).collect::<Result<_, _>>()?;
    if let [PaddedRange { range, digits: 0 }] = ranges.as_slice() {
        return Ok(ArrayArg::Range(*range));
    }
    let counts = ranges.iter().map(|part| part.range.count().unwrap_or(0));
    if counts.fold(0u128, u128::saturating_add) > u128::from(TASKS_PER_JOB_MAX) {
        return Err(format!(
            "'{text}' has more than {TASKS_PER_JOB_MAX} numbers, the most tasks that a job may have"
        ));
    }
    Ok(ArrayArg::List(ranges.iter().flat_map(PaddedRange::numbers).collect()))
}

fn parse_range(text: &str) -> Result<PaddedRange, String> {
    let bad = || format!("invalid range '{text}': write 1-100, 1-100:5 or a list such as 1,3,7-9");
    let (span, step) = match text.split_once(':') {
        None => (text, 1),
        Some((span, step)) => (span, integer(step).ok_or_else(bad)?),
    };
    // The first dash may be a sign, so the one that separates is looked for after it.
    let dash = span.char_indices().skip(1).find(|(_, c)| *c == '-').map(|(at, _)| at);
    let (first, last) = dash.map_or((span, span), |at| (&span[..at], &span[at + 1..]));
    let range = Range { start: integer(first).ok_or_else(bad)?, end: integer(last).ok_or_else(bad)?, step };
    if range.count().is_none() {
        return Err(format!("the range '{text}' is empty"));
    }
    let digits = [first, last].map(|number| number.trim_start_matches('-'));
    let is_padded = digits.iter().any(|digits| digits.len() > 1 && digits.starts_with('0'));
    let longest = digits[0].len().max(digits[1].len());
    Ok(PaddedRange { range, digits: if is_padded { longest } else { 0 } })
}

impl PaddedRange {
    /// The numbers as they are written. The caller has checked how many there are.
    fn numbers(&self) -> impl Iterator<Item = String> + use<> {
        let PaddedRange { range: Range { start, step, .. }, digits } = *self;
        (0..self.range.count().unwrap_or(0)).map(move |place| {
            let number = i128::from(start) + i128::from(step) * place as i128;
            let sign = if number < 0 { "-" } else { "" };
            format!("{sign}{:0digits$}", number.unsigned_abs())
        })
    }
}

/// An integer. `parse` alone would accept a plus sign.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_stays_a_range() {
        let is = |text: &str, start, end, step| {
            assert_eq!(parse_array(text), Ok(ArrayArg::Range(Range { start, end, step })), "{text}");
        };
        is("1-100", 1, 100, 1);
        is("0-9", 0, 9, 1);
        is("1-100:5", 1, 100, 5);
        is("7", 7, 7, 1);
        is("-5--1", -5, -1, 1);
        is("10-1:-3", 10, 1, -3);
    }

    #[test]
    fn several_ranges_and_padded_numbers_are_lists() {
        let is = |text: &str, numbers: &[&str]| {
            let numbers = numbers.iter().map(ToString::to_string).collect();
            assert_eq!(parse_array(text), Ok(ArrayArg::List(numbers)), "{text}");
        };
        is("1,3,7-9", &["1", "3", "7", "8", "9"]);
        is("1,7-11:2", &["1", "7", "9", "11"]);
        is("008-011", &["008", "009", "010", "011"]);
        is("098-101", &["098", "099", "100", "101"]);
        is("01", &["01"]);
        is("01-3,7", &["01", "02", "03", "7"]);
        is("-02-01", &["-02", "-01", "00", "01"]);
    }

    #[test]
    fn what_is_not_an_array_is_refused() {
        for text in [
            "",
            "-",
            "a",
            "1-",
            "5-1",
            "1-5:0",
            "1-5:",
            "1-5:x",
            "+1-5",
            "1 -5",
            "1-99999999999999999999",
            "1,",
            ",1",
            "1,,2",
            "1,5-1",
        ] {
            assert!(parse_array(text).is_err(), "{text}");
        }
        let many = parse_array("1-9000000000,1").unwrap_err();
        assert!(many.contains("more than"), "{many}");
        assert!(parse_array("5-1").unwrap_err().contains("the range '5-1' is empty"));
    }
}
