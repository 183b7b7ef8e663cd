//! Hosts are registered at their first report, and each report updates them.

use super::strays::Strays;
use crate::ended::EndedProcs;
use crate::generated::host::HardwareState;
use crate::generated::report::{CoreDetail, RenderHost, RunningFrameInfo};
use crate::hosts::{Amounts, FrameRun};
use crate::locks::lock_jobs;
use crate::names;
use crate::procs;
use crate::trouble::CallError;
use deadpool_postgres::Transaction;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

/// Frames of one report. The largest hosts run a few hundred.
pub(crate) const FRAMES_MAX: usize = 10_000;
/// Tags that one host may report.
const TAGS_MAX: usize = 200;
/// Memory that no frame gets, in KiB: the system of the host keeps it, as in OpenCue.
pub const SYSTEM_KIB: i64 = 512 << 10;
/// Age in seconds before which a proc may belong to a launch that is under way.
pub(crate) const YOUNG_S: f64 = 15.0;
/// The operating system of hosts that report none.
const OS: &str = "rhel40";

/// A host as it reports itself, checked.
pub(crate) struct Known {
    name: String,
    nimby_enabled: bool,
    nimby_locked: bool,
    procs: i64,
    cores: i64,
    memory_kib: i64,
    gpus: i64,
    gpu_memory_kib: i64,
    free_gpu_memory_kib: i64,
    total_kib: i64,
    free_kib: i64,
    swap_kib: i64,
    free_swap_kib: i64,
    scratch_kib: i64,
    free_scratch_kib: i64,
    load: i64,
    boot_s: f64,
    state: String,
    os: String,
    tags: Vec<String>,
}

impl Known {
    /// Refuses what the tables cannot hold.
    pub(crate) fn read(host: RenderHost, cores: Option<CoreDetail>) -> Result<Known, CallError> {
        let text = |what, text: &str, max| names::plain(what, text, 1, max);
        if host.tags.len() > TAGS_MAX {
            return Err(CallError::Value(format!("a host has more than {TAGS_MAX} tags")));
        }
        let mut tags = Vec::new();
        for tag in &host.tags {
            tags.push(text("tag", tag, names::width::TAG)?);
        }
        let reported = cores.map_or(0, |cores| i64::from(cores.total_cores));
        let counted = i64::from(host.num_procs.max(0)) * i64::from(host.cores_per_proc.max(0));
        let whole_kib = host.total_mem.saturating_sub(SYSTEM_KIB).max(0);
        Ok(Known {
            name: text("host name", &host.name, names::width::HOST)?,
            nimby_enabled: host.nimby_enabled,
            nimby_locked: host.nimby_locked,
            procs: i64::from(host.num_procs.max(0)),
            cores: if counted > 0 { counted } else { reported.max(0) },
            // A desktop keeps a third for the person who uses it.
            memory_kib: if host.nimby_enabled { whole_kib / 3 * 2 } else { whole_kib },
            gpus: i64::from(host.num_gpus.max(0)),
            gpu_memory_kib: host.total_gpu_mem.max(0),
            free_gpu_memory_kib: host.free_gpu_mem.max(0),
            total_kib: host.total_mem.max(0),
            free_kib: host.free_mem.max(0),
            swap_kib: host.total_swap.max(0),
            free_swap_kib: host.free_swap.max(0),
            scratch_kib: host.total_mcp.max(0),
            free_scratch_kib: host.free_mcp.max(0),
            load: i64::from(host.load.max(0)),
            boot_s: f64::from(host.boot_time.max(0)),
            state: HardwareState::try_from(host.state).unwrap_or(HardwareState::Up).as_str_name().to_owned(),
            os: match host.attributes.get("SP_OS") {
                Some(os) => text("operating system", os, 32)?,
                None => OS.to_owned(),
            },
            tags,
        })
    }
}

/// What a host and the tables say differently.
#[derive(Default)]
pub(crate) struct Differing {
    /// Runs that the host reports and does not hold. They end there.
    pub strays: Vec<FrameRun>,
    /// Runs that the host holds and leaves out. It is asked whether it has them.
    pub missed: Vec<FrameRun>,
    /// Procs that the host holds and leaves out, and whose frames a client killed: their commands have ended.
    pub freed: Vec<String>,
}

