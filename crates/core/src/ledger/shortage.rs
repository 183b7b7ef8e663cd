//! Tasks that lost a process because the memory of their worker was short, and not at a limit of their own: which of them
//! run again, and what is said of them.

use super::{Attempt, Books};
use crate::ids::TaskId;
use crate::job::{End, StepSpec, TaskResult, TaskState};
use crate::resources::Bytes;

/// True if a task that ended so runs again, and spends no retry. A build goes on where it was. Nobody asked for the
/// memory with which it was booked, so it is not the build's fault that this was too little.
pub(super) fn is_run_again(step: &StepSpec, end: &End) -> bool {
    *end == End::OutOfMemory && step.hints.jobserver.is_some() && step.request.memory == 0
}

/// The result of an attempt, after which its task is in this state. It says what the attempt held if memory was short,
/// unless the task itself said something.
pub(super) fn told(
    books: &Books,
    task: TaskId,
    attempt: &Attempt,
    state: TaskState,
    result: TaskResult,
) -> TaskResult {
    let is_limited =
        books.ledger.spec_of(books.ledger.key_of(task)).is_some_and(|step| step.request.memory > 0);
    if result.message.is_some() || !result.is_short_of_memory(is_limited.then(|| attempt.booked_bytes())) {
        return result;
    }
    let again = if state == TaskState::Ready { rerun(books, task, attempt) } else { String::new() };
    let message = held(books, attempt, &result).map(|held| held + &again);
    TaskResult { message, ..result }
}

/// `it held 1.5 GiB of the 3 GiB of box1, 1.2 GiB of that in one process`.
fn held(books: &Books, attempt: &Attempt, result: &TaskResult) -> Option<String> {
    let peak = result.peak_memory?;
    let worker = books.plan.workers.get(attempt.worker).filter(|worker| worker.record.capacity.memory > 0);
    let of = worker.map_or_else(String::new, |worker| {
        format!(" of the {} of {}", Bytes(worker.record.capacity.memory), worker.record.name)
    });
    let one = result.process_memory.filter(|one| *one < peak);
    let one = one.map_or_else(String::new, |one| format!(", {} of that in one process", Bytes(one)));
    Some(format!("it held {}{of}{one}", Bytes(peak)))
}

/// `; it runs again with 2 GiB booked`.
fn rerun(books: &Books, task: TaskId, attempt: &Attempt) -> String {
    let sized = books.ledger.step(books.ledger.key_of(task)).map(|step| books.plan.classes.get(step.class));
    let booked = sized.map(|class| class.request.memory).filter(|bytes| *bytes > attempt.booked_bytes());
    let booked = booked.map_or_else(String::new, |bytes| format!(" with {} booked", Bytes(bytes)));
    format!("; it runs again{booked}")
}
