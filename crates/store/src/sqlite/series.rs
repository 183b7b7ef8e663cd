//! Series of the farm over time: a blob for each part and step, written by the server every few minutes.

use super::read::Reader;
use crate::codes::int;
use crate::rows;
use crate::view::SeriesRow;
use rusqlite::{Connection, TransactionBehavior, params};
use std::ops::Range;

/// Replaces these rows, and deletes of each part what is not among the steps that are kept.
pub fn keep(db: &mut Connection, rows: &[SeriesRow], kept: &[(u8, Range<u64>)]) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for SeriesRow { part, step, data } in rows {
        tx.prepare_cached(
            "INSERT INTO series (part, step, data) VALUES (?1, ?2, ?3)
             ON CONFLICT (part, step) DO UPDATE SET data = excluded.data",
        )?
        .execute(params![part, int(*step), data])?;
    }
    for (part, steps) in kept {
        tx.prepare_cached("DELETE FROM series WHERE part = ?1 AND (step < ?2 OR step >= ?3)")?.execute((
            part,
            int(steps.start),
            int(steps.end),
        ))?;
    }
    tx.commit()
}

impl Reader {
    pub fn series(&self) -> rusqlite::Result<Vec<SeriesRow>> {
        let mut all = self.db.prepare_cached("SELECT part, step, data FROM series ORDER BY step, part")?;
        all.query_map([], |row| Ok(rows::series(row)?))?.collect()
    }
}
