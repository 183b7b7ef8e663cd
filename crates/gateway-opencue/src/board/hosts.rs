//! Hosts, and what runs on one.

use super::jobs::key;
use super::trouble::BoardTrouble;
use super::{Board, IS_UP, bytes, cores, page_size, part, text};
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use tokio_postgres::Row;
use windlass_api::Page;

/// Frames of a host that are listed.
const PROCS_MAX: i64 = 1_000;

const HOSTS: &str = "SELECT h.pk_host, h.str_name, a.str_name, y.str_name, coalesce(s.str_state, ''), h.str_lock_state,
        {is_up}, h.int_cores::bigint, h.int_cores_idle::bigint, h.int_mem::bigint, h.int_mem_idle::bigint,
        nullif(s.int_mem_free, 0)::bigint, s.int_load::bigint, h.int_gpus::bigint, h.int_gpus_idle::bigint,
        (extract(epoch FROM s.ts_ping) * 1e3)::bigint, (extract(epoch FROM s.ts_booted) * 1e3)::bigint, s.str_os,
        ARRAY(SELECT t.str_tag::text FROM host_tag t WHERE t.pk_host = h.pk_host ORDER BY t.str_tag),
        (SELECT count(*) FROM proc p WHERE p.pk_host = h.pk_host)
    FROM host h JOIN alloc a ON a.pk_alloc = h.pk_alloc JOIN facility y ON y.pk_facility = a.pk_facility
        LEFT JOIN host_stat s ON s.pk_host = h.pk_host";
const LISTED: &str = "($2::text IS NULL OR strpos(lower(h.str_name), lower($2)) > 0)
        AND ($3::text IS NULL OR h.str_name > $3) ORDER BY h.str_name LIMIT $4";
const PROCS: &str = "SELECT p.pk_proc, f.str_name, l.str_name, j.pk_job, j.str_name, w.str_name,
        p.int_cores_reserved::bigint, p.int_mem_reserved::bigint, nullif(p.int_mem_used, 0)::bigint,
        p.int_gpus_reserved::bigint, (extract(epoch FROM p.ts_dispatched) * 1e3)::bigint
    FROM proc p LEFT JOIN frame f ON f.pk_frame = p.pk_frame LEFT JOIN layer l ON l.pk_layer = p.pk_layer
        LEFT JOIN job j ON j.pk_job = p.pk_job LEFT JOIN show w ON w.pk_show = j.pk_show
    WHERE p.pk_host = $1 ORDER BY p.ts_dispatched DESC, p.pk_proc LIMIT $2";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostsQuery {
    state: Option<HostChoice>,
    /// A part of the name.
    name: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

/// A choice of hosts by whether they get frames.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HostChoice {
    Open,
    Locked,
    Away,
}

impl HostChoice {
    fn condition(self) -> String {
        match self {
            HostChoice::Open => format!("{IS_UP} AND h.str_lock_state = 'OPEN'"),
            HostChoice::Locked => format!("{IS_UP} AND h.str_lock_state <> 'OPEN'"),
            HostChoice::Away => format!("NOT {IS_UP}"),
        }
    }
}

#[derive(Serialize)]
pub(super) struct HostFigures {
    name: String,
    alloc: String,
    facility: String,
    /// `open`, `locked`, or `away`: it does not report, or OpenCue counts it as down.
    state: &'static str,
    /// OpenCue's words in lower case.
    hardware: String,
    lock: String,
    cores: f64,
    cores_idle: f64,
    memory_bytes: i64,
    /// Not held by frames.
    memory_idle_bytes: i64,
    /// Free as the host reports it.
    memory_free_bytes: Option<i64>,
    /// Processes that run or want to, as the host reports it.
    load: Option<f64>,
    gpus: i64,
    gpus_idle: i64,
    frames: i64,
    tags: Vec<String>,
    os: Option<String>,
    heard_ms: Option<i64>,
    booted_ms: Option<i64>,
    /// How much longer this gateway's scheduler leaves it out, because it refuses frames or does not answer.
    left_out_ms: Option<u64>,
    #[serde(skip)]
    key: String,
}

/// A host, and what runs there.
#[derive(Serialize)]
pub(super) struct HostDetail {
    #[serde(flatten)]
    host: HostFigures,
    procs: Vec<ProcFigures>,
}

