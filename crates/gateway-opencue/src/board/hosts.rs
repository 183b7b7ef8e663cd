//! Hosts, and what runs on one.

use super::data::Board;
use super::pages::{IS_UP, entry, key, page, page_size, statement, text};
use super::trouble::BoardTrouble;
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use windlass_api::Page;

/// Frames of a host that are listed.
const PROCS_MAX: i64 = 1_000;

/// Hosts, with their names as cursors, and their keys. A host is away if it does not report, or OpenCue counts it as
/// down. Idle memory is not held by frames, and free memory and the load are what the host reports: the load in
/// hundredths.
const HOSTS: &str = "SELECT json_build_object('name', h.str_name, 'alloc', a.str_name, 'facility', y.str_name,
        'state', CASE WHEN NOT {is_up} THEN 'away' WHEN h.str_lock_state = 'OPEN' THEN 'open' ELSE 'locked' END,
        'hardware', lower(coalesce(s.str_state, '')), 'lock', lower(h.str_lock_state),
        'cores', h.int_cores / 100.0, 'cores_idle', h.int_cores_idle / 100.0,
        'memory_bytes', h.int_mem::numeric * 1024, 'memory_idle_bytes', h.int_mem_idle::numeric * 1024,
        'memory_free_bytes', nullif(s.int_mem_free, 0)::numeric * 1024, 'load', s.int_load / 100.0,
        'gpus', h.int_gpus, 'gpus_idle', h.int_gpus_idle, 'os', s.str_os,
        'frames', (SELECT count(*) FROM proc p WHERE p.pk_host = h.pk_host),
        'tags', ARRAY(SELECT t.str_tag FROM host_tag t WHERE t.pk_host = h.pk_host ORDER BY t.str_tag),
        'heard_ms', (extract(epoch FROM s.ts_ping) * 1e3)::bigint,
        'booted_ms', (extract(epoch FROM s.ts_booted) * 1e3)::bigint)::text, h.str_name, h.pk_host
    FROM host h JOIN alloc a ON a.pk_alloc = h.pk_alloc JOIN facility y ON y.pk_facility = a.pk_facility
        LEFT JOIN host_stat s ON s.pk_host = h.pk_host";
const LISTED: &str = "($2::text IS NULL OR strpos(lower(h.str_name), lower($2)) > 0)
        AND ($3::text IS NULL OR h.str_name > $3) ORDER BY h.str_name LIMIT $4";
/// Frames on a host. One that was killed leaves its place until its command has ended.
const PROCS: &str = "SELECT json_build_object('id', p.pk_proc, 'frame', f.str_name, 'layer', l.str_name,
        'job', j.pk_job, 'job_name', j.str_name, 'show', w.str_name, 'cores', p.int_cores_reserved / 100.0,
        'reserved_bytes', p.int_mem_reserved::numeric * 1024,
        'used_bytes', nullif(p.int_mem_used, 0)::numeric * 1024, 'gpus', p.int_gpus_reserved,
        'since_ms', (extract(epoch FROM p.ts_dispatched) * 1e3)::bigint)::text
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

impl Board {
    /// Adds to hosts how much longer this gateway's scheduler leaves each of them out, because it refuses frames or
    /// does not answer.
    fn mark(&self, hosts: &mut [Value], rows: &[Row]) {
        let held: BTreeMap<String, Duration> =
            self.launcher.faults().held_hosts(Instant::now()).into_iter().collect();
        for (host, row) in hosts.iter_mut().zip(rows) {
            let left = held.get(row.get::<_, &str>(2));
            host["left_out_ms"] = json!(left.map(|left| left.as_millis() as u64));
        }
    }
}

pub(super) async fn list(
    State(board): State<Arc<Board>>,
    query: Result<Query<HostsQuery>, QueryRejection>,
) -> Result<Json<Page<Value>>, BoardTrouble> {
    let Query(asked) = query?;
    let size = page_size(asked.limit)?;
    let (name, after) = (text("name", asked.name)?, text("cursor", asked.cursor)?);
    let condition = asked.state.map_or_else(|| "true".to_owned(), HostChoice::condition);
    let statement = format!("{} WHERE {condition} AND {LISTED}", statement(HOSTS));
    let client = board.client().await?;
    let most = size as i64 + 1;
    let rows = client.query(&statement, &[&board.scope.host_stale_s, &name, &after, &most]).await?;
    let mut page = page(&rows, size);
    board.mark(&mut page.items, &rows);
    Ok(Json(page))
}

/// Answers with one host and its frames.
pub(super) async fn show(
    State(board): State<Arc<Board>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, BoardTrouble> {
    let name = key(name)?;
    let client = board.client().await?;
    let statement = format!("{} WHERE h.str_name = $2", statement(HOSTS));
    let row = client.query_opt(&statement, &[&board.scope.host_stale_s, &name]).await?;
    let row = row.ok_or_else(|| BoardTrouble::Missing(format!("host '{name}'")))?;
    let mut host = entry(&row);
    board.mark(slice::from_mut(&mut host), slice::from_ref(&row));
    let procs = client.query(PROCS, &[&row.get::<_, &str>(2), &PROCS_MAX]).await?;
    host["procs"] = procs.iter().map(entry).collect();
    Ok(Json(host))
}
