//! How many of each limit the tasks on a worker hold.

use std::collections::{BTreeMap, BTreeSet};

/// What the tasks on a worker hold of limits.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Licences {
    /// How many of each, and how many of each it may at most.
    held: BTreeMap<String, (u32, Option<u32>)>,
}

impl Licences {
    /// Tasks hold `by` more of a limit, or fewer; `max` is how many those of a worker may hold. True if it was reached, and is
    /// no longer.
    pub fn take(&mut self, name: &str, max: Option<u32>, by: i32) -> bool {
        let (held, cap) = self.held.entry(name.to_owned()).or_default();
        let is_full = |held: u32| max.is_some_and(|max| held >= max);
        let before = is_full(*held);
        (*held, *cap) = (held.saturating_add_signed(by), max);
        let freed = before && !is_full(*held);
        if *held == 0 {
            self.held.remove(name);
        }
        freed
    }

    /// Sets how many of a limit its tasks may hold.
    pub fn cap(&mut self, name: &str, max: Option<u32>) {
        if let Some((_, cap)) = self.held.get_mut(name) {
            *cap = max;
        }
    }

    /// One less of a limit is held, where some are.
    pub fn give_back(&mut self, name: &str) {
        if let Some((held, _)) = self.held.get_mut(name) {
            *held = held.saturating_sub(1);
        }
    }

    /// How many of a limit are held.
    pub fn held(&self, name: &str) -> u32 {
        self.held.get(name).map_or(0, |(held, _)| *held)
    }

    /// The limits of which no more may be held, with how many that are.
    pub fn full(&self) -> impl Iterator<Item = (&str, u32)> {
        self.held.iter().filter_map(|(name, (held, max))| Some((&**name, max.filter(|max| held >= max)?)))
    }

    /// The first of these of which no more may be held.
    pub fn first_full(&self, names: &BTreeSet<String>) -> Option<(&str, u32)> {
        if names.is_empty() { None } else { self.full().find(|(name, _)| names.contains(*name)) }
    }
}
