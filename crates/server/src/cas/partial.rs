//! Uploads that broke off, kept for a while so that their clients go on where they were.

use super::blobs::EndsInBackground;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use windlass_cas::{BlobWriter, Digest};

/// Uploads that are kept, of all users and of one. The room that their blobs need is reserved meanwhile.
const PARTIALS_MAX: usize = 64;
const PARTIALS_OF_USER_MAX: usize = 16;
/// How long one is kept.
const PARTIAL_LASTS: Duration = Duration::from_secs(300);

/// Which upload it is: its user, its name, and the blob.
pub(super) type PartialKey = (String, String, Digest);

#[derive(Default)]
pub(super) struct PartialUploads(Mutex<BTreeMap<PartialKey, Partial>>);

struct Partial {
    writer: EndsInBackground<BlobWriter>,
    bytes: u64,
    since: Instant,
}

impl PartialUploads {
    /// Keeps one. The oldest ones give way.
    pub fn keep(&self, key: PartialKey, writer: BlobWriter, bytes: u64) {
        let mut all = self.0.lock();
        let own = all.keys().filter(|(user, ..)| *user == key.0).count();
        if own >= PARTIALS_OF_USER_MAX {
            give_way(&mut all, |other| other.0 == key.0);
        } else if all.len() >= PARTIALS_MAX {
            give_way(&mut all, |_| true);
        }
        let partial = Partial { writer: EndsInBackground::new(writer), bytes, since: Instant::now() };
        all.insert(key, partial);
    }

    /// Bytes that are there; 0 of an upload that is not kept.
    pub fn bytes(&self, key: &PartialKey) -> u64 {
        self.0.lock().get(key).map_or(0, |partial| partial.bytes)
    }

    /// Takes one, to go on with.
    pub fn take(&self, key: &PartialKey) -> Option<(BlobWriter, u64)> {
        let partial = self.0.lock().remove(key)?;
        Some((partial.writer.take(), partial.bytes))
    }

    /// Drops one whose client begins again.
    pub fn forget(&self, key: &PartialKey) {
        self.0.lock().remove(key);
    }

    /// Drops those that were kept long enough.
    pub fn drop_old(&self) {
        self.0.lock().retain(|_, partial| partial.since.elapsed() < PARTIAL_LASTS);
    }

    pub fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// Drops the oldest one of these.
fn give_way(all: &mut BTreeMap<PartialKey, Partial>, of: impl Fn(&PartialKey) -> bool) {
    let oldest = all.iter().filter(|(key, _)| of(key)).min_by_key(|(_, partial)| partial.since);
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        all.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_cas::{Cas, CasConfig, Space, SyncPolicy};

    #[tokio::test(start_paused = true)]
    async fn the_oldest_uploads_give_way_and_all_end_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let dir_of = dir.path().join("cas");
        let config = CasConfig { dir: dir_of, bytes_max: 1 << 20, keep_ms: 0, sync: SyncPolicy::Never };
        let cas = Cas::open(config, 1).unwrap();
        let (partials, digest) = (PartialUploads::default(), Digest::of(b"hello"));
        let key = |user: &str, n: usize| (user.to_owned(), n.to_string(), digest);
        for n in 0..=PARTIALS_OF_USER_MAX {
            let mut writer = cas.writer(Space::Cache, digest).unwrap();
            writer.write(b"he").unwrap();
            partials.keep(key("ann", n), writer, 2);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!((partials.bytes(&key("ann", 0)), partials.bytes(&key("ann", 1))), (0, 2));
        assert!(partials.take(&key("bob", 1)).is_none(), "each user has uploads of their own");
        let (mut writer, bytes) = partials.take(&key("ann", 1)).unwrap();
        writer.write(b"llo").unwrap();
        writer.commit(2).unwrap();
        assert!(bytes == 2 && cas.contains(Space::Cache, digest));
        tokio::time::advance(PARTIAL_LASTS).await;
        partials.drop_old();
        assert_eq!(partials.count(), 0);
    }
}
