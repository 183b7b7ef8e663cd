//! Procs, the shares of hosts that frames hold: lists, and how people end them.

use super::fields::{Answer, ROWS_MAX, few, id};
use super::frames::{self, Action, Wanted, apply};
use super::{hosts, jobs, layers};
use crate::cuebot::Cuebot;
use crate::generated::criterion::InRangeIntegerSearchCriterion as Range;
use crate::generated::host::*;
use crate::names::words;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(super) fn routes(routes: Routes) -> Routes {
    changes(answers(routes))
        .route("/host.ProcInterface/GetFrame", unary(frame_of))
        .route("/host.ProcInterface/UnbookProcs", unary(unbook_all))
        .route("/host.HostInterface/GetProcs", unary(of_host))
        .route("/host.HostInterface/GetHostWhiteboard", unary(whiteboard))
}

/// Procs with the names of what they run. A frame that was killed leaves its proc until its command has ended.
const PROCS: &str = "
SELECT p.pk_proc, p.pk_host, h.str_name AS host, w.str_name AS show, j.str_name AS job, o.str_name AS folder,
       coalesce(f.str_name, '') AS frame, p.pk_frame, floor(extract(epoch FROM p.ts_ping))::int AS pinged,
       floor(extract(epoch FROM p.ts_booked))::int AS booked,
       floor(extract(epoch FROM p.ts_dispatched))::int AS dispatched, p.int_mem_reserved, p.int_mem_used,
       p.int_gpu_mem_reserved, p.int_gpu_mem_used, p.int_cores_reserved, p.int_gpus_reserved, p.b_unbooked,
       coalesce(p.int_pss_max_used, 0) AS pss_max, coalesce(p.int_pss_used, 0) AS pss,
       coalesce(p.str_redirect, '') AS redirect, coalesce(l.str_services, '') AS services, j.str_log_dir
  FROM proc p JOIN host h USING (pk_host) JOIN alloc a USING (pk_alloc) JOIN job j ON j.pk_job = p.pk_job
  JOIN show w ON w.pk_show = j.pk_show JOIN folder o ON o.pk_folder = j.pk_folder
  JOIN layer l ON l.pk_layer = p.pk_layer LEFT JOIN frame f ON f.pk_frame = p.pk_frame";

/// The host and the amounts of the proc. Clients show this as the proc's name.
fn name(row: &Row) -> String {
    let cores = row.get::<_, i64>("int_cores_reserved") as f64 / 100.0;
    format!("{}/{cores:.2}/{}", row.get::<_, &str>("host"), row.get::<_, i32>("int_gpus_reserved"))
}

fn log_path(row: &Row) -> String {
    let [dir, job, frame] = ["str_log_dir", "job", "frame"].map(|name| row.get::<_, &str>(name));
    format!("{dir}/{job}.{frame}.rqlog")
}

fn proc_of(row: &Row) -> Proc {
    Proc {
        id: row.get("pk_proc"),
        name: name(row),
        show_name: row.get("show"),
        job_name: row.get("job"),
        frame_name: row.get("frame"),
        group_name: row.get("folder"),
        ping_time: row.get("pinged"),
        booked_time: row.get("booked"),
        dispatch_time: row.get("dispatched"),
        reserved_memory: row.get("int_mem_reserved"),
        reserved_gpu_memory: row.get("int_gpu_mem_reserved"),
        used_memory: row.get("int_mem_used"),
        reserved_cores: row.get::<_, i64>("int_cores_reserved") as f32 / 100.0,
        unbooked: row.get("b_unbooked"),
        log_path: log_path(row),
        redirect_target: row.get("redirect"),
        services: words(row.get("services"), &[',']).collect(),
        used_gpu_memory: row.get("int_gpu_mem_used"),
        reserved_gpus: row.get::<_, i32>("int_gpus_reserved") as f32,
        child_processes: Vec::new(),
    }
}

/// Conditions of a search on a number: each is a range with both ends.
fn ends(ranges: &[Range]) -> (Vec<i64>, Vec<i64>) {
    ranges.iter().map(|range| (range.min, range.max)).unzip()
}

