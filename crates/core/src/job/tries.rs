//! What earlier attempts of tasks came to, kept by ranges of tasks that are alike: ten million tasks that failed
//! once are one entry.

use crate::ids::WorkerId;
use std::collections::BTreeMap;
use std::ops::Range;

/// What earlier attempts of a task came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tries {
    /// The number of the last attempt, from 1.
    pub attempt: u32,
    /// The number of attempts that failed.
    pub failures: u32,
    /// Attempts lost with their worker.
    pub losses: u32,
    /// Where the last one failed, as far as the engine was there.
    pub failed_on: Option<WorkerId>,
}

/// The tries of tasks, by task number.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TriesMap {
    /// By the first task of a range: the task behind its last, and what they have in common. Ranges do not
    /// overlap, and two that touch differ.
    ranges: BTreeMap<u32, (u32, Tries)>,
}

impl TriesMap {
    /// True if no task is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges it takes.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// What a task's attempts came to.
    pub fn get(&self, index: u32) -> Option<&Tries> {
        let (_, (end, tries)) = self.ranges.range(..=index).next_back()?;
        (index < *end).then_some(tries)
    }

    /// Sets that of some tasks.
    pub fn insert(&mut self, tasks: Range<u32>, tries: Tries) {
        if tasks.is_empty() {
            return;
        }
        self.remove_range(tasks.clone());
        let (mut start, mut end) = (tasks.start, tasks.end);
        if let Some((before, (stop, same))) = self.ranges.range(..start).next_back()
            && *stop == start
            && *same == tries
        {
            start = *before;
        }
        if let Some((stop, _)) = self.ranges.get(&end).filter(|(_, same)| *same == tries) {
            let stop = *stop;
            self.ranges.remove(&end);
            end = stop;
        }
        self.ranges.insert(start, (end, tries));
    }

    /// Takes a task out.
    pub fn remove(&mut self, index: u32) -> Option<Tries> {
        let tries = *self.get(index)?;
        self.remove_range(index..index + 1);
        Some(tries)
    }

    fn remove_range(&mut self, tasks: Range<u32>) {
        while let Some((start, (end, tries))) = self.ranges.range(..tasks.end).next_back()
            && *end > tasks.start
        {
            let (start, end, tries) = (*start, *end, *tries);
            self.ranges.remove(&start);
            if start < tasks.start {
                self.ranges.insert(start, (tasks.start, tries));
            }
            if end > tasks.end {
                self.ranges.insert(tasks.end, (end, tries));
            }
        }
    }

    /// Changes what the attempts of some tasks came to, where any were made.
    pub fn change(&mut self, tasks: Range<u32>, change: impl Fn(&mut Tries)) {
        let overlaps = self.ranges.range(..tasks.end).rev().take_while(|(_, (end, _))| *end > tasks.start);
        let parts: Vec<(Range<u32>, Tries)> = overlaps
            .map(|(start, (end, tries))| ((*start).max(tasks.start)..(*end).min(tasks.end), *tries))
            .collect();
        for (part, mut tries) in parts {
            change(&mut tries);
            self.insert(part, tries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map_of_single_tasks(steps in prop::collection::vec((0_u8..3, 0_u32..30, 1_u32..8, 1_u32..3), 0..60)) {
            let (mut map, mut plain) = (TriesMap::default(), BTreeMap::<u32, Tries>::new());
            for (what, first, count, attempt) in steps {
                let (tasks, tries) = (first..first + count, Tries { attempt, ..Tries::default() });
                match what {
                    0 => {
                        plain.extend(tasks.clone().map(|index| (index, tries)));
                        map.insert(tasks, tries);
                    }
                    1 => prop_assert_eq!(map.remove(first), plain.remove(&first)),
                    _ => {
                        plain.range_mut(tasks.clone()).for_each(|(_, tries)| tries.failures = 0);
                        map.change(tasks, |tries| tries.failures = 0);
                    }
                }
                for index in 0..40 {
                    prop_assert_eq!(map.get(index), plain.get(&index));
                }
                let mut last: Option<(u32, Tries)> = None;
                for (start, (end, tries)) in &map.ranges {
                    prop_assert!(start < end && last.is_none_or(|(stop, same)| stop < *start || (stop == *start && same != *tries)));
                    last = Some((*end, *tries));
                }
            }
        }
    }
}
