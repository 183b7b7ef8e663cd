//! The end of a command: its frame gets a state, its proc ends, frames that waited for it may run, and its job may be
//! finished.
//!
//! - A report counts only while the proc that it names holds the frame that it names. Where the proc is gone, the frame
//!   must be running without any other proc.
//! - A host reports of its own procs and frames alone.
//! - All of it is one transaction: a second report of the same ending finds nothing left to do.
//! - A report about an unknown frame is dropped. An error would make RQD send it for ever.

use crate::depends::{self, Done};
use crate::generated::report::FrameCompleteReport;
use crate::locks;
use crate::procs;
use crate::trouble::CallError;
use crate::verdict::{Ending, Terms, Verdict, decide};
use deadpool_postgres::Transaction;
use std::time::{SystemTime, UNIX_EPOCH};

/// Memory by which a layer's request grows after a failure, where no service says it, in KiB.
const INCREASE_KIB: i64 = 2 << 20;

/// Open frames of a layer or a job at which each end of a frame may be the last one. Where more frames than that end
/// between the look at the counts and the lock, as when a client eats a layer, the transaction begins again
/// ([`depends::satisfy`]).
const FEW_FRAMES: i64 = 64;

/// Frames that are not done, by the counts of a layer or a job.
pub(crate) const OPEN_FRAMES: &str =
    "int_waiting_count + int_running_count + int_dead_count + int_depend_count + int_checkpoint_count";

/// What a report changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// Nothing changed: the frame is unknown, another proc has it, or the host of the proc is another one.
    Dropped,
    /// The frame had been stopped already. Its proc ended.
    Released,
    /// The frame got this state.
    Ended(Verdict),
}

/// A frame that may run, by the tables.
struct Held {
    frame: String,
    layer: String,
    job: String,
    show: String,
    services: String,
    running: bool,
    /// The host of its last booking.
    host: Option<String>,
    exit_status: i64,
    terms: Terms,
}

/// The jobs of the frame `$1` and of the proc `$2`, and the jobs whose frames may run by the end of the frame. Jobs
/// that wait for all of a layer or a job are left out while many of its frames are open: one job that waits for a
/// hundred others would hold up all of their frames.
const JOBS: &str = "
WITH own AS MATERIALIZED (SELECT pk_frame, pk_layer, pk_job FROM frame WHERE pk_frame = $1)
SELECT pk_job FROM own
 UNION ALL SELECT pk_job FROM proc WHERE pk_proc = $2
 UNION ALL SELECT d.pk_job_depend_er FROM own JOIN depend d ON d.pk_frame_depend_on = own.pk_frame
    WHERE d.b_active AND NOT d.b_composite
 UNION ALL SELECT d.pk_job_depend_er FROM own JOIN depend d ON d.pk_layer_depend_on = own.pk_layer
    JOIN layer_stat s ON s.pk_layer = own.pk_layer
    WHERE d.b_active AND NOT d.b_composite AND d.pk_frame_depend_on IS NULL AND (d.b_any OR {open} <= $3)
 UNION ALL SELECT d.pk_job_depend_er FROM own JOIN depend d ON d.pk_job_depend_on = own.pk_job
    JOIN job_stat s ON s.pk_job = own.pk_job
    WHERE d.b_active AND NOT d.b_composite AND d.pk_frame_depend_on IS NULL AND d.pk_layer_depend_on IS NULL
        AND {open} <= $3";

const FRAME: &str = "
SELECT frame.str_state, frame.pk_layer, frame.pk_job, job.pk_show, layer.str_services, frame.int_exit_status,
       frame.int_retries, job.int_max_retries::bigint, job.b_autoeat, layer.int_timeout::bigint,
       layer.int_timeout_llu::bigint, frame.str_host::text
  FROM frame JOIN layer ON layer.pk_layer = frame.pk_layer JOIN job ON job.pk_job = frame.pk_job
 WHERE frame.pk_frame = $1 FOR UPDATE OF frame";
