//! The farm at a glance: hosts, cores, frames, what the scheduler does, and what it leaves out.

use super::data::Board;
use super::pages::{entry, statement};
use super::trouble::BoardTrouble;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio_postgres::Client;

/// Hosts and layers at fault that are listed, each.
const FAULTS_MAX: usize = 100;

/// Hosts that report and count as up, and those of them that are open; cores of hosts that are up, cores that frames
/// hold, and idle ones of open hosts; and jobs that have not ended. Waiting frames of paused jobs are counted apart.
const FARM: &str = "SELECT json_build_object('time_ms', (extract(epoch FROM now()) * 1e3)::bigint,
        'hosts', h.hosts, 'cores', h.cores, 'jobs', f.jobs, 'frames', f.frames)::text
    FROM (SELECT json_build_object('total', count(*), 'up', count(*) FILTER (WHERE up),
                'open', count(*) FILTER (WHERE up AND open)) AS hosts,
            json_build_object('total', coalesce(sum(cores) FILTER (WHERE up), 0) / 100.0,
                'used', coalesce(sum(cores - idle), 0) / 100.0,
                'idle', coalesce(sum(idle) FILTER (WHERE up AND open), 0) / 100.0) AS cores
        FROM (SELECT h.int_cores AS cores, h.int_cores_idle AS idle, h.str_lock_state = 'OPEN' AS open, {is_up} AS up
            FROM host h LEFT JOIN host_stat s USING (pk_host)) all_hosts) h
    CROSS JOIN (SELECT json_build_object('open', count(*), 'paused', count(*) FILTER (WHERE j.b_paused)) AS jobs,
            json_build_object('waiting', coalesce(sum(s.int_waiting_count) FILTER (WHERE NOT j.b_paused), 0),
                'paused', coalesce(sum(s.int_waiting_count) FILTER (WHERE j.b_paused), 0),
                'running', coalesce(sum(s.int_running_count), 0), 'depend', coalesce(sum(s.int_depend_count), 0),
                'dead', coalesce(sum(s.int_dead_count), 0)) AS frames
        FROM job j JOIN job_stat s USING (pk_job) WHERE j.str_state = 'PENDING') f";
const HOST_NAMES: &str = "SELECT pk_host, str_name FROM host WHERE pk_host = ANY($1::text[])";
const LAYER_NAMES: &str = "SELECT l.pk_layer, l.str_name, j.pk_job, j.str_name
    FROM layer l JOIN job j USING (pk_job) WHERE l.pk_layer = ANY($1::text[])";

pub(super) async fn show(State(board): State<Arc<Board>>) -> Result<Json<Value>, BoardTrouble> {
    let client = board.client().await?;
    let row = client.query_one(&statement(FARM), &[&board.scope.host_stale_s]).await?;
    let mut farm = entry(&row);
    farm["scheduler"] = board.scheduler();
    farm["faults"] = board.faults(&client).await?;
    Ok(Json(farm))
}

impl Board {
    /// What this gateway's scheduler does. Others of the same farm have a board of their own. Counts of launches and
    /// refused placements are those since the gateway started.
    fn scheduler(&self) -> Value {
        let tally = self.metrics.tally();
        let last_pass = tally.last.map(|(ended, pass)| {
            json!({
                "ended_ms": ended.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
                "took_ms": pass.took_s * 1e3,
                "hosts": pass.hosts,
                "layers": pass.layers,
                "placed": pass.placed,
                "booked": pass.booked,
            })
        });
        json!({
            "is_healthy": tally.is_healthy,
            "booked_per_s": tally.booked_per_s,
            "load": tally.load,
            "last_pass": last_pass,
            "launched": tally.launched,
            "launches_failed": tally.launches_failed,
            "refused": tally.refused,
        })
    }

    /// Hosts and layers that the scheduler leaves out for a while.
    async fn faults(&self, client: &Client) -> Result<Value, BoardTrouble> {
        let (mut hosts, mut layers) = {
            let (faults, now) = (self.launcher.faults(), Instant::now());
            (faults.held_hosts(now), faults.held_layers(now))
        };
        hosts.truncate(FAULTS_MAX);
        layers.truncate(FAULTS_MAX);
        let mut found = Vec::new();
        if !hosts.is_empty() {
            let left: BTreeMap<String, Duration> = hosts.into_iter().collect();
            let keys: Vec<&String> = left.keys().collect();
            for row in client.query(HOST_NAMES, &[&keys]).await? {
                let Some(left) = left.get(row.get::<_, &str>(0)) else { continue };
                found.push(json!({
                    "kind": "host",
                    "name": row.get::<_, &str>(1),
                    "job": null,
                    "job_name": null,
                    "reason": "it refuses frames, or does not answer",
                    "left_ms": left.as_millis() as u64,
                }));
            }
        }
        if !layers.is_empty() {
            let keys: Vec<&String> = layers.iter().map(|held| &held.layer).collect();
            for row in client.query(LAYER_NAMES, &[&keys]).await? {
                let id: &str = row.get(0);
                let Some(held) = layers.iter().find(|held| held.layer == id) else { continue };
                found.push(json!({
                    "kind": "layer",
                    "name": row.get::<_, &str>(1),
                    "job": row.get::<_, &str>(2),
                    "job_name": row.get::<_, &str>(3),
                    "reason": held.reason,
                    "left_ms": held.left.as_millis() as u64,
                }));
            }
        }
        Ok(Value::Array(found))
    }
}
