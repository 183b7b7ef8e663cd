//! What the shards of a farm tell each other. Each message is a row that the sender's batch writes and the receiver's
//! batch deletes, so it takes effect exactly once. The messages of one shard to another are numbered from 1, and take
//! effect in the order of their numbers.

mod mail;

pub use mail::Mail;

use crate::class::Class;
use crate::ids::JobId;
use crate::job::{Stop, TaskState, Tries};
use crate::licences::Limit;
use crate::queues::QueueRecord;
use crate::ranges::RangeSet;
use crate::resources::Resources;
use std::ops::Range;

/// What one shard tells another.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// Tell me how much room your shard has: the sender has just started.
    AskRoom,
    /// The sender has so much idle room for tasks of other shards.
    Room(Room),
    /// Tasks of a job of the sender run in the receiver's shard from now on.
    Delegate {
        /// The job.
        job: JobId,
        /// Ready tasks, by their places in the job.
        tasks: RangeSet,
        /// What earlier attempts of some of them came to.
        tried: Vec<TriedTasks>,
        /// Milliseconds for which their step has had ready tasks: what waits for a time does not begin to wait again.
        waited_ms: u64,
        /// No worker of the sender could run them, so they wait in the receiver's shard however long it takes.
        stays: bool,
    },
    /// Tasks of a job of the receiver are the receiver's again.
    Return {
        /// The job.
        job: JobId,
        /// What became of them; `Ready` of those that did not run to an end.
        tasks: Vec<TriedTasks>,
        /// Some worker of the sender could run tasks like those that did not run.
        fits: bool,
        /// Mean run time in microseconds, by the place of the step in the job.
        mean_us: Vec<(u16, u64)>,
    },
    /// A job of the sender, of which the receiver has tasks, as it is now.
    Orders {
        /// The job.
        job: JobId,
        /// Why no further task starts.
        stop: Option<Stop>,
        /// Held by somebody.
        held: bool,
        /// Inside its queue, higher first.
        priority: i32,
    },
    /// The sender has room for a job of its own again: the receiver gives tasks back that have not started.
    Withdraw {
        /// The job.
        job: JobId,
    },
    /// Somebody set a queue.
    Queue(Box<QueueRecord>),
    /// Somebody set a limit, or took it away.
    Limit {
        /// Its name.
        name: String,
        /// As it is from now on.
        limit: Option<Limit>,
    },
}

impl Message {
    /// The job whose tasks it moves or changes.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Message::Delegate { job, .. }
            | Message::Return { job, .. }
            | Message::Orders { job, .. }
            | Message::Withdraw { job } => Some(*job),
            Message::AskRoom | Message::Room(_) | Message::Queue(_) | Message::Limit { .. } => None,
        }
    }

    /// The tasks that change shards with it.
    pub fn moved(&self) -> RangeSet {
        match self {
            Message::Delegate { tasks, .. } => tasks.clone(),
            Message::Return { tasks, .. } => {
                let mut moved = RangeSet::default();
                tasks.iter().for_each(|part| moved.insert_range(part.tasks.clone()));
                moved
            }
            _ => RangeSet::default(),
        }
    }
}

/// Tasks in a row whose attempts came to the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TriedTasks {
    /// Their places in the job.
    pub tasks: Range<u32>,
    /// `Ready`, or an end.
    pub state: TaskState,
    /// What their attempts came to; nothing of tasks that succeeded.
    pub tries: Tries,
}

/// How much idle room a shard has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Hundredths of a core that are free on its workers together.
    pub cpu: u64,
    /// Bytes of memory that are free on its workers together.
    pub memory: u64,
    /// The most of each amount that is free on one worker.
    pub largest: Resources,
    /// Changes when a worker comes, goes or describes itself: then it may run what none of its workers could run before.
    pub version: u64,
}

impl Room {
    /// How many tasks of the class might start there, or how many gangs, by cpu and memory. Whether they really can, the
    /// other shard finds out.
    pub fn starts(&self, class: &Class) -> u32 {
        let is_too_large =
            |part: &Class| part.request.cpu > self.largest.cpu || part.request.memory > self.largest.memory;
        if class.parts().any(is_too_large) {
            return 0;
        }
        let by_cpu = self.cpu.checked_div(class.cpu_at_a_time().into()).unwrap_or(u64::MAX);
        let by_memory = self.memory.checked_div(class.memory_at_a_time()).unwrap_or(u64::MAX);
        by_cpu.min(by_memory).min(u32::MAX.into()) as u32
    }

    /// Takes `times` times these hundredths of a core and bytes off the room.
    pub fn take(&mut self, times: u32, cpu: u32, memory: u64) {
        self.cpu = self.cpu.saturating_sub(u64::from(times) * u64::from(cpu));
        self.memory = self.memory.saturating_sub(u64::from(times).saturating_mul(memory));
    }

    /// True if it differs so much from what was told that it is told again: a little more or less starts nothing.
    pub fn is_news(&self, told: &Room) -> bool {
        self.version != told.version || self.cpu * 2 < told.cpu || self.cpu * 4 > told.cpu * 5
    }
}