const PROC: &str = "
SELECT p.pk_frame, p.int_mem_reserved, h.str_name::text FROM proc p JOIN host h USING (pk_host)
 WHERE p.pk_proc = $1 FOR UPDATE OF p";
/// A second is added, as OpenCue does, so that a command that ended at once has a duration.
const STOP: &str = "
UPDATE frame SET str_state = $2, int_exit_status = $3, int_mem_max_used = greatest(int_mem_max_used, $4),
       ts_stopped = current_timestamp + interval '1 second', ts_updated = current_timestamp,
       int_version = int_version + 1,
       int_total_past_core_time = int_total_past_core_time + round(int_cores / 100.0
           * extract(epoch FROM current_timestamp + interval '1 second' - ts_started))::integer,
       int_total_past_gpu_time = int_total_past_gpu_time + round(int_gpus
           * extract(epoch FROM current_timestamp + interval '1 second' - ts_started))::integer
 WHERE pk_frame = $1 AND str_state = 'RUNNING'
RETURNING greatest(extract(epoch FROM ts_stopped - ts_started), 0)::bigint, int_cores, int_gpus";

/// What a run took of its host.
pub(crate) struct Spent {
    clock_s: i64,
    cores: i32,
    gpus: i32,
}

pub(crate) async fn complete(
    tx: &Transaction<'_>,
    report: &FrameCompleteReport,
) -> Result<Completion, CallError> {
    let Some(run) = &report.frame else { return Ok(Completion::Dropped) };
    let jobs = locks::statement(&JOBS.replace("{open}", OPEN_FRAMES));
    let jobs = tx.prepare_cached(&jobs).await?;
    tx.query(&jobs, &[&run.frame_id, &run.resource_id, &FEW_FRAMES]).await?;
    let frame = held(tx, &run.frame_id).await?;
    let proc = tx.query_opt(&tx.prepare_cached(PROC).await?, &[&run.resource_id]).await?;
    if let Some(reporter) = &report.host {
        let holder = match &proc {
            Some(row) => Some(row.get::<_, &str>(2)),
            None => frame.as_ref().and_then(|frame| frame.host.as_deref()),
        };
        if holder.is_some_and(|holder| holder != reporter.name) {
            return Ok(Completion::Dropped);
        }
    }
    let reserved_kib = match &proc {
        Some(row) => match row.get::<_, Option<String>>(0) {
            Some(holds) if holds != run.frame_id => return Ok(Completion::Dropped),
            Some(_) if frame.as_ref().is_some_and(|frame| frame.running) => Some(row.get::<_, i64>(1)),
            _ => {
                procs::release(tx, &run.resource_id).await?;
                return Ok(Completion::Released);
            }
        },
        None => None,
    };
    let Some(frame) = frame.filter(|frame| frame.running) else { return Ok(Completion::Dropped) };
    if proc.is_none() {
        let other = tx.query_opt("SELECT 1 FROM proc WHERE pk_frame = $1", &[&frame.frame]).await?;
        if other.is_some() {
            return Ok(Completion::Dropped);
        }
    }
    let ending = ending(report, &frame);
    let verdict = decide(&ending, &frame.terms);
    // The state is kept for people: a kill for memory says more than the signal that it came with.
    let exit_status =
        if ending.killed_for_memory { frame.exit_status } else { i64::from(report.exit_status) };
    let spent = stop(tx, &frame.frame, verdict.state(), exit_status, run.max_rss).await?;
    if let Some(spent) = spent {
        count_usage(tx, &frame, exit_status, &spent).await?;
    }
    if ending.is_memory_failure() && verdict == Verdict::Waiting {
        raise_memory(tx, &frame, reserved_kib).await?;
    }
    if matches!(verdict, Verdict::Succeeded | Verdict::Eaten) {
        frame_done(tx, &frame.frame, &frame.layer, &frame.job, verdict == Verdict::Succeeded).await?;
    }
    procs::release(tx, &run.resource_id).await?;
    if ending.nimby_locked {
        lock_for_nimby(tx, report).await?;
    }
    count_for_show(tx, &frame, exit_status).await?;
    Ok(Completion::Ended(verdict))
}

