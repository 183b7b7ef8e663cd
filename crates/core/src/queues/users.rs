//! Turns of the users inside one queue, by the same rules as those of the queues inside a band.
//!
//! A queue that only one user has used has none of this. What is charged to a user is charged to the queue too, so the
//! queue's turns do not depend on how its users share it.

use super::fair::QueueShare;
use super::filter::RoundFilter;
use super::queue::Queue;
use super::record::{QueueRecord, TurnsBy};
use super::turn::{QueueTags, TurnOrder};
use super::{QueueId, Queues};
use crate::ids::ClassId;
use crate::job::QueuedStep;
use std::collections::{BTreeMap, BTreeSet};

/// A queue has no bands inside.
pub(super) const BAND: u8 = 0;

/// The users of one queue. The first user's part has the id of the queue.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Users {
    pub(super) order: TurnOrder,
    /// The parts of all but the first user.
    by_name: BTreeMap<String, QueueId>,
    /// What the first user has had of the queue; others have theirs in their parts.
    pub(super) first: QueueTags,
    /// Parts with steps, besides the first user's.
    pub(super) waiting: usize,
    /// Parts with booked or running tasks, and how many.
    active: BTreeMap<QueueId, u32>,
    /// Parts of which more work is parked.
    pub(super) parked: BTreeSet<QueueId>,
    /// Those of them that have no step here and wait for parked ones to be read.
    pub(super) awaits: BTreeSet<QueueId>,
    /// [`Queues`] knows that some are not as they were saved last.
    pub(super) noted: bool,
}

