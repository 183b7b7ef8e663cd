//! Values at equal steps of time, the oldest of which go: pure, and the time is an argument.
//!
//! Properties: a step that nothing was said of is a gap; a clock that goes on by more than a ring holds leaves nothing;
//! a clock that is set back drops what lies in its future, so that values always stand in the order of time.

use std::ops::Range;

/// Which steps a set of rings of one length holds. Steps are counted from the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeline {
    len: u64,
    /// The first and the last step that something was said of.
    known: Option<(u64, u64)>,
}

impl Timeline {
    /// Holds the last `len` steps.
    pub fn new(len: usize) -> Timeline {
        Timeline { len: len as u64, known: None }
    }

    /// The last step that something was said of.
    pub fn newest(&self) -> Option<u64> {
        self.known.map(|(_, newest)| newest)
    }

    /// The steps that are held, oldest first.
    pub fn held(&self) -> Range<u64> {
        self.known
            .map_or(0..0, |(oldest, newest)| oldest.max((newest + 1).saturating_sub(self.len))..newest + 1)
    }

    /// Something is about to be said of `step`, which becomes the newest. Returns the steps whose places hold something
    /// else, which each ring has to clear; none if the step is the newest already.
    pub fn go_to(&mut self, step: u64) -> Range<u64> {
        let Some((oldest, newest)) = self.known else {
            self.known = Some((step, step));
            return (step + 1).saturating_sub(self.len)..step + 1;
        };
        if step < newest {
            let stale = self.drop_from(step);
            self.known = Some((oldest.min(step), step));
            return stale;
        }
        self.known = Some((oldest, step));
        (newest + 1).max((step + 1).saturating_sub(self.len))..step + 1
    }

    /// Nothing is known of `step` and what comes after it. Returns the steps that each ring has to clear.
    pub fn drop_from(&mut self, step: u64) -> Range<u64> {
        let Some((oldest, newest)) = self.known else { return 0..0 };
        if step > newest {
            return 0..0;
        }
        self.known = (oldest < step).then(|| (oldest, step - 1));
        step.max((newest + 1).saturating_sub(self.len))..newest + 1
    }
}

/// A value for each step of a [`Timeline`].
#[derive(Clone, PartialEq, Debug)]
pub struct Ring<T> {
    slots: Box<[T]>,
}

impl<T: Copy> Ring<T> {
    /// Of `len` steps, all of which are `gap`.
    pub fn new(len: usize, gap: T) -> Ring<T> {
        Ring { slots: vec![gap; len].into_boxed_slice() }
    }

    fn slot(&self, step: u64) -> usize {
        (step % self.slots.len() as u64) as usize
    }

    /// The value at a step that the timeline holds.
    pub fn get(&self, step: u64) -> T {
        self.slots[self.slot(step)]
    }

    /// Replaces the value at a step that the timeline holds.
    pub fn set(&mut self, step: u64, value: T) {
        let slot = self.slot(step);
        self.slots[slot] = value;
    }

    /// Clears what [`Timeline::go_to`] or [`Timeline::drop_from`] returned.
    pub fn clear(&mut self, steps: Range<u64>, gap: T) {
        steps.for_each(|step| self.set(step, gap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// A map from step to value, cut to the last steps and dropped beyond a clock that was set back, is the model.
        #[test]
        fn a_ring_is_the_end_of_a_map(len in 1usize..20, moves in prop::collection::vec((-30i64..40, 0u32..100), 1..60)) {
            let mut timeline = Timeline::new(len);
            let mut ring: Ring<Option<u32>> = Ring::new(len, None);
            let (mut model, mut at, mut oldest) = (BTreeMap::new(), 1_000u64, u64::MAX);
            for (by, value) in moves {
                at = at.saturating_add_signed(by);
                ring.clear(timeline.go_to(at), None);
                ring.set(at, Some(value));
                model.split_off(&at);
                model.insert(at, value);
                oldest = oldest.min(at);
                let first = oldest.max((at + 1).saturating_sub(len as u64));
                prop_assert_eq!(timeline.held(), first..at + 1);
                model = model.split_off(&first);
                for step in timeline.held() {
                    prop_assert_eq!(ring.get(step), model.get(&step).copied(), "step {}", step);
                }
            }
        }

        #[test]
        fn what_is_dropped_is_gone(len in 1usize..20, steps in 1u64..40, from in 0u64..45) {
            let mut timeline = Timeline::new(len);
            let mut ring: Ring<Option<u64>> = Ring::new(len, None);
            for step in 5..5 + steps {
                ring.clear(timeline.go_to(step), None);
                ring.set(step, Some(step));
            }
            ring.clear(timeline.drop_from(from), None);
            prop_assert!(timeline.newest().is_none_or(|newest| newest < from.max(1)));
            let overwritten = (5 + steps).saturating_sub(len as u64);
            for step in timeline.held() {
                prop_assert_eq!(ring.get(step), Some(step).filter(|step| *step >= overwritten));
            }
        }
    }
}
