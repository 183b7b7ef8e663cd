//! All queues, and the parts of their users.

use super::fair::QueueShare;
use super::queue::Queue;
use super::record::QueueRecord;
use super::saved::{RestoredTurns, SavedTurns};
use super::turn::{TurnOrder, TurnSettings};
use crate::ids::{ClassId, QueueId};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// All queues, and the order of their turns.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Queues {
    pub(super) all: Vec<Queue>,
    pub(super) by_name: BTreeMap<String, QueueId>,
    pub(super) turns: TurnOrder,
    /// Queues of which something is booked.
    pub(super) active: BTreeSet<QueueId>,
    /// Places of queues that are gone.
    pub(super) free: Vec<QueueId>,
    /// Where the next look for unused queues begins.
    pub(super) looked: usize,
    pub(super) now: Time,
    /// Queues that wait with steps of a class.
    pub(super) by_class: BTreeMap<ClassId, BTreeSet<QueueId>>,
    /// Classes of which nothing waits any more, since [`Queues::take_vanished`].
    pub(super) vanished: BTreeSet<ClassId>,
    /// Queues of whose users some are not as they were saved last.
    pub(super) changed_users: Vec<QueueId>,
    /// Records of turns that are to go.
    pub(super) forgotten: SavedTurns,
    /// Turns that were taken up from a store, until all of its work was.
    pub(super) restored: RestoredTurns,
}

impl Queues {
    /// Without queues. They come with the first use of their names.
    pub fn new(settings: TurnSettings) -> Self {
        Queues { turns: TurnOrder::new(settings), ..Queues::default() }
    }

    /// The queue of that name, made if there is none.
    pub fn intern(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.by_name.get(name) {
            self.all[id.0 as usize].used = self.now;
            return *id;
        }
        let id = self.add(Queue::new(QueueRecord::named(name), self.now));
        self.by_name.insert(name.to_owned(), id);
        id
    }

    pub(super) fn add(&mut self, queue: Queue) -> QueueId {
        match self.free.pop() {
            Some(id) => {
                self.all[id.0 as usize] = queue;
                id
            }
            None => {
                self.all.push(queue);
                QueueId(self.all.len() as u32 - 1)
            }
        }
    }

    /// The queue of that name, if there is one.
    pub fn id(&self, name: &str) -> Option<QueueId> {
        self.by_name.get(name).copied()
    }

    /// The queue with this id.
    pub fn get(&self, id: QueueId) -> &Queue {
        &self.all[id.0 as usize]
    }

    /// All queues as wholes, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.with_ids().map(|(_, queue)| queue)
    }

    /// All queues as wholes, with their ids.
    pub fn with_ids(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.parts_with_ids().filter(|(_, queue)| queue.whole.is_none())
    }

    /// All queues and all users' parts, with their ids.
    pub fn parts_with_ids(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        (0..).map(QueueId).zip(&self.all).filter(|(_, queue)| !queue.gone)
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

    /// What a user has had of their queue; `None` in a queue of one user.
    pub fn user_share(&self, id: QueueId) -> Option<&QueueShare> {
        let queue = self.get(id);
        match queue.whole {
            Some(_) => Some(&queue.tags.share),
            None => queue.users.as_ref().map(|users| &users.first.share),
        }
    }
}