/// The rows of the procs of a search, the longest booked first.
async fn search(cuebot: &Cuebot, r: ProcSearchCriteria) -> Result<Vec<Row>, CallError> {
    let lists = [&r.hosts, &r.jobs, &r.layers, &r.shows, &r.allocs];
    few("hosts, jobs, layers, shows or allocations", lists.iter().map(|list| list.len()).sum())?;
    let mut memory = r.memory_range;
    memory.extend(r.memory_greater_than.iter().map(|than| Range { min: than.value, max: i64::MAX }));
    memory.extend(r.memory_less_than.iter().map(|than| Range { min: 0, max: than.value }));
    few("ranges", memory.len() + r.duration_range.len())?;
    let (memory, duration_s) = (ends(&memory), ends(&r.duration_range));
    let rows = r.max_results.first().map_or(ROWS_MAX, |max| i64::from(*max)).clamp(1, ROWS_MAX);
    let skipped = i64::from(r.first_result.max(1) - 1);
    let statement = format!(
        "{PROCS}
         WHERE (cardinality($1::text[]) = 0 OR h.str_name::text = ANY($1::text[]))
           AND (cardinality($2::text[]) = 0 OR j.str_name::text = ANY($2::text[]))
           AND (cardinality($3::text[]) = 0 OR l.str_name::text = ANY($3::text[]))
           AND (cardinality($4::text[]) = 0 OR w.str_name::text = ANY($4::text[]))
           AND (cardinality($5::text[]) = 0 OR a.str_name::text = ANY($5::text[]))
           AND (cardinality($6::bigint[]) = 0 OR EXISTS (SELECT 1 FROM unnest($6::bigint[], $7::bigint[]) AS r (low, high)
                WHERE p.int_mem_reserved BETWEEN r.low AND r.high))
           AND (cardinality($8::bigint[]) = 0 OR EXISTS (SELECT 1 FROM unnest($8::bigint[], $9::bigint[]) AS r (low, high)
                WHERE extract(epoch FROM now() - p.ts_dispatched) BETWEEN r.low AND r.high))
         ORDER BY p.ts_booked, p.pk_proc LIMIT {rows} OFFSET {skipped}"
    );
    let client = cuebot.pool.get().await?;
    let names = [&r.hosts, &r.jobs, &r.layers, &r.shows, &r.allocs];
    let numbers = [&memory.0, &memory.1, &duration_s.0, &duration_s.1];
    let mut values: Vec<&(dyn ToSql + Sync)> = Vec::new();
    for list in &names {
        values.push(list);
    }
    for list in &numbers {
        values.push(list);
    }
    Ok(client.query(&statement, &values).await?)
}

async fn of_host(cuebot: Arc<Cuebot>, ask: HostGetProcsRequest) -> Answer<HostGetProcsResponse> {
    let host = key!(ask.host)?;
    let statement = format!("{PROCS} WHERE p.pk_host = $1 ORDER BY p.ts_booked, p.pk_proc LIMIT {ROWS_MAX}");
    let rows = cuebot.pool.get().await?.query(&statement, &[&host]).await?;
    Ok(HostGetProcsResponse { procs: Some(ProcSeq { procs: rows.iter().map(proc_of).collect() }) })
}

/// The rows that a proc belongs to.
struct Owner {
    host: String,
    job: String,
    layer: String,
    frame: Option<String>,
}

async fn owner(cuebot: &Cuebot, proc: Option<&Proc>) -> Result<Owner, CallError> {
    let key = id("proc", proc.map(|proc| &proc.id))?;
    let statement = "SELECT pk_host, pk_job, pk_layer, pk_frame FROM proc WHERE pk_proc = $1";
    let row = cuebot.pool.get().await?.query_opt(statement, &[&key]).await?;
    let row = row.ok_or_else(|| CallError::Missing { what: "proc", name: key.to_owned() })?;
    Ok(Owner { host: row.get(0), job: row.get(1), layer: row.get(2), frame: row.get(3) })
}

answers! { |cuebot, ask|
    "/host.ProcInterface/GetProcs": ProcGetProcsRequest => ProcGetProcsResponse {
        procs: {
            let rows = search(&cuebot, ask.r.unwrap_or_default()).await?;
            Some(ProcSeq { procs: rows.iter().map(proc_of).collect() })
        }
    };
    "/host.ProcInterface/GetHost": ProcGetHostRequest => ProcGetHostResponse {
        host: Some(hosts::by_id(&cuebot, &owner(&cuebot, ask.proc.as_ref()).await?.host).await?)
    };
    "/host.ProcInterface/GetJob": ProcGetJobRequest => ProcGetJobResponse {
        job: Some(jobs::by_id(&cuebot, &owner(&cuebot, ask.proc.as_ref()).await?.job).await?)
    };
    "/host.ProcInterface/GetLayer": ProcGetLayerRequest => ProcGetLayerResponse {
        layer: Some(layers::by_id(&cuebot, &owner(&cuebot, ask.proc.as_ref()).await?.layer).await?)
    };
}

async fn frame_of(cuebot: Arc<Cuebot>, ask: ProcGetFrameRequest) -> Answer<ProcGetFrameResponse> {
    let key = key!(ask.proc)?.to_owned();
    let frame = owner(&cuebot, ask.proc.as_ref()).await?.frame;
    let frame = frame.ok_or(CallError::Missing { what: "frame of proc", name: key })?;
    Ok(ProcGetFrameResponse { frame: Some(frames::by_id(&cuebot, &frame).await?) })
}

