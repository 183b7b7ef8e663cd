//! Refused rows: somebody else changed a job, so what the engine thought of it is worth nothing. The engine forgets
//! the job and asks the store for it, and everything else goes on meanwhile.
//!
//! Until the store answers, the workers that may run tasks of such a job get no new work, and the job's licences and
//! its share of its queue stay taken. Starts and results that these workers report are dropped, for they repeat them when
//! they are asked to say hello again. Beats renew their leases, and the latest hello waits. Requests about such a job wait.

use super::{Attempt, Engine, Event, Outbox, Refusal, Reply, Send, WorkerCommand, Write};
use crate::bounds;
use crate::ids::{JobId, QueueId, RequestId, TaskId, WorkerId};
use crate::job::{JobRecord, JobState};
use crate::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};

/// The jobs that are being read again.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Rereading {
    jobs: BTreeSet<JobId>,
    /// The number of the latest read. Answers to earlier ones are ignored, because jobs were added since.
    read: Option<u64>,
    /// What was booked of them.
    before: Vec<BookedBefore>,
    /// Workers that may run their tasks, each with its latest hello or loss since then.
    workers: BTreeMap<WorkerId, Option<Event>>,
    /// Requests about them, in order.
    waiting: Vec<Event>,
}

/// An attempt that was booked when its job was forgotten.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct BookedBefore {
    task: TaskId,
    queue: QueueId,
    attempt: Attempt,
    /// The limits of its step.
    limits: BTreeSet<String>,
}

/// Whether the engine can go on while jobs are read again.
pub(super) enum Refused {
    /// It reads jobs again and goes on.
    GoesOn {
        /// The jobs of the refused rows.
        named: BTreeSet<JobId>,
        /// These, and all jobs that depend on them, directly or not.
        jobs: BTreeSet<JobId>,
    },
    /// A refused row is of no job, or one of these jobs is parked (in the store only, not in memory) or was about to be, or
    /// tasks of it are with another shard: the pipeline stalls.
    Stalls(BTreeSet<JobId>),
}

impl Rereading {
    pub(super) fn jobs(&self) -> &BTreeSet<JobId> {
        &self.jobs
    }

    /// What was booked of them.
    pub(super) fn before(&self) -> &[BookedBefore] {
        &self.before
    }

    /// True of the read whose answer is waited for.
    pub(super) fn awaits(&self, read: u64) -> bool {
        self.read == Some(read)
    }
}

impl Engine {
    /// Jobs that the engine forgot because rows of them were refused, and that it waits for.
    pub fn jobs_being_reread(&self) -> &BTreeSet<JobId> {
        self.rereading.jobs()
    }

    /// What is to be read again because these rows of `batch` were refused.
    pub(super) fn refused(&self, batch: &Outbox, rows: &[usize], forming: &Outbox) -> Refused {
        let writes: Vec<&Write> = rows.iter().filter_map(|row| batch.writes.get(*row)).collect();
        let named: BTreeSet<JobId> = writes.iter().filter_map(|write| write.job()).collect();
        let mut jobs = named.clone();
        // A dependent job may have started, or have been stopped, because this one was taken to have ended. That end may
        // not be durable.
        loop {
            let after = |job: &crate::job::Job| job.spec.after.iter().any(|first| jobs.contains(first));
            let more: Vec<JobId> = self.jobs.values().filter(|job| after(job)).map(|job| job.id).collect();
            let before = jobs.len();
            jobs.extend(more);
            if jobs.len() == before {
                break;
            }
        }
        let parks = |write: &&Write| matches!(write, Write::Park { .. } | Write::Unpark { .. });
        let mut parking = batch.writes.iter().chain(&forming.writes).filter(parks).filter_map(Write::job);
        let is_parked = parking.any(|job| jobs.contains(&job)) || jobs.iter().any(|job| self.is_parked(*job));
        // Messages are numbered, so those about such a job cannot be dropped alone.
        let tells = |write: &&Write| matches!(write, Write::Tell { .. } | Write::Heard { .. });
        let mut told = batch.writes.iter().chain(&forming.writes).filter(tells).filter_map(Write::job);
        let is_between = jobs.iter().any(|job| self.is_between_shards(*job));
        let is_between = is_between || told.any(|job| jobs.contains(&job));
        if is_parked || is_between || writes.iter().any(|write| write.job().is_none()) {
            Refused::Stalls(named)
        } else {
            Refused::GoesOn { named, jobs }
        }
    }

