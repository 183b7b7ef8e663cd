//! The users of one queue. A queue that only one user has used has none of this.

use super::turn::{QueueTags, TurnOrder};
use crate::ids::QueueId;
use std::collections::{BTreeMap, BTreeSet};

/// The users of one queue. The first user's part has the id of the queue.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Users {
    pub(super) order: TurnOrder,
    /// The parts of all but the first user.
    pub(super) by_name: BTreeMap<String, QueueId>,
    /// What the first user has had of the queue; others have theirs in their parts.
    pub(super) first: QueueTags,
    /// Parts with steps, besides the first user's.
    pub(super) waiting: usize,
    /// Parts with booked or running tasks, and how many.
    pub(super) active: BTreeMap<QueueId, u32>,
    /// Parts of which parked work is not resident.
    pub(super) away: BTreeSet<QueueId>,
    /// Those of them of which no step is resident: they wait for parked ones to be read.
    pub(super) awaits: BTreeSet<QueueId>,
    /// [`Queues`](super::Queues) knows that some are not as they were saved last.
    pub(super) noted: bool,
}
