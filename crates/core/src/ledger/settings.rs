//! Queues and limits as an administrator sets them. They come into force with their commit, so that a failed one
//! leaves nothing to take back.

use super::commands::recall_queue;
use super::licensing::{cap_workers, try_again, write_tried_again};
use super::{Books, Ledger};
use crate::bounds::LIMITS_MAX;
use crate::ids::{QueueId, RequestId};
use crate::licences::Limit;
use crate::outbox::{Outbox, Refusal, Reply, Write};
use crate::queues::{QueueRecord, Queues, check_name};

pub(crate) fn set_queue(books: &mut Books, request: RequestId, queue: QueueRecord, out: &mut Outbox) {
    let checked = queue.check().map_err(Refusal::from);
    if checked.is_ok() && queue.paused.is_some() {
        recall_queue(books, &queue.name, out);
    }
    answer(request, checked.map(|()| Write::Queue(queue)), out);
}

/// Takes away what was set of a queue without work. `is_parked`: some of its work is in the store alone.
pub(crate) fn remove_queue(
    queues: &Queues,
    request: RequestId,
    name: String,
    is_parked: impl Fn(QueueId) -> bool,
    out: &mut Outbox,
) {
    let has_work = |whole: QueueId| queues.parts(whole).any(|part| queues.get(part).has_work());
    let checked = match queues.id(&name) {
        None => Err(Refusal::NoQueue(name)),
        Some(id) if has_work(id) || is_parked(id) => Err(Refusal::QueueInUse(name)),
        Some(_) => Ok(Write::QueueGone(name)),
    };
    answer(request, checked, out);
}

pub(crate) fn set_limit(
    ledger: &mut Ledger,
    request: RequestId,
    name: String,
    limit: Option<Limit>,
    out: &mut Outbox,
) {
    let checked = check_limit(ledger, &name, limit.as_ref());
    if checked.is_ok() {
        write_tried_again(ledger, &name, out);
    }
    answer(request, checked.map(|()| Write::Limit { name, limit }), out);
}

fn check_limit(ledger: &Ledger, name: &str, limit: Option<&Limit>) -> Result<(), Refusal> {
    let limits = ledger.licences.limits();
    let known = limits.contains_key(name);
    let Some(limit) = limit else {
        return if known { Ok(()) } else { Err(Refusal::NoLimit(name.to_owned())) };
    };
    check_name("the name of the limit", name)?;
    limit.check()?;
    if !known && limits.len() >= LIMITS_MAX {
        let (is, max) = (LIMITS_MAX as u64 + 1, LIMITS_MAX as u64);
        return Err(Refusal::TooMany { what: "limits of the farm", is, max });
    }
    Ok(())
}

/// Takes in what is durable now. `is_parked`: some work of a queue is in the store alone.
pub(crate) fn come_into_force(books: &mut Books, writes: &[Write], is_parked: impl Fn(QueueId) -> bool) {
    for write in writes {
        match write {
            Write::Queue(queue) => {
                books.plan.queues.set(queue);
                books.plan.workers.sharing.note_all();
            }
            Write::QueueGone(name) => {
                books.plan.unset_queue(name, &is_parked);
                books.plan.workers.sharing.note_all();
            }
            Write::Limit { name, limit } => {
                books.ledger.licences.set(name, limit.as_ref());
                cap_workers(books, name);
                try_again(books, name);
            }
            _ => continue,
        }
        books.plan.request_round();
    }
}

fn answer(request: RequestId, done: Result<Write, Refusal>, out: &mut Outbox) {
    let answer = match done {
        Ok(write) => {
            out.writes.push(write);
            Reply::Done
        }
        Err(refusal) => Reply::Refused(refusal),
    };
    out.replies.push((request, answer));
}