    /// Forgets jobs and asks for them. What `forming` says of them is dropped. Of `batch`, which is durable but for the
    /// refused rows, only what it says of `named` jobs does not go out. Returns the requests that were not done.
    pub(super) fn reread(
        &mut self,
        named: &BTreeSet<JobId>,
        jobs: BTreeSet<JobId>,
        batch: &mut Outbox,
        forming: &mut Outbox,
    ) -> Vec<RequestId> {
        let dropped =
            forming.writes.iter().filter(|write| write.job().is_some_and(|job| jobs.contains(&job)));
        self.learned_early(dropped);
        forming.writes.retain(|write| write.job().is_none_or(|job| !jobs.contains(&job)));
        forming.ended.retain(|job| !jobs.contains(job));
        let mut workers: BTreeSet<WorkerId> = BTreeSet::new();
        let mut undone = Vec::new();
        for (outbox, jobs) in [(batch, named), (&mut *forming, &jobs)] {
            workers.extend(outbox.sends.iter().filter(|send| is_about(send, jobs)).map(|send| send.worker));
            outbox.withhold(jobs, &mut undone);
        }
        for job in &jobs {
            workers.extend(self.attempts_of(*job).map(|(_, attempt)| attempt.worker));
            self.forget_for_now(*job);
        }
        self.keys.retain(|_, job| !jobs.contains(job));
        self.recent.remove(&jobs);
        self.rereading.jobs.extend(jobs);
        workers.into_iter().for_each(|worker| self.hear_nothing_of(worker));
        self.follow_workers();
        self.ask_again(forming);
        undone
    }

    /// Forgets a job; its licences and its share of its queue stay taken.
    fn forget_for_now(&mut self, id: JobId) {
        let booked = self.booked_of(&BTreeSet::from([id]));
        self.residency.note_change(id);
        self.forget(id);
        for BookedBefore { queue, attempt, limits, .. } in &booked {
            self.plan.queues.hold(*queue, attempt.request.cpu);
            self.licences.count(limits, 1);
        }
        self.rereading.before.extend(booked);
    }

    fn hear_nothing_of(&mut self, worker: WorkerId) {
        self.plan.workers.update(worker, Worker::unlink);
        self.rereading.workers.entry(worker).or_default();
    }

    /// Asks for the jobs once more: an earlier answer would not know of them all, or did not come.
    pub(super) fn ask_again(&mut self, out: &mut Outbox) {
        let jobs = self.rereading.jobs.clone();
        self.rereading.read = Some(self.fetch_jobs_again(jobs, out));
    }

    /// Keeps an event back that is about a job that is being read again, or comes from a worker that may run its tasks.
    /// Returns any other event.
    pub(super) fn unless_rereading(&mut self, event: Event, out: &mut Outbox) -> Option<Event> {
        if self.rereading.jobs.is_empty() {
            return Some(event);
        }
        let worker = match &event {
            Event::Hello(hello) => self.plan.workers.by_name(&hello.name).map(|worker| worker.id),
            Event::Lost { worker } | Event::Forget { worker, .. } | Event::Beat { worker, .. } => {
                Some(*worker)
            }
            Event::Started { by, .. } | Event::Finished { by, .. } | Event::Reclaimed { by } => {
                if self.rereading.jobs.contains(&by.task.job) {
                    self.hear_nothing_of(by.worker);
                }
                Some(by.worker)
            }
            _ => None,
        };
        if let Some(worker) = worker.filter(|worker| self.rereading.workers.contains_key(worker)) {
            self.keep_back(worker, event, out);
            return None;
        }
        if self.named_by_request(&event).iter().any(|job| self.rereading.jobs.contains(job)) {
            self.wait_for_reread(event, out);
            return None;
        }
        Some(event)
    }

