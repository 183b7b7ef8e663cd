//! What became of a batch.

use super::{Engine, Outbox, Release, WorkerCommand, Write};
use crate::ids::{JobId, RequestId, WorkerId};
use crate::job::JobState;
use crate::time::Time;
use crate::worker::WorkerRecord;
use std::collections::{BTreeMap, BTreeSet};

impl Engine {
    /// All writes of `batch` are durable, and its messages go out. Ended jobs are forgotten: the store answers for them.
    /// Queues and limits are from now on as they were set.
    pub fn committed(&mut self, batch: &Outbox) {
        for send in &batch.sends {
            self.plan.workers.note_out(send.worker, send.seq);
        }
        self.come_into_force(&batch.writes);
        for id in &batch.ended {
            if self.ledger.jobs.get(id).is_some_and(|job| job.ended.is_some()) {
                self.residency.note_change(*id);
                self.forget(*id);
                self.ledger.forget_learned(*id);
            }
        }
    }

    /// What may go out of a batch that is durable, but for the writes with these numbers, which found a row that the
    /// engine does not know. One engine owns a farm, so that is rare: retention deleted a job while it was retried, or an
    /// earlier commit was applied late. Nothing that rests on a refused row goes out, and the batch that forms is dropped.
    pub fn release(&mut self, mut batch: Outbox, refused: &[usize], forming: &mut Outbox) -> Release {
        if self.greetings > 0 {
            // What was meant for the connection before the last hello is nothing for the one after it: a lease
            // counts from a clock that may be another machine's. A wish for another hello holds. Reports that came
            // behind the last one may have been dropped before the wish, and are repeated after the next.
            self.greetings -= 1;
            let workers = &self.plan.workers;
            batch.sends.retain(|send| {
                let is_resync = matches!(send.order, WorkerCommand::Resync);
                workers.get(send.worker).is_some_and(|w| is_resync || send.seq >= w.welcome_seq)
            });
        }
        if refused.is_empty() {
            return Release { batch, ..Release::default() };
        }
        self.ledger.learned_early(refused.iter().filter_map(|row| batch.writes.get(*row)));
        let jobs: BTreeSet<JobId> = refused.iter().filter_map(|row| batch.writes.get(*row)?.job()).collect();
        let forming = std::mem::take(forming);
        let mut again = self.failed([&forming]);
        let mut undone: Vec<RequestId> = forming.answers.iter().map(|(request, _)| *request).collect();
        batch.withhold(&jobs, &mut undone);
        again.extend(jobs);
        Release { batch, undone, again: Some(again) }
    }

    /// Nothing of these batches is durable. Returns the jobs that must be read from the store and
    /// given to [`Engine::reload`] before anything else happens.
    pub fn failed<'a>(&mut self, batches: impl IntoIterator<Item = &'a Outbox>) -> BTreeSet<JobId> {
        let mut touched = BTreeSet::new();
        let mut before: BTreeMap<WorkerId, &WorkerRecord> = BTreeMap::new();
        for batch in batches {
            for record in &batch.before {
                before.entry(record.id).or_insert(record);
            }
            self.residency.fetch_again(batch);
            self.ledger.learned_early(&batch.writes);
            self.save_histories_again(&batch.writes);
            self.prune_again(&batch.writes);
            self.save_turns_again(&batch.writes);
            self.note_unsure_settings(&batch.writes);
            touched.extend(batch.touched_jobs());
            self.unsaved.extend(batch.writes.iter().filter_map(Write::worker));
        }
        for record in before.into_values() {
            self.plan.workers.update(record.id, |worker| worker.restore(record));
        }
        self.follow_workers();
        touched
    }

    /// After a reload: workers whose rows are not durable as they are here. What was lost with their
    /// earlier epochs was given back by the store and is lost again, in the batch that raises the epoch.
    pub(super) fn save_again(&mut self, out: &mut Outbox) {
        let gone = std::mem::take(&mut self.unsaved_gone);
        out.writes.extend(gone.into_iter().map(Write::WorkerGone));
        self.save_settings_again(out);
        for id in std::mem::take(&mut self.unsaved) {
            let Some(worker) = self.plan.workers.get(id) else { continue };
            out.writes.push(Write::Worker(worker.record()));
            self.lose_attempts(id, out);
        }
    }

    /// After a reload: jobs that had stopped to wait for a job whose end is not durable.
    pub(super) fn wait_again(&mut self, active: &BTreeSet<JobId>) {
        let waiting = self.ledger.jobs.values().filter(|job| job.stop.is_none() && job.ended.is_none());
        let ids: Vec<JobId> = waiting.map(|job| job.id).collect();
        for id in ids {
            let Some(job) = self.ledger.jobs.get_mut(&id) else { continue };
            let spec = job.spec.clone();
            job.after.extend(spec.after.iter().filter(|first| active.contains(first)));
            if !job.after.is_empty() {
                self.residency.pin_in_next_batch(id);
            }
            self.refresh_all(id);
        }
    }

    /// After a reload: jobs that wait for a job that the store says has ended do not wait for it.
    pub(super) fn drop_settled_dependencies(&mut self, touched: &BTreeSet<JobId>, out: &mut Outbox) {
        for id in touched {
            if self.ledger.jobs.contains_key(id) {
                continue;
            }
            // Whatever waited for it waits no more.
            self.ledger.dependents.remove(id);
            let outcome = self.ledger.recent.get(*id);
            let waiting: Vec<JobId> =
                self.ledger.jobs.values().filter(|j| j.after.contains(id)).map(|j| j.id).collect();
            for job in waiting {
                if let Some(job) = self.ledger.jobs.get_mut(&job) {
                    job.after.remove(id);
                }
                match outcome {
                    Some(JobState::Succeeded) => self.refresh_all(job),
                    _ => self.stop_job(job, crate::job::Stop::After(*id), out),
                }
            }
        }
        let ids: Vec<JobId> = self.ledger.jobs.keys().copied().collect();
        for id in ids {
            let after = self.ledger.jobs[&id].after.clone();
            for first in after {
                self.ledger.dependents.entry(first).or_default().insert(id);
                self.residency.pin_in_next_batch(first);
            }
            self.settle_job(id, out);
        }
    }

    /// What a restored engine does first: it ends jobs whose last task ended just before the engine
    /// that knew it was killed, and it lets every lease last anew, for nobody answered beats meanwhile.
    pub fn settle_restored(&mut self, now: Time, out: &mut Outbox) {
        self.set_now(now);
        self.lease_anew();
        self.take_up_charges();
        self.greet_all();
        self.licences.clip_back_offs(now);
        let ids: Vec<JobId> = self.ledger.jobs.keys().copied().collect();
        for id in ids {
            self.settle_job(id, out);
        }
        self.refill(out);
        self.plan.queues.settle_restored();
    }
}
