//! Hosts: lists, locks, tags, and where they belong.

use super::fields::{self, Answer, ROWS_MAX, all_cores, few, fitting, id};
use crate::cuebot::Cuebot;
use crate::generated::host::*;
use crate::report::write_tags;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use deadpool_postgres::Transaction;
use std::sync::Arc;
use tokio_postgres::Row;

/// Characters of an operating system's name: its column.
const OS_CHARS_MAX: usize = 32;

pub(super) fn routes(routes: Routes) -> Routes {
    setters(changes(answers(routes))).route("/host.HostInterface/Delete", unary(delete))
}

const HOSTS: &str = "
SELECT h.pk_host, h.str_name, a.str_name AS alloc, h.b_nimby, h.b_comment, h.int_cores, h.int_cores_idle, h.int_mem,
       h.int_mem_idle, h.int_gpu_mem, h.int_gpu_mem_idle, h.int_gpus, h.int_gpus_idle, h.int_thread_mode,
       h.str_lock_state, s.str_state, s.str_os, s.int_swap_total, s.int_swap_free, s.int_mem_total, s.int_mem_free,
       s.int_mcp_total, s.int_mcp_free, s.int_gpu_mem_total, s.int_gpu_mem_free, s.int_load::int AS load,
       floor(extract(epoch FROM s.ts_booted))::int AS booted, floor(extract(epoch FROM s.ts_ping))::int AS pinged,
       ARRAY(SELECT str_tag::text FROM host_tag t WHERE t.pk_host = h.pk_host ORDER BY str_tag) AS tags
  FROM host h JOIN host_stat s USING (pk_host) JOIN alloc a USING (pk_alloc)";

fn host_of(row: &Row) -> Host {
    let state = HardwareState::from_str_name(row.get("str_state")).unwrap_or(HardwareState::Down);
    let lock = LockState::from_str_name(row.get("str_lock_state")).unwrap_or(LockState::Locked);
    Host {
        id: row.get("pk_host"),
        name: row.get("str_name"),
        alloc_name: row.get("alloc"),
        nimby_enabled: row.get("b_nimby"),
        has_comment: row.get("b_comment"),
        cores: all_cores(row.get("int_cores")),
        idle_cores: all_cores(row.get("int_cores_idle")),
        memory: row.get("int_mem"),
        idle_memory: row.get("int_mem_idle"),
        gpu_memory: row.get("int_gpu_mem"),
        idle_gpu_memory: row.get("int_gpu_mem_idle"),
        total_swap: row.get("int_swap_total"),
        total_memory: row.get("int_mem_total"),
        total_gpu_memory: row.get("int_gpu_mem_total"),
        total_mcp: row.get("int_mcp_total"),
        free_swap: row.get("int_swap_free"),
        free_memory: row.get("int_mem_free"),
        free_mcp: row.get("int_mcp_free"),
        free_gpu_memory: row.get("int_gpu_mem_free"),
        load: row.get("load"),
        boot_time: row.get("booted"),
        ping_time: row.get("pinged"),
        os: row.get("str_os"),
        tags: row.get("tags"),
        state: state.into(),
        lock_state: lock.into(),
        thread_mode: row.get("int_thread_mode"),
        gpus: row.get::<_, i64>("int_gpus") as f32,
        idle_gpus: row.get::<_, i64>("int_gpus_idle") as f32,
    }
}

/// The hosts of a search. An empty list of criteria matches all.
pub(super) async fn search(cuebot: &Cuebot, r: &HostSearchCriteria) -> Result<Vec<Host>, CallError> {
    let states = r.states.as_ref().map(|seq| seq.state.iter()).into_iter().flatten();
    let states = states.filter_map(|state| HardwareState::try_from(*state).ok());
    let states: Vec<&str> = states.map(|state| state.as_str_name()).collect();
    let locks = r.lock_states.as_ref().map(|seq| seq.state.iter()).into_iter().flatten();
    let locks = locks.filter_map(|state| LockState::try_from(*state).ok());
    let locks: Vec<&str> = locks.map(|state| state.as_str_name()).collect();
    let lists = [&r.hosts, &r.regex, &r.substr, &r.ids, &r.allocs];
    few("hosts or allocations", lists.iter().map(|list| list.len()).sum())?;
    let statement = format!(
        "{HOSTS}
         WHERE (cardinality($1::text[]) = 0 OR h.str_name = ANY($1::text[]))
           AND (cardinality($2::text[]) = 0 OR h.str_name ~* ANY($2::text[]))
           AND (cardinality($3::text[]) = 0
                OR EXISTS (SELECT 1 FROM unnest($3::text[]) AS part WHERE strpos(lower(h.str_name), lower(part)) > 0))
           AND (cardinality($4::text[]) = 0 OR h.pk_host = ANY($4::text[]))
           AND (cardinality($5::text[]) = 0 OR a.str_name = ANY($5::text[]))
           AND (cardinality($6::text[]) = 0 OR s.str_state = ANY($6::text[]))
           AND (cardinality($7::text[]) = 0 OR h.str_lock_state = ANY($7::text[]))
         ORDER BY h.str_name LIMIT {ROWS_MAX}"
    );
    let client = cuebot.pool.get().await?;
    let rows = client
        .query(&statement, &[&r.hosts, &r.regex, &r.substr, &r.ids, &r.allocs, &states, &locks])
        .await?;
    Ok(rows.iter().map(host_of).collect())
}

