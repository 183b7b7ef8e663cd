//! Tasks that can use more cpus than they must have ([`Hints::cpus_max`](crate::job::Hints)): they are booked with the
//! least, and take what is idle beside them once nothing else that waits has a use for it. What a task with a jobserver
//! may run moves while it runs, and is never booked: see [`super::shares`].

use super::charge::charge_more;
use super::{Books, Ledger, WideTask};
use crate::ids::{QueueId, StepKey, TaskId, WorkerId};
use crate::job::StepSpec;
use crate::outbox::{Outbox, WorkerCommand, Write};
use std::collections::BTreeMap;

/// Notes a task that was just booked, if it can use more than it holds. Its row is at or after `write` in the batch,
/// and its order is the last one.
pub(super) fn note_wide(
    ledger: &mut Ledger,
    key: StepKey,
    index: u32,
    queue: QueueId,
    write: usize,
    out: &Outbox,
) {
    let hints = ledger.spec_of(key).map(|StepSpec { hints, .. }| hints);
    let wide = hints.filter(|hints| hints.jobserver.is_none());
    let Some(cpus_max) = wide.and_then(|hints| hints.cpus_max) else { return };
    let task = TaskId { job: key.job, index };
    let row =
        out.writes[write..].iter().position(|row| matches!(row, Write::Book { task: of, .. } if *of == task));
    let (Some(row), Some(attempt)) = (row, ledger.attempts.get(&task)) else { return };
    if attempt.queued || out.sends.is_empty() {
        return;
    }
    let (write, send) = (write + row, out.sends.len() - 1);
    ledger.wide.push(WideTask { task, worker: attempt.worker, queue, cpus_max, write, send });
}

/// Nothing else that waits fits: what was booked in this round and can use more cpus gets what is idle on its worker,
/// shared evenly. A worker that is reserved, or whose room is promised to a task that was sent ahead, has nothing to
/// give.
pub(crate) fn widen_booked(books: &mut Books, out: &mut Outbox) {
    let mut of_worker: BTreeMap<WorkerId, Vec<WideTask>> = BTreeMap::new();
    for wide in std::mem::take(&mut books.ledger.wide) {
        of_worker.entry(wide.worker).or_default().push(wide);
    }
    for (id, mut tasks) in of_worker {
        let worker = books.plan.workers.get(id).filter(|worker| worker.booked.backlog().is_empty());
        let Some(worker) = worker else { continue };
        // What builds use is not idle, and a task would keep it to its end.
        let used_cpu = worker.booked.used_unbooked_cpu(worker.record.capacity.cpu);
        let mut room = worker.room().cpu.saturating_sub(used_cpu);
        if books.plan.reserved().contains_key(&id) {
            continue;
        }
        // What one cannot use is left to those that can use more.
        tasks.sort_by_key(|wide| wide.cpus_max);
        let mut left = tasks.len() as u32;
        for wide in tasks {
            room -= widen(books, &wide, room / left, out);
            left -= 1;
        }
    }
}

/// Gives a task up to `most` more, in hundredths of a core, and returns what it gave. A task with whole cores gets whole
/// cores.
fn widen(books: &mut Books, wide: &WideTask, most: u32, out: &mut Outbox) -> u32 {
    let WideTask { task, worker, queue, .. } = *wide;
    let key = books.ledger.key_of(task);
    // Others of its step may wait for something else than room, and will want the room next.
    if books.ledger.step(key).is_none_or(|step| !step.ready.is_empty()) {
        return 0;
    }
    let Some(attempt) = books.ledger.attempts.get(&task) else { return 0 };
    let held = attempt.request.cpu;
    let more = most.min(wide.cpus_max.saturating_sub(held));
    let more = more.min(books.plan.queues.room_in_quota(queue).unwrap_or(u32::MAX));
    let more = if held.is_multiple_of(100) { more - more % 100 } else { more };
    if more == 0 {
        return 0;
    }
    books.plan.workers.update(worker, |worker| worker.booked.widen(key, more));
    books.plan.queues.recount(queue, held, held + more);
    charge_more(books, task, queue, more);
    if let Some(Write::Book { amounts, .. }) = out.writes.get_mut(wide.write) {
        amounts.0 += more;
    }
    if let Some(WorkerCommand::Start { request, .. }) =
        out.sends.get_mut(wide.send).map(|send| &mut send.command)
    {
        request.cpu += more;
    }
    more
}
