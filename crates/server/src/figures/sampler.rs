//! Looks at the farm every ten seconds, keeps the series, and writes them to the store every five minutes.

use super::answers::farm_row;
use super::blob::{self, Part};
use super::charts::{FOLD, FarmColumn, HOUR_STEP_MS, Sample};
use super::look::{EngineLook, Entitled, look};
use super::{Figures, Tally};
use crate::handle::Handle;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::Engine;

/// The last five minutes, of which waits are told for a step of the day.
const DAY_STEP_MS: u64 = super::charts::DAY_STEP_MS;

/// What one look needs of the one before.
struct Sampler {
    figures: Arc<Figures>,
    handle: Handle,
    entitled: Entitled,
    /// At the look before.
    before: Tally,
}

/// Runs until the server ends.
pub async fn run(figures: Arc<Figures>, handle: Handle) {
    let mut closing = handle.closing();
    let mut sampler = Sampler { figures, handle, entitled: Entitled::default(), before: Tally::default() };
    sampler.restore().await;
    loop {
        tokio::select! {
            () = tokio::time::sleep(until_next(sampler.handle.now().as_ms())) => {}
            _ = closing.wait_for(|closing| *closing) => break,
        }
        if let Some(day) = sampler.sample().await {
            sampler.keep(day).await;
        }
    }
    let over = sampler.figures.charts().close(sampler.day_waits(sampler.handle.now().as_ms()));
    if let Some(day) = over {
        sampler.keep(day).await;
    }
}

/// The middle of the next step: away from its ends, a clock that is followed slowly neither skips a step nor has one twice.
fn until_next(now_ms: u64) -> Duration {
    let middle = now_ms / HOUR_STEP_MS * HOUR_STEP_MS + HOUR_STEP_MS / 2;
    let next = if middle > now_ms { middle } else { middle + HOUR_STEP_MS };
    Duration::from_millis(next - now_ms)
}

impl Sampler {
    async fn restore(&self) {
        let now = self.handle.now().as_ms() / HOUR_STEP_MS;
        match self.handle.store().series().await {
            Ok(rows) => *self.figures.charts() = blob::restore(&rows, now),
            Err(error) => tracing::warn!("charts begin again: {error}"),
        }
    }

    /// Takes in what there is now. Returns the step of the day that is over with it, if one is.
    async fn sample(&mut self) -> Option<u64> {
        let (entitled, due) = (self.entitled.clone(), self.entitled.is_due());
        let ask = move |engine: &Engine| {
            let entitled = if due { Entitled::compute(engine) } else { entitled };
            (look(engine, &entitled.cpus), entitled)
        };
        // A server that ends says nothing more.
        let (seen, entitled) = self.handle.query(ask).await.ok()?;
        self.entitled = entitled;
        let now_ms = self.handle.now().as_ms();
        let tally = self.handle.metrics().tally();
        let happened = tally.since(&self.before);
        let day_waits = self.day_waits(now_ms);
        self.figures.remember(now_ms, tally.clone());
        self.before = tally;
        let farm = farm_row(&columns(&seen, &happened));
        let sample = Sample { farm, queues: seen.queues, workers: seen.workers, day_waits };
        self.figures.charts().add(now_ms / HOUR_STEP_MS, sample)
    }

    fn day_waits(&self, now_ms: u64) -> [f32; 2] {
        let waits = self.figures.last(DAY_STEP_MS, now_ms, &self.handle.metrics().tally()).tally.waits;
        [0.5, 0.95].map(|part| waits.quantile_ms(part).map_or(f32::NAN, |ms| ms as f32))
    }

    /// Writes a step of the day that is over. What cannot be written is lacking after the next start, and nothing else.
    async fn keep(&self, day: u64) {
        let rows = blob::encode(&self.figures.charts(), day);
        let kept = Part::ALL.map(|part| (part as u8, day.saturating_sub(part.kept_steps())..day + 1));
        if let Err(error) = self.handle.store().keep_series(rows, kept.to_vec()).await {
            tracing::warn!("the charts of the last five minutes are not kept: {error}");
        }
    }
}

fn columns(seen: &EngineLook, happened: &Tally) -> [(FarmColumn, Option<f64>); super::charts::FARM_COLUMNS] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_in_the_middle_of_their_steps() {
        for (now, wait) in [(0, 5_000), (4_999, 1), (5_000, 10_000), (9_999, 5_001), (12_000, 3_000)] {
            assert_eq!(until_next(now), Duration::from_millis(wait), "{now}");
        }
    }
}
