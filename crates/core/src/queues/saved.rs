//! Turns as a store keeps them, so that an engine goes on where the one before it was: each queue, and each user of a
//! queue with several, with its place in virtual time, and the clocks that these places are on.
//!
//! Start tags and clocks are saved as they are, and not one less the other: a clock goes on while a queue stands
//! still, and the queue's record need not be written again for that. A queue whose work does not wait and that owes
//! nothing has no record, because a queue of which nothing is known starts where it would.

use super::fair::{QueueShare, Virtual};
use super::record::{BAND_MAX, TurnsBy};
use super::users::BAND;
use super::{Charge, Queues};
use crate::ids::QueueId;
use crate::time::Time;
use std::collections::BTreeMap;

/// Turns that a store keeps, or that have changed and are to be written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedTurns {
    /// Queues, and users of queues.
    pub turns: Vec<TurnRecord>,
    /// The clocks that these are on.
    pub clocks: Vec<ClockRecord>,
}

impl SavedTurns {
    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.clocks.is_empty()
    }
}

/// The record of one queue, or of one user of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TurnRecord {
    /// The queue's name.
    pub queue: String,
    /// Whose part of the queue; `None` is the queue itself.
    pub user: Option<String>,
    /// Where it stands; `None` takes the record away.
    pub turn: Option<QueueTurn>,
}

/// Where a queue stands in its band, or a user in their queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueTurn {
    /// The queue's band; 0 of a user.
    pub band: u8,
    /// The start tag without `rest`, in units of 2^-56 of charge over weight.
    pub start: Virtual,
    /// What was charged beyond that, less than `weight`.
    pub rest: u32,
    /// The weight by which it was charged.
    pub weight: u32,
    /// What its next task is expected to cost.
    pub task: u64,
    /// In which activation it is: of equals the older goes first.
    pub since: u64,
    /// It has work that waits.
    pub waits: bool,
    /// Others were served while nothing of it fitted, and it was not since.
    pub passed: bool,
    /// Its first task may still go out of turn.
    pub express: bool,
    /// What its tasks were charged in advance and had not run at `at`: hundredths of core-milliseconds.
    pub ahead: u64,
    /// How much of that its tasks ran in each millisecond after that.
    pub rate: u64,
    /// When it was saved.
    pub at: Time,
}

impl QueueTurn {
    /// What is left of `ahead`.
    fn left(&self, now: Time) -> u64 {
        let ran = self.rate.saturating_mul(now.as_ms().saturating_sub(self.at.as_ms()));
        self.ahead.saturating_sub(ran)
    }

    /// False if the queue stands where one would that nothing is known of.
    fn is_needed(&self, clock: Virtual) -> bool {
        let mut share = QueueShare::default();
        share.restore(self);
        share.start_tag() > clock || self.waits || self.ahead > 0
    }
}

/// The record of a clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockRecord {
    /// Whose.
    pub of: ClockOf,
    /// The clock; `None` takes the record away.
    pub clock: Option<TurnClock>,
}

/// Whose clock it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClockOf {
    /// That of a band.
    Band(u8),
    /// That of the users of the queue with this name.
    Users(String),
}

/// A clock, and what belongs to all who take turns by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnClock {
    /// What it shows, in units of 2^-56 of charge over weight.
    pub virtual_time: Virtual,
    /// Bookings until another may go out of turn.
    pub express_in: u32,
    /// What was charged. Turns by another charge cannot be compared with these.
    pub charge: Charge,
}

/// Restored queues, and users of them, until all work that the store has was taken in. Until then they keep their places:
/// that nothing of them waits may be for a moment only.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct RestoredTurns {
    queues: BTreeMap<QueueId, QueueTurn>,
    users: BTreeMap<QueueId, QueueTurn>,
}

impl RestoredTurns {
    pub fn has_queue(&self, id: QueueId) -> bool {
        self.queues.contains_key(&id)
    }

    pub fn has_user(&self, id: QueueId) -> bool {
        self.users.contains_key(&id)
    }
}

/// What was charged in advance, and its tasks have still to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RestoredAdvance {
    /// Of a whole queue: hundredths of core-milliseconds.
    pub whole: u64,
    /// Of a user's part of it; that of the whole in a queue of one user.
    pub part: u64,
}

