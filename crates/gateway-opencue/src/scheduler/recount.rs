//! Recounts: figures of managed shows are set to the sums of their procs.
//!
//! When a frame of a managed show ends, Cuebot deletes its proc and gives the host its part back. It leaves the figures of
//! subscription, folder, job, layer and department to the scheduler, and notifies `acct_release`. Rows of other shows are
//! never touched.

use super::snapshot::Scope;
use tokio_postgres::{Client, Error};

/// Shows with a figure that is not the sum of its procs.
const WRONG: &str = "WITH own AS MATERIALIZED (SELECT w.pk_show FROM show w WHERE {owned}),
    sums AS (SELECT p.pk_show, h.pk_alloc, j.pk_folder, p.pk_job, p.pk_layer, sum(p.int_cores_reserved)::bigint AS cores
        FROM proc p JOIN host h USING (pk_host) JOIN job j ON j.pk_job = p.pk_job
        WHERE p.pk_show IN (SELECT pk_show FROM own) GROUP BY 1, 2, 3, 4, 5)
    SELECT s.pk_show FROM subscription s JOIN own USING (pk_show) WHERE s.int_cores <> (SELECT coalesce(sum(cores), 0)
            FROM sums WHERE sums.pk_show = s.pk_show AND sums.pk_alloc = s.pk_alloc)
    UNION SELECT o.pk_show FROM folder o JOIN own USING (pk_show) JOIN folder_resource r USING (pk_folder)
        LEFT JOIN (SELECT pk_folder, sum(cores) AS cores FROM sums GROUP BY 1) t USING (pk_folder)
        WHERE r.int_cores <> coalesce(t.cores, 0)
    UNION SELECT j.pk_show FROM job j JOIN own USING (pk_show) JOIN job_resource r USING (pk_job)
        LEFT JOIN (SELECT pk_job, sum(cores) AS cores FROM sums GROUP BY 1) t USING (pk_job)
        WHERE j.str_state = 'PENDING' AND r.int_cores <> coalesce(t.cores, 0)
    UNION SELECT j.pk_show FROM job j JOIN own USING (pk_show) JOIN layer_resource r USING (pk_job)
        LEFT JOIN (SELECT pk_layer, sum(cores) AS cores FROM sums GROUP BY 1) t USING (pk_layer)
        WHERE j.str_state = 'PENDING' AND r.int_cores <> coalesce(t.cores, 0)";
