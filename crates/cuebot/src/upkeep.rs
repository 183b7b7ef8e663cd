//! Upkeep: hosts that fell silent are marked as down, and their frames wait again.

use crate::cuebot::Cuebot;
use crate::report::clear;
use crate::trouble::CallError;
use crate::verdict::EXIT_HOST_DOWN;
use std::time::Instant;

/// Seconds without a report after which a host is down, as in OpenCue. RQD reports each minute.
const SILENT_S: f64 = 300.0;
/// Frames that are cleared in one round.
const ROUND_MAX: i64 = 1_000;

const DOWN: &str = "UPDATE host_stat SET str_state = 'DOWN'
    WHERE str_state IN ('UP', 'REBOOT_WHEN_IDLE') AND ts_ping < now() - make_interval(secs => $1) RETURNING pk_host";
const LEFT: &str = "SELECT p.pk_proc FROM proc p JOIN host_stat s USING (pk_host)
    WHERE s.str_state = 'DOWN' AND s.ts_ping < now() - make_interval(secs => $1) ORDER BY p.pk_frame LIMIT $2";
/// The host may have reported while the procs of others were cleared.
const IS_LEFT: &str = "SELECT FROM proc p JOIN host_stat s USING (pk_host)
    WHERE p.pk_proc = $1 AND s.str_state = 'DOWN' AND s.ts_ping < now() - make_interval(secs => $2)";

impl Cuebot {
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
