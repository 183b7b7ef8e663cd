//! Classes of work: everything that steps require of a worker. Two steps of one class fit the same workers, so a round
//! asks once for both.

use crate::ids::ClassId;
use crate::resources::Resources;
use crate::tags::{Need, asks_executor};
use std::collections::{BTreeMap, BTreeSet};

/// What steps of one class ask of a worker.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Class {
    /// What a task holds.
    pub request: Resources,
    /// Bytes of that which nobody asked for: earlier tasks held so much more. No task waits for a guess on a
    /// worker where all others wait for jobs of their own, perhaps for this one.
    pub guess: u64,
    /// What the worker must be.
    pub needs: Vec<Need>,
    /// The only workers, by name; empty is any.
    pub targets: BTreeSet<String>,
    /// Licences that a task takes one of.
    pub limits: BTreeSet<String>,
    /// An outside client runs it: it is a place, or a task that its submitter runs.
    pub is_external: bool,
}

impl Class {
    /// True of work that workers may take which take only certain work. What they are must be among its needs: a task
    /// that names such a worker's attributes does not get there.
    pub fn suits_exclusive(&self) -> bool {
        self.is_external || asks_executor(&self.needs)
    }
}

/// Classes by number, each kept as long as a step uses it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Classes {
    all: BTreeMap<ClassId, (Class, u32)>,
    by_class: BTreeMap<Class, ClassId>,
    next: u32,
}

impl Classes {
    /// The number of a class, one use more.
    pub fn intern(&mut self, class: Class) -> ClassId {
        if let Some(id) = self.by_class.get(&class) {
            if let Some((_, uses)) = self.all.get_mut(id) {
                *uses += 1;
            }
            return *id;
        }
        let id = ClassId(self.next);
        self.next += 1;
        self.by_class.insert(class.clone(), id);
        self.all.insert(id, (class, 1));
        id
    }

    /// All classes that some step uses.
    pub fn iter(&self) -> impl Iterator<Item = &Class> {
        self.by_class.keys()
    }

    /// The class with this number, which some step uses.
    pub fn get(&self, id: ClassId) -> &Class {
        &self.all[&id].0
    }

    /// The class with this number, if some step uses it.
    pub fn find(&self, id: ClassId) -> Option<&Class> {
        self.all.get(&id).map(|(class, _)| class)
    }

    /// One use less.
    pub fn release(&mut self, id: ClassId) {
        let Some((class, uses)) = self.all.get_mut(&id) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.by_class.remove(class);
            self.all.remove(&id);
        }
    }
}
