//! Old jobs and their output go after a while.

use crate::handle::Handle;
use std::time::Duration;
use windlass_core::Time;
use windlass_core::engine::Event;

/// Rows of tasks deleted in one transaction, so that commits of others need not wait long.
const ROWS: usize = 20_000;
/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(600);

/// How long ended jobs are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// From the job's end.
    pub keep: Duration,
}

impl Retention {
    /// Deletes what is over its time, now and every ten minutes, until the server ends. Workers are
    /// told, and delete the output.
    pub async fn run(self, handle: Handle) {
        let mut closing = handle.closing();
        loop {
            if let Err(e) = self.sweep(&handle).await {
                tracing::warn!("cannot delete old jobs: {e}");
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }

    async fn sweep(&self, handle: &Handle) -> Result<(), windlass_store::StoreError> {
        let now = match handle.clock().trusted() {
            Ok(now) => now,
            Err(apart) => {
                tracing::error!(
                    "no old jobs are deleted: this machine's clock was set, and differs by {} s from the one that \
                     has been running since the server started; restart the server where the machine's is right",
                    apart.as_secs()
                );
                return Ok(());
            }
        };
        let before = Time(now.0.saturating_sub(self.keep.as_nanos() as u64));
        loop {
            let (deleted, more) = handle.store().retain(before, ROWS).await?;
            if !deleted.is_empty() {
                handle.drop_logs(&deleted);
                handle.tell(Event::Deleted(deleted.into_iter().collect())).await;
            }
            if !more {
                return Ok(());
            }
        }
    }
}
