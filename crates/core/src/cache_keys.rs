//! Keys of caches as numbers: what a worker holds, what a step reads, and what of that a worker lacks.
//!
//! A hash of 64 bits stands for its key. Two keys with one hash count as the same key, and the price of that is one fetch
//! that was not predicted.

use crate::bounds::CACHE_KEYS_MAX;
use crate::hash::Fnv;
use crate::ids::{StepKey, WorkerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of a key of unknown size, where the farm knows of none.
const KEY_BYTES: u64 = 64 << 20;

/// What a step reads from caches and a worker lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Keys that the worker does not hold.
    pub keys: u32,
    /// The bytes of these keys, where they are known.
    pub bytes: u64,
}

/// The keys that a worker's caches hold: a table of hashes, at most half full.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct CacheKeys {
    /// A hash stands at its own place or behind it; 0 is free.
    slots: Vec<u64>,
    len: usize,
}

impl CacheKeys {
    /// The set of these keys, by their hashes.
    pub fn of<'a>(keys: impl ExactSizeIterator<Item = &'a String>) -> Self {
        let mut hashes: Vec<u64> = keys.map(|key| hash_of(key)).collect();
        // In one order, so that the same keys make the same table.
        hashes.sort_unstable();
        hashes.dedup();
        let mut slots = vec![0; (2 * hashes.len()).next_power_of_two()];
        for hash in &hashes {
            let mut place = place_of(*hash, &slots);
            while slots[place] != 0 {
                place = (place + 1) & (slots.len() - 1);
            }
            slots[place] = *hash;
        }
        CacheKeys { slots, len: hashes.len() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn contains(&self, hash: u64) -> bool {
        if self.len == 0 {
            return false;
        }
        let mut place = place_of(hash, &self.slots);
        loop {
            match self.slots[place] {
                0 => return false,
                found if found == hash => return true,
                _ => place = (place + 1) & (self.slots.len() - 1),
            }
        }
    }
}

impl std::fmt::Debug for CacheKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.len)
    }
}

/// The hash of a key; never 0.
fn hash_of(key: &str) -> u64 {
    let mut fnv = Fnv::default();
    fnv.bytes(key.as_bytes());
    fnv.value().max(1)
}

/// Where a hash should stand. Its low bits differ little between keys that do.
fn place_of(hash: u64, slots: &[u64]) -> usize {
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (slots.len() - 1)
}

/// The keys that a step reads: their hashes, and their bytes where they are known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reads(Vec<(u64, Option<u64>)>);

impl Reads {
    /// A step that reads nothing.
    pub const fn none() -> Self {
        Reads(Vec::new())
    }

    /// The keys that a step names, each with its bytes where they are known.
    pub fn of(keys: &BTreeMap<String, Option<u64>>) -> Self {
        Reads(keys.iter().map(|(key, bytes)| (hash_of(key), *bytes)).collect())
    }

    /// True if it reads nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn lacking(&self, held: &CacheKeys) -> Lacking {
        let mut lacking = Lacking::default();
        for (_, bytes) in self.0.iter().filter(|(hash, _)| !held.contains(*hash)) {
            match bytes {
                Some(bytes) => lacking.bytes = lacking.bytes.saturating_add(*bytes),
                None => lacking.unsized_keys += 1,
            }
            lacking.keys += 1;
        }
        lacking
    }
}

/// What a worker lacks of what a step reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Lacking {
    keys: u32,
    /// Of those whose bytes are known.
    bytes: u64,
    /// Keys whose bytes are not known.
    unsized_keys: u32,
}

/// What each worker lacks of what each step reads, as far as it was looked up, until the worker's caches change.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MissingMemo {
    /// Each with the version of the worker's caches that was looked at.
    known: BTreeMap<(StepKey, WorkerId), (u64, Lacking)>,
}

/// Pairs that are remembered. When there are more, all are forgotten.
const PAIRS_MAX: usize = 1 << 16;
/// A step that reads fewer keys is looked at again.
const FEW: usize = 8;

impl MissingMemo {
    /// A step is gone.
    pub fn forget(&mut self, step: StepKey) {
        let of_step = (step, WorkerId(0))..=(step, WorkerId(u64::MAX));
        let workers: Vec<_> = self.known.range(of_step).map(|(pair, _)| *pair).collect();
        workers.iter().for_each(|pair| _ = self.known.remove(pair));
    }

