//! The caches of a simulated machine: keys with their sizes, and no contents. `machine` reads keys for tasks
//! and reports the rest to the scheduler. A cache never has more keys than its room.

use std::collections::{BTreeMap, VecDeque};

/// A cache of keys that evicts the least recently used one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cache {
    keys: BTreeMap<String, u64>,
    /// Keys by last use, the most recent one at the end.
    order: VecDeque<String>,
    room: usize,
    mute: bool,
}

impl Cache {
    /// An empty cache with room for `room` keys. A `mute` cache always reports that it is empty, so that the
    /// scheduler knows no warm worker.
    pub fn new(room: usize, mute: bool) -> Self {
        Cache { room, mute, ..Cache::default() }
    }

    /// Reads these keys for a task. True if one of them was not in the cache and has to be fetched.
    pub fn read(&mut self, keys: &BTreeMap<String, Option<u64>>) -> bool {
        let cold = keys.keys().any(|key| !self.keys.contains_key(key));
        for (key, bytes) in keys {
            self.put(key, bytes.unwrap_or(0));
        }
        cold
    }

    /// Adds a key, or marks it as just used.
    pub fn put(&mut self, key: &str, bytes: u64) {
        self.order.retain(|other| other != key);
        self.order.push_back(key.to_owned());
        self.keys.insert(key.to_owned(), bytes);
        while self.keys.len() > self.room
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    /// The keys that the worker reports.
    pub fn told(&self) -> BTreeMap<String, u64> {
        if self.mute { BTreeMap::new() } else { self.keys.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_for_longest_goes_first() {
        let mut cache = Cache::new(2, false);
        let mut reads = |key: &str| cache.read(&BTreeMap::from([(key.to_owned(), Some(1))]));
        let cold: Vec<bool> = ["a", "b", "a", "c", "a", "b"].into_iter().map(&mut reads).collect();
        assert_eq!(cold, [true, true, false, true, false, true]);
        assert_eq!(cache.told().into_keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
