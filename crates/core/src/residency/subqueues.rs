//! Subqueues: the jobs of one user and one class of work in one queue, in the queue's order. A store has every job, and
//! the engine keeps the first jobs of each subqueue resident.
//!
//! Of every subqueue with parked jobs some are resident or were asked for, and every parked job before
//! [`Subqueue::resident_before`] is resident. So turns do not depend on which jobs are parked, and every worker
//! that a class fits is offered work of that class.

use crate::hash::Fnv;
use crate::ids::QueueId;
use crate::job::{BacklogCounts, JobSpec, Parked, QueuePos, StepSpec};
use std::collections::{BTreeMap, BTreeSet};

/// A queue, and a hash of the user and the class of work: see [`class_hash`].
pub type SubqueueKey = (QueueId, u64);

/// What a store counts of one subqueue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParkedCount {
    /// The queue's name.
    pub queue: String,
    /// The [`class_hash`] of its jobs.
    pub class: u64,
    /// How much is parked.
    pub backlog: BacklogCounts,
}

/// A subqueue whose count was wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParkedDrift {
    /// The queue's name.
    pub queue: String,
    /// The [`class_hash`] of its jobs.
    pub class: u64,
    /// What was counted.
    pub counted: BacklogCounts,
    /// What there is.
    pub found: BacklogCounts,
}

/// The hash of a job's user and of what its first steps ask of workers (requirements, tags, targets and licences), by
/// FNV-1a of 64 bits. Jobs with equal hashes fit the same workers, and take turns as one.
pub fn class_hash(spec: &JobSpec) -> u64 {
    let first = spec.steps.iter().filter(|step| step.depends.is_empty());
    let classes: BTreeSet<u64> = first.map(step_hash).collect();
    let mut all = Fnv::default();
    text(&mut all, &spec.user);
    classes.iter().for_each(|class| all.number(*class));
    all.value()
}

fn step_hash(step: &StepSpec) -> u64 {
    let mut fnv = Fnv::default();
    let request = &step.request;
    let amounts = [request.cpu.into(), request.memory, request.gpus.into(), request.gpu_memory];
    amounts.into_iter().for_each(|amount| fnv.number(amount));
    for (name, amount) in &request.custom {
        text(&mut fnv, name);
        fnv.number(*amount);
    }
    fnv.number(step.needs.len() as u64);
    for need in &step.needs {
        text(&mut fnv, &need.key);
        need.any_of.iter().for_each(|value| text(&mut fnv, value));
        fnv.number(need.any_of.len() as u64);
    }
    for names in [&step.targets, &step.limits] {
        fnv.number(names.len() as u64);
        names.iter().for_each(|name| text(&mut fnv, name));
    }
    // Steps outside of gangs add nothing here, so that their hashes stay what they were before there were gangs.
    step.nodes.iter().for_each(|nodes| fnv.number(u64::from(*nodes)));
    step.with.iter().for_each(|leader| fnv.number(u64::from(*leader)));
    fnv.value()
}

/// Adds a text and a mark of its end, a byte that UTF-8 does not use.
fn text(fnv: &mut Fnv, text: &str) {
    fnv.bytes(text.as_bytes());
    fnv.bytes(&[0xff]);
}

/// A job of a subqueue that may be evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evictable {
    /// The subqueue that it is of.
    pub subqueue: SubqueueKey,
    /// The part of the queue that is its user's.
    pub part: QueueId,
    /// How it is parked, or would be.
    pub parked: Parked,
    /// How many steps it has.
    pub steps: usize,
    /// The store has it parked already.
    pub stored: bool,
}

/// One subqueue.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Subqueue {
    /// What the store has parked.
    parked: BacklogCounts,
    /// What of that is resident, too.
    resident: BacklogCounts,
    /// Evictable jobs, with how many steps each has.
    positions: BTreeMap<QueuePos, usize>,
    /// The steps of these.
    steps: usize,
    /// Every parked job before this position is resident; `None`: all are.
    resident_before: Option<QueuePos>,
    /// A page is being read.
    reading: Option<Reading>,
    /// The part of the queue that is its user's, once a job of it was here.
    part: Option<QueueId>,
}

