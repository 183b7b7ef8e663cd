//! What ended attempts teach: about their signature, their worker and the farm.

use super::charge::charge_tokens;
use super::classes::{class_of, resize};
use super::enlist::refresh;
use super::{Attempt, Books};
use crate::bounds;
use crate::bounds::PEAK_BYTES_MAX;
use crate::ids::{StepKey, TaskId};
use crate::job::{ChunkEnd, End, LaunchFault, StepSpec, TaskResult};
use crate::outbox::{Outbox, Write};
use crate::plan::{Planner, placement};
use crate::score::history::{History, Sample, Signature, needs_after_kill};
use crate::score::windows::Metric;
use crate::time::{NS_PER_MS, Time};
use crate::worker::{Ended, Health, HealthVerdict, Record, Worker};
use std::ops::Range;

/// What an end teaches of its signature and its worker, and what it costs its queue. An end that was not durable comes
/// again, and what it teaches was learned the first time. An end with a `busy` licence counts against no one.
pub(super) fn learn_all(
    books: &mut Books,
    task: TaskId,
    attempt: &Attempt,
    result: &TaskResult,
    busy: bool,
    out: &mut Outbox,
) {
    let is_new = !books.ledger.learned.remove(&(task, attempt.number));
    if is_new {
        learn(books, task, attempt, result, out);
    }
    // One process says one thing of its worker, however many tasks it ran.
    if is_new && !busy && !attempt.rides {
        judge_worker(books, task, attempt, result);
    }
    let ran = ran(attempt, result, books.plan.now()).filter(|_| !busy);
    if let Some(ran) = ran.as_ref().filter(|_| is_new) {
        learn_length(books, books.ledger.key_of(task), ran, &result.end);
        // Of one that another engine booked it is not known what rode with it.
        if !attempt.rides && attempt.chunk_end != ChunkEnd::default() && result.end == End::Exited(0) {
            let ms = ran.end.since(ran.start) as f64 / 1e6;
            books.ledger.learn_chunk(task, attempt.last.saturating_sub(task.index) + 1, ms);
        }
    }
    books.ledger.settle_charge(task, attempt, ran.as_ref(), &mut books.plan.queues);
    if let Some(ran) = ran {
        charge_tokens(books, task, attempt, result.token_cpu_ms.unwrap_or(0), &ran);
    }
}

/// Updates the mean run times: the queue's from every attempt, the step's only from tasks that exited with 0, because
/// those did all of their work.
fn learn_length(books: &mut Books, key: StepKey, ran: &Range<Time>, end: &End) {
    let Some(job) = books.ledger.jobs.get_mut(&key.job) else { return };
    let ms = ran.end.since(ran.start) as f64 / 1e6;
    books.plan.queues.learn(job.queue, ms);
    if *end != End::Exited(0) {
        return;
    }
    let step = &mut job.steps[usize::from(key.step)];
    let mean_ms = step.mean_ms.map_or(ms, |mean| mean + 0.2 * (ms - mean));
    step.mean_ms = Some(mean_ms);
    let spec = &job.spec.steps[usize::from(key.step)];
    // A task with a jobserver starts beside others, and its worker is told of its part in the cpus with its start.
    let is_sent_ahead =
        spec.chunks.is_none() && spec.hints.jobserver.is_none() && !job.is_in_gang(key.step.into());
    if mean_ms < bounds::PREFETCH_MS && is_sent_ahead {
        books.ledger.short.insert(key);
    } else {
        books.ledger.short.remove(&key);
    }
}

/// From when to when an attempt ran; `None` of one that did not, and of one that was lost, or whose outputs were, which is
/// not its queue's doing.
fn ran(attempt: &Attempt, result: &TaskResult, now: Time) -> Option<Range<Time>> {
    if result.end.is_loss() || matches!(result.end, End::NotStarted { .. } | End::Recalled) {
        return None;
    }
    let told = result.started.zip(result.finished).map(|(started, finished)| started..finished);
    told.or_else(|| Some(attempt.started?..now))
}

