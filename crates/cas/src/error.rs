//! The reasons why the store of files fails or refuses.

use crate::digest::Digest;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a call failed. What was stored before is unharmed.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Debug, thiserror::Error)]
pub enum CasError {
    #[error("{} is in use by another process; stop that one, or give this one another directory", .0.display())]
    InUse(PathBuf),
    #[error(
        "{} was written by a later version of Windlass (schema {found}, this version knows {known}); upgrade, or \
         use another directory", path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("{} is damaged: {why}; move its directory away to start with an empty store of files", path.display())]
    Damaged { path: PathBuf, why: String },
    /// Nothing that could be evicted would make room.
    #[error(
        "the store of files has no room for {wanted} bytes more: of {bytes_max} bytes jobs pin {pinned_bytes} and \
         uploads hold {reserved_bytes}; end some, or raise its bytes"
    )]
    Full { wanted: u64, bytes_max: u64, pinned_bytes: u64, reserved_bytes: u64 },
    #[error("the store of files takes at most {bytes_max} bytes of this kind at once, not {bytes}")]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error("the disk of {} is full; make room, and it goes on", .0.display())]
    DiskFull(PathBuf),
    #[error(
        "the bytes that were uploaded as {expected} are others: their number or their SHA-256 differs, at {bytes} \
         bytes; upload what the digest names"
    )]
    Mismatch { expected: Digest, bytes: u64 },
    #[error("{writers_max} uploads are under way, and no more are taken at once; try again")]
    Busy { writers_max: u64 },
    #[error("jobs pin {pins_max} files, and no more can be pinned; end some jobs")]
    TooManyPins { pins_max: u64 },
    #[error("too many users have uploaded files; move the store's directory away to start with an empty one")]
    TooManyUsers,
    #[error("the file {0} was found damaged while it was uploaded again; upload it once more")]
    Lost(Digest),
    #[error("a name of {bytes} bytes was given, and at most {bytes_max} are taken")]
    LongName { bytes: usize, bytes_max: usize },
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the store of files failed while it {doing}")]
    Database { doing: &'static str, source: Arc<rusqlite::Error> },
}

impl CasError {
    /// What became of an operation on this path.
    pub(crate) fn io(path: &Path, source: io::Error) -> CasError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CasError::DiskFull(path.to_owned()),
            _ => CasError::Io { path: path.to_owned(), source },
        }
    }
}
