//! What bookings cost their queues. With `charge = task` a booking costs 1. With `charge = time` it costs its dominant
//! share, in cores of its worker, times its run time: estimated first, raised while it runs, exact at the end. A task
//! with a jobserver books the least: while it runs it is charged for its part of what such tasks share, and at the end
//! for what it was given.

use super::{Attempt, Books, Charged, Ledger};
use crate::ids::{JobId, QueueId, StepKey, TaskId, WorkerId};
use crate::plan::Planner;
use crate::queues::{ADVANCE, Advance, Charge, Queues, UNKNOWN_MS, cost, dominant_share};
use crate::resources::Resources;
use crate::time::{NS_PER_MS, NS_PER_S, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A task that runs longer than it was charged for is charged for as long again: at least a second and at most a
/// minute, or an eighth of what it has run if that is more. So a task that runs for a month is not looked at each
/// minute.
const ACCRUAL_NS: std::ops::RangeInclusive<u64> = NS_PER_S..=60 * NS_PER_S;

impl Ledger {
    /// What was charged, in units of a queue's clock.
    pub(crate) fn cost_of(&self, charged: &Charged) -> u64 {
        match self.charge {
            Charge::Task => 1,
            Charge::Time => cost(charged.share, charged.ms),
        }
    }

    /// A task is known to have started: notes when it will have run longer than it was charged for.
    pub(crate) fn watch_charge(&mut self, task: TaskId) {
        if let Some(due) = self.attempts.get(&task).and_then(|attempt| self.due(attempt)) {
            self.accruals.insert((due, task));
        }
    }

    /// When an attempt that runs on is to be charged for more.
    fn due(&self, attempt: &Attempt) -> Option<Time> {
        let started = attempt.started.filter(|_| self.charge == Charge::Time)?;
        Some(attempt.charged.since(started).after(attempt.charged.ms.saturating_mul(NS_PER_MS)))
    }

    /// What an attempt was charged and has not run yet.
    fn advance_of(&self, attempt: &Attempt) -> Advance {
        let Charged { share, ms, counted, .. } = attempt.charged;
        let rate = i128::from(share.max(1));
        match attempt.started {
            _ if self.charge == Charge::Task => Advance::default(),
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
    pub(crate) fn change_charge(
        &mut self,
        task: TaskId,
        queues: &mut Queues,
        change: impl FnOnce(&mut Attempt),
    ) {
        let Some(attempt) = self.attempts.get(&task) else { return };
        let before = self.advance_of(attempt);
        let Some(attempt) = self.attempts.get_mut(&task) else { return };
        change(attempt);
        let Some(after) = self.attempts.get(&task).map(|attempt| self.advance_of(attempt)) else {
            return;
        };
        if let Some(job) = self.jobs.get(&task.job) {
            queues.advance(job.queue, &before, &after);
        }
    }

    /// An attempt is on the books from now on, or no more.
    pub(crate) fn count_advance(&self, job: JobId, attempt: &Attempt, comes: bool, queues: &mut Queues) {
        let (none, advance) = (Advance::default(), self.advance_of(attempt));
        let Some(job) = self.jobs.get(&job) else { return };
        let (before, after) = if comes { (&none, &advance) } else { (&advance, &none) };
        queues.advance(job.queue, before, after);
    }

    /// Charges what runs longer than it was charged for.
    pub(crate) fn accrue(&mut self, now: Time, queues: &mut Queues) {
        while let Some((due, task)) = self.accruals.first().copied().filter(|(due, _)| *due <= now) {
            self.accruals.remove(&(due, task));
            let Some(attempt) = self.attempts.get(&task) else { continue };
            let Some(started) = attempt.started else { continue };
            let since = attempt.charged.since(started);
            let ran_ns = now.since(since);
            let ms =
                (ran_ns + ran_ns.clamp(*ACCRUAL_NS.start(), *ACCRUAL_NS.end()).max(ran_ns / 8)) / NS_PER_MS;
            let by = correction(&attempt.charged, ms);
            self.change_charge(task, queues, |attempt| attempt.charged.ms = ms);
            let due = since.after(ms * NS_PER_MS);
            self.accruals.insert((due, task));
            if let Some(job) = self.jobs.get(&task.job) {
                queues.correct(job.queue, by, None);
            }
        }
    }

    /// An attempt is over: its queue is charged for what it ran, from `ran.start` to its end, and in charge `task`
    /// nothing where it did not run.
    pub(crate) fn settle_charge(
        &mut self,
        task: TaskId,
        attempt: &Attempt,
        ran: Option<&Range<Time>>,
        queues: &mut Queues,
    ) {
        self.forget_charge(task, attempt);
        let Some(queue) = self.jobs.get(&task.job).map(|job| job.queue) else { return };
        match self.charge {
            Charge::Task if ran.is_none() && attempt.charged.counted => queues.correct(queue, -1, None),
            Charge::Task => {}
            Charge::Time => {
                let charged_ns = ran.map_or(0, |ran| ran.end.since(attempt.charged.since(ran.start)));
                let by = correction(&attempt.charged, charged_ns / NS_PER_MS);
                let earlier = if ran.is_some() { 0 } else { attempt.charged.earlier_cost as i64 };
                let mean_ms = queues.mean_ms(queue);
                let next = mean_ms.map(|ms| cost(attempt.charged.share, ms as u64 / ADVANCE));
                queues.correct(queue, by - earlier, next);
            }
        }
    }

    /// A booking was never durable: its queue gets back what it was charged.
    pub(crate) fn refund(&self, queue: QueueId, attempt: &Attempt, queues: &mut Queues) {
        let by = match self.charge {
            Charge::Task => i64::from(attempt.charged.counted),
            Charge::Time => total(&attempt.charged),
        };
        queues.correct(queue, -by, None);
    }

    /// Every attempt that runs is in `accruals` once, and each queue's advance is that of its attempts.
    pub(crate) fn check_charges(&self, queues: &Queues) -> Result<(), String> {
        let due = |(task, attempt): (&TaskId, &Attempt)| Some((self.due(attempt)?, *task));
        let expected: BTreeSet<(Time, TaskId)> = self.attempts.iter().filter_map(due).collect();
        if expected != self.accruals {
            return Err("attempts run on and are not charged".to_owned());
        }
        let mut advances: BTreeMap<QueueId, Advance> = BTreeMap::new();
        for (task, attempt) in &self.attempts {
            if let Some(job) = self.jobs.get(&task.job) {
                advances.entry(job.queue).or_default().add(&self.advance_of(attempt));
            }
        }
        for (id, queue) in queues.with_ids() {
            let mut all = Advance::default();
            for part in queues.parts(id) {
                let expected = advances.remove(&part).unwrap_or_default();
                all.add(&expected);
                if let Some(share) = queues.user_share(part).filter(|share| share.advance != expected) {
                    let user = queues.get(part).user();
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

    /// An attempt is over: it is not looked at again.
    pub(crate) fn forget_charge(&mut self, task: TaskId, attempt: &Attempt) {
        if let Some(due) = self.due(attempt) {
            self.accruals.remove(&(due, task));
        }
    }
}

/// All that an attempt was charged.
fn total(charged: &Charged) -> i64 {
    charged.earlier_cost as i64 + cost(charged.share, charged.ms) as i64
}

/// What a booking is charged at first.
pub(super) fn estimate(
    books: &Books,
    key: StepKey,
    profile: u64,
    queue: QueueId,
    worker: WorkerId,
    request: &Resources,
    headroom_bytes: u64,
) -> Charged {
    let known = books.ledger.step(key).and_then(|step| step.mean_ms);
    let known =
        known.or_else(|| books.profiles.prediction(profile)?.wall_ms).or(books.plan.queues.mean_ms(queue));
    let ms = known.map_or(UNKNOWN_MS, |ms| ms as u64) / ADVANCE;
    let share = share_of(&books.plan, worker, request, headroom_bytes);
    Charged { share, ms, counted: true, ..Charged::default() }
}

/// What an attempt that a store gave back is charged: nothing yet, and what it runs from now on. See
/// [`take_up_charges`](super::turns::take_up_charges).
pub(super) fn adopted_charge(
    plan: &Planner,
    worker: WorkerId,
    request: &Resources,
    headroom_bytes: u64,
) -> Charged {
    let share = share_of(plan, worker, request, headroom_bytes);
    Charged { share, from: plan.now(), ..Charged::default() }
}

/// The dominant share of a worker that a booking holds, in hundredths of the worker's cores.
fn share_of(plan: &Planner, worker: WorkerId, request: &Resources, headroom_bytes: u64) -> u32 {
    let capacity = plan.workers.get(worker).map(|worker| &worker.record.capacity);
    capacity.map_or(request.cpu, |capacity| dominant_share(request, headroom_bytes, capacity))
}

/// An attempt that was just booked gets `cpu` more, in hundredths of a core. Its queue is charged for that.
pub(super) fn charge_more(books: &mut Books, task: TaskId, queue: QueueId, cpu: u32) {
    let Some(attempt) = books.ledger.attempts.get(&task) else { return };
    let (before, mut request) = (attempt.charged, attempt.request.clone());
    request.cpu += cpu;
    let share = share_of(&books.plan, attempt.worker, &request, attempt.headroom_bytes);
    books.ledger.change_charge(task, &mut books.plan.queues, |attempt| {
        attempt.request.cpu += cpu;
        attempt.charged.share = share;
    });
    if books.ledger.charge == Charge::Time {
        let by = cost(share, before.ms) as i64 - cost(before.share, before.ms) as i64;
        books.plan.queues.correct(queue, by, None);
    }
}

/// A task with a jobserver has a part of `cpu` hundredths of a core from now on. Its queue is charged for that as it
/// runs on, because it books less.
pub(super) fn charge_part(books: &mut Books, task: TaskId, cpu: u32) {
    let is_by_time = books.ledger.charge == Charge::Time;
    let Some(attempt) = books.ledger.attempts.get(&task).filter(|_| is_by_time) else { return };
    let mut request = attempt.request.clone();
    request.cpu = request.cpu.max(cpu);
    let share = share_of(&books.plan, attempt.worker, &request, attempt.headroom_bytes);
    change_share(&mut books.ledger, task, share, books.plan.now(), &mut books.plan.queues);
}

/// An attempt has another share of its worker from now on. It was charged in advance by the share that it had: what is
/// left of that lasts for another time now.
fn change_share(ledger: &mut Ledger, task: TaskId, share: u32, now: Time, queues: &mut Queues) {
    let attempt = ledger.attempts.get(&task).filter(|attempt| attempt.charged.share != share);
    let Some(attempt) = attempt else { return };
    let (before, due) = (attempt.charged, ledger.due(attempt));
    let mut after = Charged { share, ..before };
    let mut left = cost(before.share, before.ms);
    if let Some(started) = attempt.started {
        let since = before.since(started);
        let ran_ms = now.since(since) / NS_PER_MS;
        let spent = if ran_ms > 0 { cost(before.share, ran_ms) } else { 0 };
        after.from = since.after(ran_ms * NS_PER_MS);
        after.earlier_ms += ran_ms;
        after.earlier_cost += spent;
        left = left.saturating_sub(spent);
    }
    after.ms = left / u64::from(share.max(1));
    if let Some(due) = due {
        ledger.accruals.remove(&(due, task));
    }
    ledger.change_charge(task, queues, |attempt| attempt.charged = after);
    ledger.watch_charge(task);
    if let Some(job) = ledger.jobs.get(&task.job) {
        queues.correct(job.queue, total(&after) - total(&before), None);
    }
}

/// An attempt that ran had tokens of its jobserver: its queue is charged as if it had held their cpus as well, and for
/// no more than that. They may have been many at first and few later, so the mean counts.
pub(super) fn charge_tokens(
    books: &mut Books,
    task: TaskId,
    attempt: &Attempt,
    token_cpu_ms: u64,
    ran: &Range<Time>,
) {
    let spec = books.ledger.spec_of(books.ledger.key_of(task));
    let has_jobserver = spec.is_some_and(|spec| spec.hints.jobserver.is_some());
    let Some(queue) = books.ledger.jobs.get(&task.job).map(|job| job.queue).filter(|_| has_jobserver) else {
        return;
    };
    if books.ledger.charge == Charge::Task {
        return;
    }
    let ran_ms = (ran.end.since(ran.start) / NS_PER_MS).max(1);
    let tokens_cpu = token_cpu_ms.saturating_mul(100).div_ceil(ran_ms);
    let mut request = attempt.request.clone();
    request.cpu = request.cpu.saturating_add(u32::try_from(tokens_cpu).unwrap_or(u32::MAX));
    let share = share_of(&books.plan, attempt.worker, &request, attempt.headroom_bytes);
    // An earlier engine charged the queue for what it ran before that.
    let ms = ran.end.since(attempt.charged.since(ran.start)) / NS_PER_MS;
    let charged = total(&Charged { ms, ..attempt.charged });
    books.plan.queues.correct(queue, cost(share, attempt.charged.earlier_ms + ms) as i64 - charged, None);
}

/// What to charge more, or less, if the booking costs `ms` in all.
fn correction(charged: &Charged, ms: u64) -> i64 {
    cost(charged.share, ms) as i64 - cost(charged.share, charged.ms) as i64
}
