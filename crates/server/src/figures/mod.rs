//! Figures of the farm and of the server, in bounded memory, for the board and the command line.

mod answers;
mod blob;
mod charts;
mod distribution;
mod ended;
mod kept_decisions;
mod look;
mod placed;
mod recent;
mod sampler;
mod start_estimates;
mod tally;
mod timeline;
mod usage;
pub mod worker_metrics;

pub use charts::HOUR_STEP_MS;
pub use ended::{EndedAttempts, HistoryQuestion};
pub use kept_decisions::{KeptDecisions, LOOK_MAX as DECISIONS_OF_LOOK_MAX};
pub use placed::{PlacedNames, PlacedSteps};
pub use recent::RecentAnswer;
pub use sampler::Sampler;
pub use start_estimates::{StartEstimate, StartEstimates, choose_task};
pub use tally::{RecentTallies, Stretch, Tally};
pub use usage::{USAGE_DAYS_MAX, USAGE_ROWS_MAX, usage_day, usage_of, usage_told};

use crate::clock::Clock;
use charts::Charts;
use parking_lot::Mutex;
use windlass_api::figures::{FarmSeries, Overview, SchedulerFigures, Span, WorkerSeries};
use windlass_core::WorkerId;

/// What is remembered of the last minutes and hours, and answers that many ask for.
pub struct Figures {
    tallies: Mutex<RecentTallies>,
    charts: Mutex<Charts>,
    decisions: Mutex<KeptDecisions>,
    /// The overview as it was last made.
    pub overview: RecentAnswer<Overview>,
    /// The scheduler's figures as they were last made.
    pub scheduler: RecentAnswer<SchedulerFigures>,
}

impl Figures {
    /// Of a server that starts now.
    pub fn new(clock: &Clock) -> Self {
        Figures {
            tallies: Mutex::new(RecentTallies::new(clock.now().as_ms())),
            charts: Mutex::default(),
            decisions: Mutex::default(),
            overview: RecentAnswer::default(),
            scheduler: RecentAnswer::default(),
        }
    }

    /// The tally of the last `ms` until `now_ms`, when the tally is `tally`.
    pub fn last(&self, ms: u64, now_ms: u64, tally: &Tally) -> Stretch {
        self.tallies.lock().last(ms, now_ms, tally)
    }

    pub fn farm_series(&self, span: Span, now_ms: u64) -> FarmSeries {
        self.charts.lock().farm_series(span, now_ms)
    }

    /// A worker with `cpus` cpus over time.
    pub fn worker_series(&self, id: WorkerId, cpus: f64, span: Span, now_ms: u64) -> WorkerSeries {
        self.charts.lock().worker_series(id, cpus, span, now_ms)
    }

    /// The decisions of the last day that are kept, to be looked through without holding others up.
    pub fn kept_decisions(&self) -> KeptDecisions {
        self.decisions.lock().clone()
    }

    /// Remembers what happened until now.
    fn remember(&self, now_ms: u64, tally: Tally) {
        self.tallies.lock().push(now_ms, tally);
    }
}
