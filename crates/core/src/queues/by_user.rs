//! Turns of the users inside one queue, by the same rules as those of the queues inside a band.
//!
//! What is charged to a user is charged to the queue too, so the queue's turns do not depend on how its users share it.

use super::bands::USERS_BAND;
use super::fair::Virtual;
use super::filter::RoundFilter;
use super::queue::Queue;
use super::record::{QueueRecord, TurnsBy};
use super::state::Queues;
use super::turn::QueueTags;
use super::users::Users;
use crate::ids::{ClassId, QueueId};
use crate::job::QueuedStep;
use std::collections::{BTreeMap, BTreeSet};

impl Queues {
    /// The part of a queue that is this user's, made if there is none.
    pub fn intern_for(&mut self, name: &str, user: &str) -> QueueId {
        let whole = self.intern(name);
        let queue = &mut self.all[whole.0 as usize];
        if queue.record.turns == TurnsBy::Jobs || *queue.user.get_or_insert_with(|| user.to_owned()) == user {
            return whole;
        }
        let known = queue.users.as_ref().and_then(|users| users.by_name.get(user)).copied();
        if let Some(part) = known {
            self.all[part.0 as usize].used = self.now;
            return part;
        }
        let mut part = Queue::new(part_of(&queue.record, user), self.now);
        (part.user, part.whole) = (Some(user.to_owned()), Some(whole));
        let id = self.add(part);
        begin_users(self, whole);
        if let Some(users) = &mut self.all[whole.0 as usize].users {
            users.by_name.insert(user.to_owned(), id);
        }
        id
    }

    /// True if something else could be placed instead of a step of this part: of the same part, of another user or of
    /// another queue.
    pub fn has_choice(&self, id: QueueId) -> bool {
        let users = self.get(self.whole(id)).users.as_ref();
        self.get(id).has_choice() || self.turns.len() > 1 || users.is_some_and(|users| users.order.len() > 1)
    }

    /// Whether parked work of a user is not resident. While some is, the user does not count as idle.
    pub fn set_user_away(&mut self, id: QueueId, is_away: bool) {
        with_user(self, id, |users, tags| {
            if is_away {
                users.away.insert(id);
            } else if users.away.remove(&id) && users.awaits.remove(&id) {
                users.order.deactivate(id, USERS_BAND, tags);
            }
        });
    }
}

/// A second user comes: the first user's steps take turns with theirs from now on.
pub(super) fn begin_users(queues: &mut Queues, whole: QueueId) {
    let order = queues.turns.alike();
    let queue = &mut queues.all[whole.0 as usize];
    if queue.users.is_some() {
        return;
    }
    let active = Some((whole, queue.active)).filter(|(_, active)| *active > 0);
    // All that the queue runs is its first user's.
    let mut first = QueueTags::default();
    first.share.advance = queue.tags.share.advance;
    first.places = queue.tags.places;
    (first.wanting, first.content_since) = (queue.tags.wanting, queue.tags.content_since);
    queue.users = Some(Box::new(Users {
        order,
        by_name: BTreeMap::new(),
        first,
        waiting: 0,
        active: active.into_iter().collect(),
        away: queue.away.then_some(whole).into_iter().collect(),
        awaits: BTreeSet::new(),
        noted: false,
    }));
    let weight = queue.user.as_ref().map(|user| queue.record.weight_of(user));
    let waits = !queue.by_class.is_empty();
    with_user(queues, whole, |users, tags| {
        weight.into_iter().for_each(|weight| users.order.set_weight(whole, USERS_BAND, tags, weight));
        if waits {
            users.order.activate(whole, USERS_BAND, tags);
        }
    });
}

/// The parts of a queue that have steps, in the order of their turns.
pub(super) fn users_in_turn(queues: &Queues, whole: QueueId) -> impl Iterator<Item = QueueId> + '_ {
    let users = queues.get(whole).users.as_ref();
    let only = users.is_none().then_some(whole);
    only.into_iter().chain(users.into_iter().flat_map(|users| users.order.iter()))
}

