//! What the engine tells the planner about its steps and attempts, and how it records a booking.

use super::{Attempt, Engine, Fact, Outbox};
use crate::class::Class;
use crate::client_places::ClientPlaces;
use crate::ids::{QueueId, StepKey, TaskId, WorkerId};
use crate::job::{ChunkEnd, QueuedStep};
use crate::ledger::{Charged, Lent};
use crate::plan::{
    Booking, HeldAmounts, Planner, RunningTask, StepFacts, TogetherPart, TogetherTask, Work, within_limit,
};
use crate::queues::{ADVANCE, Charge, RoundFilter, UNKNOWN_MS, cost, dominant_share};
use crate::resources::Resources;
use crate::time::{NS_PER_MS, Time};

impl Work for Engine {
    type Out = Outbox;

    fn plan(&self) -> &Planner {
        &self.plan
    }

    fn plan_mut(&mut self) -> &mut Planner {
        &mut self.plan
    }

    fn facts(&self, key: StepKey) -> Option<StepFacts<'_>> {
        if ClientPlaces::is_key(key) {
            return self.places.facts(key, &self.plan.queues);
        }
        let job = self.ledger.jobs.get(&key.job)?;
        let step = job.steps.get(usize::from(key.step))?;
        Some(StepFacts {
            class: step.class,
            first_ready: step.ready.first(),
            ready: step.ready.len(),
            ready_since: step.ready_since,
            dependents: step.dependents,
            profile: step.profile,
            reads: &step.reads,
            hints: &job.spec.steps[usize::from(key.step)].hints,
            avoids: step.avoids(),
            mean_ms: self.expected_chunk_ms(job, key).or(step.mean_ms),
            prediction: self.profiles.prediction(step.profile),
            time_limit_ms: job.spec.steps[usize::from(key.step)].time_limit_ms,
        })
    }

    fn is_limit_reached(&self, class: &Class) -> bool {
        self.licences.reached(class).is_some()
    }

    fn running(&self, task: TaskId) -> Option<RunningTask<'_>> {
        let attempt = self.ledger.attempts.get(&task)?;
        let job = self.ledger.jobs.get(&task.job)?;
        let number = usize::from(job.step_of(task.index));
        let step = &job.steps[number];
        let expected_ms =
            step.mean_ms.or_else(|| self.profiles.prediction(step.profile).and_then(|p| p.wall_ms));
        let limit_ms = job.spec.steps[number].time_limit_ms;
        // Its process runs those that ride with it, too.
        let tasks = f64::from(attempt.last.saturating_sub(task.index) + 1);
        let expected_ms = within_limit(expected_ms.map(|ms| ms * tasks), limit_ms);
        let longest_ms = limit_ms.map(|ms| ms as f64).or(expected_ms);
        let began = attempt.started.unwrap_or(attempt.booked);
        Some(RunningTask {
            request: &attempt.request,
            limits: &job.spec.steps[number].limits,
            began,
            due: expected_ms.map(|ms| began.after((ms * NS_PER_MS as f64) as u64)),
            ends_by: longest_ms.map(|ms| began.after((ms * NS_PER_MS as f64) as u64)),
        })
    }

    fn is_short(&self, step: StepKey) -> bool {
        self.ledger.short.contains(&step)
    }

    fn has_short_steps(&self) -> bool {
        !self.ledger.short.is_empty()
    }

    fn book(&mut self, booking: &Booking, filter: &mut RoundFilter, out: &mut Outbox) -> usize {
        let (id, key) = (booking.worker, booking.queued_step.step());
        if ClientPlaces::is_key(key) {
            self.places.book(booking, &mut self.plan, self.now, filter, out);
            return 1;
        }
        let Some(step) = self.ledger.step(key) else { return 0 };
        let Some(index) = step.pick(id).or_else(|| step.ready.first()) else { return 0 };
        let first_write = out.writes.len();
        self.book_task(booking, index, filter, out);
        let riders = self.book_riders(booking, index, filter, out);
        if let Some(order) = self.start_order(TaskId { job: key.job, index }) {
            self.send(id, order, out);
            self.note_wide(key, index, booking.queue, first_write, out);
        }
        if self.ledger.step(key).is_some_and(|step| step.ready.is_empty()) {
            self.refresh(key);
        }
        self.refresh_capped(key);
        1 + riders
    }

    fn widen(&mut self, out: &mut Outbox) {
        self.widen_booked(out);
    }

    fn gang(&self, step: StepKey) -> Option<Vec<TogetherPart>> {
        self.ledger.next_gang(step)
    }

    fn book_gang(
        &mut self,
        tasks: &[TogetherTask],
        queued_step: QueuedStep,
        queue: QueueId,
        filter: &mut RoundFilter,
        out: &mut Outbox,
    ) {
        self.book_together(tasks, queued_step, queue, filter, out);
    }
}

