//! Jobs that were read from the store again, after a commit that failed or was refused in part: what is durable takes the
//! place of what the engine thought.

use super::{Attempt, Engine, Outbox, WorkerCommand};
use crate::ids::{JobId, QueueId, TaskId, WorkerId};
use crate::job::{JobRecord, JobState};
use crate::residency::subqueues::ParkedCount;
use crate::time::Time;
use crate::worker::Worker;
use std::collections::BTreeSet;

/// An attempt that was booked when its job was forgotten.
struct BookedBefore {
    task: TaskId,
    queue: QueueId,
    attempt: Attempt,
}

impl Engine {
    /// Puts what the store says of `touched` jobs in the place of what the engine thought, and of how much is
    /// parked. A job without a record does not exist. Every worker is asked to say again what it holds and gets no
    /// new work until it does.
    pub fn reload(
        &mut self,
        now: Time,
        touched: &BTreeSet<JobId>,
        records: Vec<JobRecord>,
        parked: Vec<ParkedCount>,
        out: &mut Outbox,
    ) {
        self.set_now(now);
        let before = self.booked_of(touched);
        for id in touched {
            self.residency.note_change(*id);
            self.forget(*id);
        }
        self.ledger.keys.retain(|_, job| !touched.contains(job));
        self.ledger.recent.remove(touched);
        self.replace(touched, records, &before, out);
        self.residency.set_parked(parked, &mut self.plan.queues, out);
        let ids: Vec<_> = self.plan.workers.iter().map(|w| w.id).collect();
        for id in ids {
            self.plan.workers.update(id, Worker::unlink);
            self.send(id, WorkerCommand::Resync, out);
        }
        self.save_again(out);
        self.follow_workers();
        self.refill(out);
        self.plan.request_round();
    }

    /// What is booked of jobs.
    fn booked_of(&self, jobs: &BTreeSet<JobId>) -> Vec<BookedBefore> {
        let attempts = jobs.iter().flat_map(|id| self.ledger.attempts_of(*id));
        let booked = attempts.filter_map(|(task, attempt)| {
            let job = self.ledger.jobs.get(&task.job)?;
            Some(BookedBefore { task, queue: job.queue, attempt: attempt.clone() })
        });
        booked.collect()
    }

    /// Puts what the store has of jobs in the place of what the engine thought of them.
    fn replace(
        &mut self,
        jobs: &BTreeSet<JobId>,
        records: Vec<JobRecord>,
        before: &[BookedBefore],
        out: &mut Outbox,
    ) {
        let active = records.iter().filter(|record| record.state == JobState::Active).map(|record| record.id);
        let active: BTreeSet<JobId> = active.collect();
        for record in records {
            if record.state != JobState::Active {
                let key = record.spec.key.clone().map(|key| (record.spec.user.clone(), key));
                if let Some(key) = key.clone() {
                    self.ledger.keys.insert(key, record.id);
                }
                self.ledger.remember_end(record.id, record.state, key);
                continue;
            }
            let mut open = self.ledger.open_among(&record.spec.after);
            open.extend(record.spec.after.iter().filter(|id| active.contains(id)));
            self.insert_record(record, open);
        }
        self.keep_volatile(before);
        jobs.iter().for_each(|id| self.ledger.forget_ended(*id));
        self.answer_lost_reclaims(out);
        self.lose_earlier(jobs, out);
        self.wait_again(&active);
        self.drop_settled_dependencies(jobs, out);
    }

    /// What the store has booked under an earlier epoch of its worker is not there any more: another engine booked it.
    fn lose_earlier(&mut self, jobs: &BTreeSet<JobId>, out: &mut Outbox) {
        let attempts = jobs.iter().flat_map(|job| self.ledger.attempts_of(*job));
        let workers: BTreeSet<WorkerId> = attempts.map(|(_, attempt)| attempt.worker).collect();
        workers.into_iter().for_each(|worker| self.lose_attempts(worker, out));
    }

    /// A task that the store does not have booked has no cpus to get back: its waits for them are over.
    fn answer_lost_reclaims(&mut self, out: &mut Outbox) {
        let lost = self.ledger.reclaims.keys().filter(|task| !self.ledger.attempts.contains_key(*task));
        let lost: Vec<TaskId> = lost.copied().collect();
        lost.into_iter().for_each(|task| self.answer_reclaims(task, out));
    }

    /// Restores what is only in memory (start, charge, lent cpus, which message carried it) for each attempt that the
    /// store has under the same number. What any other attempt was charged goes back to its queue.
    fn keep_volatile(&mut self, before: &[BookedBefore]) {
        for BookedBefore { task, queue, attempt: old, .. } in before {
            if self.ledger.attempts.get(task).is_some_and(|attempt| attempt.number == old.number) {
                self.ledger.change_charge(*task, &mut self.plan.queues, |attempt| {
                    attempt.started = old.started;
                    attempt.expects = old.expects;
                    attempt.charged = old.charged;
                    if (attempt.worker, attempt.epoch) == (old.worker, old.epoch) {
                        (attempt.seq, attempt.last) = (old.seq, old.last);
                    }
                });
                self.set_lent(*task, old.lent);
                self.ledger.watch_charge(*task);
            } else {
                self.ledger.refund(*queue, old, &mut self.plan.queues);
            }
        }
    }
}
