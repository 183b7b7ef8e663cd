//! One attempt at a task, from its booking to its end.

use crate::ids::{Epoch, QueueId, TaskId, WorkerId};
use crate::job::ChunkEnd;
use crate::outbox::Write;
use crate::resources::Resources;
use crate::time::Time;

/// An attempt that is booked or running.
#[derive(Clone, PartialEq, Debug)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// Where.
    pub worker: WorkerId,
    /// The worker's epoch.
    pub epoch: Epoch,
    /// When it was booked.
    pub booked: Time,
    /// When it started, once its worker said so.
    pub started: Option<Time>,
    /// Attempts of the task that failed before.
    pub failures: u32,
    /// Attempts of the task that were lost before.
    pub losses: u32,
    /// What it holds while it runs.
    pub request: Resources,
    /// Headroom in bytes beyond `request`, from the prediction. It is kept free but not counted as held. The attempt's
    /// row adds it to the memory. A task that lends its cpus gives it up.
    pub headroom_bytes: u64,
    /// Another task's process runs it, and holds what it takes: see [`Chunks`](crate::job::Chunks).
    pub rides: bool,
    /// The last of the tasks that its process runs; itself as a rule.
    pub(crate) last: u32,
    /// When the chunk that it leads is expected to end; the default of a task that leads none.
    pub(crate) chunk_end: ChunkEnd,
    /// The number of the message that carried its start last, or a number before that. A start with a smaller number is
    /// out of date.
    pub seq: u64,
    /// It waits in its worker's backlog for room, and holds nothing yet.
    pub queued: bool,
    /// Its worker was told to kill it. Its end counts as asked for.
    pub(crate) killing: bool,
    /// Its worker was asked to give it back, if it has not started.
    pub(crate) recalled: bool,
    /// Its cpus are lent to others.
    pub(crate) lent: Lent,
    /// What it has cost its queue so far.
    pub(crate) charged: Charged,
}

impl Attempt {
    /// The write that books it.
    pub(crate) fn as_booked(&self, task: TaskId) -> Write {
        Write::Book {
            task,
            attempt: self.number,
            worker: self.worker,
            epoch: self.epoch,
            at: self.booked,
            amounts: (self.request.cpu, self.booked_bytes()),
        }
    }

    /// Bytes of memory that it holds or that are kept free for it.
    pub(crate) fn booked_bytes(&self) -> u64 {
        self.request.memory + self.headroom_bytes
    }

    /// What an attempt holds of its worker now.
    pub(crate) fn held(&self) -> Resources {
        if self.queued {
            return Resources::default();
        }
        Resources { cpu: self.counted_cpu(), ..self.request.clone() }
    }

    /// Hundredths of a core that count for its queue, from its booking to its end.
    pub(crate) fn counted_cpu(&self) -> u32 {
        if self.waits() { 0 } else { self.request.cpu }
    }

    /// It waits for jobs that it submitted: its cpus are lent, and not asked back.
    pub(crate) fn waits(&self) -> bool {
        self.lent == Lent::Yes
    }
}

/// Whether the cpus of an attempt are lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lent {
    No,
    Yes,
    /// Asked back: held again in the books, not yet granted by the worker.
    Reclaiming,
}

/// What an attempt has cost its queue so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Charged {
    /// Hundredths of a core: its dominant share of the worker, times the worker's cores.
    pub(crate) share: u32,
    /// Milliseconds.
    pub(crate) ms: u64,
    /// The earlier engine charged everything before this time, or it had another share until then.
    pub(crate) from: Time,
    /// What it ran before that under this engine, with other shares, and what that cost.
    pub(crate) earlier_ms: u64,
    pub(crate) earlier_cost: u64,
    /// Its booking was charged here, or by the engine whose turns this one took up.
    pub(crate) counted: bool,
}

impl Charged {
    /// From when on an attempt that started then is charged.
    pub(crate) fn since(&self, started: Time) -> Time {
        started.max(self.from)
    }
}

/// A task that was booked in this round and can use more cpus.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct WideTask {
    pub(super) task: TaskId,
    pub(super) worker: WorkerId,
    pub(super) queue: QueueId,
    /// Hundredths of a core that it can use at most.
    pub(super) cpus_max: u32,
    /// Where its row stands among the writes of the batch, and its order among the sends.
    pub(super) write: usize,
    pub(super) send: usize,
}
