//! Reservation with backfill: what keeps wide work from waiting for ever behind narrow work.
//!
//! A class earns a reservation when its bucket of net blocked time is full: the bucket fills while tasks of
//! the class wait and none is placed, and drains otherwise; and when meanwhile other work, whose turn
//! was not before its own, was placed on workers that the class would fit when they are empty. The workers
//! reserved for it take only work of a higher band, what ends before the holder could start there, and what fits
//! beside the holder. A task then waits only for what runs on one worker at that moment.
//!
//! Ends are those of time limits where tasks have them, as in EASY backfill (Lifka 1995): a mean of earlier tasks is
//! exceeded by every other one, and each of these would delay the holder. Without a limit the mean is all that is known.
//!
//! Threshold, width test and caps after the planner that OpenCue's scheduler was replaced by.

use crate::bounds;
use crate::ids::{ClassId, WorkerId};
use crate::time::{NS_PER_S, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Work that is not wide finds room by itself as a rule. It earns a reservation when it was blocked for this many times
/// as long as wide work, and none of it was placed.
const STARVING_FACTOR: u64 = 4;

/// A round replaces at most one in this number of the classes that are watched.
const EVICTED_PART: usize = 16;

/// How reservations are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservationSettings {
    /// Net blocked nanoseconds that earn one.
    pub after_ns: u64,
    /// Workers reserved at one time, over all classes.
    pub holders_max: usize,
    /// Classes whose blocked time is watched.
    pub watched_max: usize,
}

impl Default for ReservationSettings {
    fn default() -> Self {
        ReservationSettings { after_ns: 60 * NS_PER_S, holders_max: 8, watched_max: bounds::BUCKETS_MAX }
    }
}

/// Time that a class was blocked, less the time that it was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct BlockedTime {
    blocked_ns: u64,
    /// How long it was blocked since a task of it was placed.
    starved_ns: u64,
    /// Other work, whose turn was not before, was placed where the class would fit.
    overtaken: bool,
    /// It was blocked when the last round ended.
    blocked: bool,
    /// It has earned workers, and could not be given any when it was last tried, because one lends its cpus.
    postponed: bool,
    /// When it came to be watched.
    since: Time,
}

/// Which classes earn reservations, and which workers are reserved for them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reservations {
    settings: ReservationSettings,
    buckets: BTreeMap<ClassId, BlockedTime>,
    holders: BTreeMap<WorkerId, ClassId>,
    /// The holders whose tasks start together, with the number of workers that they need: each counts as one, however
    /// many workers it has.
    gangs: BTreeMap<ClassId, usize>,
    observed: Time,
    /// Of more classes than are watched, which is looked at next.
    next: ClassId,
}

impl Reservations {
    /// No class has earned a reservation yet.
    pub fn new(settings: ReservationSettings) -> Self {
        Reservations { settings, ..Reservations::default() }
    }

    /// For which class a worker is reserved.
    pub fn holder(&self, worker: WorkerId) -> Option<ClassId> {
        self.holders.get(&worker).copied()
    }