    fn keep_back(&mut self, worker: WorkerId, event: Event, out: &mut Outbox) {
        match event {
            Event::Hello(_) | Event::Lost { .. } => _ = self.rereading.workers.insert(worker, Some(event)),
            Event::Forget { .. } => self.wait_for_reread(event, out),
            Event::Beat { sent, .. } => {
                self.renew(worker, out);
                self.grant(worker, sent, out);
            }
            _ => {}
        }
    }

    fn wait_for_reread(&mut self, event: Event, out: &mut Outbox) {
        let (is, max) = (self.rereading.waiting.len() as u64, bounds::REREAD_WAITING_MAX as u64);
        match event.request() {
            Some(request) if is >= max => {
                let what = "requests about jobs that are being read again";
                out.answers.push((request, Reply::Refused(Refusal::TooMany { what, is, max })));
            }
            // A task that is to lend its cpus keeps them.
            None if is >= max => {}
            _ => self.rereading.waiting.push(event),
        }
    }

    fn named_by_request(&self, event: &Event) -> Vec<JobId> {
        match event {
            Event::Cancel { job, .. }
            | Event::Hold { job, .. }
            | Event::Prioritize { job, .. }
            | Event::Retry { job, .. } => vec![*job],
            Event::Lend { task } | Event::Reclaim { task, .. } => vec![task.job],
            Event::Submit(submit) => submit.spec.after.clone(),
            _ => Vec::new(),
        }
    }

    /// The store answered what it has of the jobs.
    pub(super) fn jobs_read_again(&mut self, records: Vec<JobRecord>, out: &mut Outbox) {
        let rereading = self.take_rereading();
        self.replace(&rereading.jobs, records, &rereading.before, out);
        for worker in rereading.workers.keys() {
            // It may have a new epoch since: what it had under an earlier one is lost.
            self.lose_attempts(*worker, out);
            self.send(*worker, WorkerCommand::Resync, out);
        }
        self.act_on_waiting(rereading, out);
        self.refill(out);
        self.plan.request_round();
    }

    /// Nothing is being read again from now on. What stayed taken is free: what the store answers takes it.
    pub(super) fn take_rereading(&mut self) -> Rereading {
        let rereading = std::mem::take(&mut self.rereading);
        for BookedBefore { queue, attempt, limits, .. } in &rereading.before {
            self.plan.queues.settle(*queue, attempt.request.cpu);
            self.licences.count(limits, -1);
        }
        rereading
    }

    /// What is booked of jobs.
    pub(super) fn booked_of(&self, jobs: &BTreeSet<JobId>) -> Vec<BookedBefore> {
        let attempts = jobs.iter().flat_map(|id| self.attempts_of(*id));
        let booked = attempts.filter_map(|(task, attempt)| {
            let job = self.jobs.get(&task.job)?;
            let limits = match attempt.rides {
                true => BTreeSet::new(),
                false => job.spec.steps[usize::from(job.step_of(task.index))].limits.clone(),
            };
            Some(BookedBefore { task, queue: job.queue, attempt: attempt.clone(), limits })
        });
        booked.collect()
    }

    /// What was kept back happens.
    pub(super) fn act_on_waiting(&mut self, rereading: Rereading, out: &mut Outbox) {
        for event in rereading.workers.into_values().flatten().chain(rereading.waiting) {
            self.act_with_jobs(event, BTreeMap::new(), out);
        }
    }

