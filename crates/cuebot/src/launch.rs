//! A job spec becomes rows: jobs, layers, frames, dependencies. All rows of a document are written, or none.

use crate::cuebot::Settings;
use crate::depends;
use crate::generated::job::LayerType;
use crate::locks::lock_jobs;
use crate::spec::{JobSpec, LayerSpec, Spec};
use crate::trouble::CallError;
use deadpool_postgres::Transaction;
use std::collections::HashMap;

/// Memory of a layer where neither its spec nor a service says any, in KiB: 3.2 GiB, as in OpenCue.
const MEMORY_KIB: i32 = 3_355_443;

/// The rows that all jobs of a document refer to.
struct Place {
    show: String,
    folder: String,
    dept: String,
    facility: String,
    cores_min: i32,
    cores_max: i32,
}

/// A layer. What its spec leaves out has the values of the first of its services that is known, of the show's own before
/// all others, and else those of the service `default`, or OpenCue's own.
const ADD_LAYER: &str = "
WITH known AS (
    SELECT str_name::text, b_threadable, int_cores_min, int_mem_min, str_tags::text, int_gpus_min, int_gpu_mem_min,
           int_timeout, int_timeout_llu, 0 AS turn FROM show_service WHERE pk_show = $1::text
    UNION ALL SELECT str_name, b_threadable, int_cores_min, int_mem_min, str_tags, int_gpus_min, int_gpu_mem_min,
           int_timeout, int_timeout_llu, 1 FROM service
    UNION ALL SELECT 'default', false, 100, $18::int, 'general', 0, 0, 0, 0, 2
)
INSERT INTO layer (pk_layer, pk_job, str_name, str_cmd, str_range, int_chunk_size, int_dispatch_order, str_type,
       str_services, str_tags, int_cores_min, b_threadable, int_mem_min, int_gpus_min, int_gpu_mem_min, int_timeout,
       int_timeout_llu)
SELECT gen_random_uuid()::text, $2::text, $3::text, $4::text, $5::text, $6::bigint, $7::bigint, $8::text,
       coalesce(nullif(array_to_string($9::text[], ','), ''), 'default'), coalesce($10::text, str_tags),
       coalesce($11::int, int_cores_min), coalesce($12::boolean, b_threadable), coalesce($13::bigint, int_mem_min),
       coalesce($14::int, int_gpus_min), coalesce($15::bigint, int_gpu_mem_min), coalesce($16::int, int_timeout),
       coalesce($17::int, int_timeout_llu)
  FROM known WHERE str_name = ANY($9::text[]) OR str_name = 'default'
 ORDER BY array_position($9::text[], str_name) NULLS LAST, turn LIMIT 1 RETURNING pk_layer";

/// Makes all jobs of a document. Returns their ids.
pub(crate) async fn launch(
    tx: &Transaction<'_>,
    spec: &Spec,
    settings: &Settings,
) -> Result<Vec<String>, CallError> {
    // No other transaction sees the new jobs.
    let awaited: Vec<&str> = spec.depends.iter().map(|depend| depend.on.job.as_str()).collect();
    if !awaited.is_empty() {
        let jobs = "SELECT pk_job FROM job WHERE str_visible_name = ANY($1::text[])";
        lock_jobs(tx, jobs, &[&awaited]).await?;
    }
    let place = place(tx, spec).await?;
    let mut jobs = HashMap::new();
    let mut ids = Vec::new();
    for job in &spec.jobs {
        if job.layers.iter().any(|layer| layer.kind == LayerType::Post) {
            let why =
                format!("job '{}' has a layer of the kind Post, which Windlass does not serve", job.name);
            return Err(CallError::Unserved(why));
        }
        let id = add_job(tx, spec, job, &place, settings).await?;
        for (order, layer) in job.layers.iter().enumerate() {
            add_layer(tx, &id, layer, order as i64, &place).await?;
        }
        jobs.insert(job.name.as_str(), id.clone());
        ids.push(id);
    }
    for depend in &spec.depends {
        depends::add(tx, depend, &jobs).await?;
    }
    for id in &ids {
        activate(tx, id, &place.show).await?;
    }
    Ok(ids)
}

