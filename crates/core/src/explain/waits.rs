//! How much work waits, by reason.

use super::explanation::Reason;
use super::reasons::{self, Known};
use super::words::Word;
use crate::engine::Engine;
use crate::ids::StepKey;
use std::collections::BTreeMap;

/// How many ready tasks wait for which reason. Tasks of steps that wait for others are not counted.
pub fn waiting_tasks(engine: &Engine) -> BTreeMap<Word, u64> {
    let mut tasks: BTreeMap<Word, u64> = BTreeMap::new();
    let mut known = Known::default();
    for job in engine.jobs().filter(|job| job.stop.is_none() && job.after.is_empty()) {
        for (number, step) in job.steps.iter().enumerate().filter(|(_, step)| !step.ready.is_empty()) {
            let key = StepKey { job: job.id, step: number as u16 };
            if let Some(reason) = wait_reason(engine, key, &mut known) {
                *tasks.entry(reason.word()).or_default() += u64::from(step.ready.len());
            }
        }
    }
    for (_, subqueue) in engine.subqueues().iter() {
        let (first, away) = (subqueue.positions().next(), subqueue.away());
        if away.ready == 0 {
            continue;
        }
        let step = first.and_then(|position| engine.ledger().first_ready(position.job));
        let reason = step.and_then(|key| wait_reason(engine, key, &mut known));
        // Parked jobs wait for what the first job of their subqueue waits for, and where that is room, for that job.
        let word = reason.filter(|reason| !reason.is_of_room()).map_or(Word::Parked, |reason| reason.word());
        *tasks.entry(word).or_default() += away.ready;
    }
    tasks
}

/// Why the first ready task of a step waits; `None` if the step has none. The caller keeps `known` between questions of the
/// same moment.
pub fn wait_reason(engine: &Engine, key: StepKey, known: &mut Known) -> Option<Reason> {
    let job = engine.job(key.job)?;
    let index = job.steps.get(usize::from(key.step))?.ready.first()?;
    if job.held {
        return Some(Reason::Held(job.id));
    }
    reasons::of_ready(engine, job, key, index, known)
}
