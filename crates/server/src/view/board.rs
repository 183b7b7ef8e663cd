//! What waits, what runs, and how it was decided.

use windlass_api::Judged;
use windlass_api::board::{BoardCandidate, BoardDecision, DispatchedJob, PendingJob};
use windlass_core::TaskId;
use windlass_core::engine::{Attempt, Engine};
use windlass_core::explain::BlockedReason;
use windlass_core::ids::StepKey;
use windlass_core::plan::Decision;

/// A step of an active job; `None` if it has no ready task.
pub fn pending_job(engine: &Engine, key: StepKey, reason: BlockedReason) -> Option<PendingJob> {
    let job = engine.job(key.job)?;
    let place = usize::from(key.step);
    let (step, spec) = (job.steps.get(place)?, job.spec.steps.get(place)?);
    Some(PendingJob {
        kind: spec.hints.kind.into(),
        queue: job.spec.queue.clone(),
        job_id: key.job.0,
        name: spec.name.clone(),
        task_id: TaskId { job: key.job, index: step.ready.first()? }.to_string(),
        tasks: step.ready.len(),
        queued_at: step.ready_since.as_ms(),
        dependency_count: spec.depends.len(),
        dependents: step.dependents,
        reason: reason.into(),
    })
}

/// A booked task, with the score of its remembered decision.
pub fn dispatched_job(
    engine: &Engine,
    task: TaskId,
    attempt: &Attempt,
    score: Option<f64>,
) -> Option<DispatchedJob> {
    let job = engine.job(task.job)?;
    let spec = job.spec.steps.get(usize::from(job.step_of(task.index)))?;
    let worker = engine.workers().get(attempt.worker);
    Some(DispatchedJob {
        id: task.to_string(),
        kind: spec.hints.kind.into(),
        queue: job.spec.queue.clone(),
        worker_id: attempt.worker.0,
        worker: worker.map(|worker| worker.name.to_string()).unwrap_or_default(),
        score,
        dispatched_at: attempt.booked.as_ms(),
        job_id: task.job.0,
        step: spec.name.clone(),
    })
}

/// A remembered decision.
pub fn decision(engine: &Engine, decision: &Decision) -> BoardDecision {
    let job = engine.job(decision.task.job);
    let spec = job.and_then(|job| job.spec.steps.get(usize::from(job.step_of(decision.task.index))));
    let ranked = decision.ranked();
    let candidates = ranked.iter().enumerate().map(|(place, judged)| {
        let worker = engine.workers().get(judged.worker);
        let name = worker.map(|worker| worker.name.to_string()).unwrap_or_default();
        let Judged { worker: name, score, load, rules } = Judged::from_core(judged, name);
        BoardCandidate { id: judged.worker.0, name, score, load, won: place == 0, rules }
    });
    let candidates: Vec<BoardCandidate> = candidates.collect();
    BoardDecision {
        at: decision.at.as_ms(),
        task: decision.task.to_string(),
        kind: spec.map(|spec| spec.hints.kind.into()),
        queue: job.map(|job| job.spec.queue.clone()),
        name: spec.map(|spec| spec.name.clone()),
        job_id: decision.task.job.0,
        policy: decision.policy().to_owned(),
        worker_id: candidates.first().map(|winner| winner.id),
        winner: candidates.first().map(|winner| winner.name.clone()),
        candidates,
    }
}
