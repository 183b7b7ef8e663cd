//! Sets of task numbers kept as ranges, so that a million tasks are one entry.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// A set of `u32`, stored as disjoint half-open ranges that never touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeSet {
    ends: BTreeMap<u32, u32>,
    len: u32,
}

impl RangeSet {
    /// The set of one range.
    pub fn from_range(range: Range<u32>) -> Self {
        let mut set = RangeSet::default();
        set.insert_range(range);
        set
    }

    /// How many numbers the set holds.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True of the empty set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The smallest number of the set; `None` if it is empty.
    pub fn first(&self) -> Option<u32> {
        self.ends.keys().next().copied()
    }

    /// True if the set holds `n`.
    pub fn contains(&self, n: u32) -> bool {
        self.ends.range(..=n).next_back().is_some_and(|(_, end)| n < *end)
    }

    /// The ranges in order.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u32>> + '_ {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    /// The ranges in order, without what is below `from`.
    pub fn ranges_from(&self, from: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        let over = self.ends.range(..=from).next_back().map(|(_, end)| from..*end);
        let rest = self.ends.range((Bound::Excluded(from), Bound::Unbounded));
        over.filter(|range| !range.is_empty()).into_iter().chain(rest.map(|(start, end)| *start..*end))
    }

    /// The numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges().flatten()
    }

    /// Adds `n`; false if it was there.
    pub fn insert(&mut self, n: u32) -> bool {
        if self.contains(n) {
            return false;
        }
        self.insert_range(n..n + 1);
        true
    }

    /// Adds a range, merging what it meets.
    pub fn insert_range(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Every range that starts at or before the new end and reaches the new start is merged into the new one.
        while let Some((s, e)) = self.ends.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if e < start {
                break;
            }
            self.ends.remove(&s);
            self.len -= e - s;
            start = start.min(s);
            end = end.max(e);
        }
        self.ends.insert(start, end);
        self.len += end - start;
    }

    /// Takes out `n`; false if it was not there.
    pub fn remove(&mut self, n: u32) -> bool {
        let Some((start, end)) = self.ends.range(..=n).next_back().map(|(s, e)| (*s, *e)) else {
            return false;
        };
        if n >= end {
            return false;
        }
        if start == n {
            self.ends.remove(&start);
        } else {
            self.ends.insert(start, n);
        }
        if n + 1 < end {
            self.ends.insert(n + 1, end);
        }
        self.len -= 1;
        true
    }

    /// Takes out and returns the smallest number.
    pub fn pop_first(&mut self) -> Option<u32> {
        let n = self.first()?;
        self.remove(n);
        Some(n)
    }

    /// The numbers that both sets hold.
    pub fn intersection(&self, other: &RangeSet) -> RangeSet {
        let mut both = RangeSet::default();
        let (mut mine, mut theirs) = (self.ranges().peekable(), other.ranges().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            both.insert_range(a.start.max(b.start)..a.end.min(b.end));
            if a.end <= b.end {
                mine.next();
            } else {
                theirs.next();
            }
        }
        both
    }

    /// Takes out every number that `other` holds.
    pub fn subtract(&mut self, other: &RangeSet) {
        for hole in other.ranges() {
            let touched = self.ends.range(..hole.end).rev().map(|(s, e)| *s..*e);
            let touched: Vec<_> = touched.take_while(|range| range.end > hole.start).collect();
            for range in touched {
                self.ends.remove(&range.start);
                self.len -= range.end - range.start;
                self.insert_range(range.start..hole.start.max(range.start));
                self.insert_range(hole.end.min(range.end)..range.end);
            }
        }
    }

    /// Every number moved up by `by`.
    pub fn shifted(&self, by: i64) -> RangeSet {
        let shift = |n: u32| u32::try_from(i64::from(n) + by).expect("task numbers stay in u32");
        RangeSet { ends: self.ends.iter().map(|(s, e)| (shift(*s), shift(*e))).collect(), len: self.len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set(ops in prop::collection::vec((0u8..4, 0u32..60, 0u32..12), 0..80)) {
            let (mut ours, mut model) = (RangeSet::default(), BTreeSet::new());
            for (op, n, width) in ops {
                match op {
                    0 => prop_assert_eq!(ours.insert(n), model.insert(n)),
                    1 => prop_assert_eq!(ours.remove(n), model.remove(&n)),
                    2 => { ours.insert_range(n..n + width); model.extend(n..n + width); }
                    _ => prop_assert_eq!(ours.pop_first(), model.pop_first()),
                }
                prop_assert_eq!(ours.len() as usize, model.len());
                prop_assert!(ours.iter().eq(model.iter().copied()));
                let ranges: Vec<_> = ours.ranges().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
                let rest: Vec<u32> = ours.ranges_from(n).flatten().collect();
                prop_assert!(rest.iter().eq(model.range(n..)));
            }
        }

        #[test]
        fn intersects_and_subtracts_as_a_set(a in prop::collection::btree_set(0u32..60, 0..40),
                               b in prop::collection::btree_set(0u32..60, 0..40)) {
            let set = |s: &BTreeSet<u32>| { let mut r = RangeSet::default(); for n in s { r.insert(*n); } r };
            let both = set(&a).intersection(&set(&b));
            prop_assert!(both.iter().eq(a.intersection(&b).copied()));
            let mut rest = set(&a);
            rest.subtract(&set(&b));
            prop_assert!(rest.iter().eq(a.difference(&b).copied()));
            prop_assert_eq!(rest.len() as usize, a.difference(&b).count());
        }
    }
}
