//! The turns of queues over restarts: what of them a batch writes, and what a restored engine makes of the charges of
//! tasks that are booked.

use super::{Engine, Outbox, Write};
use crate::ids::{QueueId, TaskId};
use crate::queues::{Charge, RestoredAdvance, cost};
use std::collections::BTreeMap;

impl Engine {
    /// Adds to a batch the turns that have changed since they were written last. A batch that writes has them by itself
    /// (see [`Pipeline::next_batch`](super::Pipeline::next_batch)); this is for the last batch of a server that ends.
    pub fn save_turns(&mut self, out: &mut Outbox) {
        let turns = self.plan.queues.take_changed_turns();
        if !turns.is_empty() {
            out.writes.push(Write::Turns(turns));
        }
    }

    /// These were not durable, and are written again as they are then.
    pub(super) fn save_turns_again(&mut self, writes: &[Write]) {
        for write in writes {
            if let Write::Turns(turns) = write {
                self.plan.queues.save_turns_again(turns);
            }
        }
    }

    /// A restored engine knows what time it is: what runs is charged from now on. What the engine before it had charged a
    /// queue in advance is spread evenly over its attempts, so that none of it is charged twice or given back before
    /// the tasks have run.
    pub(super) fn take_up_charges(&mut self) {
        let (now, goes_on) = (self.now, self.goes_on && self.turn.charge == Charge::Task);
        let mut parts: BTreeMap<QueueId, Vec<TaskId>> = BTreeMap::new();
        for (task, attempt) in &mut self.ledger.attempts {
            // Nothing was charged in advance yet, so no books change with these.
            (attempt.charged.from, attempt.charged.counted) = (now, goes_on);
            if let Some(job) = self.ledger.jobs.get(&task.job) {
                parts.entry(job.queue).or_default().push(*task);
            }
        }
        if self.turn.charge == Charge::Task {
            return;
        }
        let advances = self.plan.queues.restored_advances();
        let mut assigned: BTreeMap<QueueId, i64> = BTreeMap::new();
        for (part, advance) in &advances {
            let tasks = parts.remove(part).unwrap_or_default();
            let charged = self.spread(&tasks, advance.part);
            *assigned.entry(self.plan.queues.whole(*part)).or_default() += charged;
            self.plan.queues.correct_restored_part(*part, charged - advance.part as i64);
        }
        for (part, RestoredAdvance { whole, .. }) in advances {
            if self.plan.queues.whole(part) == part {
                let charged = assigned.get(&part).copied().unwrap_or(0);
                self.plan.queues.correct_restored_whole(part, charged - whole as i64);
            }
        }
    }

    /// Charges attempts of one part of a queue so much together, each for the same time. Returns what they were charged.
    fn spread(&mut self, tasks: &[TaskId], ahead: u64) -> i64 {
        let rate =
            |task: &TaskId| self.ledger.attempts.get(task).map_or(0, |attempt| attempt.charged.share.max(1));
        let rate: u64 = tasks.iter().map(|task| u64::from(rate(task))).sum();
        let ms = ahead.checked_div(rate).unwrap_or(0);
        if ms == 0 {
            return 0;
        }
        for task in tasks {
            self.ledger.change_charge(*task, &mut self.plan.queues, |attempt| {
                (attempt.charged.ms, attempt.charged.counted) = (ms, true)
            });
        }
        let charged = |task: &TaskId| {
            self.ledger.attempts.get(task).map_or(0, |attempt| cost(attempt.charged.share, ms))
        };
        tasks.iter().map(charged).sum::<u64>() as i64
    }
}
