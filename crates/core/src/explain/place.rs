//! Why an outside client waits for a place, or where it has one: with the words that explain tasks.

use super::advice;
use super::explanation::{Explanation, Reason};
use super::reasons::{self, Known};
use super::survey::look_over;
use super::task::turn_in_queue;
use crate::client_places::{MemoryBasis, QueuedRequest};
use crate::engine::Engine;
use crate::ids::{AllocId, RequestId, StepKey};
use crate::job::TaskState;
use crate::plan;
use crate::plan::placement::{self, Ineligible, PlacementRequest};
use crate::resources::Bytes;

/// Explains a place that a client holds; `None` if no client holds it.
pub fn held_place(engine: &Engine, alloc: AllocId) -> Option<Explanation> {
    let place = engine.places().get(alloc)?;
    let reason = Reason::Placed { worker: place.worker, started: Some(place.since), queued: false };
    Some(Explanation::bare(TaskState::Running, reason))
}

/// Explains why the client whose request has waited longest in a queue has no place; `None` if none waits there.
pub fn waiting_place(engine: &Engine, queue: &str) -> Option<Explanation> {
    let queue = engine.queues().id(queue)?;
    let all = engine.places().waiting();
    let waiting = all.filter(|(_, waiting)| engine.queues().whole(waiting.queue) == queue);
    let (key, waiting) = waiting.min_by_key(|(_, waiting)| waiting.since)?;
    Some(explain(engine, key, waiting))
}

/// Explains why one request of an outside client has no place yet; `None` if it does not wait.
pub fn waiting_request(engine: &Engine, request: RequestId) -> Option<Explanation> {
    let key = engine.places().key_of(request)?;
    Some(explain(engine, key, engine.places().find(key)?))
}

/// The reason alone, which costs little. Many are asked for at one moment with the same `known`.
pub fn request_reason(engine: &Engine, request: RequestId, known: &mut Known) -> Option<Reason> {
    let key = engine.places().key_of(request)?;
    let waiting = engine.places().find(key)?;
    let asked = plan::placement_request(engine, key, waiting.queue)?;
    Some(reason_of(engine, &asked, waiting, known))
}

/// Why a request waits for more memory than its work may need; `None` where that is not what keeps it.
pub fn unknown_memory(engine: &Engine, request: RequestId) -> Option<String> {
    let waiting = engine.places().find(engine.places().key_of(request)?)?;
    let class = engine.class(waiting.class).filter(|_| waiting.basis == MemoryBasis::Unknown)?;
    let mut could = engine.workers().present().filter(|w| placement::eligible_when_idle(class, w));
    let needs = class.request.memory;
    could.all(|worker| worker.bookable_memory() < needs).then(|| {
        format!(
            "nothing is known yet of the memory of such work, so it starts where {} is free",
            Bytes(needs)
        )
    })
}

fn explain(engine: &Engine, key: StepKey, waiting: &QueuedRequest) -> Explanation {
    let mut explanation = Explanation::bare(TaskState::Ready, Reason::Turn);
    let Some(request) = plan::placement_request(engine, key, waiting.queue) else { return explanation };
    look_over(engine, &request, &mut explanation);
    let mut known = Known::default();
    explanation.reason = reason_of(engine, &request, waiting, &mut known);
    explanation.changes = advice::for_place(engine, &request, waiting.queue, &explanation.reason);
    let class = (waiting.class, request.class);
    let reason = &explanation.reason;
    explanation.turn = Some(turn_in_queue(engine, waiting.queue, &waiting.queued, class, reason, &mut known));
    explanation
}

fn reason_of(
    engine: &Engine,
    request: &PlacementRequest,
    waiting: &QueuedRequest,
    known: &mut Known,
) -> Reason {
    let queue = engine.queues().get(engine.queues().whole(waiting.queue));
    let mut present = engine.workers().present().peekable();
    if present.peek().is_none() {
        return Reason::NoWorkers;
    }
    if !present.any(|worker| placement::eligible_when_idle(request.class, worker)) {
        return closed_for_a_while(engine, request).map_or(Reason::FitsNowhere, Reason::Closed);
    }
    if let Some(note) = &queue.record.paused {
        return Reason::Paused(note.clone());
    }
    if let Some(quota_cpu) = engine.queues().over_quota(waiting.queue, request.class.request.cpu, true) {
        return Reason::Quota { quota_cpu, booked_cpu: queue.booked_cpu };
    }
    if let Some((name, max, _)) = engine.licences().reached(request.class) {
        return Reason::Limit { name: name.to_owned(), max, first: None, waiting_holder: None };
    }
    reasons::of_room(engine, request.step, (waiting.queue, waiting.class, request.class), known)
}

/// Why a worker has no place that only gives none for a while; `None` if there is no such worker.
fn closed_for_a_while(engine: &Engine, request: &PlacementRequest) -> Option<Ineligible> {
    engine.workers().present().find_map(|worker| {
        let mut unmet = placement::ineligibilities(request.class, worker, false);
        let first = unmet.next()?;
        let is_closed = matches!(&first, Ineligible::TooSmall(short) if short.is_closed());
        (is_closed && unmet.next().is_none()).then_some(first)
    })
}
