//! Jobs that were read from the store again, after a commit that failed or was refused in part: what is durable takes
//! the place of what the engine thought.

use super::enlist::refresh_all;
use super::first_tasks::look_at_all;
use super::holding::set_lent;
use super::lifecycle::{answer_reclaims, forget, lose_attempts, settle_job, stop_job};
use super::records::insert_record;
use super::{Attempt, Books, Ledger};
use crate::ids::{JobId, QueueId, TaskId, WorkerId};
use crate::job::{JobRecord, JobState};
use crate::outbox::Outbox;
use std::collections::BTreeSet;

/// Puts what the store has of jobs in the place of what the engine thought of them. A job without a record does not
/// exist.
pub(crate) fn reload(books: &mut Books, jobs: &BTreeSet<JobId>, records: Vec<JobRecord>, out: &mut Outbox) {
    let before = booked_of(&books.ledger, jobs);
    jobs.iter().for_each(|id| forget(books, *id));
    books.ledger.keys.retain(|_, job| !jobs.contains(job));
    books.ledger.recent.remove(jobs);
    let active = records.iter().filter(|record| record.state == JobState::Active).map(|record| record.id);
    let active: BTreeSet<JobId> = active.collect();
    for record in records {
        if record.state != JobState::Active {
            let key = record.spec.key.clone().map(|key| (record.spec.user.clone(), key));
            if let Some(key) = key.clone() {
                books.ledger.keys.insert(key, record.id);
            }
            books.ledger.remember_end(record.id, record.state, key);
            continue;
        }
        let mut open = books.ledger.open_among(&record.spec.after);
        open.extend(record.spec.after.iter().filter(|id| active.contains(id)));
        insert_record(books, record, open);
    }
    // A follower may have been read before the job that it follows.
    look_at_all(books);
    keep_volatile(books, &before);
    jobs.iter().for_each(|id| books.ledger.forget_ended(*id));
    answer_lost_reclaims(&mut books.ledger, out);
    // A loss may end a job, and all that wait for it must be known by then.
    wait_again(books, &active);
    lose_earlier(books, jobs, out);
    drop_settled_dependencies(books, jobs, out);
}

/// An attempt that was booked when its job was forgotten.
struct BookedBefore {
    task: TaskId,
    queue: QueueId,
    attempt: Attempt,
}

/// What is booked of jobs.
fn booked_of(ledger: &Ledger, jobs: &BTreeSet<JobId>) -> Vec<BookedBefore> {
    let attempts = jobs.iter().flat_map(|id| ledger.attempts_of(*id));
    let booked = attempts.filter_map(|(task, attempt)| {
        let job = ledger.jobs.get(&task.job)?;
        Some(BookedBefore { task, queue: job.queue, attempt: attempt.clone() })
    });
    booked.collect()
}

/// What the store has booked under an earlier epoch of its worker is not there any more: another engine booked it.
fn lose_earlier(books: &mut Books, jobs: &BTreeSet<JobId>, out: &mut Outbox) {
    let attempts = jobs.iter().flat_map(|job| books.ledger.attempts_of(*job));
    let workers: BTreeSet<WorkerId> = attempts.map(|(_, attempt)| attempt.worker).collect();
    workers.into_iter().for_each(|worker| lose_attempts(books, worker, out));
}

/// A task that the store does not have booked has no cpus to get back: its waits for them are over.
fn answer_lost_reclaims(ledger: &mut Ledger, out: &mut Outbox) {
    let lost = ledger.reclaims.keys().filter(|task| !ledger.attempts.contains_key(*task));
    let lost: Vec<TaskId> = lost.copied().collect();
    lost.into_iter().for_each(|task| answer_reclaims(ledger, task, out));
}

/// Restores what is only in memory (start, charge, lent cpus, which message carried it) for each attempt that the
/// store has under the same number. What any other attempt was charged goes back to its queue.
fn keep_volatile(books: &mut Books, before: &[BookedBefore]) {
    for BookedBefore { task, queue, attempt: old, .. } in before {
        if books.ledger.attempts.get(task).is_some_and(|attempt| attempt.number == old.number) {
            books.ledger.change_charge(*task, &mut books.plan.queues, |attempt| {
                attempt.started = old.started;
                attempt.headroom_bytes = old.headroom_bytes;
                attempt.charged = old.charged;
                if (attempt.worker, attempt.epoch) == (old.worker, old.epoch) {
                    (attempt.seq, attempt.last) = (old.seq, old.last);
                }
            });
            set_lent(books, *task, old.lent);
            books.ledger.watch_charge(*task);
        } else {
            books.ledger.refund(*queue, old, &mut books.plan.queues);
        }
    }
}

/// After a reload: jobs that had stopped waiting for a job whose end is not durable.
fn wait_again(books: &mut Books, active: &BTreeSet<JobId>) {
    let waiting = books.ledger.jobs.values().filter(|job| job.stop.is_none() && job.ended.is_none());
    let ids: Vec<JobId> = waiting.map(|job| job.id).collect();
    for id in ids {
        let Some(job) = books.ledger.jobs.get_mut(&id) else { continue };
        let spec = job.spec.clone();
        job.after.extend(spec.after.iter().filter(|first| active.contains(first)));
        let after = job.after.clone();
        if !after.is_empty() {
            books.ledger.effects.touch(id);
        }
        for first in after {
            books.ledger.dependents.entry(first).or_default().insert(id);
        }
        refresh_all(books, id);
    }
}

/// After a reload: jobs that wait for a job that the store says has ended do not wait for it.
fn drop_settled_dependencies(books: &mut Books, touched: &BTreeSet<JobId>, out: &mut Outbox) {
    for id in touched {
        if books.ledger.jobs.contains_key(id) {
            continue;
        }
        // Whatever waited for it waits no more.
        books.ledger.dependents.remove(id);
        let outcome = books.ledger.recent.get(*id);
        let waiting: Vec<JobId> =
            books.ledger.jobs.values().filter(|j| j.after.contains(id)).map(|j| j.id).collect();
        for job in waiting {
            let Some(waits) = books.ledger.jobs.get_mut(&job) else { continue };
            waits.after.remove(id);
            match outcome {
                Some(state) if waits.spec.may_follow(*id, state) => refresh_all(books, job),
                _ => stop_job(books, job, crate::job::Stop::After(*id), out),
            }
        }
    }
    // All that wait are known before any job ends: otherwise one would wait for a job that has ended.
    let ids: Vec<JobId> = books.ledger.jobs.keys().copied().collect();
    for id in &ids {
        let after = books.ledger.jobs[id].after.clone();
        for first in after {
            books.ledger.dependents.entry(first).or_default().insert(*id);
            books.ledger.effects.touch(first);
        }
    }
    for id in ids {
        settle_job(books, id, out);
    }
}
