//! Tasks of a job as people and requests name them: `6`, `3-9`, `1,4-6`.

use crate::quantity::digits;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use utoipa::ToSchema;
use windlass_core::ranges::RangeSet;

/// Tasks of a job to be cancelled or retried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTasks {
    /// Their indexes in the job, from 0: `6`, `3-9` or `1,4-6`.
    pub tasks: String,
}

/// A set of tasks of a job, by their indexes, that is not empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskSet(RangeSet);

/// A text that names no tasks of a job.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' does not name tasks of a job: write 6, 3-9 or 1,4-6, counted from 0")]
pub struct BadTaskSet(String);

impl TaskSet {
    /// The set of one task.
    pub fn one(index: u32) -> TaskSet {
        TaskSet(RangeSet::from_range(index..index.saturating_add(1)))
    }

    /// Adds the tasks of another set.
    pub fn extend(&mut self, more: &TaskSet) {
        more.0.ranges().for_each(|range| self.0.insert_range(range));
    }

    /// The index of the only task; `None` if there are several.
    pub fn only(&self) -> Option<u32> {
        self.0.first().filter(|_| self.0.len() == 1)
    }

    /// The set as the engine has it.
    pub fn into_ranges(self) -> RangeSet {
        self.0
    }
}

impl FromStr for TaskSet {
    type Err = BadTaskSet;

    fn from_str(text: &str) -> Result<Self, BadTaskSet> {
        let mut tasks = RangeSet::default();
        for part in text.split(',') {
            let range = range_of(part).ok_or_else(|| BadTaskSet(text.chars().take(80).collect()))?;
            tasks.insert_range(range);
        }
        Ok(TaskSet(tasks))
    }
}

/// `6` or `3-9`, in digits alone.
fn range_of(part: &str) -> Option<Range<u32>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last): (u32, u32) = (digits(first)?, digits(last)?);
    (first <= last).then_some(first..last.checked_add(1)?)
}

impl fmt::Display for TaskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.0.ranges().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            match range.end - range.start {
                1 => write!(f, "{comma}{}", range.start)?,
                _ => write!(f, "{comma}{}-{}", range.start, range.end - 1)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tasks_are_named_by_numbers_and_ranges() {
        for (text, is) in [("6", "6"), ("3-9", "3-9"), ("4-6,1", "1,4-6"), ("1,2,3", "1-3"), ("7-7", "7")] {
            assert_eq!(text.parse::<TaskSet>().map(|tasks| tasks.to_string()), Ok(is.to_owned()));
        }
        assert_eq!("6".parse::<TaskSet>().unwrap().only(), Some(6));
        assert_eq!("6-7".parse::<TaskSet>().unwrap().only(), None);
        for text in ["", ",", "1,", "-1", "1-", "5-1", "+1", " 1", "a", "1.2", "4294967295", "1-2-3"] {
            let error = text.parse::<TaskSet>().unwrap_err().to_string();
            assert!(error.contains("write 6, 3-9 or 1,4-6"), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_set_is_read_as_it_is_written(ranges in prop::collection::vec((0..500u32, 1..9u32), 1..9)) {
            let mut all = TaskSet::one(ranges[0].0);
            for (first, count) in ranges {
                all.extend(&TaskSet(RangeSet::from_range(first..first + count)));
            }
            prop_assert_eq!(all.to_string().parse::<TaskSet>(), Ok(all));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            _ = text.parse::<TaskSet>();
        }
    }
}