async fn held(tx: &Transaction<'_>, frame: &str) -> Result<Option<Held>, CallError> {
    let row = tx.query_opt(&tx.prepare_cached(FRAME).await?, &[&frame]).await?;
    Ok(row.map(|row| Held {
        frame: frame.to_owned(),
        running: row.get::<_, &str>(0) == "RUNNING",
        host: row.get(11),
        layer: row.get(1),
        job: row.get(2),
        show: row.get(3),
        services: row.get(4),
        exit_status: row.get(5),
        terms: Terms {
            retries: row.get(6),
            retries_max: row.get(7),
            auto_eat: row.get(8),
            timeout_min: row.get(9),
            timeout_llu_min: row.get(10),
        },
    }))
}

fn ending(report: &FrameCompleteReport, frame: &Held) -> Ending {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let last_line_s = report.frame.as_ref().map_or(0, |run| run.llu_time);
    Ending {
        exit_status: report.exit_status,
        exit_signal: report.exit_signal,
        nimby_locked: report.host.as_ref().is_some_and(|host| host.nimby_locked),
        run_s: i64::from(report.run_time),
        silent_s: (last_line_s > 0).then(|| now_s.saturating_sub(last_line_s).max(0)),
        killed_for_memory: frame.exit_status == i64::from(crate::verdict::EXIT_MEMORY),
    }
}

/// Writes the state of a frame that ran. A running frame gets no state twice, because the row is locked: `None` for one
/// that does not run.
pub(crate) async fn stop(
    tx: &Transaction<'_>,
    frame: &str,
    state: &str,
    exit_status: i64,
    max_rss_kib: i64,
) -> Result<Option<Spent>, CallError> {
    let statement = tx.prepare_cached(STOP).await?;
    let stopped = tx.query_opt(&statement, &[&frame, &state, &exit_status, &max_rss_kib]).await?;
    Ok(stopped.map(|row| Spent {
        clock_s: row.get::<_, Option<i64>>(0).unwrap_or(0),
        cores: row.get(1),
        gpus: row.get(2),
    }))
}

/// Adds a run to the figures of job and layer. The history of a job that ends takes them over.
async fn count_usage(
    tx: &Transaction<'_>,
    frame: &Held,
    exit_status: i64,
    spent: &Spent,
) -> Result<(), CallError> {
    let core_s = spent.clock_s * i64::from(spent.cores) / 100;
    let gpu_s = spent.clock_s * i64::from(spent.gpus);
    let clock_s = i32::try_from(spent.clock_s).unwrap_or(i32::MAX);
    let (end, high, low) = match exit_status {
        0 => (
            "success",
            ", int_clock_time_high = greatest(int_clock_time_high, $5)",
            ", int_clock_time_low = CASE WHEN int_clock_time_low = 0 THEN $5 ELSE least(int_clock_time_low, $5) END",
        ),
        _ => ("fail", "", ""),
    };
    let added = format!(
        "int_core_time_{end} = int_core_time_{end} + $3, int_gpu_time_{end} = int_gpu_time_{end} + $4,
         int_clock_time_{end} = int_clock_time_{end} + $5, int_frame_{end}_count = int_frame_{end}_count + 1{high}"
    );
    let statement = format!(
        "WITH of_job AS (UPDATE job_usage SET {added} WHERE pk_job = $1)
         UPDATE layer_usage SET {added}{low} WHERE pk_layer = $2"
    );
    let statement = tx.prepare_cached(&statement).await?;
    tx.execute(&statement, &[&frame.job, &frame.layer, &core_s, &gpu_s, &clock_s]).await?;
    Ok(())
}

/// Counts a run for its show. Ends of all frames of the show write this row, so it comes last.
async fn count_for_show(tx: &Transaction<'_>, frame: &Held, exit_status: i64) -> Result<(), CallError> {
    let end = if exit_status == 0 { "success" } else { "fail" };
    let statement =
        format!("UPDATE show_stats SET int_frame_{end}_count = int_frame_{end}_count + 1 WHERE pk_show = $1");
    tx.execute(&tx.prepare_cached(&statement).await?, &[&frame.show]).await?;
    Ok(())
}

