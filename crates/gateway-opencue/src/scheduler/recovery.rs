//! Bookings of instances that ended between commit and launch.
//!
//! Each instance has a number, with which the keys of its procs begin, and holds an advisory lock of that number as
//! long as it lives. PostgreSQL gives the lock back when the instance's connection ends, however it ends. A proc whose
//! instance is gone, and of which no host has reported yet, may never have been launched: its host is asked. Of procs on
//! Windlass workers that comparison is made in `workers`, which also knows how their frames ended.

use super::hosts::Hosts;
use super::launcher::Launcher;
use super::metrics::Metrics;
use super::snapshot::Scope;
use std::collections::BTreeMap;
use tokio_postgres::{Client, Error};
use windlass_cuebot::FrameRun;

/// The first half of the keys of instances' locks: "wind" as a number.
pub const LOCKS: i32 = 0x7769_6e64;
/// Age in seconds before which a booking may still be on its way: more than a launch may take.
const YOUNG_S: f64 = 15.0;
/// Procs that are looked at in one sweep.
const PROCS_MAX: i64 = 10_000;
/// Hosts that are asked at a time.
const HOSTS_AT_A_TIME: usize = 32;

const ORPHANS: &str = "WITH live AS (
        SELECT lpad(to_hex(objid::bigint), 8, '0') AS number FROM pg_locks
        WHERE locktype = 'advisory' AND classid = $2::int::oid AND objsubid = 2 AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    SELECT p.pk_proc, p.pk_frame, h.str_name FROM proc p JOIN host h USING (pk_host) JOIN show w USING (pk_show)
    WHERE p.pk_frame IS NOT NULL AND p.ts_ping < p.ts_booked + interval '1 second'
        AND p.ts_booked < now() - make_interval(secs => $3)
        AND NOT EXISTS (SELECT FROM live WHERE live.number = left(p.pk_proc, 8)) AND ";

/// Asks hosts for the frames of instances that ended, and takes back those that do not run. Returns their number.
pub async fn sweep(
    client: &Client,
    scope: &Scope,
    launcher: &Launcher,
    metrics: &Metrics,
) -> Result<usize, Error> {
    let sql = format!("{ORPHANS}{} LIMIT {PROCS_MAX}", scope.owned());
    let mut by_host: BTreeMap<String, Vec<FrameRun>> = BTreeMap::new();
    for row in client.query(&sql, &[&scope.shows, &LOCKS, &YOUNG_S]).await? {
        let run = FrameRun { frame: row.get(1), proc_id: row.get(0) };
        by_host.entry(row.get(2)).or_default().push(run);
    }
    by_host.retain(|host, _| !launcher.hosts().is_worker(host));
    let mut lost = 0;
    let hosts: Vec<(String, Vec<FrameRun>)> = by_host.into_iter().collect();
    for some in hosts.chunks(HOSTS_AT_A_TIME) {
        let asked = some.iter().map(|(host, runs)| missing(launcher.hosts(), host, runs));
        for (host, run) in futures_util::future::join_all(asked).await.into_iter().flatten() {
            let frame = run.frame.clone();
            if launcher.undo(host.clone(), run) {
                tracing::warn!(host, frame, "a frame was booked by an instance that ended, and does not run");
                metrics.recovered.inc();
                lost += 1;
            }
        }
    }
    Ok(lost)
}

/// The runs that the host does not have; none where it does not answer.
async fn missing(hosts: &Hosts, host: &str, runs: &[FrameRun]) -> Vec<(String, FrameRun)> {
    match hosts.missing(host, runs.to_vec()).await {
        Ok(missing) => missing.into_iter().map(|run| (host.to_owned(), run)).collect(),
        Err(status) => {
            tracing::warn!(
                host,
                why = status.message(),
                "a host does not say what it runs; it is asked again"
            );
            Vec::new()
        }
    }
}