/// A frame on a host. One that was killed leaves its place until its command has ended.
#[derive(Serialize)]
struct ProcFigures {
    id: String,
    frame: Option<String>,
    layer: Option<String>,
    /// The job's key and name.
    job: Option<String>,
    job_name: Option<String>,
    show: Option<String>,
    cores: f64,
    reserved_bytes: i64,
    used_bytes: Option<i64>,
    gpus: i64,
    since_ms: Option<i64>,
}

fn host(row: &Row) -> HostFigures {
    let (hardware, lock): (String, String) = (row.get(4), row.get(5));
    let state = match (row.get::<_, bool>(6), lock.as_str()) {
        (false, _) => "away",
        (true, "OPEN") => "open",
        (true, _) => "locked",
    };
    HostFigures {
        key: row.get(0),
        name: row.get(1),
        alloc: row.get(2),
        facility: row.get(3),
        state,
        hardware: hardware.to_lowercase(),
        lock: lock.to_lowercase(),
        cores: cores(row.get(7)),
        cores_idle: cores(row.get(8)),
        memory_bytes: bytes(row.get(9)),
        memory_idle_bytes: bytes(row.get(10)),
        memory_free_bytes: row.get::<_, Option<i64>>(11).map(bytes),
        // RQD reports hundredths.
        load: row.get::<_, Option<i64>>(12).map(|load| load as f64 / 100.0),
        gpus: row.get(13),
        gpus_idle: row.get(14),
        heard_ms: row.get(15),
        booted_ms: row.get(16),
        os: row.get(17),
        tags: row.get(18),
        frames: row.get(19),
        left_out_ms: None,
    }
}

impl Board {
    /// Adds what the scheduler knows of hosts.
    fn mark(&self, hosts: &mut [HostFigures]) {
        let held = self.launcher.faults().held_hosts(Instant::now());
        for host in hosts {
            let left = held.iter().find(|(key, _)| *key == host.key);
            host.left_out_ms = left.map(|(_, left)| left.as_millis() as u64);
        }
    }
}

/// Lists hosts by name.
pub(super) async fn list(
    State(board): State<Arc<Board>>,
    query: Result<Query<HostsQuery>, QueryRejection>,
) -> Result<Json<Page<HostFigures>>, BoardTrouble> {
    let Query(asked) = query?;
    let size = page_size(asked.limit)?;
    let (name, after) = (text("name", asked.name)?, text("cursor", asked.cursor)?);
    let condition = asked.state.map_or_else(|| "true".to_owned(), HostChoice::condition);
    let statement = format!("{} WHERE {condition} AND {LISTED}", HOSTS.replace("{is_up}", IS_UP));
    let client = board.client().await?;
    let most = size as i64 + 1;
    let rows = client.query(&statement, &[&board.scope.host_stale_s, &name, &after, &most]).await?;
    let mut hosts: Vec<HostFigures> = rows.iter().map(host).collect();
    board.mark(&mut hosts);
    Ok(Json(part(hosts, size, |host: &HostFigures| host.name.clone())))
}

/// Answers with one host and its frames.
pub(super) async fn show(
    State(board): State<Arc<Board>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<HostDetail>, BoardTrouble> {
    let name = key(name)?;
    let client = board.client().await?;
    let statement = format!("{} WHERE h.str_name = $2", HOSTS.replace("{is_up}", IS_UP));
    let row = client.query_opt(&statement, &[&board.scope.host_stale_s, &name]).await?;
    let row = row.ok_or_else(|| BoardTrouble::Missing(format!("host '{name}'")))?;
    let mut host = host(&row);
    board.mark(std::slice::from_mut(&mut host));
    let rows = client.query(PROCS, &[&host.key, &PROCS_MAX]).await?;
    Ok(Json(HostDetail { host, procs: rows.iter().map(proc).collect() }))
}

fn proc(row: &Row) -> ProcFigures {
    ProcFigures {
        id: row.get(0),
        frame: row.get(1),
        layer: row.get(2),
        job: row.get(3),
        job_name: row.get(4),
        show: row.get(5),
        cores: cores(row.get(6)),
        reserved_bytes: bytes(row.get(7)),
        used_bytes: row.get::<_, Option<i64>>(8).map(bytes),
        gpus: row.get(9),
        since_ms: row.get(10),
    }
}
