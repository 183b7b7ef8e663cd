//! The numbers that one process of a step with chunks may get, and the runs into which these divide the step's tasks.

use crate::space::{Range, Values};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::job::EqualRuns;

/// The numbers that one process may get, as in the extension `TASK_CHUNKING` of Open Job Description. With either of
/// these, chunks of a fixed size divide their numbers evenly: 12 numbers in chunks of 5 are 3 chunks of 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChunkRange {
    /// Numbers without a gap between them, as the first and the last: `1-10`, and `5-5` for one number.
    Contiguous,
    /// Numbers that follow each other in the step, as ranges: `1-3,5,7-11:2`.
    Noncontiguous,
}

/// The runs of the tasks that have these values, in this order. The values are whole numbers.
pub fn runs_of(range: ChunkRange, values: &Values) -> Vec<EqualRuns> {
    let mut runs = Runs::default();
    match (range, values) {
        (ChunkRange::Noncontiguous, values) => runs.push(u32::try_from(values.len()).unwrap_or(u32::MAX), 1),
        (ChunkRange::Contiguous, Values::Ranges(ranges)) => ranges.iter().for_each(|range| runs.add(*range)),
        (ChunkRange::Contiguous, Values::List(list)) => {
            let numbers = list.iter().filter_map(|value| value.parse().ok());
            numbers.for_each(|number| runs.extend(number, 1));
        }
    }
    runs.close();
    runs.ended
}

/// Runs of numbers, each of which is one more than the number before it.
#[derive(Default)]
struct Runs {
    /// Those that have ended.
    ended: Vec<EqualRuns>,
    /// How many numbers the last one has so far.
    open: u32,
    /// The number that would continue it.
    next: Option<i64>,
}

impl Runs {
    fn add(&mut self, range: Range) {
        let count = range.count().and_then(|count| u32::try_from(count).ok()).unwrap_or(u32::MAX);
        if range.step == 1 || count == 1 {
            self.extend(range.start, count);
            return;
        }
        // The first may continue the run before it, and the last may be continued. Those between stand alone.
        self.extend(range.start, 1);
        self.close();
        self.push(1, count - 2);
        let last = i128::from(range.start) + i128::from(range.step) * i128::from(count - 1);
        self.extend(i64::try_from(last).unwrap_or(range.end), 1);
    }

    fn extend(&mut self, first: i64, count: u32) {
        if self.next != Some(first) {
            self.close();
        }
        self.open = self.open.saturating_add(count);
        self.next = first.checked_add(count.into());
    }

    fn close(&mut self) {
        let tasks = std::mem::take(&mut self.open);
        self.push(tasks, u32::from(tasks > 0));
        self.next = None;
    }

    /// This number of runs of equally many tasks.
    fn push(&mut self, tasks: u32, count: u32) {
        if count == 0 {
            return;
        }
        let begin = self.ended.last().map_or(0, |runs| runs.end);
        let end = begin.saturating_add(tasks.saturating_mul(count));
        match self.ended.last_mut().filter(|runs| runs.tasks == tasks) {
            Some(runs) => runs.end = end,
            None => self.ended.push(EqualRuns { tasks, end }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(ranges: &[(i64, i64, i64)]) -> Values {
        let each = ranges.iter().map(|&(start, end, step)| Range { start, end, step });
        Values::Ranges(each.collect())
    }

    /// The length of each run.
    fn lengths(runs: &[EqualRuns]) -> Vec<u32> {
        let mut lengths = Vec::new();
        let mut begin = 0;
        for runs in runs {
            lengths.extend((begin..runs.end).step_by(runs.tasks as usize).map(|_| runs.tasks));
            begin = runs.end;
        }
        lengths
    }

    fn contiguous(values: &Values) -> Vec<u32> {
        lengths(&runs_of(ChunkRange::Contiguous, values))
    }

    #[test]
    fn runs_end_at_gaps() {
        assert_eq!(contiguous(&ranges(&[(1, 1, 1), (10, 12, 1), (18, 50, 1)])), [1, 3, 33]);
        assert_eq!(contiguous(&ranges(&[(1, 3, 1), (4, 6, 1)])), [6], "two ranges without a gap");
        assert_eq!(contiguous(&ranges(&[(1, 2, 1), (3, 7, 2), (8, 8, 5)])), [3, 1, 2]);
        assert_eq!(contiguous(&ranges(&[(-1, 1, 1)])), [3]);
        assert_eq!(contiguous(&ranges(&[(3, 1, -1)])), [1, 1, 1], "a range that falls has no two in a row");
        let list = Values::List(["3", "4", "4", "5", "1"].map(str::to_owned).into());
        assert_eq!(contiguous(&list), [2, 2, 1]);
        let any = runs_of(ChunkRange::Noncontiguous, &ranges(&[(1, 9, 2), (20, 21, 1)]));
        assert_eq!(any, [EqualRuns { tasks: 7, end: 7 }]);
    }

    #[test]
    fn a_million_gaps_are_one_entry() {
        let runs = runs_of(ChunkRange::Contiguous, &ranges(&[(1, 1_999_999, 2)]));
        assert_eq!(runs, [EqualRuns { tasks: 1, end: 1_000_000 }]);
    }

    proptest! {
        #[test]
        fn runs_are_those_of_the_numbers(of in prop::collection::vec((-20i64..20, 0i64..6, 1i64..4), 1..5)) {
            let of: Vec<_> = of.into_iter().map(|(start, more, step)| (start, start + more, step)).collect();
            let numbers: Vec<i64> =
                of.iter().flat_map(|&(start, end, step)| (start..=end).step_by(step as usize)).collect();
            let mut expected = vec![1];
            for pair in numbers.windows(2) {
                match expected.last_mut().filter(|_| pair[1] == pair[0] + 1) {
                    Some(run) => *run += 1,
                    None => expected.push(1),
                }
            }
            prop_assert_eq!(contiguous(&ranges(&of)), expected);
        }
    }
}