impl Queues {
    /// What is not as it was when this was called last.
    pub fn take_changed_turns(&mut self) -> SavedTurns {
        let mut saved = std::mem::take(&mut self.forgotten);
        let (changed, moved) = self.turns.take_changed();
        for id in changed {
            let queue = &mut self.all[id.0 as usize];
            let band = queue.record.band();
            if let Some(turn) = self.turns.to_save(band, &mut queue.tags, self.now) {
                saved.turns.push(TurnRecord { queue: queue.record.name.clone(), user: None, turn });
            }
        }
        for band in (0..=BAND_MAX).filter(|band| moved & (1 << band) != 0) {
            let clock = Some(self.turns.clock_to_save(band));
            saved.clocks.push(ClockRecord { of: ClockOf::Band(band), clock });
        }
        for whole in std::mem::take(&mut self.changed_users) {
            self.save_users(whole, &mut saved);
        }
        saved
    }

    fn save_users(&mut self, whole: QueueId, saved: &mut SavedTurns) {
        let Some(mut users) = self.all[whole.0 as usize].users.take() else { return };
        let name = self.get(whole).record.name.clone();
        users.noted = false;
        let (changed, moved) = users.order.take_changed();
        for id in changed {
            let queue = &mut self.all[id.0 as usize];
            let tags = if id == whole { &mut users.first } else { &mut queue.tags };
            if let Some(turn) = users.order.to_save(BAND, tags, self.now) {
                saved.turns.push(TurnRecord { queue: name.clone(), user: queue.user.clone(), turn });
            }
        }
        if moved != 0 {
            let clock = Some(users.order.clock_to_save(BAND));
            saved.clocks.push(ClockRecord { of: ClockOf::Users(name), clock });
        }
        self.all[whole.0 as usize].users = Some(users);
    }

    /// These were not written, and are to be.
    pub fn save_turns_again(&mut self, unsaved: &SavedTurns) {
        for TurnRecord { queue, user, .. } in &unsaved.turns {
            let whole = self.id(queue);
            match (whole, user) {
                (Some(id), None) => {
                    let tags = &mut self.all[id.0 as usize].tags;
                    tags.saved = true;
                    self.turns.note(id, tags);
                }
                (Some(whole), Some(user)) if self.part_of_user(whole, user).is_some() => {
                    let id = self.part_of_user(whole, user).unwrap_or(whole);
                    self.with_user(id, |users, tags| {
                        tags.saved = true;
                        users.order.note(id, tags);
                    });
                }
                _ => self.forget_turn(queue.clone(), user.clone()),
            }
        }
        for ClockRecord { of, .. } in &unsaved.clocks {
            match of {
                ClockOf::Band(band) => self.turns.note_clock(*band),
                ClockOf::Users(queue) => match self.id(queue).filter(|whole| self.has_users(*whole)) {
                    Some(whole) => _ = self.with_user(whole, |users, _| users.order.note_clock(BAND)),
                    None => self.forget_clock(queue.clone()),
                },
            }
        }
    }

    /// The record of a queue or of a user is to go.
    pub(super) fn forget_turn(&mut self, queue: String, user: Option<String>) {
        self.forgotten.turns.push(TurnRecord { queue, user, turn: None });
    }

    /// The record of the clock of a queue's users is to go.
    pub(super) fn forget_clock(&mut self, queue: String) {
        self.forgotten.clocks.push(ClockRecord { of: ClockOf::Users(queue), clock: None });
    }

    /// The record of a queue or of its part goes once the clock has passed its debt.
    pub(super) fn drop_paid_turn(&mut self, id: QueueId) {
        let (band, is_part) = (self.get(id).band(), self.get(id).whole.is_some());
        let tags = &mut self.all[id.0 as usize].tags;
        if !is_part && tags.saved && !self.turns.is_needed(band, tags) {
            self.turns.note(id, tags);
        }
        self.with_user(id, |users, tags| {
            if tags.saved && !users.order.is_needed(BAND, tags) {
                users.order.note(id, tags);
            }
        });
    }

