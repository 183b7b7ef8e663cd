//! How warm a worker's caches are for a kind of work. Later work displaces what the caches hold; time does not. So an idle
//! worker stays warm.

use std::collections::{BTreeMap, VecDeque};

/// Bookings of other kinds after which nothing is left in the caches of one.
pub const DISPLACED_AFTER: u64 = 64;

/// One worker's odometer of bookings. It remembers at most [`DISPLACED_AFTER`] kinds: an entry is dropped
/// by the comparison that makes it worth nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warmth<K> {
    booked: u64,
    last: BTreeMap<K, u64>,
    recent: VecDeque<K>,
}

impl<K> Default for Warmth<K> {
    fn default() -> Self {
        Warmth { booked: 0, last: BTreeMap::new(), recent: VecDeque::new() }
    }
}

impl<K: Ord + Clone> Warmth<K> {
    /// A task of this kind was booked here.
    pub fn ran(&mut self, kind: K) {
        self.booked += 1;
        self.last.insert(kind.clone(), self.booked);
        self.recent.push_back(kind);
        if self.recent.len() as u64 > DISPLACED_AFTER {
            let oldest = self.recent.pop_front();
            if let Some(oldest) = oldest.filter(|kind| self.of(kind) == 0.0) {
                self.last.remove(&oldest);
            }
        }
    }

    /// 1 right after a task of this kind, 0 when it never ran or is displaced.
    pub fn of(&self, kind: &K) -> f64 {
        let Some(at) = self.last.get(kind) else { return 0.0 };
        let foreign = (self.booked - at).min(DISPLACED_AFTER);
        1.0 - foreign as f64 / DISPLACED_AFTER as f64
    }

    /// Kinds that are remembered.
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// True if nothing that ran here is remembered.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}
