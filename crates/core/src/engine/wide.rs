//! Tasks that can use more cpus than they must have ([`Hints::cpus_max`](crate::job::Hints)): they are booked with the
//! least, and take what is idle beside them once nothing else that waits has a use for it.

use super::{Engine, Outbox, WorkerCommand, Write};
use crate::ids::{QueueId, StepKey, TaskId, WorkerId};
use crate::job::StepSpec;
use std::collections::BTreeMap;

/// A task that was booked in this round and can use more cpus.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct WideTask {
    task: TaskId,
    worker: WorkerId,
    queue: QueueId,
    /// Hundredths of a core that it can use at most.
    cpus_max: u32,
    /// Where its row stands among the writes of the batch, and its order among the sends.
    write: usize,
    send: usize,
}

impl Engine {
    /// Notes a task that was just booked, if it can use more than it holds. Its row is at or after `write` in the batch,
    /// and its order is the last one.
    pub(super) fn note_wide(&mut self, key: StepKey, index: u32, queue: QueueId, write: usize, out: &Outbox) {
        let spec = self.ledger.spec_of(key);
        let Some(cpus_max) = spec.and_then(|StepSpec { hints, .. }| hints.cpus_max) else { return };
        let task = TaskId { job: key.job, index };
        let row = out.writes[write..]
            .iter()
            .position(|row| matches!(row, Write::Book { task: of, .. } if *of == task));
        let (Some(row), Some(attempt)) = (row, self.ledger.attempts.get(&task)) else { return };
        if attempt.queued || out.sends.is_empty() {
            return;
        }
        let (write, send) = (write + row, out.sends.len() - 1);
        self.wide.push(WideTask { task, worker: attempt.worker, queue, cpus_max, write, send });
    }

    /// Nothing else that waits fits: what was booked in this round and can use more cpus gets what is idle on its worker,
    /// shared evenly. A worker that is reserved, or whose room is promised to a task that was sent ahead, has nothing to
    /// give.
    pub(super) fn widen_booked(&mut self, out: &mut Outbox) {
        let mut of_worker: BTreeMap<WorkerId, Vec<WideTask>> = BTreeMap::new();
        for wide in std::mem::take(&mut self.wide) {
            of_worker.entry(wide.worker).or_default().push(wide);
        }
        for (id, mut tasks) in of_worker {
            let worker = self.plan.workers.get(id).filter(|worker| worker.backlog.is_empty());
            let Some(mut room) = worker.map(|worker| worker.room().cpu) else { continue };
            if self.plan.reserved().contains_key(&id) {
                continue;
            }
            // What one cannot use is left to those that can use more.
            tasks.sort_by_key(|wide| wide.cpus_max);
            let mut left = tasks.len() as u32;
            for wide in tasks {
                room -= self.widen(&wide, room / left, out);
                left -= 1;
            }
        }
    }

    /// Gives a task up to `most` more, in hundredths of a core, and returns what it gave. A task with whole cores gets whole
    /// cores.
    fn widen(&mut self, wide: &WideTask, most: u32, out: &mut Outbox) -> u32 {
        let WideTask { task, worker, queue, .. } = *wide;
        let key = self.ledger.key_of(task);
        // Others of its step may wait for something else than room, and will want the room next.
        if self.ledger.step(key).is_none_or(|step| !step.ready.is_empty()) {
            return 0;
        }
        let Some(attempt) = self.ledger.attempts.get(&task) else { return 0 };
        let held = attempt.request.cpu;
        let more = most.min(wide.cpus_max.saturating_sub(held));
        let more = more.min(self.plan.queues.room_in_quota(queue).unwrap_or(u32::MAX));
        let more = if held.is_multiple_of(100) { more - more % 100 } else { more };
        if more == 0 {
            return 0;
        }
        self.plan.workers.update(worker, |worker| worker.widen(key, more));
        self.plan.queues.widen(queue, more);
        self.charge_more(task, queue, more);
        if let Some(Write::Book { amounts, .. }) = out.writes.get_mut(wide.write) {
            amounts.0 += more;
        }
        if let Some(WorkerCommand::Start { request, .. }) =
            out.sends.get_mut(wide.send).map(|send| &mut send.order)
        {
            request.cpu += more;
        }
        more
    }
}
