//! Rows as the values of the store. A number that this version does not know is an error, never another state.

use super::trouble::Trouble;
use crate::codes;
use crate::spec;
use crate::view::{AttemptView, JobView, StoredTask, TokenRecord};
use std::sync::Arc;
use tokio_postgres::Row;
use windlass_core::job::{End, JobState, TaskResult, TaskRow};
use windlass_core::worker::WorkerRecord;
use windlass_core::{Epoch, JobId, Time, WorkerId};

/// The columns of [`job`].
pub const JOB: &str = "id, spec, created, state, stop, held, ended, counts, priority";
/// The columns of [`result`], the first of an attempt's and of a task's.
pub const RESULT: &str = "ending, code, why, started, finished, cpu_ms, peak, out_bytes, err_bytes, disk";
/// The columns of [`task_row`].
pub const TASK: &str = "idx, state, attempt, failures, losses, worker, epoch, booked, cpu, memory";
/// The columns of an attempt behind [`RESULT`].
pub const ATTEMPT: &str = "attempt, worker, epoch, late, idx";
/// The columns of [`worker`].
pub const WORKER: &str =
    "id, name, epoch, incarnation, draining, capacity, attributes, identity, state, lease_until, note";
/// The columns of [`token`].
pub const TOKEN: &str =
    "id, hash, role, submitter, worker, note, created, expires, revoked, serves, for_users, queue";

fn unknown(what: &str) -> Trouble {
    Trouble::Row(format!("the database has a {what} that this version does not know"))
}

pub fn time_at(row: &Row, column: usize) -> Option<Time> {
    row.get::<_, Option<i64>>(column).map(|ns| Time(ns as u64))
}

pub fn number_at(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column) as u64
}

fn small(row: &Row, column: usize) -> u32 {
    row.get::<_, i64>(column) as u32
}

pub fn job_state(row: &Row, column: usize) -> Result<JobState, Trouble> {
    codes::job_state_from(row.get::<_, i16>(column).into()).ok_or_else(|| unknown("state of a job"))
}

pub fn job(row: &Row) -> Result<JobView, Trouble> {
    let mut spec = spec::spec_from_json(row.get(1))?;
    spec.priority = row.get::<_, Option<i32>>(8).unwrap_or(spec.priority);
    let counts = row.get::<_, Option<&str>>(7).map(spec::counts_from_json).transpose()?;
    Ok(JobView {
        id: JobId(number_at(row, 0)),
        spec: Arc::new(spec),
        created: Time(number_at(row, 2)),
        state: job_state(row, 3)?,
        stop: row.get::<_, Option<i64>>(4).map(codes::stop_from),
        held: row.get(5),
        ended: time_at(row, 6),
        counts,
    })
}

/// The result in the first ten columns; `None` if the attempt has not ended.
pub fn result(row: &Row) -> Result<Option<TaskResult>, Trouble> {
    let Some(code) = row.get::<_, Option<i16>>(0) else { return Ok(None) };
    let why: Option<String> = row.get(2);
    let end = codes::end_from(code.into(), row.get(1), why.clone());
    let message = why.filter(|_| !matches!(end, Some(End::NotStarted { .. })));
    let unsigned = |column| row.get::<_, Option<i64>>(column).map(|n| n as u64);
    Ok(Some(TaskResult {
        end: end.ok_or_else(|| unknown("kind of end"))?,
        started: time_at(row, 3),
        finished: time_at(row, 4),
        cpu_ms: unsigned(5),
        peak_memory: unsigned(6),
        disk_bytes: unsigned(9),
        out_bytes: unsigned(7).unwrap_or(0),
        err_bytes: unsigned(8).unwrap_or(0),
        message,
    }))
}

/// The task's row, in the ten columns from `first` on.
pub fn task_row(row: &Row, first: usize) -> Result<TaskRow, Trouble> {
    let state = row.get::<_, i16>(first + 1).into();
    let memory = row.get::<_, Option<i64>>(first + 9).map(|bytes| bytes as u64);
    Ok(TaskRow {
        index: small(row, first),
        state: codes::task_state_from(state).ok_or_else(|| unknown("state of a task"))?,
        attempt: small(row, first + 2),
        failures: small(row, first + 3),
        losses: small(row, first + 4),
        worker: WorkerId(number_at(row, first + 5)),
        epoch: Epoch(number_at(row, first + 6)),
        booked: Time(number_at(row, first + 7)),
        amounts: row.get::<_, Option<i64>>(first + 8).map(|cpu| cpu as u32).zip(memory),
    })
}

pub fn task(row: &Row) -> Result<StoredTask, Trouble> {
    Ok(StoredTask { row: task_row(row, 10)?, result: result(row)? })
}

/// The index of the task, and the attempt.
pub fn attempt(row: &Row) -> Result<(u32, AttemptView), Trouble> {
    let view = AttemptView {
        attempt: small(row, 10),
        worker: WorkerId(number_at(row, 11)),
        epoch: Epoch(number_at(row, 12)),
        late: row.get(13),
        result: result(row)?.ok_or_else(|| unknown("an attempt without an end"))?,
    };
    Ok((small(row, 14), view))
}

pub fn worker(row: &Row) -> Result<WorkerRecord, Trouble> {
    let state = codes::worker_state_from(row.get::<_, i16>(8).into());
    Ok(WorkerRecord {
        id: WorkerId(number_at(row, 0)),
        name: row.get(1),
        epoch: Epoch(number_at(row, 2)),
        identity: number_at(row, 7),
        incarnation: number_at(row, 3),
        state: state.ok_or_else(|| unknown("state of a worker"))?,
        draining: row.get(4),
        note: row.get(10),
        lease_until: time_at(row, 9),
        capacity: spec::resources_from_json(row.get(5))?,
        attributes: spec::attributes_from_json(row.get(6))?,
    })
}

pub fn token(row: &Row) -> Result<TokenRecord, Trouble> {
    let hash: &[u8] = row.get(1);
    Ok(TokenRecord {
        id: row.get(0),
        hash: hash
            .try_into()
            .map_err(|_| Trouble::Row("the hash of a token is not of 32 bytes".to_owned()))?,
        role: row.get(2),
        user: row.get(3),
        worker: row.get(4),
        note: row.get(5),
        created: Time(number_at(row, 6)),
        expires: time_at(row, 7),
        revoked: time_at(row, 8),
        serves: spec::names_from_json(row.get(9))?,
        // An empty list gives a submitter no right.
        for_users: spec::names_from_json(row.get(10))?,
        queue: row.get(11),
    })
}
