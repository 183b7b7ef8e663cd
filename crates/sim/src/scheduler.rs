//! A scheduler of the simulation: the engine, its batches and its links. `shell` drives it.

use crate::gangs::ReservedGangs;
use crate::machine::MachineMessage;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use windlass_core::engine::{Engine, Event, Outbox, Pipeline, WorkerCommand};
use windlass_core::{Time, WorkerId};

/// Orders that wait, by link: the first for the body of its task, the others for that one, because a worker passes over
/// what comes behind a later order.
pub(crate) type HeldBack = BTreeMap<u64, VecDeque<(u64, WorkerCommand)>>;

pub struct Scheduler {
    pub engine: Engine,
    pub life: u64,
    pub(crate) pipeline: Pipeline,
    pub(crate) in_flight: Option<Flight>,
    /// Open links: the machine, and the worker after its hello.
    pub(crate) links: BTreeMap<u64, (usize, Option<WorkerId>)>,
    pub(crate) held_back: HeldBack,
    /// After a failed commit, messages that wait until the store answers; `None` otherwise.
    pub(crate) frozen: Option<VecDeque<Incoming>>,
    pub(crate) round_due: bool,
    pub(crate) reserved_gangs: ReservedGangs,
    /// When it wakes next; `None` if no wakeup is set.
    pub(crate) wakes: Option<Time>,
    /// Nanoseconds by which its clock is ahead. The clock was read at the start, and runs evenly since.
    pub(crate) clock_skew_ns: i64,
}

/// The batch that is being committed.
pub(crate) struct Flight {
    pub batch: Arc<Outbox>,
    pub fate: Fate,
}

/// What became of a batch. Of an applied one, the refused writes.
pub(crate) enum Fate {
    Open,
    Applied(Vec<usize>),
    Failed,
}

/// What waits while the store does not answer.
pub(crate) enum Incoming {
    Message(u64, usize, MachineMessage),
    Loss(u64),
    Event(Event),
}

impl Scheduler {
    /// Whether everything that the engine decided is durable.
    pub fn is_idle(&self) -> bool {
        self.frozen.is_none() && self.pipeline.is_idle()
    }

    /// The worker that said hello over a link.
    pub fn worker_of(&self, link: u64) -> Option<WorkerId> {
        self.links.get(&link).and_then(|(_, worker)| *worker)
    }

    /// The machine at the other end of an open link.
    pub fn machine_of(&self, link: u64) -> Option<usize> {
        self.links.get(&link).map(|(machine, _)| *machine)
    }

    /// Drops the commands that wait for a link, as if they were lost on the way.
    pub(crate) fn forget_held_back(&mut self, link: u64) {
        self.held_back.remove(&link);
    }

    /// Refuses requests until the jobs in question were read again, as the server does.
    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(VecDeque::new());
    }
}
