//! Messages between shards as JSON, for the stores with a database. Fields are only added, so that servers of two releases
//! understand each other.

use crate::codes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::job::Tries;
use windlass_core::licences::{Busy, Limit};
use windlass_core::queues::{QueueRecord, TurnsBy};
use windlass_core::ranges::RangeSet;
use windlass_core::shards::{Message, Room, TriedTasks};
use windlass_core::{JobId, WorkerId};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MessageRow {
    AskRoom,
    Room {
        cpu: u64,
        memory: u64,
        largest_cpu: u32,
        largest_memory: u64,
        #[serde(default)]
        version: u64,
    },
    Delegate {
        job: u64,
        tasks: Vec<(u32, u32)>,
        #[serde(default)]
        tried: Vec<TriedRow>,
        #[serde(default)]
        waited_ms: u64,
        #[serde(default)]
        stays: bool,
    },
    Return {
        job: u64,
        tasks: Vec<TriedRow>,
        fits: bool,
        #[serde(default)]
        mean_us: Vec<(u16, u64)>,
    },
    Orders {
        job: u64,
        stop: Option<i64>,
        held: bool,
        priority: i32,
    },
    Withdraw {
        job: u64,
    },
    Queue(QueueRow),
    Limit {
        name: String,
        limit: Option<LimitRow>,
    },
}

/// First task, tasks, state, and what attempts came to: the last attempt, failures, losses, where the last one failed.
type TriedRow = (u32, u32, i64, u32, u32, u32, Option<u64>);

#[derive(Serialize, Deserialize)]
struct QueueRow {
    name: String,
    weight: u32,
    band: Option<u8>,
    quota_cpu: Option<u32>,
    burst_cpu: Option<u32>,
    paused: Option<String>,
    users: BTreeSet<String>,
    by_jobs: bool,
    user_weights: BTreeMap<String, u32>,
}

#[derive(Serialize, Deserialize)]
struct LimitRow {
    max: Option<u32>,
    per_worker: Option<u32>,
    busy: Option<(BTreeSet<i32>, u64)>,
}

pub fn message_to_json(message: &Message) -> String {
    serde_json::to_string(&row_of(message)).expect("numbers and texts always serialize")
}

pub fn message_from_json(text: &str) -> Result<Message, serde_json::Error> {
    serde_json::from_str(text).map(message_of)
}

fn row_of(message: &Message) -> MessageRow {
    match message {
        Message::AskRoom => MessageRow::AskRoom,
        Message::Room(room) => MessageRow::Room {
            cpu: room.cpu,
            memory: room.memory,
            largest_cpu: room.largest.cpu,
            largest_memory: room.largest.memory,
            version: room.version,
        },
        Message::Delegate { job, tasks, tried, waited_ms, stays } => MessageRow::Delegate {
            job: job.0,
            tasks: tasks.ranges().map(|range| (range.start, range.end - range.start)).collect(),
            tried: tried.iter().map(tried_row).collect(),
            waited_ms: *waited_ms,
            stays: *stays,
        },
        Message::Return { job, tasks, fits, mean_us } => MessageRow::Return {
            job: job.0,
            tasks: tasks.iter().map(tried_row).collect(),
            fits: *fits,
            mean_us: mean_us.clone(),
        },
        Message::Orders { job, stop, held, priority } => {
            MessageRow::Orders { job: job.0, stop: stop.map(codes::stop), held: *held, priority: *priority }
        }
        Message::Withdraw { job } => MessageRow::Withdraw { job: job.0 },
        Message::Queue(queue) => MessageRow::Queue(queue_row(queue)),
        Message::Limit { name, limit } => {
            MessageRow::Limit { name: name.clone(), limit: limit.as_ref().map(limit_row) }
        }
    }
}