impl Engine {
    /// When a booked or running task is expected to end, by the mean run time of its step or else by its task profile, and by
    /// its time limit; `None` where nothing is known of it. A time that has passed is that of a task that takes longer.
    pub fn expected_end(&self, task: TaskId) -> Option<Time> {
        self.running(task)?.due
    }

    /// Books this task of a step. What the step may start now is to be looked at again, and the worker to be told.
    pub(super) fn book_task(
        &mut self,
        booking: &Booking,
        index: u32,
        filter: &mut RoundFilter,
        out: &mut Outbox,
    ) {
        self.book_one(booking, index, false, filter, out);
    }

    /// The same; one that `rides` holds nothing of its worker.
    pub(super) fn book_one(
        &mut self,
        booking: &Booking,
        index: u32,
        rides: bool,
        filter: &mut RoundFilter,
        out: &mut Outbox,
    ) {
        let Booking { queue, queued_step, worker: id, is_ahead } = *booking;
        let key: StepKey = queued_step.step();
        self.residency.pin(key.job, &self.plan.queues, out);
        let Some(job) = self.ledger.jobs.get_mut(&key.job) else { return };
        let spec = &job.spec.steps[usize::from(key.step)];
        let step = &mut job.steps[usize::from(key.step)];
        step.ready.remove(index);
        let tries = step.tries.remove(index).unwrap_or_default();
        step.active += 1;
        step.riding += u32::from(rides);
        job.active += 1;
        let sized = &self.plan.classes.get(step.class).request;
        let asked = Resources { memory: spec.request.memory, ..sized.clone() };
        let expected = sized.memory.saturating_sub(asked.memory);
        let (request, expects) = if rides { (Resources::default(), 0) } else { (asked.clone(), expected) };
        let (profile, ms) = (step.profile, step.mean_ms.unwrap_or(0.0));
        let waited_ns = self.now.since(step.ready_since);
        let task = TaskId { job: key.job, index };
        if !rides {
            self.take_limits(key, id, 1);
        }
        let held = HeldAmounts { request: &request, expected_bytes: expects, expected_ms: ms };
        self.plan.take(booking, task, profile, &held);
        let (epoch, seq) = self.plan.workers.get(id).map_or_else(Default::default, |w| (w.epoch, w.seq + 1));
        let charged = self.estimate(key, profile, queue, id, &asked, expected);
        let attempt = Attempt {
            number: tries.attempt + 1,
            worker: id,
            epoch,
            booked: self.now,
            started: None,
            failures: tries.failures,
            losses: tries.losses,
            request,
            expects,
            rides,
            last: index,
            chunk_end: ChunkEnd::default(),
            seq,
            queued: is_ahead,
            killing: false,
            recalled: false,
            lent: Lent::No,
            charged,
        };
        out.writes.push(attempt.as_booked(task));
        out.notes.push(Fact::Booked { task, worker: id, waited_ns });
        self.plan.queues.charge(queue, self.ledger.cost_of(&attempt.charged), filter);
        self.ledger.count_advance(key.job, &attempt, true, &mut self.plan.queues);
        self.ledger.attempts.insert(task, attempt);
        self.profile_booked(profile, self.now);
    }

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

    /// An attempt that was just booked gets `cpu` more, in hundredths of a core. Its queue is charged for that.
    pub(super) fn charge_more(&mut self, task: TaskId, queue: QueueId, cpu: u32) {
        let Some(attempt) = self.ledger.attempts.get(&task) else { return };
        let (before, mut request) = (attempt.charged, attempt.request.clone());
        request.cpu += cpu;
        let share = self.adopted_charge(attempt.worker, &request, attempt.expects).share;
        self.ledger.change_charge(task, &mut self.plan.queues, |attempt| {
            attempt.request.cpu += cpu;
            attempt.charged.share = share;
        });
        if self.turn.charge == Charge::Time {
            let by = cost(share, before.ms) as i64 - cost(before.share, before.ms) as i64;
            self.plan.queues.correct(queue, by, None);
        }
    }

    /// Books up to `budget` tasks. Returns how many it booked. See [`plan::round`](crate::plan::round).
    pub fn round(&mut self, now: Time, budget: usize, out: &mut Outbox) -> usize {
        self.set_now(now);
        if self.plan.refresh_statistics() {
            self.save_histories(out);
            self.prune(out);
        }
        let is_needed = self.plan.needs_round();
        let booked = crate::plan::round(self, budget, out);
        // After a round without budget for more, something else may have a use for what is idle.
        self.wide.clear();
        if is_needed {
            self.refill(out);
        }
        if booked < budget {
            self.places.expire(&mut self.plan, self.now, out);
        }
        booked
    }
}
