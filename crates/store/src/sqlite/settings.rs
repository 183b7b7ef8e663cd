//! Rows that placement uses besides jobs and workers: samples of task profiles, queues, limits, and the steps
//! that back off for a limit. The writer's thread changes them in a batch's transaction, and an engine reads
//! them when it starts. Nothing here checks a setting; the engine did.

use crate::codes::{int, time};
use crate::rows::{self, LIMIT, QUEUE, StoredRow};
use crate::spec;
use rusqlite::{Connection, Transaction, params};
use std::collections::BTreeMap;
use windlass_core::job::BackOff;
use windlass_core::licences::Limit;
use windlass_core::queues::{QueueRecord, TurnsBy};
use windlass_core::score::history::Sample;
use windlass_core::{JobId, Time};

/// Replaces the samples of a task profile.
pub fn set_history(
    tx: &Transaction<'_>,
    signature: &str,
    samples: &[Sample],
    at: Time,
) -> rusqlite::Result<usize> {
    tx.prepare_cached(
        "INSERT INTO history (signature, samples, at) VALUES (?1, ?2, ?3)
         ON CONFLICT (signature) DO UPDATE SET samples = excluded.samples, at = excluded.at",
    )?
    .execute(params![signature, spec::samples_to_json(samples), time(at)])
}

/// Up to `limit` task profiles with their samples, last used first.
pub fn history(db: &Connection, limit: usize) -> rusqlite::Result<Vec<(String, Vec<Sample>)>> {
    let sql = "SELECT signature, samples FROM history ORDER BY at DESC, signature DESC LIMIT ?1";
    let mut profiles = db.prepare_cached(sql)?;
    profiles.query_map([limit as i64], |row| Ok(rows::history(row)?))?.collect()
}

/// Deletes up to `limit` task profiles that were not used since `before`; returns how many were deleted.
pub fn forget_history(tx: &Transaction<'_>, before: Time, limit: usize) -> rusqlite::Result<usize> {
    tx.prepare_cached(
        "DELETE FROM history WHERE signature IN
             (SELECT signature FROM history WHERE at < ?1 ORDER BY at, signature LIMIT ?2)",
    )?
    .execute((time(before), limit as i64))
}

pub fn set_queue(tx: &Transaction<'_>, queue: &QueueRecord) -> rusqlite::Result<usize> {
    let QueueRecord {
        name,
        weight,
        band,
        quota_cpu,
        burst_cpu,
        paused,
        users,
        turns,
        user_weights,
        jobserver,
    } = queue;
    let users = (!users.is_empty()).then(|| spec::to_json(users));
    let turns = *turns == TurnsBy::Jobs;
    let user_weights = (!user_weights.is_empty()).then(|| spec::to_json(user_weights));
    tx.prepare_cached(
        "INSERT INTO queues (name, weight, band, quota_cpu, burst_cpu, paused, users, turns, user_weights, jobserver)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (name) DO UPDATE SET weight = excluded.weight, band = excluded.band,
             quota_cpu = excluded.quota_cpu, burst_cpu = excluded.burst_cpu, paused = excluded.paused,
             users = excluded.users, turns = excluded.turns, user_weights = excluded.user_weights,
             jobserver = excluded.jobserver",
    )?
    .execute(params![name, weight, band, quota_cpu, burst_cpu, paused, users, turns, user_weights, jobserver])
}

pub fn queues(db: &Connection) -> rusqlite::Result<Vec<QueueRecord>> {
    let mut queues = db.prepare_cached(&format!("SELECT {QUEUE} FROM queues ORDER BY name"))?;
    queues.query_map([], |row| Ok(rows::queue(row)?))?.collect()
}

/// Replaces a limit, or deletes it. Deleting a limit that does not exist succeeds.
pub fn set_limit(tx: &Transaction<'_>, name: &str, limit: Option<&Limit>) -> rusqlite::Result<()> {
    let Some(Limit { max, per_worker, busy }) = limit else {
        tx.prepare_cached("DELETE FROM limits WHERE name = ?1")?.execute([name])?;
        return Ok(());
    };
    let exits = busy.as_ref().map(|busy| spec::to_json(&busy.exits));
    let back_off_ms = busy.as_ref().map(|busy| int(busy.back_off_ms));
    tx.prepare_cached(
        "INSERT INTO limits (name, max, per_worker, busy_exits, back_off_ms) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (name) DO UPDATE SET max = excluded.max, per_worker = excluded.per_worker,
             busy_exits = excluded.busy_exits, back_off_ms = excluded.back_off_ms",
    )?
    .execute(params![name, max, per_worker, exits, back_off_ms])?;
    Ok(())
}

pub fn limits(db: &Connection) -> rusqlite::Result<BTreeMap<String, Limit>> {
    let mut limits = db.prepare_cached(&format!("SELECT {LIMIT} FROM limits"))?;
    limits.query_map([], |row| Ok(rows::limit(row)?))?.collect()
}

/// Replaces a job's steps that back off for a limit.
pub fn set_back_offs(
    tx: &Transaction<'_>,
    job: JobId,
    steps: &BTreeMap<u16, BackOff>,
) -> rusqlite::Result<usize> {
    let json = (!steps.is_empty()).then(|| spec::back_offs_to_json(steps));
    tx.prepare_cached("UPDATE jobs SET back_offs = ?2 WHERE id = ?1")?.execute((int(job.0), json))
}

/// A job's steps that back off for a limit.
pub fn back_offs(db: &Connection, job: JobId) -> rusqlite::Result<BTreeMap<u16, BackOff>> {
    let mut one = db.prepare_cached("SELECT back_offs FROM jobs WHERE id = ?1")?;
    let found = one.query_row([int(job.0)], |row| Ok(row.json(0, spec::back_offs_from_json)?))?;
    Ok(found.unwrap_or_default())
}
