//! The notices that are owed, as this server has read them, and which of them is sent next.
//!
//! - The notices of one user to one address are a line, and go out in the order in which they became owed.
//! - A line whose address failed rests, twice as long after each failure. While it fails, one notice at a time is tried.
//! - Addresses of one host, and lines of one user, have a bounded number of sends under way. Those above it wait for
//!   another one of the same host or user, so a slow host delays no other, and neither does one user.
//! - A user has a bounded number of notices. Above it the oldest of the same user goes, and above the bound on all that of
//!   the user with the most.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::Time;
use windlass_store::OwedNotice;

/// Notices of one user that may be owed.
pub(super) const USER_NOTICES_MAX: usize = 20_000;
/// Notices of all users that may be owed.
pub(super) const NOTICES_MAX: usize = 100_000;
/// Bytes of all of them.
pub(super) const NOTICES_BYTES_MAX: usize = 64 << 20;
/// Sends under way in all.
pub(super) const SENDS_MAX: usize = 64;
/// Sends under way to one host.
pub(super) const HOST_SENDS_MAX: usize = 4;
/// Sends under way of one user's notices.
pub(super) const USER_SENDS_MAX: usize = 16;
/// How long a line rests after its first failure.
pub(super) const REST_MIN: Duration = Duration::from_secs(1);
/// How long a line rests at most.
pub(super) const REST_MAX: Duration = Duration::from_secs(600);

/// A user and an address.
type LineKey = (Arc<str>, Arc<str>);

/// The notices of one user to one address.
#[derive(Default)]
struct NoticeLine {
    host: Arc<str>,
    /// Those that are not being sent.
    owed: BTreeSet<u64>,
    under_way: usize,
    /// Failures since something was delivered.
    failures: u32,
    place: Place,
}

/// Where a line stands.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// It has nothing to send, or as many sends under way as it may have.
    #[default]
    Idle,
    /// Its turn comes, without a further event.
    Ready,
    /// It waits until its host or its user has fewer sends under way.
    Held,
    /// Its address failed, and it pauses until then.
    Resting(Instant),
}

/// The sends under way of a host or a user, and the lines that wait for one of them to end.
#[derive(Default)]
struct SendGate {
    under_way: usize,
    held: VecDeque<LineKey>,
}

impl SendGate {
    fn is_full(&self, sends_max: usize) -> bool {
        self.under_way >= sends_max
    }

    /// The line that waits first, if there is room for a send.
    fn freed(&mut self, sends_max: usize) -> Option<LineKey> {
        if self.is_full(sends_max) { None } else { self.held.pop_front() }
    }
}

/// All notices that are owed.
#[derive(Default)]
pub(super) struct Backlog {
    rows: BTreeMap<u64, OwedNotice>,
    bytes: usize,
    by_user: BTreeMap<Arc<str>, BTreeSet<u64>>,
    lines: BTreeMap<LineKey, NoticeLine>,
    ready: VecDeque<LineKey>,
    resting: BTreeSet<(Instant, LineKey)>,
    hosts: BTreeMap<Arc<str>, SendGate>,
    users: BTreeMap<Arc<str>, SendGate>,
    under_way: usize,
}

impl Backlog {
    /// Adds a notice that goes to this host. Returns the numbers of those for which there is no room any more.
    pub fn add(&mut self, owed: OwedNotice, host: &str) -> Vec<u64> {
        let user: Arc<str> = owed.notice.user.as_str().into();
        let key: LineKey = (user.clone(), owed.notice.to.as_str().into());
        let number = owed.number;
        self.bytes += size_of_notice(&owed);
        self.rows.insert(number, owed);
        self.by_user.entry(user.clone()).or_default().insert(number);
        let line = self.lines.entry(key.clone()).or_default();
        if line.host.is_empty() {
            line.host = host.into();
        }
        line.owed.insert(number);
        self.call(&key);
        let mut dropped = Vec::new();
        while let Some(oldest) = self.superfluous(&user) {
            self.remove(oldest);
            dropped.push(oldest);
        }
        dropped
    }

    /// The notice that goes because there are too many, after this user got one more.
    fn superfluous(&self, user: &Arc<str>) -> Option<u64> {
        let own = self.by_user.get(user).filter(|all| all.len() > USER_NOTICES_MAX);
        if let Some(own) = own {
            return own.first().copied();
        }
        if self.rows.len() <= NOTICES_MAX && self.bytes <= NOTICES_BYTES_MAX {
            return None;
        }
        let most = self.by_user.values().max_by_key(|all| all.len())?;
        most.first().copied()
    }

    /// The notice to be sent next, if there is one for now. Its send is under way until [`Backlog::delivered`] or
    /// [`Backlog::failed`].
    pub fn next(&mut self, now: Instant) -> Option<OwedNotice> {
        while let Some((until, key)) = self.resting.first().filter(|(until, _)| *until <= now).cloned() {
            self.resting.remove(&(until, key.clone()));
            self.leave(&key);
        }
        if self.under_way >= SENDS_MAX {
            return None;
        }
        while let Some(key) = self.ready.pop_front() {
            let Some(line) = self.lines.get_mut(&key) else { continue };
            line.place = Place::Idle;
            let host = self.hosts.entry(line.host.clone()).or_default();
            let user = self.users.entry(key.0.clone()).or_default();
            let number = if host.is_full(HOST_SENDS_MAX) || user.is_full(USER_SENDS_MAX) {
                line.place = Place::Held;
                let full = if host.is_full(HOST_SENDS_MAX) { &mut *host } else { &mut *user };
                full.held.push_back(key.clone());
                None
            } else {
                line.owed.pop_first()
            };
            let Some(number) = number else {
                // The room that it leaves is another line's.
                let next = [host.freed(HOST_SENDS_MAX), user.freed(USER_SENDS_MAX)];
                let name = line.host.clone();
                next.into_iter().flatten().for_each(|line| self.make_ready(line));
                self.close_gates(&name, &key.0);
                self.tidy(&key);
                continue;
            };
            line.under_way += 1;
            host.under_way += 1;
            user.under_way += 1;
            self.under_way += 1;
            self.call(&key);
            if let Some(owed) = self.rows.get(&number) {
                return Some(owed.clone());
            }
        }
        None
    }

