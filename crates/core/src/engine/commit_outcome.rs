//! What became of a batch: it is durable, or rows of it were refused, or all of it failed.

use super::{Engine, Outbox, Release, WorkerCommand};
use crate::ids::{JobId, RequestId, WorkerId};
use crate::job::JobRecord;
use crate::ledger::{commands, lifecycle, reload, settings};
use crate::residency::subqueues::ParkedCount;
use crate::time::Time;
use crate::worker::{Worker, WorkerRecord};
use std::collections::{BTreeMap, BTreeSet};

impl Engine {
    /// All writes of `batch` are durable, and its messages go out. Ended jobs are forgotten: the store answers for them.
    /// Queues and limits are from now on as they were set.
    pub fn committed(&mut self, batch: &Outbox) {
        for send in &batch.sends {
            self.books.plan.workers.note_out(send.worker, send.seq);
        }
        let is_parked = |id| self.residency.has_queue(id);
        settings::come_into_force(&mut self.books, &batch.writes, is_parked);
        for id in &batch.ended {
            if self.books.ledger.jobs.get(id).is_some_and(|job| job.ended.is_some()) {
                self.residency.forget(*id);
                lifecycle::forget(&mut self.books, *id);
                self.books.ledger.forget_learned(*id);
            }
        }
    }

    /// What may go out of a batch that is durable, but for the writes with these numbers, which found a row that the
    /// engine does not know. One engine owns a farm, so that is rare: retention deleted a job while it was retried, or an
    /// earlier commit was applied late. Nothing that rests on a refused row goes out, and the batch that forms is dropped.
    pub fn release(&mut self, mut batch: Outbox, refused: &[usize], forming: &mut Outbox) -> Release {
        self.commits.drop_outdated(&mut batch, &self.books.plan.workers);
        if refused.is_empty() {
            return Release { batch, ..Release::default() };
        }
        self.books.ledger.learned_early(refused.iter().filter_map(|row| batch.writes.get(*row)));
        let jobs: BTreeSet<JobId> = refused.iter().filter_map(|row| batch.writes.get(*row)?.job()).collect();
        let forming = std::mem::take(forming);
        let mut again = self.failed([&forming]);
        let mut undone: Vec<RequestId> = forming.replies.iter().map(|(request, _)| *request).collect();
        batch.withhold(&jobs, &mut undone);
        // Followers know tasks as succeeded whose ends may not be durable.
        again.extend(self.books.ledger.followers_of(&jobs));
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
            self.books.ledger.learned_early(&batch.writes);
            self.commits.note_unsaved(&batch.writes, &mut self.books);
            touched.extend(batch.touched_jobs());
        }
        for record in before.into_values() {
            self.books.plan.workers.update(record.id, |worker| worker.restore(record));
        }
        self.follow_workers();
        // Followers know tasks as succeeded whose ends may not be durable.
        let followers = self.books.ledger.followers_of(&touched);
        touched.extend(followers);
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
        self.books.plan.set_now(now);
        touched.iter().for_each(|id| self.residency.forget(*id));
        reload::reload(&mut self.books, touched, records, out);
        self.residency.follow(&mut self.books, out);
        self.residency.set_parked(parked, &mut self.books.plan.queues, out);
        let ids: Vec<_> = self.books.plan.workers.iter().map(|w| w.record.id).collect();
        for id in ids {
            self.books.plan.workers.update(id, Worker::unlink);
            commands::send(&mut self.books.plan, id, WorkerCommand::Resync, out);
        }
        self.commits.save_again(&mut self.books, out);
        self.follow_workers();
        self.residency.settle(&mut self.books, out);
        self.books.plan.request_round();
    }
}
