//! The writing side of the SQLite store: one transaction for a batch, each write guarded by the row that it
//! expects. Only the writer's thread calls it. A refused write changes no row, and the others of its batch
//! are committed.

use super::parked::{self, Deltas};
use super::{foreign, settings, tokens, turns};
use crate::codes::{self, int, time};
use crate::notices::{Beside, owed_of};
use crate::spec;
use crate::usage;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params, params_from_iter};
use std::collections::BTreeSet;
use windlass_core::engine::Write;
use windlass_core::job::TaskResult;
use windlass_core::ranges::RangeSet;
use windlass_core::worker::WorkerRecord;
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

/// Applies a batch, and adds the notices that it owes and what its attempts took; returns the indexes of the refused
/// writes.
pub fn commit(db: &mut Connection, writes: &[Write], beside: &Beside) -> rusqlite::Result<Vec<usize>> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (mut refused, mut deltas) = (Vec::new(), Deltas::default());
    // When a retry finds its job deleted, the later writes of that job are refused too. Otherwise parts of it
    // would come back.
    let mut gone: BTreeSet<JobId> = BTreeSet::new();
    for (number, write) in writes.iter().enumerate() {
        let is_gone = write.job().is_some_and(|job| gone.contains(&job));
        if is_gone || !apply(&tx, write, &mut deltas)? {
            refused.push(number);
            gone.extend(matches!(write, Write::JobRetry { .. }).then(|| write.job()).flatten());
        }
    }
    deltas.apply(&tx)?;
    for notice in owed_of(&beside.notices, writes, &refused) {
        super::notices::add(&tx, notice)?;
    }
    super::usage::add(&tx, &usage::added(&beside.used, writes, &refused))?;
    tx.commit()?;
    Ok(refused)
}

/// Applies a write; false if its guard failed.
fn apply(tx: &Transaction<'_>, write: &Write, deltas: &mut Deltas) -> rusqlite::Result<bool> {
    let rows = match write {
        Write::Job { id, spec, created } => {
            insert_job(tx, *id, spec, *created)?;
            1
        }
        Write::JobHeld { job, held } => {
            tx.prepare_cached("UPDATE jobs SET held = ?2 WHERE id = ?1")?.execute((int(job.0), held))?
        }
        Write::JobPriority { job, priority } => tx
            .prepare_cached("UPDATE jobs SET priority = ?2 WHERE id = ?1")?
            .execute((int(job.0), priority))?,
        Write::JobStop { job, stop } => tx
            .prepare_cached("UPDATE jobs SET stop = ?2 WHERE id = ?1")?
            .execute(params![int(job.0), codes::stop(*stop)])?,
        Write::JobEnd { job, state, at, counts } => {
            let row = (int(job.0), codes::job_state(*state), time(*at), spec::counts_to_json(counts));
            tx.prepare_cached("UPDATE jobs SET state = ?2, ended = ?3, counts = ?4 WHERE id = ?1")?
                .execute(row)?
        }
        Write::JobRetry { job, tasks } => retry(tx, *job, tasks)?,
        Write::TasksCanceled { job, tasks } => set_ranges(tx, "cancels", *job, tasks)?,
        Write::FirstSucceeded { job, tasks } => set_ranges(tx, "first_succeeded", *job, tasks)?,
        Write::Book { task, attempt, worker, epoch, at, amounts: (cpu, memory) } => {
            book(tx, (*task, *attempt), (*worker, *epoch), *at, (*cpu, *memory))?
        }
        Write::End { task, attempt, state, failures, losses, result } => {
            end(tx, *task, *attempt, codes::task_state(*state), (*failures, *losses), result)?
        }
        Write::Requeued { task, attempt, failures, losses, result } => {
            let rows = end(tx, *task, *attempt, codes::READY, (*failures, *losses), result)?;
            if rows > 0 {
                archive(tx, *task, *attempt)?;
            }
            rows
        }
        Write::LateResult { task, attempt, worker, epoch, result } => {
            insert_late(tx, *task, *attempt, (worker.0, epoch.0), result)?;
            // A late result is never refused, because the engine's state does not depend on it.
            1
        }
        Write::Worker(record) => upsert_worker(tx, record)?,
        Write::WorkerGone(id) => {
            tx.prepare_cached("DELETE FROM workers WHERE id = ?1")?.execute([int(id.0)])?;
            1
        }
        Write::Lease { worker, until } => tx
            .prepare_cached("UPDATE workers SET lease_until = ?2 WHERE id = ?1")?
            .execute((int(worker.0), time(*until)))?,
        Write::Park { job, queue, parked } => parked::park(tx, *job, queue, parked, deltas)?,
        Write::Unpark { job, queue, parked } => parked::unpark(tx, *job, queue, parked, deltas)?,
        Write::History { signature, samples, at } => settings::set_history(tx, signature, samples, *at)?,
        Write::Queue(queue) => settings::set_queue(tx, queue)?,
        Write::QueueGone(name) => {
            tx.prepare_cached("DELETE FROM queues WHERE name = ?1")?.execute([name])?;
            1
        }
        Write::Turns(saved) => turns::save(tx, saved)?,
        Write::SucceededRanges { job, tasks } => tx
            .prepare_cached("UPDATE jobs SET done = ?2 WHERE id = ?1")?
            .execute((int(job.0), spec::ranges_to_json(tasks)))?,
        Write::LicenceBackoffs { job, steps } => settings::set_back_offs(tx, *job, steps)?,
        Write::Limit { name, limit } => {
            settings::set_limit(tx, name, limit.as_ref())?;
            1
        }
    };
    Ok(rows > 0)
}

