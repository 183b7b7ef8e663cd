//! Rows of what placement goes by beside jobs and workers: samples by signature, queues and limits.

use super::write::time;
use crate::spec;
use rusqlite::types::Type;
use rusqlite::{Connection, Transaction, params};
use std::collections::BTreeMap;
use windlass_core::Time;
use windlass_core::queues::QueueRecord;
use windlass_core::score::history::Sample;

/// Keeps the samples of a signature in the place of those before.
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

/// Up to `limit` signatures with their samples, those used last first.
pub fn history(db: &Connection, limit: usize) -> rusqlite::Result<Vec<(String, Vec<Sample>)>> {
    let sql = "SELECT signature, samples FROM history ORDER BY at DESC, signature DESC LIMIT ?1";
    let mut rows = db.prepare_cached(sql)?;
    let rows = rows.query_map([limit as i64], |row| {
        let samples = spec::samples_from_json(row.get_ref(1)?.as_str()?);
        let bad = |e| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, Box::new(e));
        Ok((row.get(0)?, samples.map_err(bad)?))
    })?;
    rows.collect()
}

/// Deletes up to `limit` signatures that nothing ran of since `before`; returns how many went.
pub fn forget_history(tx: &Transaction<'_>, before: Time, limit: usize) -> rusqlite::Result<usize> {
    tx.prepare_cached(
        "DELETE FROM history WHERE signature IN
             (SELECT signature FROM history WHERE at < ?1 ORDER BY at, signature LIMIT ?2)",
    )?
    .execute((time(before), limit as i64))
}

/// Keeps a queue as it was set.
pub fn set_queue(tx: &Transaction<'_>, queue: &QueueRecord) -> rusqlite::Result<usize> {
    tx.prepare_cached(
        "INSERT INTO queues (name, weight, quota_cpu) VALUES (?1, ?2, ?3)
         ON CONFLICT (name) DO UPDATE SET weight = excluded.weight, quota_cpu = excluded.quota_cpu",
    )?
    .execute(params![queue.name, queue.weight, queue.quota_cpu])
}

/// All queues that were set, by name.
pub fn queues(db: &Connection) -> rusqlite::Result<Vec<QueueRecord>> {
    let mut rows = db.prepare_cached("SELECT name, weight, quota_cpu FROM queues ORDER BY name")?;
    let rows = rows.query_map([], |row| {
        let name: String = row.get(0)?;
        Ok(QueueRecord { weight: row.get(1)?, quota_cpu: row.get(2)?, ..QueueRecord::named(&name) })
    })?;
    rows.collect()
}

/// Keeps a limit, or deletes it. One that is not there is deleted already.
pub fn set_limit(tx: &Transaction<'_>, name: &str, max: Option<u32>) -> rusqlite::Result<()> {
    match max {
        Some(max) => tx
            .prepare_cached(
                "INSERT INTO limits (name, max) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET max = excluded.max",
            )?
            .execute((name, max))?,
        None => tx.prepare_cached("DELETE FROM limits WHERE name = ?1")?.execute([name])?,
    };
    Ok(())
}

/// All limits by name.
pub fn limits(db: &Connection) -> rusqlite::Result<BTreeMap<String, u32>> {
    let mut rows = db.prepare_cached("SELECT name, max FROM limits")?;
    rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
