//! What licences do to steps and workers: which are taken by a booking, which were busy, and which steps wait for them.

use super::commands::recall;
use super::enlist::refresh;
use super::{Attempt, Books, Ledger};
use crate::ids::{JobId, StepKey, TaskId, WorkerId};
use crate::job::End;
use crate::licences::LicencePool;
use crate::outbox::{Outbox, Write};
use crate::plan::Planner;
use crate::time::Time;
use std::collections::BTreeSet;

/// A task of the step that is booked on the worker takes one of each licence that it needs (`by` 1), or gives it back
/// (`by` -1).
pub(super) fn take_licences(books: &mut Books, key: StepKey, worker: WorkerId, by: i32) {
    let Some(job) = books.ledger.jobs.get(&key.job) else { return };
    let names = &job.spec.steps[usize::from(key.step)].limits;
    take(&mut books.ledger.licences, names, (worker, by), &mut books.plan);
}

/// The same by the names of the licences.
pub(crate) fn take(
    licences: &mut LicencePool,
    names: &BTreeSet<String>,
    (worker, by): (WorkerId, i32),
    plan: &mut Planner,
) {
    if names.is_empty() {
        return;
    }
    licences.count(names, by);
    let freed = plan.workers.update(worker, |w| {
        let mut freed = false;
        for name in names {
            freed |= w.licences.take(name, licences.max_per_worker(name), by);
        }
        freed
    });
    if freed == Some(true) {
        plan.workers.gained(worker);
    }
}

/// A limit was set or dropped: workers that hold some may hold more, or less.
pub(super) fn cap_workers(books: &mut Books, name: &str) {
    let max = books.ledger.licences.max_per_worker(name);
    let holders: Vec<WorkerId> = books
        .plan
        .workers
        .iter()
        .filter(|worker| worker.licences.held(name) > 0)
        .map(|w| w.record.id)
        .collect();
    for id in holders {
        books.plan.workers.update(id, |worker| worker.licences.cap(name, max));
        books.plan.workers.gained(id);
    }
}

/// The licence of its step that an attempt found busy, as its end says.
pub(super) fn busy_licence(ledger: &Ledger, key: StepKey, end: &End) -> Option<String> {
    let End::Exited(exit) = end else { return None };
    let spec = ledger.jobs.get(&key.job)?.spec.steps.get(usize::from(key.step))?;
    ledger.licences.busy(&spec.limits, *exit).map(str::to_owned)
}

/// A licence was busy: the step starts nothing for a while, and what it has in backlogs comes back.
pub(super) fn begin_back_off(books: &mut Books, key: StepKey, limit: &str, booked: Time, out: &mut Outbox) {
    if !books.ledger.licences.begin_back_off(key, limit, booked, books.plan.now()) {
        return;
    }
    save_back_offs(&books.ledger, key.job, None, out);
    let of_step = |(task, attempt): &(TaskId, &Attempt)| attempt.queued && books.ledger.key_of(*task) == key;
    let queued = books.ledger.attempts_of(key.job).filter(of_step).map(|(task, _)| task).collect();
    recall(books, queued, out);
}

/// A task of the step succeeded, so there were licences.
pub(super) fn had_licence(books: &mut Books, key: StepKey, out: &mut Outbox) {
    if books.ledger.licences.succeeded(key, books.plan.now()) {
        save_back_offs(&books.ledger, key.job, None, out);
    }
}

/// Steps whose back-off is over stand in their queues again.
pub(super) fn end_back_offs(books: &mut Books) {
    while let Some(key) = books.ledger.licences.back_offs.end_next(books.plan.now()) {
        refresh(books, key);
    }
}

/// A limit is being set: the store forgets which steps found it busy, for these are tried again when that is
/// durable.
pub(super) fn write_tried_again(ledger: &Ledger, limit: &str, out: &mut Outbox) {
    let jobs: BTreeSet<JobId> = ledger.licences.found_busy(limit).map(|key| key.job).collect();
    jobs.into_iter().for_each(|job| save_back_offs(ledger, job, Some(limit), out));
}

/// Steps that found this limit busy are tried again.
pub(super) fn try_again(books: &mut Books, limit: &str) {
    let keys: Vec<StepKey> = books.ledger.licences.found_busy(limit).collect();
    for key in keys {
        books.ledger.licences.back_offs.remove(key);
        refresh(books, key);
    }
}

/// What a store keeps of a job: the back-offs of all its steps, except those that found the limit `but` busy.
fn save_back_offs(ledger: &Ledger, job: JobId, but: Option<&str>, out: &mut Outbox) {
    let known = ledger.licences.back_offs.of(job);
    let kept = known.filter(|(_, back_off)| Some(&*back_off.limit) != but);
    let steps = kept.map(|(key, known)| (key.step, known.clone())).collect();
    out.writes.push(Write::LicenceBackoffs { job, steps });
}
