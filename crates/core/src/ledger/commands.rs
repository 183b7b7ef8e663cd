//! What workers are told of attempts: to start them, to give them back, to kill them.

use super::Books;
use crate::ids::{JobId, TaskId, WorkerId};
use crate::outbox::{GangPlace, Outbox, Send, WorkerCommand};
use crate::plan::Planner;

/// Queues a message to a worker and returns its number.
pub(crate) fn send(plan: &mut Planner, worker: WorkerId, order: WorkerCommand, out: &mut Outbox) -> u64 {
    let seq = plan.workers.next_seq(worker);
    out.sends.push(Send { worker, seq, command: order });
    seq
}

/// Asks for the attempts of a job that wait in backlogs.
pub(super) fn recall_queued(books: &mut Books, id: JobId, out: &mut Outbox) {
    let queued = books.ledger.attempts_of(id).filter(|(_, attempt)| attempt.queued);
    let queued = queued.map(|(task, _)| task).collect();
    recall(books, queued, out);
}

/// Kills all attempts of a job.
pub(super) fn kill_attempts(books: &mut Books, id: JobId, out: &mut Outbox) {
    let range = TaskId { job: id, index: 0 }..=TaskId { job: id, index: u32::MAX };
    let mut orders = Vec::new();
    for (task, attempt) in books.ledger.attempts.range_mut(range) {
        attempt.killing = true;
        if attempt.rides {
            // The kill of its head ends it too.
            continue;
        }
        orders.push((attempt.worker, WorkerCommand::Kill { task: *task, attempt: attempt.number }));
    }
    for (worker, order) in orders {
        send(&mut books.plan, worker, order, out);
    }
}

/// The rank of a booked task among those that were booked with it. A start may be lost and sent again after some of
/// these have ended. They keep their ranks, since the others count them.
fn gang_place(books: &Books, task: TaskId) -> Option<GangPlace> {
    let job = books.ledger.jobs.get(&task.job)?;
    let gang = job.gang_of(task.index)?;
    let mut place = GangPlace::default();
    for mate in job.gang_tasks(gang) {
        let attempt = books.ledger.attempts.get(&TaskId { index: mate.index, ..task });
        let booked_on = attempt.map(|attempt| attempt.worker);
        let Some(worker) = booked_on.or_else(|| job.ended_mates.get(&mate.index).copied()) else {
            continue;
        };
        if mate.index == task.index {
            place.rank = place.workers.len() as u32;
        }
        let name = books.plan.workers.get(worker).map(|worker| worker.record.name.clone());
        place.workers.push(name.unwrap_or_default());
    }
    Some(place)
}

/// Kills an attempt that is not being killed yet.
pub(super) fn kill(books: &mut Books, task: TaskId, out: &mut Outbox) {
    let Some(attempt) = books.ledger.attempts.get_mut(&task).filter(|attempt| !attempt.killing) else {
        return;
    };
    attempt.killing = true;
    let (worker, attempt) = (attempt.worker, attempt.number);
    send(&mut books.plan, worker, WorkerCommand::Kill { task, attempt }, out);
}

/// Kills the process of a booked task. The other tasks that it runs go back to their queue.
pub(super) fn kill_process(books: &mut Books, task: TaskId, out: &mut Outbox) {
    let Some(head) = books.ledger.mark_process_killed(task) else { return };
    let Some(attempt) = books.ledger.attempts.get(&head) else { return };
    let (worker, attempt) = (attempt.worker, attempt.number);
    send(&mut books.plan, worker, WorkerCommand::Kill { task: head, attempt }, out);
}

/// Failed tasks of a job are to run again: those with which they start end first.
pub(super) fn end_split_gangs(books: &mut Books, id: JobId, out: &mut Outbox) {
    for task in books.ledger.in_split_gangs(id) {
        kill(books, task, out);
    }
}

/// A worker starts in order. What it was sent ahead may need what the lending task goes on holding,
/// and the jobs that this task waits for would stand behind it for ever.
pub(super) fn recall_backlog(books: &mut Books, id: WorkerId, out: &mut Outbox) {
    let Some(worker) = books.plan.workers.get(id) else { return };
    let queued = worker.booked.backlog().iter().copied().collect();
    recall(books, queued, out);
}

/// Asks for the attempts of a queue that wait in backlogs.
pub(super) fn recall_queue(books: &mut Books, name: &str, out: &mut Outbox) {
    let of_queue = |task: TaskId| books.ledger.jobs.get(&task.job).is_some_and(|job| job.spec.queue == name);
    let queued = books.ledger.attempts.iter().filter(|(task, attempt)| attempt.queued && of_queue(**task));
    let queued = queued.map(|(task, _)| *task).collect();
    recall(books, queued, out);
}

/// Asks workers for the attempts of these tasks, which have not started.
pub(super) fn recall(books: &mut Books, tasks: Vec<TaskId>, out: &mut Outbox) {
    for task in tasks {
        let Some(attempt) = books.ledger.attempts.get_mut(&task) else { continue };
        attempt.recalled = true;
        let (worker, attempt) = (attempt.worker, attempt.number);
        send(&mut books.plan, worker, WorkerCommand::Recall { task, attempt }, out);
    }
}

/// Tells its worker to start a booked task. The message's number is that of the attempt from now on, and that of those
/// that ride with it.
pub(super) fn send_start(books: &mut Books, task: TaskId, out: &mut Outbox) {
    let Some(attempt) = books.ledger.attempts.get(&task) else { return };
    let (worker, riders) = (attempt.worker, books.ledger.riders_of(task, attempt));
    let Some(order) = start_order(books, task) else { return };
    let seq = send(&mut books.plan, worker, order, out);
    for index in std::iter::once(task.index).chain(riders.into_iter().map(|(index, _)| index)) {
        if let Some(attempt) = books.ledger.attempts.get_mut(&TaskId { index, ..task }) {
            attempt.seq = seq;
        }
    }
}

/// The start of a booked task, with those that ride or start with it.
pub(super) fn start_order(books: &Books, task: TaskId) -> Option<WorkerCommand> {
    let (job, attempt) = (books.ledger.jobs.get(&task.job)?, books.ledger.attempts.get(&task)?);
    let step = job.step_of(task.index);
    let spec = &job.spec.steps[usize::from(step)];
    Some(WorkerCommand::Start {
        task,
        step,
        attempt: attempt.number,
        request: attempt.request.clone(),
        headroom_bytes: attempt.headroom_bytes,
        // Where nobody asked for memory the amount is a guess, and nothing is killed for a guess.
        memory_limit: (spec.request.memory > 0).then_some(attempt.booked_bytes()),
        time_limit_ms: spec.time_limit_ms,
        gang: gang_place(books, task),
        riders: books.ledger.riders_of(task, attempt),
    })
}