/// Lets the layer ask for what the proc had and the increase of its first service. OpenCue's optimizer, which would
/// lower it again, is turned off for this layer.
async fn raise_memory(
    tx: &Transaction<'_>,
    frame: &Held,
    reserved_kib: Option<i64>,
) -> Result<(), CallError> {
    let service = frame.services.split(',').next().unwrap_or_default().trim();
    let increase = tx
        .query_opt(
            "SELECT int_min_memory_increase::bigint FROM (
                 SELECT int_min_memory_increase, 0 AS turn FROM show_service WHERE pk_show = $1 AND str_name = $2
                 UNION ALL SELECT int_min_memory_increase, 1 FROM service WHERE str_name = $2
             ) AS known ORDER BY turn LIMIT 1",
            &[&frame.show, &service],
        )
        .await?;
    let increase_kib = increase.map_or(INCREASE_KIB, |row| row.get(0));
    tx.execute(
        "UPDATE layer SET b_optimize = false,
                int_mem_min = greatest(int_mem_min, coalesce($2, int_mem_min) + $3) WHERE pk_layer = $1",
        &[&frame.layer, &reserved_kib, &increase_kib],
    )
    .await?;
    Ok(())
}

/// Marks a frame as done: frames that waited for it, for its layer or for its job may run, and the job may be
/// finished. Eaten frames free no frame by themselves, as in OpenCue. The counts of the job are locked since its frame
/// was written, so two frames that end at the same time see each other, and one of them is the last.
async fn frame_done(
    tx: &Transaction<'_>,
    frame: &str,
    layer: &str,
    job: &str,
    succeeded: bool,
) -> Result<(), CallError> {
    if succeeded {
        depends::satisfy(tx, Done::Frame { frame, layer }).await?;
    }
    let (of_layer, of_job) = left(tx, layer, job).await?;
    if of_layer <= 0 && succeeded {
        depends::satisfy(tx, Done::Layer(layer)).await?;
    }
    if of_job <= 0 {
        finish_job(tx, job).await?;
    }
    Ok(())
}

/// Frames of a layer, and of its job, that are not done.
async fn left(tx: &Transaction<'_>, layer: &str, job: &str) -> Result<(i64, i64), CallError> {
    let statement = format!(
        "SELECT coalesce((SELECT {OPEN_FRAMES} FROM layer_stat WHERE pk_layer = $1), 0)::bigint,
                coalesce((SELECT {OPEN_FRAMES} FROM job_stat WHERE pk_job = $2), 0)::bigint"
    );
    let row = tx.query_one(&tx.prepare_cached(&statement).await?, &[&layer, &job]).await?;
    Ok((row.get(0), row.get(1)))
}

/// Ends a job: its name becomes free, a trigger closes its history, and what waited for it may run.
pub(crate) async fn finish_job(tx: &Transaction<'_>, job: &str) -> Result<bool, CallError> {
    let finished = tx
        .execute(
            "UPDATE job SET str_state = 'FINISHED', str_visible_name = NULL, ts_stopped = current_timestamp,
                    b_paused = false WHERE pk_job = $1 AND str_state = 'PENDING'",
            &[&job],
        )
        .await?;
    if finished == 1 {
        depends::satisfy(tx, Done::Job(job)).await?;
    }
    Ok(finished == 1)
}

async fn lock_for_nimby(tx: &Transaction<'_>, report: &FrameCompleteReport) -> Result<(), CallError> {
    let Some(host) = &report.host else { return Ok(()) };
    tx.execute(
        "UPDATE host SET str_lock_state = 'NIMBY_LOCKED', str_lock_source = 'NIMBY'
          WHERE str_name = $1 AND str_lock_state = 'OPEN'",
        &[&host.name],
    )
    .await?;
    Ok(())
}
