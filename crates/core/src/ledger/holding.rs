//! What attempts hold of their workers, from their start to their end. A worker starts its backlog in order; the books
//! do the same.

use super::learning::profile_left;
use super::licensing::take_licences;
use super::{Attempt, Books, Lent};
use crate::ids::{StepKey, TaskId, WorkerId};
use crate::outbox::{Fact, Outbox};
use crate::queues::note_wanting;
use crate::time::Time;
use crate::worker::Build;

/// Sets whether an attempt's cpus are lent; returns the state before. Its worker counts the attempts that lend, and its
/// queue the cpus that are not lent.
pub(super) fn set_lent(books: &mut Books, task: TaskId, lent: Lent) -> Lent {
    let Some(attempt) = books.ledger.attempts.get_mut(&task) else { return Lent::No };
    let counted = attempt.counted_cpu();
    let (was, worker) = (std::mem::replace(&mut attempt.lent, lent), attempt.worker);
    let (before, after) = (u32::from(was != Lent::No), u32::from(lent != Lent::No));
    if let Some(job) = books.ledger.jobs.get(&task.job) {
        books.plan.queues.recount(job.queue, counted, attempt.counted_cpu());
    }
    if before != after {
        books.plan.workers.update(worker, |w| w.booked.count_lending(after, before));
    }
    was
}

pub(super) fn mark_started(books: &mut Books, task: TaskId, at: Time, out: &mut Outbox) {
    let now = books.plan.now();
    let Some(attempt) = books.ledger.attempts.get(&task) else { return };
    if attempt.started.is_none() {
        let number = attempt.number;
        // Its worker's clock may be wrong, or the worker may lie.
        let at = at.clamp(attempt.booked.min(now), now);
        books.ledger.change_charge(task, &mut books.plan.queues, |attempt| attempt.started = Some(at));
        out.facts.push(Fact::Started { task, attempt: number, at });
        books.ledger.watch_charge(task);
    }
    let Some(attempt) = books.ledger.attempts.get(&task) else { return };
    if attempt.queued {
        // The worker is right about what it runs.
        let worker = attempt.worker;
        let backlog =
            books.plan.workers.update(worker, |w| w.booked.backlog().iter().position(|t| *t == task));
        if let Some(Some(place)) = backlog {
            start_queued(books, worker, place);
            make_room(books, worker, task);
        }
    }
}

/// The worker is right that `task` holds what it holds. Where a message was lost or is late, the books may say that
/// others hold it too. Those did not start yet, or have ended already, so they hold nothing until the worker reports
/// them.
pub(super) fn make_room(books: &mut Books, id: WorkerId, task: TaskId) {
    while let Some(worker) = books.plan.workers.get(id)
        && !worker.booked.sum().fits(&worker.record.capacity)
    {
        let others = worker.booked.running().iter().filter(|other| **other != task).filter_map(|other| {
            let attempt = books.ledger.attempts.get(other)?;
            let holds = attempt.lent == Lent::No && !attempt.rides;
            holds.then_some((attempt.started.is_none(), attempt.seq, *other))
        });
        let Some((_, _, other)) = others.max() else { return };
        send_back(books, id, other);
    }
}

/// Takes a task off the books whose start was reported, where it has no room beside tasks that lend. A task that lends
/// keeps all but its cpus. So it began after the reported task had ended, and the report of that end is under way.
/// Places of outside clients do not count, because a worker does not know of them.
pub(super) fn yield_to_lenders(books: &mut Books, task: TaskId) {
    let attempt = books.ledger.attempts.get(&task);
    let Some(attempt) = attempt.filter(|attempt| !attempt.queued && attempt.lent == Lent::No) else { return };
    let Some(worker) = books.plan.workers.get(attempt.worker) else { return };
    let places = worker.booked.places().values();
    let mut held = places.fold(worker.booked.sum().clone(), |held, place| held.less(place));
    held.cpu = 0;
    if worker.booked.lending() > 0 && !held.fits(&worker.record.capacity) {
        send_back(books, attempt.worker, task);
    }
}

