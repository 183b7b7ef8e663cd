//! Rows of another system's jobs and hosts, one document for each. The server's Compass CI interface writes
//! and reads them. The store never looks into a document, and deletes that of a job with the job.

use super::read::Reader;
use crate::codes::int;
use crate::rows::StoredRow;
use crate::view::{ForeignDocs, ForeignWrite};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use windlass_core::JobId;

/// Applies changes in one transaction.
pub fn apply(db: &mut Connection, writes: &[ForeignWrite]) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for write in writes {
        match write {
            ForeignWrite::Job { job, open, doc } => tx
                .prepare_cached(
                    "INSERT INTO foreign_jobs (job, open, doc) VALUES (?1, ?2, ?3)
                     ON CONFLICT (job) DO UPDATE SET open = excluded.open, doc = excluded.doc",
                )?
                .execute(params![int(job.0), open, doc])?,
            ForeignWrite::Forget(job) => {
                tx.prepare_cached("DELETE FROM foreign_jobs WHERE job = ?1")?.execute([int(job.0)])?
            }
            ForeignWrite::Host { name, doc } => tx
                .prepare_cached(
                    "INSERT INTO foreign_hosts (name, doc) VALUES (?1, ?2)
                     ON CONFLICT (name) DO UPDATE SET doc = excluded.doc",
                )?
                .execute(params![name, doc])?,
        };
    }
    tx.commit()
}

/// Deletes the documents of all nodes of a job. The expression is that of their index, literally: SQLite uses an index on
/// an expression for the same expression alone. See [`FOREIGN_NODE_NUMBERS`](crate::FOREIGN_NODE_NUMBERS).
pub fn delete_all(tx: &Transaction<'_>, job: i64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM foreign_jobs WHERE job % 1000000000000 = ?1";
    tx.prepare_cached(sql)?.execute([job]).map(|_| ())
}

impl Reader {
    pub fn foreign_job(&self, id: JobId) -> rusqlite::Result<Option<String>> {
        let mut one = self.db.prepare_cached("SELECT doc FROM foreign_jobs WHERE job = ?1")?;
        one.query_row([int(id.0)], |row| row.get(0)).optional()
    }

    pub fn foreign_docs(&self) -> rusqlite::Result<ForeignDocs> {
        let mut hosts = self.db.prepare_cached("SELECT name, doc FROM foreign_hosts ORDER BY name")?;
        let hosts = hosts.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let open = "SELECT job, doc FROM foreign_jobs WHERE open = 1 ORDER BY job";
        let mut open = self.db.prepare_cached(open)?;
        let open = open.query_map([], |row| Ok((JobId(row.number(0)?), row.get(1)?)))?;
        Ok(ForeignDocs {
            hosts: hosts.collect::<rusqlite::Result<_>>()?,
            open: open.collect::<rusqlite::Result<_>>()?,
        })
    }
}
