//! Who has uploaded which blobs of jobs. A blob that is there and that a user never uploaded is missing for that user, so
//! nobody learns what others have.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

/// Pairs of a blob and a user: some 100 MB of memory. Above it earlier pairs give way, whose users upload those blobs again.
pub(crate) const HOLDERS_MAX: usize = 4_000_000;
/// Users that ever uploaded something. They are not forgotten.
const USERS_MAX: usize = 100_000;

/// The pairs of a blob's slot and the number of a user who holds the blob.
#[derive(Default)]
pub(crate) struct Holders {
    users: HashMap<String, u32>,
    pairs: BTreeSet<(u32, u32)>,
    /// The pair that gave way last. The next one is behind it, so that all do in turn.
    gave_way: (u32, u32),
}

impl Holders {
    /// The user's number; `None` of one that never uploaded anything.
    pub fn number(&self, user: &str) -> Option<u32> {
        self.users.get(user).copied()
    }

    /// The user's number, which is given now if there is none; `None` if there are too many users.
    pub fn number_or_new(&mut self, user: &str) -> Option<u32> {
        if let Some(number) = self.number(user) {
            return Some(number);
        }
        if self.users.len() >= USERS_MAX {
            return None;
        }
        let number = self.users.values().max().map_or(1, |last| last + 1);
        self.users.insert(user.to_owned(), number);
        Some(number)
    }

    /// Takes a user of the stored ones.
    pub fn restore_user(&mut self, user: String, number: u32) {
        self.users.insert(user, number);
    }

    /// True if the user holds the blob in this slot.
    pub fn has(&self, slot: u32, user: u32) -> bool {
        self.pairs.contains(&(slot, user))
    }

    /// Notes that the user holds the blob in this slot.
    pub fn add(&mut self, slot: u32, user: u32) {
        self.pairs.insert((slot, user));
    }

    /// Forgets all who hold the blob in this slot.
    pub fn forget(&mut self, slot: u32) {
        while let Some(pair) = self.pairs.range((slot, 0)..=(slot, u32::MAX)).next().copied() {
            self.pairs.remove(&pair);
        }
    }

    /// Makes room for more pairs. Returns those that gave way.
    pub fn make_room(&mut self, more: usize, pairs_max: usize) -> Vec<(u32, u32)> {
        let mut gone = Vec::new();
        while !self.pairs.is_empty() && self.pairs.len() + more > pairs_max {
            let behind = self.pairs.range((Bound::Excluded(self.gave_way), Bound::Unbounded)).next();
            let Some(pair) = behind.or_else(|| self.pairs.first()).copied() else { break };
            self.pairs.remove(&pair);
            self.gave_way = pair;
            gone.push(pair);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_give_way_in_turn_and_go_with_their_blob() {
        let mut holders = Holders::default();
        let (bob, ann) = (holders.number_or_new("bob").unwrap(), holders.number_or_new("ann").unwrap());
        assert_eq!((holders.number_or_new("ann"), holders.number("eve")), (Some(ann), None));
        for slot in 0..4 {
            holders.add(slot, ann);
        }
        assert!(holders.has(1, ann) && !holders.has(1, bob));
        assert_eq!(holders.make_room(1, 4), [(0, ann)]);
        holders.add(0, bob);
        assert_eq!(holders.make_room(2, 4), [(1, ann), (2, ann)]);
        assert!(holders.has(0, bob), "what was added last is not the next to give way");
        holders.add(3, bob);
        holders.forget(3);
        assert!(!holders.has(3, ann) && !holders.has(3, bob) && holders.has(0, bob));
        assert_eq!(holders.make_room(9, 4), [(0, bob)], "there are no more");
    }
}
