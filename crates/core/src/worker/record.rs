//! A worker as a store has it.

use crate::ids::{Epoch, WorkerId};
use crate::resources::Resources;
use crate::tags::Attributes;
use crate::time::Time;

/// A worker as a store has it. The engine changes it when the worker says hello, when its lease changes, and for an
/// administrator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerRecord {
    /// A worker keeps its number as long as it keeps its name.
    pub id: WorkerId,
    /// Unique on the farm.
    pub name: String,
    /// Raised when a new keeper takes the place of one whose end is confirmed, when its lease runs out, and when an
    /// administrator forgets the worker.
    pub epoch: Epoch,
    /// The machine's own number; 0 of a worker that registered before machines had numbers.
    pub identity: u64,
    /// The keeper's own number. A keeper that is started again has another.
    pub incarnation: u64,
    /// Whether the worker gets new work. A restored engine takes `Up` for `Suspect`.
    pub state: WorkerState,
    /// Told to take nothing new, whatever its state.
    pub draining: bool,
    /// Why an administrator drained it; at most [`NOTE_BYTES_MAX`](crate::bounds::NOTE_BYTES_MAX) bytes.
    pub note: Option<String>,
    /// When its lease runs out; `None` of a worker without a lease.
    pub lease_until: Option<Time>,
    /// What it declares. Tasks never hold more.
    pub capacity: Resources,
    /// Its tags. A store does not have those that a client of Nix gave: the client gives them again.
    pub attributes: Attributes,
}

/// Whether a worker gets new work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerState {
    /// It gets work that fits.
    Up,
    /// An administrator drains it: it gets nothing new.
    Draining,
    /// Silent: it gets nothing new, and nothing is requeued, because its tasks may be running.
    Suspect,
    /// Its lease ran out: it ended its tasks itself, and they are run elsewhere.
    Expired,
    /// An administrator said that it is gone. Its row stays, so that history can name it.
    Forgotten,
}
