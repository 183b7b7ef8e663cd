//! A worker says hello, or what it holds, and that is compared with what is booked on it.

use super::commands::{recall, send, send_start};
use super::hello::{HeldPhase, Hello, Inventory};
use super::holding::{drop_attempt, mark_started, promote, set_lent, yield_to_lenders};
use super::lease::{admit, grant, renew, write_worker};
use super::lifecycle::{conclude, give_back_rider, lose_attempts};
use super::shares::tell_again;
use super::{Books, Lent};
use crate::ids::{Epoch, TaskId, WorkerId};
use crate::job::{End, TaskResult};
use crate::outbox::{Outbox, WorkerCommand};
use crate::plan::Planner;
use crate::resources::Resources;
use crate::worker::{Origin, Worker, WorkerRecord, WorkerState};
use std::collections::BTreeMap;

/// Takes in how a worker introduces itself. Returns true if it is welcome.
pub(crate) fn hello(books: &mut Books, hello: Hello, out: &mut Outbox) -> bool {
    // A keeper that was known under another name holds what was booked under that name. Its number is
    // no secret, so only the same machine may say so, and only when nobody works under the other name.
    let renamed = || {
        books.plan.workers.iter().find(|w| {
            w.record.incarnation == hello.incarnation
                && w.record.identity == hello.identity
                && !w.link.connected
                && Origin::of(&w.record.name) == Origin::of(&hello.name)
        })
    };
    let known = books.plan.workers.by_name(&hello.name).or_else(renamed).map(|w| w.record.id);
    // The shell asks first, and tells a worker that is refused why.
    if known.is_some() && admit(&books.plan, &hello).is_err() {
        return false;
    }
    let before = known.and_then(|id| books.plan.workers.get(id));
    let is_late =
        before.is_some_and(|w| w.record.incarnation == hello.incarnation && hello.sent < w.link.last_sent);
    // An earlier hello of the same connection that comes late is out of date. That of a worker whose lease ran out
    // meanwhile would open an epoch that the worker does not know of. It is asked for another hello at its next beat.
    if is_late && !hello.new_link {
        return false;
    }
    if let Some(id) = known {
        books.plan.workers.rename(id, &hello.name);
    }
    let id = known.unwrap_or_else(|| add_worker(&mut books.plan, &hello.name));
    let (now, lease_ns) = (books.plan.now(), books.ledger.lease_ns.filter(|_| hello.fences));
    let news = books.plan.workers.is_news(&hello.attributes);
    books.plan.workers.describe(id, hello.capacity, hello.attributes);
    if news {
        // Steps may have asked for what nobody had.
        books.plan.workers.learn(books.plan.classes.iter().flat_map(|class| &class.needs));
    }
    let welcome = books.plan.workers.update(id, |w| {
        if w.record.incarnation != hello.incarnation {
            w.record.epoch.0 += 1;
            w.record.incarnation = hello.incarnation;
        }
        w.record.identity = hello.identity;
        w.record.state = if w.record.draining { WorkerState::Draining } else { WorkerState::Up };
        w.lease(now, lease_ns);
        w.link.greet(now, hello.sent, hello.fences, hello.inventory.seq);
        (w.record.epoch, if w.record.draining { "draining" } else { "up" })
    });
    let Some((epoch, state)) = welcome else { return false };
    lose_attempts(books, id, out);
    let welcome_seq = send(&mut books.plan, id, WorkerCommand::Registered { epoch }, out);
    books.plan.workers.update(id, |w| w.link.welcome_seq = welcome_seq);
    write_worker(&books.plan, id, state, out);
    grant(books, id, hello.sent, out);
    // A connection begins with a hello: what went over an earlier one has arrived, or never will. A hello that comes
    // after a start on the same connection may have been said before that start arrived.
    let through = if hello.new_link && !is_late { u64::MAX } else { hello.inventory.seq };
    let unsure = compare_inventory(books, id, &hello.inventory, through, out);
    say_again(books, id, &unsure, out);
    tell_again(books, id);
    books.plan.request_round();
    true
}

