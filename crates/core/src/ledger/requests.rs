//! What people ask of a job that is active: cancel, hold, another priority.

use super::commands::recall_queued;
use super::enlist::refresh_all;
use super::lifecycle::stop_job;
use super::{Books, Ledger};
use crate::ids::{JobId, RequestId};
use crate::job::{JobState, Stop};
use crate::outbox::{Fact, Outbox, Reply, Write};
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
pub(super) fn is_active(ledger: &Ledger, request: RequestId, job: JobId, out: &mut Outbox) -> bool {
    out.about.insert(request, job);
    let refusal = ledger.active(job).err();
    let is_active = refusal.is_none();
    out.replies.extend(refusal.map(|refusal| (request, Reply::Refused(refusal))));
    is_active
}

/// The job goes on as the request asked.
pub(super) fn done(request: RequestId, job: JobId, write: Write, out: &mut Outbox) {
    out.writes.push(write);
    out.facts.push(Fact::Job { job, state: JobState::Active });
    out.replies.push((request, Reply::Done));
}
