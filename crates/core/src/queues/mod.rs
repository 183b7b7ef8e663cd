//! Whose turn it is: strict bands first, inside a band the queue that has had least for its weight,
//! inside a queue priority, then the time since when a step is ready less the head start that the tasks
//! behind it give it, then its id.
//!
//! Properties: a band with work that fits is served before any lower band; a queue that was idle
//! comes in at the clock of its band, so it neither gathers credit nor pays for others; the cost of
//! finding the next step follows queues and classes, never tasks.

mod bands;
mod fair;
pub mod parked;

pub use bands::band_of;
pub use fair::Share;

use crate::ids::{ClassId, JobId, QueueId, StepKey};
use crate::limits::{NAME_BYTES_MAX, WEIGHT_MAX};
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Of how many classes, and how many steps of each, a worker that was found is offered others in the place
/// of the step that it was found for.
const RIVAL_CLASSES_MAX: usize = 8;
const RIVALS_PER_CLASS_MAX: usize = 8;

/// A step with ready tasks, in the order of its queue: smaller comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Candidate {
    priority: Reverse<i32>,
    ranked: Time,
    step: StepKey,
}

impl Candidate {
    /// A step, its job's priority, and since when it has been ready, less its head start.
    pub fn new(priority: i32, ranked: Time, step: StepKey) -> Self {
        Candidate { priority: Reverse(priority), ranked, step }
    }

    /// True if the other one has the same priority.
    pub fn is_peer(&self, other: &Candidate) -> bool {
        self.priority == other.priority
    }

    /// The step.
    pub fn step(&self) -> StepKey {
        self.step
    }

    /// Its job.
    pub fn job(&self) -> JobId {
        self.step.job
    }
}

/// The weight of a queue that nobody set.
pub const WEIGHT_DEFAULT: u32 = 100;

/// A queue as somebody set it, and as a store keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueRecord {
    /// Its name.
    pub name: String,
    /// Its share of what its band gets, against others': 1 to 10,000.
    pub weight: u32,
    /// Hundredths of a core that its tasks may hold together; `None` is no cap.
    pub quota_cpu: Option<u32>,
}

impl QueueRecord {
    /// Refuses what no queue can be.
    pub fn check(&self) -> Result<(), BadSetting> {
        check_name("the name of the queue", &self.name)?;
        match self.quota_cpu {
            _ if !(1..=WEIGHT_MAX).contains(&self.weight) => Err(BadSetting::Weight(self.weight)),
            Some(0) => Err(BadSetting::Quota),
            _ => Ok(()),
        }
    }
}

/// Why a queue or a limit is not set: the field and what it may be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadSetting {
    /// A name that is empty or too long.
    #[error("{what} has {bytes} bytes, and must have from 1 to {NAME_BYTES_MAX}")]
    Name {
        /// Of what.
        what: &'static str,
        /// How many.
        bytes: usize,
    },
    /// A weight out of range.
    #[error("weight must be from 1 to {WEIGHT_MAX}, not {0}")]
    Weight(u32),
    /// A quota under which nothing could ever run.
    #[error("quota must be more than 0 cpus; hold the queue's jobs to let none run")]
    Quota,
}

/// Refuses a name that is empty or too long.
pub fn check_name(what: &'static str, name: &str) -> Result<(), BadSetting> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        bytes => Err(BadSetting::Name { what, bytes }),
    }
}

/// One queue: its name, its band, its share, and its steps with ready tasks by class.
#[derive(Clone, PartialEq, Debug)]
pub struct Queue {
    /// Unique.
    pub name: String,
    /// 0 to 9, higher first, strictly.
    pub band: u8,
    /// What it has had of its band.
    pub share: Share,
    /// Booked or running tasks.
    pub active: u32,
    /// Hundredths of a core that these hold or will.
    pub booked_cpu: u64,
    /// Hundredths of a core that its tasks may hold together; `None` is no cap.
    pub quota_cpu: Option<u32>,
    by_class: BTreeMap<ClassId, BTreeSet<Candidate>>,
    /// The first step of each class, in the queue's order.
    heads: BTreeSet<(Candidate, ClassId)>,
}

/// What a round has given up on, each until the next round. Nothing comes off it, and no step is added to a
/// queue during a round, so a queue is walked through once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Skip {
    /// Classes that fit nowhere.
    pub classes: BTreeSet<ClassId>,
    /// Classes of one queue, for the queue's own reasons.
    pub in_queue: BTreeSet<(QueueId, ClassId)>,
    /// Steps, for reasons of their own.
    pub steps: BTreeSet<StepKey>,
    /// Before which head of a queue there is nothing more.
    cursors: BTreeMap<QueueId, (Candidate, ClassId)>,
    /// Before which queue in turn there is nothing more: who is charged only moves back.
    turn_from: Option<Turn>,
}

