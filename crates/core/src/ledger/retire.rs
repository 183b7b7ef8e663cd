//! How workers leave the farm: an administrator drains or forgets them, and what has been gone for long is pruned.

use super::Books;
use super::lease::{expire_worker, write_worker};
use crate::bounds;
use crate::ids::{RequestId, WorkerId};
use crate::outbox::{Outbox, Refusal, Reply, Write};
use crate::plan::Planner;
use crate::queues::BadSetting;
use crate::worker::{Worker, WorkerState};

/// Drains a worker, or resumes it where `draining` is false. The note says why.
pub(crate) fn drain(
    plan: &mut Planner,
    request: RequestId,
    id: WorkerId,
    (draining, note): (bool, Option<String>),
    out: &mut Outbox,
) {
    if let Some(bytes) = note.as_ref().map(String::len).filter(|bytes| *bytes > bounds::NOTE_BYTES_MAX) {
        out.replies.push((request, Reply::Refused(BadSetting::Note(bytes).into())));
        return;
    }
    if plan.workers.get(id).is_none_or(|w| w.record.state == WorkerState::Forgotten) {
        out.replies.push((request, Reply::Refused(Refusal::NoWorker(id))));
        return;
    }
    out.before.extend(plan.workers.get(id).map(Worker::stored));
    plan.workers.update(id, |w| {
        w.record.draining = draining;
        w.record.note = note;
        w.record.state = match w.record.state {
            WorkerState::Expired => WorkerState::Expired,
            _ if draining => WorkerState::Draining,
            _ if w.link.connected => WorkerState::Up,
            _ => WorkerState::Suspect,
        };
    });
    write_worker(plan, id, if draining { "draining" } else { "resumed" }, out);
    plan.request_round();
    out.replies.push((request, Reply::Done));
}

/// An administrator vouches that nothing runs on the worker any more. With `force` the worker may even be connected:
/// what it still runs ends when it says hello again, or with its lease.
pub(crate) fn forget_worker(
    books: &mut Books,
    request: RequestId,
    id: WorkerId,
    force: bool,
    out: &mut Outbox,
) {
    let known = books.plan.workers.get(id).filter(|worker| worker.record.state != WorkerState::Forgotten);
    let answer = match known {
        None => Reply::Refused(Refusal::NoWorker(id)),
        Some(worker) if worker.link.connected && !force => {
            Reply::Refused(Refusal::Connected(worker.record.name.clone()))
        }
        Some(worker) => {
            out.before.push(worker.stored());
            expire_worker(books, id, WorkerState::Forgotten, out);
            Reply::Done
        }
    };
    out.replies.push((request, answer));
}

/// Forgets workers that expired or were forgotten long ago.
pub(crate) fn prune(plan: &mut Planner, out: &mut Outbox) {
    // The newest worker is kept, so that its number is not given again.
    let last = plan.workers.last_id();
    let gone = plan.workers.iter().filter(|worker| {
        matches!(worker.record.state, WorkerState::Expired | WorkerState::Forgotten)
            && !worker.record.draining
            && !worker.booked.has_attempts()
            && worker.booked.places().is_empty()
            && Some(worker.record.id) != last
            && plan.now().since(worker.link.greeted) >= bounds::WORKER_GONE_NS
    });
    let gone: Vec<WorkerId> = gone.map(|worker| worker.record.id).take(bounds::PRUNED_MAX).collect();
    for id in gone {
        plan.remove_worker(id);
        out.writes.push(Write::WorkerGone(id));
    }
}
