//! What bookings cost their queues. In charge `time` that is the time for which they hold their dominant share
//! of a worker, as if in cores of it: an estimate when they are booked, never less than what they have run
//! already, and what it was when they end.

use super::{Attempt, Engine};
use crate::ids::{JobId, QueueId, StepKey, TaskId, WorkerId};
use crate::ledger::Charged;
use crate::queues::{ADVANCE, Advance, Charge, UNKNOWN_MS, cost, dominant_share};
use crate::resources::Resources;
use crate::time::{NS_PER_MS, NS_PER_S, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A task that runs longer than it was charged for is charged as much again, up to a minute, and no less than
/// an eighth of what it has run: it is looked at some times, and not each minute of a month.
const ACCRUAL_NS: std::ops::RangeInclusive<u64> = NS_PER_S..=60 * NS_PER_S;

impl Engine {
    /// What a booking is charged at first.
    pub(super) fn estimate(
        &self,
        key: StepKey,
        profile: u64,
        queue: QueueId,
        worker: WorkerId,
        request: &Resources,
        expects: u64,
    ) -> Charged {
        let known = self.ledger.step(key).and_then(|step| step.mean_ms);
        let known =
            known.or_else(|| self.profiles.prediction(profile)?.wall_ms).or(self.plan.queues.mean_ms(queue));
        let ms = known.map_or(UNKNOWN_MS, |ms| ms as u64) / ADVANCE;
        Charged { ms, from: Time::default(), counted: true, ..self.adopted_charge(worker, request, expects) }
    }

    /// What an attempt that a store gave back is charged: nothing yet, and what it runs from now on. See
    /// [`Engine::take_up_charges`].
    pub(super) fn adopted_charge(&self, worker: WorkerId, request: &Resources, expects: u64) -> Charged {
        let capacity = self.plan.workers.get(worker).map(|worker| &worker.capacity);
        let share = capacity.map_or(request.cpu, |capacity| dominant_share(request, expects, capacity));
        Charged { share, ms: 0, from: self.now, counted: false }
    }

    /// In units of a queue's clock.
    pub(super) fn cost_of(&self, charged: &Charged) -> u64 {
        match self.turn.charge {
            Charge::Task => 1,
            Charge::Time => cost(charged.share, charged.ms),
        }
    }

    /// An attempt that was just booked gets `cpu` more, in hundredths of a core. Its queue is charged for that.
    pub(super) fn charge_more(&mut self, task: TaskId, queue: QueueId, cpu: u32) {
        let Some(attempt) = self.ledger.attempts.get(&task) else { return };
        let (before, mut request) = (attempt.charged, attempt.request.clone());
        request.cpu += cpu;
        let share = self.adopted_charge(attempt.worker, &request, attempt.expects).share;
        self.change_charge(task, |attempt| {
            attempt.request.cpu += cpu;
            attempt.charged.share = share;
        });
        if self.turn.charge == Charge::Time {
            let by = cost(share, before.ms) as i64 - cost(before.share, before.ms) as i64;
            self.plan.queues.correct(queue, by, None);
        }
    }

    /// A task is known to have started: when it is to be looked at if it runs on.
    pub(super) fn watch_charge(&mut self, task: TaskId) {
        if let Some(due) = self.ledger.attempts.get(&task).and_then(|attempt| self.due(attempt)) {
            self.ledger.accruals.insert((due, task));
        }
    }

    fn due(&self, attempt: &Attempt) -> Option<Time> {
        let started = attempt.started.filter(|_| self.turn.charge == Charge::Time)?;
        Some(attempt.charged.since(started).after(attempt.charged.ms.saturating_mul(NS_PER_MS)))
    }

    /// What an attempt was charged and has not run yet.
    fn advance_of(&self, attempt: &Attempt) -> Advance {
        let Charged { share, ms, counted, .. } = attempt.charged;
        let rate = i128::from(share.max(1));
        match attempt.started {
            _ if self.turn.charge == Charge::Task => Advance::default(),
            Some(started) => {
                let through = i128::from(attempt.charged.since(started).as_ms()) + i128::from(ms);
                Advance { through: rate * through, rate, ..Advance::default() }
            }
            None if counted => {
                let unstarted = cost(share, ms).into();
                Advance { unstarted, unstarted_rate: rate, ..Advance::default() }
            }
            None => Advance::default(),
        }
    }

    /// Changes what an attempt was charged, or when it started, and the books of its queue with it.
    pub(super) fn change_charge(&mut self, task: TaskId, change: impl FnOnce(&mut Attempt)) {
        let Some(attempt) = self.ledger.attempts.get(&task) else { return };
        let before = self.advance_of(attempt);
        let Some(attempt) = self.ledger.attempts.get_mut(&task) else { return };
        change(attempt);
        let Some(after) = self.ledger.attempts.get(&task).map(|attempt| self.advance_of(attempt)) else {
            return;
        };
        if let Some(job) = self.ledger.jobs.get(&task.job) {
            self.plan.queues.advance(job.queue, &before, &after);
        }
    }

    /// An attempt is on the books from now on, or no more.
    pub(super) fn count_advance(&mut self, job: JobId, attempt: &Attempt, comes: bool) {
        let (none, advance) = (Advance::default(), self.advance_of(attempt));
        let Some(job) = self.ledger.jobs.get(&job) else { return };
        let (before, after) = if comes { (&none, &advance) } else { (&advance, &none) };
        self.plan.queues.advance(job.queue, before, after);
    }

    /// Charges what runs longer than it was charged for.
    pub(super) fn accrue(&mut self) {
        while let Some((due, task)) =
            self.ledger.accruals.first().copied().filter(|(due, _)| *due <= self.now)
        {
            self.ledger.accruals.remove(&(due, task));
            let Some(attempt) = self.ledger.attempts.get(&task) else { continue };
            let Some(started) = attempt.started else { continue };
            let since = attempt.charged.since(started);
            let ran_ns = self.now.since(since);
            let ms =
                (ran_ns + ran_ns.clamp(*ACCRUAL_NS.start(), *ACCRUAL_NS.end()).max(ran_ns / 8)) / NS_PER_MS;
            let by = correction(&attempt.charged, ms);
            self.change_charge(task, |attempt| attempt.charged.ms = ms);
            let due = since.after(ms * NS_PER_MS);
            self.ledger.accruals.insert((due, task));
            if let Some(job) = self.ledger.jobs.get(&task.job) {
                self.plan.queues.correct(job.queue, by, None);
            }
        }
    }

    /// An attempt is over: its queue is charged for what it ran, from `ran.start` to its end, and in charge `task`
    /// nothing where it did not run.
    pub(super) fn settle_charge(&mut self, task: TaskId, attempt: &Attempt, ran: Option<&Range<Time>>) {
        self.forget_charge(task, attempt);
        let Some(queue) = self.ledger.jobs.get(&task.job).map(|job| job.queue) else { return };
        match self.turn.charge {
            Charge::Task if ran.is_none() && attempt.charged.counted => {
                self.plan.queues.correct(queue, -1, None)
            }
            Charge::Task => {}
            Charge::Time => {
                let charged_ns = ran.map_or(0, |ran| ran.end.since(attempt.charged.since(ran.start)));
                let by = correction(&attempt.charged, charged_ns / NS_PER_MS);
                let mean_ms = self.plan.queues.mean_ms(queue);
                self.plan.queues.correct(
                    queue,
                    by,
                    mean_ms.map(|ms| cost(attempt.charged.share, ms as u64 / ADVANCE)),
                );
            }
        }
    }

    /// A booking was never durable: its queue gets back what it was charged.
    pub(super) fn refund(&mut self, queue: QueueId, attempt: &Attempt) {
        let by = match self.turn.charge {
            Charge::Task => i64::from(attempt.charged.counted),
            Charge::Time => cost(attempt.charged.share, attempt.charged.ms) as i64,
        };
        self.plan.queues.correct(queue, -by, None);
    }

    /// Every attempt that is to be looked at is, once.
    pub(super) fn check_charges(&self) -> Result<(), String> {
        let due = |(task, attempt): (&TaskId, &Attempt)| Some((self.due(attempt)?, *task));
        let expected: BTreeSet<(Time, TaskId)> = self.ledger.attempts.iter().filter_map(due).collect();
        if expected != self.ledger.accruals {
            return Err("attempts run on and are not charged".to_owned());
        }
        let mut advances: BTreeMap<QueueId, Advance> = BTreeMap::new();
        for (task, attempt) in &self.ledger.attempts {
            if let Some(job) = self.ledger.jobs.get(&task.job) {
                advances.entry(job.queue).or_default().add(&self.advance_of(attempt));
            }
        }
        for (id, queue) in self.plan.queues.with_ids() {
            let mut all = Advance::default();
            for part in self.plan.queues.parts(id) {
                let expected = advances.remove(&part).unwrap_or_default();
                all.add(&expected);
                if let Some(share) =
                    self.plan.queues.user_share(part).filter(|share| share.advance != expected)
                {
                    let user = self.plan.queues.get(part).user();
                    return Err(format!("queue {}, {user:?}: {share:?}, not {expected:?}", queue.name()));
                }
            }
            if queue.share().advance != all {
                let share = queue.share();
                return Err(format!("queue {}: {share:?} in advance, not {all:?}", queue.name()));
            }
        }
        Ok(())
    }

    /// An attempt is no more: nobody looks at it.
    pub(super) fn forget_charge(&mut self, task: TaskId, attempt: &Attempt) {
        if let Some(due) = self.due(attempt) {
            self.ledger.accruals.remove(&(due, task));
        }
    }
}

fn correction(charged: &Charged, ms: u64) -> i64 {
    cost(charged.share, ms) as i64 - cost(charged.share, charged.ms) as i64
}
