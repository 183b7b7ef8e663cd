//! Turns as a store keeps them, so that an engine goes on where the one before it was: each queue, and each user of a
//! queue with several, with its place in virtual time, and the clocks that these places are on.
//!
//! Start tags and clocks are saved as they are, and not one less the other: a clock goes on while a queue stands
//! still, and the queue's record need not be written again for that. A queue whose work does not wait and that owes
//! nothing has no record, because a queue of which nothing is known starts where it would.

use super::cost::Charge;
use super::fair::{QueueShare, Virtual};
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

    /// The record of a queue, or of one of its users, is to go.
    pub(super) fn forget_turn(&mut self, queue: String, user: Option<String>) {
        self.turns.push(TurnRecord { queue, user, turn: None });
    }

    /// The record of the clock of a queue's users is to go.
    pub(super) fn forget_clock(&mut self, queue: String) {
        self.clocks.push(ClockRecord { of: ClockOf::Users(queue), clock: None });
    }
}

/// The record of one queue, or of one user of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TurnRecord {
    /// The name of the queue.
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
    pub(super) fn left(&self, now: Time) -> u64 {
        let ran = self.rate.saturating_mul(now.as_ms().saturating_sub(self.at.as_ms()));
        self.ahead.saturating_sub(ran)
    }

    /// False if the queue stands where one would that nothing is known of.
    pub(super) fn is_needed(&self, clock: Virtual) -> bool {
        let mut share = QueueShare::default();
        share.restore(self.start, self.rest, self.weight, self.task);
        share.start_tag() > clock || self.waits || self.ahead > 0
    }
}

/// The record of a clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockRecord {
    /// Whose clock it is.
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
    pub(super) queues: BTreeMap<QueueId, QueueTurn>,
    pub(super) users: BTreeMap<QueueId, QueueTurn>,
}

/// What was charged in advance, and its tasks have still to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RestoredAdvance {
    /// Of a whole queue: hundredths of core-milliseconds.
    pub whole: u64,
    /// Of a user's part of it; that of the whole in a queue of one user.
    pub part: u64,
}
