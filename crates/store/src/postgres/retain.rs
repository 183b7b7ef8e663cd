//! Deletion of old rows, in bounded transactions.

use super::Postgres;
use super::trouble::Trouble;
use crate::codes::time;
use crate::error::StoreError;
use deadpool_postgres::Transaction;
use windlass_core::{JobId, Time};

/// The oldest of the jobs that ended before a time. A job that another server is deleting or retrying is passed over.
const OLDEST: &str = "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE ended IS NOT NULL AND ended < $1
        ORDER BY ended LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING id, submitter, bytes, state";
const TASKS: &str =
    "DELETE FROM tasks WHERE job = $1 AND idx IN (SELECT idx FROM tasks WHERE job = $1 LIMIT $2)";
const HISTORY: &str = "DELETE FROM history WHERE signature IN
    (SELECT signature FROM history WHERE at < $1 ORDER BY at, signature LIMIT $2)";
const TOKENS: &str = "DELETE FROM tokens WHERE id IN
    (SELECT id FROM tokens WHERE revoked < $1 OR expires < $1 ORDER BY id LIMIT $2)";

impl Postgres {
    /// See [`Store::retain`](crate::Store::retain). A job's own row is deleted first, so no reader sees half of a job.
    /// The rows of its tasks follow in this and later transactions, between which commits run.
    pub(crate) async fn retain(&self, before: Time, budget: usize) -> Result<(Vec<JobId>, bool), StoreError> {
        let mut client = self.client().await?;
        retain(&mut client, before, budget).await.map_err(|trouble| trouble.while_it("deleted"))
    }
}

async fn retain(
    client: &mut deadpool_postgres::Object,
    before: Time,
    budget: usize,
) -> Result<(Vec<JobId>, bool), Trouble> {
    let at = client.transaction().await?;
    let mut left = budget;
    sweep(&at, &mut left).await?;
    let mut gone = Vec::new();
    while left > 0 {
        let Some(row) = at.query_opt(OLDEST, &[&time(before)]).await? else { break };
        let (id, user, bytes): (i64, String, i64) = (row.get(0), row.get(1), row.get(2));
        let less = "UPDATE user_totals SET jobs = jobs - 1, bytes = bytes - $2 WHERE submitter = $1";
        at.execute(less, &[&user, &bytes]).await?;
        at.execute("DELETE FROM user_totals WHERE submitter = $1 AND jobs <= 0", &[&user]).await?;
        let less = "UPDATE ended_totals SET jobs = jobs - 1 WHERE state = $1";
        at.execute(less, &[&row.get::<_, i16>(3)]).await?;
        // The expression is that of the index.
        at.execute("DELETE FROM foreign_jobs WHERE job % 1000000000000 = $1", &[&id]).await?;
        at.execute("INSERT INTO deleted VALUES ($1)", &[&id]).await?;
        gone.push(JobId(id as u64));
        left -= 1;
        sweep(&at, &mut left).await?;
    }
    for sql in [HISTORY, TOKENS] {
        let rows = at.execute(sql, &[&time(before), &(left as i64)]).await?;
        left -= (rows as usize).min(left);
    }
    at.commit().await?;
    Ok((gone, left == 0))
}

/// Deletes rows that belong to deleted jobs, up to `left` rows of tasks.
async fn sweep(at: &Transaction<'_>, left: &mut usize) -> Result<(), Trouble> {
    while *left > 0 {
        let first = "SELECT job FROM deleted LIMIT 1 FOR UPDATE SKIP LOCKED";
        let Some(row) = at.query_opt(first, &[]).await? else { break };
        let id: i64 = row.get(0);
        let rows = at.execute(TASKS, &[&id, &(*left as i64)]).await?;
        *left -= (rows as usize).min(*left);
        if *left == 0 {
            break;
        }
        for table in ["attempts", "bodies", "deleted"] {
            at.execute(&format!("DELETE FROM {table} WHERE job = $1"), &[&id]).await?;
        }
    }
    Ok(())
}
