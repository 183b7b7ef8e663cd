//! A database with far more ended jobs than one meets in a test, filled in a few statements.

use super::Postgres;
use super::trouble::Trouble;
use crate::StoreError;
use windlass_core::JobId;

/// Jobs that one statement copies.
const JOBS_PER_STATEMENT: u64 = 20_000;

/// The columns of a job beside its id. Each copy ended a microsecond after the one before it.
const JOBS: &str = "INSERT INTO jobs (id, name, queue, submitter, spec, created, state, stop, held, ended, counts, parked,
        back_offs, done, bytes, priority)
    SELECT copy, name, queue, submitter, spec, created + copy, state, stop, held, ended + copy * 1000, counts, parked,
        back_offs, done, bytes, priority
    FROM jobs, generate_series($2::bigint, $3::bigint) AS copy WHERE id = $1";
const BODIES: &str = "INSERT INTO bodies (job, step, body)
    SELECT copy, step, body FROM bodies, generate_series($2::bigint, $3::bigint) AS copy WHERE job = $1";
const TASKS: &str =
    "INSERT INTO tasks (job, idx, state, attempt, failures, losses, worker, epoch, booked, cpu, memory,
        ending, code, why, started, finished, cpu_ms, peak, out_bytes, err_bytes, disk)
    SELECT copy, idx, state, attempt, failures, losses, worker, epoch, booked, cpu, memory,
        ending, code, why, started, finished, cpu_ms, peak, out_bytes, err_bytes, disk
    FROM generate_series($2::bigint, $3::bigint) AS copy, tasks WHERE job = $1 ORDER BY copy, idx";
/// What every batch that makes jobs or ends them keeps beside them.
const TOTALS: &str = "WITH one AS (SELECT submitter, bytes, state FROM jobs WHERE id = $1),
        ended AS (UPDATE ended_totals SET jobs = jobs + $2::bigint FROM one WHERE ended_totals.state = one.state)
    UPDATE user_totals SET jobs = user_totals.jobs + $2::bigint, bytes = user_totals.bytes + one.bytes * $2::bigint
        FROM one WHERE user_totals.submitter = one.submitter";
const NEXT: &str = "UPDATE meta SET value = greatest(value, $1) WHERE key = 'next_job'";

/// Copies an ended job with its tasks, as the jobs from `first` to `last`, and has the database look at what it holds then.
/// For measurements.
pub async fn bench_ended_jobs(address: &str, job: JobId, first: u64, last: u64) -> Result<(), StoreError> {
    let postgres = Postgres::connect(address).await?;
    let connection = postgres.own_connection().await?;
    let failed = |e| Trouble::Sql(e).while_it("copied jobs");
    let of = job.0 as i64;
    for from in (first..=last).step_by(JOBS_PER_STATEMENT as usize) {
        let to = (from + JOBS_PER_STATEMENT - 1).min(last);
        for sql in [JOBS, BODIES, TASKS] {
            connection.client.execute(sql, &[&of, &(from as i64), &(to as i64)]).await.map_err(failed)?;
        }
    }
    connection.client.execute(TOTALS, &[&of, &((last + 1 - first) as i64)]).await.map_err(failed)?;
    connection.client.execute(NEXT, &[&(last as i64 + 1)]).await.map_err(failed)?;
    connection.client.batch_execute("VACUUM ANALYZE").await.map_err(failed)
}
