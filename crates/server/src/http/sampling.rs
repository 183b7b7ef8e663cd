//! Looks at the farm every ten seconds, keeps the series, and writes them to the store every five minutes.

use crate::figures::{DECISIONS_OF_LOOK_MAX, Figures, HOUR_STEP_MS, Sampler};
use crate::handle::Handle;
use crate::view;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::{Engine, Time};

/// Samples the farm until the server ends.
pub(super) async fn sample(figures: Arc<Figures>, handle: Handle) {
    let mut closing = handle.closing();
    let mut sampler = Sampler::new(figures);
    match handle.store().series().await {
        Ok(rows) => sampler.restore(&rows, handle.now().as_ms()),
        Err(error) => tracing::warn!("charts begin again: {error}"),
    }
    let mut since = Time::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(until_next(handle.now().as_ms())) => {}
            _ = closing.wait_for(|closing| *closing) => break,
        }
        let (question, placed) = (sampler.question(), handle.parts().placed.clone());
        let question = move |engine: &Engine| {
            let decisions = view::sampled_decisions(engine, since, DECISIONS_OF_LOOK_MAX, &placed);
            (question(engine), decisions)
        };
        // A server that ends answers no more questions.
        let Ok((seen, (decisions, newest))) = handle.query(question).await else { continue };
        since = newest;
        let now_ms = handle.now().as_ms();
        sampler.keep_decisions(now_ms, decisions);
        if let Some(day) = sampler.add(seen, now_ms, handle.parts().metrics.tally()) {
            keep(&handle, &sampler, day).await;
        }
    }
    if let Some(day) = sampler.close(handle.now().as_ms(), &handle.parts().metrics.tally()) {
        keep(&handle, &sampler, day).await;
    }
}

/// The middle of the next step: away from its ends, a clock that is followed slowly neither skips a step nor has one twice.
fn until_next(now_ms: u64) -> Duration {
    let middle = now_ms / HOUR_STEP_MS * HOUR_STEP_MS + HOUR_STEP_MS / 2;
    let next = if middle > now_ms { middle } else { middle + HOUR_STEP_MS };
    Duration::from_millis(next - now_ms)
}

/// Writes a step of the day that is over. What cannot be written is lacking after the next start, and nothing else.
async fn keep(handle: &Handle, sampler: &Sampler, day: u64) {
    let (rows, kept) = sampler.rows(day);
    if let Err(error) = handle.store().keep_series(rows, kept).await {
        tracing::warn!("the charts of the last five minutes are not kept: {error}");
    }
}

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
