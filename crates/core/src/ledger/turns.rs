//! What a restored engine makes of the charges of tasks that are booked.

use super::Books;
use crate::ids::{QueueId, TaskId};
use crate::queues::{Charge, RestoredAdvance, cost};
use std::collections::BTreeMap;

/// A restored engine learns the time: what runs is charged from now on. What the engine before it had charged a queue
/// in advance is spread evenly over its attempts, so that none of it is charged twice or given back before the tasks
/// have run.
pub(crate) fn take_up_charges(books: &mut Books) {
    let now = books.plan.now();
    let is_counted = books.ledger.turns_continue && books.ledger.charge == Charge::Task;
    let mut parts: BTreeMap<QueueId, Vec<TaskId>> = BTreeMap::new();
    for (task, attempt) in &mut books.ledger.attempts {
        // Nothing was charged in advance yet, so no books change with these.
        (attempt.charged.from, attempt.charged.counted) = (now, is_counted);
        if let Some(job) = books.ledger.jobs.get(&task.job) {
            parts.entry(job.queue).or_default().push(*task);
        }
    }
    if books.ledger.charge == Charge::Task {
        return;
    }
    let advances = books.plan.queues.restored_advances();
    let mut assigned: BTreeMap<QueueId, i64> = BTreeMap::new();
    for (part, advance) in &advances {
        let tasks = parts.remove(part).unwrap_or_default();
        let charged = spread(books, &tasks, advance.part);
        *assigned.entry(books.plan.queues.whole(*part)).or_default() += charged;
        books.plan.queues.correct_restored_part(*part, charged - advance.part as i64);
    }
    for (part, RestoredAdvance { whole, .. }) in advances {
        if books.plan.queues.whole(part) == part {
            let charged = assigned.get(&part).copied().unwrap_or(0);
            books.plan.queues.correct_restored_whole(part, charged - whole as i64);
        }
    }
}

/// Charges attempts of one part of a queue `ahead` together, each for the same time. Returns what they were charged.
fn spread(books: &mut Books, tasks: &[TaskId], ahead: u64) -> i64 {
    let rate =
        |task: &TaskId| books.ledger.attempts.get(task).map_or(0, |attempt| attempt.charged.share.max(1));
    let rate: u64 = tasks.iter().map(|task| u64::from(rate(task))).sum();
    let ms = ahead.checked_div(rate).unwrap_or(0);
    if ms == 0 {
        return 0;
    }
    for task in tasks {
        books.ledger.change_charge(*task, &mut books.plan.queues, |attempt| {
            (attempt.charged.ms, attempt.charged.counted) = (ms, true)
        });
    }
    let charged =
        |task: &TaskId| books.ledger.attempts.get(task).map_or(0, |attempt| cost(attempt.charged.share, ms));
    tasks.iter().map(charged).sum::<u64>() as i64
}