    /// Takes up turns that a store kept: queues have their settings, and no work yet. False if there were none of the
    /// same charge.
    pub fn restore_turns(&mut self, saved: SavedTurns) -> bool {
        let charge = self.turns.clock_to_save(0).charge;
        let is_alike = |record: &ClockRecord| record.clock.is_some_and(|clock| clock.charge == charge);
        if !saved.clocks.iter().all(is_alike) || saved.clocks.is_empty() {
            saved.turns.into_iter().for_each(|record| self.forget_turn(record.queue, record.user));
            for record in saved.clocks {
                self.forgotten.clocks.push(ClockRecord { clock: None, ..record });
            }
            return false;
        }
        let mut clocks: BTreeMap<String, TurnClock> = BTreeMap::new();
        for ClockRecord { of, clock } in saved.clocks {
            match (of, clock) {
                (ClockOf::Band(band), Some(clock)) => self.turns.restore_clock(band.min(BAND_MAX), &clock),
                (ClockOf::Users(queue), Some(clock)) => _ = clocks.insert(queue, clock),
                (_, None) => {}
            }
        }
        for TurnRecord { queue, user, turn } in saved.turns {
            let Some(turn) = turn else { continue };
            let is_restored = match &user {
                None => self.restore_queue(&queue, &turn),
                Some(user) => self.restore_user(&queue, user, &turn, clocks.get(&queue)),
            };
            if !is_restored {
                self.forget_turn(queue, user);
            }
        }
        for queue in clocks.into_keys() {
            if self.id(&queue).is_none_or(|whole| !self.has_users(whole)) {
                self.forget_clock(queue);
            }
        }
        true
    }

    fn restore_queue(&mut self, name: &str, turn: &QueueTurn) -> bool {
        let is_needed = |queues: &Queues| turn.is_needed(queues.turns.virtual_time(turn.band));
        let band = self.id(name).map_or_else(|| super::band_of(name), |id| self.get(id).band());
        if band != turn.band || !is_needed(self) {
            return false;
        }
        let id = self.intern(name);
        let queue = &mut self.all[id.0 as usize];
        self.turns.restore(band, &mut queue.tags, turn);
        queue.awaits = turn.waits;
        self.restored.queues.insert(id, turn.clone());
        true
    }

    fn restore_user(&mut self, name: &str, user: &str, turn: &QueueTurn, clock: Option<&TurnClock>) -> bool {
        let by_jobs = self.id(name).is_some_and(|id| self.get(id).record.turns == TurnsBy::Jobs);
        let Some(clock) = clock.filter(|clock| !by_jobs && turn.is_needed(clock.virtual_time)) else {
            return false;
        };
        let id = self.intern_for(name, user);
        self.begin_users(self.whole(id));
        self.with_user(id, |users, tags| {
            users.order.restore_clock(BAND, clock);
            users.order.restore(BAND, tags, turn);
            if turn.waits {
                users.awaits.insert(id);
            }
        });
        self.restored.users.insert(id, turn.clone());
        true
    }

    /// What restored queues were charged in advance and have not run, by their parts.
    pub fn restored_advances(&self) -> BTreeMap<QueueId, RestoredAdvance> {
        let mut advances: BTreeMap<QueueId, RestoredAdvance> = BTreeMap::new();
        for (id, turn) in &self.restored.queues {
            let (advance, left) = (advances.entry(*id).or_default(), turn.left(self.now));
            advance.whole = left;
            if !self.has_users(*id) {
                advance.part = left;
            }
        }
        for (id, turn) in &self.restored.users {
            advances.entry(*id).or_default().part = turn.left(self.now);
        }
        advances
    }

    /// What the user whose part this is was charged in advance is corrected by so much.
    pub fn correct_restored_part(&mut self, id: QueueId, by: i64) {
        self.with_user(id, |users, tags| users.order.correct(id, BAND, tags, by, None));
    }

    /// The same for a whole queue.
    pub fn correct_restored_whole(&mut self, id: QueueId, by: i64) {
        let queue = &mut self.all[id.0 as usize];
        self.turns.correct(id, queue.record.band(), &mut queue.tags, by, None);
    }

    /// All work that a store has was taken in: restored queues and users that waited, and of whom nothing is here or
    /// parked, wait no more.
    pub fn settle_restored(&mut self) {
        let RestoredTurns { queues, users } = std::mem::take(&mut self.restored);
        for id in queues.into_keys() {
            let queue = &mut self.all[id.0 as usize];
            queue.used = queue.used.max(self.now);
            if !queue.parked {
                self.set_parked(id, false);
            }
        }
        for id in users.into_keys() {
            let part = &mut self.all[id.0 as usize];
            part.used = part.used.max(self.now);
            self.with_user(id, |users, tags| {
                if !users.parked.contains(&id) && users.awaits.remove(&id) {
                    users.order.deactivate(id, BAND, tags);
                }
            });
        }
    }
}