/// Procs of a host, and whether the report before this one named them, or they are younger than that. Where a launch
/// may be under way, a proc counts as named.
const PROCS: &str = "
SELECT pk_proc::text, pk_frame::text, ts_ping >= $2 OR ts_booked > current_timestamp - make_interval(secs => $3)
  FROM proc WHERE pk_host = $1 ORDER BY pk_frame, pk_proc";
/// What runs use. Procs that another transaction holds are left out: it ends them, or the next report finds them.
const MARK_PROCS: &str = "
UPDATE proc SET ts_ping = current_timestamp, int_mem_used = used.rss,
       int_mem_max_used = greatest(int_mem_max_used, used.max_rss), int_virt_used = used.vsize,
       int_virt_max_used = greatest(int_virt_max_used, used.max_vsize), int_gpu_mem_used = used.gpu,
       int_gpu_mem_max_used = greatest(int_gpu_mem_max_used, used.max_gpu)
  FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
           AS used (proc, rss, max_rss, vsize, max_vsize, gpu, max_gpu)
  JOIN (SELECT pk_proc FROM proc WHERE pk_proc = ANY($1::text[]) FOR NO KEY UPDATE SKIP LOCKED) AS free
    ON free.pk_proc = used.proc
 WHERE proc.pk_proc = free.pk_proc";
/// Marks the frames that a host reports, as its procs are marked.
const MARK_FRAMES: &str = "
UPDATE frame SET ts_updated = current_timestamp, int_mem_used = used.rss,
       int_mem_max_used = greatest(int_mem_max_used, used.max_rss), int_gpu_mem_used = used.gpu,
       int_gpu_mem_max_used = greatest(int_gpu_mem_max_used, used.max_gpu),
       ts_llu = CASE WHEN used.llu > 0 THEN to_timestamp(used.llu) ELSE ts_llu END
  FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
           AS used (frame, rss, max_rss, gpu, max_gpu, llu)
  JOIN (SELECT pk_frame FROM frame WHERE pk_frame = ANY($1::text[]) AND str_state = 'RUNNING'
           FOR NO KEY UPDATE SKIP LOCKED) AS free ON free.pk_frame = used.frame
 WHERE frame.pk_frame = free.pk_frame";

/// Takes in that a host started. It is asked which of its runs it has, because this report may be older than their
/// launches.
pub(crate) async fn started(tx: &Transaction<'_>, known: &Known) -> Result<Differing, CallError> {
    let (host, _) = arrive(tx, known).await?;
    let held = "SELECT pk_proc, pk_frame FROM proc WHERE pk_host = $1 ORDER BY pk_frame";
    let mut differing = Differing::default();
    for row in tx.query(held, &[&host]).await? {
        differing.leaves_out(row.get(0), row.get(1));
    }
    resize(tx, known, &host, Amounts::default()).await?;
    Ok(differing)
}

/// Takes in the status of a host. A run counts as left out if two reports in a row do not name it.
pub(crate) async fn status(
    tx: &Transaction<'_>,
    known: &Known,
    frames: &[RunningFrameInfo],
    ended: &EndedProcs,
) -> Result<Differing, CallError> {
    let (host, before) = arrive(tx, known).await?;
    let named: BTreeSet<&str> = frames.iter().map(|run| run.resource_id.as_str()).collect();
    let mut differing = Differing::default();
    let mut held: BTreeMap<String, Option<String>> = BTreeMap::new();
    for row in tx.query(&tx.prepare_cached(PROCS).await?, &[&host, &before, &YOUNG_S]).await? {
        let (proc_id, frame): (String, Option<String>) = (row.get(0), row.get(1));
        let was_named: bool = row.get(2);
        if !was_named && !named.contains(proc_id.as_str()) && !ended.has(&known.name, &proc_id) {
            differing.leaves_out(proc_id.clone(), frame.clone());
        }
        held.insert(proc_id, frame);
    }
    let mut strays = Strays::default();
    let (mut procs, mut running) = (Vec::new(), Vec::new());
    for run in frames {
        match held.get(&run.resource_id) {
            Some(Some(frame)) if *frame == run.frame_id => running.push(run),
            Some(None) => strays.add_freed(run),
            _ => {
                strays.add_unheld(run);
                continue;
            }
        }
        procs.push(run);
    }
    mark(tx, &procs, &running).await?;
    strays.sift(tx, (&host, &known.name), ended).await?;
    resize(tx, known, &host, strays.amounts()).await?;
    differing.strays = strays.runs();
    Ok(differing)
}

