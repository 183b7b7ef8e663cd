//! How a booking is recorded: the task, what it holds and is charged, the tasks that ride with it or start together
//! with it.

use super::charge::estimate;
use super::commands::{send, send_start, start_order};
use super::enlist::{refresh, refresh_capped};
use super::holding::note_kind;
use super::learning::profile_booked;
use super::licensing::take_licences;
use super::wide::note_wide;
use super::{Attempt, Books, Lent};
use crate::bounds;
use crate::ids::{QueueId, StepKey, TaskId};
use crate::job::{ChunkEnd, Job, LeftToRun, QueuedStep};
use crate::outbox::{Fact, Outbox};
use crate::plan::{Booking, GangBooking, HeldAmounts, Planner};
use crate::queues::RoundFilter;
use crate::resources::Resources;

/// Books the next task of a step, with those that ride with it. Returns how many these are.
pub(crate) fn book(
    books: &mut Books,
    booking: &Booking,
    filter: &mut RoundFilter,
    out: &mut Outbox,
) -> usize {
    let (id, key) = (booking.worker, booking.queued_step.step());
    let Some(step) = books.ledger.step(key) else { return 0 };
    let Some(index) = step.pick(id).or_else(|| step.ready.first()) else { return 0 };
    let first_write = out.writes.len();
    book_one(books, booking, index, false, filter, out);
    let riders = book_riders(books, booking, index, filter, out);
    if let Some(order) = start_order(books, TaskId { job: key.job, index }) {
        send(&mut books.plan, id, order, out);
        note_wide(&mut books.ledger, key, index, booking.queue, first_write, out);
    }
    if books.ledger.step(key).is_some_and(|step| step.ready.is_empty()) {
        refresh(books, key);
    }
    refresh_capped(books, key);
    1 + riders
}

/// Books tasks that start together. Their workers are told when all are booked, so that each learns of all.
pub(crate) fn book_together(
    books: &mut Books,
    tasks: &[GangBooking],
    leader: QueuedStep,
    queue: QueueId,
    filter: &mut RoundFilter,
    out: &mut Outbox,
) {
    for GangBooking { step, index, worker } in tasks {
        let queued_step = leader.of_step(*step);
        let booking = Booking { queue, queued_step, worker: *worker, is_ahead: false };
        book_one(books, &booking, *index, false, filter, out);
    }
    for GangBooking { step, index, .. } in tasks {
        // Tasks on one worker get different message numbers, known only when sent.
        send_start(books, TaskId { job: step.job, index: *index }, out);
        refresh_capped(books, *step);
    }
    refresh(books, leader.step());
}

/// A task of the step was booked: others that its process may run are booked with it. Returns how many.
fn book_riders(
    books: &mut Books,
    booking: &Booking,
    head: u32,
    filter: &mut RoundFilter,
    out: &mut Outbox,
) -> usize {
    let key = booking.queued_step.step();
    if books.ledger.spec_of(key).is_none_or(|spec| spec.chunks.is_none()) {
        return 0;
    }
    let room = room_for_riders(books, TaskId { job: key.job, index: head });
    let riders = books.ledger.next_riders(key, head, room, books.plan.now());
    let count = riders.len();
    let last = riders.last().copied().unwrap_or(head);
    books.ledger.expect_end(key, head, last, books.plan.now());
    for index in riders {
        book_one(books, booking, index, true, filter, out);
    }
    if let Some(attempt) = books.ledger.attempts.get_mut(&TaskId { job: key.job, index: head }) {
        attempt.last = last;
    }
    count
}

/// How many tasks may ride with a task, because each beat of its worker lists all attempts there. Each process for
/// which the worker has room gets an equal part of the bound. Otherwise the first chunks would take all of it, and the
/// next processes would have to run one task each.
fn room_for_riders(books: &Books, head: TaskId) -> u32 {
    let Some(attempt) = books.ledger.attempts.get(&head) else { return 0 };
    let Some(worker) = books.plan.workers.get(attempt.worker) else { return 0 };
    let asks = &attempt.request;
    let by_cpu = worker.record.capacity.cpu.checked_div(asks.cpu);
    let by_memory =
        worker.record.capacity.memory.checked_div(asks.memory).and_then(|slots| slots.try_into().ok());
    let slots = by_cpu.into_iter().chain(by_memory).min().unwrap_or(1).max(1);
    let attempts =
        u32::try_from(worker.booked.running().len() + worker.booked.backlog().len()).unwrap_or(u32::MAX);
    (bounds::RIDERS_PER_WORKER_MAX / slots)
        .saturating_sub(1)
        .min(bounds::RIDERS_PER_WORKER_MAX.saturating_sub(attempts))
}