impl QueueRecord {
    /// The settings of a user's part of the queue.
    fn part_of(&self, user: &str) -> QueueRecord {
        QueueRecord { weight: self.weight_of(user), ..self.clone() }
    }
}

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
        let record = queue.record.part_of(user);
        let weight = record.weight;
        let mut part = Queue::new(record, self.now);
        part.tags.share.set_weight(weight);
        (part.user, part.whole) = (Some(user.to_owned()), Some(whole));
        let id = self.add(part);
        self.begin_users(whole);
        if let Some(users) = &mut self.all[whole.0 as usize].users {
            users.by_name.insert(user.to_owned(), id);
        }
        id
    }

    /// A second user comes: the first user's steps take turns with theirs from now on.
    pub(super) fn begin_users(&mut self, whole: QueueId) {
        let order = self.turns.alike();
        let queue = &mut self.all[whole.0 as usize];
        if queue.users.is_some() {
            return;
        }
        let active = Some((whole, queue.active)).filter(|(_, active)| *active > 0);
        let mut first = QueueTags::default();
        first.share.advance = queue.tags.share.advance;
        queue.users = Some(Box::new(Users {
            order,
            by_name: BTreeMap::new(),
            first,
            waiting: 0,
            active: active.into_iter().collect(),
            parked: queue.parked.then_some(whole).into_iter().collect(),
            awaits: BTreeSet::new(),
            noted: false,
        }));
        let weight = queue.user.as_ref().map(|user| queue.record.weight_of(user));
        let waits = !queue.by_class.is_empty();
        self.with_user(whole, |users, tags| {
            weight.into_iter().for_each(|weight| users.order.set_weight(whole, BAND, tags, weight));
            if waits {
                users.order.activate(whole, BAND, tags);
            }
        });
    }

    /// The queue of which this is a user's part, or itself.
    pub fn whole(&self, id: QueueId) -> QueueId {
        self.get(id).whole.unwrap_or(id)
    }

    /// The part, and the whole where that is another.
    pub(super) fn with_whole(&self, id: QueueId) -> impl Iterator<Item = QueueId> + use<> {
        std::iter::once(id).chain(self.get(id).whole)
    }

    /// All parts of a queue, the first user's among them.
    pub fn parts(&self, whole: QueueId) -> impl Iterator<Item = QueueId> + '_ {
        let users = self.get(whole).users.as_ref();
        std::iter::once(whole).chain(users.into_iter().flat_map(|users| users.by_name.values().copied()))
    }

    /// True if the queue has had several users.
    pub fn has_users(&self, whole: QueueId) -> bool {
        self.get(whole).users.is_some()
    }

    /// The parts of a queue that have steps, in the order of their turns.
    pub(super) fn users_in_turn(&self, whole: QueueId) -> impl Iterator<Item = QueueId> + '_ {
        let users = self.get(whole).users.as_ref();
        let only = users.is_none().then_some(whole);
        only.into_iter().chain(users.into_iter().flat_map(|users| users.order.iter()))
    }

    /// What a user has had of their queue; `None` in a queue of one user.
    pub fn user_share(&self, id: QueueId) -> Option<&QueueShare> {
        let queue = self.get(id);
        match queue.whole {
            Some(_) => Some(&queue.tags.share),
            None => queue.users.as_ref().map(|users| &users.first.share),
        }
    }

    /// True if something else could be placed instead of a step of this part: of the same part, of another user or of
    /// another queue.
    pub fn has_choice(&self, id: QueueId) -> bool {
        let users = self.get(self.whole(id)).users.as_ref();
        self.get(id).has_choice() || self.turns.len() > 1 || users.is_some_and(|users| users.order.len() > 1)
    }

    /// Changes a user's turns, and what they have had; `None` in a queue of one user.
    pub(super) fn with_user<T>(
        &mut self,
        id: QueueId,
        change: impl FnOnce(&mut Users, &mut QueueTags) -> T,
    ) -> Option<T> {
        let whole = self.whole(id);
        let mut users = self.all[whole.0 as usize].users.take()?;
        let result = if id == whole {
            let mut tags = users.first;
            let result = change(&mut users, &mut tags);
            users.first = tags;
            result
        } else {
            change(&mut users, &mut self.all[id.0 as usize].tags)
        };
        if users.order.has_changes() && !std::mem::replace(&mut users.noted, true) {
            self.changed_users.push(whole);
        }
        self.all[whole.0 as usize].users = Some(users);
        Some(result)
    }

    /// The part of a queue that is a user's, in a queue that has had several.
    pub(super) fn part_of_user(&self, whole: QueueId, user: &str) -> Option<QueueId> {
        let queue = self.get(whole);
        let users = queue.users.as_ref()?;
        let is_first = queue.user.as_deref() == Some(user);
        if is_first { Some(whole) } else { users.by_name.get(user).copied() }
    }

    /// The settings of a queue have changed: its parts follow.
    pub(super) fn set_users(&mut self, whole: QueueId) {
        for id in self.parts(whole).collect::<Vec<_>>() {
            let record = &self.get(whole).record;
            let part = self.get(id).user.as_ref().map(|user| record.part_of(user));
            let Some(part) = part else { continue };
            let weight = part.weight;
            self.with_user(id, |users, tags| users.order.set_weight(id, BAND, tags, weight));
            if id != whole {
                self.all[id.0 as usize].record = part;
            }
        }
    }

    /// A part has steps again, and had none before.
    pub(super) fn user_waits(&mut self, id: QueueId) {
        let is_first = self.whole(id) == id;
        let level = self.level_of_users(id);
        self.with_user(id, |users, tags| {
            users.waiting += usize::from(!is_first);
            if users.awaits.remove(&id) {
                users.order.resume(id, BAND, tags);
                return;
            }
            level.into_iter().for_each(|level| users.order.catch_up(BAND, level));
            users.order.activate(id, BAND, tags);
        });
    }

    /// The level at which a user with new work enters: that of the least served user who waits, or else the highest of
    /// those whose tasks run.
    fn level_of_users(&self, id: QueueId) -> Option<super::fair::Virtual> {
        let users = self.get(self.whole(id)).users.as_ref()?;
        let served = |id: &QueueId| self.user_share(*id).map(|share| share.served(self.now));
        match users.order.least(BAND) {
            Some(least) => served(&least),
            None => users.active.keys().filter_map(served).max(),
        }
    }

    /// A part has no steps any more.
    pub(super) fn user_is_done(&mut self, id: QueueId) {
        let is_first = self.whole(id) == id;
        let is_restored = self.restored.has_user(id);
        self.with_user(id, |users, tags| {
            users.waiting -= usize::from(!is_first);
            if is_restored || users.parked.contains(&id) {
                users.awaits.insert(id);
                users.order.suspend(id, BAND, tags);
            } else {
                users.order.deactivate(id, BAND, tags);
            }
        });
    }

    /// Whether more work of a user is parked. While it is, the user does not count as idle.
    pub fn set_user_parked(&mut self, id: QueueId, parked: bool) {
        self.with_user(id, |users, tags| {
            if parked {
                users.parked.insert(id);
            } else if users.parked.remove(&id) && users.awaits.remove(&id) {
                users.order.deactivate(id, BAND, tags);
            }
        });
    }

    pub(super) fn is_user_parked(&self, id: QueueId) -> bool {
        let users = self.get(self.whole(id)).users.as_ref();
        users.is_some_and(|users| users.parked.contains(&id))
    }

    /// Nobody has used this part for long. A queue that is left with one user has no turns inside.
    pub(super) fn forget_user(&mut self, id: QueueId) {
        let whole = self.whole(id);
        let user = self.all[id.0 as usize].user.take().unwrap_or_default();
        let left = self.with_user(id, |users, _| {
            users.by_name.remove(&user);
            users.order.forget(id);
            users.by_name.len()
        });
        let queue = self.get(whole).record.name.clone();
        if std::mem::take(&mut self.all[id.0 as usize].tags).saved {
            self.forget_turn(queue.clone(), Some(user));
        }
        if left == Some(0) {
            let whole = &mut self.all[whole.0 as usize];
            let (first, users) = (whole.user.clone(), whole.users.take());
            if users.is_some_and(|users| users.first.saved) {
                self.forget_turn(queue.clone(), first);
            }
            self.forget_clock(queue);
        }
    }

    /// The next step of a queue: of the user whose turn it is, of those that have one that may be placed.
    pub(super) fn next_of(
        &mut self,
        whole: QueueId,
        filter: &mut RoundFilter,
        is_open: &dyn Fn(ClassId) -> bool,
    ) -> Option<(QueueId, QueuedStep, ClassId)> {
        if !self.has_users(whole) {
            let (queued_step, class) = self.get(whole).first(whole, filter, is_open)?;
            return Some((whole, queued_step, class));
        }
        loop {
            let id = self.get(whole).users.as_ref()?.order.first()?;
            if let Some((queued_step, class)) = self.get(id).first(id, filter, is_open) {
                return Some((id, queued_step, class));
            }
            self.with_user(id, |users, tags| users.order.suspend(id, BAND, tags));
            filter.exhausted_users.entry(whole).or_default().all.push(id);
        }
    }

    /// A user who had nothing that fitted stands in line again.
    pub(super) fn resume_user(&mut self, id: QueueId) {
        if !self.get(id).by_class.is_empty() {
            self.with_user(id, |users, tags| users.order.resume(id, BAND, tags));
        }
    }

    /// A task of the part was booked, at this cost.
    pub(super) fn charge_user(&mut self, id: QueueId, cost: u64, filter: &mut RoundFilter) {
        let whole = self.whole(id);
        if let Some(exhausted) = filter.exhausted_users.get_mut(&whole) {
            for passed in exhausted.take_passed().iter().filter(|passed| **passed != id) {
                self.with_user(*passed, |users, tags| users.order.pass_over(*passed, BAND, tags));
            }
        }
        self.with_user(id, |users, tags| users.order.charge(id, BAND, tags, cost));
    }

    /// What a task of the part was charged is corrected by this much.
    pub(super) fn correct_user(&mut self, id: QueueId, by: i64, task: Option<u64>) {
        let now = self.now;
        self.with_user(id, |users, tags| {
            users.order.correct(id, BAND, tags, by, task);
            if users.order.least(BAND).is_none() {
                users.order.catch_up(BAND, tags.share.served(now));
            }
        });
    }

    /// A task of the part is booked from now on.
    pub(super) fn user_holds(&mut self, id: QueueId) {
        self.with_user(id, |users, _| *users.active.entry(id).or_default() += 1);
    }

    /// A task of the part ended.
    pub(super) fn user_settles(&mut self, id: QueueId) {
        self.with_user(id, |users, _| {
            if let Some(active) = users.active.get_mut(&id) {
                *active -= 1;
                if *active == 0 {
                    users.active.remove(&id);
                }
            }
        });
    }
}