async fn one(cuebot: &Cuebot, r: HostSearchCriteria, name: &str) -> Result<Host, CallError> {
    let found = search(cuebot, &r).await?.into_iter().next();
    found.ok_or_else(|| CallError::Missing { what: "host", name: name.to_owned() })
}

async fn by_name(cuebot: &Cuebot, name: &str) -> Result<Host, CallError> {
    one(cuebot, HostSearchCriteria { hosts: vec![name.to_owned()], ..Default::default() }, name).await
}

pub(super) async fn by_id(cuebot: &Cuebot, key: &str) -> Result<Host, CallError> {
    one(cuebot, HostSearchCriteria { ids: vec![key.to_owned()], ..Default::default() }, key).await
}

answers! { |cuebot, ask|
    "/host.HostInterface/GetHosts": HostGetHostsRequest => HostGetHostsResponse {
        hosts: Some(HostSeq { hosts: search(&cuebot, &ask.r.unwrap_or_default()).await? })
    };
    "/host.HostInterface/FindHost": HostFindHostRequest => HostFindHostResponse {
        host: Some(by_name(&cuebot, &ask.name).await?)
    };
    "/host.HostInterface/GetHost": HostGetHostRequest => HostGetHostResponse {
        host: Some(by_id(&cuebot, &ask.id).await?)
    };
}

setters!("host.HostInterface", host {
    "Lock": HostLockRequest, |ask| "LOCKED",
        "UPDATE host SET str_lock_state = $2, str_lock_source = 'API' WHERE pk_host = $1";
    "Unlock": HostUnlockRequest, |ask| "OPEN",
        "UPDATE host SET str_lock_state = $2, str_lock_source = 'API' WHERE pk_host = $1";
    // A report of the host replaces any state but `REPAIR`.
    "SetHardwareState": HostSetHardwareStateRequest,
        |ask| HardwareState::try_from(ask.state).unwrap_or(HardwareState::Up).as_str_name(),
        "UPDATE host_stat SET str_state = $2 WHERE pk_host = $1";
    "SetThreadMode": HostSetThreadModeRequest,
        |ask| i32::from(ThreadMode::try_from(ask.mode).unwrap_or(ThreadMode::Auto)),
        "UPDATE host SET int_thread_mode = $2 WHERE pk_host = $1";
    "SetOs": HostSetOsRequest, |ask| fitting("operating system", &ask.os, OS_CHARS_MAX)?,
        "UPDATE host_stat SET str_os = $2 WHERE pk_host = $1";
});

/// Changes the tags of a host, in their table and in the host's own row.
async fn change_tags(
    cuebot: &Cuebot,
    host: Option<&Host>,
    statement: &'static str,
    tags: Vec<String>,
) -> Result<(), CallError> {
    let key = id("host", host.map(|host| &host.id))?.to_owned();
    fields::tags(&tags)?;
    cuebot
        .transact((key, tags), move |tx, (key, tags)| {
            Box::pin(async move {
                let known = tx.query_opt("SELECT 1 FROM host WHERE pk_host = $1 FOR UPDATE", &[key]).await?;
                if known.is_none() {
                    return Err(CallError::Missing { what: "host", name: key.clone() });
                }
                tx.execute(statement, &[key, tags]).await?;
                write_tags(tx, "pk_host", key).await
            })
        })
        .await
}

const ADD_TAGS: &str = "
INSERT INTO host_tag (pk_host_tag, pk_host, str_tag, str_tag_type)
SELECT gen_random_uuid()::text, $1::text, tag, 'MANUAL' FROM (SELECT DISTINCT tag FROM unnest($2::text[]) AS tag) given
 WHERE NOT EXISTS (SELECT 1 FROM host_tag WHERE pk_host = $1::text AND str_tag = tag)";
/// The tags of allocation and name belong to the host and stay.
const REMOVE_TAGS: &str = "
DELETE FROM host_tag WHERE pk_host = $1 AND str_tag::text = ANY($2::text[]) AND NOT b_constant
   AND upper(str_tag_type) NOT IN ('ALLOC', 'HOSTNAME')";