fn message_of(row: MessageRow) -> Message {
    match row {
        MessageRow::AskRoom => Message::AskRoom,
        MessageRow::Room { cpu, memory, largest_cpu, largest_memory, version } => {
            let largest = windlass_core::Resources::new(largest_cpu, largest_memory);
            Message::Room(Room { cpu, memory, largest, version })
        }
        MessageRow::Delegate { job, tasks, tried, waited_ms, stays } => {
            let mut set = RangeSet::default();
            tasks.into_iter().for_each(|(first, count)| set.insert_range(first..first.saturating_add(count)));
            Message::Delegate {
                job: JobId(job),
                tasks: set,
                tried: tried.into_iter().filter_map(tried_of).collect(),
                waited_ms,
                stays,
            }
        }
        MessageRow::Return { job, tasks, fits, mean_us } => Message::Return {
            job: JobId(job),
            tasks: tasks.into_iter().filter_map(tried_of).collect(),
            fits,
            mean_us,
        },
        MessageRow::Orders { job, stop, held, priority } => {
            Message::Orders { job: JobId(job), stop: stop.map(codes::stop_from), held, priority }
        }
        MessageRow::Withdraw { job } => Message::Withdraw { job: JobId(job) },
        MessageRow::Queue(row) => Message::Queue(Box::new(QueueRecord {
            name: row.name,
            weight: row.weight,
            band: row.band,
            quota_cpu: row.quota_cpu,
            burst_cpu: row.burst_cpu,
            paused: row.paused,
            users: row.users,
            turns: if row.by_jobs { TurnsBy::Jobs } else { TurnsBy::Users },
            user_weights: row.user_weights,
        })),
        MessageRow::Limit { name, limit } => {
            let limit_of = |LimitRow { max, per_worker, busy }| Limit {
                max,
                per_worker,
                busy: busy.map(|(exits, back_off_ms)| Busy { exits, back_off_ms }),
            };
            Message::Limit { name, limit: limit.map(limit_of) }
        }
    }
}

fn tried_row(part: &TriedTasks) -> TriedRow {
    let TriedTasks { tasks, state, tries } = part;
    let count = tasks.end - tasks.start;
    let Tries { attempt, failures, losses, failed_on } = tries;
    (
        tasks.start,
        count,
        codes::task_state(*state),
        *attempt,
        *failures,
        *losses,
        failed_on.map(|worker| worker.0),
    )
}

fn tried_of((first, count, state, attempt, failures, losses, failed_on): TriedRow) -> Option<TriedTasks> {
    let tries = Tries { attempt, failures, losses, failed_on: failed_on.map(WorkerId) };
    let state = codes::task_state_from(state)?;
    Some(TriedTasks { tasks: first..first.saturating_add(count), state, tries })
}

fn queue_row(queue: &QueueRecord) -> QueueRow {
    QueueRow {
        name: queue.name.clone(),
        weight: queue.weight,
        band: queue.band,
        quota_cpu: queue.quota_cpu,
        burst_cpu: queue.burst_cpu,
        paused: queue.paused.clone(),
        users: queue.users.clone(),
        by_jobs: queue.turns == TurnsBy::Jobs,
        user_weights: queue.user_weights.clone(),
    }
}

fn limit_row(limit: &Limit) -> LimitRow {
    let busy = limit.busy.as_ref().map(|busy| (busy.exits.clone(), busy.back_off_ms));
    LimitRow { max: limit.max, per_worker: limit.per_worker, busy }
}

/// The name of a queue in rows of which each shard has its own: those of other shards than the first begin with the
/// number of the shard. So the rows of a farm that is not divided are as they were before farms could be divided, and an
/// earlier release reads them.
pub fn queue_key(shard: windlass_core::ids::ShardId, queue: &str) -> String {
    match shard {
        windlass_core::ids::WHOLE_FARM => queue.to_owned(),
        shard => format!("{MARK}{shard}{MARK}{queue}"),
    }
}

/// The queue of such a key; `None` of another shard's.
pub fn queue_of_key(shard: windlass_core::ids::ShardId, key: &str) -> Option<String> {
    match shard {
        windlass_core::ids::WHOLE_FARM => (!key.starts_with(MARK)).then(|| key.to_owned()),
        shard => key.strip_prefix(&format!("{MARK}{shard}{MARK}")).map(str::to_owned),
    }
}

/// A character that no name of a queue begins with.
const MARK: char = '\u{1f}';
