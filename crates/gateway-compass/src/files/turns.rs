//! A bound on concurrent transfers: of all together, and of each job or address, so that none of these takes all
//! places.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_server::PerKey;

/// The places for transfers, by the job or address that they belong to.
pub struct Turns<K> {
    all: Arc<Semaphore>,
    each: usize,
    own: PerKey<K, Semaphore>,
}

/// A transfer's place. Dropping it frees the place.
pub struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl<K: Ord> Turns<K> {
    /// Places for `all` transfers in total, and for `each` of one key.
    pub fn new(all: usize, each: usize) -> Turns<K> {
        Turns { all: Arc::new(Semaphore::new(all)), each, own: PerKey::default() }
    }

    /// Waits for a place of the key, and then for one of all. In this order a waiting transfer holds no place that
    /// another key could use.
    pub async fn take(&self, key: K) -> Option<Turn> {
        // The semaphores are never closed.
        let own = self.own.of(key, || Semaphore::new(self.each)).acquire_owned().await.ok()?;
        Some(Turn { _own: own, _all: self.all.clone().acquire_owned().await.ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn one_leaves_room_for_others() {
        let turns = Turns::new(3, 2);
        let now = |key: &'static str| turns.take(key).now_or_never().flatten();
        let (first, second) = (now("a"), now("a"));
        assert!(first.is_some() && second.is_some() && now("a").is_none());
        let other = now("b");
        assert!(other.is_some() && now("c").is_none());
        drop((first, second));
        assert!(now("a").is_some());
    }
}