const RENAME_TAG: &str = "
UPDATE host_tag SET str_tag = ($2::text[])[2] WHERE pk_host = $1 AND str_tag::text = ($2::text[])[1] AND NOT b_constant
   AND upper(str_tag_type) NOT IN ('ALLOC', 'HOSTNAME')";

/// Gives hosts to an allocation. A show's use of an allocation is counted by its procs, so a host that runs frames
/// cannot move.
pub(super) async fn give(cuebot: &Cuebot, hosts: Vec<String>, alloc: String) -> Result<(), CallError> {
    few("hosts", hosts.len())?;
    cuebot
        .transact((hosts, alloc), |tx, (hosts, alloc)| {
            Box::pin(async move {
                let tag = tx.query_opt("SELECT str_tag FROM alloc WHERE pk_alloc = $1", &[alloc]).await?;
                let tag =
                    tag.ok_or_else(|| CallError::Missing { what: "allocation", name: alloc.clone() })?;
                let tag: Option<String> = tag.get(0);
                // The rows are locked in the order of bookings.
                let lock = "SELECT pk_host, str_name FROM host WHERE pk_host = ANY($1::text[])
                    ORDER BY pk_host FOR UPDATE";
                for row in tx.query(lock, &[hosts]).await? {
                    give_one(tx, (row.get(0), row.get(1)), alloc, tag.as_deref()).await?;
                }
                Ok(())
            })
        })
        .await
}

async fn give_one(
    tx: &Transaction<'_>,
    (host, name): (&str, &str),
    alloc: &str,
    tag: Option<&str>,
) -> Result<(), CallError> {
    if tx.query_opt("SELECT 1 FROM proc WHERE pk_host = $1 LIMIT 1", &[&host]).await?.is_some() {
        let why = format!("frames run on host '{name}'; lock it, and move it when they have ended");
        return Err(CallError::Value(why));
    }
    tx.execute("UPDATE host SET pk_alloc = $2 WHERE pk_host = $1", &[&host, &alloc]).await?;
    tx.execute("DELETE FROM host_tag WHERE pk_host = $1 AND upper(str_tag_type) = 'ALLOC'", &[&host]).await?;
    tx.execute(
        "INSERT INTO host_tag (pk_host_tag, pk_host, str_tag, str_tag_type)
         SELECT gen_random_uuid()::text, $1::text, $2::text, 'ALLOC' WHERE $2::text IS NOT NULL",
        &[&host, &tag],
    )
    .await?;
    write_tags(tx, "pk_host", host).await
}

changes! { |cuebot, ask|
    "/host.HostInterface/AddTags": HostAddTagsRequest =>
        change_tags(&cuebot, ask.host.as_ref(), ADD_TAGS, ask.tags).await;
    "/host.HostInterface/RemoveTags": HostRemoveTagsRequest =>
        change_tags(&cuebot, ask.host.as_ref(), REMOVE_TAGS, ask.tags).await;
    "/host.HostInterface/RenameTag": HostRenameTagRequest =>
        change_tags(&cuebot, ask.host.as_ref(), RENAME_TAG, vec![ask.old_tag, ask.new_tag]).await;
    "/host.HostInterface/SetAllocation": HostSetAllocationRequest =>
        give(&cuebot, vec![key!(ask.host)?.to_owned()], ask.allocation_id).await;
}

/// Deletes the rows that belong to a host, and the host's own row last.
const DELETES: [&str; 7] = [
    "DELETE FROM comments WHERE pk_host = $1",
    "DELETE FROM job_local WHERE pk_host = $1",
    "DELETE FROM host_local WHERE pk_host = $1",
    "DELETE FROM deed WHERE pk_host = $1",
    "DELETE FROM host_tag WHERE pk_host = $1",
    "DELETE FROM host_stat WHERE pk_host = $1",
    "DELETE FROM host WHERE pk_host = $1",
];

/// Deletes a host that runs nothing. A host that reports again is registered again.
async fn delete(cuebot: Arc<Cuebot>, ask: HostDeleteRequest) -> Answer<()> {
    let key = key!(ask.host)?;
    cuebot
        .transact(key, |tx, key| {
            Box::pin(async move {
                let known = "SELECT EXISTS (SELECT 1 FROM proc WHERE proc.pk_host = host.pk_host)
                    FROM host WHERE pk_host = $1 FOR UPDATE";
                let row = tx.query_opt(known, &[key]).await?;
                let row = row.ok_or_else(|| CallError::Missing { what: "host", name: key.to_string() })?;
                if row.get(0) {
                    let why = "frames run on the host; lock it, and delete it when they have ended";
                    return Err(CallError::Value(why.to_owned()));
                }
                for statement in DELETES {
                    tx.execute(statement, &[key]).await?;
                }
                Ok(())
            })
        })
        .await
}