/// Rows that a booking for a show locks before it inserts procs, so that the sums have all procs of a booking or
/// none.
const LOCKS: [&str; 3] = [
    "SELECT FROM subscription WHERE pk_show = ANY($1::text[]) ORDER BY pk_subscription FOR UPDATE",
    "SELECT FROM folder_resource WHERE pk_folder IN (SELECT pk_folder FROM folder WHERE pk_show = ANY($1::text[]))
     ORDER BY pk_folder FOR UPDATE",
    "SELECT FROM job_resource WHERE pk_job IN (SELECT pk_job FROM job WHERE pk_show = ANY($1::text[])
     AND str_state = 'PENDING') ORDER BY pk_job FOR UPDATE",
];
/// Updates after the locks, each in a statement of its own, which sees what was committed before the locks were
/// taken. The schema's triggers would refuse a sum above its maximum, so it is left as it is.
const UPDATES: [&str; 5] = [
    "UPDATE subscription s SET int_cores = t.cores, int_gpus = t.gpus FROM (
        SELECT s.pk_subscription, coalesce(sum(p.int_cores_reserved), 0)::int AS cores,
            coalesce(sum(p.int_gpus_reserved), 0)::int AS gpus
        FROM subscription s LEFT JOIN (proc p JOIN host h USING (pk_host))
            ON p.pk_show = s.pk_show AND h.pk_alloc = s.pk_alloc
        WHERE s.pk_show = ANY($1::text[]) GROUP BY 1) t
     WHERE s.pk_subscription = t.pk_subscription AND (s.int_cores, s.int_gpus) <> (t.cores, t.gpus)
        AND (t.cores <= s.int_cores OR t.cores <= s.int_burst)",
    "UPDATE folder_resource r SET int_cores = t.cores, int_gpus = t.gpus FROM (
        SELECT o.pk_folder, coalesce(sum(p.int_cores_reserved), 0)::int AS cores,
            coalesce(sum(p.int_gpus_reserved), 0)::int AS gpus
        FROM folder o LEFT JOIN (proc p JOIN job j ON j.pk_job = p.pk_job) ON j.pk_folder = o.pk_folder
        WHERE o.pk_show = ANY($1::text[]) GROUP BY 1) t
     WHERE r.pk_folder = t.pk_folder AND (r.int_cores, r.int_gpus) <> (t.cores, t.gpus)",
    "UPDATE job_resource r SET int_cores = t.cores, int_gpus = t.gpus FROM (
        SELECT j.pk_job, coalesce(sum(p.int_cores_reserved), 0)::bigint AS cores,
            coalesce(sum(p.int_gpus_reserved), 0)::int AS gpus
        FROM job j LEFT JOIN proc p ON p.pk_job = j.pk_job
        WHERE j.pk_show = ANY($1::text[]) AND j.str_state = 'PENDING' GROUP BY 1) t
     WHERE r.pk_job = t.pk_job AND (r.int_cores, r.int_gpus) <> (t.cores, t.gpus)
        AND (t.cores <= r.int_cores OR t.cores <= r.int_max_cores) AND (t.gpus <= r.int_gpus OR t.gpus <= r.int_max_gpus)",
    "UPDATE layer_resource r SET int_cores = t.cores, int_gpus = t.gpus FROM (
        SELECT l.pk_layer, coalesce(sum(p.int_cores_reserved), 0)::bigint AS cores,
            coalesce(sum(p.int_gpus_reserved), 0)::int AS gpus
        FROM job j JOIN layer l ON l.pk_job = j.pk_job LEFT JOIN proc p ON p.pk_layer = l.pk_layer
        WHERE j.pk_show = ANY($1::text[]) AND j.str_state = 'PENDING' GROUP BY 1) t
     WHERE r.pk_layer = t.pk_layer AND (r.int_cores, r.int_gpus) <> (t.cores, t.gpus)",
    "UPDATE point r SET int_cores = t.cores, int_gpus = t.gpus FROM (
        SELECT o.pk_show, o.pk_dept, coalesce(sum(p.int_cores_reserved), 0)::int AS cores,
            coalesce(sum(p.int_gpus_reserved), 0)::int AS gpus
        FROM point o LEFT JOIN (proc p JOIN job j ON j.pk_job = p.pk_job)
            ON p.pk_show = o.pk_show AND j.pk_dept = o.pk_dept
        WHERE o.pk_show = ANY($1::text[]) GROUP BY 1, 2) t
     WHERE r.pk_show = t.pk_show AND r.pk_dept = t.pk_dept AND (r.int_cores, r.int_gpus) <> (t.cores, t.gpus)",
];

/// Brings the figures of the scope's shows to the sums of their procs. Returns how many rows were wrong.
///
/// # Errors
///
/// PostgreSQL failed. Nothing is changed then.
pub async fn recount(client: &mut Client, scope: &Scope) -> Result<u64, Error> {
    let rows = client.query(&WRONG.replace("{owned}", scope.owned()), &[&scope.shows]).await?;
    let shows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    if shows.is_empty() {
        return Ok(0);
    }
    let transaction = client.transaction().await?;
    for lock in LOCKS {
        transaction.query(lock, &[&shows]).await?;
    }
    let mut wrong = 0;
    for update in UPDATES {
        wrong += transaction.execute(update, &[&shows]).await?;
    }
    transaction.commit().await?;
    Ok(wrong)
}
