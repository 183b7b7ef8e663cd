//! Tasks that ride with another: how they are booked, what their process is sent, and what their end teaches. See
//! [`Chunks`](crate::job::Chunks).

use super::{Engine, Outbox, Refusal};
use crate::bounds;
use crate::ids::{StepKey, TaskId};
use crate::job::{ChunkSize, End, Job, JobSpec, LeftToRun, TaskResult};
use crate::plan::Booking;
use crate::queues::RoundFilter;

impl Engine {
    /// A task of the step was booked: others that its process may run are booked with it. Returns how many.
    pub(super) fn book_riders(
        &mut self,
        booking: &Booking,
        head: u32,
        filter: &mut RoundFilter,
        out: &mut Outbox,
    ) -> usize {
        let key = booking.queued_step.step();
        if self.ledger.spec_of(key).is_none_or(|spec| spec.chunks.is_none()) {
            return 0;
        }
        let room = self.room_for_riders(TaskId { job: key.job, index: head });
        let riders = self.ledger.next_riders(key, head, room, self.now);
        let count = riders.len();
        let last = riders.last().copied().unwrap_or(head);
        self.ledger.expect_end(key, head, last, self.now);
        for index in riders {
            self.book_one(booking, index, true, filter, out);
        }
        if let Some(attempt) = self.ledger.attempts.get_mut(&TaskId { job: key.job, index: head }) {
            attempt.last = last;
        }
        count
    }

    /// How many more attempts the worker of a task may have, because each beat lists them: as many for each process that
    /// it has room for, so that none is left with a task alone.
    fn room_for_riders(&self, head: TaskId) -> u32 {
        let Some(attempt) = self.ledger.attempts.get(&head) else { return 0 };
        let Some(worker) = self.plan.workers.get(attempt.worker) else { return 0 };
        let asks = &attempt.request;
        let by_cpu = worker.capacity.cpu.checked_div(asks.cpu);
        let by_memory =
            worker.capacity.memory.checked_div(asks.memory).and_then(|slots| slots.try_into().ok());
        let slots = by_cpu.into_iter().chain(by_memory).min().unwrap_or(1).max(1);
        let attempts = u32::try_from(worker.running.len() + worker.backlog.len()).unwrap_or(u32::MAX);
        (bounds::RIDERS_PER_WORKER_MAX / slots)
            .saturating_sub(1)
            .min(bounds::RIDERS_PER_WORKER_MAX.saturating_sub(attempts))
    }

    /// The tasks that ride with this one, if it is booked, each with its attempt's number.
    pub fn riders(&self, head: TaskId) -> Vec<(TaskId, u32)> {
        let Some(attempt) = self.ledger.attempts.get(&head) else { return Vec::new() };
        let riders = self.ledger.riders_of(head, attempt).into_iter();
        riders.map(|(index, number)| (TaskId { index, ..head }, number)).collect()
    }

    /// A task whose process its worker does not have goes back to its queue. Returns false for one that has a process
    /// of its own.
    pub(super) fn give_back_rider(&mut self, task: TaskId, out: &mut Outbox) -> bool {
        let Some(rider) = self.ledger.attempts.get(&task).filter(|attempt| attempt.rides) else {
            return false;
        };
        // Its process ran where the first of its tasks has ended, and what became of this one is not known.
        let end = if self.ledger.has_head(task, rider) { End::Recalled } else { End::Lost };
        if let Some(attempt) = self.ledger.attempts.get_mut(&task) {
            attempt.recalled = true;
        }
        if let Some(attempt) = self.drop_attempt(task) {
            self.conclude(task, &attempt, TaskResult::bare(end), out);
        }
        true
    }

    /// Milliseconds that the next chunk of a step is expected to run; `None` of a step without.
    pub(super) fn expected_chunk_ms(&self, job: &Job, key: StepKey) -> Option<f64> {
        let spec = &job.spec.steps[usize::from(key.step)];
        let size = spec.chunks?.size;
        let step = &job.steps[usize::from(key.step)];
        let running = step.active - step.riding;
        let (now_ms, limit_ms) = (self.now.as_ms() as f64, spec.time_limit_ms);
        let to_run = LeftToRun { now_ms, ready: step.ready.len(), running, limit_ms };
        step.chunk_lengths.as_ref()?.expected_next_ms(size, &to_run)
    }
}

/// Refuses chunks that cannot be.
pub(super) fn check_chunks(spec: &JobSpec) -> Result<(), Refusal> {
    for step in &spec.steps {
        let bad = |why: &str| Err(Refusal::BadGang { step: step.name.clone(), why: why.to_owned() });
        let Some(chunks) = step.chunks else { continue };
        if step.nodes.is_some() || step.with.is_some() || step.is_external {
            return bad(
                "tasks that start together with others, or that a client runs, cannot share a process",
            );
        }
        // A row says by what it booked whether a task rode with another.
        if step.request.cpu == 0 && step.request.memory == 0 {
            return bad("tasks of a chunk must book some cpu or memory");
        }
        if chunks.block == 0 || chunks.size == ChunkSize::Fixed(0) {
            return bad("a chunk has at least one task");
        }
    }
    Ok(())
}
