//! What licences do to steps and workers: which are taken by a booking, which were busy, and which steps wait for them.

use super::{Attempt, Engine, Outbox, Write};
use crate::ids::{JobId, StepKey, TaskId, WorkerId};
use crate::job::End;
use crate::time::Time;
use std::collections::BTreeSet;

impl Engine {
    /// A task of the step that is booked on the worker takes one of each of its limits (`by` 1), or gives it back
    /// (`by` -1).
    pub(super) fn take_limits(&mut self, key: StepKey, worker: WorkerId, by: i32) {
        let Some(job) = self.ledger.jobs.get(&key.job) else { return };
        let names = &job.spec.steps[usize::from(key.step)].limits;
        if names.is_empty() {
            return;
        }
        self.licences.count(names, by);
        let licences = &self.licences;
        let freed = self.plan.workers.update(worker, |w| {
            let mut freed = false;
            for name in names {
                freed |= w.licences.take(name, licences.max_per_worker(name), by);
            }
            freed
        });
        if freed == Some(true) {
            self.plan.workers.gained(worker);
        }
    }

    /// A limit was set or dropped: workers that hold some may hold more, or less.
    pub(super) fn cap_workers(&mut self, name: &str) {
        let max = self.licences.max_per_worker(name);
        let holders: Vec<WorkerId> =
            self.plan.workers.iter().filter(|worker| worker.licences.held(name) > 0).map(|w| w.id).collect();
        for id in holders {
            self.plan.workers.update(id, |worker| worker.licences.cap(name, max));
            self.plan.workers.gained(id);
        }
    }

    /// The limit of its step that an attempt found busy, as its end says.
    pub(super) fn busy_limit(&self, key: StepKey, end: &End) -> Option<String> {
        let End::Exited(exit) = end else { return None };
        let spec = self.ledger.jobs.get(&key.job)?.spec.steps.get(usize::from(key.step))?;
        self.licences.busy(&spec.limits, *exit).map(str::to_owned)
    }

    /// A licence was busy: the step starts nothing for a while, and what it has in backlogs comes back.
    pub(super) fn begin_back_off(&mut self, key: StepKey, limit: &str, booked: Time, out: &mut Outbox) {
        if !self.licences.begin_back_off(key, limit, booked, self.now) {
            return;
        }
        self.save_back_offs(key.job, None, out);
        let of_step =
            |(task, attempt): &(TaskId, &Attempt)| attempt.queued && self.ledger.key_of(*task) == key;
        let queued = self.ledger.attempts_of(key.job).filter(of_step);
        let queued: Vec<_> = queued.map(|(task, attempt)| (task, attempt.number, attempt.worker)).collect();
        self.recall(queued, out);
    }

    /// A task of the step succeeded, so there were licences.
    pub(super) fn had_licence(&mut self, key: StepKey, out: &mut Outbox) {
        if self.licences.succeeded(key, self.now) {
            self.save_back_offs(key.job, None, out);
        }
    }

    /// Steps whose back-off is over stand in their queues again.
    pub(super) fn end_back_offs(&mut self) {
        while let Some(key) = self.licences.end_back_off(self.now) {
            self.refresh(key);
        }
    }

    /// A limit is being set: the store forgets which steps found it busy, for these are tried again when that is
    /// durable.
    pub(super) fn write_tried_again(&self, limit: &str, out: &mut Outbox) {
        let jobs: BTreeSet<JobId> = self.licences.found_busy(limit).map(|key| key.job).collect();
        jobs.into_iter().for_each(|job| self.save_back_offs(job, Some(limit), out));
    }

    /// Steps that found this limit busy are tried again.
    pub(super) fn try_again(&mut self, limit: &str) {
        let keys: Vec<StepKey> = self.licences.found_busy(limit).collect();
        for key in keys {
            self.licences.drop_back_off(key);
            self.refresh(key);
        }
    }

    /// What a store keeps of a job: the back-offs of all its steps, except those that found the limit `but` busy.
    fn save_back_offs(&self, job: JobId, but: Option<&str>, out: &mut Outbox) {
        let known = self.licences.back_offs_of(job);
        let kept = known.filter(|(_, back_off)| Some(&*back_off.limit) != but);
        let steps = kept.map(|(key, known)| (key.step, known.clone())).collect();
        out.writes.push(Write::LicenceBackoffs { job, steps });
    }
}