fn book(
    tx: &Transaction<'_>,
    (task, attempt): (TaskId, u32),
    (worker, epoch): (WorkerId, Epoch),
    at: Time,
    (cpu, memory): (u32, u64),
) -> rusqlite::Result<usize> {
    // Attempt 1 inserts the row, and that insert is the compare-and-swap.
    let sql = match attempt {
        1 => {
            "INSERT INTO tasks (job, idx, state, attempt, worker, epoch, booked, cpu, memory)
             VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING"
        }
        _ => {
            "UPDATE tasks SET state = 1, attempt = ?3, worker = ?4, epoch = ?5, booked = ?6, cpu = ?7,
                 memory = ?8, end = NULL
             WHERE job = ?1 AND idx = ?2 AND state = 0 AND attempt = ?3 - 1"
        }
    };
    let (worker, epoch, memory) = (int(worker.0), int(epoch.0), int(memory));
    tx.prepare_cached(sql)?.execute((
        int(task.job.0),
        task.index,
        attempt,
        worker,
        epoch,
        time(at),
        cpu,
        memory,
    ))
}

fn insert_job(
    tx: &Transaction<'_>,
    id: JobId,
    job: &windlass_core::job::JobSpec,
    created: Time,
) -> rusqlite::Result<()> {
    let json = spec::spec_to_json(job);
    let bytes = json.len() + job.steps.iter().map(|step| step.body.len()).sum::<usize>();
    tx.prepare_cached(
        "INSERT INTO jobs (id, name, queue, user, key, spec, created, state, bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8)",
    )?
    .execute(params![
        int(id.0),
        job.name,
        job.queue,
        job.user,
        job.key,
        json,
        time(created),
        bytes as i64
    ])?;
    for (number, step) in job.steps.iter().enumerate() {
        tx.prepare_cached("INSERT INTO bodies (job, step, body) VALUES (?1, ?2, ?3)")?.execute(params![
            int(id.0),
            number as i64,
            &*step.body
        ])?;
    }
    tx.prepare_cached(
        "INSERT INTO meta (key, value) VALUES ('next_job', ?1)
         ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)",
    )?
    .execute([int(id.0 + 1)])?;
    Ok(())
}

