//! The store of files, opened at its first use, and kept from the threads that answer requests: it waits for disks.

use super::trouble::CacheTrouble;
use crate::auth;
use crate::disk::free_bytes_at;
use crate::panics::in_request_here;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use windlass_cas::{Blob, BlobWriter, Cas, CasConfig, CasError, CasFigures, Digest, Space, SyncPolicy};

/// Bytes of a store for which nothing is set, or that part of what is free on its disk where that is less.
const BYTES_DEFAULT: u64 = 10 << 30;
const FREE_PART: u64 = 10;
/// Bytes of the smallest store.
const BYTES_MIN: u64 = 64 << 20;
/// How long a blob that was used is kept while there is room. Clients believe for so long what they were told is there.
const KEEP_MS: u64 = 3 * 3_600_000;
/// Bytes of a store for which nothing is set.
pub fn default_cas_bytes(dir: &Path) -> std::io::Result<u64> {
    Ok((free_bytes_at(dir)? / FREE_PART).clamp(BYTES_MIN, BYTES_DEFAULT))
}

/// The blobs of the cache, or those of jobs, which are in one store. Clones share it. Blobs of jobs are not seen in the
/// cache, even by those who know their digests.
#[derive(Clone)]
pub(crate) struct BlobStore {
    store: Arc<Opening>,
    space: Space,
}

struct Opening {
    dir: PathBuf,
    bytes_max: Option<u64>,
    opened: OnceCell<Cas>,
}

impl BlobStore {
    /// The cache's, in that directory, which nothing touches before the first use.
    pub fn new(dir: PathBuf, bytes_max: Option<u64>) -> BlobStore {
        let store = Arc::new(Opening { dir, bytes_max, opened: OnceCell::new() });
        BlobStore { store, space: Space::Cache }
    }

    /// The store's part for blobs of jobs.
    pub fn of_jobs(&self) -> BlobStore {
        BlobStore { store: self.store.clone(), space: Space::Jobs }
    }

    /// True if an earlier process has left a store in the directory.
    pub fn is_left(&self) -> bool {
        self.store.dir.join("lock").exists()
    }

    /// The store, if it was used.
    pub fn opened(&self) -> Option<Cas> {
        self.store.opened.get().cloned()
    }

    /// How much there is; `None` before the first use.
    pub fn figures(&self) -> Option<CasFigures> {
        self.store.opened.get().map(Cas::figures)
    }

    /// Where bodies come in whose digests are not known yet: on the same disk, beside the store's own files.
    pub fn spool_dir(&self) -> PathBuf {
        self.store.dir.join("incoming")
    }

    /// Does something with the store, on a thread that may wait for the disk.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SpaceBlobs) -> Result<T, CacheTrouble> + Send + 'static,
    ) -> Result<T, CacheTrouble> {
        let (cas, space) = (self.open().await?, self.space);
        in_background(move || work(&SpaceBlobs { cas, space, now_ms: now_ms() })).await
    }

    async fn open(&self) -> Result<Cas, CacheTrouble> {
        let open = async {
            let shared = self.store.clone();
            in_background(move || Ok(shared.open()?)).await
        };
        self.store.opened.get_or_try_init(|| open).await.cloned()
    }
}

impl Opening {
    fn open(&self) -> Result<Cas, CasError> {
        let io = |source| CasError::Io { path: self.dir.clone(), source };
        let bytes_max = match self.bytes_max {
            Some(bytes_max) => bytes_max,
            None => default_cas_bytes(&self.dir).map_err(io)?,
        };
        // What a loss of power takes is uploaded again.
        let sync = SyncPolicy::Never;
        let config = CasConfig { dir: self.dir.clone(), bytes_max, keep_ms: KEEP_MS, sync };
        Cas::open(config, now_ms())
    }
}

/// The blobs of the cache, or those of jobs, at a moment, on a thread that may wait.
pub(crate) struct SpaceBlobs {
    pub cas: Cas,
    space: Space,
    pub now_ms: u64,
}

impl SpaceBlobs {
    pub fn missing(&self, digests: &[Digest]) -> Vec<Digest> {
        self.cas.missing(self.space, digests, self.now_ms)
    }

    /// True if it is there, which is a use of it.
    pub fn has(&self, digest: Digest) -> bool {
        self.missing(&[digest]).is_empty()
    }

    pub fn digest_of(&self, hash: [u8; 32]) -> Option<Digest> {
        self.cas.digest_of(self.space, hash)
    }

    pub fn read(&self, digest: Digest) -> Result<Option<Blob>, CacheTrouble> {
        Ok(self.cas.read(self.space, digest, self.now_ms)?)
    }

    /// All bytes of a blob that has at most `bytes_max`; `None` if it is missing or larger.
    pub fn read_small(&self, digest: Digest, bytes_max: u64) -> Result<Option<Vec<u8>>, CacheTrouble> {
        if digest.size > bytes_max {
            return Ok(None);
        }
        Ok(self.read(digest)?.map(Blob::into_bytes).transpose()?)
    }

    pub fn put(&self, digest: Digest, bytes: &[u8]) -> Result<(), CacheTrouble> {
        Ok(self.cas.put(self.space, digest, bytes, self.now_ms)?)
    }

    pub fn writer(&self, digest: Digest) -> Result<BlobWriter, CacheTrouble> {
        Ok(self.cas.writer(self.space, digest)?)
    }

    pub fn action(&self, instance: &str, action: Digest) -> Result<Option<Vec<u8>>, CacheTrouble> {
        Ok(self.cas.action(instance, action, self.now_ms)?)
    }

    pub fn set_action(&self, instance: &str, action: Digest, result: &[u8]) -> Result<(), CacheTrouble> {
        Ok(self.cas.set_action(instance, action, result, self.now_ms)?)
    }
}

/// Runs a part of a request on a thread that may wait for the disk.
pub(super) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CacheTrouble> + Send + 'static,
) -> Result<T, CacheTrouble> {
    let done = tokio::task::spawn_blocking(move || in_request_here(work)).await;
    done.unwrap_or(Err(CacheTrouble::Defect))
}

/// Something whose end may wait for the disk, as that of an upload which removes its file.
pub(super) struct EndsInBackground<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> EndsInBackground<T> {
    pub fn new(ends: T) -> Self {
        EndsInBackground(Some(ends))
    }

    pub fn take(mut self) -> T {
        self.0.take().expect("only this and the drop take it")
    }
}

impl<T: Send + 'static> Drop for EndsInBackground<T> {
    fn drop(&mut self) {
        if let (Some(ends), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(ends));
        }
    }
}

/// The wall clock, by which blobs are old or new.
pub(crate) fn now_ms() -> u64 {
    auth::now().as_ms()
}