/// True if a worker gave an attempt back, or killed it, without being asked. A worker whose lease runs out does so.
pub(super) fn is_unasked(attempt: &Attempt, end: &End) -> bool {
    match end {
        End::Canceled => !attempt.killing,
        End::Recalled => !attempt.recalled && !attempt.killing,
        _ => false,
    }
}

/// An attempt is booked, or was when the engine started.
pub(super) fn profile_booked(books: &mut Books, profile: u64, at: Time) {
    let changed = books.profiles.booked(profile, at, books.plan.now());
    changed.into_iter().for_each(|key| refresh(books, key));
}

/// An attempt is off the books.
pub(super) fn profile_left(books: &mut Books, profile: u64) {
    let changed = books.profiles.left(profile, books.plan.now());
    changed.into_iter().for_each(|key| refresh(books, key));
}

/// Opens or closes the gate of a signature, which lets few tasks start at a time while little is known of it. Its steps
/// stand in their queues only while the gate is open.
fn gate(books: &mut Books, profile: u64) {
    let changed = books.profiles.gate(profile, books.plan.now());
    changed.into_iter().for_each(|key| refresh(books, key));
}

/// First tasks of a signature that have run long enough without an end are believed to fit.
pub(super) fn finish_probes(books: &mut Books) {
    while let Some(profile) = books.profiles.take_probed(books.plan.now()) {
        gate(books, profile);
    }
}

/// An attempt ended: what it held and took.
fn learn(books: &mut Books, task: TaskId, attempt: &Attempt, result: &TaskResult, out: &mut Outbox) {
    let capacity = books.plan.workers.get(attempt.worker).map_or(0, |worker| worker.record.capacity.memory);
    let key = books.ledger.key_of(task);
    let Some((step, spec)) = books.ledger.step(key).zip(books.ledger.spec_of(key)) else { return };
    let profile = step.profile;
    let Some(sample) = sample_of(spec, attempt, result, capacity) else { return };
    record_windows(&mut books.plan, &sample);
    let learned = books.profiles.learn(profile, sample);
    out.writes
        .extend(learned.write.map(|(signature, history)| write_of(signature, history, books.plan.now())));
    if learned.is_resized {
        resize(books, profile);
    }
    gate(books, profile);
}

fn record_windows(plan: &mut Planner, sample: &Sample) {
    let mut record = |metric, value: Option<u64>| {
        if let Some(value) = value {
            plan.record(metric, value as f64);
        }
    };
    record(Metric::Completed, Some(1));
    record(Metric::OomRate, Some(sample.oom.into()));
    record(Metric::WallMs, sample.wall_ms);
    record(Metric::CpuMs, sample.cpu_ms);
    record(Metric::PeakMemory, sample.peak_memory.filter(|_| !sample.oom));
    record(Metric::DiskBytes, sample.disk_bytes.filter(|bytes| *bytes > 0));
}

/// Writes the samples that the store does not have: now and then, and before the end.
pub fn save_histories(books: &mut Books, out: &mut Outbox) {
    for (signature, history) in books.profiles.take_unsaved() {
        out.writes.push(write_of(&signature, history, books.plan.now()));
    }
}

/// True if the attempt already had as much memory as the largest suitable worker.
pub(super) fn is_largest(books: &Books, task: TaskId, attempt: &Attempt) -> bool {
    let Some(spec) = books.ledger.spec_of(books.ledger.key_of(task)) else { return false };
    let queue = books.ledger.jobs.get(&task.job).map_or("", |job| &job.spec.queue);
    let class = class_of(spec, queue, &books.plan.workers);
    let fits = |worker: &&Worker| placement::eligible_when_idle(&class, worker);
    let most =
        books.plan.workers.largest_first().find(fits).map_or(0, |worker| worker.record.capacity.memory);
    most > 0 && attempt.booked_bytes() >= most
}

