//! A task that waits for jobs of its own lends its cpus: others may use them, and its wait is over
//! only when it has them again. So a worker is never booked beyond its cpus, and a run inside a task
//! cannot block itself. Memory is not lent: the waiting process still holds it; what it was only expected to
//! hold is given up.

use super::{Engine, Outbox, Reply, Report, WorkerCommand};
use crate::ids::{RequestId, TaskId, WorkerId};
use crate::ledger::Lent;

impl Engine {
    pub(super) fn lend(&mut self, task: TaskId, out: &mut Outbox) {
        let request = self.ledger.request_of(task);
        // Who lends runs, whether its worker's word of that arrived or not.
        self.mark_started(task, self.now, out);
        if self.ledger.attempts.get(&task).is_none_or(|attempt| attempt.lent == Lent::Yes) {
            return;
        }
        // It waits for another job already while its cpus are asked back: they stay lent.
        if self.set_lent(task, Lent::Yes) == Lent::Reclaiming {
            self.answer_reclaims(task, out);
        }
        let Some(attempt) = self.ledger.attempts.get_mut(&task) else { return };
        let expects = std::mem::take(&mut attempt.expects);
        let (worker, attempt) = (attempt.worker, attempt.number);
        self.plan.workers.update(worker, |w| {
            w.booked.cpu = w.booked.cpu.saturating_sub(request.cpu);
            w.expected = w.expected.saturating_sub(expects);
        });
        self.send(worker, WorkerCommand::Lend { task, attempt }, out);
        self.promote(worker);
        self.recall_backlog(worker, out);
        self.plan.request_round();
    }

    /// Whether an attempt's cpus are lent from now on; returns whether they were. Its worker counts those that
    /// lend.
    pub(super) fn set_lent(&mut self, task: TaskId, lent: Lent) -> Lent {
        let Some(attempt) = self.ledger.attempts.get_mut(&task) else { return Lent::No };
        let (was, worker) = (std::mem::replace(&mut attempt.lent, lent), attempt.worker);
        let (before, after) = (u32::from(was != Lent::No), u32::from(lent != Lent::No));
        if before != after {
            self.plan.workers.update(worker, |w| w.lending = w.lending + after - before);
        }
        was
    }

    /// A worker starts in order. What it was sent ahead may need what the lending task goes on holding,
    /// and the jobs that this task waits for would stand behind it for ever.
    fn recall_backlog(&mut self, id: WorkerId, out: &mut Outbox) {
        let Some(worker) = self.plan.workers.get(id) else { return };
        let queued = worker.backlog.iter();
        let queued =
            queued.filter_map(|task| Some((*task, self.ledger.attempts.get(task)?.number, id))).collect();
        self.recall(queued, out);
    }

    pub(super) fn reclaim(&mut self, request: RequestId, task: TaskId, out: &mut Outbox) {
        let cpu = self.ledger.request_of(task).cpu;
        // Adopted, and its worker not heard from: only the worker knows whether it had lent.
        let unheard = self.ledger.attempts.get(&task).is_some_and(|a| a.queued);
        if unheard {
            self.mark_started(task, self.now, out);
        }
        let Some(attempt) = self.ledger.attempts.get(&task).filter(|a| unheard || a.lent != Lent::No) else {
            out.answers.push((request, Reply::Done));
            return;
        };
        self.ledger.reclaims.entry(task).or_default().push(request);
        let (worker, attempt) = (attempt.worker, attempt.number);
        match self.set_lent(task, Lent::Reclaiming) {
            Lent::Reclaiming => return,
            // From now on nothing new is booked on these cpus; the worker says when they are free.
            Lent::Yes => _ = self.plan.workers.update(worker, |w| w.booked.cpu += cpu),
            Lent::No => {}
        }
        self.send(worker, WorkerCommand::Reclaim { task, attempt }, out);
    }

    pub(super) fn reclaimed(&mut self, by: Report, out: &mut Outbox) {
        self.plan.workers.hear(by.worker, self.now);
        if !self.is_current(&by) {
            return;
        }
        if self.ledger.attempts.get(&by.task).is_some_and(|attempt| attempt.lent == Lent::Reclaiming) {
            self.set_lent(by.task, Lent::No);
            self.make_room(by.worker, by.task);
        }
        self.answer_reclaims(by.task, out);
    }

    /// Whoever waits for the task's cpus waits no more: it has them, or has ended.
    pub(super) fn answer_reclaims(&mut self, task: TaskId, out: &mut Outbox) {
        for request in self.ledger.reclaims.remove(&task).unwrap_or_default() {
            out.answers.push((request, Reply::Done));
        }
    }
}
