//! The store: what it answers, and where its parts meet.
//!
//! Properties:
//! - What a digest names is what is read by it. Uploads are hashed; small blobs are hashed again when they are read.
//! - A blob is found only when its row and its file are there, whole. Both are removed only when it is not found any
//!   more.
//! - A space tells nothing of blobs that are only in the other one.
//! - Names of files change under one lock, `names`. No other lock is held while the disk is waited for, except that
//!   only one thread evicts.

mod actions;
mod evict;
mod holders;
mod notes;
mod pins;
mod recover;
mod upload;

use crate::digest::Digest;
use crate::error::CasError;
use crate::faults::Faults;
use crate::files::{Files, is_file};
use crate::index::{BLOBS_MAX, CasFigures, Index, Limits, Space};
use crate::rows::{Rows, statements};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use evict::Swept;
pub use upload::BlobWriter;

/// Digests that are looked up before other calls get their turn.
const LOOKUPS_A_TURN: usize = 4_096;

/// Where a store is, and how much it may have.
#[derive(Clone, Debug)]
pub struct CasConfig {
    /// The directory, which is created with the first store.
    pub dir: PathBuf,
    /// Sum of the sizes of blobs and results. Directories and rows come on top: about 100 bytes for each.
    pub bytes_max: u64,
    /// Blobs used within this time are evicted only when uploads would be refused otherwise.
    pub keep_ms: u64,
    /// Whether uploads are on the disk when they are acknowledged.
    pub sync: SyncPolicy,
}

/// Whether an acknowledged upload outlives a loss of power. It outlives the end of the process in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Nothing is waited for. After a loss of power the last uploads may be missing, and are never torn.
    Never,
    /// Files, their names and rows are synced.
    Files,
}

/// An open store of files. Clones share it, and the last one closes it.
#[derive(Clone)]
pub struct Cas(Arc<Inner>);

struct Inner {
    limits: Limits,
    keep_s: u32,
    index: Mutex<Index>,
    /// Last uses of results that their rows do not have yet.
    action_uses: Mutex<HashMap<i64, u32>>,
    /// Held while a file gets its blob's name or loses it. It is taken before `index`.
    names: Mutex<()>,
    /// Held by the thread that evicts, so that others wait for the room that it makes.
    evicting: Mutex<()>,
    /// Notified when an upload is in the index or has failed, for others of the same blob.
    came: Condvar,
    /// Slots whose rows could not be removed yet, as on a full disk.
    owed: Mutex<Vec<u32>>,
    /// Files may differ from rows, so the next process looks at all.
    is_unclean: AtomicBool,
    rows: Rows,
    /// Closed last: it holds the lock.
    files: Files,
}

/// A blob that was found.
#[derive(Debug)]
pub enum Blob {
    /// A small one is read at once.
    Bytes(Vec<u8>),
    /// A larger one. The open file stays readable if the blob is evicted; the path is for links, and may be gone by
    /// then.
    File {
        /// Open for reading, at its beginning.
        file: File,
        /// Read-only, as all that link to it are.
        path: PathBuf,
        /// Bytes of the file.
        size: u64,
    },
}

impl Blob {
    /// Number of its bytes.
    pub fn size(&self) -> u64 {
        match self {
            Blob::Bytes(bytes) => bytes.len() as u64,
            Blob::File { size, .. } => *size,
        }
    }

