//! Rows of notices that are owed.

use super::read::Reader;
use crate::codes::{int, time};
use crate::notices::{NewNotice, OwedNotice};
use crate::rows;
use rusqlite::{Connection, Transaction, params};

/// Adds a notice in the transaction of its batch.
pub fn add(tx: &Transaction<'_>, notice: &NewNotice) -> rusqlite::Result<()> {
    let NewNotice { job, user, to, body, at } = notice;
    let sql = "INSERT INTO notices (job, user, target, body, at) VALUES (?1, ?2, ?3, ?4, ?5)";
    tx.prepare_cached(sql)?.execute(params![job.map(|job| int(job.0)), user, to, body, time(*at)])?;
    Ok(())
}

/// Deletes notices that were delivered or given up.
pub fn forget(db: &mut Connection, numbers: &[u64]) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    for number in numbers {
        tx.prepare_cached("DELETE FROM notices WHERE id = ?1")?.execute([int(*number)])?;
    }
    tx.commit()
}

impl Reader {
    pub fn owed_notices(&self, after: u64, limit: usize) -> rusqlite::Result<Vec<OwedNotice>> {
        let sql = "SELECT id, job, user, target, body, at FROM notices WHERE id > ?1 ORDER BY id LIMIT ?2";
        let mut some = self.db.prepare_cached(sql)?;
        some.query_map((int(after), limit as i64), |row| Ok(rows::notice(row)?))?.collect()
    }
}