/// Milliseconds that the next chunk of a step is expected to run; `None` of a step without.
pub(crate) fn expected_chunk_ms(plan: &Planner, job: &Job, key: StepKey) -> Option<f64> {
    let spec = &job.spec.steps[usize::from(key.step)];
    let size = spec.chunks.as_ref()?.size;
    let step = &job.steps[usize::from(key.step)];
    let running = step.active - step.riding;
    let (now_ms, limit_ms) = (plan.now().as_ms() as f64, spec.time_limit_ms);
    let to_run = LeftToRun { now_ms, ready: step.ready.len(), running, limit_ms };
    step.chunk_lengths.as_ref()?.expected_next_ms(size, &to_run)
}

/// Bytes of its memory that a task does not find free. Only beside tasks that all wait for their jobs is a task booked so:
/// it holds what there is, and is expected to hold the rest.
fn beyond_room(plan: &Planner, booking: &Booking, memory: u64) -> u64 {
    let worker = plan.workers.get(booking.worker).filter(|worker| worker.booked.lending() > 0);
    let worker = worker.filter(|_| !booking.is_ahead);
    worker.map_or(0, |worker| memory.saturating_sub(worker.free().memory))
}

/// Books this task of a step; one that `rides` holds nothing of its worker. What the step may start now is to be looked
/// at again, and the worker to be told.
fn book_one(
    books: &mut Books,
    booking: &Booking,
    index: u32,
    rides: bool,
    filter: &mut RoundFilter,
    out: &mut Outbox,
) {
    let Booking { queue, queued_step, worker: id, is_ahead } = *booking;
    let key: StepKey = queued_step.step();
    books.ledger.effects.touch(key.job);
    let Some(job) = books.ledger.jobs.get_mut(&key.job) else { return };
    let spec = &job.spec.steps[usize::from(key.step)];
    let step = &mut job.steps[usize::from(key.step)];
    step.ready.remove(index);
    let tries = step.tries.remove(index).unwrap_or_default();
    step.active += 1;
    step.riding += u32::from(rides);
    job.active += 1;
    let sized = &books.plan.classes.get(step.class).request;
    let asked = Resources { memory: spec.request.memory, ..sized.clone() };
    let expected = sized.memory.saturating_sub(asked.memory);
    let (request, headroom_bytes) = if rides {
        (Resources::default(), 0)
    } else {
        let beyond = beyond_room(&books.plan, booking, asked.memory);
        (Resources { memory: asked.memory - beyond, ..asked.clone() }, expected + beyond)
    };
    let (profile, ms) = (step.profile, step.mean_ms.unwrap_or(0.0));
    let waited_ns = books.plan.now().since(step.ready_since);
    let task = TaskId { job: key.job, index };
    if !rides {
        take_licences(books, key, id, 1);
    }
    let held = HeldAmounts { request: &request, headroom_bytes, expected_ms: ms, rides };
    books.plan.take(booking, task, profile, &held);
    let (epoch, seq) =
        books.plan.workers.get(id).map_or_else(Default::default, |w| (w.record.epoch, w.link.seq + 1));
    let charged = estimate(books, key, profile, queue, id, &asked, expected);
    let attempt = Attempt {
        number: tries.attempt + 1,
        worker: id,
        epoch,
        booked: books.plan.now(),
        started: None,
        failures: tries.failures,
        losses: tries.losses,
        request,
        headroom_bytes,
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
    out.facts.push(Fact::Booked { task, worker: id, waited_ns });
    books.plan.queues.charge(queue, books.ledger.cost_of(&attempt.charged), filter);
    books.ledger.count_advance(key.job, &attempt, true, &mut books.plan.queues);
    books.ledger.attempts.insert(task, attempt);
    if !is_ahead && !rides {
        note_kind(books, id, key, task);
    }
    profile_booked(books, profile, books.plan.now());
}
