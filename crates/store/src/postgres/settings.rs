//! Rows that placement uses besides jobs and workers: samples of task profiles, queues and limits. Nothing here checks a
//! setting; the engine did.

use super::trouble::Trouble;
use crate::spec;
use deadpool_postgres::Transaction;
use std::collections::BTreeMap;
use tokio_postgres::Row;
use windlass_core::licences::{Busy, Limit};
use windlass_core::queues::{QueueRecord, TurnsBy};
use windlass_core::score::history::Sample;

/// Up to `limit` task profiles with their samples, last used first.
pub async fn history(at: &Transaction<'_>, limit: usize) -> Result<Vec<(String, Vec<Sample>)>, Trouble> {
    let sql = "SELECT signature, samples FROM history ORDER BY at DESC, signature DESC LIMIT $1";
    let rows = at.query(sql, &[&(limit as i64)]).await?;
    rows.iter().map(|row| Ok((row.get(0), spec::samples_from_json(row.get(1))?))).collect()
}

fn number(row: &Row, column: usize) -> Option<u32> {
    row.get::<_, Option<i64>>(column).map(|n| n as u32)
}

/// All queues that have settings, by name.
pub async fn queues(at: &Transaction<'_>) -> Result<Vec<QueueRecord>, Trouble> {
    let sql = "SELECT name, weight, band, quota_cpu, burst_cpu, paused, users, turns, user_weights
               FROM queues ORDER BY name";
    let queue = |row: &Row| {
        Ok(QueueRecord {
            name: row.get(0),
            weight: row.get::<_, i64>(1) as u32,
            band: number(row, 2).map(|band| band as _),
            quota_cpu: number(row, 3),
            burst_cpu: number(row, 4),
            paused: row.get(5),
            // An empty list would open some queues to all users.
            users: spec::names_from_json(row.get(6))?,
            turns: if row.get(7) { TurnsBy::Jobs } else { TurnsBy::Users },
            user_weights: spec::user_weights_from_json(row.get(8))?,
        })
    };
    at.query(sql, &[]).await?.iter().map(queue).collect()
}

/// All limits.
pub async fn limits(at: &Transaction<'_>) -> Result<BTreeMap<String, Limit>, Trouble> {
    let sql = "SELECT name, max, per_worker, busy_exits, back_off_ms FROM limits";
    let limit = |row: &Row| {
        let exits = row.get::<_, Option<&str>>(3).map(spec::exits_from_json).transpose()?;
        let back_off_ms = row.get::<_, Option<i64>>(4).map(|ms| ms as u64);
        let busy = exits.zip(back_off_ms).map(|(exits, back_off_ms)| Busy { exits, back_off_ms });
        Ok((row.get(0), Limit { max: number(row, 1), per_worker: number(row, 2), busy }))
    };
    at.query(sql, &[]).await?.iter().map(limit).collect()
}
