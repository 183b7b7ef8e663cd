//! What the engine tells the planner about its steps and attempts, and who books.

use super::{Engine, Outbox};
use crate::class::Class;
use crate::client_places::ClientPlaces;
use crate::ids::{QueueId, StepKey, TaskId};
use crate::job::QueuedStep;
use crate::ledger::{booking, licensing, shares, wide};
use crate::plan::{Booking, GangBooking, GangPart, Planner, RunningTask, StepFacts, Work, within_limit};
use crate::queues::RoundFilter;
use crate::time::NS_PER_MS;

impl Work for Engine {
    type Out = Outbox;

    fn plan(&self) -> &Planner {
        &self.books.plan
    }

    fn plan_mut(&mut self) -> &mut Planner {
        &mut self.books.plan
    }

    fn facts(&self, key: StepKey) -> Option<StepFacts<'_>> {
        if ClientPlaces::is_key(key) {
            return self.places.facts(key, &self.books.plan.queues);
        }
        let job = self.books.ledger.jobs.get(&key.job)?;
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
            mean_ms: booking::expected_chunk_ms(&self.books.plan, job, key).or(step.mean_ms),
            prediction: self.books.profiles.prediction(step.profile),
            time_limit_ms: job.spec.steps[usize::from(key.step)].time_limit_ms,
        })
    }

    fn is_limit_reached(&self, class: &Class) -> bool {
        self.books.ledger.licences.reached(class).is_some()
    }

    fn running(&self, task: TaskId) -> Option<RunningTask<'_>> {
        let attempt = self.books.ledger.attempts.get(&task)?;
        let job = self.books.ledger.jobs.get(&task.job)?;
        let number = usize::from(job.step_of(task.index));
        let step = &job.steps[number];
        let expected_ms =
            step.mean_ms.or_else(|| self.books.profiles.prediction(step.profile).and_then(|p| p.wall_ms));
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
        self.books.ledger.short.contains(&step)
    }

    fn has_short_steps(&self) -> bool {
        !self.books.ledger.short.is_empty()
    }

    fn book(&mut self, booking: &Booking, filter: &mut RoundFilter, out: &mut Outbox) -> usize {
        let count = if ClientPlaces::is_key(booking.queued_step.step()) {
            let books = &mut self.books;
            if let Some((worker, limits)) = self.places.book(booking, &mut books.plan, filter, out) {
                licensing::take(&mut books.ledger.licences, &limits, (worker, 1), &mut books.plan);
            }
            1
        } else {
            booking::book(&mut self.books, booking, filter, out)
        };
        shares::charge_builds(&mut self.books, booking.worker);
        count
    }

    fn widen(&mut self, out: &mut Outbox) {
        wide::widen_booked(&mut self.books, out);
    }

    fn gang(&self, step: StepKey) -> Option<Vec<GangPart>> {
        self.books.ledger.next_gang(step)
    }

    fn book_gang(
        &mut self,
        tasks: &[GangBooking],
        queued_step: QueuedStep,
        queue: QueueId,
        filter: &mut RoundFilter,
        out: &mut Outbox,
    ) {
        booking::book_together(&mut self.books, tasks, queued_step, queue, filter, out);
        tasks.iter().for_each(|task| shares::charge_builds(&mut self.books, task.worker));
    }
}
