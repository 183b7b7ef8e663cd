//! Rows of parked jobs, and their counts by queue and class. A transaction changes each count once, by the
//! sum of what it parks and unparks. Positions are ordered by `rank`, the negated priority, then by `ranked`
//! and the job's id. An audit compares counts and rows.

use crate::codes::{int, time};
use crate::rows::{self, StoredRow};
use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction, TransactionBehavior, params};
use std::collections::BTreeMap;
use windlass_core::JobId;
use windlass_core::job::{BacklogCounts, Parked, QueuePos};
use windlass_core::residency::subqueues::{ParkedCount, ParkedDrift};

/// Statement for the next parked jobs of a subqueue.
pub const PAGE: &str = "SELECT class, rank, ranked, job, ready, tasks, waiting FROM parked
     WHERE queue = ?1 AND class = ?2 AND (rank, ranked, job) >= (?3, ?4, ?5)
     ORDER BY rank, ranked, job LIMIT ?6";

/// Parameters of [`PAGE`]: a subqueue, the first position that may be returned, and the largest number of jobs.
pub fn page_from(queue: &str, class: u64, from: QueuePos, most: usize) -> impl Params {
    (queue, int(class), rank(from), time(from.ranked), int(from.job.0), most as i64)
}

/// The negated priority: a smaller rank comes first.
fn rank(place: QueuePos) -> i64 {
    -i64::from(place.priority.0)
}

/// A job's parked state; `None` if it is not parked.
pub fn of(db: &Connection, job: JobId) -> rusqlite::Result<Option<Parked>> {
    let sql = "SELECT class, rank, ranked, job, ready, tasks, waiting FROM parked WHERE job = ?1";
    db.prepare_cached(sql)?.query_row([int(job.0)], |row| Ok(rows::parked(row, 0)?)).optional()
}

/// Number of a queue's parked jobs before a position.
pub fn before(db: &Connection, queue: &str, position: QueuePos) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM parked WHERE queue = ?1 AND (rank, ranked, job) < (?2, ?3, ?4)";
    let first = (queue, rank(position), time(position.ranked), int(position.job.0));
    db.prepare_cached(sql)?.query_row(first, |row| Ok(row.number(0)?))
}

/// Sums by which a transaction changes the counts: jobs, ready tasks, waiting tasks.
#[derive(Default)]
pub struct Deltas(BTreeMap<(String, u64), [i64; 3]>);

impl Deltas {
    fn add(&mut self, queue: &str, parked: &Parked, sign: i64) {
        let BacklogCounts { jobs, ready, waiting } = parked.backlog;
        let delta = self.0.entry((queue.to_owned(), parked.class)).or_default();
        for (sum, more) in delta.iter_mut().zip([jobs, ready, waiting]) {
            *sum += sign * int(more);
        }
    }

    /// Adds the sums to the counts, and removes counts of subqueues that have become empty.
    pub fn apply(self, tx: &Transaction<'_>) -> rusqlite::Result<()> {
        for ((queue, class), [jobs, tasks, waiting]) in self.0 {
            tx.prepare_cached(
                "INSERT INTO parked_counts (queue, class, jobs, tasks, waiting) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (queue, class) DO UPDATE SET jobs = jobs + excluded.jobs,
                     tasks = tasks + excluded.tasks, waiting = waiting + excluded.waiting",
            )?
            .execute((&queue, int(class), jobs, tasks, waiting))?;
            if jobs < 0 {
                let none = "DELETE FROM parked_counts WHERE queue = ?1 AND class = ?2 AND jobs = 0";
                tx.prepare_cached(none)?.execute((&queue, int(class)))?;
            }
        }
        Ok(())
    }
}

/// Parks an active job; 0 rows if it is not active or is parked already.
pub fn park(
    tx: &Transaction<'_>,
    job: JobId,
    queue: &str,
    parked: &Parked,
    deltas: &mut Deltas,
) -> rusqlite::Result<usize> {
    let mark = "UPDATE jobs SET parked = 1 WHERE id = ?1 AND state = 0 AND parked = 0";
    let rows = tx.prepare_cached(mark)?.execute([int(job.0)])?;
    if rows > 0 {
        let Parked { class, position, ready, backlog } = parked;
        tx.prepare_cached(
            "INSERT INTO parked (job, queue, class, rank, ranked, ready, tasks, waiting)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            int(job.0),
            queue,
            int(*class),
            rank(*position),
            time(position.ranked),
            time(*ready),
            int(backlog.ready),
            int(backlog.waiting),
        ])?;
        deltas.add(queue, parked, 1);
    }
    Ok(rows)
}

/// Unparks a job; 0 rows if it is not parked.
pub fn unpark(
    tx: &Transaction<'_>,
    job: JobId,
    queue: &str,
    parked: &Parked,
    deltas: &mut Deltas,
) -> rusqlite::Result<usize> {
    let rows = tx.prepare_cached("DELETE FROM parked WHERE job = ?1")?.execute([int(job.0)])?;
    if rows > 0 {
        tx.prepare_cached("UPDATE jobs SET parked = 0 WHERE id = ?1")?.execute([int(job.0)])?;
        deltas.add(queue, parked, -1);
    }
    Ok(rows)
}

pub fn counts(db: &Connection) -> rusqlite::Result<Vec<ParkedCount>> {
    let sql = "SELECT queue, class, jobs, tasks, waiting FROM parked_counts ORDER BY queue, class";
    let mut counts = db.prepare_cached(sql)?;
    counts.query_map([], count_from)?.collect()
}

fn count_from(row: &Row<'_>) -> rusqlite::Result<ParkedCount> {
    Ok(rows::count(row)?)
}

/// The counts that differ from the rows.
pub fn drifts(db: &Connection) -> rusqlite::Result<Vec<ParkedDrift>> {
    let _moment = db.unchecked_transaction()?;
    let sql = "SELECT queue, class, count(*), sum(tasks), sum(waiting) FROM parked GROUP BY queue, class";
    let mut found = db.prepare_cached(sql)?;
    let found = found.query_map([], count_from)?.collect::<rusqlite::Result<_>>()?;
    Ok(rows::drifts(counts(db)?, found))
}

/// Corrects the counts by the rows; returns the counts that were wrong.
pub fn recount(db: &mut Connection) -> rusqlite::Result<Vec<ParkedDrift>> {
    let found = drifts(db)?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for ParkedDrift { queue, class, found, .. } in &found {
        let one = (queue, int(*class));
        tx.prepare_cached("DELETE FROM parked_counts WHERE queue = ?1 AND class = ?2")?.execute(one)?;
        if found.jobs > 0 {
            let sql =
                "INSERT INTO parked_counts (queue, class, jobs, tasks, waiting) VALUES (?1, ?2, ?3, ?4, ?5)";
            let BacklogCounts { jobs, ready, waiting } = *found;
            let row = (queue, int(*class), int(jobs), int(ready), int(waiting));
            tx.prepare_cached(sql)?.execute(row)?;
        }
    }
    tx.commit()?;
    Ok(found)
}