/// A task that was taken for running holds nothing, and waits on its worker until there is room or more is said of it.
fn send_back(books: &mut Books, id: WorkerId, task: TaskId) {
    let (key, ms) = (books.ledger.key_of(task), books.ledger.predicted_ms(task));
    let Some(attempt) = books.ledger.attempts.get_mut(&task) else { return };
    let (held, headroom_bytes, cpu) = (attempt.held(), attempt.headroom_bytes, attempt.request.cpu);
    attempt.queued = true;
    let rides = u32::from(attempt.rides);
    forget_wish(books, id, task);
    books.plan.workers.update(id, |w| {
        w.booked.let_go(task, key, &held, headroom_bytes, cpu);
        w.booked.count_riding(0, rides);
        w.booked.send_back(task, ms);
    });
    books.plan.request_round();
}

/// Takes an attempt off the books: what it held is free.
pub(super) fn drop_attempt(books: &mut Books, task: TaskId) -> Option<Attempt> {
    let attempt = books.ledger.attempts.remove(&task)?;
    books.ledger.count_advance(task.job, &attempt, false, &mut books.plan.queues);
    let held = attempt.held();
    let (key, ms) = (books.ledger.key_of(task), books.ledger.predicted_ms(task));
    forget_wish(books, attempt.worker, task);
    books.plan.workers.update(attempt.worker, |w| {
        w.booked.count_lending(0, u32::from(attempt.lent != Lent::No));
        if attempt.queued {
            w.booked.leave_backlog(task, ms);
        } else {
            w.booked.let_go(task, key, &held, attempt.headroom_bytes, attempt.request.cpu);
            w.booked.count_riding(0, u32::from(attempt.rides));
        }
    });
    if !attempt.rides {
        take_licences(books, key, attempt.worker, -1);
    }
    if let Some(profile) = books.ledger.step(key).map(|step| step.profile) {
        profile_left(books, profile);
    }
    books.plan.request_round();
    Some(attempt)
}

/// Lets the backlog start in its order, as far as there is room: the worker does the same.
pub(crate) fn promote(books: &mut Books, id: WorkerId) {
    while let Some(worker) = books.plan.workers.get(id)
        && let Some(task) = worker.booked.backlog().front()
        && worker.link.connected
        && books.ledger.request_of(*task).fits(&worker.free())
    {
        start_queued(books, id, 0);
    }
}

fn start_queued(books: &mut Books, id: WorkerId, place: usize) {
    let Some(task) = books.plan.workers.get(id).and_then(|w| w.booked.backlog().get(place).copied()) else {
        return;
    };
    let Some(attempt) = books.ledger.attempts.get_mut(&task) else { return };
    attempt.queued = false;
    let (held, headroom_bytes, cpu) = (attempt.held(), attempt.headroom_bytes, attempt.request.cpu);
    let rides = u32::from(attempt.rides);
    let (key, ms) = (books.ledger.key_of(task), books.ledger.predicted_ms(task));
    books.plan.workers.update(id, |w| {
        w.booked.leave_backlog(task, ms);
        w.booked.hold(task, key, &held, headroom_bytes, cpu);
        w.booked.count_riding(rides, 0);
    });
    note_kind(books, id, key, task);
}

/// A task of a step holds something of its worker from now on. The worker counts apart what has a jobserver, and what
/// outside clients run.
pub(super) fn note_kind(books: &mut Books, id: WorkerId, key: StepKey, task: TaskId) {
    let Some(spec) = books.ledger.spec_of(key) else { return };
    if spec.is_external {
        books.plan.workers.update(id, |worker| worker.booked.note_external(key));
    }
    let hints = &spec.hints;
    if hints.jobserver.is_none() {
        return;
    }
    let Some(queue) = books.ledger.jobs.get(&task.job).map(|job| job.queue) else { return };
    let Some(attempt) = books.ledger.attempts.get(&task) else { return };
    let (cpu, build) = (attempt.held().cpu, Build { queue, cpus_max: hints.cpus_max, weight: 0, runs: None });
    books.plan.workers.update(id, |worker| worker.booked.note_jobserver(task, cpu, build));
}

/// A task holds nothing of its worker any more. If it is a build, it wants no more cpus.
fn forget_wish(books: &mut Books, id: WorkerId, task: TaskId) {
    let worker = books.plan.workers.get(id);
    let build = worker.and_then(|worker| worker.booked.jobservers().get(&task));
    if let Some(build) = build.copied().filter(Build::wants_more) {
        note_wanting(&mut books.plan.queues, build.queue, false);
    }
}
