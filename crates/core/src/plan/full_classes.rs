//! Classes that fitted no worker when a round tried them: they are not tried again before a worker gains room.

use crate::class::{Class, Classes};
use crate::ids::ClassId;
use crate::plan::placement;
use crate::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};

/// The full classes, and the same by what they ask for, so that those that a worker has room for are found without
/// a look at all.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct FullClasses {
    /// By number, with the hundredths of a core and the bytes of memory that the least part asks for.
    pub(super) all: BTreeMap<ClassId, (u32, u64)>,
    by_request: BTreeSet<(u32, u64, ClassId)>,
}

impl FullClasses {
    pub(super) fn contains(&self, class: ClassId) -> bool {
        self.all.contains_key(&class)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn insert(&mut self, id: ClassId, class: &Class) {
        let cpu = class.parts().map(|part| part.request.cpu).min().unwrap_or(0);
        let memory = class.parts().map(|part| part.request.memory).min().unwrap_or(0);
        if self.all.insert(id, (cpu, memory)).is_none() {
            self.by_request.insert((cpu, memory, id));
        }
    }

    pub(super) fn remove(&mut self, id: ClassId) {
        if let Some((cpu, memory)) = self.all.remove(&id) {
            self.by_request.remove(&(cpu, memory, id));
        }
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.by_request.clear();
    }

    /// Those of which a task fits one of these workers now.
    pub(super) fn fitting<'a>(
        &'a self,
        classes: &'a Classes,
        workers: impl Iterator<Item = &'a Worker>,
    ) -> impl Iterator<Item = ClassId> {
        workers.filter(|worker| worker.takes_builds()).flat_map(move |worker| {
            let (cpu, memory) = (worker.free().cpu, worker.bookable_memory());
            let small = self.by_request.range(..=(cpu, u64::MAX, ClassId(u32::MAX)));
            let small = small.filter(move |(_, asks, _)| *asks <= memory).map(|(.., id)| *id);
            small.filter(move |id| placement::takes_part_now(classes.get(*id), worker))
        })
    }
}
