//! Who could run it: all workers, an index of their free room, and their deadlines.

mod index;

pub use index::{Index, Saturation};

use crate::ids::WorkerId;
use crate::resources::Resources;
use crate::time::Time;
use crate::worker::{Worker, WorkerState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All workers. A worker's room changes only through [`Workers::update`], which takes it out of the
/// index (checkout) and puts it back by its new room (checkin).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Workers {
    all: BTreeMap<WorkerId, Worker>,
    by_name: BTreeMap<Arc<str>, WorkerId>,
    index: Index,
    /// When which worker must be looked at, if it is not heard from before.
    deadlines: BTreeSet<(Time, WorkerId)>,
    suspect_ns: u64,
}

impl Workers {
    /// No workers, filled by the given policy, and suspect after so long a silence.
    pub fn new(saturation: Saturation, suspect_ns: u64) -> Self {
        Workers { index: Index::new(saturation), suspect_ns, ..Default::default() }
    }

    /// Adds a worker or replaces the one with its id.
    pub fn insert(&mut self, worker: Worker) {
        if let Some(old) = self.all.get(&worker.id) {
            self.index.check_out(old);
            move_deadline(&mut self.deadlines, old.id, old.deadline(self.suspect_ns), None);
        }
        self.by_name.insert(worker.name.clone(), worker.id);
        if worker.state == WorkerState::Up {
            self.index.check_in(&worker);
        }
        move_deadline(&mut self.deadlines, worker.id, None, worker.deadline(self.suspect_ns));
        self.all.insert(worker.id, worker);
    }

    /// Changes a worker. Returns what `change` returns, `None` if there is no such worker.
    pub fn update<T>(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        let worker = self.all.get_mut(&id)?;
        let deadline = worker.deadline(self.suspect_ns);
        self.index.check_out(worker);
        let result = change(worker);
        if worker.state == WorkerState::Up {
            self.index.check_in(worker);
        }
        move_deadline(&mut self.deadlines, id, deadline, worker.deadline(self.suspect_ns));
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
    pub fn beat(&mut self, id: WorkerId, now: Time) -> u64 {
        self.change_lease(id, |worker| {
            worker.heard = Some(now);
            std::mem::replace(&mut worker.beat_seq, worker.seq)
        })
        .unwrap_or(0)
    }

    /// A worker said something.
    pub fn hear(&mut self, id: WorkerId, now: Time) {
        self.change_lease(id, |worker| worker.heard = worker.heard.map(|_| now));
    }

    /// A worker's lease is renewed.
    pub fn renew(&mut self, id: WorkerId, until: Time) {
        self.change_lease(id, |worker| worker.lease_until = Some(until));
    }

    /// Changes a worker in nothing but what its deadline follows: the index of room is left alone.
    fn change_lease<T>(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        let worker = self.all.get_mut(&id)?;
        let deadline = worker.deadline(self.suspect_ns);
        let result = change(worker);
        move_deadline(&mut self.deadlines, id, deadline, worker.deadline(self.suspect_ns));
        Some(result)
    }

    /// When the first worker must be looked at.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A worker that must be looked at now.
    pub fn due(&self, now: Time) -> Option<WorkerId> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// The worker with this id.
    pub fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.all.get(&id)
    }

    /// The worker of this name.
    pub fn by_name(&self, name: &str) -> Option<&Worker> {
        self.all.get(self.by_name.get(name)?)
    }

    /// The workers of the farm by id: all but those that somebody said are gone.
    pub fn present(&self) -> impl Iterator<Item = &Worker> {
        self.iter().filter(|worker| worker.state != WorkerState::Forgotten)
    }

    /// All workers by id, also those that are gone.
    pub fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.all.values()
    }

    /// How many there are, forgotten ones too.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if there never was any.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The largest id.
    pub fn last_id(&self) -> Option<WorkerId> {
        self.all.keys().next_back().copied()
    }

    /// The index of free room.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// True if every index is what the workers make.
    pub fn is_consistent(&self) -> bool {
        let mut rebuilt = Workers::new(self.index.saturation(), self.suspect_ns);
        for worker in self.iter() {
            rebuilt.insert(worker.clone());
        }
        rebuilt == *self
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

fn move_deadline(
    deadlines: &mut BTreeSet<(Time, WorkerId)>,
    id: WorkerId,
    from: Option<Time>,
    to: Option<Time>,
) {
    if from == to {
        return;
    }
    if let Some(at) = from {
        deadlines.remove(&(at, id));
    }
    if let Some(at) = to {
        deadlines.insert((at, id));
    }
}
