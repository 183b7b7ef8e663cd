//! Upkeep: hosts that fell silent are marked as down, and their frames wait again. After a start, hosts are asked what
//! they run.

use crate::cuebot::Cuebot;
use crate::hosts::FrameRun;
use crate::report::{YOUNG_S, clear};
use crate::trouble::CallError;
use crate::verdict::EXIT_HOST_DOWN;
use std::collections::BTreeMap;
use std::time::Instant;

/// Seconds without a report after which a host is down, as in OpenCue. RQD reports each minute.
const SILENT_S: f64 = 300.0;
/// Frames that are cleared in one round.
const ROUND_MAX: i64 = 1_000;
/// Runs that hosts are asked about after a start: the frames of the largest farms. Reports find the others.
const ASKED_MAX: i64 = 200_000;

const DOWN: &str = "UPDATE host_stat SET str_state = 'DOWN'
    WHERE str_state IN ('UP', 'REBOOT_WHEN_IDLE') AND ts_ping < now() - make_interval(secs => $1) RETURNING pk_host";
const LEFT: &str = "SELECT p.pk_proc FROM proc p JOIN host_stat s USING (pk_host)
    WHERE s.str_state = 'DOWN' AND s.ts_ping < now() - make_interval(secs => $1) ORDER BY p.pk_frame LIMIT $2";
/// The host may have reported while the procs of others were cleared.
const IS_LEFT: &str = "SELECT FROM proc p JOIN host_stat s USING (pk_host)
    WHERE p.pk_proc = $1 AND s.str_state = 'DOWN' AND s.ts_ping < now() - make_interval(secs => $2)";
/// Runs that hosts hold, but for those of launches that may be under way.
const HELD: &str = "SELECT h.str_name::text, p.pk_frame::text, p.pk_proc::text
    FROM proc p JOIN host h USING (pk_host) JOIN host_stat s USING (pk_host)
    WHERE p.pk_frame IS NOT NULL AND s.str_state <> 'DOWN'
        AND p.ts_booked < current_timestamp - make_interval(secs => $1)
    ORDER BY h.str_name LIMIT $2";

impl Cuebot {
    /// Asks all hosts which of the frames that they hold they run. Stock RQD tells an end once, so that ends which came
    /// while no gateway ran are lost. Without this question their frames would wait for two reports of each host.
    pub async fn ask_hosts(&self) -> Result<(), CallError> {
        let rows = self.pool.get().await?.query(HELD, &[&YOUNG_S, &ASKED_MAX]).await?;
        let mut hosts: BTreeMap<String, Vec<FrameRun>> = BTreeMap::new();
        for row in rows {
            let run = FrameRun { frame: row.get(1), proc_id: row.get(2) };
            // An end that waits here has been told.
            if !self.kept.has(&run.proc_id) {
                hosts.entry(row.get(0)).or_default().push(run);
            }
        }
        self.hosts.ask_all(hosts);
        Ok(())
    }

    /// True if all reports of the last five minutes were taken in. Before that the silence of a host says nothing: the
    /// gateway was not there to hear it, or its database was away.
    pub fn has_heard_hosts(&self, now: Instant) -> bool {
        now.saturating_duration_since(*self.deaf_at.lock()).as_secs_f64() >= SILENT_S
    }

    /// Marks silent hosts as down, and lets their frames wait again without spending a retry. Returns the number of
    /// frames.
    pub async fn clear_silent_hosts(&self) -> Result<usize, CallError> {
        let client = self.pool.get().await?;
        let down = client.query(DOWN, &[&SILENT_S]).await?.len();
        let left = client.query(LEFT, &[&SILENT_S, &ROUND_MAX]).await?;
        drop(client);
        if down > 0 {
            tracing::warn!(
                hosts = down,
                frames = left.len(),
                "hosts have been silent for five minutes, and are down"
            );
        }
        let mut cleared = 0;
        for row in &left {
            let is_cleared = self.transact(row.get::<_, &str>(0), |tx, proc_id| {
                Box::pin(async move {
                    if tx.query_opt(IS_LEFT, &[proc_id, &SILENT_S]).await?.is_none() {
                        return Ok(false);
                    }
                    clear(tx, proc_id, i64::from(EXIT_HOST_DOWN)).await?;
                    Ok(true)
                })
            });
            cleared += usize::from(is_cleared.await?);
        }
        Ok(cleared)
    }
}
