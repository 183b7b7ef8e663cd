//! Rows of parked jobs, and their counts by queue and class. Positions are ordered by `rank`, the negated priority, then
//! by `ranked` and the job's id. An audit compares counts and rows.

use super::rows::number_at;
use super::trouble::Trouble;
use super::{Postgres, int};
use crate::error::StoreError;
use deadpool_postgres::Transaction;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tokio_postgres::Row;
use windlass_core::job::{BacklogCounts, Parked, QueuePos};
use windlass_core::residency::subqueues::{ParkedCount, ParkedDrift};
use windlass_core::{JobId, Time};

/// The next parked jobs of a subqueue, with their jobs.
pub const PAGE: &str = "SELECT {JOB}, p.class, p.rank, p.ranked, p.job, p.ready, p.tasks, p.waiting
    FROM (SELECT * FROM parked WHERE queue = $1 AND class = $2 AND (rank, ranked, job) >= ($3, $4, $5)
        ORDER BY rank, ranked, job LIMIT $6) AS p JOIN jobs AS j ON j.id = p.job
    ORDER BY p.rank, p.ranked, p.job";
/// A parked job alone, in the columns of [`from_row`].
pub const ROW: &str = "SELECT p.class, p.rank, p.ranked, p.job, p.ready, p.tasks, p.waiting FROM parked AS p";

const COUNTS: &str = "SELECT queue, class, jobs, tasks, waiting FROM parked_counts ORDER BY queue, class";
const FOUND: &str = "SELECT queue, class, count(*), sum(tasks)::bigint, sum(waiting)::bigint FROM parked
    GROUP BY queue, class ORDER BY queue, class";

pub fn from_row(row: &Row) -> Parked {
    from_columns(row, 0)
}

/// A parked job, in the seven columns from `first` on.
pub fn from_columns(row: &Row, first: usize) -> Parked {
    let number = |column| number_at(row, first + column);
    let priority = i32::try_from(-row.get::<_, i64>(first + 1)).unwrap_or(i32::MIN);
    Parked {
        class: number(0),
        place: QueuePos { priority: Reverse(priority), ranked: Time(number(2)), job: JobId(number(3)) },
        ready: Time(number(4)),
        backlog: BacklogCounts { jobs: 1, ready: number(5), waiting: number(6) },
    }
}

/// The counts by queue and class.
pub async fn counts(at: &Transaction<'_>) -> Result<Vec<ParkedCount>, Trouble> {
    Ok(at.query(COUNTS, &[]).await?.iter().map(count_from).collect())
}

fn count_from(row: &Row) -> ParkedCount {
    // A count below 0 is wrong, and appears as 0 until the audit corrects it.
    let number = |column| row.get::<_, i64>(column).max(0) as u64;
    let backlog = BacklogCounts { jobs: number(2), ready: number(3), waiting: number(4) };
    ParkedCount { queue: row.get(0), class: row.get::<_, i64>(1) as u64, backlog }
}

/// The counts that differ from the rows.
async fn drifts(at: &Transaction<'_>) -> Result<Vec<ParkedDrift>, Trouble> {
    let key = |count: ParkedCount| ((count.queue, count.class), count.backlog);
    let mut counted: BTreeMap<_, _> = counts(at).await?.into_iter().map(key).collect();
    let mut drifts = Vec::new();
    for row in at.query(FOUND, &[]).await? {
        let (key, found) = key(count_from(&row));
        let counted = counted.remove(&key).unwrap_or_default();
        if counted != found {
            drifts.push(ParkedDrift { queue: key.0, class: key.1, counted, found });
        }
    }
    let none =
        |((queue, class), counted)| ParkedDrift { queue, class, counted, found: BacklogCounts::default() };
    drifts.extend(counted.into_iter().map(none));
    Ok(drifts)
}

impl Postgres {
    /// Compares beside commits, and holds them up only to correct what differs.
    pub(crate) async fn audit_parked(&self) -> Result<Vec<ParkedDrift>, StoreError> {
        self.settle().await?;
        let mut client = self.client().await?;
        let failed = |trouble: Trouble| trouble.while_it("counted");
        let mut one = client.build_transaction();
        one = one.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).read_only(true);
        let at = one.start().await.map_err(|e| failed(e.into()))?;
        if drifts(&at).await.map_err(failed)?.is_empty() {
            return Ok(Vec::new());
        }
        drop(at);
        recount(&mut client).await.map_err(failed)
    }
}

async fn recount(client: &mut deadpool_postgres::Object) -> Result<Vec<ParkedDrift>, Trouble> {
    let at = client.transaction().await?;
    // Commits wait at their end, and what they park is counted before or after.
    at.batch_execute("LOCK TABLE parked, parked_counts IN SHARE ROW EXCLUSIVE MODE").await?;
    let found = drifts(&at).await?;
    for ParkedDrift { queue, class, found, .. } in &found {
        let class = int(*class);
        at.execute("DELETE FROM parked_counts WHERE queue = $1 AND class = $2", &[queue, &class]).await?;
        if found.jobs > 0 {
            let sql =
                "INSERT INTO parked_counts (queue, class, jobs, tasks, waiting) VALUES ($1, $2, $3, $4, $5)";
            let BacklogCounts { jobs, ready, waiting } = *found;
            at.execute(sql, &[queue, &class, &int(jobs), &int(ready), &int(waiting)]).await?;
        }
    }
    at.commit().await?;
    Ok(found)
}
