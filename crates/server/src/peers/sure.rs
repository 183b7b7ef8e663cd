//! The time until which a server may act as the owner of its farm.
//!
//! A server that cannot reach the database does not know whether another server has taken the farm over. It may still
//! reach its workers. If it went on to extend their leases, their tasks would run on although the new owner has started
//! them again. So its right to extend leases ends by itself, unless it is renewed.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time since the machine was started. It goes on while the machine sleeps.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), now.tv_nsec as u32)
}

/// The time until which this server surely owns its farm.
#[derive(Debug)]
pub(crate) struct SureUntil {
    /// Milliseconds since the machine was started. `u64::MAX` for a store that no other server can use.
    until_ms: AtomicU64,
}

impl SureUntil {
    /// For a store that no other server can use.
    pub fn for_ever() -> SureUntil {
        SureUntil { until_ms: AtomicU64::new(u64::MAX) }
    }

    /// Sets the end, as time since the machine was started.
    pub fn set(&self, end: Duration) {
        self.until_ms.store(end.as_millis() as u64, Ordering::Relaxed);
    }

    /// False once the end has passed.
    pub fn is_sure(&self) -> bool {
        since_boot().as_millis() < u128::from(self.until_ms.load(Ordering::Relaxed))
    }

    /// Returns once the end has passed.
    pub async fn ended(&self) {
        loop {
            let until_ms = self.until_ms.load(Ordering::Relaxed);
            let left = Duration::from_millis(until_ms).saturating_sub(since_boot());
            if left.is_zero() {
                return;
            }
            // The timer of the runtime may have a shorter limit than `Duration`.
            tokio::time::sleep(left.min(Duration::from_secs(3600))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn the_right_ends_by_itself() {
        let sure = SureUntil::for_ever();
        assert!(sure.is_sure() && sure.ended().now_or_never().is_none());
        sure.set(since_boot() + Duration::from_secs(100));
        assert!(sure.is_sure() && sure.ended().now_or_never().is_none());
        sure.set(since_boot());
        assert!(!sure.is_sure());
        sure.ended().await;
        sure.set(since_boot() + Duration::from_secs(100));
        assert!(sure.is_sure(), "it was renewed");
    }
}
