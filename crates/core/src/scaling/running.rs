//! What the workers of a class run: how many tasks at a time, of which each counts by what is left of it.

use super::machine_class::MachineClass;
use crate::engine::Engine;
use crate::explain::vetoed_workers;
use crate::ids::{TaskId, WorkerId};
use crate::licences::LicencePool;
use crate::plan::{Work, ends_at};
use crate::resources::Resources;
use crate::time::{NS_PER_MS, NS_PER_S};
use crate::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};

/// Running tasks that are looked at; of more, each that is looked at stands for several.
const RUNNING_LOOKED_MAX: usize = 10_000;

/// Different requests of running tasks of one class of machines. Tasks of further requests count by their largest part of a
/// worker, as if they could be divided.
const SHAPES_MAX: usize = 32;

/// Hundredths of a core that a task with a jobserver counts for at least.
pub(super) const JOBSERVER_CPU_MIN: u32 = 100;
/// How long a build must have wanted all that it is given to count for as much.
const WANTS_NS: u64 = 60 * NS_PER_S;

/// What the workers of one class run.
#[derive(Default)]
pub(super) struct RunningWork {
    /// How many tasks at a time, by what one holds.
    pub(super) at_a_time: BTreeMap<Resources, f64>,
    /// How many workers the tasks beyond the bound take.
    pub(super) more_workers: f64,
}

/// True if something runs on the worker or waits there.
pub(super) fn is_busy(worker: &Worker) -> bool {
    let booked = &worker.booked;
    !booked.is_idle() || booked.has_attempts() || *booked.sum() != Resources::default()
}