/// A page that is being read.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Reading {
    /// The first position at which a job was evicted since the page was asked for: the page may show it or not.
    evicted_from: Option<QueuePos>,
}

impl Subqueue {
    /// The work that is parked and not resident.
    pub fn away(&self) -> BacklogCounts {
        self.parked.less(self.resident)
    }

    /// What the store has parked.
    pub fn parked(&self) -> BacklogCounts {
        self.parked
    }

    /// Evictable jobs, in order.
    pub fn positions(&self) -> impl DoubleEndedIterator<Item = QueuePos> + ExactSizeIterator + '_ {
        self.positions.keys().copied()
    }

    /// The steps of these.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Every parked job before this position is resident; `None`: all are.
    pub fn resident_before(&self) -> Option<QueuePos> {
        self.resident_before
    }

    /// True while a page is being read.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    fn is_empty(&self) -> bool {
        self.parked == BacklogCounts::default() && self.positions.is_empty() && self.reading.is_none()
    }

    /// A parked job is not resident any more.
    fn away_from(&mut self, position: QueuePos) {
        self.resident_before = Some(self.resident_before.map_or(position, |before| before.min(position)));
        if let Some(reading) = &mut self.reading {
            reading.evicted_from = Some(reading.evicted_from.map_or(position, |first| first.min(position)));
        }
    }
}

/// All subqueues.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Subqueues {
    all: BTreeMap<SubqueueKey, Subqueue>,
    /// Subqueues that could do without their last job, by their steps.
    by_steps: BTreeSet<(usize, SubqueueKey)>,
    parked: BacklogCounts,
    resident: BacklogCounts,
    steps: usize,
    /// How many subqueues of each queue have work that is away.
    away: BTreeMap<QueueId, usize>,
    /// How many subqueues of each user's part of a queue have such work.
    part_away: BTreeMap<QueueId, usize>,
}

