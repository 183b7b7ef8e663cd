//! What kind of worker one is, as its attributes say.

use crate::tags::{Attributes, CORE_SCORE, EXCLUSIVE, EXECUTOR, FOR_QUEUE};

/// How the workers of one kind are treated. What sets the hosts of another system apart is data here, so that no rule
/// of placement names a system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WorkerClass {
    /// It takes only steps that ask for it.
    pub is_exclusive: bool,
    /// It may be sent tasks that wait there for running ones to end.
    pub takes_work_ahead: bool,
    /// What it last reported as free memory is all there is, also while it is idle or says nothing.
    pub trusts_reported_memory: bool,
    /// Among such workers the one with most free memory comes first, whatever the settings say.
    pub most_memory_first: bool,
    /// It takes steps in the order of their queue, even where a later one would suit it better.
    pub keeps_queue_order: bool,
}

impl WorkerClass {
    /// A machine with Windlass's agent and keeper.
    pub const AGENT: WorkerClass = WorkerClass {
        is_exclusive: false,
        takes_work_ahead: true,
        trusts_reported_memory: false,
        most_memory_first: false,
        keeps_queue_order: false,
    };

    /// A host that another system runs: see [`EXECUTOR`].
    pub const EXECUTOR: WorkerClass = WorkerClass {
        is_exclusive: true,
        takes_work_ahead: false,
        trusts_reported_memory: true,
        most_memory_first: true,
        keeps_queue_order: true,
    };

    /// A machine that outside clients use, on which Windlass starts nothing: see [`EXCLUSIVE`].
    pub const EXCLUSIVE: WorkerClass =
        WorkerClass { is_exclusive: true, takes_work_ahead: false, ..WorkerClass::AGENT };

    /// The class of a worker with these attributes.
    pub fn of(attributes: &Attributes) -> Self {
        if attributes.contains_key(EXECUTOR) {
            WorkerClass::EXECUTOR
        } else if attributes.contains_key(EXCLUSIVE) {
            WorkerClass::EXCLUSIVE
        } else {
            WorkerClass::AGENT
        }
    }
}

impl Default for WorkerClass {
    fn default() -> Self {
        WorkerClass::AGENT
    }
}

/// What scoring rules look at of a worker's attributes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WorkerFlags {
    /// It fetches (tag `fetch`).
    pub fetches: bool,
    /// It names an architecture (`arch`).
    pub has_arch: bool,
    /// It is for some queues alone (`for_queue`).
    pub is_for_queues: bool,
    /// How it is treated.
    pub class: WorkerClass,
    /// Speed of one core as an operator gave it (`core_score`). It replaces what is measured, so it is on the same
    /// scale, on which the reference core has 1000.
    pub core_score: Option<f64>,
}

impl WorkerFlags {
    /// The flags of a worker with these attributes. A core score that is not a positive number does not count.
    pub fn of(attributes: &Attributes) -> Self {
        let score = attributes.get(CORE_SCORE).and_then(|values| values.first());
        let score = score.and_then(|text| text.parse::<f64>().ok());
        WorkerFlags {
            fetches: attributes.contains_key("fetch"),
            has_arch: attributes.contains_key("arch"),
            is_for_queues: attributes.contains_key(FOR_QUEUE),
            class: WorkerClass::of(attributes),
            core_score: score.filter(|score| score.is_finite() && *score > 0.0),
        }
    }
}