fn add_worker(plan: &mut Planner, name: &str) -> WorkerId {
    let id = WorkerId(plan.workers.last_id().map_or(1, |last| last.0 + 1));
    plan.workers.insert(Worker::unheard(WorkerRecord {
        id,
        name: name.to_owned(),
        epoch: Epoch(0),
        identity: 0,
        incarnation: 0,
        state: WorkerState::Suspect,
        draining: false,
        note: None,
        lease_until: None,
        capacity: Resources::default(),
        attributes: BTreeMap::new(),
    }));
    id
}

/// A worker says what it holds. A worker that is marked unconnected (after a failed commit, silence or expiry) is asked
/// for a hello.
pub(crate) fn beat(books: &mut Books, id: WorkerId, sent: u64, inventory: &Inventory, out: &mut Outbox) {
    match books.plan.workers.get(id).map(|worker| (worker.link.connected, worker.link.last_sent)) {
        // It comes late, and what it says is out of date.
        Some((true, last)) if sent < last => books.plan.workers.hear(id, books.plan.now()),
        Some((true, _)) => {
            let out_at_last_beat = books.plan.workers.beat(id, books.plan.now(), sent);
            renew(books, id, out);
            grant(books, id, sent, out);
            let unsure = compare_inventory(books, id, inventory, inventory.seq, out);
            // A start that went out before the last beat should be there. It may still wait for its body or for a user
            // database, so it is said once more, and nothing else follows.
            let is_overdue =
                |task: &TaskId| books.ledger.attempts.get(task).is_some_and(|a| a.seq <= out_at_last_beat);
            let overdue: Vec<TaskId> = unsure.iter().copied().filter(is_overdue).collect();
            if books.plan.workers.note_overdue(id, unsure.len(), overdue.len()) {
                say_again(books, id, &overdue, out);
            }
        }
        Some((false, _)) => _ = send(&mut books.plan, id, WorkerCommand::Resync, out),
        None => {}
    }
}

/// Compares what a worker holds with what is booked on it. Of messages numbered up to `through` none
/// is under way, so what such a message carried and the worker does not hold did not arrive. Returns the attempts
/// that it does not hold and whose starts have later numbers: each of these may arrive, may be lost, or is not sent
/// yet.
fn compare_inventory(
    books: &mut Books,
    id: WorkerId,
    inventory: &Inventory,
    through: u64,
    out: &mut Outbox,
) -> Vec<TaskId> {
    let Some(worker) = books.plan.workers.get(id) else { return Vec::new() };
    let held: BTreeMap<TaskId, (u32, HeldPhase)> =
        inventory.held.iter().map(|h| (h.task, (h.attempt, h.phase))).collect();
    let booked: Vec<TaskId> =
        worker.booked.running().iter().chain(worker.booked.backlog()).copied().collect();
    let (mut missing, mut unsure) = (Vec::new(), Vec::new());
    for task in booked {
        let Some(attempt) = books.ledger.attempts.get(&task) else { continue };
        match held.get(&task) {
            Some((number, phase)) if *number == attempt.number => {
                meet_held(books, task, *phase, out);
            }
            _ if attempt.seq <= through => missing.push(task),
            _ => unsure.push(task),
        }
    }
    for (task, (attempt, phase)) in held {
        let current = books.ledger.attempts.get(&task).is_some_and(|a| a.number == attempt && a.worker == id);
        let is_over = matches!(phase, HeldPhase::Ended | HeldPhase::Unknown);
        if !current && !is_over {
            send(&mut books.plan, id, WorkerCommand::Kill { task, attempt }, out);
        }
    }
    // What rode with a process that the worker does not have goes back before that process is started again.
    missing.sort_by_key(|task| books.ledger.attempts.get(task).is_none_or(|attempt| !attempt.rides));
    // Kills come first: a start may be what the worker breaks off at.
    for task in missing {
        miss(books, task, out);
    }
    promote(books, id);
    unsure
}