impl Differing {
    fn leaves_out(&mut self, proc_id: String, frame: Option<String>) {
        match frame {
            Some(frame) => self.missed.push(FrameRun { frame, proc_id }),
            // Its frame was killed and is free already.
            None => self.freed.push(proc_id),
        }
    }
}

/// Writes what runs use: of those that have procs, and of those that have frames.
async fn mark(
    tx: &Transaction<'_>,
    procs: &[&RunningFrameInfo],
    running: &[&RunningFrameInfo],
) -> Result<(), CallError> {
    if !procs.is_empty() {
        tx.execute(
            &tx.prepare_cached(MARK_PROCS).await?,
            &[
                &column(procs, |run| run.resource_id.clone()),
                &column(procs, |run| run.rss),
                &column(procs, |run| run.max_rss),
                &column(procs, |run| run.vsize),
                &column(procs, |run| run.max_vsize),
                &column(procs, |run| run.used_gpu_memory),
                &column(procs, |run| run.max_used_gpu_memory),
            ],
        )
        .await?;
    }
    if !running.is_empty() {
        tx.execute(
            &tx.prepare_cached(MARK_FRAMES).await?,
            &[
                &column(running, |run| run.frame_id.clone()),
                &column(running, |run| run.rss),
                &column(running, |run| run.max_rss),
                &column(running, |run| run.used_gpu_memory),
                &column(running, |run| run.max_used_gpu_memory),
                &column(running, |run| run.llu_time),
            ],
        )
        .await?;
    }
    Ok(())
}

fn column<T>(runs: &[&RunningFrameInfo], of: impl Fn(&RunningFrameInfo) -> T) -> Vec<T> {
    runs.iter().map(|run| of(run)).collect()
}

/// Takes in a Windlass worker. Its size is what Windlass's own tasks leave of it, and changes also while frames run
/// on it. These keep what they hold.
pub(crate) async fn share(tx: &Transaction<'_>, known: &Known) -> Result<(), CallError> {
    let (host, _) = arrive(tx, known).await?;
    tx.execute(
        "WITH held AS (
             SELECT coalesce(sum(int_cores_reserved), 0)::bigint AS cores,
                    coalesce(sum(int_mem_reserved), 0)::bigint AS mem,
                    coalesce(sum(int_gpus_reserved), 0)::bigint AS gpus,
                    coalesce(sum(int_gpu_mem_reserved), 0)::bigint AS gpu_mem
               FROM proc WHERE pk_host = $1::text
         )
         UPDATE host SET int_procs = $2::bigint,
                int_cores = greatest($3::bigint, held.cores),
                int_cores_idle = greatest($3::bigint, held.cores) - held.cores,
                int_mem = greatest($4::bigint, held.mem),
                int_mem_idle = greatest($4::bigint, held.mem) - held.mem,
                int_gpus = greatest($5::bigint, held.gpus),
                int_gpus_idle = greatest($5::bigint, held.gpus) - held.gpus,
                int_gpu_mem = greatest($6::bigint, held.gpu_mem),
                int_gpu_mem_idle = greatest($6::bigint, held.gpu_mem) - held.gpu_mem
           FROM held WHERE host.pk_host = $1::text",
        &[&host, &known.procs, &known.cores, &known.memory_kib, &known.gpus, &known.gpu_memory_kib],
    )
    .await?;
    Ok(())
}

/// Ends a proc that its host does not run, and lets its frame wait again without spending a retry.
pub(crate) async fn clear(tx: &Transaction<'_>, proc: &str, exit_status: i64) -> Result<(), CallError> {
    lock_jobs(tx, "SELECT pk_job FROM proc WHERE pk_proc = $1", &[&proc]).await?;
    let query = "SELECT frame.pk_frame FROM frame JOIN proc ON proc.pk_frame = frame.pk_frame
          WHERE proc.pk_proc = $1 FOR UPDATE OF frame";
    let frame = tx.query_opt(query, &[&proc]).await?;
    // The proc may have ended while its frame was waited for.
    let is_left = tx.query_opt("SELECT FROM proc WHERE pk_proc = $1 FOR UPDATE", &[&proc]).await?.is_some();
    if !is_left {
        return Ok(());
    }
    if let Some(frame) = frame {
        super::complete::stop(tx, frame.get(0), "WAITING", exit_status, 0).await?;
    }
    procs::release(tx, proc).await?;
    Ok(())
}

