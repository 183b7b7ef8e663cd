//! Sums of what attempts took, by day, user and queue.

use super::read::Reader;
use crate::codes::int;
use crate::rows;
use crate::usage::{SUM_MAX, USAGE_PAIRS_MAX, UsageKey, UsageRows, UsageSum};
use rusqlite::{Connection, Transaction, params};
use std::collections::BTreeMap;

/// Adds what a batch took, in its transaction.
pub fn add(tx: &Transaction<'_>, sums: &BTreeMap<UsageKey, UsageSum>) -> rusqlite::Result<()> {
    for (key, sum) in sums {
        if !has(tx, key)? && of_day(tx, key.day)? >= USAGE_PAIRS_MAX as i64 {
            add_one(tx, &UsageKey::of_others(key.day), *sum)?;
        } else {
            add_one(tx, key, *sum)?;
        }
    }
    Ok(())
}

fn has(tx: &Transaction<'_>, key: &UsageKey) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM day_usage WHERE day = ?1 AND user = ?2 AND queue = ?3";
    tx.prepare_cached(sql)?.exists(params![int(key.day), key.user, key.queue])
}

fn of_day(tx: &Transaction<'_>, day: u64) -> rusqlite::Result<i64> {
    let sql = "SELECT count(*) FROM day_usage WHERE day = ?1";
    tx.prepare_cached(sql)?.query_row([int(day)], |row| row.get(0))
}

fn add_one(tx: &Transaction<'_>, key: &UsageKey, sum: UsageSum) -> rusqlite::Result<()> {
    let sql =
        "INSERT INTO day_usage (day, user, queue, cpu_ms, tasks, failed) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (day, user, queue) DO UPDATE SET cpu_ms = min(cpu_ms + excluded.cpu_ms, ?7),
            tasks = min(tasks + excluded.tasks, ?7), failed = min(failed + excluded.failed, ?7)";
    let UsageSum { cpu_ms, tasks, failed } = sum;
    let (day, cpu_ms, tasks, failed) = (int(key.day), int(cpu_ms), int(tasks), int(failed));
    let values = params![day, key.user, key.queue, cpu_ms, tasks, failed, int(SUM_MAX)];
    tx.prepare_cached(sql)?.execute(values).map(|_| ())
}

/// Deletes the rows of the oldest day, if it is before this one; returns how many there were.
pub fn forget(db: &mut Connection, before: u64) -> rusqlite::Result<usize> {
    let oldest = "DELETE FROM day_usage WHERE day = (SELECT min(day) FROM day_usage) AND day < ?1";
    db.prepare_cached(oldest)?.execute([int(before)])
}

impl Reader {
    pub fn usage_since(&self, day: u64, limit: usize) -> rusqlite::Result<UsageRows> {
        let first = "SELECT min(day) FROM day_usage";
        let first: Option<i64> = self.db.prepare_cached(first)?.query_row([], |row| row.get(0))?;
        let sql = "SELECT day, user, queue, cpu_ms, tasks, failed FROM day_usage WHERE day >= ?1
            ORDER BY day DESC, user, queue LIMIT ?2";
        let mut some = self.db.prepare_cached(sql)?;
        let rows = some.query_map((int(day), limit as i64), |row| Ok(rows::usage(row)?))?;
        Ok(UsageRows { first_day: first.map(|day| day as u64), rows: rows.collect::<Result<_, _>>()? })
    }
}