fn retry(tx: &Transaction<'_>, job: JobId, again: &RangeSet) -> rusqlite::Result<usize> {
    let rows = tx
        .prepare_cached("UPDATE jobs SET state = 0, stop = NULL, ended = NULL, counts = NULL WHERE id = ?1")?
        .execute([int(job.0)])?;
    if rows == 0 {
        return Ok(0);
    }
    let chosen = "job = ?1 AND idx >= ?2 AND idx < ?3";
    let keep = format!("{ARCHIVE} WHERE {chosen} AND state IN (3, 4) AND end IS NOT NULL ORDER BY idx");
    let open = format!("UPDATE tasks SET state = 0, failures = 0 WHERE {chosen} AND state IN (0, 3, 4)");
    let (mut keep, mut open) = (tx.prepare_cached(&keep)?, tx.prepare_cached(&open)?);
    for range in again.ranges() {
        let tasks = (int(job.0), range.start, range.end);
        keep.execute(tasks)?;
        open.execute(tasks)?;
    }
    Ok(rows)
}

/// Sets a column of a job that holds tasks as ranges.
fn set_ranges(tx: &Transaction<'_>, column: &str, job: JobId, tasks: &RangeSet) -> rusqlite::Result<usize> {
    let ranges = (!tasks.is_empty()).then(|| spec::ranges_to_json(tasks));
    let update = format!("UPDATE jobs SET {column} = ?2 WHERE id = ?1");
    tx.prepare_cached(&update)?.execute((int(job.0), ranges))
}

fn end(
    tx: &Transaction<'_>,
    task: TaskId,
    attempt: u32,
    state: i64,
    (failures, losses): (u32, u32),
    result: &TaskResult,
) -> rusqlite::Result<usize> {
    let key = [int(task.job.0), task.index.into(), attempt.into(), state, failures.into(), losses.into()];
    tx.prepare_cached(
        "UPDATE tasks SET state = ?4, failures = ?5, losses = ?6, end = ?7, code = ?8, why = ?9,
             started = ?10, finished = ?11, cpu_ms = ?12, peak = ?13, out_bytes = ?14, err_bytes = ?15,
             disk = ?16
         WHERE job = ?1 AND idx = ?2 AND attempt = ?3 AND state = 1",
    )?
    .execute(params_from_iter(with_result(&key, result)))
}

/// The values of a key, and behind them how an attempt ended.
fn with_result(key: &[i64], result: &TaskResult) -> Vec<Value> {
    let (end, code, why) = codes::end(&result.end);
    let why = why.or(result.message.as_deref()).map(str::to_owned);
    let mut values: Vec<Value> = key.iter().map(|number| Value::from(*number)).collect();
    values.extend([Value::from(end), code.into(), why.into()]);
    values.extend(codes::usage(result).map(Value::from));
    values
}

/// Copies the last attempts of tasks into their histories.
const ARCHIVE: &str = "INSERT INTO attempts (job, idx, attempt, worker, epoch, late, end, code, why, started,
         finished, cpu_ms, peak, out_bytes, err_bytes, disk, booked)
     SELECT job, idx, attempt, worker, epoch, 0, end, code, why, started, finished, cpu_ms, peak, out_bytes,
         err_bytes, disk, booked
     FROM tasks";

/// Copies the attempt that has just ended into the task's history.
fn archive(tx: &Transaction<'_>, task: TaskId, attempt: u32) -> rusqlite::Result<usize> {
    tx.prepare_cached(&format!("{ARCHIVE} WHERE job = ?1 AND idx = ?2 AND attempt = ?3"))?.execute((
        int(task.job.0),
        task.index,
        attempt,
    ))
}

/// Adds a late result of an attempt that the task really had. Repetitions are dropped: a keeper repeats a
/// result until it is acknowledged.
fn insert_late(
    tx: &Transaction<'_>,
    task: TaskId,
    attempt: u32,
    (worker, epoch): (u64, u64),
    result: &TaskResult,
) -> rusqlite::Result<usize> {
    let key = [int(task.job.0), task.index.into(), attempt.into(), int(worker), int(epoch)];
    tx.prepare_cached(
        "INSERT INTO attempts (job, idx, attempt, worker, epoch, late, end, code, why, started, finished,
             cpu_ms, peak, out_bytes, err_bytes, disk)
         SELECT ?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15
         WHERE EXISTS (SELECT 1 FROM tasks WHERE job = ?1 AND idx = ?2 AND attempt >= ?3)
             AND NOT EXISTS (SELECT 1 FROM attempts WHERE job = ?1 AND idx = ?2 AND attempt = ?3
                 AND worker = ?4 AND epoch = ?5 AND late = 1)",
    )?
    .execute(params_from_iter(with_result(&key, result)))
}

