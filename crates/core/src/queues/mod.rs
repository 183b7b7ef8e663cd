//! Whose turn it is: strict bands first, inside a band the queue that has had least for its weight,
//! inside a queue priority, then the time since when a step is ready, then its id.
//!
//! Properties: a band with work that fits is served before any lower band; a queue that was idle
//! comes in at the clock of its band, so it neither gathers credit nor pays for others; the cost of
//! finding the next step follows queues and classes, never tasks.

mod bands;
mod fair;

pub use bands::band_of;
pub use fair::Share;

use crate::ids::{ClassId, JobId, QueueId, StepKey};
use crate::limits::{NAME_BYTES_MAX, WEIGHT_MAX};
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A step with ready tasks, in the order of its queue: smaller comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Candidate {
    priority: Reverse<i32>,
    ready_since: Time,
    step: StepKey,
}

impl Candidate {
    /// A step, its job's priority, and since when it has been ready.
    pub fn new(priority: i32, ready_since: Time, step: StepKey) -> Self {
        Candidate { priority: Reverse(priority), ready_since, step }
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
    /// Hundredths of a core that its tasks may hold together; `None` is no cap.
    pub quota_cpu: Option<u32>,
    by_class: BTreeMap<ClassId, BTreeSet<Candidate>>,
}

impl Queue {
    /// The first step in the queue's order whose class is not in `skip`.
    fn first(&self, skip: &BTreeSet<ClassId>) -> Option<(Candidate, ClassId)> {
        let open = self.by_class.iter().filter(|(class, _)| !skip.contains(class));
        open.filter_map(|(class, steps)| Some((*steps.first()?, *class))).min()
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
    turn: BTreeSet<(Reverse<u8>, u64, QueueId)>,
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
            quota_cpu: None,
            by_class: BTreeMap::new(),
        });
        self.by_name.insert(name.to_owned(), id);
        id
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
        queue.by_class.entry(class).or_default().insert(candidate);
    }

    /// Takes out a step that has no ready tasks any more.
    pub fn remove(&mut self, id: QueueId, class: ClassId, candidate: &Candidate) {
        let queue = &mut self.all[id.0 as usize];
        let Some(steps) = queue.by_class.get_mut(&class) else { return };
        steps.remove(candidate);
        if steps.is_empty() {
            queue.by_class.remove(&class);
        }
        if queue.by_class.is_empty() {
            self.turn.remove(&(Reverse(queue.band), queue.share.clock(), id));
        }
    }

    /// The step whose turn it is, of those whose class is not in `skip`.
    pub fn next(&self, skip: &BTreeSet<ClassId>) -> Option<(QueueId, Candidate, ClassId)> {
        self.turn.iter().find_map(|(_, _, id)| {
            let (candidate, class) = self.get(*id).first(skip)?;
            Some((*id, candidate, class))
        })
    }

    /// One task of the queue was booked.
    pub fn charge(&mut self, id: QueueId) {
        let queue = &mut self.all[id.0 as usize];
        let before = (Reverse(queue.band), queue.share.clock(), id);
        let clock = self.clocks.entry(queue.band).or_default();
        *clock = (*clock).max(queue.share.clock());
        queue.share.charge();
        queue.active += 1;
        if self.turn.remove(&before) {
            self.turn.insert((Reverse(queue.band), queue.share.clock(), id));
        }
    }

    /// A booked task of the queue is held by an attempt that a store gave back: no charge.
    pub fn adopt(&mut self, id: QueueId) {
        self.all[id.0 as usize].active += 1;
    }

    /// An attempt of the queue ended.
    pub fn settle(&mut self, id: QueueId) {
        let queue = &mut self.all[id.0 as usize];
        queue.active = queue.active.saturating_sub(1);
    }

    /// How many queues with ready steps come before this one.
    pub fn queues_ahead(&self, id: QueueId) -> usize {
        self.turn.iter().take_while(|(_, _, other)| *other != id).count()
    }
}