/// The id of the host, which is registered where it is new, and the time of the report before this one.
async fn arrive(tx: &Transaction<'_>, known: &Known) -> Result<(String, SystemTime), CallError> {
    let query = "SELECT pk_host FROM host WHERE str_name = $1 FOR UPDATE";
    if tx.query_opt(query, &[&known.name]).await?.is_none() {
        register(tx, known).await?;
    }
    let host: String = tx.query_one(query, &[&known.name]).await?.get(0);
    let before = tx.query_opt(
        "UPDATE host_stat SET int_mem_total = $2, int_mem_free = $3, int_swap_total = $4, int_swap_free = $5,
                int_mcp_total = $6, int_mcp_free = $7, int_gpu_mem_total = $8, int_gpu_mem_free = $9,
                int_load = $10, ts_ping = current_timestamp, str_os = $12,
                ts_booted = CASE WHEN $11::float8 > 0 THEN to_timestamp($11::float8) ELSE ts_booted END,
                str_state = CASE WHEN str_state = 'REPAIR' OR (str_state = 'REBOOT_WHEN_IDLE' AND $13::text = 'UP')
                                 THEN str_state ELSE $13::text END
           FROM (SELECT ts_ping AS before FROM host_stat WHERE pk_host = $1) AS earlier
          WHERE pk_host = $1 RETURNING earlier.before",
        &[
            &host,
            &known.total_kib,
            &known.free_kib,
            &known.swap_kib,
            &known.free_swap_kib,
            &known.scratch_kib,
            &known.free_scratch_kib,
            &known.gpu_memory_kib,
            &known.free_gpu_memory_kib,
            &known.load,
            &known.boot_s,
            &known.os,
            &known.state,
        ],
    )
    .await?;
    let (from, to) = if known.nimby_locked { ("OPEN", "NIMBY_LOCKED") } else { ("NIMBY_LOCKED", "OPEN") };
    tx.execute(
        "UPDATE host SET str_lock_state = $3, str_lock_source = 'NIMBY'
          WHERE pk_host = $1 AND str_lock_state = $2",
        &[&host, &from, &to],
    )
    .await?;
    Ok((host, before.map_or(UNIX_EPOCH, |row| row.get(0))))
}

/// Registers a new host. Its first tag that names an allocation says where it belongs; otherwise it goes to the
/// default allocation.
async fn register(tx: &Transaction<'_>, known: &Known) -> Result<(), CallError> {
    let alloc = tx
        .query_opt(
            "SELECT pk_alloc, str_tag FROM alloc
              WHERE str_name::text = ANY($1::text[]) OR b_default
              ORDER BY array_position($1::text[], str_name::text) NULLS LAST LIMIT 1",
            &[&known.tags],
        )
        .await?
        .ok_or_else(|| CallError::Missing {
            what: "default allocation for host",
            name: known.name.clone(),
        })?;
    let (alloc, alloc_tag): (String, Option<String>) = (alloc.get(0), alloc.get(1));
    let thread_mode = i32::from(known.nimby_enabled);
    // A second report may come at the same time; one of them registers the host.
    let made = tx
        .query_opt(
            "INSERT INTO host (pk_host, pk_alloc, str_name, b_nimby, str_lock_state, int_procs, int_cores,
                    int_cores_idle, int_mem, int_mem_idle, int_gpus, int_gpus_idle, int_gpu_mem,
                    int_gpu_mem_idle, str_fqdn, int_thread_mode)
             VALUES (gen_random_uuid()::text, $1, $2, $3, 'OPEN', $4, $5, $5, $6, $6, $7, $7, $8, $8, $2, $9)
             ON CONFLICT DO NOTHING RETURNING pk_host",
            &[
                &alloc,
                &known.name,
                &known.nimby_enabled,
                &known.procs,
                &known.cores,
                &known.memory_kib,
                &known.gpus,
                &known.gpu_memory_kib,
                &thread_mode,
            ],
        )
        .await?;
    let Some(host) = made.map(|row| row.get::<_, String>(0)) else { return Ok(()) };
    tx.execute("INSERT INTO host_stat (pk_host_stat, pk_host) VALUES ($1, $1)", &[&host]).await?;
    let own = [(alloc_tag.as_ref(), "ALLOC"), (Some(&known.name), "HOSTNAME")];
    let hardware = known.tags.iter().map(|tag| (Some(tag), "HARDWARE"));
    for (tag, kind) in own.into_iter().chain(hardware) {
        let Some(tag) = tag else { continue };
        tx.execute(
            "INSERT INTO host_tag (pk_host_tag, pk_host, str_tag, str_tag_type)
             SELECT gen_random_uuid()::text, $1::text, $2::text, $3::text
              WHERE NOT EXISTS (SELECT 1 FROM host_tag WHERE pk_host = $1::text AND str_tag = $2::text)",
            &[&host, tag, &kind],
        )
        .await?;
    }
    write_tags(tx, "pk_host", &host).await
}

