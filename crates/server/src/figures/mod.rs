//! Figures that the server keeps of itself, in bounded memory, for those who look at the farm.

mod answers;
mod blob;
mod charts;
mod distribution;
mod ended;
mod look;
mod placed;
mod recent;
mod restored;
mod sampler;
mod shard;
mod tally;
mod timeline;
pub mod worker_metrics;

pub use ended::{EndedAttempts, HistoryQuestion};
pub use look::{Entitled, counts_here};
pub use placed::{PlacedNames, PlacedSteps};
pub use recent::RecentAnswer;
pub use restored::{OwnWorkers, restore_ended};
pub use sampler::run as sample;
pub use shard::{ShardFigures, WantedFigures};
pub use tally::{OtherTallies, RecentTallies, Stretch, Tally, ToldTally};

use crate::clock::Clock;
use crate::peers::Gathered;
use charts::Charts;
use std::sync::{Mutex, MutexGuard, PoisonError};
use windlass_api::figures::{FarmSeries, Overview, SchedulerFigures, Span, WorkerSeries};
use windlass_core::WorkerId;
use windlass_core::ids::ShardId;

/// What is remembered of the last minutes and hours, and answers that many ask for.
pub struct Figures {
    /// Of the whole farm.
    tallies: Mutex<RecentTallies>,
    others: Mutex<OtherTallies>,
    charts: Mutex<Charts>,
    /// The overview as it was last made, and the shards that are lacking in it.
    pub overview: RecentAnswer<(Overview, Vec<ShardId>)>,
    /// The scheduler's figures as they were last made, and the shards that are lacking in them.
    pub scheduler: RecentAnswer<(SchedulerFigures, Vec<ShardId>)>,
    /// What the other shards said last, without queues and with them.
    pub of_others: RecentAnswer<Gathered>,
    pub queues_of_others: RecentAnswer<Gathered>,
}

impl Figures {
    /// Of a server that starts now.
    pub fn new(clock: &Clock) -> Self {
        Figures {
            tallies: Mutex::new(RecentTallies::new(clock.now().as_ms())),
            others: Mutex::default(),
            charts: Mutex::default(),
            overview: RecentAnswer::default(),
            scheduler: RecentAnswer::default(),
            of_others: RecentAnswer::default(),
            queues_of_others: RecentAnswer::default(),
        }
    }

    /// Takes in what other shards say happened there.
    pub fn heard(&self, told: &[ShardFigures]) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        for ShardFigures { shard, epoch, at_ms, tally, .. } in told {
            others.take(*shard, ToldTally { epoch: *epoch, at_ms: *at_ms, tally: tally.clone() });
        }
    }

    /// What happened in the farm since this server started, when `own` is what happened in its shard.
    pub fn with_others(&self, own: Tally) -> Tally {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).with(own)
    }

    /// What happened in the last `ms` until `now_ms`, when the farm's tally is `tally`.
    pub fn last(&self, ms: u64, now_ms: u64, tally: &Tally) -> Stretch {
        self.lock_tallies().last(ms, now_ms, tally)
    }

    /// The farm over time.
    pub fn farm_series(&self, span: Span, now_ms: u64) -> FarmSeries {
        self.charts().farm_series(span, now_ms)
    }

    /// A worker with so many cpus over time.
    pub fn worker_series(&self, id: WorkerId, cpus: f64, span: Span, now_ms: u64) -> WorkerSeries {
        self.charts().worker_series(id, cpus, span, now_ms)
    }

    /// Remembers what happened until now.
    fn remember(&self, now_ms: u64, tally: Tally) {
        self.lock_tallies().push(now_ms, tally);
    }

    fn charts(&self) -> MutexGuard<'_, Charts> {
        self.charts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_tallies(&self) -> MutexGuard<'_, RecentTallies> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