/// Busy workers that get nothing besides what they run: they take no work now, or a rule vetoes them for what is in use
/// there. Rules are asked of the first workers with room alone, as where vetoed workers are told.
pub(super) fn confined_workers(engine: &Engine, classes: &[MachineClass<'_>]) -> BTreeSet<WorkerId> {
    let vetoed = vetoed_workers(engine).into_iter().filter(|(_, why)| why.vetoed_use().is_some());
    let mut confined: BTreeSet<WorkerId> = vetoed.map(|(worker, _)| worker).collect();
    let workers = || classes.iter().flat_map(|class| &class.workers);
    confined.extend(workers().filter(|worker| !worker.takes_work()).map(|worker| worker.record.id));
    for worker in workers().filter(|worker| !is_busy(worker)) {
        confined.remove(&worker.record.id);
    }
    confined
}

/// How many of these workers of a class there are, by the amounts that they run. Those of further amounts have no room.
pub(super) fn confined_sums(
    class: &MachineClass<'_>,
    confined: &BTreeSet<WorkerId>,
) -> BTreeMap<Resources, u64> {
    let mut sums: BTreeMap<Resources, u64> = BTreeMap::new();
    for worker in class.workers.iter().filter(|worker| confined.contains(&worker.record.id)) {
        let sum = worker.booked.sum();
        let is_known = sums.contains_key(sum) || sums.len() < SHAPES_MAX;
        let sum = if is_known { sum.clone() } else { Resources::default() };
        *sums.entry(sum).or_default() += 1;
    }
    sums
}

/// How many running tasks one stands for that is looked at.
pub(super) fn stride(classes: &[MachineClass<'_>]) -> usize {
    let workers = classes.iter().flat_map(|class| &class.workers);
    let running: usize = workers.map(|worker| worker.booked.running().len()).sum();
    running / RUNNING_LOOKED_MAX + 1
}

/// What the workers of one class run, where every `stride`th task is looked at.
pub(super) fn running_work(
    engine: &Engine,
    class: &MachineClass<'_>,
    target_ms: f64,
    stride: usize,
) -> RunningWork {
    let mut work = RunningWork::default();
    let capacity = &class.model.record.capacity;
    for task in class.workers.iter().flat_map(|worker| worker.booked.running()).step_by(stride) {
        if let Some((request, part)) = task_left(engine, *task, target_ms) {
            work.add(request, part * stride as f64, capacity);
        }
    }
    for worker in class.workers.iter().filter(|worker| worker.booked.running().is_empty()) {
        let booked = &worker.booked;
        for (alloc, amounts) in booked.places() {
            let queue = engine.places().get(*alloc).map(|place| place.queue);
            let mean_ms = queue.and_then(|queue| engine.queues().mean_ms(queue));
            let part = mean_ms.map_or(1.0, |ms| (ms / target_ms).min(1.0));
            work.add(amounts.clone(), part, capacity);
        }
        // Another system says what is taken there, and not by what.
        if booked.places().is_empty() && *booked.sum() != Resources::default() {
            work.add(booked.sum().clone(), 1.0, capacity);
        }
    }
    work
}

impl RunningWork {
    fn add(&mut self, request: Resources, part: f64, capacity: &Resources) {
        if let Some(sum) = self.at_a_time.get_mut(&request) {
            *sum += part;
        } else if self.at_a_time.len() < SHAPES_MAX {
            self.at_a_time.insert(request, part);
        } else {
            self.more_workers += part * part_of(&request, capacity);
        }
    }
}

/// What a task holds, and what part of the target it goes on for: 1 if it takes longer, or for an unknown time. A task
/// with a jobserver counts with one cpu at least: it books less than its one process uses. If it has long used all that it
/// is given, it counts with that: what waits for cpus beside it gets them in turns, and on another worker at once.
fn task_left(engine: &Engine, task: TaskId, target_ms: f64) -> Option<(Resources, f64)> {
    let (attempt, running) = (engine.attempt(task)?, engine.running(task)?);
    // What rides with another task holds nothing by itself.
    if attempt.rides {
        return None;
    }
    let left = ends_at(engine, task).map(|end| end.since(engine.planner().now()) / NS_PER_MS);
    let part = left.map_or(1.0, |ms| (ms as f64 / target_ms).min(1.0));
    let mut held = attempt.held();
    let worker = engine.workers().get(attempt.worker).filter(|_| held.cpu > 0);
    let build = worker.and_then(|worker| Some((worker, worker.booked.jobservers().get(&task)?)));
    if let Some((worker, build)) = build {
        let wants_since = build.runs.and_then(|runs| runs.wants_since);
        let is_long = wants_since.is_some_and(|since| engine.planner().now().since(since) >= WANTS_NS);
        let uses = if is_long { attempt.charged.share } else { 0 };
        held.cpu = held.cpu.max(uses).max(worker.record.capacity.cpu.min(JOBSERVER_CPU_MIN));
    }
    Some((with_limits(&held, running.limits, engine.licences()), part))
}

/// A request, and one of each limit of which a worker may hold only some: so these are amounts like others.
pub(super) fn with_limits(
    request: &Resources,
    limits: &BTreeSet<String>,
    licences: &LicencePool,
) -> Resources {
    let mut all = request.clone();
    for name in limits.iter().filter(|name| licences.max_per_worker(name).is_some()) {
        all.custom.insert(amount_of_limit(name), 1);
    }
    all
}

/// What a worker has, and as many of each limit as it may hold.
pub(super) fn with_all_limits(capacity: &Resources, licences: &LicencePool) -> Resources {
    let mut all = capacity.clone();
    for (name, limit) in licences.limits() {
        all.custom.extend(limit.per_worker.map(|max| (amount_of_limit(name), max.into())));
    }
    all
}

/// The amount that stands for a limit of one worker, under a name that no operator would give an amount.
fn amount_of_limit(name: &str) -> String {
    format!("limit of one worker: {name}")
}

/// The largest part of a worker that a request takes of one amount.
fn part_of(request: &Resources, capacity: &Resources) -> f64 {
    let parts = [
        (f64::from(request.cpu), f64::from(capacity.cpu)),
        (request.memory as f64, capacity.memory as f64),
        (f64::from(request.gpus), f64::from(capacity.gpus)),
    ];
    let parts = parts.into_iter().filter(|(_, has)| *has > 0.0).map(|(need, has)| need / has);
    parts.fold(0.0, f64::max).min(1.0)
}