/// Marks procs as given up, and ends their frames where the client wants it; these wait again. A proc ends with its
/// frame in any case, so the mark alone only records the client's wish.
async fn give_up(cuebot: &Cuebot, procs: Vec<String>, kills_them: bool) -> Result<(), CallError> {
    let client = cuebot.pool.get().await?;
    let mark = "UPDATE proc SET b_unbooked = true WHERE pk_proc IN (
        SELECT pk_proc FROM proc WHERE pk_proc = ANY($1::text[]) ORDER BY pk_proc FOR UPDATE)";
    client.execute(mark, &[&procs]).await?;
    if !kills_them {
        return Ok(());
    }
    let running = "SELECT pk_frame FROM proc WHERE pk_proc = ANY($1::text[]) AND pk_frame IS NOT NULL";
    let frames = client.query(running, &[&procs]).await?;
    drop(client);
    let frames: Vec<String> = frames.iter().map(|row| row.get(0)).collect();
    if frames.is_empty() {
        return Ok(());
    }
    let wanted = Wanted::of_ids(frames);
    let victims = cuebot.transact(wanted, |tx, wanted| Box::pin(apply(tx, wanted, Action::Kill))).await?;
    cuebot.hosts.end(victims, "a client unbooked the proc".to_owned());
    Ok(())
}

async fn give_up_one(cuebot: &Cuebot, proc: Option<&Proc>, kills_it: bool) -> Result<(), CallError> {
    let key = id("proc", proc.map(|proc| &proc.id))?.to_owned();
    owner(cuebot, proc).await?;
    give_up(cuebot, vec![key], kills_it).await
}

changes! { |cuebot, ask|
    // Ends the frame of a proc, which then waits again.
    "/host.ProcInterface/Kill": ProcKillRequest => give_up_one(&cuebot, ask.proc.as_ref(), true).await;
    // Lets a proc end with its frame, or at once.
    "/host.ProcInterface/Unbook": ProcUnbookRequest => give_up_one(&cuebot, ask.proc.as_ref(), ask.kill).await;
}

/// Lets the procs of a search end with their frames, or at once.
async fn unbook_all(cuebot: Arc<Cuebot>, ask: ProcUnbookProcsRequest) -> Answer<ProcUnbookProcsResponse> {
    let rows = search(&cuebot, ask.r.unwrap_or_default()).await?;
    let procs: Vec<String> = rows.iter().map(|row| row.get("pk_proc")).collect();
    let num_procs = i32::try_from(procs.len()).unwrap_or(i32::MAX);
    give_up(&cuebot, procs, ask.kill).await?;
    Ok(ProcUnbookProcsResponse { num_procs })
}

fn nested_proc(row: &Row) -> NestedProc {
    let proc = proc_of(row);
    repeated!(NestedProc of proc {
        id, name, show_name, job_name, frame_name, group_name, ping_time, booked_time, dispatch_time,
        reserved_memory, reserved_gpu_memory, used_memory, reserved_cores, unbooked, log_path, redirect_target,
        services, used_gpu_memory, reserved_gpus
    } and { parent: None, max_pss: row.get("pss_max"), used_pss: row.get("pss") })
}

fn nested_host(host: Host, procs: Vec<NestedProc>) -> NestedHost {
    repeated!(NestedHost of host {
        id, name, alloc_name, nimby_enabled, has_comment, cores, idle_cores, memory, idle_memory, gpu_memory,
        idle_gpu_memory, total_swap, total_memory, total_gpu_memory, total_mcp, free_swap, free_memory, free_mcp,
        free_gpu_memory, load, boot_time, ping_time, os, tags, state, lock_state, thread_mode, gpus, idle_gpus
    } and { procs: Some(NestedProcSeq { nested_procs: procs }) })
}

async fn whiteboard(
    cuebot: Arc<Cuebot>,
    _: HostGetHostWhiteboardRequest,
) -> Answer<HostGetHostWhiteboardResponse> {
    let mut by_host: BTreeMap<String, Vec<NestedProc>> = BTreeMap::new();
    for row in search(&cuebot, ProcSearchCriteria::default()).await? {
        by_host.entry(row.get("pk_host")).or_default().push(nested_proc(&row));
    }
    let mut nested_hosts = Vec::new();
    for host in hosts::search(&cuebot, &HostSearchCriteria::default()).await? {
        let procs = by_host.remove(&host.id).unwrap_or_default();
        nested_hosts.push(nested_host(host, procs));
    }
    Ok(HostGetHostWhiteboardResponse { nested_hosts: Some(NestedHostSeq { nested_hosts }) })
}
