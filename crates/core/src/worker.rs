//! Workers: what they have, what is booked on them.

use crate::ids::{AllocId, Epoch, TaskId, WorkerId};
use crate::resources::Resources;
use crate::tags::Attributes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Whether a worker gets new work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerState {
    /// Gets work.
    Up,
    /// Told to take nothing new.
    Draining,
    /// Not heard from: no new work, and nothing requeued, for its tasks may be running.
    Suspect,
}

/// A machine with its agent.
#[derive(Clone, PartialEq, Debug)]
pub struct Worker {
    /// Its id, kept across restarts by name.
    pub id: WorkerId,
    /// Unique on the farm.
    pub name: Arc<str>,
    /// Raised when a new keeper takes the place of one whose end is confirmed.
    pub epoch: Epoch,
    /// The keeper's own number: another number is another keeper.
    pub incarnation: u64,
    /// Whether it gets new work.
    pub state: WorkerState,
    /// It said hello, and its link holds.
    pub connected: bool,
    /// What it declares. Tasks never hold more.
    pub capacity: Resources,
    /// What it is.
    pub attributes: Attributes,
    /// Held now: running attempts, cpus that a task asked back, places of outside clients.
    pub booked: Resources,
    /// Attempts that hold resources.
    pub running: BTreeSet<TaskId>,
    /// Attempts sent ahead: they start here in this order as room comes, and hold nothing yet.
    pub backlog: VecDeque<TaskId>,
    /// Predicted milliseconds of work in the backlog.
    pub backlog_ms: f64,
    /// Places given to outside clients.
    pub allocs: BTreeMap<AllocId, Resources>,
    /// The number of the last message to it.
    pub seq: u64,
    /// The number of the last message before its last beat.
    pub beat_seq: u64,
}

impl Worker {
    /// A worker as a store knows it, before it is heard from: nothing is booked on it.
    pub fn unheard(record: WorkerRecord) -> Self {
        Worker {
            id: record.id,
            name: record.name.into(),
            epoch: record.epoch,
            incarnation: record.incarnation,
            state: if record.draining { WorkerState::Draining } else { WorkerState::Suspect },
            connected: false,
            capacity: record.capacity,
            attributes: record.attributes,
            booked: Resources::default(),
            running: BTreeSet::new(),
            backlog: VecDeque::new(),
            backlog_ms: 0.0,
            allocs: BTreeMap::new(),
            seq: 0,
            beat_seq: 0,
        }
    }

    /// What a new booking may use.
    pub fn free(&self) -> Resources {
        self.capacity.less(&self.booked)
    }
}

/// A worker as a store gives it back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerRecord {
    /// Its id.
    pub id: WorkerId,
    /// Its name.
    pub name: String,
    /// Its last epoch.
    pub epoch: Epoch,
    /// The last keeper's number.
    pub incarnation: u64,
    /// Told to take nothing new.
    pub draining: bool,
    /// What it declared last.
    pub capacity: Resources,
    /// What it was.
    pub attributes: Attributes,
}