/// Changes a user's turns, and what they have had; `None` in a queue of one user.
pub(super) fn with_user<T>(
    queues: &mut Queues,
    id: QueueId,
    change: impl FnOnce(&mut Users, &mut QueueTags) -> T,
) -> Option<T> {
    let whole = queues.whole(id);
    let mut users = queues.all[whole.0 as usize].users.take()?;
    let result = if id == whole {
        let mut tags = users.first;
        let result = change(&mut users, &mut tags);
        users.first = tags;
        result
    } else {
        change(&mut users, &mut queues.all[id.0 as usize].tags)
    };
    if users.order.has_changes() && !std::mem::replace(&mut users.noted, true) {
        queues.changed_users.push(whole);
    }
    queues.all[whole.0 as usize].users = Some(users);
    Some(result)
}

/// The part of a queue that is a user's, in a queue that has had several.
pub(super) fn part_of_user(queues: &Queues, whole: QueueId, user: &str) -> Option<QueueId> {
    let queue = queues.get(whole);
    let users = queue.users.as_ref()?;
    let is_first = queue.user.as_deref() == Some(user);
    if is_first { Some(whole) } else { users.by_name.get(user).copied() }
}

/// The settings of a queue have changed: its parts follow.
pub(super) fn set_users(queues: &mut Queues, whole: QueueId) {
    for id in queues.parts(whole).collect::<Vec<_>>() {
        let record = &queues.get(whole).record;
        let part = queues.get(id).user.as_ref().map(|user| part_of(record, user));
        let Some(part) = part else { continue };
        let weight = part.weight;
        with_user(queues, id, |users, tags| users.order.set_weight(id, USERS_BAND, tags, weight));
        if id != whole {
            queues.all[id.0 as usize].record = part;
        }
    }
}

/// A part has steps again, and had none before.
pub(super) fn user_waits(queues: &mut Queues, id: QueueId) {
    let is_first = queues.whole(id) == id;
    let level = level_of_users(queues, id);
    with_user(queues, id, |users, tags| {
        users.waiting += usize::from(!is_first);
        if users.awaits.remove(&id) {
            users.order.resume(id, USERS_BAND, tags);
            return;
        }
        level.into_iter().for_each(|level| users.order.catch_up(USERS_BAND, level));
        users.order.activate(id, USERS_BAND, tags);
    });
}

/// The level at which a user with new work enters: that of the least served user who waits, or else the lowest of those
/// whose builds want more, or else the highest of those whose tasks run.
pub(super) fn level_of_users(queues: &Queues, id: QueueId) -> Option<Virtual> {
    let users = queues.get(queues.whole(id)).users.as_ref()?;
    let served = |id: &QueueId| user_tags(queues, *id).map(|tags| tags.share.served(queues.now));
    if let Some(least) = users.order.least(USERS_BAND) {
        return served(&least);
    }
    let wants = |id: &&QueueId| user_tags(queues, **id).is_some_and(|tags| tags.wanting > 0);
    let wanting = users.active.keys().filter(wants).filter_map(served).min();
    wanting.or_else(|| users.active.keys().filter_map(served).max())
}

/// What a user has of the turns inside their queue; `None` in a queue of one user.
pub(super) fn user_tags(queues: &Queues, id: QueueId) -> Option<&QueueTags> {
    let queue = queues.get(id);
    match queue.whole {
        Some(_) => Some(&queue.tags),
        None => queue.users.as_ref().map(|users| &users.first),
    }
}

/// A part has no steps any more.
pub(super) fn user_is_done(queues: &mut Queues, id: QueueId) {
    let is_first = queues.whole(id) == id;
    let is_restored = queues.restored.users.contains_key(&id);
    with_user(queues, id, |users, tags| {
        users.waiting -= usize::from(!is_first);
        if is_restored || users.away.contains(&id) {
            users.awaits.insert(id);
            users.order.suspend(id, USERS_BAND, tags);
        } else {
            users.order.deactivate(id, USERS_BAND, tags);
        }
    });
}

