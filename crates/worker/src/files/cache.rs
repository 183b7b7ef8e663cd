//! The worker's cache of files: blobs that tasks here needed, in a directory of its own. It is opened when the first task
//! with files comes.

use super::trouble::FileTrouble;
use crate::clock::unix_ns;
use crate::keep;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass_cas::{Cas, CasConfig, Digest, Space, SyncPolicy};

/// Bytes of a cache for which nothing is set, or this part of what is free on its disk where that is less, ...
const BYTES_DEFAULT: u64 = 10 << 30;
const FREE_PART: u64 = 10;
/// ... but not fewer than these.
const BYTES_MIN: u64 = 64 << 20;
/// A blob that was used within this time is evicted only to make room for one that is needed now.
const KEEP_MS: u64 = 3 * 3_600_000;
/// Attempts that pin blobs at a time. Those beyond have theirs fetched again if they were evicted meanwhile.
const PINNERS_MAX: usize = 64;
/// How often a thread that waits for blobs looks whether its attempt is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Whose blobs these are.
pub const SPACE: Space = Space::Jobs;

/// A cache of files. It stays one, whichever agent of the process uses it.
pub struct FileCache {
    dir: PathBuf,
    bytes_max: Option<u64>,
    opened: Mutex<Option<OpenCache>>,
    /// Blobs that a thread fetches now, so that no other does.
    coming: Mutex<HashSet<Digest>>,
    came: Condvar,
}

/// A cache that was used.
#[derive(Clone)]
pub struct OpenCache {
    /// The blobs, and their pins.
    pub cas: Cas,
    /// Bytes that it keeps.
    pub bytes_max: u64,
    free_pinners: Arc<Mutex<Vec<usize>>>,
}

/// Blobs that this thread fetches.
pub struct ClaimedBlobs<'a> {
    cache: &'a FileCache,
    /// Those that no other thread fetches.
    pub digests: Vec<Digest>,
}

/// Keeps blobs from being evicted until it is dropped.
pub struct PinnedBlobs {
    cache: OpenCache,
    pinner: usize,
}

impl FileCache {
    /// In that directory, with at most `bytes_max`; `None` lets the disk decide. Nothing is touched before the first use.
    pub fn new(dir: PathBuf, bytes_max: Option<u64>) -> FileCache {
        let (opened, coming, came) = (Mutex::default(), Mutex::default(), Condvar::new());
        FileCache { dir, bytes_max, opened, coming, came }
    }

    /// Opens it at the first use.
    pub fn open(&self) -> Result<OpenCache, FileTrouble> {
        let mut opened = self.opened.lock();
        if let Some(open) = &*opened {
            return Ok(open.clone());
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(|error| FileTrouble::io("make", &self.dir, error))?;
        let bytes_max = self.bytes_max.map_or_else(|| default_bytes(&self.dir), Ok)?;
        // What a loss of power takes is fetched again.
        let sync = SyncPolicy::Never;
        let cas =
            Cas::open(CasConfig { dir: self.dir.clone(), bytes_max, keep_ms: KEEP_MS, sync }, now_ms())?;
        for pinner in 0..PINNERS_MAX {
            // Attempts of an earlier process prepare no more.
            cas.unpin(&owner(pinner))?;
        }
        let free_pinners = Arc::new(Mutex::new((0..PINNERS_MAX).collect()));
        let open = OpenCache { cas, bytes_max, free_pinners };
        *opened = Some(open.clone());
        Ok(open)
    }

    /// The cache, if it was used.
    pub fn opened(&self) -> Option<OpenCache> {
        self.opened.lock().clone()
    }

    /// Of these blobs, those that no thread fetches yet. This one has to.
    pub fn claim(&self, missing: &[Digest]) -> ClaimedBlobs<'_> {
        let mut coming = self.coming.lock();
        let digests = missing.iter().copied().filter(|digest| coming.insert(*digest)).collect();
        ClaimedBlobs { cache: self, digests }
    }

    /// Waits until no thread fetches any of these, or `check` fails.
    pub fn wait_for(
        &self,
        digests: &[Digest],
        check: impl Fn() -> Result<(), FileTrouble>,
    ) -> Result<(), FileTrouble> {
        let mut coming = self.coming.lock();
        while digests.iter().any(|digest| coming.contains(digest)) {
            check()?;
            self.came.wait_for(&mut coming, LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for ClaimedBlobs<'_> {
    fn drop(&mut self) {
        let mut coming = self.cache.coming.lock();
        for digest in &self.digests {
            coming.remove(digest);
        }
        self.cache.came.notify_all();
    }
}

impl OpenCache {
    /// Pins blobs that are there. `None` if too many attempts do.
    pub fn pin(&self, digests: &[Digest]) -> Result<Option<PinnedBlobs>, FileTrouble> {
        let Some(pinner) = self.free_pinners.lock().pop() else { return Ok(None) };
        let pinned = PinnedBlobs { cache: self.clone(), pinner };
        pinned.add(digests)?;
        Ok(Some(pinned))
    }
}

impl PinnedBlobs {
    /// Pins further blobs that are there.
    pub fn add(&self, digests: &[Digest]) -> Result<(), FileTrouble> {
        self.cache.cas.pin(SPACE, &owner(self.pinner), digests)?;
        Ok(())
    }
}

impl Drop for PinnedBlobs {
    fn drop(&mut self) {
        match self.cache.cas.unpin(&owner(self.pinner)) {
            Ok(()) => self.cache.free_pinners.lock().push(self.pinner),
            // Its blobs stay until the cache is opened again.
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

/// The name under which an attempt pins blobs. Names are few, so that the next process knows them all.
fn owner(pinner: usize) -> String {
    format!("preparing/{pinner}")
}

/// Bytes of a cache for which nothing is set.
fn default_bytes(dir: &Path) -> Result<u64, FileTrouble> {
    let space = keep::space(dir).map_err(|error| FileTrouble::io("look at the disk of", dir, error))?;
    Ok((space.free_bytes / FREE_PART).clamp(BYTES_MIN, BYTES_DEFAULT))
}

/// The wall clock, by which blobs are old or new.
pub fn now_ms() -> u64 {
    unix_ns() / 1_000_000
}
