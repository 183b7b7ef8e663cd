//! Procs: shares of hosts that frames hold.

use crate::trouble::CallError;
use deadpool_postgres::Transaction;

/// Deletes the procs with the keys `$1`, and gives back what they held: to hosts, and to the figures of subscriptions,
/// folders, layers, jobs and departments. One statement does it, so that all of it happens exactly once. A selection
/// from the deleted rows, `gone`, is appended.
///
/// PostgreSQL chooses the order of the updates. So the rows are locked before, in the order of `locks.rs`: each
/// part asks how many rows the part before it has locked, and cannot begin earlier. The locks of the jobs must be held.
pub const RELEASE_PROCS: &str = "WITH held AS MATERIALIZED (
        SELECT p.pk_proc, p.pk_host, p.pk_show, p.pk_job, j.pk_folder, j.pk_dept, h.pk_alloc
        FROM proc p JOIN host h ON h.pk_host = p.pk_host JOIN job j ON j.pk_job = p.pk_job
        WHERE p.pk_proc = ANY($1::text[]) ORDER BY p.pk_proc FOR UPDATE OF p
    ), subscriptions AS MATERIALIZED (
        SELECT 1 FROM subscription WHERE (pk_show, pk_alloc) IN (SELECT pk_show, pk_alloc FROM held)
        ORDER BY pk_subscription FOR UPDATE
    ), folders AS MATERIALIZED (
        SELECT 1 FROM folder_resource WHERE (SELECT count(*) FROM subscriptions) >= 0
            AND pk_folder IN (SELECT pk_folder FROM held) ORDER BY pk_folder FOR UPDATE
    ), jobs AS MATERIALIZED (
        SELECT 1 FROM job_resource WHERE (SELECT count(*) FROM folders) >= 0
            AND pk_job IN (SELECT pk_job FROM held) ORDER BY pk_job FOR UPDATE
    ), hosts AS MATERIALIZED (
        SELECT 1 FROM host WHERE (SELECT count(*) FROM jobs) >= 0
            AND pk_host IN (SELECT pk_host FROM held) ORDER BY pk_host FOR UPDATE
    ), departments AS MATERIALIZED (
        SELECT 1 FROM point WHERE (SELECT count(*) FROM hosts) >= 0
            AND (pk_show, pk_dept) IN (SELECT pk_show, pk_dept FROM held) ORDER BY pk_point FOR UPDATE
    ), gone AS (
        DELETE FROM proc p USING held
        WHERE (SELECT count(*) FROM departments) >= 0 AND p.pk_proc = held.pk_proc
        RETURNING p.pk_host, p.pk_show, p.pk_layer, p.pk_job, held.pk_folder, held.pk_dept, held.pk_alloc,
            p.int_cores_reserved AS cores, p.int_mem_reserved AS mem, p.int_gpus_reserved AS gpus,
            p.int_gpu_mem_reserved AS gpu_mem
    ), h AS (
        UPDATE host t SET int_cores_idle = int_cores_idle + s.cores, int_mem_idle = int_mem_idle + s.mem,
            int_gpus_idle = int_gpus_idle + s.gpus, int_gpu_mem_idle = int_gpu_mem_idle + s.gpu_mem
        FROM (SELECT pk_host, sum(cores) AS cores, sum(mem) AS mem, sum(gpus) AS gpus, sum(gpu_mem) AS gpu_mem
            FROM gone GROUP BY 1) s WHERE t.pk_host = s.pk_host
    ), s AS (
        UPDATE subscription t SET int_cores = int_cores - s.cores, int_gpus = int_gpus - s.gpus
        FROM (SELECT pk_show, pk_alloc, sum(cores) AS cores, sum(gpus) AS gpus FROM gone GROUP BY 1, 2) s
        WHERE t.pk_show = s.pk_show AND t.pk_alloc = s.pk_alloc
    ), f AS (
        UPDATE folder_resource t SET int_cores = int_cores - s.cores, int_gpus = int_gpus - s.gpus
        FROM (SELECT pk_folder, sum(cores) AS cores, sum(gpus) AS gpus FROM gone GROUP BY 1) s
        WHERE t.pk_folder = s.pk_folder
    ), l AS (
        UPDATE layer_resource t SET int_cores = int_cores - s.cores, int_gpus = int_gpus - s.gpus
        FROM (SELECT pk_layer, sum(cores) AS cores, sum(gpus) AS gpus FROM gone GROUP BY 1) s
        WHERE t.pk_layer = s.pk_layer
    ), j AS (
        UPDATE job_resource t SET int_cores = int_cores - s.cores, int_gpus = int_gpus - s.gpus
        FROM (SELECT pk_job, sum(cores) AS cores, sum(gpus) AS gpus FROM gone GROUP BY 1) s WHERE t.pk_job = s.pk_job
    ), d AS (
        UPDATE point t SET int_cores = int_cores - s.cores, int_gpus = int_gpus - s.gpus
        FROM (SELECT pk_show, pk_dept, sum(cores) AS cores, sum(gpus) AS gpus FROM gone GROUP BY 1, 2) s
        WHERE t.pk_show = s.pk_show AND t.pk_dept = s.pk_dept
    )";
/// Tells schedulers what became free, as Cuebot does.
const NOTIFY: &str = "SELECT pg_notify('acct_release', json_build_object('show', pk_show, 'alloc', pk_alloc,
        'folder', pk_folder, 'job', pk_job, 'layer', pk_layer, 'dept', pk_dept, 'cores', -(cores / 100),
        'gpus', -gpus)::text) FROM gone";

/// Ends a proc and gives back what it held. False where it was gone already.
pub(crate) async fn release(tx: &Transaction<'_>, proc: &str) -> Result<bool, CallError> {
    let procs = [proc];
    let statement = tx.prepare_cached(&format!("{RELEASE_PROCS} {NOTIFY}")).await?;
    Ok(!tx.query(&statement, &[&procs.as_slice()]).await?.is_empty())
}