/// A worker did not say that it has these attempts, and their starts may still be under way. They may be lost as well:
/// what waits to be sent when a hello comes is dropped. So each start is said once more, with those that ride with it.
/// A worker that has an attempt passes over its second start. An attempt that is to end holds what it books until
/// its worker is known not to have it.
fn say_again(books: &mut Books, id: WorkerId, unsure: &[TaskId], out: &mut Outbox) {
    let heads = unsure.iter().filter_map(|task| Some((*task, books.ledger.attempts.get(task)?)));
    let heads = heads.filter(|(_, attempt)| !attempt.rides);
    let (kills, starts): (Vec<_>, Vec<_>) =
        heads.map(|(task, attempt)| (task, attempt.number, attempt.killing)).partition(|head| head.2);
    for (task, attempt, _) in &kills {
        send(&mut books.plan, id, WorkerCommand::Kill { task: *task, attempt: *attempt }, out);
    }
    for (task, ..) in starts {
        send_start(books, task, out);
    }
    // A worker that never beats says what it has in a hello alone.
    let never_beats = books.plan.workers.get(id).is_some_and(|worker| worker.link.heard.is_none());
    if never_beats && !kills.is_empty() {
        send(&mut books.plan, id, WorkerCommand::Resync, out);
    }
}

/// The worker holds the attempt that is booked on it.
fn meet_held(books: &mut Books, task: TaskId, phase: HeldPhase, out: &mut Outbox) {
    if let HeldPhase::Running(at) | HeldPhase::Lent(at) = phase {
        // What is lent is not stored: an engine that adopts the attempt learns it here.
        if let HeldPhase::Lent(_) = phase
            && let Some(attempt) = books.ledger.attempts.get_mut(&task)
            && attempt.queued
            && attempt.started.is_none()
            && attempt.lent == Lent::No
            && !attempt.rides
        {
            attempt.headroom_bytes = 0;
            set_lent(books, task, Lent::Yes);
        }
        mark_started(books, task, at, out);
        yield_to_lenders(books, task);
    }
    let Some(attempt) = books.ledger.attempts.get(&task) else { return };
    let (worker, number, killing, lent) = (attempt.worker, attempt.number, attempt.killing, attempt.lent);
    // The kill of its head ends a rider too.
    if killing && phase != HeldPhase::Ended && !attempt.rides {
        send(&mut books.plan, worker, WorkerCommand::Kill { task, attempt: number }, out);
    }
    match lent {
        Lent::Yes if !matches!(phase, HeldPhase::Running(_)) => {}
        Lent::No => {}
        Lent::Yes => _ = send(&mut books.plan, worker, WorkerCommand::Lend { task, attempt: number }, out),
        Lent::Reclaiming => {
            _ = send(&mut books.plan, worker, WorkerCommand::Reclaim { task, attempt: number }, out)
        }
    }
    // The recall at the lending may have been lost, or the attempt adopted since.
    if phase == HeldPhase::Queued
        && books.ledger.attempts.get(&task).is_some_and(|attempt| attempt.queued)
        && books.plan.workers.get(worker).is_some_and(|w| w.booked.lending() > 0)
    {
        recall(books, vec![task], out);
    }
}

/// An attempt's worker does not hold it, and its start is not under way: it is started again, unless it
/// is to end anyway.
fn miss(books: &mut Books, task: TaskId, out: &mut Outbox) {
    let Some(attempt) = books.ledger.attempts.get(&task) else { return };
    if attempt.killing {
        if let Some(attempt) = drop_attempt(books, task) {
            conclude(books, task, &attempt, TaskResult::bare(End::Canceled), out);
        }
        return;
    }
    if give_back_rider(books, task, out) {
        return;
    }
    books.ledger.shorten_chunk(task);
    send_start(books, task, out);
}