/// Writes the tags of hosts where the host's own row has them: of one host, or of all of an allocation.
pub(crate) async fn write_tags(
    tx: &Transaction<'_>,
    column: &'static str,
    key: &str,
) -> Result<(), CallError> {
    let statement = format!(
        "UPDATE host SET str_tags = (SELECT left(string_agg(str_tag, ' ' ORDER BY str_tag_type, str_tag), 128)
           FROM host_tag WHERE host_tag.pk_host = host.pk_host) WHERE {column} = $1"
    );
    tx.execute(&statement, &[&key]).await?;
    Ok(())
}

/// The size of the host is taken over while no proc holds any of it. The idle amounts are always written: what
/// neither procs nor strays hold. The row of the host is locked, so that procs which begin or end meanwhile count
/// before or after this.
async fn resize(tx: &Transaction<'_>, known: &Known, host: &str, strays: Amounts) -> Result<(), CallError> {
    tx.execute(
        "WITH held AS (
             SELECT count(*) AS procs, coalesce(sum(int_cores_reserved), 0)::bigint AS cores,
                    coalesce(sum(int_mem_reserved), 0)::bigint AS mem,
                    coalesce(sum(int_gpus_reserved), 0)::bigint AS gpus,
                    coalesce(sum(int_gpu_mem_reserved), 0)::bigint AS gpu_mem
               FROM proc WHERE pk_host = $1::text
         ), size AS (
             SELECT CASE WHEN procs > 0 THEN h.b_nimby ELSE $2::boolean END AS nimby,
                    CASE WHEN procs > 0 THEN h.int_procs ELSE $3::bigint END AS procs,
                    CASE WHEN procs > 0 THEN h.int_cores ELSE $4::bigint END AS cores,
                    CASE WHEN procs > 0 THEN h.int_mem ELSE $5::bigint END AS mem,
                    CASE WHEN procs > 0 THEN h.int_gpus ELSE $6::bigint END AS gpus,
                    CASE WHEN procs > 0 THEN h.int_gpu_mem ELSE $7::bigint END AS gpu_mem
               FROM host h CROSS JOIN held WHERE h.pk_host = $1::text
         ), idle AS (
             SELECT greatest(size.cores - held.cores - least($8::bigint, size.cores), 0) AS cores,
                    greatest(size.mem - held.mem - least($9::bigint, size.mem), 0) AS mem,
                    greatest(size.gpus - held.gpus - least($10::bigint, size.gpus), 0) AS gpus,
                    greatest(size.gpu_mem - held.gpu_mem - least($11::bigint, size.gpu_mem), 0) AS gpu_mem
               FROM size CROSS JOIN held
         )
         UPDATE host SET b_nimby = size.nimby, int_procs = size.procs, int_cores = size.cores,
                int_cores_idle = idle.cores, int_mem = size.mem, int_mem_idle = idle.mem, int_gpus = size.gpus,
                int_gpus_idle = idle.gpus, int_gpu_mem = size.gpu_mem, int_gpu_mem_idle = idle.gpu_mem
           FROM size CROSS JOIN idle
          WHERE host.pk_host = $1::text
            AND (host.int_cores, host.int_mem, host.int_gpus, host.int_gpu_mem, host.int_cores_idle,
                 host.int_mem_idle, host.int_gpus_idle, host.int_gpu_mem_idle)
                IS DISTINCT FROM (size.cores, size.mem, size.gpus, size.gpu_mem, idle.cores, idle.mem, idle.gpus,
                 idle.gpu_mem)",
        &[
            &host,
            &known.nimby_enabled,
            &known.procs,
            &known.cores,
            &known.memory_kib,
            &known.gpus,
            &known.gpu_memory_kib,
            &strays.cores,
            &strays.mem_kib,
            &strays.gpus,
            &strays.gpu_mem_kib,
        ],
    )
    .await?;
    Ok(())
}
