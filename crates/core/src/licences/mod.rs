//! Limits such as licences: how many there are over the farm, how many tasks hold, and which steps wait because one
//! was busy although the books had one left.

mod back_offs;
mod limit;

pub use limit::{BUSY_EXITS, Busy, Limit};

use crate::bounds::BACK_OFF_FACTOR_MAX;
use crate::class::Class;
use crate::ids::StepKey;
use crate::job::BackOff;
use crate::time::{NS_PER_MS, Time};
use back_offs::BackOffs;
use std::collections::{BTreeMap, BTreeSet};

/// All limits of the farm. Limits of each worker are counted at the [`Worker`](crate::worker::Worker).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LicencePool {
    limits: BTreeMap<String, Limit>,
    /// How many of each are taken; a limit of which none is taken is absent.
    taken: BTreeMap<String, u32>,
    pub(crate) back_offs: BackOffs,
}

impl LicencePool {
    /// A pool of which nothing is taken.
    pub fn new(limits: BTreeMap<String, Limit>) -> Self {
        LicencePool { limits, ..LicencePool::default() }
    }

    /// The limits, by name.
    pub fn limits(&self) -> &BTreeMap<String, Limit> {
        &self.limits
    }

    /// How many of each limit tasks hold.
    pub fn taken(&self) -> &BTreeMap<String, u32> {
        &self.taken
    }

    /// Sets a limit, or drops it.
    pub fn set(&mut self, name: &str, limit: Option<&Limit>) {
        match limit {
            Some(limit) => _ = self.limits.insert(name.to_owned(), limit.clone()),
            None => _ = self.limits.remove(name),
        }
    }

    /// How many of a limit one worker may hold; `None` is any number.
    pub fn max_per_worker(&self, name: &str) -> Option<u32> {
        self.limits.get(name)?.per_worker
    }

    /// The first limit of a class of which no more may be taken: its name, how many there are, and how many are
    /// taken.
    pub fn reached<'a>(&self, class: &'a Class) -> Option<(&'a str, u32, u32)> {
        self.all_reached(class).next()
    }

    /// All of these limits.
    pub fn all_reached<'a>(&self, class: &'a Class) -> impl Iterator<Item = (&'a str, u32, u32)> {
        class.parts().flat_map(|part| &part.limits).filter_map(move |name| {
            let max = self.limits.get(name)?.max?;
            let taken = self.taken.get(name).copied().unwrap_or(0);
            (taken.saturating_add(class.takes(name)) > max).then_some((name.as_str(), max, taken))
        })
    }

    /// Tasks take one of each of these limits (`by` is how many tasks), or give it back (`by` is negative).
    pub fn count(&mut self, names: &BTreeSet<String>, by: i32) {
        for name in names {
            let taken = self.taken.entry(name.clone()).or_default();
            *taken = taken.saturating_add_signed(by);
            if *taken == 0 {
                self.taken.remove(name);
            }
        }
    }

    /// The first of these limits for which an exit code says that there was none left.
    pub fn busy<'a>(&self, names: &'a BTreeSet<String>, exit: i32) -> Option<&'a str> {
        let busy = |name: &&String| self.limits.get(*name).is_some_and(|limit| limit.is_busy(exit));
        names.iter().find(busy).map(String::as_str)
    }

    /// What keeps a step from starting anything now.
    pub fn back_off(&self, step: StepKey) -> Option<&BackOff> {
        self.back_offs.in_force(step)
    }

    /// The steps that found this limit busy.
    pub fn found_busy(&self, limit: &str) -> impl Iterator<Item = StepKey> {
        self.back_offs.iter().filter(move |(_, known)| known.limit == limit).map(|(step, _)| step)
    }

    /// How many steps start nothing for now because this limit was busy.
    pub fn backing_off(&self, limit: &str) -> usize {
        self.found_busy(limit).filter(|step| self.back_off(*step).is_some()).count()
    }

    /// A licence was busy: the step starts nothing for a while, twice as long each time in a row. An attempt that was
    /// `booked` before the current back-off began reports the same shortage. Returns true if the step backs off.
    pub fn begin_back_off(&mut self, step: StepKey, limit: &str, booked: Time, now: Time) -> bool {
        let rule = self.limits.get(limit).and_then(|limit| limit.busy.as_ref());
        let Some(Busy { back_off_ms, .. }) = rule else { return false };
        let known = self.back_offs.get(step);
        if known.is_some_and(|known| booked <= known.since) {
            return false;
        }
        let before = known.map_or(0, |known| known.times);
        let factor = 1_u64.checked_shl(before).unwrap_or(u64::MAX).min(BACK_OFF_FACTOR_MAX);
        let until = now.after(back_off_ms * factor * NS_PER_MS);
        let times = before.saturating_add(1);
        self.back_offs.insert(step, BackOff { limit: limit.to_owned(), since: now, until, times });
        true
    }

    /// A task of the step succeeded: there were licences, and the next back-off is as short as the first. One in force
    /// lasts. Returns true if something changed.
    pub fn succeeded(&mut self, step: StepKey, now: Time) -> bool {
        if self.back_offs.in_force(step).is_some_and(|known| known.times == 0) {
            return false;
        }
        let Some(known) = self.back_offs.remove(step) else { return false };
        if known.until > now {
            self.back_offs.insert(step, BackOff { times: 0, ..known });
        }
        true
    }

    /// Compares the counts with the limits that running tasks hold.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub fn check<'a>(&self, held: impl Iterator<Item = &'a String>) -> Result<(), String> {
        let mut counted: BTreeMap<String, u32> = BTreeMap::new();
        for name in held {
            *counted.entry(name.clone()).or_default() += 1;
        }
        if counted != self.taken {
            return Err(format!("licences taken are {:?}, tasks hold {counted:?}", self.taken));
        }
        self.back_offs.check()
    }
}