    /// A notice was delivered, or can never be.
    pub fn delivered(&mut self, owed: &OwedNotice) {
        let key = self.ended(owed, |line| line.failures = 0);
        self.remove(owed.number);
        self.call(&key);
        self.tidy(&key);
    }

    /// A notice could not be delivered this time. True if its line begins to rest for that.
    pub fn failed(&mut self, owed: &OwedNotice, now: Instant) -> bool {
        let is_owed = self.rows.contains_key(&owed.number);
        let key = self.ended(owed, |line| {
            line.failures += 1;
            if is_owed {
                line.owed.insert(owed.number);
            }
        });
        let mut rests = false;
        if let Some(line) = self.lines.get_mut(&key) {
            let rest = REST_MIN.saturating_mul(1 << (line.failures - 1).min(16)).min(REST_MAX);
            // Where it is in its turn, or waits for one, it goes on from there: the one rest is enough.
            if line.place == Place::Idle && !line.owed.is_empty() {
                line.place = Place::Resting(now + rest);
                self.resting.insert((now + rest, key.clone()));
                rests = true;
            }
        }
        self.tidy(&key);
        rests
    }

    /// Takes out the notices that became owed before then, and returns them.
    pub fn expire(&mut self, before: Time) -> Vec<OwedNotice> {
        let old = self.rows.values().take_while(|owed| owed.notice.at < before);
        let old: Vec<OwedNotice> = old.cloned().collect();
        old.iter().for_each(|owed| self.remove(owed.number));
        old
    }

    /// When a line has rested, if nothing else happens.
    pub fn wakes(&self) -> Option<Instant> {
        self.resting.first().map(|(until, _)| *until)
    }

    /// How many notices are owed.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Notes that a send has ended, and lets lines go on that waited for it.
    fn ended(&mut self, owed: &OwedNotice, note: impl FnOnce(&mut NoticeLine)) -> LineKey {
        let key: LineKey = (owed.notice.user.as_str().into(), owed.notice.to.as_str().into());
        self.under_way -= 1;
        let Some(line) = self.lines.get_mut(&key) else { return key };
        line.under_way -= 1;
        note(line);
        let (host, mut freed) = (line.host.clone(), Vec::new());
        for (gates, name) in [(&mut self.hosts, &host), (&mut self.users, &key.0)] {
            let Some(gate) = gates.get_mut(name) else { continue };
            gate.under_way -= 1;
            freed.extend(gate.held.pop_front());
        }
        freed.into_iter().for_each(|line| self.make_ready(line));
        self.close_gates(&host, &key.0);
        key
    }

    /// Forgets gates at which nothing is under way and nothing waits.
    fn close_gates(&mut self, host: &Arc<str>, user: &Arc<str>) {
        for (gates, name) in [(&mut self.hosts, host), (&mut self.users, user)] {
            if gates.get(name).is_some_and(|gate| gate.under_way == 0 && gate.held.is_empty()) {
                gates.remove(name);
            }
        }
    }

    /// Gives a line its turn that was held. It asks for both gates again.
    fn make_ready(&mut self, key: LineKey) {
        if let Some(line) = self.lines.get_mut(&key) {
            line.place = Place::Ready;
            self.ready.push_back(key);
        }
    }

    /// Gives a line its turn, if it has something to send and may.
    fn call(&mut self, key: &LineKey) {
        let Some(line) = self.lines.get_mut(key) else { return };
        let sends_max = if line.failures > 0 { 1 } else { HOST_SENDS_MAX };
        if line.place == Place::Idle && !line.owed.is_empty() && line.under_way < sends_max {
            line.place = Place::Ready;
            self.ready.push_back(key.clone());
        }
    }

    /// A line has rested.
    fn leave(&mut self, key: &LineKey) {
        if let Some(line) = self.lines.get_mut(key) {
            line.place = Place::Idle;
        }
        self.call(key);
        self.tidy(key);
    }

    fn remove(&mut self, number: u64) {
        let Some(owed) = self.rows.remove(&number) else { return };
        self.bytes -= size_of_notice(&owed);
        let key: LineKey = (owed.notice.user.as_str().into(), owed.notice.to.as_str().into());
        if let Some(all) = self.by_user.get_mut(&key.0) {
            all.remove(&number);
            if all.is_empty() {
                self.by_user.remove(&key.0);
            }
        }
        if let Some(line) = self.lines.get_mut(&key) {
            line.owed.remove(&number);
        }
    }

    /// Forgets a line that has nothing any more and is in no list.
    fn tidy(&mut self, key: &LineKey) {
        let is_done =
            |line: &NoticeLine| line.owed.is_empty() && line.under_way == 0 && line.place == Place::Idle;
        if self.lines.get(key).is_some_and(is_done) {
            self.lines.remove(key);
        }
    }
}

fn size_of_notice(owed: &OwedNotice) -> usize {
    let notice = &owed.notice;
    size_of::<OwedNotice>() + notice.user.len() + notice.to.len() + notice.body.len()
}

#[cfg(test)]
mod tests;
