//! Rows of parked jobs, and their counts by queue and class. Positions are ordered by `rank`, the negated priority, then
//! by `ranked` and the job's id. An audit compares counts and rows.

use super::Postgres;
use super::trouble::Trouble;
use crate::codes::int;
use crate::error::StoreError;
use crate::rows;
use deadpool_postgres::Transaction;
use windlass_core::job::BacklogCounts;
use windlass_core::residency::subqueues::{ParkedCount, ParkedDrift};

/// The next parked jobs of a subqueue, with their jobs.
pub const PAGE: &str = "SELECT {JOB}, p.class, p.rank, p.ranked, p.job, p.ready, p.tasks, p.waiting
    FROM (SELECT * FROM parked WHERE queue = $1 AND class = $2 AND (rank, ranked, job) >= ($3, $4, $5)
        ORDER BY rank, ranked, job LIMIT $6) AS p JOIN jobs AS j ON j.id = p.job
    ORDER BY p.rank, p.ranked, p.job";
/// A parked job alone, in the columns of [`rows::parked`].
pub const ROW: &str = "SELECT p.class, p.rank, p.ranked, p.job, p.ready, p.tasks, p.waiting FROM parked AS p";

const COUNTS: &str = "SELECT queue, class, jobs, tasks, waiting FROM parked_counts ORDER BY queue, class";
const FOUND: &str = "SELECT queue, class, count(*), sum(tasks)::bigint, sum(waiting)::bigint FROM parked
    GROUP BY queue, class";

pub async fn counts(at: &Transaction<'_>) -> Result<Vec<ParkedCount>, Trouble> {
    read(at, COUNTS).await
}

async fn read(at: &Transaction<'_>, counts: &str) -> Result<Vec<ParkedCount>, Trouble> {
    Ok(at.query(counts, &[]).await?.iter().map(rows::count).collect::<Result<_, _>>()?)
}

/// The counts that differ from the rows.
async fn drifts(at: &Transaction<'_>) -> Result<Vec<ParkedDrift>, Trouble> {
    Ok(rows::drifts(counts(at).await?, read(at, FOUND).await?))
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
