//! Asks one of the tasks that wait, once a minute, when it is expected to start. When it starts, the estimate is judged.

use crate::figures::{StartEstimate, choose_task};
use crate::handle::Handle;
use std::time::Duration;
use windlass_core::explain::expected_start;

/// Between two questions: each copies the engine.
const PAUSE: Duration = Duration::from_secs(60);

/// Asks until the server ends.
pub(super) async fn estimate(handle: Handle) {
    let mut closing = handle.closing();
    for turn in 0.. {
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
        estimate_one(&handle, turn).await;
    }
}

async fn estimate_one(handle: &Handle, turn: usize) {
    let parts = handle.parts();
    // No person waits for the answer: the questions of people come first.
    if handle.is_asked_for_long() {
        return;
    }
    let Some(known) = parts.estimates.with_room(handle.now()) else { return };
    // A server that ends answers no more questions.
    let Ok(Some(task)) = handle.query(move |engine| choose_task(engine, &known, turn)).await else { return };
    let question = move |engine: &windlass_core::Engine| {
        let asked = engine.planner().now();
        expected_start(engine, task).map(|starts| StartEstimate { asked, starts })
    };
    match handle.ask_copy(question).await {
        Ok(Some(estimate)) => parts.estimates.keep(task, estimate),
        Ok(None) => _ = parts.metrics.starts_without_estimate.inc(),
        Err(_) => {}
    }
}
