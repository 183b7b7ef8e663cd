//! Leases: how long the tasks of a worker that is not heard from may run.
//!
//! A worker that fences ends its tasks itself when its lease runs out. The answer to a hello or a beat grants the
//! lease, which counts from when the worker sent that. A lease never lasts longer than the stored expiry, except while
//! the store fails or is slow. The engine judges by its own clock and by what is durable, so it never takes a task for
//! ended before the worker has ended it.

use super::Books;
use super::commands::send;
use super::hello::Hello;
use super::learning::finish_probes;
use super::licensing::end_back_offs;
use super::lifecycle::lose_attempts;
use crate::bounds;
use crate::ids::WorkerId;
use crate::outbox::{Fact, Holder, Outbox, Refusal, WorkerCommand, Write};
use crate::plan::Planner;
use crate::worker::{Worker, WorkerState};

/// Whether a worker may use this name. A name belongs to one machine at a time: another one gets it when nothing of the
/// first can run any more.
pub(crate) fn admit(plan: &Planner, hello: &Hello) -> Result<(), Refusal> {
    let Some(known) = plan.workers.by_name(&hello.name) else {
        let (what, is, max) = ("workers", plan.workers.len() as u64, bounds::WORKERS_MAX as u64);
        return if is < max { Ok(()) } else { Err(Refusal::TooMany { what, is, max }) };
    };
    if known.record.incarnation == hello.incarnation {
        return Ok(());
    }
    let taken = |holder| Err(Refusal::NameTaken { name: hello.name.clone(), holder });
    let same_machine = known.record.identity == hello.identity || known.record.identity == 0;
    if known.link.connected && (hello.new_link || !same_machine) {
        return taken(Holder::Connected);
    }
    if same_machine || !known.booked.has_attempts() {
        return Ok(());
    }
    match known.record.lease_until.map(|until| until.since(plan.now())) {
        Some(0) => Ok(()),
        Some(left_ns) => taken(Holder::Leased { left_ns }),
        None => taken(Holder::Unleased),
    }
}

/// Looks after the workers that were silent for too long, and those whose lease has run out.
pub(crate) fn tick(books: &mut Books, out: &mut Outbox) {
    finish_probes(books);
    end_back_offs(books);
    books.ledger.accrue(books.plan.now(), &mut books.plan.queues);
    books.plan.tick();
    while let Some(id) = books.plan.workers.due(books.plan.now()) {
        // It was due for an outdated load report or the end of a quarantine, and not for silence.
        if books.plan.workers.drop_outdated(id, books.plan.now()) {
            books.plan.request_round();
            continue;
        }
        let lease_until = books.plan.workers.get(id).and_then(|worker| worker.record.lease_until);
        if lease_until.is_some_and(|until| until <= books.plan.now()) {
            expire_worker(books, id, WorkerState::Expired, out);
        } else {
            worker_lost(&mut books.plan, id, out);
        }
    }
}

/// The link to a worker is gone, or it is silent.
pub(crate) fn worker_lost(plan: &mut Planner, id: WorkerId, out: &mut Outbox) {
    if plan.workers.get(id).is_some_and(|worker| worker.link.connected) {
        plan.workers.update(id, Worker::unlink);
        note_worker(plan, id, "suspect", out);
    }
}

/// Lengthens a worker's lease where less than half of it is left, so that most beats write nothing.
pub(super) fn renew(books: &mut Books, id: WorkerId, out: &mut Outbox) {
    let Some(until) = books.plan.workers.get(id).and_then(|worker| worker.record.lease_until) else { return };
    let Some(lease_ns) = books.ledger.lease_ns.filter(|ns| until.since(books.plan.now()) < ns / 2) else {
        return;
    };
    let until = books.plan.now().after(lease_ns);
    books.plan.workers.renew(id, until);
    out.writes.push(Write::Lease { worker: id, until });
}

/// Renews the lease of a worker that is heard while the store cannot be written, or takes long. After a restart the
/// stored lease may look expired too early. That is safe, because a restart renews every lease in full before it
/// expires any.
pub(crate) fn keep_lease(books: &mut Books, id: WorkerId, sent: u64, out: &mut Outbox) {
    let held = books.plan.workers.get(id).is_some_and(|worker| worker.record.lease_until.is_some());
    let Some(lease_ns) = books.ledger.lease_ns.filter(|_| held) else { return };
    books.plan.workers.renew(id, books.plan.now().after(lease_ns));
    grant(books, id, sent, out);
}

/// Tells a worker how long its lease lasts: to the expiry that is durable with this batch, and never longer than
/// `lease_ns`. A clock that was set back between two engines can leave more, and the next engine counts on the bound. A
/// worker without a lease is told nothing.
pub(super) fn grant(books: &mut Books, id: WorkerId, sent: u64, out: &mut Outbox) {
    let Some(until) = books.plan.workers.get(id).and_then(|worker| worker.record.lease_until) else { return };
    let Some(lease_ns) = books.ledger.lease_ns else { return };
    let lasts_ns = until.since(books.plan.now()).min(lease_ns);
    send(&mut books.plan, id, WorkerCommand::Lease { sent, lasts_ns }, out);
}

/// An engine was restored. No server answered beats meanwhile, so every worker that has a lease gets a whole one. No
/// worker's last hello is known, so its absence counts from now.
pub(crate) fn renew_all(books: &mut Books) {
    let ids: Vec<WorkerId> = books.plan.workers.iter().map(|worker| worker.record.id).collect();
    let (now, lease_ns) = (books.plan.now(), books.ledger.lease_ns);
    for id in ids {
        books.plan.workers.update(id, |worker| {
            worker.link.greeted = now;
            if worker.record.lease_until.is_some() {
                worker.lease(now, lease_ns);
            }
        });
    }
}

/// Nothing runs on the worker any more: what was booked on it is lost, and what it reports of that later is late. The
/// new epoch and the ends are in one batch. `state` is `Expired` or `Forgotten`.
pub(super) fn expire_worker(books: &mut Books, id: WorkerId, state: WorkerState, out: &mut Outbox) {
    books.plan.workers.update(id, |worker| {
        worker.record.epoch.0 += 1;
        worker.record.state = state;
        worker.record.draining &= state != WorkerState::Forgotten;
        worker.record.note = worker.record.note.take().filter(|_| worker.record.draining);
        worker.link.connected = false;
        worker.record.lease_until = None;
    });
    write_worker(&books.plan, id, if state == WorkerState::Expired { "expired" } else { "forgotten" }, out);
    lose_attempts(books, id, out);
    books.ledger.effects.expired.push(id);
    books.plan.request_round();
}

pub(super) fn note_worker(plan: &Planner, id: WorkerId, what: &'static str, out: &mut Outbox) {
    let Some(worker) = plan.workers.get(id) else { return };
    out.facts.push(Fact::Worker { worker: id, name: worker.record.name.clone(), what });
}

pub(super) fn write_worker(plan: &Planner, id: WorkerId, what: &'static str, out: &mut Outbox) {
    let Some(worker) = plan.workers.get(id) else { return };
    out.writes.push(Write::Worker(worker.stored()));
    note_worker(plan, id, what, out);
}
