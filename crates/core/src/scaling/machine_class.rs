//! Classes of machines: workers that are alike, and those that an operator declares.
//!
//! A worker is of the class that its tag names. Without that tag it is of the class of its size. What one more worker of a
//! class would offer is what is declared, or else what all of its workers have in common.

use super::settings::{DeclaredClass, MACHINE_CLASSES_MAX, NO_CLASS, OTHER_CLASS, ScalingSettings};
use crate::bounds::WORKERS_MAX;
use crate::engine::StartableMachine;
use crate::ids::{Epoch, WorkerId};
use crate::resources::{Cpus, Resources};
use crate::tags::{Attributes, EXCLUSIVE, EXECUTOR, MACHINE_CLASS};
use crate::worker::{Worker, WorkerRecord, WorkerState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The attribute that each machine has for itself, so that another one of its class has another value.
const OWN_ATTRIBUTE: &str = "host";

/// Attributes by which workers of one size are of different classes where no tag names their class.
const OF_SIZED: [&str; 3] = [EXECUTOR, EXCLUSIVE, "arch"];

/// One class of machines.
pub(super) struct MachineClass<'a> {
    /// Its name, which no other class has.
    pub(super) name: String,
    /// One more worker of the class, as placement would see it.
    pub(super) model: Worker,
    /// Its workers that may run tasks now or when they are heard from again. Drained and expired ones are not among them.
    pub(super) workers: Vec<&'a Worker>,
    /// Workers that are wanted although nothing waits.
    pub(super) min: u32,
    /// Workers that are wanted at most.
    pub(super) max: u32,
    /// True if it may want more workers than it has.
    pub(super) grows: bool,
}

/// The machines of the declared classes, for [`Submit::startable`](crate::engine::Submit::startable).
pub fn startable_machines(settings: &ScalingSettings) -> Arc<[StartableMachine]> {
    let classes = machine_classes(std::iter::empty(), settings).into_iter();
    classes.map(|class| StartableMachine { model: class.model, max: class.max }).collect()
}

/// The workers of one class, and what they have in common.
#[derive(Default)]
struct ClassMembers<'a> {
    workers: Vec<&'a Worker>,
    common: Option<(Resources, Attributes)>,
    /// A tag names the class.
    is_named: bool,
}

impl<'a> ClassMembers<'a> {
    fn add(&mut self, worker: &'a Worker) {
        let record = &worker.record;
        match &mut self.common {
            Some((capacity, attributes)) => {
                keep_least(capacity, &record.capacity);
                keep_common(attributes, &record.attributes);
            }
            None => self.common = Some((record.capacity.clone(), record.attributes.clone())),
        }
        if matches!(record.state, WorkerState::Up | WorkerState::Suspect) {
            self.workers.push(worker);
        }
    }
}

/// All classes of machines, those of the smallest workers first: a task is counted for the first class that fits it.
pub(super) fn machine_classes<'a>(
    workers: impl Iterator<Item = &'a Worker>,
    settings: &ScalingSettings,
) -> Vec<MachineClass<'a>> {
    let declared = settings.declared.iter().take(MACHINE_CLASSES_MAX);
    let declared: BTreeMap<&str, &DeclaredClass> = declared.map(|class| (&*class.name, class)).collect();
    let mut groups: BTreeMap<String, ClassMembers<'a>> =
        declared.keys().map(|name| ((*name).to_owned(), ClassMembers::default())).collect();
    for worker in workers {
        let (name, is_named) = class_name(worker);
        let is_known = groups.contains_key(&name) || groups.len() < MACHINE_CLASSES_MAX;
        let (name, is_named) = if is_known { (name, is_named) } else { (OTHER_CLASS.to_owned(), false) };
        let group = groups.entry(name).or_default();
        group.is_named = is_named;
        group.add(worker);
    }
    let some_named = groups.values().any(|group| group.is_named);
    let mut classes: Vec<MachineClass<'a>> = Vec::with_capacity(groups.len());
    for (name, group) in groups {
        let grows = match declared.get(&*name) {
            Some(_) => true,
            None => declared.is_empty() && name != OTHER_CLASS && group.is_named == some_named,
        };
        classes.push(class_of(name, group, &declared, grows));
    }
    classes.sort_by(|a, b| {
        let (one, other) = (&a.model.record.capacity, &b.model.record.capacity);
        let size = |has: &Resources| (has.gpus, has.cpu, has.memory);
        size(one).cmp(&size(other)).then_with(|| a.name.cmp(&b.name))
    });
    classes
}

