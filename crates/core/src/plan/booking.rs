//! A booking: which task goes to which worker, and what it holds there.

use crate::ids::{QueueId, WorkerId};
use crate::job::QueuedStep;
use crate::resources::Resources;

/// A task of a step goes to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Booking {
    /// The queue that is charged, or its user's part.
    pub queue: QueueId,
    /// The step, as it stands in its queue.
    pub queued_step: QueuedStep,
    /// The worker that runs the task.
    pub worker: WorkerId,
    /// The task is sent ahead: it waits at the worker for a running task to end.
    pub is_ahead: bool,
}

/// What a booked task holds.
#[derive(Clone, Copy, Debug)]
pub struct HeldAmounts<'a> {
    /// What it holds for certain. One that is sent ahead holds nothing of its worker yet.
    pub request: &'a Resources,
    /// Bytes that it is expected to hold beyond that.
    pub headroom_bytes: u64,
    /// Milliseconds that it is expected to run; 0 is unknown.
    pub expected_ms: f64,
    /// It runs in the process of another task, and holds nothing.
    pub rides: bool,
}