async fn place(tx: &Transaction<'_>, spec: &Spec) -> Result<Place, CallError> {
    let missing = |what, name: &str| CallError::Missing { what, name: name.to_owned() };
    let show = tx
        .query_opt(
            "SELECT pk_show, int_default_min_cores, int_default_max_cores FROM show
              WHERE str_name = $1 AND b_active",
            &[&spec.show],
        )
        .await?
        .ok_or_else(|| missing("active show", &spec.show))?;
    let id: String = show.get(0);
    let folder = tx
        .query_opt(
            "SELECT pk_folder, pk_dept FROM folder WHERE pk_show = $1
              ORDER BY b_default DESC, pk_parent_folder NULLS FIRST LIMIT 1",
            &[&id],
        )
        .await?
        .ok_or_else(|| missing("group of show", &spec.show))?;
    let facility = tx
        .query_opt(
            "SELECT pk_facility FROM facility WHERE CASE WHEN $1::text IS NULL THEN b_default
                    ELSE lower(str_name) = $1::text END LIMIT 1",
            &[&spec.facility],
        )
        .await?
        .ok_or_else(|| missing("facility", spec.facility.as_deref().unwrap_or("default")))?;
    Ok(Place {
        show: id,
        folder: folder.get(0),
        dept: folder.get(1),
        facility: facility.get(0),
        cores_min: show.get(1),
        cores_max: show.get(2),
    })
}

async fn add_job(
    tx: &Transaction<'_>,
    spec: &Spec,
    job: &JobSpec,
    place: &Place,
    settings: &Settings,
) -> Result<String, CallError> {
    let id: String = tx.query_one("SELECT gen_random_uuid()::text", &[]).await?.get(0);
    let logs = format!("{}/{}/{}/logs/{}--{id}", settings.log_root, spec.show, spec.shot, job.name);
    let retries = job.retries_max.unwrap_or(settings.retries_max).clamp(0, settings.retries_max) as i16;
    let uid = spec.uid.map(i64::from);
    let made = tx
        .execute(
            "INSERT INTO job (pk_job, pk_show, pk_folder, pk_facility, pk_dept, str_name, str_visible_name, str_show,
                    str_shot, str_user, str_email, str_state, str_log_dir, str_os, int_uid, b_paused, b_autoeat,
                    int_max_retries)
             VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $8, $9, $10, 'STARTUP', $11, $12, $13, $14, $15, $16)
             ON CONFLICT DO NOTHING",
            &[
                &id,
                &place.show,
                &place.folder,
                &place.facility,
                &place.dept,
                &job.name,
                &spec.show,
                &spec.shot,
                &spec.user,
                &spec.email,
                &logs,
                &job.os,
                &uid,
                &job.paused,
                &job.auto_eat,
                &retries,
            ],
        )
        .await?;
    if made == 0 {
        return Err(CallError::Exists { what: "pending job", name: job.name.clone() });
    }
    let cores_max = job.cores_max.unwrap_or(place.cores_max);
    tx.execute(
        "UPDATE job_resource SET int_priority = coalesce($2, int_priority), int_min_cores = $3, int_max_cores = $4,
                int_max_gpus = coalesce($5, int_max_gpus) WHERE pk_job = $1",
        &[&id, &job.priority, &place.cores_min, &cores_max, &job.gpus_max],
    )
    .await?;
    tx.execute(
        "INSERT INTO point (pk_point, pk_dept, pk_show) SELECT gen_random_uuid()::text, $1::text, $2::text
          WHERE NOT EXISTS (SELECT 1 FROM point WHERE pk_dept = $1::text AND pk_show = $2::text)",
        &[&place.dept, &place.show],
    )
    .await?;
    let (keys, values): (Vec<&str>, Vec<&str>) =
        job.env.iter().map(|(key, value)| (key.as_str(), value.as_str())).unzip();
    tx.execute(
        "INSERT INTO job_env (pk_job_env, pk_job, str_key, str_value)
         SELECT gen_random_uuid()::text, $1::text, key, value FROM unnest($2::text[], $3::text[]) AS given (key, value)",
        &[&id, &keys, &values],
    )
    .await?;
    Ok(id)
}