    /// How many pairs are remembered.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The same as [`missing`], of a worker whose caches have this version.
    pub fn missing(
        &mut self,
        pair: (StepKey, WorkerId),
        version: u64,
        reads: &Reads,
        held: &CacheKeys,
        key_bytes: Option<u64>,
    ) -> Missing {
        if reads.0.len() < FEW {
            return reads.lacking(held).missing(key_bytes);
        }
        if let Some((_, known)) = self.known.get(&pair).filter(|(of, _)| *of == version) {
            return known.missing(key_bytes);
        }
        let lacking = reads.lacking(held);
        if self.known.len() >= PAIRS_MAX {
            self.known.clear();
        }
        self.known.insert(pair, (version, lacking));
        lacking.missing(key_bytes)
    }
}

impl Lacking {
    fn missing(&self, key_bytes: Option<u64>) -> Missing {
        let each = key_bytes.unwrap_or(KEY_BYTES);
        let bytes = self.bytes.saturating_add(each.saturating_mul(self.unsized_keys.into()));
        Missing { keys: self.keys, bytes }
    }
}

/// What a worker that holds these keys lacks of what a step reads. A key of unknown size counts as the farm's mean,
/// `key_bytes`.
pub fn missing(reads: &Reads, held: &CacheKeys, key_bytes: Option<u64>) -> Missing {
    reads.lacking(held).missing(key_bytes)
}

/// The last [`CACHE_KEYS_MAX`] keys that a machine got, where others can name ever more of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RecentKeys {
    known: BTreeSet<String>,
    /// Oldest first.
    order: VecDeque<String>,
    learned: u64,
}

impl RecentKeys {
    /// Adds a key, in place of the oldest if there are as many as may be. True if it is new.
    pub fn add(&mut self, key: String) -> bool {
        let is_new = self.known.insert(key.clone());
        if is_new {
            self.learned += 1;
            self.order.push_back(key);
        }
        if self.order.len() > CACHE_KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        is_new
    }

    /// The keys, in their own order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &String> {
        self.known.iter()
    }

    /// The number of keys that were ever new.
    pub fn learned(&self) -> u64 {
        self.learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use proptest::prelude::*;

    fn keys(names: &[u16]) -> Vec<String> {
        names.iter().map(|name| format!("/nix/store/{name}")).collect()
    }

    proptest! {
        #[test]
        fn what_is_missing_is_what_is_read_and_not_held(
            reads in prop::collection::btree_map(0_u16..60, prop::option::of(1_u64..1000), 0..40),
            held in prop::collection::vec(0_u16..60, 0..40),
        ) {
            let table = CacheKeys::of(keys(&held).iter());
            let by_name: BTreeMap<String, Option<u64>> =
                reads.iter().map(|(name, bytes)| (format!("/nix/store/{name}"), *bytes)).collect();
            let lacks: Vec<Option<u64>> =
                reads.iter().filter(|(name, _)| !held.contains(name)).map(|(_, bytes)| *bytes).collect();
            let expected = Missing {
                keys: lacks.len() as u32,
                bytes: lacks.iter().map(|bytes| bytes.unwrap_or(7)).sum(),
            };
            let read = Reads::of(&by_name);
            prop_assert_eq!(missing(&read, &table, Some(7)), expected);
            let (mut memo, pair) = (MissingMemo::default(), (StepKey { job: JobId(1), step: 0 }, WorkerId(1)));
            for _ in 0..2 {
                prop_assert_eq!(memo.missing(pair, 1, &read, &table, Some(7)), expected);
            }
            let none = CacheKeys::default();
            let all = missing(&read, &none, Some(7));
            prop_assert_eq!(memo.missing(pair, 2, &read, &none, Some(7)), all, "the caches changed");
            memo.forget(pair.0);
            prop_assert!(memo.is_empty());
        }
    }

    #[test]
    fn the_order_of_keys_makes_no_difference() {
        let (mut names, table) = (keys(&[5, 3, 9, 1]), CacheKeys::of(keys(&[1, 3, 5, 9]).iter()));
        assert_eq!(CacheKeys::of(names.iter()), table);
        names.push("/nix/store/3".to_owned());
        assert_eq!((CacheKeys::of(names.iter()), table.len()), (table, 4));
    }
}