    /// The reserved workers, each with the class that holds it.
    pub fn holders(&self) -> impl Iterator<Item = (WorkerId, ClassId)> + '_ {
        self.holders.iter().map(|(worker, class)| (*worker, *class))
    }

    /// How many workers are reserved for a class.
    pub fn held_by(&self, class: ClassId) -> usize {
        self.holders.values().filter(|holder| **holder == class).count()
    }

    /// Classes that wait and that no other work was seen to overtake yet.
    pub fn unsuspecting(&self) -> Vec<ClassId> {
        let waiting = self.buckets.iter().filter(|(_, bucket)| bucket.blocked && !bucket.overtaken);
        waiting.map(|(class, _)| *class).collect()
    }

    /// Other work was placed where this class would fit.
    pub fn overtaken(&mut self, class: ClassId) {
        if let Some(bucket) = self.buckets.get_mut(&class) {
            bucket.overtaken = true;
        }
    }

    /// Classes whose blocked time is watched.
    pub fn watched(&self) -> impl Iterator<Item = ClassId> + '_ {
        self.buckets.keys().copied()
    }

    /// Some classes that wait, without room anywhere or held by rules, and are not watched: the next ones at
    /// each call.
    pub fn newcomers<T, U>(
        &mut self,
        full: &BTreeMap<ClassId, T>,
        held: &BTreeMap<ClassId, U>,
    ) -> Vec<ClassId> {
        let room = self.settings.watched_max.saturating_sub(self.buckets.len());
        let max = room.max(2 * self.evictions_max());
        let next = self.next;
        let turn = full.range(next..).chain(full.range(..next)).take(max);
        let looked: Vec<ClassId> = turn.map(|(class, _)| *class).collect();
        if let Some(last) = looked.last().filter(|_| full.len() > max) {
            self.next = ClassId(last.0 + 1);
        }
        let held = held.range(next..).chain(held.range(..next)).take(max).map(|(class, _)| *class);
        looked.into_iter().chain(held).filter(|class| !self.buckets.contains_key(class)).collect()
    }

    /// A round ended: which of the watched classes have work that it could not place, which others have, and
    /// which it placed. Returns those that have earned a reservation and may have another, those first of which
    /// nothing was placed for longest.
    pub fn observe(
        &mut self,
        now: Time,
        blocked: &BTreeSet<ClassId>,
        newcomers: &[ClassId],
        placed: &BTreeSet<ClassId>,
    ) -> Vec<ClassId> {
        let passed_ns = now.since(self.observed);
        self.observed = now;
        for (class, bucket) in &mut self.buckets {
            if placed.contains(class) {
                bucket.blocked_ns = bucket.blocked_ns.saturating_sub(passed_ns);
                bucket.starved_ns = 0;
            } else if bucket.blocked {
                bucket.blocked_ns = (bucket.blocked_ns + passed_ns).min(self.settings.after_ns);
                bucket.starved_ns += passed_ns;
            } else {
                // Nothing of it waits, or no worker could run it.
                bucket.blocked_ns = bucket.blocked_ns.saturating_sub(passed_ns);
            }
            bucket.blocked = blocked.contains(class);
        }
        // A class that has nothing to run, or is served again, need not be remembered.
        self.buckets.retain(|_, bucket| bucket.blocked || bucket.blocked_ns > 0);
        let mut evictions = 0;
        for class in
            newcomers.iter().filter(|class| !self.buckets.contains_key(class)).copied().collect::<Vec<_>>()
        {
            if self.buckets.len() >= self.settings.watched_max {
                evictions += 1;
                if evictions > self.evictions_max() || !self.evict() {
                    break;
                }
            }
            self.buckets.insert(class, BlockedTime { blocked: true, since: now, ..BlockedTime::default() });
        }
        if self.is_full() {
            return Vec::new();
        }
        let after_ns = self.settings.after_ns;
        let full = self.buckets.iter().filter(|(_, b)| b.blocked && b.overtaken && b.blocked_ns >= after_ns);
        let mut full: Vec<_> = full.map(|(class, bucket)| (Reverse(bucket.starved_ns), *class)).collect();
        full.sort_unstable();
        full.into_iter().map(|(_, class)| class).collect()
    }

    /// Classes that may take the place of others that are watched, at the end of one round.
    fn evictions_max(&self) -> usize {
        (self.settings.watched_max / EVICTED_PART).max(1)
    }

    /// Forgets the bucket that was watched longest, of those of classes that are being served, that were not overtaken in a
    /// whole round, or that are postponed: each class that waits is watched in its turn.
    fn evict(&mut self) -> bool {
        let before = self.buckets.iter().filter(|(_, b)| b.since < self.observed);
        let idle = before.filter(|(_, b)| !b.overtaken || b.starved_ns == 0 || b.postponed);
        let oldest = idle.min_by_key(|(class, b)| (b.since, **class)).map(|(class, _)| *class);
        oldest.is_some_and(|class| self.buckets.remove(&class).is_some())
    }

    /// True if no more workers may be reserved.
    pub fn is_full(&self) -> bool {
        let single = self.holders.values().filter(|class| !self.gangs.contains_key(class)).count();
        single + self.gangs.len() >= self.settings.holders_max
    }

    /// When the next bucket will be full if nothing of its class is placed.
    pub fn next_full(&self) -> Option<Time> {
        if self.is_full() {
            return None;
        }
        let filling = self.buckets.values().filter(|b| b.blocked && b.blocked_ns < self.settings.after_ns);
        let left_ns = filling.map(|bucket| self.settings.after_ns - bucket.blocked_ns).min()?;
        Some(self.observed.after(left_ns))
    }

    /// Reserves a worker for a class.
    pub fn reserve(&mut self, worker: WorkerId, class: ClassId) {
        self.holders.insert(worker, class);
    }

    /// Reserves workers for tasks that start together: these and no others. Returns those that were reserved for them
    /// before and are no longer.
    pub fn reserve_all(&mut self, workers: &BTreeSet<WorkerId>, class: ClassId) -> Vec<WorkerId> {
        let before = self.holders().filter(|(worker, holder)| *holder == class && !workers.contains(worker));
        let freed: Vec<WorkerId> = before.map(|(worker, _)| worker).collect();
        if let Some(bucket) = self.buckets.get_mut(&class) {
            bucket.postponed = false;
        }
        freed.iter().for_each(|worker| _ = self.holders.remove(worker));
        self.holders.extend(workers.iter().map(|worker| (*worker, class)));
        self.gangs.insert(class, workers.len());
        self.forget_gangs();
        freed
    }

    /// The gangs of whose workers some are not reserved for them any more, whatever became of these.
    pub fn incomplete_gangs(&self) -> BTreeSet<ClassId> {
        let incomplete = self.gangs.iter().filter(|(class, needs)| self.held_by(**class) < **needs);
        incomplete.map(|(class, _)| *class).collect()
    }

    /// Work changes from a class to a new one, which takes over how long it has waited.
    pub fn carry_over(&mut self, old: ClassId, new: ClassId) {
        if let Some(bucket) = self.buckets.get(&old).copied() {
            self.buckets.entry(new).or_insert(bucket);
        }
    }

    /// How long a class was blocked, net.
    pub fn blocked_ns(&self, class: ClassId) -> u64 {
        self.buckets.get(&class).map_or(0, |bucket| bucket.blocked_ns)
    }

    /// True if a class was blocked for so long without a single task placed that it may have a worker though
    /// its work is not wide.
    pub fn is_starving(&self, class: ClassId) -> bool {
        let after_ns = self.settings.after_ns.saturating_mul(STARVING_FACTOR);
        self.buckets.get(&class).is_some_and(|bucket| bucket.starved_ns >= after_ns)
    }

    /// The class keeps what it has earned, and another may be watched in its place.
    pub fn postpone(&mut self, class: ClassId) {
        if let Some(bucket) = self.buckets.get_mut(&class) {
            bucket.postponed = true;
        }
    }

    /// The class does not earn one after all: it waits from the beginning, and others may be watched in its place.
    pub fn disappoint(&mut self, class: ClassId) {
        if let Some(bucket) = self.buckets.get_mut(&class) {
            (bucket.blocked_ns, bucket.overtaken) = (0, false);
        }
    }

    /// The holder started there, or the worker cannot be kept for it any longer.
    pub fn release(&mut self, worker: WorkerId) {
        self.holders.remove(&worker);
        self.forget_gangs();
    }

    /// Drops the reservations of which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(WorkerId, ClassId) -> bool) {
        self.holders.retain(|worker, class| keep(*worker, *class));
        self.forget_gangs();
    }

    fn forget_gangs(&mut self) {
        let holders = &self.holders;
        self.gangs.retain(|class, _| holders.values().any(|holder| holder == class));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: ClassId = ClassId(1);

    fn seconds(s: u64) -> Time {
        Time(s * NS_PER_S)
    }

    /// Observes a class that is blocked or placed.
    fn observe(reserves: &mut Reservations, s: u64, blocked: bool) -> bool {
        let set = |yes: bool| if yes { BTreeSet::from([WIDE]) } else { BTreeSet::new() };
        let all = set(blocked);
        let newcomers: Vec<ClassId> = all.iter().copied().collect();
        let earned = reserves.observe(seconds(s), &all, &newcomers, &set(!blocked));
        !earned.is_empty()
    }

    #[test]
    fn a_bucket_fills_while_blocked_and_drains_while_served() {
        let mut reserves = Reservations::default();
        assert!(!observe(&mut reserves, 100, true));
        reserves.overtaken(WIDE);
        assert_eq!(reserves.next_full(), Some(seconds(160)));
        assert!(!observe(&mut reserves, 150, true));
        assert!(!observe(&mut reserves, 170, false), "served for 20 s: 30 s are left");
        assert!(!observe(&mut reserves, 171, true), "blocked only from now on");
        assert_eq!(reserves.next_full(), Some(seconds(202)), "it drained for a second more");
        assert!(observe(&mut reserves, 202, true));
    }

    #[test]
    fn what_is_not_wide_starves_when_nothing_of_it_is_placed_for_long() {
        let mut reserves = Reservations::default();
        observe(&mut reserves, 100, true);
        observe(&mut reserves, 300, true);
        reserves.disappoint(WIDE);
        assert!(!reserves.is_starving(WIDE), "200 s");
        observe(&mut reserves, 340, true);
        assert!(reserves.is_starving(WIDE));
        observe(&mut reserves, 341, false);
        assert!(!reserves.is_starving(WIDE), "one was placed");
    }

    #[test]
    fn who_is_not_overtaken_waits_for_an_empty_worker_like_all() {
        let mut reserves = Reservations::default();
        observe(&mut reserves, 100, true);
        assert_eq!(reserves.unsuspecting(), [WIDE]);
        assert!(!observe(&mut reserves, 1_000, true));
        reserves.overtaken(WIDE);
        assert!(observe(&mut reserves, 1_001, true));
    }

    #[test]
    fn who_is_postponed_is_not_watched_for_ever() {
        let mut reserves = Reservations::new(ReservationSettings { watched_max: 1, ..Default::default() });
        observe(&mut reserves, 0, true);
        reserves.overtaken(WIDE);
        assert!(observe(&mut reserves, 60, true));
        reserves.postpone(WIDE);
        let both = BTreeSet::from([WIDE, ClassId(2)]);
        reserves.observe(seconds(61), &both, &[WIDE, ClassId(2)], &BTreeSet::new());
        assert_eq!(reserves.watched().collect::<Vec<_>>(), [ClassId(2)]);
    }

    #[test]
    fn a_gang_that_lost_a_worker_is_known_whichever_way_it_went() {
        let of = |ids: &[u64]| ids.iter().map(|id| WorkerId(*id)).collect::<BTreeSet<_>>();
        let mut reserves = Reservations::new(ReservationSettings { holders_max: 1, ..Default::default() });
        assert_eq!(reserves.reserve_all(&of(&[1, 2, 3]), WIDE), []);
        assert!(reserves.is_full() && reserves.incomplete_gangs().is_empty());
        reserves.release(WorkerId(2));
        assert_eq!(reserves.incomplete_gangs(), BTreeSet::from([WIDE]));
        assert_eq!(reserves.reserve_all(&of(&[1, 4, 5]), WIDE), [WorkerId(3)]);
        assert!(reserves.is_full() && reserves.incomplete_gangs().is_empty());
        reserves.retain(|worker, _| worker != WorkerId(5));
        assert_eq!(reserves.incomplete_gangs(), BTreeSet::from([WIDE]));
        assert_eq!(reserves.reserve_all(&of(&[]), WIDE), [WorkerId(1), WorkerId(4)]);
        assert!(!reserves.is_full() && reserves.incomplete_gangs().is_empty());
    }

    #[test]
    fn work_of_a_new_class_has_waited_for_as_long_as_before() {
        let mut reserves = Reservations::default();
        observe(&mut reserves, 100, true);
        observe(&mut reserves, 140, true);
        reserves.carry_over(WIDE, ClassId(2));
        assert_eq!(reserves.blocked_ns(ClassId(2)), 40 * NS_PER_S);
    }

    #[test]
    fn no_more_workers_are_reserved_than_may_be() {
        let mut reserves = Reservations::new(ReservationSettings { holders_max: 1, ..Default::default() });
        observe(&mut reserves, 0, true);
        reserves.overtaken(WIDE);
        assert!(observe(&mut reserves, 60, true));
        reserves.reserve(WorkerId(3), WIDE);
        assert!(!observe(&mut reserves, 120, true));
        assert_eq!((reserves.holder(WorkerId(3)), reserves.next_full()), (Some(WIDE), None));
        reserves.release(WorkerId(3));
        assert!(observe(&mut reserves, 121, true));
    }
}
