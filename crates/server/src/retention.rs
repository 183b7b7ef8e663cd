//! Old jobs and their output go after a while.
//!
//! What counts is the time for which a server ran: a machine that was off, and a clock that was set while no server
//! looked, make nothing older.

use crate::figures::{USAGE_DAYS_MAX, usage_day};
use crate::handle::Handle;
use std::time::Duration;
use windlass_core::Time;
use windlass_core::engine::Event;
use windlass_store::{Store, StoreError, forget_usage};

/// Rows of tasks deleted in one transaction, so that commits of others need not wait long.
const ROWS: usize = 20_000;
/// Between two looks for jobs that are kept no longer.
const INTERVAL: Duration = Duration::from_secs(600);
/// A server that was away for less was there all the time.
const GAP_MIN_NS: u64 = 3_600_000_000_000;
/// Names of the store's numbers: until when a server is known to have run, for how long none did before the last
/// start, and when that was, in nanoseconds.
const RAN_UNTIL: &str = "ran_until";
const GAP: &str = "gap";
const STARTED: &str = "started";

/// How long ended jobs are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// From the job's end.
    pub keep: Duration,
}

/// When no server ran, so that ended jobs did not get older.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Gap {
    /// How long, in all, as long as that still matters.
    ns: u64,
    /// When the server started after it.
    started: u64,
}

impl Gap {
    /// As it is when a server starts `now`, and one is known to have run until then.
    fn at_start(self, now: u64, ran_until: Option<u64>, keep_ns: u64) -> Gap {
        let away = now.saturating_sub(ran_until.unwrap_or(now));
        let before = if self.matters(now.saturating_sub(away), keep_ns) { self.ns } else { 0 };
        match away {
            0..GAP_MIN_NS if before == self.ns => self,
            0..GAP_MIN_NS => Gap::default(),
            _ => Gap { ns: before.saturating_add(away), started: now },
        }
    }

    /// Jobs that ended before this have been kept long enough.
    fn keeps_from(self, now: u64, keep_ns: u64) -> Time {
        let gap = if self.matters(now, keep_ns) { self.ns } else { 0 };
        Time(now.saturating_sub(keep_ns).saturating_sub(gap))
    }

    /// True while there may be jobs that ended before it and were not kept long enough.
    fn matters(self, now: u64, keep_ns: u64) -> bool {
        self.ns > 0 && now < self.started.saturating_add(keep_ns)
    }
}

impl Retention {
    /// Deletes what is over its time, now and every ten minutes, until the server ends. Workers are
    /// told, and delete the output.
    pub async fn run(self, handle: Handle) {
        let mut closing = handle.closing();
        let mut gap = None;
        loop {
            if let Err(e) = self.sweep(&handle, &mut gap).await {
                tracing::warn!("cannot delete old jobs: {e}");
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }

    fn keep_ns(&self) -> u64 {
        u64::try_from(self.keep.as_nanos()).unwrap_or(u64::MAX)
    }

    /// What is known of the time without a server, for one that starts now.
    async fn gap(&self, store: &Store, now: Time) -> Result<Gap, StoreError> {
        let read = async |name| store.number(name).await.map(Option::unwrap_or_default);
        let before = Gap { ns: read(GAP).await?, started: read(STARTED).await? };
        let gap = before.at_start(now.0, store.number(RAN_UNTIL).await?, self.keep_ns());
        store.keep_number(GAP, gap.ns).await?;
        store.keep_number(STARTED, gap.started).await?;
        Ok(gap)
    }

    async fn sweep(&self, handle: &Handle, gap: &mut Option<Gap>) -> Result<(), StoreError> {
        let now = match handle.parts().clock.trusted() {
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
        let store = handle.store();
        let gap = match *gap {
            Some(gap) => gap,
            None => *gap.insert(self.gap(store, now).await?),
        };
        store.keep_number(RAN_UNTIL, now.0).await?;
        let before = gap.keeps_from(now.0, self.keep_ns());
        loop {
            let (deleted, more) = store.retain(before, ROWS).await?;
            if !deleted.is_empty() {
                handle.drop_logs(&deleted);
                handle.parts().job_ends.deleted(&deleted);
                handle.tell(Event::Deleted(deleted.into_iter().collect())).await;
            }
            if !more {
                break;
            }
        }
        // A day at a time, between which commits run.
        while forget_usage(store, (usage_day(now) + 1).saturating_sub(USAGE_DAYS_MAX)).await? > 0 {}
        while store.shrink().await? {}
        handle.parts().disk.prepare();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000_000;
    const KEEP: u64 = 14 * DAY;

    #[test]
    fn time_without_a_server_makes_nothing_older() {
        let none = Gap::default();
        assert_eq!(none.keeps_from(100 * DAY, KEEP), Time(86 * DAY));
        assert_eq!(none.at_start(100 * DAY, None, KEEP), none);
        assert_eq!(none.at_start(100 * DAY, Some(100 * DAY - 60), KEEP), none);
        // The clock was set forward by 15 days, and the server restarted.
        let gap = none.at_start(115 * DAY, Some(100 * DAY), KEEP);
        assert_eq!(gap, Gap { ns: 15 * DAY, started: 115 * DAY });
        // What ended on day 99 is one day old, and goes 13 days later.
        assert!(gap.keeps_from(115 * DAY, KEEP) < Time(99 * DAY));
        assert!(gap.keeps_from(127 * DAY, KEEP) < Time(99 * DAY));
        assert!(gap.keeps_from(129 * DAY, KEEP) > Time(99 * DAY));
        // A restart without another gap changes nothing, and at last it does not matter any more.
        assert_eq!(gap.at_start(120 * DAY, Some(120 * DAY), KEEP), gap);
        assert_eq!(gap.keeps_from(130 * DAY, KEEP), Time(116 * DAY));
        assert_eq!(gap.at_start(140 * DAY, Some(140 * DAY), KEEP), none);
        // Two gaps add up while the first still matters.
        assert_eq!(gap.at_start(125 * DAY, Some(120 * DAY), KEEP).ns, 20 * DAY);
        assert_eq!(gap.at_start(145 * DAY, Some(140 * DAY), KEEP).ns, 5 * DAY);
    }

    #[test]
    fn a_clock_that_was_set_back_deletes_nothing_more() {
        let none = Gap::default();
        assert_eq!(none.at_start(90 * DAY, Some(100 * DAY), KEEP), none);
        assert_eq!(none.keeps_from(DAY, KEEP), Time(0));
    }
}