async fn add_layer(
    tx: &Transaction<'_>,
    job: &str,
    layer: &LayerSpec,
    order: i64,
    place: &Place,
) -> Result<(), CallError> {
    let tags = layer.tags.as_ref().map(|tags| tags.join(" | "));
    let id: String = tx
        .query_one(
            ADD_LAYER,
            &[
                &place.show,
                &job,
                &layer.name,
                &layer.command,
                &layer.range,
                &i64::from(layer.chunk_size),
                &order,
                &layer.kind.as_str_name(),
                &layer.services,
                &tags,
                &layer.cores_min,
                &layer.threadable,
                &layer.memory_kib,
                &layer.gpus_min,
                &layer.gpu_memory_kib,
                &layer.timeout_min,
                &layer.timeout_llu_min,
                &MEMORY_KIB,
            ],
        )
        .await?
        .get(0);
    tx.execute(
        "INSERT INTO frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_dispatch_order,
                int_layer_order, ts_updated, ts_llu)
         SELECT gen_random_uuid()::text, $1::text, $2::text,
                CASE WHEN number < 0 THEN '-' ELSE '' END || lpad(abs(number)::text, greatest(4, length(abs(number)::text)), '0') || '-' || $3::text,
                'SETUP', number, turn - 1, $4::bigint, current_timestamp, current_timestamp
           FROM unnest($5::int[]) WITH ORDINALITY AS listed (number, turn)",
        &[&id, &job, &layer.name, &order, &layer.frames],
    )
    .await?;
    add_parts(tx, job, &id, layer).await
}

/// The rows that belong to a layer: variables, limits, paths of its output.
async fn add_parts(tx: &Transaction<'_>, job: &str, id: &str, layer: &LayerSpec) -> Result<(), CallError> {
    let (keys, values): (Vec<&str>, Vec<&str>) =
        layer.env.iter().map(|(key, value)| (key.as_str(), value.as_str())).unzip();
    tx.execute(
        "INSERT INTO layer_env (pk_layer_env, pk_layer, pk_job, str_key, str_value)
         SELECT gen_random_uuid()::text, $1::text, $2::text, key, value
           FROM unnest($3::text[], $4::text[]) AS given (key, value)",
        &[&id, &job, &keys, &values],
    )
    .await?;
    tx.execute(
        "INSERT INTO layer_output (pk_layer_output, pk_layer, pk_job, str_filespec)
         SELECT gen_random_uuid()::text, $1::text, $2::text, path FROM unnest($3::text[]) AS path",
        &[&id, &job, &layer.outputs],
    )
    .await?;
    for limit in &layer.limits {
        let made = tx
            .execute(
                "INSERT INTO layer_limit (pk_layer_limit, pk_layer, pk_limit_record)
                 SELECT gen_random_uuid()::text, $1::text, pk_limit_record FROM limit_record WHERE str_name = $2",
                &[&id, limit],
            )
            .await?;
        if made == 0 {
            return Err(CallError::Missing { what: "limit", name: limit.clone() });
        }
    }
    Ok(())
}

/// Lets the frames of a job wait for hosts or for what they depend on, and counts them. Triggers count only changes
/// after this one.
async fn activate(tx: &Transaction<'_>, job: &str, show: &str) -> Result<(), CallError> {
    tx.execute("UPDATE frame SET str_state = 'WAITING' WHERE pk_job = $1 AND str_state = 'SETUP'", &[&job])
        .await?;
    tx.execute(
        "UPDATE layer_stat SET int_total_count = own.total, int_waiting_count = own.waiting,
                int_depend_count = own.total - own.waiting
           FROM (SELECT pk_layer, count(*) AS total, count(*) FILTER (WHERE str_state = 'WAITING') AS waiting
                   FROM frame WHERE pk_job = $1 GROUP BY pk_layer) AS own
          WHERE layer_stat.pk_layer = own.pk_layer",
        &[&job],
    )
    .await?;
    tx.execute(
        "UPDATE job_stat SET int_waiting_count = own.waiting, int_depend_count = own.depend
           FROM (SELECT sum(int_waiting_count)::bigint AS waiting, sum(int_depend_count)::bigint AS depend
                   FROM layer_stat WHERE pk_job = $1) AS own WHERE pk_job = $1",
        &[&job],
    )
    .await?;
    let frames: i32 = tx
        .query_one(
            "UPDATE job SET str_state = 'PENDING', int_layer_count = own.layers, int_frame_count = own.frames
               FROM (SELECT count(*)::int AS layers, sum(int_total_count)::int AS frames
                       FROM layer_stat WHERE pk_job = $1) AS own WHERE pk_job = $1 RETURNING int_frame_count",
            &[&job],
        )
        .await?
        .get(0);
    tx.execute(
        "UPDATE show_stats SET int_job_insert_count = int_job_insert_count + 1,
                int_frame_insert_count = int_frame_insert_count + $2 WHERE pk_show = $1",
        &[&show, &i64::from(frames)],
    )
    .await?;
    Ok(())
}