fn class_of<'a>(
    name: String,
    group: ClassMembers<'a>,
    declared: &BTreeMap<&str, &DeclaredClass>,
    grows: bool,
) -> MachineClass<'a> {
    let declared = declared.get(&*name);
    let (mut capacity, mut attributes) = group.common.unwrap_or_default();
    attributes.remove(OWN_ATTRIBUTE);
    if let Some(class) = declared {
        capacity = class.capacity.clone();
        attributes.extend(class.attributes.clone());
        attributes.insert(MACHINE_CLASS.to_owned(), BTreeSet::from([name.clone()]));
    }
    let (min, max) = declared.map_or((0, WORKERS_MAX as u32), |class| (class.min, class.max));
    MachineClass { name, model: model(capacity, attributes), workers: group.workers, min, max, grows }
}

/// A worker that has just been started: it runs nothing, and has a name that no step can name.
fn model(capacity: Resources, attributes: Attributes) -> Worker {
    Worker::linked(WorkerRecord {
        id: WorkerId(0),
        name: String::new(),
        epoch: Epoch(0),
        identity: 0,
        incarnation: 0,
        state: WorkerState::Up,
        draining: false,
        note: None,
        lease_until: None,
        capacity,
        attributes,
    })
}

/// The name of a worker's class, and whether its tag says it.
fn class_name(worker: &Worker) -> (String, bool) {
    let attributes = &worker.record.attributes;
    let tag = attributes.get(MACHINE_CLASS).and_then(|values| values.first());
    match tag.filter(|name| ![NO_CLASS, OTHER_CLASS].contains(&name.as_str())) {
        Some(name) => (name.clone(), true),
        None => (sized_name(&worker.record), false),
    }
}

/// A name such as `x86_64-8cpus-32GiB-1gpus`. Machines that are sold as one size differ by a little memory, so that is
/// rounded.
fn sized_name(record: &WorkerRecord) -> String {
    let Resources { cpu, memory, gpus, .. } = record.capacity;
    let mut parts: Vec<String> = Vec::new();
    for key in OF_SIZED {
        if let Some(values) = record.attributes.get(key) {
            parts.push(values.first().cloned().unwrap_or_else(|| key.to_owned()));
        }
    }
    parts.push(format!("{}cpus", Cpus(cpu.into())));
    let gib = memory.saturating_add(1 << 29) >> 30;
    if gib > 0 {
        parts.push(format!("{gib}GiB"));
    }
    if gpus > 0 {
        parts.push(format!("{gpus}gpus"));
    }
    parts.join("-")
}

fn keep_least(common: &mut Resources, other: &Resources) {
    common.cpu = common.cpu.min(other.cpu);
    common.memory = common.memory.min(other.memory);
    common.gpus = common.gpus.min(other.gpus);
    common.gpu_memory = common.gpu_memory.min(other.gpu_memory);
    common.custom.retain(|name, amount| {
        *amount = (*amount).min(other.custom.get(name).copied().unwrap_or(0));
        *amount > 0
    });
}

fn keep_common(common: &mut Attributes, other: &Attributes) {
    common.retain(|key, values| {
        let Some(theirs) = other.get(key) else { return false };
        if values != theirs {
            values.retain(|value| theirs.contains(value));
        }
        true
    });
}