/// What the end of an attempt says of its worker. A kill for memory, at a limit or on request says nothing,
/// nor does a launch that failed, or outputs that were lost, by the job's own fault.
fn judge_worker(books: &mut Books, task: TaskId, attempt: &Attempt, result: &TaskResult) {
    let is_external = books.ledger.spec_of(books.ledger.key_of(task)).is_some_and(|step| step.is_external);
    let verdict = match &result.end {
        End::Exited(0) => HealthVerdict::Succeeded,
        End::Exited(_) | End::Signaled(_) => HealthVerdict::Failed,
        End::NotStarted { fault, .. } => match fault {
            LaunchFault::Job => return,
            LaunchFault::Worker => HealthVerdict::NotStarted,
            LaunchFault::Unknown => HealthVerdict::Failed,
        },
        End::OutputsLost { fault: LaunchFault::Job, .. } => return,
        // Where no worker can keep outputs, it fails on all of them, and none is left out.
        End::OutputsLost { .. } => HealthVerdict::Failed,
        // Its client says so: it may be the client's access that is missing.
        End::Lost if is_external => return,
        End::Lost if attempt.started.is_none() => HealthVerdict::NotStarted,
        // One that was cut off may have fenced itself.
        end if is_unasked(attempt, end) && is_steady(&books.plan, attempt) => HealthVerdict::NotStarted,
        End::Lost | End::OutOfMemory | End::TimeLimit | End::Canceled | End::Recalled => return,
    };
    let now = books.plan.now();
    let Some(job) = books.ledger.jobs.get_mut(&task.job) else { return };
    if verdict == HealthVerdict::Succeeded {
        books.ledger.successes.count(&job.spec.user);
    }
    job.failed_attempts += u64::from(verdict == HealthVerdict::Failed);
    let record = Record { succeeded: job.counts().succeeded.into(), failed: job.failed_attempts };
    let of = Ended { job: task.job, user: &job.spec.user, record };
    let suspicious =
        |worker: &Worker| verdict != HealthVerdict::Succeeded || worker.health != Health::default();
    if books.plan.workers.get(attempt.worker).is_some_and(suspicious) {
        let successes = &books.ledger.successes;
        books.plan.workers.update(attempt.worker, |w| w.health.ended(now, of, verdict, successes));
    }
}

/// True if the attempt's worker was connected ever since it was booked.
fn is_steady(plan: &Planner, attempt: &Attempt) -> bool {
    plan.workers.get(attempt.worker).is_some_and(|w| w.link.connected && w.link.greeted <= attempt.booked)
}

fn write_of(signature: &Signature, history: &History, at: Time) -> Write {
    let samples = history.samples().copied().collect();
    Write::History { signature: signature.to_string(), samples, at }
}

/// What an attempt teaches; `None` of one that did not run to its own end, and of one that was killed below its limit:
/// that was enough. No task is taken to hold more than the `capacity` of its worker in bytes, whatever that says; 0 is
/// unknown. A build that asked for no memory teaches what one of its processes needs. Further ones begin only where
/// there is memory for them.
fn sample_of(step: &StepSpec, attempt: &Attempt, result: &TaskResult, capacity: u64) -> Option<Sample> {
    let oom = result.end == End::OutOfMemory;
    let is_limited = step.request.memory > 0;
    let is_at_fault = oom && !(is_limited && result.is_short_of_memory(Some(attempt.booked_bytes())));
    if !is_at_fault && result.end != End::Exited(0) {
        return None;
    }
    let ran = result.started.zip(result.finished);
    let most = if capacity > 0 { capacity } else { PEAK_BYTES_MAX };
    let of_process = result.process_memory.filter(|bytes| !is_limited && *bytes > 0);
    let held = of_process.or(result.peak_memory).map(|bytes| bytes.min(most));
    let had = attempt.booked_bytes().max(held.unwrap_or(0));
    let needs = needs_after_kill(had, is_limited);
    Some(Sample {
        peak_memory: if oom { Some(needs).filter(|needs| *needs > 0) } else { held },
        cpu_ms: result.cpu_ms,
        // Of one that was killed it is not how long such a task takes.
        wall_ms: ran.filter(|_| !oom).map(|(started, finished)| finished.since(started) / NS_PER_MS),
        disk_bytes: result.disk_bytes,
        oom,
    })
}
