//! Procs: shares of hosts that frames hold.

use super::trouble::CallError;
use tokio_postgres::Transaction;

/// Deletes a proc and gives back what it held: to the host, and to the figures of subscription, layer, job, folder
/// and department. One statement does it, so that all of it happens exactly once.
const RELEASE: &str = "
WITH gone AS (
    DELETE FROM proc WHERE pk_proc = $1
     RETURNING pk_host, pk_job, pk_layer, pk_show, int_cores_reserved AS cores, int_mem_reserved AS memory,
               int_gpus_reserved AS gpus, int_gpu_mem_reserved AS gpu_memory
), given AS (
    UPDATE host h SET int_cores_idle = h.int_cores_idle + gone.cores, int_mem_idle = h.int_mem_idle + gone.memory,
           int_gpus_idle = h.int_gpus_idle + gone.gpus,
           int_gpu_mem_idle = h.int_gpu_mem_idle + gone.gpu_memory
      FROM gone WHERE h.pk_host = gone.pk_host
    RETURNING h.pk_alloc
), place AS (
    SELECT gone.*, given.pk_alloc, job.pk_folder, job.pk_dept
      FROM gone CROSS JOIN given JOIN job ON job.pk_job = gone.pk_job
), subscribed AS (
    UPDATE subscription s SET int_cores = s.int_cores - p.cores, int_gpus = s.int_gpus - p.gpus
      FROM place p WHERE s.pk_show = p.pk_show AND s.pk_alloc = p.pk_alloc
), layered AS (
    UPDATE layer_resource r SET int_cores = r.int_cores - p.cores, int_gpus = r.int_gpus - p.gpus
      FROM place p WHERE r.pk_layer = p.pk_layer
), jobbed AS (
    UPDATE job_resource r SET int_cores = r.int_cores - p.cores, int_gpus = r.int_gpus - p.gpus
      FROM place p WHERE r.pk_job = p.pk_job
), foldered AS (
    UPDATE folder_resource r SET int_cores = r.int_cores - p.cores, int_gpus = r.int_gpus - p.gpus
      FROM place p WHERE r.pk_folder = p.pk_folder
), pointed AS (
    UPDATE point r SET int_cores = r.int_cores - p.cores, int_gpus = r.int_gpus - p.gpus
      FROM place p WHERE r.pk_dept = p.pk_dept AND r.pk_show = p.pk_show
)
SELECT pg_notify('acct_release', json_build_object('show', pk_show, 'alloc', pk_alloc, 'folder', pk_folder,
           'job', pk_job, 'layer', pk_layer, 'dept', pk_dept, 'cores', -(cores / 100), 'gpus', -gpus)::text)
  FROM place";

/// Ends a proc and gives back what it held. False where it was gone already.
pub(crate) async fn release(tx: &Transaction<'_>, proc: &str) -> Result<bool, CallError> {
    Ok(!tx.query(RELEASE, &[&proc]).await?.is_empty())
}
