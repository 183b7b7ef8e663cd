//! What became of a batch.

use super::{Attempt, Engine, Order, Outbox, Write};
use crate::ids::{JobId, TaskId};
use crate::job::{JobRecord, JobState};
use crate::queues::parked::ParkedCount;
use crate::time::Time;
use crate::worker::Worker;
use std::collections::BTreeSet;

impl Engine {
    /// All writes of `batch` are durable. Ended jobs are forgotten: the store answers for them. Queues and
    /// limits are from now on as they were set.
    pub fn committed(&mut self, batch: &Outbox) {
        self.come_into_force(&batch.writes);
        for id in &batch.ended {
            if self.jobs.get(id).is_some_and(|job| job.ended.is_some()) {
                self.park.has_left(*id);
                self.forget(*id);
            }
        }
    }

    /// The writes of `batch` with these numbers found a row that somebody else had changed; the
    /// others are durable. Returns the jobs to be read again; sends about them must not go out.
    pub fn refused(&mut self, batch: &Outbox, rows: &[usize]) -> BTreeSet<JobId> {
        rows.iter().filter_map(|row| batch.writes.get(*row).and_then(Write::job)).collect()
    }

    /// Nothing of these batches is durable. Returns the jobs that must be read from the store and
    /// given to [`Engine::reload`] before anything else happens.
    pub fn failed<'a>(&mut self, batches: impl IntoIterator<Item = &'a Outbox>) -> BTreeSet<JobId> {
        let mut touched = BTreeSet::new();
        for batch in batches {
            self.fetch_again(batch);
            touched.extend(batch.touched_jobs());
            self.unsaved.extend(batch.writes.iter().filter_map(Write::worker));
        }
        touched
    }

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
        self.now = self.now.max(now);
        let attempts = touched.iter().flat_map(|id| self.attempts_of(*id));
        let before: Vec<(TaskId, Attempt)> =
            attempts.map(|(task, attempt)| (task, attempt.clone())).collect();
        for id in touched {
            self.park.has_left(*id);
            self.forget(*id);
            self.keys.retain(|_, job| job != id);
            self.recent.retain(|(recent, ..)| recent != id);
        }
        let active = records.iter().filter(|record| record.state == JobState::Active).map(|record| record.id);
        let active: BTreeSet<JobId> = active.collect();
        for record in records {
            if record.state != JobState::Active {
                let key = record.spec.key.clone().map(|key| (record.spec.user.clone(), key));
                if let Some(key) = key.clone() {
                    self.keys.insert(key, record.id);
                }
                self.recent.push_back((record.id, record.state, key));
                continue;
            }
            let mut open = self.open_among(&record.spec.after);
            open.extend(record.spec.after.iter().filter(|id| active.contains(id)));
            self.insert_record(record, open);
        }
        self.keep_volatile(before);
        self.wait_again(&active);
        self.drop_settled_dependencies(touched, out);
        self.set_parked(parked, out);
        let ids: Vec<_> = self.workers.iter().map(|w| w.id).collect();
        for id in ids {
            self.workers.update(id, Worker::unlink);
            self.send(id, Order::Resync, out);
        }
        self.save_again(out);
        self.replenish(out);
        self.dirty = true;
    }

    /// After a reload: workers whose rows are not durable as they are here. What was lost with their
    /// earlier epochs was given back by the store and is lost again, in the batch that raises the epoch.
    fn save_again(&mut self, out: &mut Outbox) {
        for id in std::mem::take(&mut self.unsaved) {
            let Some(worker) = self.workers.get(id) else { continue };
            out.writes.push(Write::Worker(worker.record()));
            self.lose_attempts(id, out);
        }
    }

    /// After a reload: what no store knows of attempts that are still the same.
    fn keep_volatile(&mut self, before: Vec<(TaskId, Attempt)>) {
        for (task, old) in before {
            if let Some(attempt) = self.attempts.get_mut(&task).filter(|a| a.number == old.number) {
                attempt.started = old.started;
                (attempt.lent, attempt.expects) = (old.lent, old.expects);
                attempt.charged = old.charged;
                self.watch_charge(task);
            }
        }
    }

    /// After a reload: jobs that had stopped to wait for a job whose end is not durable.
    fn wait_again(&mut self, active: &BTreeSet<JobId>) {
        let waiting = self.jobs.values().filter(|job| job.stop.is_none() && job.ended.is_none());
        let ids: Vec<JobId> = waiting.map(|job| job.id).collect();
        for id in ids {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let spec = job.spec.clone();
            job.after.extend(spec.after.iter().filter(|first| active.contains(first)));
            if !job.after.is_empty() {
                self.stand_aside(id);
            }
            self.refresh_all(id);
        }
    }

    /// After a reload: jobs that wait for a job that the store says has ended do not wait for it.
    fn drop_settled_dependencies(&mut self, touched: &BTreeSet<JobId>, out: &mut Outbox) {
        for id in touched {
            if self.jobs.contains_key(id) {
                continue;
            }
            let outcome = self.recent.iter().find(|(recent, ..)| recent == id).map(|(_, state, _)| *state);
            let waiting: Vec<JobId> =
                self.jobs.values().filter(|j| j.after.contains(id)).map(|j| j.id).collect();
            for job in waiting {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.after.remove(id);
                }
                match outcome {
                    Some(JobState::Succeeded) => self.refresh_all(job),
                    _ => self.stop_job(job, crate::job::Stop::After(*id), out),
                }
            }
        }
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            let after = self.jobs[&id].after.clone();
            for first in after {
                self.dependents.entry(first).or_default().insert(id);
                self.stand_aside(first);
            }
            self.settle_job(id, out);
        }
    }

    /// What a restored engine does first: it ends jobs whose last task ended just before the engine
    /// that knew it was killed, and it lets every lease last anew, for nobody answered beats meanwhile.
    pub fn settle_restored(&mut self, now: Time, out: &mut Outbox) {
        self.now = self.now.max(now);
        self.lease_anew();
        self.back_offs.clip(now);
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            self.settle_job(id, out);
        }
        self.replenish(out);
    }
}
