//! Workers on which tasks with a jobserver run, and those of them that are to be told how these share the cpus.

use crate::ids::WorkerId;
use std::collections::BTreeSet;

/// Workers on which tasks with a jobserver run.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Sharing {
    all: BTreeSet<WorkerId>,
    /// What is shared there may have changed since [`Sharing::take_changed`].
    pub(super) changed: BTreeSet<WorkerId>,
}

impl Sharing {
    /// A worker changed. `before` and `after` are its [`Booked::shared`](crate::worker::Booked::shared).
    pub(super) fn follow(&mut self, id: WorkerId, before: Option<(u32, usize)>, after: Option<(u32, usize)>) {
        if before == after {
            return;
        }
        if after.is_some() {
            self.all.insert(id);
        } else {
            self.all.remove(&id);
        }
        self.changed.insert(id);
    }

    /// A worker is gone, and nothing runs there.
    pub(super) fn forget(&mut self, id: WorkerId) {
        self.all.remove(&id);
        self.changed.remove(&id);
    }

    /// A worker is to be told again.
    pub(crate) fn note(&mut self, id: WorkerId) {
        self.changed.insert(id);
    }

    /// The parts of tasks may be others on all workers.
    pub(crate) fn note_all(&mut self) {
        self.changed.extend(&self.all);
    }

    /// The workers to look at since this was asked last.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<WorkerId> {
        std::mem::take(&mut self.changed)
    }

    /// The same workers, of which the next that asks is told again.
    pub(crate) fn changed(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.changed.iter().copied()
    }

    /// True of a worker that is still to be looked at.
    pub(crate) fn is_changed(&self, id: WorkerId) -> bool {
        self.changed.contains(&id)
    }

    /// True if tasks with a jobserver run on the worker.
    pub(crate) fn has(&self, id: WorkerId) -> bool {
        self.all.contains(&id)
    }
}
