//! Who could run it: all workers, and an index of their free room.

mod index;

pub use index::{Index, Saturation};

use crate::ids::WorkerId;
use crate::resources::Resources;
use crate::worker::{Worker, WorkerState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All workers. A worker's room changes only through [`Workers::update`], which takes it out of the
/// index (checkout) and puts it back by its new room (checkin).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Workers {
    all: BTreeMap<WorkerId, Worker>,
    by_name: BTreeMap<Arc<str>, WorkerId>,
    index: Index,
}

impl Workers {
    /// No workers, filled by the given policy.
    pub fn new(saturation: Saturation) -> Self {
        Workers { index: Index::new(saturation), ..Default::default() }
    }

    /// Adds a worker or replaces the one with its id.
    pub fn insert(&mut self, worker: Worker) {
        if let Some(old) = self.all.get(&worker.id) {
            self.index.check_out(old);
        }
        self.by_name.insert(worker.name.clone(), worker.id);
        if worker.state == WorkerState::Up {
            self.index.check_in(&worker);
        }
        self.all.insert(worker.id, worker);
    }

    /// Changes a worker. Returns what `change` returns, `None` if there is no such worker.
    pub fn update<T>(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        let worker = self.all.get_mut(&id)?;
        self.index.check_out(worker);
        let result = change(worker);
        if worker.state == WorkerState::Up {
            self.index.check_in(worker);
        }
        Some(result)
    }

    /// Gives a worker a name that no other has.
    pub fn rename(&mut self, id: WorkerId, name: &str) {
        let Some(worker) = self.all.get_mut(&id).filter(|worker| &*worker.name != name) else { return };
        self.by_name.remove(&worker.name);
        worker.name = name.into();
        self.by_name.insert(worker.name.clone(), id);
    }

    /// The number of the next message to a worker.
    pub fn next_seq(&mut self, id: WorkerId) -> u64 {
        let Some(worker) = self.all.get_mut(&id) else { return 0 };
        worker.seq += 1;
        worker.seq
    }

    /// A worker said what it holds: the number of the last message before it did so the last time.
    pub fn beat(&mut self, id: WorkerId) -> u64 {
        self.all.get_mut(&id).map_or(0, |worker| std::mem::replace(&mut worker.beat_seq, worker.seq))
    }

    /// The worker with this id.
    pub fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.all.get(&id)
    }

    /// The worker of this name.
    pub fn by_name(&self, name: &str) -> Option<&Worker> {
        self.all.get(self.by_name.get(name)?)
    }

    /// All workers by id.
    pub fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.all.values()
    }

    /// The largest id.
    pub fn last_id(&self) -> Option<WorkerId> {
        self.all.keys().next_back().copied()
    }

    /// The index of free room.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// All capacity of workers that get work.
    pub fn capacity(&self) -> Resources {
        let mut sum = Resources::default();
        for worker in self.all.values().filter(|w| w.state == WorkerState::Up) {
            sum.add(&worker.capacity);
        }
        sum
    }
}
