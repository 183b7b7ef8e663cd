//! What one round passes over.

use crate::ids::{ClassId, QueueId, StepKey};
use crate::job::QueuedStep;
use std::collections::{BTreeMap, BTreeSet};

/// What a round has given up on, each until the next round. Nothing comes off it, and a step that comes into a queue
/// during a round stands behind the one that was booked, so a queue is walked through once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RoundFilter {
    /// Classes that are passed over.
    pub blocked_classes: BTreeSet<ClassId>,
    /// Classes of one queue, of all its users, that are passed over for the queue's own reasons.
    pub blocked_in_queue: BTreeSet<(QueueId, ClassId)>,
    /// Classes that are passed over in one part of a queue. One part has the number of the whole.
    pub blocked_in_part: BTreeSet<(QueueId, ClassId)>,
    /// Steps that are passed over for reasons of their own.
    pub blocked_steps: BTreeSet<StepKey>,
    /// The last head of each queue that was passed over: nothing before it is open in this round.
    pub(super) cursors: BTreeMap<QueueId, (QueuedStep, ClassId)>,
    /// Queues of which nothing is left.
    pub(super) exhausted: Exhausted,
    /// By queue, the users of whom nothing is left.
    pub(super) exhausted_users: BTreeMap<QueueId, Exhausted>,
}

/// Queues, or users of one queue, that have nothing left that could be placed in this round.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Exhausted {
    pub(super) all: Vec<QueueId>,
    /// How many of these others were served before.
    passed: usize,
}

impl Exhausted {
    /// Those before which another one is served for the first time now.
    pub(super) fn take_passed(&mut self) -> &[QueueId] {
        let before = std::mem::replace(&mut self.passed, self.all.len());
        &self.all[before..]
    }
}

impl RoundFilter {
    /// True if the class is passed over in this part of the queue `whole`.
    pub(super) fn is_blocked(&self, part: QueueId, whole: QueueId, class: ClassId) -> bool {
        self.blocked_classes.contains(&class)
            || self.blocked_in_part.contains(&(part, class))
            || self.blocked_in_queue.contains(&(whole, class))
    }
}
