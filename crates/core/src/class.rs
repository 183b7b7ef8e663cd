//! Classes of work: everything that steps require of a worker. Two steps of one class fit the same workers, so a round
//! asks once for both.

use crate::ids::ClassId;
use crate::resources::{Resources, Short};
use crate::tags::{Need, asks_executor};
use std::collections::{BTreeMap, BTreeSet};

/// What steps of one class ask of a worker.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Class {
    /// What a task holds.
    pub request: Resources,
    /// Bytes of the request that the step did not ask for, because earlier tasks held them.
    pub guess: u64,
    /// What the worker must be.
    pub needs: Vec<Need>,
    /// The only workers, by name; empty is any.
    pub targets: BTreeSet<String>,
    /// Licences that a task takes one of.
    pub limits: BTreeSet<String>,
    /// An outside client runs it: it is a place, or a task that its submitter runs.
    pub is_external: bool,
    /// Its tasks have a jobserver, so pressure on a worker's cpus does not keep them off.
    pub has_jobserver: bool,
    /// Its queue, if some workers are for certain queues alone and this is one of them.
    pub queue: Option<String>,
    /// The number of its tasks that start together; `None` is one by one. Tasks of a gang that have succeeded do not
    /// count: 0 if the rest of the gang starts without it.
    pub nodes: Option<u32>,
    /// The classes of the steps that start with it.
    pub mates: Vec<Class>,
}

impl Class {
    /// True of work that workers may take which take only certain work. What they are must be among its needs: a task
    /// that names such a worker's attributes does not get there.
    pub fn suits_exclusive(&self) -> bool {
        self.is_external || asks_executor(&self.needs)
    }

    /// True if the queue is among those that a worker is for. One that is for none in particular is for all.
    pub fn suits_queues(&self, for_queues: Option<&BTreeSet<String>>) -> bool {
        for_queues.is_none_or(|queues| self.queue.as_ref().is_some_and(|queue| queues.contains(queue)))
    }

    /// The amounts that a task needs more of than there is.
    pub fn shorts<'a>(&'a self, there: &'a Resources) -> impl Iterator<Item = Short> + 'a {
        self.request.shorts(there).map(|short| {
            let learned = if short.resource == "memory" { self.guess } else { 0 };
            Short { learned, ..short }
        })
    }

    /// True of the step that leads gangs.
    pub fn is_gang(&self) -> bool {
        self.nodes.is_some() || !self.mates.is_empty()
    }

    /// Its own part of a gang, and those of the steps that start with it, as far as they have tasks that start.
    pub fn parts(&self) -> impl Iterator<Item = &Class> {
        self.all_parts().filter(|part| part.nodes != Some(0))
    }

    fn all_parts(&self) -> impl Iterator<Item = &Class> {
        std::iter::once(self).chain(&self.mates)
    }

    /// True if this many tasks of each part start, given as [`Class::nodes`] are.
    pub fn has_nodes(&self, nodes: &[Option<u32>]) -> bool {
        self.all_parts().map(|part| part.nodes).eq(nodes.iter().copied())
    }

    /// The same with this many tasks of each part, given as [`Class::nodes`] are.
    pub fn with_nodes(mut self, nodes: &[Option<u32>]) -> Class {
        let mates = self.mates.iter_mut().map(|mate| &mut mate.nodes);
        for (part, nodes) in std::iter::once(&mut self.nodes).chain(mates).zip(nodes) {
            *part = *nodes;
        }
        self
    }

    /// Tasks that start at a time, over all parts.
    pub fn tasks_at_a_time(&self) -> u32 {
        self.parts().map(|part| part.nodes.unwrap_or(1)).sum()
    }

    /// Hundredths of a core that tasks take that start at a time.
    pub fn cpu_at_a_time(&self) -> u32 {
        let cpu = |part: &Class| part.nodes.unwrap_or(1).saturating_mul(part.request.cpu);
        self.parts().map(cpu).fold(0, u32::saturating_add)
    }

    /// How many of a limit tasks take that start at a time.
    pub fn takes(&self, limit: &str) -> u32 {
        let takes = self.parts().filter(|part| part.limits.contains(limit));
        takes.map(|part| part.nodes.unwrap_or(1)).sum()
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

    /// A step no longer uses the class. The last one takes it away.
    pub fn release(&mut self, id: ClassId) {
        let Some((class, uses)) = self.all.get_mut(&id) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.by_class.remove(class);
            self.all.remove(&id);
        }
    }
}