impl Subqueues {
    /// One subqueue.
    pub fn get(&self, key: SubqueueKey) -> Option<&Subqueue> {
        self.all.get(&key)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (SubqueueKey, &Subqueue)> {
        self.all.iter().map(|(key, subqueue)| (*key, subqueue))
    }

    /// The subqueues of one queue.
    pub fn of(&self, queue: QueueId) -> impl Iterator<Item = &Subqueue> {
        self.all.range((queue, 0)..=(queue, u64::MAX)).map(|(_, subqueue)| subqueue)
    }

    /// True if work of the queue is away.
    pub fn is_away(&self, queue: QueueId) -> bool {
        self.away.contains_key(&queue)
    }

    /// The part of its queue that a subqueue is of, where that is known.
    pub fn part_of(&self, key: SubqueueKey) -> Option<QueueId> {
        self.all.get(&key)?.part
    }

    /// True if work of a user's part of a queue is away.
    pub fn is_part_away(&self, part: QueueId) -> bool {
        self.part_away.contains_key(&part)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The work that is parked and not resident.
    pub fn away(&self) -> BacklogCounts {
        self.parked.less(self.resident)
    }

    /// Steps of evictable jobs.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Subqueues of more than `share` steps and more than one job, longest first.
    pub fn longer_than(&self, share: usize) -> impl Iterator<Item = SubqueueKey> + '_ {
        self.by_steps.iter().rev().take_while(move |(steps, _)| *steps > share).map(|(_, key)| *key)
    }

    /// An evictable job is resident from now on.
    pub fn join(&mut self, job: &Evictable) {
        self.update(job.subqueue, |subqueue| {
            subqueue.part = Some(job.part);
            subqueue.positions.insert(job.parked.position, job.steps);
            subqueue.steps += job.steps;
            if job.stored {
                subqueue.resident = subqueue.resident.plus(job.parked.backlog);
            }
        });
    }

    /// Something happened to a job: it is not parked any more.
    pub fn leave(&mut self, job: &Evictable) {
        self.update(job.subqueue, |subqueue| {
            subqueue.remove_position(job);
            if job.stored {
                subqueue.parked = subqueue.parked.less(job.parked.backlog);
            }
        });
    }

    /// The engine evicts a job, which is parked now if it was not already.
    pub fn evict(&mut self, job: &Evictable) {
        self.update(job.subqueue, |subqueue| {
            subqueue.remove_position(job);
            if !job.stored {
                subqueue.parked = subqueue.parked.plus(job.parked.backlog);
            }
            subqueue.away_from(job.parked.position);
        });
    }

    /// The engine forgets a job. What the store has of it stays.
    pub fn forget(&mut self, job: &Evictable) {
        self.update(job.subqueue, |subqueue| {
            subqueue.remove_position(job);
            if job.stored {
                subqueue.away_from(job.parked.position);
            }
        });
    }

    /// A job that the store had parked and that is in no subqueue is parked no more.
    pub fn unpark_outside(&mut self, job: &Evictable) {
        self.update(job.subqueue, |subqueue| subqueue.parked = subqueue.parked.less(job.parked.backlog));
    }

    /// Notes that a page is being read; returns the position from which it is read, `None` for the first.
    pub fn read_from(&mut self, key: SubqueueKey) -> Option<QueuePos> {
        self.update(key, |subqueue| {
            subqueue.reading = Some(Reading::default());
            subqueue.resident_before
        })
    }

    /// The page could not be read.
    pub fn read_failed(&mut self, key: SubqueueKey) {
        self.update(key, |subqueue| subqueue.reading = None);
    }

    /// The page was read. `rest` is where what it does not show begins, `None` if it shows all. Returns the first
    /// position at which a job was evicted meanwhile: from there on the page is stale.
    pub fn read(&mut self, key: SubqueueKey, rest: Option<QueuePos>) -> Option<QueuePos> {
        self.update(key, |subqueue| {
            let evicted_from = subqueue.reading.take().and_then(|reading| reading.evicted_from);
            subqueue.resident_before = rest.into_iter().chain(evicted_from).min();
            evicted_from
        })
    }

    /// Sets what the store has parked of a subqueue.
    pub fn set_parked(&mut self, key: SubqueueKey, parked: BacklogCounts) {
        self.update(key, |subqueue| {
            subqueue.parked = parked;
            if subqueue.away().jobs == 0 {
                subqueue.resident_before = None;
            } else {
                subqueue.resident_before.get_or_insert(QueuePos::FIRST);
            }
        });
    }

    /// The store has no more of a subqueue than is resident.
    pub fn all_resident(&mut self, key: SubqueueKey) {
        self.update(key, |subqueue| {
            subqueue.parked = subqueue.resident;
            subqueue.resident_before = None;
        });
    }

    fn update<T>(&mut self, key: SubqueueKey, change: impl FnOnce(&mut Subqueue) -> T) -> T {
        let subqueue = self.all.entry(key).or_default();
        self.by_steps.remove(&(subqueue.steps, key));
        self.parked = self.parked.less(subqueue.parked);
        self.resident = self.resident.less(subqueue.resident);
        self.steps -= subqueue.steps;
        let (was_away, part) = (subqueue.away().jobs > 0, subqueue.part);
        let result = change(subqueue);
        self.parked = self.parked.plus(subqueue.parked);
        self.resident = self.resident.plus(subqueue.resident);
        self.steps += subqueue.steps;
        let is_away = subqueue.away().jobs > 0;
        move_count(&mut self.away, was_away.then_some(key.0), is_away.then_some(key.0));
        move_count(&mut self.part_away, part.filter(|_| was_away), subqueue.part.filter(|_| is_away));
        if subqueue.positions.len() > 1 {
            self.by_steps.insert((subqueue.steps, key));
        }
        if subqueue.is_empty() {
            self.all.remove(&key);
        }
        result
    }
}

/// Counts one less of `before`, and one more of `after`.
fn move_count(counts: &mut BTreeMap<QueueId, usize>, before: Option<QueueId>, after: Option<QueueId>) {
    if before == after {
        return;
    }
    after.into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
    let Some(id) = before else { return };
    let left = counts.get(&id).map_or(0, |count| count - 1);
    if left == 0 {
        counts.remove(&id);
    } else {
        counts.insert(id, left);
    }
}

impl Subqueue {
    fn remove_position(&mut self, job: &Evictable) {
        if self.positions.remove(&job.parked.position).is_some() {
            self.steps -= job.steps;
        }
        if job.stored {
            self.resident = self.resident.less(job.parked.backlog);
        }
    }
}
