//! Brings a file that releases with shards left to where its farm can have one engine; see [`join`](crate::join). The
//! statements are those of the last schema with shards.

use crate::codes::{self, int, time};
use crate::join::{IS_DIVIDED, OpenJob, Predecessors, now, unwritten};
use crate::spec;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use std::collections::BTreeMap;
use windlass_core::JobId;
use windlass_core::engine::Write;

/// A job that waits for others is never parked.
const OPEN: &str = "SELECT id, home, stop, spec FROM jobs
    WHERE state = 0 AND parked = 0 AND (spec LIKE '%\"after\":%' OR id IN (SELECT job FROM delegated))";
const TASKS: &str = "SELECT idx, state FROM tasks WHERE job = ?1 ORDER BY idx";
const PREDECESSOR: &str = "SELECT home, state FROM jobs WHERE id = ?1";

/// Writes what engines of shards had still to write.
pub fn join(db: &mut Connection) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if tx.query_row(IS_DIVIDED, [], |row| row.get(0))? {
        let open = open_jobs(&tx)?;
        let predecessors = predecessors(&tx, &open)?;
        for write in unwritten(open, predecessors, now()) {
            apply(&tx, &write)?;
        }
    }
    tx.commit()
}

fn open_jobs(tx: &Transaction<'_>) -> rusqlite::Result<BTreeMap<JobId, OpenJob>> {
    let (mut jobs, mut tasks) = (tx.prepare(OPEN)?, tx.prepare(TASKS)?);
    let (mut rows, mut open) = (jobs.query([])?, BTreeMap::new());
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let spec = spec::spec_from_json(row.get_ref(3)?.as_str()?);
        let spec = spec.map_err(|e| rusqlite::Error::FromSqlConversionFailure(3, Type::Text, Box::new(e)))?;
        let stop = row.get::<_, Option<i64>>(2)?.map(codes::stop_from);
        let mut job = OpenJob::new(row.get(1)?, spec, stop);
        let mut rows = tasks.query([id])?;
        while let Some(row) = rows.next()? {
            let state = codes::task_state_from(row.get(1)?);
            job.add_task(row.get(0)?, state.ok_or_else(|| unknown("no such task state"))?);
        }
        open.insert(JobId(id as u64), job);
    }
    Ok(open)
}

fn predecessors(tx: &Transaction<'_>, open: &BTreeMap<JobId, OpenJob>) -> rusqlite::Result<Predecessors> {
    let (mut one, mut found) = (tx.prepare(PREDECESSOR)?, Predecessors::new());
    for id in open.values().flat_map(OpenJob::after) {
        let row = one.query_row([int(id.0)], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        if let Some((home, state)) = row {
            let state = codes::job_state_from(state).ok_or_else(|| unknown("no such job state"))?;
            found.insert(*id, (home, state));
        }
    }
    Ok(found)
}

/// Triggers count the jobs that end.
fn apply(tx: &Transaction<'_>, write: &Write) -> rusqlite::Result<()> {
    match write {
        Write::JobStop { job, stop } => {
            tx.execute("UPDATE jobs SET stop = ?2 WHERE id = ?1", (int(job.0), codes::stop(*stop)))?;
        }
        Write::JobEnd { job, state, at, counts } => {
            let row = (int(job.0), codes::job_state(*state), time(*at), spec::counts_to_json(counts));
            tx.execute("UPDATE jobs SET state = ?2, ended = ?3, counts = ?4 WHERE id = ?1", row)?;
        }
        _ => {}
    }
    Ok(())
}

fn unknown(what: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(1, Type::Integer, what.into())
}