pub(super) fn is_user_away(queues: &Queues, id: QueueId) -> bool {
    let users = queues.get(queues.whole(id)).users.as_ref();
    users.is_some_and(|users| users.away.contains(&id))
}

/// Drops a part that was unused for long. A queue that is left with one user has no turns inside.
pub(super) fn forget_user(queues: &mut Queues, id: QueueId) {
    let whole = queues.whole(id);
    let user = queues.all[id.0 as usize].user.take().unwrap_or_default();
    let left = with_user(queues, id, |users, _| {
        users.by_name.remove(&user);
        users.order.forget(id);
        users.by_name.len()
    });
    let queue = queues.get(whole).record.name.clone();
    if std::mem::take(&mut queues.all[id.0 as usize].tags).saved {
        queues.forgotten.forget_turn(queue.clone(), Some(user));
    }
    if left == Some(0) {
        let whole = &mut queues.all[whole.0 as usize];
        let (first, users) = (whole.user.clone(), whole.users.take());
        if users.is_some_and(|users| users.first.saved) {
            queues.forgotten.forget_turn(queue.clone(), first);
        }
        queues.forgotten.forget_clock(queue);
    }
}

/// The next step of a queue: of the user whose turn it is, of those that have one that may be placed.
pub(super) fn next_of(
    queues: &mut Queues,
    whole: QueueId,
    filter: &mut RoundFilter,
    is_open: &dyn Fn(ClassId) -> bool,
) -> Option<(QueueId, QueuedStep, ClassId)> {
    if !queues.has_users(whole) {
        let (queued_step, class) = queues.get(whole).first(whole, filter, is_open)?;
        return Some((whole, queued_step, class));
    }
    loop {
        let id = queues.get(whole).users.as_ref()?.order.first()?;
        if let Some((queued_step, class)) = queues.get(id).first(id, filter, is_open) {
            return Some((id, queued_step, class));
        }
        with_user(queues, id, |users, tags| users.order.suspend(id, USERS_BAND, tags));
        filter.exhausted_users.entry(whole).or_default().all.push(id);
    }
}

/// A user who had nothing that fitted stands in line again.
pub(super) fn resume_user(queues: &mut Queues, id: QueueId) {
    if !queues.get(id).by_class.is_empty() {
        with_user(queues, id, |users, tags| users.order.resume(id, USERS_BAND, tags));
    }
}

/// A task of the part was booked, at this cost.
pub(super) fn charge_user(queues: &mut Queues, id: QueueId, cost: u64, filter: &mut RoundFilter) {
    let whole = queues.whole(id);
    if let Some(exhausted) = filter.exhausted_users.get_mut(&whole) {
        for passed in exhausted.take_passed().iter().filter(|passed| **passed != id) {
            with_user(queues, *passed, |users, tags| users.order.pass_over(*passed, USERS_BAND, tags));
        }
    }
    with_user(queues, id, |users, tags| users.order.charge(id, USERS_BAND, tags, cost));
}

/// What a task of the part was charged is corrected by this much.
pub(super) fn correct_user(queues: &mut Queues, id: QueueId, by: i64, task: Option<u64>) {
    let now = queues.now;
    with_user(queues, id, |users, tags| {
        users.order.correct(id, USERS_BAND, tags, by, task);
        if users.order.least(USERS_BAND).is_none() {
            users.order.catch_up(USERS_BAND, tags.share.served(now));
        }
    });
}

/// A task of the part is booked from now on.
pub(super) fn user_holds(queues: &mut Queues, id: QueueId) {
    with_user(queues, id, |users, _| *users.active.entry(id).or_default() += 1);
}

/// A task of the part ended.
pub(super) fn user_settles(queues: &mut Queues, id: QueueId) {
    with_user(queues, id, |users, _| {
        if let Some(active) = users.active.get_mut(&id) {
            *active -= 1;
            if *active == 0 {
                users.active.remove(&id);
            }
        }
    });
}

/// The settings of a user's part of the queue.
fn part_of(record: &QueueRecord, user: &str) -> QueueRecord {
    QueueRecord { weight: record.weight_of(user), ..record.clone() }
}
