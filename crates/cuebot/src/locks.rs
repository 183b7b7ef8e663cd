//! The order in which all transactions on OpenCue's tables lock: ends of frames, reports of hosts, calls of clients,
//! and the gateway's bookings. With one order no two of them wait for each other in a circle, which PostgreSQL would
//! find after a second and end one of them for.
//!
//! A transaction that locks several of these takes them in this order, and several of one kind by their keys:
//!
//! 1. jobs, by [`lock_jobs`]: each job of which it changes frames, procs, layers or dependencies
//! 2. frames
//! 3. procs
//! 4. counts of layers (`layer_stat`), then counts of jobs (`job_stat`): triggers write both at each frame
//! 5. all other rows of the jobs, such as dependencies, usage, `layer`, `job` and `layer_resource`
//! 6. subscriptions
//! 7. groups (`folder_resource`)
//! 8. figures of jobs (`job_resource`)
//! 9. hosts
//! 10. limits
//! 11. departments (`point`)
//! 12. counts of shows (`show_stats`)
//!
//! - Two layers of a job that depend on each other have their rows taken in either order by the triggers. The lock of
//!   the job comes before, so that only one transaction at a time takes any of them.
//! - The rows that all frames of a show count in come last, so that they are held only for the end of a transaction.
//! - No result rests on the locks of jobs: each statement has its own guard. They are advisory locks, which Cuebot,
//!   where it runs beside a scheduler, does not take. Bookings therefore also lock the rows in Cuebot's order, which
//!   is this one.
//! - A report of a host locks the host's row before all others, and after that only procs and frames that are free
//!   (`SKIP LOCKED`). It never waits while it holds a row.
//! - A transaction that finds only late that it changes a further job takes the lock of that job where it is free, and
//!   begins again where it is not.
//! - A statement on one row, in a transaction of its own, needs nothing of this.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Transaction};

/// The first half of the keys of the locks: "winj" as a number.
const JOBS: i32 = 0x7769_6e6a;
/// Locks that all jobs share, a power of two. One call may name all jobs of a farm, and PostgreSQL has room for 6,400
/// locks by default. Two jobs that share one only wait for each other's transactions: of two batches of 25 jobs, which
/// are booked at a time, one in seven.
const PARTS: i32 = 4_096;

/// Locks the jobs whose keys a query gives, until the transaction ends. It comes before all other locks of the
/// transaction, and once. `jobs` is part of the statement and never what a client sent.
///
/// # Errors
///
/// PostgreSQL failed.
pub async fn lock_jobs(
    tx: &Transaction<'_>,
    jobs: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<(), Error> {
    tx.query(&statement(jobs), values).await?;
    Ok(())
}

/// Locks further jobs late in a transaction, those that are free or that it has. False where another transaction has
/// one: to wait for it now would be out of order.
pub(crate) async fn try_lock_jobs(
    tx: &Transaction<'_>,
    jobs: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<bool, Error> {
    let parts = parts(jobs);
    let statement =
        format!("SELECT coalesce(bool_and(pg_try_advisory_xact_lock({JOBS}, part)), true) FROM {parts}");
    Ok(tx.query_one(&statement, values).await?.get(0))
}

/// The statement that locks the jobs of a query.
pub(crate) fn statement(jobs: &str) -> String {
    format!("SELECT pg_advisory_xact_lock({JOBS}, part) FROM {}", parts(jobs))
}

/// The locks of the jobs of a query, in their order.
fn parts(jobs: &str) -> String {
    let last = PARTS - 1;
    format!(
        "(SELECT DISTINCT hashtext(job) & {last} AS part FROM ({jobs}) AS named (job)
           WHERE job IS NOT NULL ORDER BY 1) AS parts"
    )
}