/// A queue's place in turn: its band, its clock, itself.
type Turn = (Reverse<u8>, u64, QueueId);

impl Skip {
    fn class(&self, queue: QueueId, class: ClassId) -> bool {
        self.classes.contains(&class) || self.in_queue.contains(&(queue, class))
    }
}

impl Queue {
    /// The first step in the queue's order that is not skipped.
    fn first(&self, id: QueueId, skip: &mut Skip) -> Option<(Candidate, ClassId)> {
        let mut best: Option<(Candidate, ClassId)> = None;
        let mut passed = None;
        let from = skip.cursors.get(&id).map_or(Bound::Unbounded, Bound::Included);
        for head in self.heads.range((from, Bound::Unbounded)) {
            if best.is_some_and(|best| best < *head) {
                break;
            }
            if skip.class(id, head.1) {
                if best.is_none() {
                    passed = Some(*head);
                }
                continue;
            }
            let open = self.by_class.get(&head.1).into_iter().flatten();
            let open = open.copied().find(|candidate| !skip.steps.contains(&candidate.step));
            best = open.map(|candidate| (candidate, head.1)).into_iter().chain(best).min();
        }
        if let Some(passed) = passed {
            skip.cursors.insert(id, passed);
        }
        best
    }

    /// Steps that may be taken in the place of `candidate`: of its priority, the first of some classes that
    /// are not skipped, in no order.
    pub fn rivals<'a>(
        &'a self,
        id: QueueId,
        candidate: &'a Candidate,
        skip: &'a Skip,
    ) -> impl Iterator<Item = (Candidate, ClassId)> + 'a {
        let heads = self.heads.iter().take_while(|(head, _)| head.is_peer(candidate) || head < candidate);
        let open = heads.filter(move |(_, class)| !skip.class(id, *class)).take(RIVAL_CLASSES_MAX);
        let steps = open.flat_map(|(_, class)| {
            self.by_class
                .get(class)
                .into_iter()
                .flatten()
                .map(|candidate| (*candidate, *class))
                .take(RIVALS_PER_CLASS_MAX)
        });
        steps.filter(move |(rival, _)| {
            rival.is_peer(candidate) && rival != candidate && !skip.steps.contains(&rival.step)
        })
    }

    /// The quota that would be exceeded by so many hundredths of a core more.
    pub fn over_quota(&self, cpu: u32) -> Option<u32> {
        self.quota_cpu.filter(|quota| self.booked_cpu + u64::from(cpu) > u64::from(*quota))
    }

    /// The first step of each class, in the queue's order.
    pub fn heads(&self) -> impl Iterator<Item = (Candidate, ClassId)> + '_ {
        self.heads.iter().copied()
    }

    /// Its steps that have ready tasks, in the queue's order; no more of them are looked at than are taken.
    pub fn in_order(&self) -> impl Iterator<Item = (Candidate, ClassId)> + '_ {
        let mut heads = self.heads.clone();
        std::iter::from_fn(move || {
            let (first, class) = heads.pop_first()?;
            let steps = self.by_class.get(&class)?;
            let next = steps.range((Bound::Excluded(first), Bound::Unbounded)).next();
            heads.extend(next.map(|next| (*next, class)));
            Some((first, class))
        })
    }

    /// All of its steps that have ready tasks, by class.
    pub fn steps_by_class(&self) -> impl Iterator<Item = (ClassId, &Candidate)> {
        self.by_class.iter().flat_map(|(class, steps)| steps.iter().map(|step| (*class, step)))
    }

    /// How many steps have ready tasks.
    pub fn steps(&self) -> usize {
        self.by_class.values().map(BTreeSet::len).sum()
    }

    /// How many of its steps come before `candidate`.
    pub fn position(&self, candidate: &Candidate) -> usize {
        self.by_class.values().map(|steps| steps.range(..candidate).count()).sum()
    }
}

/// All queues.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Queues {
    all: Vec<Queue>,
    by_name: BTreeMap<String, QueueId>,
    /// Queues with ready steps, by band and clock: the first is next.
    turn: BTreeSet<Turn>,
    /// The clock of each band: the virtual time of the queue served last.
    clocks: BTreeMap<u8, u64>,
}

