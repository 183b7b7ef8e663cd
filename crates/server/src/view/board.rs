//! Pending steps, decisions and workers, as the board shows them.

use crate::figures::{PlacedNames, PlacedSteps};
use std::collections::BTreeMap;
use windlass_api::Judged;
use windlass_api::board::{BoardCandidate, BoardDecision, BoardWorker, PendingJob};
use windlass_api::figures::QueueCpus;
use windlass_core::engine::Engine;
use windlass_core::explain::Reason;
use windlass_core::ids::StepKey;
use windlass_core::plan::Decision;
use windlass_core::worker::Worker;
use windlass_core::{TaskId, Time};

/// A step of an active job; `None` if it has no ready task.
pub fn pending_job(engine: &Engine, key: StepKey, reason: &Reason) -> Option<PendingJob> {
    let job = engine.job(key.job)?;
    let place = usize::from(key.step);
    let (step, spec) = (job.steps.get(place)?, job.spec.steps.get(place)?);
    let (word, message) = reason.say(|_| String::new());
    Some(PendingJob {
        kind: spec.hints.kind.into(),
        queue: job.spec.queue.clone(),
        job_id: key.job.0,
        job_name: job.spec.name.clone(),
        user: job.spec.user.clone(),
        name: spec.name.clone(),
        task_id: TaskId { job: key.job, index: step.ready.first()? }.to_string(),
        tasks: step.ready.len(),
        queued_at: step.ready_since.as_ms(),
        dependency_count: spec.depends.len(),
        dependents: step.dependents,
        reason: word.into(),
        message,
    })
}

/// A remembered decision, with the names that were kept with it.
pub fn decision(engine: &Engine, decision: &Decision, placed: &PlacedSteps) -> BoardDecision {
    let names = placed.names(engine, decision.task);
    let name = |of: fn(&PlacedNames) -> &String| names.as_deref().map(|names| of(names).clone());
    let ranked = decision.ranked();
    let candidates = ranked.iter().enumerate().map(|(place, judged)| {
        let worker = engine.workers().get(judged.worker);
        let name = worker.map(|worker| worker.record.name.clone()).unwrap_or_default();
        let Judged { worker: name, score, load, rules } = Judged::from_core(judged, name);
        BoardCandidate { id: judged.worker.0, name, score, load, won: place == 0, rules }
    });
    let candidates: Vec<BoardCandidate> = candidates.collect();
    BoardDecision {
        at: decision.at.as_ms(),
        task: decision.task.to_string(),
        kind: names.as_deref().map(|names| names.kind.into()),
        queue: name(|names| &names.queue),
        name: name(|names| &names.step),
        job_name: name(|names| &names.job),
        user: name(|names| &names.user),
        job_id: decision.task.job.0,
        policy: decision.policy().to_owned(),
        worker_id: candidates.first().map(|winner| winner.id),
        winner: candidates.first().map(|winner| winner.name.clone()),
        candidates,
    }
}

/// Up to `max` of the decisions after `since`, evenly spread and oldest first, and the time of the last of all.
pub fn sampled_decisions(
    engine: &Engine,
    since: Time,
    max: usize,
    placed: &PlacedSteps,
) -> (Vec<BoardDecision>, Time) {
    let new = || engine.planner().decisions().take_while(move |decision| decision.at > since);
    let newest = new().next().map_or(since, |decision| decision.at);
    let every = new().count().div_ceil(max).max(1);
    let mut sample: Vec<BoardDecision> =
        new().step_by(every).map(|found| decision(engine, found, placed)).collect();
    sample.reverse();
    (sample, newest)
}

/// Queues that are told of one worker.
const WORKER_QUEUES_MAX: usize = 4;

/// A worker, with the queues that hold most of it.
pub fn board_worker(engine: &Engine, worker: &Worker) -> BoardWorker {
    let mut held: BTreeMap<&str, u64> = BTreeMap::new();
    for (step, cpu) in worker.booked.steps() {
        if let Some(job) = engine.job(step.job) {
            *held.entry(&job.spec.queue).or_default() += u64::from(*cpu);
        }
    }
    let mut held: Vec<(&str, u64)> = held.into_iter().collect();
    held.sort_by(|(one, a), (other, b)| b.cmp(a).then_with(|| one.cmp(other)));
    held.truncate(WORKER_QUEUES_MAX);
    let queue = |(queue, cpu): (&str, u64)| QueueCpus { queue: queue.to_owned(), cpus: cpu as f64 / 100.0 };
    BoardWorker { queues: held.into_iter().map(queue).collect(), ..BoardWorker::from_core(worker) }
}
