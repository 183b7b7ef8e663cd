//! Bounds of users, jobs or addresses, which are remembered only while they are in use.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Something of each key, for as long as a request of the key has it.
pub struct PerKey<K, T>(Mutex<BTreeMap<K, Weak<T>>>);

impl<K, T> Default for PerKey<K, T> {
    fn default() -> Self {
        PerKey(Mutex::default())
    }
}

impl<K: Ord, T> PerKey<K, T> {
    /// What this key has, made where it has none. Keys that have none any more are forgotten then.
    pub fn of(&self, key: K, make: impl FnOnce() -> T) -> Arc<T> {
        let mut known = self.0.lock();
        if let Some(own) = known.get(&key).and_then(Weak::upgrade) {
            return own;
        }
        known.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(make());
        known.insert(key, Arc::downgrade(&own));
        own
    }

    /// The number of keys that have one.
    pub fn count(&self) -> usize {
        self.0.lock().values().filter(|own| own.strong_count() > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_until_it_is_dropped_and_is_forgotten_then() {
        let all = PerKey::default();
        let (one, same) = (all.of("a", || 1), all.of("a", || 2));
        assert!(Arc::ptr_eq(&one, &same) && all.count() == 1);
        drop((one, same));
        let other = all.of("b", || 3);
        assert_eq!((all.count(), all.0.lock().len()), (1, 1));
        drop(other);
        assert_eq!(all.count(), 0);
    }
}
