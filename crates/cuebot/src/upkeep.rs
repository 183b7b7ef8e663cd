//! Upkeep: hosts that fell silent are marked as down, and their frames wait again.

use crate::cuebot::Cuebot;
use crate::hosts::FrameRun;
use crate::report::clear;
use crate::trouble::CallError;
use crate::verdict::{EXIT_CLEARED, EXIT_HOST_DOWN};

/// Seconds without a report after which a host is down, as in OpenCue. RQD reports each minute.
const SILENT_S: f64 = 300.0;
/// Seconds after which a frame is lost: its host reports, and none of its reports has the frame.
const LOST_S: f64 = 300.0;
/// Frames that are cleared in one round.
const ROUND_MAX: i64 = 1_000;

const DOWN: &str = "UPDATE host_stat SET str_state = 'DOWN'
    WHERE str_state IN ('UP', 'REBOOT_WHEN_IDLE') AND ts_ping < now() - make_interval(secs => $1) RETURNING pk_host";
const LEFT: &str = "SELECT p.pk_proc FROM proc p JOIN host_stat s USING (pk_host)
    WHERE s.str_state = 'DOWN' AND s.ts_ping < now() - make_interval(secs => $1) ORDER BY p.pk_frame LIMIT $2";
/// The host may have reported while the procs of others were cleared.
const IS_LEFT: &str = "SELECT FROM proc p JOIN host_stat s USING (pk_host)
    WHERE p.pk_proc = $1 AND s.str_state = 'DOWN' AND s.ts_ping < now() - make_interval(secs => $2)";
/// Procs whose frames were killed, and whose commands their hosts report no longer.
const FREED: &str = "SELECT p.pk_proc FROM proc p JOIN host_stat s USING (pk_host)
    WHERE s.str_state = 'UP' AND s.ts_ping > p.ts_ping + make_interval(secs => $1) AND p.pk_frame IS NULL
        AND s.ts_ping > now() - make_interval(secs => $1) LIMIT $2";
const LOST: &str = "SELECT h.str_name, p.pk_frame, p.pk_proc FROM proc p JOIN host h USING (pk_host)
        JOIN host_stat s USING (pk_host)
    WHERE s.str_state = 'UP' AND s.ts_ping > p.ts_ping + make_interval(secs => $1) AND p.pk_frame IS NOT NULL
        AND s.ts_ping > now() - make_interval(secs => $1) LIMIT $2";

impl Cuebot {
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

    /// Ends procs whose frames were killed and whose ends were lost: their hosts report, and leave them out.
    pub async fn clear_freed_procs(&self) -> Result<(), CallError> {
        let freed = self.pool.get().await?.query(FREED, &[&LOST_S, &ROUND_MAX]).await?;
        for row in &freed {
            self.clear(row.get(0), EXIT_CLEARED).await?;
        }
        Ok(())
    }

    /// Runs by the tables, each with its host, that the host's reports leave out: their ends were lost.
    pub async fn lost_frames(&self) -> Result<Vec<(String, FrameRun)>, CallError> {
        let rows = self.pool.get().await?.query(LOST, &[&LOST_S, &ROUND_MAX]).await?;
        let lost = rows.iter().map(|row| (row.get(0), FrameRun { frame: row.get(1), proc_id: row.get(2) }));
        Ok(lost.collect())
    }
}
