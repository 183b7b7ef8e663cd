//! What fits where: a pure function over workers and queues, the same for all three ways that work
//! and machines meet, and the same predicates that [`explain`](crate::explain) counts.
//!
//! - [`push`]: a task looks for a worker.
//! - [`pull`]: a worker asks for a task.
//! - [`alloc`]: an outside client wants a place now.

use crate::ids::{ClassId, QueueId, WorkerId};
use crate::queues::{Candidate, Queues};
use crate::resources::{Resources, Short};
use crate::tags::{Attributes, Need};
use crate::worker::{Worker, WorkerState};
use crate::workers::Workers;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

/// What steps of one class ask of a worker.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Class {
    /// What a task holds.
    pub request: Resources,
    /// What the worker must be.
    pub needs: Vec<Need>,
    /// The only workers, by name; empty is any.
    pub targets: BTreeSet<String>,
}

/// Why a worker does not get a task, most lasting reason first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RuledOut {
    /// The step names other workers.
    NotTarget,
    /// An attribute is absent or has another value.
    Attribute(Need),
    /// Even an empty worker is too small.
    TooSmall(Short),
    /// Not heard from.
    Suspect,
    /// Told to take nothing new.
    Draining,
    /// Others hold what it needs.
    Busy(Short),
}

impl RuledOut {
    /// True where no end of other tasks helps.
    pub fn is_lasting(&self) -> bool {
        matches!(self, RuledOut::NotTarget | RuledOut::Attribute(_) | RuledOut::TooSmall(_))
    }
}

/// All that rules the worker out for the class; with `now`, what others hold and its state count too.
/// Lazy: a caller that wants a yes or no stops at the first.
pub fn rule_out<'a>(class: &'a Class, worker: &'a Worker, now: bool) -> impl Iterator<Item = RuledOut> + 'a {
    let target = class.targets.is_empty() || class.targets.contains(&*worker.name);
    let target = (!target).then_some(RuledOut::NotTarget).into_iter();
    let needs = class.needs.iter().filter(|need| !need.met_by(&worker.attributes));
    let needs = needs.map(|need| RuledOut::Attribute(need.clone()));
    let small = class.request.shorts(&worker.capacity).map(RuledOut::TooSmall);
    let state = match worker.state {
        WorkerState::Up => None,
        WorkerState::Draining => Some(RuledOut::Draining),
        WorkerState::Suspect | WorkerState::Expired | WorkerState::Forgotten => Some(RuledOut::Suspect),
    };
    let busy = iter::once_with(|| worker.free()).flat_map(|free| {
        let shorts: Vec<Short> = class.request.shorts(&free).collect();
        // What is too small when empty is said above.
        shorts.into_iter().filter(|s| s.need <= amount(&worker.capacity, &s.resource)).map(RuledOut::Busy)
    });
    target.chain(needs).chain(small).chain(state.into_iter().chain(busy).filter(move |_| now))
}

fn amount(of: &Resources, name: &str) -> u64 {
    match name {
        "cpu" => of.cpu.into(),
        "memory" => of.memory,
        "gpus" => of.gpus.into(),
        "gpu_memory" => of.gpu_memory,
        custom => of.custom.get(custom).copied().unwrap_or(0),
    }
}

/// True if the worker could run the class when it is empty and gets work.
pub fn could_ever(class: &Class, worker: &Worker) -> bool {
    rule_out(class, worker, false).next().is_none()
}

/// True if the worker can take a task of the class now.
pub fn fits_now(class: &Class, worker: &Worker) -> bool {
    rule_out(class, worker, true).next().is_none()
}

/// The worker for a task of the class, `None` if none has room now.
pub fn push(class: &Class, workers: &Workers) -> Option<WorkerId> {
    let fits = |id| workers.get(id).is_some_and(|worker| fits_now(class, worker));
    if !class.targets.is_empty() {
        // Few by nature; the roomiest of them, then the first by name.
        let named = class.targets.iter().filter_map(|name| workers.by_name(name));
        let open = named.filter(|worker| fits(worker.id));
        return open.min_by_key(|w| (u32::MAX - w.free().cpu, w.name.clone())).map(|w| w.id);
    }
    let group = |attributes: &Attributes| class.needs.iter().all(|need| need.met_by(attributes));
    workers.index().find(&class.request, group, fits)
}

/// The next task in turn, of the classes not in `skip`, that the worker could run. Classes that it
/// could not are added to `skip`.
pub fn pull(
    worker: &Worker,
    queues: &Queues,
    classes: &Classes,
    skip: &mut BTreeSet<ClassId>,
    fits: impl Fn(&Class, &Worker) -> bool,
) -> Option<(QueueId, Candidate, ClassId)> {
    loop {
        let (queue, candidate, class) = queues.next(skip)?;
        if fits(classes.get(class), worker) {
            return Some((queue, candidate, class));
        }
        skip.insert(class);
    }
}

/// The worker for an outside client's place, `None` if none has room now.
pub fn alloc(request: &Resources, needs: &[Need], workers: &Workers) -> Option<WorkerId> {
    let class = Class { request: request.clone(), needs: needs.to_vec(), targets: BTreeSet::new() };
    push(&class, workers)
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

    /// The class with this number, which some step uses.
    pub fn get(&self, id: ClassId) -> &Class {
        &self.all[&id].0
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
