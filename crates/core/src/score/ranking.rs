//! Workers in the order in which one class of steps would take them, kept while they change.
//!
//! A booking changes one worker, so one is judged again for the next placement and not all of them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Keys by score. The most points are first; ties go to the least load, then to the smallest key.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranking<K> {
    order: BTreeSet<(Place, K)>,
    places: BTreeMap<K, Place>,
}

impl<K> Default for Ranking<K> {
    fn default() -> Self {
        Ranking { order: BTreeSet::new(), places: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Ranking<K> {
    /// Puts a key where its score and load say, or takes it out.
    pub fn set(&mut self, key: K, to: Option<(f64, f64)>) {
        let to = to.map(|(score, load)| Place { score, load });
        let from = match to {
            Some(place) => self.places.insert(key, place),
            None => self.places.remove(&key),
        };
        if from == to {
            return;
        }
        if let Some(place) = from {
            self.order.remove(&(place, key));
        }
        if let Some(place) = to {
            self.order.insert((place, key));
        }
    }

    /// The best key.
    pub fn best(&self) -> Option<K> {
        self.order.first().map(|(_, key)| *key)
    }

    /// All keys, best first.
    pub fn iter(&self) -> impl Iterator<Item = K> + '_ {
        self.order.iter().map(|(_, key)| *key)
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    score: f64,
    load: f64,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.load.total_cmp(&other.load))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Place {}