    /// All of its bytes, in memory. The caller has bounded the size.
    pub fn into_bytes(self) -> io::Result<Vec<u8>> {
        match self {
            Blob::Bytes(bytes) => Ok(bytes),
            Blob::File { mut file, size, .. } => {
                let mut bytes = Vec::with_capacity(size as usize);
                file.read_to_end(&mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

impl Cas {
    /// Opens the store in a directory, or creates one. Only one process has it at a time. Where the last one did not
    /// close it, files without rows and rows without files are removed, and files that were written within the last
    /// minute before its end are verified.
    pub fn open(config: CasConfig, now_ms: u64) -> Result<Cas, CasError> {
        Cas::open_with(config, BLOBS_MAX, Faults::default(), now_ms)
    }

    fn open_with(config: CasConfig, blobs_max: u64, faults: Faults, now_ms: u64) -> Result<Cas, CasError> {
        let is_synced = config.sync == SyncPolicy::Files;
        let files = Files::open(&config.dir, is_synced, faults.clone())?;
        let rows = Rows::open(config.dir.join("small.db"), faults)?;
        let left = rows.begin(recover::boot(), is_synced)?;
        let index = recover::load(&files, &rows, &left, seconds(now_ms))?;
        let inner = Inner {
            limits: Limits { bytes: config.bytes_max, blobs: blobs_max },
            keep_s: seconds(config.keep_ms),
            index: Mutex::new(index),
            action_uses: Mutex::default(),
            names: Mutex::default(),
            evicting: Mutex::default(),
            came: Condvar::new(),
            owed: Mutex::default(),
            is_unclean: AtomicBool::new(false),
            rows,
            files,
        };
        Ok(Cas(Arc::new(inner)))
    }

    /// The digests that are not in the space. The use of the others is noted, so they are not evicted soon.
    pub fn missing(&self, space: Space, digests: &[Digest], now_ms: u64) -> Vec<Digest> {
        let now_s = seconds(now_ms);
        let mut missing = Vec::new();
        for turn in digests.chunks(LOOKUPS_A_TURN) {
            let mut index = self.0.index.lock();
            for digest in turn {
                match index.seek(*digest, space) {
                    Some(slot) => index.touch(slot, now_s),
                    None if *digest == Digest::EMPTY => {}
                    None => missing.push(*digest),
                }
            }
        }
        missing
    }

    /// True if the blob is in the space. This is not a use of it.
    pub fn contains(&self, space: Space, digest: Digest) -> bool {
        digest == Digest::EMPTY || self.0.index.lock().seek(digest, space).is_some()
    }

    /// The blob of a hash whose size the caller does not know, as in the cache's interface over plain HTTP.
    pub fn digest_of(&self, space: Space, hash: [u8; 32]) -> Option<Digest> {
        if hash == Digest::EMPTY.hash {
            return Some(Digest::EMPTY);
        }
        self.0.index.lock().by_hash(&hash, space)
    }

    /// The blob; `None` if it is not in the space.
    pub fn read(&self, space: Space, digest: Digest, now_ms: u64) -> Result<Option<Blob>, CasError> {
        if digest == Digest::EMPTY {
            return Ok(Some(Blob::Bytes(Vec::new())));
        }
        let Some(slot) = self.0.used(space, digest, now_ms) else { return Ok(None) };
        if let Some(blob) = self.0.load(slot, digest)? {
            return Ok(Some(blob));
        }
        // It may have been evicted since it was found. If it is there, it is damaged.
        let again = self.0.index.lock().get(digest);
        if again == Some(slot) {
            self.0.forget(slot, digest)?;
        }
        Ok(None)
    }

    /// How much there is, and what became of it.
    pub fn figures(&self) -> CasFigures {
        self.0.index.lock().figures
    }
}

impl Inner {
    /// The blob's slot in the space, and notes its use.
    fn used(&self, space: Space, digest: Digest, now_ms: u64) -> Option<u32> {
        let mut index = self.index.lock();
        let slot = index.seek(digest, space)?;
        index.touch(slot, seconds(now_ms));
        Some(slot)
    }

    /// Reads a blob; `None` if the disk does not have what the digest names.
    fn load(&self, slot: u32, digest: Digest) -> Result<Option<Blob>, CasError> {
        if is_file(digest) {
            let found = self.files.open_blob(digest)?;
            return Ok(found.map(|(file, path)| Blob::File { file, path, size: digest.size }));
        }
        let body = self.rows.read("read a blob", |db| statements::body(db, slot))?;
        // The slot may be another blob's by now.
        Ok(body.filter(|body| Digest::of(body) == digest).map(Blob::Bytes))
    }

    /// Takes out a blob that is damaged, so that clients upload it again.
    fn forget(&self, slot: u32, digest: Digest) -> Result<(), CasError> {
        let names = self.names.lock();
        {
            let mut index = self.index.lock();
            if index.get(digest) != Some(slot) {
                return Ok(());
            }
            index.unlink(slot);
            index.figures.damaged += 1;
        }
        self.remove_file(digest);
        drop(names);
        self.remove_rows(&[slot])
    }

    /// Removes the file of a blob that is not found any more, if it is one. A file that stays is removed when the store
    /// is opened again. The caller holds `names`.
    fn remove_file(&self, digest: Digest) {
        if is_file(digest) && self.files.remove(digest).is_err() {
            self.is_unclean.store(true, Ordering::Relaxed);
        }
    }

    /// Removes the rows of slots, also of those that could not be removed before, and gives the slots back.
    fn remove_rows(&self, slots: &[u32]) -> Result<(), CasError> {
        let mut all = std::mem::take(&mut *self.owed.lock());
        all.extend(slots);
        if all.is_empty() {
            return Ok(());
        }
        let removed = self.rows.write("removed blobs", |db| statements::remove(db, &all));
        match &removed {
            Ok(()) => self.index.lock().free(&all),
            Err(_) => self.owed.lock().extend(all),
        }
        removed
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What is lost otherwise is the order in which blobs are evicted.
        _ = self.flush_uses();
        if self.remove_rows(&[]).is_ok() && !*self.is_unclean.get_mut() {
            // Without this note the next process looks at all files.
            _ = self.rows.end();
        }
    }
}

/// Unix time in seconds, as the index has it.
fn seconds(ms: u64) -> u32 {
    (ms / 1_000).min(u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests;
