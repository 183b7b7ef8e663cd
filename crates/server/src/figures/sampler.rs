//! The sampler: it makes a step of the charts of each look at the farm, every ten seconds.

use super::answers::farm_row;
use super::blob::{self, Part};
use super::charts::{DAY_STEP_MS, FARM_COLUMNS, FOLD, FarmColumn, HOUR_STEP_MS, Sample};
use super::kept_decisions::{self, KeptDecisions};
use super::look::{EngineLook, Entitled, look};
use super::{Figures, Tally};
use std::ops::Range;
use std::sync::Arc;
use windlass_api::board::BoardDecision;
use windlass_core::Engine;
use windlass_store::SeriesRow;

/// The answer to [`Sampler::question`].
pub type FarmLook = (EngineLook, Entitled);

/// Makes a step of the charts of each look. A look needs some of the one before.
pub struct Sampler {
    figures: Arc<Figures>,
    entitled: Entitled,
    before: Tally,
}

impl Sampler {
    /// Before the first look.
    pub fn new(figures: Arc<Figures>) -> Sampler {
        Sampler { figures, entitled: Entitled::default(), before: Tally::default() }
    }

    /// Takes over the charts and decisions that an earlier start has written.
    pub fn restore(&self, rows: &[SeriesRow], now_ms: u64) {
        *self.figures.charts.lock() = blob::restore(rows, now_ms / HOUR_STEP_MS);
        *self.figures.decisions.lock() = KeptDecisions::restore(rows, now_ms);
    }

    /// Takes in some of the decisions that were made since the look before, oldest first.
    pub fn keep_decisions(&self, now_ms: u64, decisions: Vec<BoardDecision>) {
        self.figures.decisions.lock().add(now_ms, decisions);
    }

    pub fn question(&self) -> impl FnOnce(&Engine) -> FarmLook + Send + 'static + use<> {
        let (entitled, due) = (self.entitled.clone(), self.entitled.is_due());
        move |engine: &Engine| {
            let entitled = if due { Entitled::compute(engine) } else { entitled };
            (look(engine, &entitled.cpus), entitled)
        }
    }

    /// Takes in a look at `now_ms`, when the tally is `tally`. Returns the step of the day that is over with it, if one is.
    pub fn add(&mut self, (seen, entitled): FarmLook, now_ms: u64, tally: Tally) -> Option<u64> {
        self.entitled = entitled;
        let happened = tally.since(&self.before);
        let day_waits = self.day_waits(now_ms, &tally);
        self.figures.remember(now_ms, tally.clone());
        self.before = tally;
        let farm = farm_row(&columns(&seen, &happened));
        let sample = Sample { farm, queues: seen.queues, workers: seen.workers, day_waits };
        self.figures.charts.lock().add(now_ms / HOUR_STEP_MS, sample)
    }

    /// Ends the step of the day that is under way, and returns it.
    pub fn close(&self, now_ms: u64, tally: &Tally) -> Option<u64> {
        let day_waits = self.day_waits(now_ms, tally);
        self.figures.charts.lock().close(day_waits)
    }

    /// The rows of a step of the day that is over, and the steps that are kept of each part of the charts and of decisions.
    pub fn rows(&self, day: u64) -> (Vec<SeriesRow>, Vec<(u8, Range<u64>)>) {
        let mut rows = blob::encode(&self.figures.charts.lock(), day);
        let kept = Part::ALL.map(|part| (part as u8, day.saturating_sub(part.kept_steps())..day + 1));
        let mut kept = kept.to_vec();
        let (decisions, steps) = self.figures.decisions.lock().row(day);
        rows.extend(decisions);
        kept.push((kept_decisions::PART, steps));
        (rows, kept)
    }

    /// Median and 95th percentile of the waits of a step of the day, in ms.
    fn day_waits(&self, now_ms: u64, tally: &Tally) -> [f32; 2] {
        let waits = self.figures.last(DAY_STEP_MS, now_ms, tally).tally.waits;
        [0.5, 0.95].map(|part| waits.quantile_ms(part).map_or(f32::NAN, |ms| ms as f32))
    }
}

fn columns(seen: &EngineLook, happened: &Tally) -> [(FarmColumn, Option<f64>); FARM_COLUMNS] {
    let count = |count: u64| Some(count as f64);
    let [cpu, memory, io] = seen.pressures;
    [
        (FarmColumn::Running, Some(seen.running)),
        (FarmColumn::Waiting, Some(seen.waiting)),
        (FarmColumn::Started, count(happened.started)),
        (FarmColumn::Succeeded, count(happened.succeeded)),
        (FarmColumn::Failed, count(happened.failed)),
        (FarmColumn::BusyCpus, Some(seen.busy_cpus)),
        (FarmColumn::TotalCpus, Some(seen.total_cpus)),
        (FarmColumn::CpuPressure, cpu),
        (FarmColumn::MemoryPressure, memory),
        (FarmColumn::IoPressure, io),
        (FarmColumn::WaitP50, happened.waits.quantile_ms(0.5)),
        (FarmColumn::WaitP95, happened.waits.quantile_ms(0.95)),
        (FarmColumn::Decisions, count(happened.placed)),
    ]
}

/// Steps of the day are steps of the hour.
const _: () = assert!(FOLD * HOUR_STEP_MS == DAY_STEP_MS);
