//! The farm at a glance: hosts, cores, frames, what the scheduler does, and what it leaves out.

use super::trouble::BoardTrouble;
use super::{Board, IS_UP, cores};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio_postgres::Client;

/// Hosts and layers at fault that are listed, each.
const FAULTS_MAX: usize = 100;

const HOSTS: &str = "SELECT count(*), count(*) FILTER (WHERE up), count(*) FILTER (WHERE up AND open),
        coalesce(sum(cores) FILTER (WHERE up), 0)::bigint, coalesce(sum(cores - idle), 0)::bigint,
        coalesce(sum(idle) FILTER (WHERE up AND open), 0)::bigint
    FROM (SELECT h.int_cores AS cores, h.int_cores_idle AS idle, h.str_lock_state = 'OPEN' AS open,
        {is_up} AS up
        FROM host h LEFT JOIN host_stat s USING (pk_host)) all_hosts";
const FRAMES: &str = "SELECT count(*), count(*) FILTER (WHERE j.b_paused),
        coalesce(sum(s.int_waiting_count) FILTER (WHERE NOT j.b_paused), 0)::bigint,
        coalesce(sum(s.int_waiting_count) FILTER (WHERE j.b_paused), 0)::bigint,
        coalesce(sum(s.int_running_count), 0)::bigint, coalesce(sum(s.int_depend_count), 0)::bigint,
        coalesce(sum(s.int_dead_count), 0)::bigint, (extract(epoch FROM now()) * 1e3)::bigint
    FROM job j JOIN job_stat s USING (pk_job) WHERE j.str_state = 'PENDING'";
const HOST_NAMES: &str = "SELECT pk_host, str_name FROM host WHERE pk_host = ANY($1::text[])";
const LAYER_NAMES: &str = "SELECT l.pk_layer, l.str_name, j.pk_job, j.str_name
    FROM layer l JOIN job j USING (pk_job) WHERE l.pk_layer = ANY($1::text[])";

#[derive(Serialize)]
pub(super) struct FarmOverview {
    /// The clock of the database.
    time_ms: i64,
    hosts: HostTotals,
    cores: CoreTotals,
    jobs: JobTotals,
    frames: FrameTotals,
    scheduler: SchedulerFigures,
    faults: Vec<FaultFigures>,
}

#[derive(Serialize)]
struct HostTotals {
    total: i64,
    /// They report, and OpenCue counts them as up.
    up: i64,
    /// Of these, the ones that are not locked.
    open: i64,
}

#[derive(Serialize)]
struct CoreTotals {
    /// Of hosts that are up.
    total: f64,
    /// Cores that frames hold.
    used: f64,
    /// Of hosts that are up and open.
    idle: f64,
}

#[derive(Serialize)]
struct JobTotals {
    /// Jobs that have not ended.
    open: i64,
    /// Of these, the paused ones.
    paused: i64,
}

/// Frames of jobs that have not ended.
#[derive(Serialize)]
struct FrameTotals {
    /// Those of paused jobs are not among them.
    waiting: i64,
    paused: i64,
    running: i64,
    depend: i64,
    dead: i64,
}

/// What this gateway's scheduler does. Others of the same farm have a board of their own.
#[derive(Serialize)]
struct SchedulerFigures {
    /// The last pass reached the database.
    is_healthy: bool,
    booked_per_s: Option<f64>,
    last_pass: Option<PassFigures>,
    /// Since the gateway started.
    launched: u64,
    launches_failed: u64,
    refused: u64,
}

#[derive(Serialize)]
struct PassFigures {
    ended_ms: u64,
    took_ms: f64,
    hosts: u64,
    layers: u64,
    placed: u64,
    booked: u64,
}

/// A host or a layer that the scheduler leaves out for a while.
#[derive(Serialize)]
struct FaultFigures {
    /// The word `host` or `layer`.
    kind: &'static str,
    name: String,
    /// A layer's job: its key and its name.
    job: Option<String>,
    job_name: Option<String>,
    reason: String,
    left_ms: u64,
}

/// Answers with all of it.
pub(super) async fn show(State(board): State<Arc<Board>>) -> Result<Json<FarmOverview>, BoardTrouble> {
    let client = board.client().await?;
    let hosts = client.query_one(&HOSTS.replace("{is_up}", IS_UP), &[&board.scope.host_stale_s]).await?;
    let frames = client.query_one(FRAMES, &[]).await?;
    let faults = board.faults(&client).await?;
    Ok(Json(FarmOverview {
        time_ms: frames.get(7),
        hosts: HostTotals { total: hosts.get(0), up: hosts.get(1), open: hosts.get(2) },
        cores: CoreTotals {
            total: cores(hosts.get(3)),
            used: cores(hosts.get(4)),
            idle: cores(hosts.get(5)),
        },
        jobs: JobTotals { open: frames.get(0), paused: frames.get(1) },
        frames: FrameTotals {
            waiting: frames.get(2),
            paused: frames.get(3),
            running: frames.get(4),
            depend: frames.get(5),
            dead: frames.get(6),
        },
        scheduler: board.scheduler(),
        faults,
    }))
}

impl Board {
    fn scheduler(&self) -> SchedulerFigures {
        let tally = self.metrics.tally();
        let last_pass = tally.last.map(|(ended, pass)| PassFigures {
            ended_ms: ended.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
            took_ms: pass.took_s * 1e3,
            hosts: pass.hosts,
            layers: pass.layers,
            placed: pass.placed,
            booked: pass.booked,
        });
        SchedulerFigures {
            is_healthy: tally.is_healthy,
            booked_per_s: tally.booked_per_s,
            last_pass,
            launched: tally.launched,
            launches_failed: tally.launches_failed,
            refused: tally.refused,
        }
    }

    async fn faults(&self, client: &Client) -> Result<Vec<FaultFigures>, BoardTrouble> {
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
                let Some(left) = left.get(&row.get::<_, String>(0)) else { continue };
                found.push(FaultFigures {
                    kind: "host",
                    name: row.get(1),
                    job: None,
                    job_name: None,
                    reason: "it refuses frames, or does not answer".to_owned(),
                    left_ms: left.as_millis() as u64,
                });
            }
        }
        if !layers.is_empty() {
            let keys: Vec<&String> = layers.iter().map(|held| &held.layer).collect();
            for row in client.query(LAYER_NAMES, &[&keys]).await? {
                let id: String = row.get(0);
                let Some(held) = layers.iter().find(|held| held.layer == id) else { continue };
                found.push(FaultFigures {
                    kind: "layer",
                    name: row.get(1),
                    job: row.get(2),
                    job_name: row.get(3),
                    reason: held.reason.clone(),
                    left_ms: held.left.as_millis() as u64,
                });
            }
        }
        Ok(found)
    }
}
