//! Digests of the user's files that were read before, which are kept in the user's cache directory.

use crate::system;
use crate::ui::message::message;
use std::error::Error as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use windlass_cas::tree::{KnownDigests, TreeError};

/// The file in the cache directory.
const KNOWN_FILE: &str = "digests";

/// The digests, and since when files count as changing.
pub struct KnownFiles {
    /// The digests by path and stamp of the file.
    pub digests: KnownDigests,
    /// A time by this machine's clock, by which its file system dates changes, before any file is looked at.
    pub now_ms: u64,
    /// False where there is no cache directory.
    is_kept: bool,
}

impl KnownFiles {
    /// Reads the file in the cache directory.
    pub fn load() -> KnownFiles {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let file = system::cache_dir().map(|dir| dir.join(KNOWN_FILE));
        let digests = KnownDigests::load(file.as_deref().unwrap_or(Path::new("")));
        KnownFiles { digests, now_ms, is_kept: file.is_some() }
    }

    /// Writes what became known. Without it the files are read again, and no more is lost.
    pub fn save(mut self) {
        if self.is_kept
            && let Err(error) = self.digests.save(self.now_ms)
        {
            message!("note: {}; the files are read again the next time", told(&error));
        }
    }
}

/// An error of trees with its cause.
pub fn told(error: &TreeError) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
