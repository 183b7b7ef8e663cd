//! What people ask of a job that is there: cancel, hold, another priority, retry.

use super::commands::{end_split_gangs, recall_queued};
use super::enlist::{recompute_ready, refresh_all};
use super::lifecycle::{forget, stop_job};
use super::records::insert_record;
use super::{Books, Ledger};
use crate::ids::{JobId, RequestId};
use crate::job::{JobRecord, JobState, Stop};
use crate::outbox::{Fact, Outbox, Refusal, Reply, Write};
use crate::ranges::RangeSet;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Lets no further task of a job start, and kills what runs.
pub(crate) fn cancel(books: &mut Books, request: RequestId, job: JobId, out: &mut Outbox) {
    if is_active(&books.ledger, request, job, out) {
        stop_job(books, job, Stop::Canceled, out);
        out.replies.push((request, Reply::Done));
    }
}

/// Lets no further task of a job start until it is let go on; what runs goes on.
pub(crate) fn hold(books: &mut Books, request: RequestId, id: JobId, held: bool, out: &mut Outbox) {
    if !is_active(&books.ledger, request, id, out) {
        return;
    }
    books.ledger.effects.touch(id);
    if let Some(job) = books.ledger.jobs.get_mut(&id) {
        job.held = held;
    }
    refresh_all(books, id);
    if held {
        recall_queued(books, id, out);
    }
    done(request, id, Write::JobHeld { job: id, held }, out);
}

/// Its tasks take their turn by the new priority from the next round on; what runs goes on.
pub(crate) fn prioritize(books: &mut Books, request: RequestId, id: JobId, priority: i32, out: &mut Outbox) {
    if !is_active(&books.ledger, request, id, out) {
        return;
    }
    books.ledger.effects.touch(id);
    if let Some(job) = books.ledger.jobs.get_mut(&id) {
        Arc::make_mut(&mut job.spec).priority = priority;
    }
    refresh_all(books, id);
    done(request, id, Write::JobPriority { job: id, priority }, out);
}

/// Notes that the request is about the job. Answers it and returns false if the job is not active.
fn is_active(ledger: &Ledger, request: RequestId, job: JobId, out: &mut Outbox) -> bool {
    out.about.insert(request, job);
    let refusal = ledger.active(job).err();
    let is_active = refusal.is_none();
    out.replies.extend(refusal.map(|refusal| (request, Reply::Refused(refusal))));
    is_active
}

/// The job goes on as the request asked.
fn done(request: RequestId, job: JobId, write: Write, out: &mut Outbox) {
    out.writes.push(write);
    out.facts.push(Fact::Job { job, state: JobState::Active });
    out.replies.push((request, Reply::Done));
}

/// Runs failed and cancelled tasks of a job again. `record` is what the store has of a job that is not resident.
pub(crate) fn retry(
    books: &mut Books,
    request: RequestId,
    id: JobId,
    record: Option<JobRecord>,
    out: &mut Outbox,
) {
    out.about.insert(request, id);
    let is_read = !books.ledger.jobs.contains_key(&id);
    if is_read {
        match record {
            Some(record) => insert_record(books, record, BTreeSet::new()),
            None => {
                out.replies.push((request, Reply::Refused(Refusal::NoJob(id))));
                return;
            }
        }
    }
    let Some(job) = books.ledger.jobs.get_mut(&id) else { return };
    let unstarted = job.ended.map_or(job.stop.is_some(), |state| state != JobState::Succeeded);
    if !unstarted && job.steps.iter().all(|s| s.failed.is_empty() && s.canceled.is_empty()) {
        // One that ended just now is forgotten when that is durable.
        if is_read && job.ended.is_some() {
            books.ledger.leave_key_to_store(id);
            forget(books, id);
        }
        out.replies.push((request, Reply::Refused(Refusal::NothingToRetry(id))));
        return;
    }
    job.stop = None;
    job.ended = None;
    for step in &mut job.steps {
        // The others keep their failures, as in their rows.
        let again = [std::mem::take(&mut step.failed), std::mem::take(&mut step.canceled)];
        for range in again.iter().flat_map(RangeSet::ranges) {
            step.tries.change(range, |tries| tries.failures = 0);
        }
    }
    // Jobs before it that failed do not stop it again; those that are active it waits for.
    let spec = job.spec.clone();
    let open = books.ledger.open_among(&spec.after);
    for first in &open {
        books.ledger.effects.touch(*first);
        books.ledger.dependents.entry(*first).or_default().insert(id);
    }
    if let Some(job) = books.ledger.jobs.get_mut(&id) {
        job.after = open;
    }
    out.ended.retain(|ended| *ended != id);
    books.ledger.recent.remove(&BTreeSet::from([id]));
    recompute_ready(books, id, None);
    end_split_gangs(books, id, out);
    done(request, id, Write::JobRetry { job: id }, out);
}
