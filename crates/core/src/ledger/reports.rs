//! What workers report: that an attempt started or ended, the load of their machines, the keys in their caches.

use super::Books;
use super::commands::send;
use super::hello::Report;
use super::holding::{drop_attempt, mark_started, promote, yield_to_lenders};
use super::lease::note_worker;
use super::lifecycle::conclude;
use crate::bounds::{CORES_USED_MAX, PEAK_BYTES_MAX};
use crate::cache_keys::CacheKeys;
use crate::ids::WorkerId;
use crate::job::TaskResult;
use crate::load::formula::Saturated;
use crate::load::pressure::LoadReport;
use crate::outbox::{Fact, Outbox, WorkerCommand, Write};
use crate::plan::Planner;
use crate::score::windows::Metric;
use crate::time::{NS_PER_MS, Time};

pub(crate) fn started(books: &mut Books, by: Report, at: Time, out: &mut Outbox) {
    books.plan.workers.hear(by.worker, books.plan.now());
    if books.ledger.is_current(&by) {
        mark_started(books, by.task, at, out);
        yield_to_lenders(books, by.task);
    }
}

pub(crate) fn finished(books: &mut Books, by: Report, result: TaskResult, out: &mut Outbox) {
    let Report { worker, epoch, task, attempt } = by;
    books.plan.workers.hear(worker, books.plan.now());
    if books.ledger.is_current(&by) {
        if let Some(attempt) = drop_attempt(books, task) {
            let result = believable(result, attempt.booked, books.plan.now());
            conclude(books, task, &attempt, result, out);
            promote(books, worker);
        }
    } else if books.plan.workers.get(worker).is_none_or(|w| epoch < w.record.epoch) {
        let result = believable(result, Time::default(), books.plan.now());
        out.writes.push(Write::LateResult { task, attempt, worker, epoch, result });
        out.facts.push(Fact::Late { task, attempt, worker });
    }
    // Under the worker's epoch of today an attempt that is not booked was reported before: only the
    // acknowledgement is missing. A later epoch is invalid.
    send(&mut books.plan, worker, WorkerCommand::Ack { task, attempt }, out);
}

/// A result as it can have been: what ran between the booking and now, for as long as its worker says that it
/// took. A clock that is off by as much moves it; what the worker says is otherwise stored as it is.
fn believable(mut result: TaskResult, booked: Time, now: Time) -> TaskResult {
    let booked = booked.min(now);
    if let Some((started, finished)) = result.started.zip(result.finished) {
        let ran_ns = finished.since(started).min(now.since(booked));
        let finished = finished.clamp(booked.after(ran_ns), now);
        (result.started, result.finished) = (Some(Time(finished.0 - ran_ns)), Some(finished));
    } else {
        result.started = result.started.map(|at| at.clamp(booked, now));
        result.finished = result.finished.map(|at| at.clamp(booked, now));
    }
    let ran_ms = result.started.map_or(0, |at| now.since(at)) / NS_PER_MS;
    let cpu_ms_max = (ran_ms + 1_000) * CORES_USED_MAX;
    result.cpu_ms = result.cpu_ms.map(|ms| ms.min(cpu_ms_max));
    result.token_cpu_ms = result.token_cpu_ms.map(|ms| ms.min(cpu_ms_max));
    result.peak_memory = result.peak_memory.map(|bytes| bytes.min(PEAK_BYTES_MAX));
    result.process_memory = result.process_memory.map(|bytes| bytes.min(PEAK_BYTES_MAX));
    result
}

/// A worker reports the load of its machine.
pub(crate) fn load(plan: &mut Planner, worker: WorkerId, report: Box<LoadReport>) {
    let now = plan.now();
    plan.workers.hear(worker, now);
    if let Some(speed) = report.network_mbit_s {
        plan.record(Metric::NetworkMbitS, speed);
    }
    if plan.workers.update_load(worker, now, Some(report)) {
        plan.request_round();
    }
}

/// A worker reports the keys in its caches.
pub(crate) fn caches(plan: &mut Planner, worker: WorkerId, keys: CacheKeys) {
    plan.workers.update(worker, |w| {
        w.reported.set_caches(keys);
    });
    plan.workers.gained(worker);
    plan.request_round();
}

/// Tells of workers that begin or cease to lack what new work needs.
pub(crate) fn note_pressure(plan: &mut Planner, out: &mut Outbox) {
    for (worker, (before, held)) in plan.workers.take_pressed() {
        let what = match held {
            Saturated { state: Some(_), .. } => "short of free space in its state directory",
            Saturated { session: Some(_), .. } => "short of free space in its session directory",
            Saturated { memory: true, .. } => "held by memory pressure",
            Saturated { io: true, .. } => "held by io pressure",
            Saturated { cpu: true, .. } => "held by cpu pressure",
            Saturated { network: true, .. } => "held from network-bound work: its network is in use",
            Saturated { .. } if before.lacks_space() => "no longer short of free space",
            Saturated { .. } if before.is_pressed() => "no longer held by pressure",
            Saturated { .. } => "no longer held from network-bound work",
        };
        note_worker(plan, worker, what, out);
    }
}
