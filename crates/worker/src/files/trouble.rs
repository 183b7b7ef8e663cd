//! Why files of an attempt are not there, or cannot be kept.

use crate::call_error::chain;
use std::io;
use std::path::{Path, PathBuf};
use windlass_cas::CasError;
use windlass_cas::tree::TreeError;
use windlass_core::resources::Bytes;

/// Why files of an attempt are not there, or cannot be kept.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Debug, thiserror::Error)]
pub enum FileTrouble {
    /// Its keeper has no use for them any more. Nobody is told.
    #[error("the attempt is over")]
    Over,
    /// The server may know more of it soon, or has sent a kill that is under way.
    #[error("the server does not have this attempt on this worker: {0}")]
    NotBooked(String),
    /// The server says it of the job.
    #[error("{0}")]
    Job(String),
    /// The connection is lost, or the server is busy or full. Another try may succeed.
    #[error("{0}")]
    Passing(String),
    /// The server has no room, or the job's user none.
    #[error("{0}")]
    Full(String),
    #[error("the server failed: {0}")]
    Server(String),
    /// Blobs of the outputs are gone from the server since it said that it has them.
    #[error("the server does not have all files of the outputs: {0}")]
    Outputs(String),
    #[error("for {minutes} minutes the server did not give or take files: {why}")]
    Patience { minutes: u64, why: String },
    #[error(
        "the task's files have {}, and this worker's cache of files has {}; raise --files-bytes",
        Bytes(*bytes), Bytes(*bytes_max)
    )]
    CacheSmall { bytes: u64, bytes_max: u64 },
    #[error("files were evicted from this worker's cache while others came; raise --files-bytes")]
    Evicted,
    #[error("too many attempts have files here at a time")]
    Crowded,
    #[error(transparent)]
    Cache(#[from] CasError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

/// Whose fault a trouble is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFault {
    /// Another worker meets it, too.
    Job,
    /// It is this worker's, or between it and the server, and may pass.
    Passing,
    /// It is this worker's, and stays.
    Worker,
}

impl FileTrouble {
    /// What became of an operation on this path.
    pub fn io(doing: &'static str, path: &Path, source: io::Error) -> FileTrouble {
        FileTrouble::Io { doing, path: path.to_owned(), source }
    }

    /// Whether a server that is asked again may answer otherwise.
    pub fn is_worth_another_try(&self) -> bool {
        matches!(self, FileTrouble::Passing(_) | FileTrouble::NotBooked(_) | FileTrouble::Full(_))
    }

    /// Whose fault it is.
    pub fn fault(&self) -> FileFault {
        match self {
            FileTrouble::Job(_) | FileTrouble::Full(_) => FileFault::Job,
            FileTrouble::Over
            | FileTrouble::NotBooked(_)
            | FileTrouble::Passing(_)
            | FileTrouble::Patience { .. }
            | FileTrouble::Evicted
            | FileTrouble::Crowded => FileFault::Passing,
            FileTrouble::Server(_) | FileTrouble::Outputs(_) | FileTrouble::CacheSmall { .. } => {
                FileFault::Worker
            }
            FileTrouble::Io { source, .. } => fault_of_disk(source),
            FileTrouble::Cache(error) => match error {
                CasError::DiskFull(_) | CasError::Full { .. } | CasError::Busy { .. } => FileFault::Passing,
                _ => FileFault::Worker,
            },
            FileTrouble::Tree(error) => match error {
                TreeError::Io { source, .. } => fault_of_disk(source),
                // It was there before, so it was evicted meanwhile.
                TreeError::Missing(_) => FileFault::Passing,
                TreeError::Store { .. } | TreeError::Blob { .. } => FileFault::Worker,
                _ => FileFault::Job,
            },
        }
    }

    /// What failed and why, for people.
    pub fn told(&self) -> String {
        let is_full = match self {
            FileTrouble::Io { source, .. } | FileTrouble::Tree(TreeError::Io { source, .. }) => {
                is_full(source)
            }
            _ => false,
        };
        let text = chain(self);
        if is_full { format!("the disk of this worker is full: {text}") } else { text }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn fault_of_disk(error: &io::Error) -> FileFault {
    if is_full(error) { FileFault::Passing } else { FileFault::Worker }
}
