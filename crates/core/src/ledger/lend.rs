//! A task that waits for jobs of its own lends its cpus: others may use them, and its wait is over
//! only when it has them again. So a worker is never booked beyond its cpus, and a run inside a task
//! cannot block itself. Memory is not lent: the waiting process still holds it; what it was only expected to
//! hold is given up. Where all tasks of a worker wait so, one more may start beside them whatever memory they hold.
//!
//! Lent cpus do not count for the quota of the task's queue. They count again as soon as they are asked back, and the
//! task does not wait for its quota then: so a queue may be beyond its quota until other tasks of it have ended.

use super::commands::{recall_backlog, send};
use super::hello::Report;
use super::holding::{make_room, mark_started, promote, set_lent};
use super::lifecycle::answer_reclaims;
use super::{Attempt, Books, Ledger, Lent};
use crate::ids::{JobId, RequestId, TaskId};
use crate::outbox::{Outbox, Reply, WorkerCommand};

/// A task begins to wait for jobs of its own: its cpus are free for others, and what its worker has in its backlog
/// comes back.
pub(crate) fn lend(books: &mut Books, task: TaskId, out: &mut Outbox) {
    // One that rides has no cpus of its own: its process lends as the first of the tasks that it runs.
    if books.ledger.attempts.get(&task).is_none_or(|attempt| attempt.rides) {
        return;
    }
    let request = books.ledger.request_of(task);
    // A task that lends runs, whether or not the report of its start arrived.
    mark_started(books, task, books.plan.now(), out);
    if books.ledger.attempts.get(&task).is_none_or(Attempt::waits) {
        return;
    }
    // It waits for another job already while its cpus are asked back: they stay lent.
    if set_lent(books, task, Lent::Yes) == Lent::Reclaiming {
        answer_reclaims(&mut books.ledger, task, out);
    }
    let Some(attempt) = books.ledger.attempts.get_mut(&task) else { return };
    let headroom_bytes = std::mem::take(&mut attempt.headroom_bytes);
    let (worker, attempt) = (attempt.worker, attempt.number);
    books.plan.workers.update(worker, |w| {
        w.booked.lend(task, request.cpu, headroom_bytes);
    });
    send(&mut books.plan, worker, WorkerCommand::Lend { task, attempt }, out);
    promote(books, worker);
    recall_backlog(books, worker, out);
    books.plan.request_round();
}

/// The wait of a task is over: asks its worker for the cpus that it lent. The request is answered when it has them, at
/// once if it lent none.
pub(crate) fn reclaim(books: &mut Books, request: RequestId, task: TaskId, out: &mut Outbox) {
    let cpu = books.ledger.request_of(task).cpu;
    // Adopted, and its worker not heard from: only the worker knows whether it had lent.
    let unheard = books.ledger.attempts.get(&task).is_some_and(|a| a.queued && !a.rides);
    if unheard {
        mark_started(books, task, books.plan.now(), out);
    }
    let Some(attempt) = books.ledger.attempts.get(&task).filter(|a| unheard || a.lent != Lent::No) else {
        out.replies.push((request, Reply::Done));
        return;
    };
    books.ledger.reclaims.entry(task).or_default().push(request);
    let (worker, attempt) = (attempt.worker, attempt.number);
    match set_lent(books, task, Lent::Reclaiming) {
        Lent::Reclaiming => return,
        // From now on nothing new is booked on these cpus; the worker says when they are free.
        Lent::Yes => _ = books.plan.workers.update(worker, |w| w.booked.reclaim(task, cpu)),
        Lent::No => {}
    }
    send(&mut books.plan, worker, WorkerCommand::Reclaim { task, attempt }, out);
}

/// A worker says that a task has its cpus again: requests that wait for that are answered.
pub(crate) fn reclaimed(books: &mut Books, by: Report, out: &mut Outbox) {
    books.plan.workers.hear(by.worker, books.plan.now());
    if !books.ledger.is_current(&by) {
        return;
    }
    if books.ledger.attempts.get(&by.task).is_some_and(|attempt| attempt.lent == Lent::Reclaiming) {
        set_lent(books, by.task, Lent::No);
        make_room(books, by.worker, by.task);
    }
    answer_reclaims(&mut books.ledger, by.task, out);
}

/// The tasks that wait for a job: the one that submitted it, the one that submitted the job of that task, and so on. None
/// of them ends before the job does.
pub(crate) fn waiting_for(ledger: &Ledger, mut job: JobId) -> Vec<TaskId> {
    let mut waiting = Vec::new();
    // A parent of a later job is not true. It could lead in a circle.
    while let Some(parent) = ledger.jobs.get(&job).and_then(|known| known.spec.parent)
        && parent.job < job
        && ledger.attempts.get(&parent).is_some_and(Attempt::waits)
    {
        waiting.push(parent);
        job = parent.job;
    }
    waiting
}