    /// Puts what the store has of jobs in the place of what the engine thought of them.
    pub(super) fn replace(
        &mut self,
        jobs: &BTreeSet<JobId>,
        records: Vec<JobRecord>,
        before: &[BookedBefore],
        out: &mut Outbox,
    ) {
        let (others, records): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| self.is_others(record));
        let others: BTreeSet<JobId> = others.iter().map(|record| record.id).collect();
        let jobs: BTreeSet<JobId> = jobs.difference(&others).copied().collect();
        let active = records.iter().filter(|record| record.state == JobState::Active).map(|record| record.id);
        let active: BTreeSet<JobId> = active.collect();
        for record in records {
            if record.state != JobState::Active {
                let key = record.spec.key.clone().map(|key| (record.spec.user.clone(), key));
                if let Some(key) = key.clone() {
                    self.keys.insert(key, record.id);
                }
                self.remember_end(record.id, record.state, key);
                continue;
            }
            let mut open = self.open_among(&record.spec.after);
            let is_open = |id: &&JobId| active.contains(id) || self.is_elsewhere(**id);
            open.extend(record.spec.after.iter().filter(is_open));
            self.insert_record(record, open);
        }
        self.keep_volatile(before);
        jobs.iter().for_each(|id| self.forget_ended(*id));
        self.answer_lost_reclaims(out);
        self.lose_earlier(&jobs, out);
        self.wait_again(&active);
        self.drop_settled_dependencies(&jobs, out);
    }

    /// What the store has booked under an earlier epoch of its worker is not there any more: another engine booked it.
    fn lose_earlier(&mut self, jobs: &BTreeSet<JobId>, out: &mut Outbox) {
        let attempts = jobs.iter().flat_map(|job| self.attempts_of(*job));
        let workers: BTreeSet<WorkerId> = attempts.map(|(_, attempt)| attempt.worker).collect();
        workers.into_iter().for_each(|worker| self.lose_attempts(worker, out));
    }

    /// A task that the store does not have booked has no cpus to get back: its waits for them are over.
    fn answer_lost_reclaims(&mut self, out: &mut Outbox) {
        let lost = self.reclaims.keys().filter(|task| !self.attempts.contains_key(*task));
        let lost: Vec<TaskId> = lost.copied().collect();
        lost.into_iter().for_each(|task| self.answer_reclaims(task, out));
    }

    /// Restores what is only in memory (start, charge, lent cpus, which message carried it) for each attempt that the
    /// store has under the same number. What any other attempt was charged goes back to its queue.
    fn keep_volatile(&mut self, before: &[BookedBefore]) {
        for BookedBefore { task, queue, attempt: old, .. } in before {
            if self.attempts.get(task).is_some_and(|attempt| attempt.number == old.number) {
                self.change_charge(*task, |attempt| {
                    attempt.started = old.started;
                    attempt.expects = old.expects;
                    attempt.charged = old.charged;
                    if (attempt.worker, attempt.epoch) == (old.worker, old.epoch) {
                        (attempt.seq, attempt.last) = (old.seq, old.last);
                    }
                });
                self.set_lent(*task, old.lent);
                self.watch_charge(*task);
            } else {
                self.refund(*queue, old);
            }
        }
    }

    /// The limits that attempts of jobs that are being read again keep, each as often as it is taken.
    pub(super) fn limits_kept(&self) -> impl Iterator<Item = &String> {
        self.rereading.before.iter().flat_map(|booked| &booked.limits)
    }

    /// Attempts of jobs that are being read again, counted for a whole queue.
    pub(super) fn kept_active(&self, queue: QueueId) -> usize {
        self.rereading.before.iter().filter(|booked| self.plan.queues.whole(booked.queue) == queue).count()
    }
}

fn is_about(send: &Send, jobs: &BTreeSet<JobId>) -> bool {
    send.order.job().is_some_and(|job| jobs.contains(&job))
}