fn upsert_worker(tx: &Transaction<'_>, worker: &WorkerRecord) -> rusqlite::Result<usize> {
    tx.prepare_cached(
        "INSERT INTO workers (id, name, epoch, incarnation, draining, capacity, attributes, identity, state,
             lease_until, note)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, epoch = excluded.epoch,
             incarnation = excluded.incarnation, draining = excluded.draining,
             capacity = excluded.capacity, attributes = excluded.attributes, identity = excluded.identity,
             state = excluded.state, lease_until = excluded.lease_until, note = excluded.note",
    )?
    .execute(params![
        int(worker.id.0),
        worker.name,
        int(worker.epoch.0),
        int(worker.incarnation),
        worker.draining,
        spec::resources_to_json(&worker.capacity),
        spec::to_json(&worker.attributes),
        int(worker.identity),
        codes::worker_state(worker.state),
        worker.lease_until.map(time),
        worker.note,
    ])
}

/// Deletes jobs that ended before `before`, oldest first, then samples that were not used since and tokens
/// that ended before, until about `budget` rows are deleted. A job's own row is deleted first, so no reader
/// sees half of a job. The rows of its tasks follow in this and later transactions, between which commits run.
/// Returns the deleted jobs, and whether there is more to delete.
pub fn retain(db: &mut Connection, before: Time, budget: usize) -> rusqlite::Result<(Vec<JobId>, bool)> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut left = budget;
    sweep(&tx, &mut left)?;
    let gone = retain_jobs(&tx, before, &mut left)?;
    left -= settings::forget_history(&tx, before, left)?.min(left);
    left -= tokens::forget(&tx, before, left)?.min(left);
    tx.commit()?;
    Ok((gone, left == 0))
}

/// Returns up to `pages` empty pages to the file system. True if more than about a tenth of the file is still
/// empty.
pub fn shrink(db: &Connection, pages: u32) -> rusqlite::Result<bool> {
    let number = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    db.pragma(None, "incremental_vacuum", pages, |_| Ok(()))?;
    Ok(number("auto_vacuum")? == 2
        && number("freelist_count")? > number("page_count")? / 10 + i64::from(pages))
}

fn retain_jobs(tx: &Transaction<'_>, before: Time, left: &mut usize) -> rusqlite::Result<Vec<JobId>> {
    let mut gone = Vec::new();
    while *left > 0 {
        let oldest = "SELECT id FROM jobs WHERE ended IS NOT NULL AND ended < ?1 ORDER BY ended LIMIT 1";
        let mut oldest = tx.prepare_cached(oldest)?;
        let Some(id) = oldest.query_row([time(before)], |row| row.get::<_, i64>(0)).optional()? else {
            break;
        };
        tx.prepare_cached("DELETE FROM jobs WHERE id = ?1")?.execute([id])?;
        foreign::delete_all(tx, id)?;
        tx.prepare_cached("INSERT INTO deleted VALUES (?1)")?.execute([id])?;
        gone.push(JobId(id as u64));
        *left -= 1;
        sweep(tx, left)?;
    }
    Ok(gone)
}

/// Deletes rows that belong to deleted jobs, up to `left` rows of tasks.
fn sweep(tx: &Transaction<'_>, left: &mut usize) -> rusqlite::Result<()> {
    while *left > 0 {
        let mut first = tx.prepare_cached("SELECT job FROM deleted LIMIT 1")?;
        let Some(id) = first.query_row([], |row| row.get::<_, i64>(0)).optional()? else { break };
        let some =
            "DELETE FROM tasks WHERE job = ?1 AND idx IN (SELECT idx FROM tasks WHERE job = ?1 LIMIT ?2)";
        *left -= tx.prepare_cached(some)?.execute((id, *left as i64))?.min(*left);
        if *left == 0 {
            break;
        }
        for table in ["attempts", "bodies", "deleted"] {
            tx.prepare_cached(&format!("DELETE FROM {table} WHERE job = ?1"))?.execute([id])?;
        }
    }
    Ok(())
}
