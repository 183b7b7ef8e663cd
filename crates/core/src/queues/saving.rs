//! Which turns are to be written to a store, and how an engine goes on with those that a store kept.

use super::bands::{USERS_BAND, band_of};
use super::by_user;
use super::record::{BAND_MAX, TurnsBy};
use super::saved::{
    ClockOf, ClockRecord, QueueTurn, RestoredAdvance, RestoredTurns, SavedTurns, TurnClock, TurnRecord,
};
use super::state::Queues;
use crate::ids::QueueId;
use std::collections::BTreeMap;

impl Queues {
    /// The turns that changed since this was called last.
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
            save_users(self, whole, &mut saved);
        }
        saved
    }

    /// These turns were not written, and are to be.
    pub fn save_turns_again(&mut self, unsaved: &SavedTurns) {
        for TurnRecord { queue, user, .. } in &unsaved.turns {
            let whole = self.id(queue);
            match (whole, user) {
                (Some(id), None) => {
                    let tags = &mut self.all[id.0 as usize].tags;
                    tags.saved = true;
                    self.turns.note(id, tags);
                }
                (Some(whole), Some(user)) if by_user::part_of_user(self, whole, user).is_some() => {
                    let id = by_user::part_of_user(self, whole, user).unwrap_or(whole);
                    by_user::with_user(self, id, |users, tags| {
                        tags.saved = true;
                        users.order.note(id, tags);
                    });
                }
                _ => self.forgotten.forget_turn(queue.clone(), user.clone()),
            }
        }
        for ClockRecord { of, .. } in &unsaved.clocks {
            match of {
                ClockOf::Band(band) => self.turns.note_clock(*band),
                ClockOf::Users(queue) => match self.id(queue).filter(|whole| self.has_users(*whole)) {
                    Some(whole) => {
                        _ = by_user::with_user(self, whole, |users, _| users.order.note_clock(USERS_BAND))
                    }
                    None => self.forgotten.forget_clock(queue.clone()),
                },
            }
        }
    }

    /// Takes up turns that a store kept: queues have their settings, and no work yet. False if there were none of the
    /// same charge.
    pub fn restore_turns(&mut self, saved: SavedTurns) -> bool {
        let charge = self.turns.clock_to_save(0).charge;
        let is_alike = |record: &ClockRecord| record.clock.is_some_and(|clock| clock.charge == charge);
        if !saved.clocks.iter().all(is_alike) || saved.clocks.is_empty() {
            saved.turns.into_iter().for_each(|record| self.forgotten.forget_turn(record.queue, record.user));
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
                None => restore_queue(self, &queue, &turn),
                Some(user) => restore_user(self, &queue, user, &turn, clocks.get(&queue)),
            };
            if !is_restored {
                self.forgotten.forget_turn(queue, user);
            }
        }
        for queue in clocks.into_keys() {
            if self.id(&queue).is_none_or(|whole| !self.has_users(whole)) {
                self.forgotten.forget_clock(queue);
            }
        }
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

    /// Corrects what the user of this part was charged in advance.
    pub fn correct_restored_part(&mut self, id: QueueId, by: i64) {
        by_user::with_user(self, id, |users, tags| users.order.correct(id, USERS_BAND, tags, by, None));
    }

    /// Corrects what a whole queue was charged in advance.
    pub fn correct_restored_whole(&mut self, id: QueueId, by: i64) {
        let queue = &mut self.all[id.0 as usize];
        self.turns.correct(id, queue.record.band(), &mut queue.tags, by, None);
    }

    /// The engine has taken in all work of the store. Restored queues and users that waited cease to wait if none of their
    /// work is resident or parked.
    pub fn settle_restored(&mut self) {
        let RestoredTurns { queues, users } = std::mem::take(&mut self.restored);
        for id in queues.into_keys() {
            let queue = &mut self.all[id.0 as usize];
            queue.used = queue.used.max(self.now);
            if !queue.away {
                self.set_away(id, false);
            }
        }
        for id in users.into_keys() {
            let part = &mut self.all[id.0 as usize];
            part.used = part.used.max(self.now);
            by_user::with_user(self, id, |users, tags| {
                if !users.away.contains(&id) && users.awaits.remove(&id) {
                    users.order.deactivate(id, USERS_BAND, tags);
                }
            });
        }
    }
}

fn save_users(queues: &mut Queues, whole: QueueId, saved: &mut SavedTurns) {
    let Some(mut users) = queues.all[whole.0 as usize].users.take() else { return };
    let name = queues.get(whole).record.name.clone();
    users.noted = false;
    let (changed, moved) = users.order.take_changed();
    for id in changed {
        let queue = &mut queues.all[id.0 as usize];
        let tags = if id == whole { &mut users.first } else { &mut queue.tags };
        if let Some(turn) = users.order.to_save(USERS_BAND, tags, queues.now) {
            saved.turns.push(TurnRecord { queue: name.clone(), user: queue.user.clone(), turn });
        }
    }
    if moved != 0 {
        let clock = Some(users.order.clock_to_save(USERS_BAND));
        saved.clocks.push(ClockRecord { of: ClockOf::Users(name), clock });
    }
    queues.all[whole.0 as usize].users = Some(users);
}

/// The record of a queue or of its part goes once the clock has passed its debt.
pub(super) fn drop_paid_turn(queues: &mut Queues, id: QueueId) {
    let (band, is_part) = (queues.get(id).band(), queues.get(id).whole.is_some());
    let tags = &mut queues.all[id.0 as usize].tags;
    if !is_part && tags.saved && !queues.turns.is_needed(band, tags) {
        queues.turns.note(id, tags);
    }
    by_user::with_user(queues, id, |users, tags| {
        if tags.saved && !users.order.is_needed(USERS_BAND, tags) {
            users.order.note(id, tags);
        }
    });
}

fn restore_queue(queues: &mut Queues, name: &str, turn: &QueueTurn) -> bool {
    let band = queues.id(name).map_or_else(|| band_of(name), |id| queues.get(id).band());
    if band != turn.band || !turn.is_needed(queues.turns.virtual_time(band)) {
        return false;
    }
    let id = queues.intern(name);
    let queue = &mut queues.all[id.0 as usize];
    queues.turns.restore(band, &mut queue.tags, turn);
    if turn.weight != queue.record.weight {
        // Its name had another weight when it was saved.
        queues.turns.set_weight(id, band, &mut queue.tags, queue.record.weight);
    }
    queue.awaits = turn.waits;
    queues.restored.queues.insert(id, turn.clone());
    true
}

fn restore_user(
    queues: &mut Queues,
    name: &str,
    user: &str,
    turn: &QueueTurn,
    clock: Option<&TurnClock>,
) -> bool {
    let by_jobs = queues.id(name).is_some_and(|id| queues.get(id).record.turns == TurnsBy::Jobs);
    let Some(clock) = clock.filter(|clock| !by_jobs && turn.is_needed(clock.virtual_time)) else {
        return false;
    };
    let id = queues.intern_for(name, user);
    by_user::begin_users(queues, queues.whole(id));
    by_user::with_user(queues, id, |users, tags| {
        users.order.restore_clock(USERS_BAND, clock);
        users.order.restore(USERS_BAND, tags, turn);
        if turn.waits {
            users.awaits.insert(id);
        }
    });
    queues.restored.users.insert(id, turn.clone());
    true
}
