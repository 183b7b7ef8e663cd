//! What an engine says of its shard, for the figures of the whole farm. The owner of the first shard asks for it and joins
//! the answers; see [`OtherShards`](crate::peers::OtherShards).

use super::look::{EngineLook, Entitled, look};
use super::tally::Tally;
use crate::handle::{Handle, Unavailable};
use crate::view::{self, BetweenShards, QueueList};
use serde::{Deserialize, Serialize};
use windlass_api::figures::{Overview, SchedulerFigures};
use windlass_core::Engine;

/// Queues that a shard tells of.
const QUEUES_MAX: usize = 10_000;

/// What is wanted besides what is always told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WantedFigures {
    /// A row of each worker.
    pub workers: bool,
    /// Queues. Each look at them computes what all queues are entitled to.
    pub queues: bool,
}

/// The figures of a shard.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShardFigures {
    /// Its number.
    pub shard: u32,
    /// Number of the ownership under which its engine counts from 0.
    pub epoch: u64,
    /// When they were made.
    pub at_ms: u64,
    /// What happened since the engine started.
    pub tally: Tally,
    /// Results since then that were refused because another attempt is booked.
    pub late_results: u64,
    /// What the engine knows now.
    pub now: EngineFigures,
}

/// The part of [`ShardFigures`] that the engine's thread makes.
#[derive(Debug, Serialize, Deserialize)]
pub struct EngineFigures {
    /// Its part of the overview, without rates. Jobs and tasks are counted by their home, which is the first shard.
    pub overview: Overview,
    /// Its part of the scheduler's figures, without rates.
    pub scheduler: SchedulerFigures,
    /// What lies between it and the other shards.
    pub between: BetweenShards,
    /// What is charted of it.
    pub look: EngineLook,
    /// Its queues, where they are wanted.
    pub queues: Option<QueueList>,
}

/// What is charted of an engine now.
pub async fn look_now(handle: &Handle, with_workers: bool) -> Result<EngineLook, Unavailable> {
    let last = handle.entitled();
    let ask = move |engine: &Engine| {
        let entitled = if last.is_due() { Entitled::compute(engine) } else { last };
        (look(engine, &entitled.cpus, with_workers), entitled)
    };
    let (seen, entitled) = handle.query(ask).await?;
    handle.set_entitled(entitled);
    Ok(seen)
}

impl ShardFigures {
    /// Asks the engine.
    pub async fn read(handle: &Handle, wanted: WantedFigures) -> Result<ShardFigures, Unavailable> {
        let (now, look) = (handle.now(), look_now(handle, wanted.workers).await?);
        let ask = move |engine: &Engine| {
            let figures = EngineFigures {
                overview: view::overview(engine, now),
                scheduler: view::scheduler(engine, now),
                between: BetweenShards::of(engine),
                look,
                queues: wanted.queues.then(|| QueueList::of(engine, QUEUES_MAX, |_| true).in_use()),
            };
            (engine.shard(), figures)
        };
        let (shard, figures) = handle.query(ask).await?;
        let metrics = handle.metrics();
        Ok(ShardFigures {
            shard: shard.0,
            epoch: handle.store().ownership().map_or(1, |owned| owned.epoch),
            at_ms: now.as_ms(),
            tally: metrics.tally(),
            late_results: metrics.results_late(),
            now: figures,
        })
    }
}

#[cfg(test)]
impl ShardFigures {
    /// As an engine would tell it that has no server.
    pub fn of_engine(shard: u32, engine: &Engine) -> ShardFigures {
        let now = windlass_core::Time(1 << 41);
        let figures = EngineFigures {
            overview: view::overview(engine, now),
            scheduler: view::scheduler(engine, now),
            between: BetweenShards::of(engine),
            look: look(engine, &Default::default(), true),
            queues: None,
        };
        let tally = Tally::default();
        ShardFigures { shard, epoch: 1, at_ms: now.as_ms(), tally, late_results: 0, now: figures }
    }
}
