//! Why an outside client waits for a place, or where it has one: with the words that explain tasks.

use super::explanation::{Change, Explanation, Reason};
use super::survey::look_over;
use super::task::turn_in_queue;
use crate::bounds;
use crate::client_places::QueuedRequest;
use crate::engine::Engine;
use crate::ids::{AllocId, StepKey};
use crate::job::TaskState;
use crate::plan;

/// Explains a place that a client holds; `None` if no client holds it.
pub fn held_place(engine: &Engine, alloc: AllocId) -> Option<Explanation> {
    let place = engine.places().get(alloc)?;
    let reason = Reason::Placed { worker: place.worker, started: Some(place.since), queued: false };
    Some(Explanation::bare(TaskState::Running, reason))
}

/// Explains why the client whose request has waited longest in a queue has no place; `None` if none waits there.
pub fn waiting_place(engine: &Engine, queue: &str) -> Option<Explanation> {
    let queue = engine.queues().id(queue)?;
    let waiting = engine.places().waiting().filter(|(_, waiting)| waiting.queue == queue);
    let (key, waiting) = waiting.min_by_key(|(_, waiting)| waiting.since)?;
    Some(explain(engine, key, waiting))
}

fn explain(engine: &Engine, key: StepKey, waiting: &QueuedRequest) -> Explanation {
    let mut explanation = Explanation::bare(TaskState::Ready, Reason::Turn);
    let Some(request) = plan::placement_request(engine, key, waiting.queue) else { return explanation };
    let queue = engine.queues().get(engine.queues().whole(waiting.queue));
    let found = look_over(engine, &request, &mut explanation);
    let cpu = request.class.request.cpu;
    explanation.reason = if found.workers == 0 {
        Reason::NoWorkers
    } else if found.could == 0 {
        Reason::FitsNowhere
    } else if let Some(note) = &queue.record.paused {
        explanation.changes.insert(0, Change::Resume(queue.name().to_owned()));
        Reason::Paused(note.clone())
    } else if let Some(quota_cpu) = engine.queues().over_quota(waiting.queue, cpu, true) {
        let needed = queue.booked_cpu + u64::from(cpu);
        explanation.changes.insert(0, Change::Quota(queue.name().to_owned(), needed));
        Reason::Quota { quota_cpu, booked_cpu: queue.booked_cpu }
    } else if explanation.open_workers > 0 {
        let vetoed = engine.planner().vetoed.get(key);
        vetoed.map_or(Reason::Turn, |vetoed| Reason::Closed(vetoed.why.clone()))
    } else if let Some(closed) = found.closed {
        Reason::Closed(closed)
    } else {
        engine.queues().first_ahead(waiting.queue).map_or(Reason::Full, Reason::behind)
    };
    explanation.changes.truncate(bounds::EXAMPLES_MAX);
    explanation.turn = Some(turn_in_queue(engine, waiting.queue, &waiting.queued, request.class));
    explanation
}