impl Queues {
    /// The queue of that name, made if there is none.
    pub fn intern(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = QueueId(self.all.len() as u32);
        self.all.push(Queue {
            name: name.to_owned(),
            band: band_of(name),
            share: Share::default(),
            active: 0,
            booked_cpu: 0,
            quota_cpu: None,
            by_class: BTreeMap::new(),
            heads: BTreeSet::new(),
        });
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// The queue of that name, if there is one.
    pub fn id(&self, name: &str) -> Option<QueueId> {
        self.by_name.get(name).copied()
    }

    /// Sets a queue as a record says, made if there is none.
    pub fn set(&mut self, record: &QueueRecord) {
        let id = self.intern(&record.name);
        let queue = &mut self.all[id.0 as usize];
        queue.share.set_weight(record.weight);
        queue.quota_cpu = record.quota_cpu;
    }

    /// The queue with this id.
    pub fn get(&self, id: QueueId) -> &Queue {
        &self.all[id.0 as usize]
    }

    /// All queues in the order in which they came up.
    pub fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.all.iter()
    }

    /// All queues by name.
    pub fn by_name(&self) -> impl Iterator<Item = &Queue> {
        self.by_name.values().map(|id| self.get(*id))
    }

    /// Adds a step that has ready tasks.
    pub fn insert(&mut self, id: QueueId, class: ClassId, candidate: Candidate) {
        let queue = &mut self.all[id.0 as usize];
        if queue.by_class.is_empty() {
            let clock = self.clocks.get(&queue.band).copied().unwrap_or(0);
            queue.share.wake(clock);
            self.turn.insert((Reverse(queue.band), queue.share.clock(), id));
        }
        let steps = queue.by_class.entry(class).or_default();
        let before = steps.first().copied();
        steps.insert(candidate);
        if before.is_none_or(|head| candidate < head) {
            queue.heads.extend([(candidate, class)]);
            before.map(|head| queue.heads.remove(&(head, class)));
        }
    }

    /// Takes out a step that has no ready tasks any more.
    pub fn remove(&mut self, id: QueueId, class: ClassId, candidate: &Candidate) {
        let queue = &mut self.all[id.0 as usize];
        let Some(steps) = queue.by_class.get_mut(&class) else { return };
        steps.remove(candidate);
        if queue.heads.remove(&(*candidate, class)) {
            queue.heads.extend(steps.first().map(|head| (*head, class)));
        }
        if steps.is_empty() {
            queue.by_class.remove(&class);
        }
        if queue.by_class.is_empty() {
            self.turn.remove(&(Reverse(queue.band), queue.share.clock(), id));
        }
    }

    /// The queues that have ready steps, in the order of their turns.
    pub fn in_turn(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.turn.iter().map(|(_, _, id)| (*id, self.get(*id)))
    }

    /// How many queues have ready steps.
    pub fn waiting(&self) -> usize {
        self.turn.len()
    }

    /// The step whose turn it is, of those that are not skipped.
    pub fn next(&self, skip: &mut Skip) -> Option<(QueueId, Candidate, ClassId)> {
        let from = skip.turn_from.map_or(Bound::Unbounded, Bound::Included);
        self.turn.range((from, Bound::Unbounded)).find_map(|turn| {
            let (_, _, id) = *turn;
            let (candidate, class) = self.get(id).first(id, skip)?;
            skip.turn_from = Some(*turn);
            Some((id, candidate, class))
        })
    }

    /// One task of the queue was booked with so many hundredths of a core.
    pub fn charge(&mut self, id: QueueId, cpu: u32) {
        let queue = &mut self.all[id.0 as usize];
        let before = (Reverse(queue.band), queue.share.clock(), id);
        let clock = self.clocks.entry(queue.band).or_default();
        *clock = (*clock).max(queue.share.clock());
        queue.share.charge();
        queue.active += 1;
        queue.booked_cpu += u64::from(cpu);
        if self.turn.remove(&before) {
            self.turn.insert((Reverse(queue.band), queue.share.clock(), id));
        }
    }

    /// A booked task of the queue is held by an attempt that a store gave back: no charge.
    pub fn adopt(&mut self, id: QueueId, cpu: u32) {
        let queue = &mut self.all[id.0 as usize];
        queue.active += 1;
        queue.booked_cpu += u64::from(cpu);
    }

    /// An attempt of the queue ended.
    pub fn settle(&mut self, id: QueueId, cpu: u32) {
        let queue = &mut self.all[id.0 as usize];
        queue.active = queue.active.saturating_sub(1);
        queue.booked_cpu = queue.booked_cpu.saturating_sub(u64::from(cpu));
    }

    /// The queue with ready steps whose turn is next, if it is not this one.
    pub fn first_ahead(&self, id: QueueId) -> Option<&str> {
        self.turn.first().filter(|(_, _, first)| *first != id).map(|(_, _, first)| &*self.get(*first).name)
    }

    /// How many queues with ready steps come before this one.
    pub fn queues_ahead(&self, id: QueueId) -> usize {
        self.turn.iter().take_while(|(_, _, other)| *other != id).count()
    }
}
