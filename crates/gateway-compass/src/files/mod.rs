//! The files of a laboratory: kernels and archives for its machines, packages of submissions, and results of jobs.

mod dir;
mod turns;
mod usage;

use crate::options::{CompassError, CompassOptions};
use crate::sealed::Seal;
use std::net::IpAddr;
use turns::Turns;
use windlass_core::JobId;

pub(crate) use dir::{FileError, InnerPath, LabDir, NewFile};
pub(crate) use turns::Turn;
pub(crate) use usage::{OverLimit, Usage, Written};

/// Downloads at a time: of all addresses, and of one address.
const DOWNLOADS_MAX: usize = 4_096;
const DOWNLOADS_PER_ADDRESS_MAX: usize = 64;
/// Uploads at a time: of all jobs, and of one job.
const UPLOADS_MAX: usize = 512;
const UPLOADS_PER_JOB_MAX: usize = 4;
/// Bytes that stay free on the disk of the directory. On a small disk a twentieth of it stays free.
pub(crate) const DISK_FREE_BYTES: u64 = 1 << 30;

/// The directory of files, the bounds on transfers, and the key of secrets.
pub(crate) struct Files {
    pub options: CompassOptions,
    dir: Option<LabDir>,
    /// The key that seals and opens secrets.
    pub seal: Seal,
    pub downloads: Turns<IpAddr>,
    pub uploads: Turns<JobId>,
    /// The bytes and files that jobs have uploaded.
    pub usage: Usage,
}

impl Files {
    pub fn open(options: CompassOptions) -> Result<Files, CompassError> {
        let open = |path: &std::path::PathBuf| {
            LabDir::open(path).map_err(|source| CompassError::Directory { path: path.clone(), source })
        };
        Ok(Files {
            dir: options.srv.as_ref().map(open).transpose()?,
            seal: Seal::new(options.key.clone()),
            downloads: Turns::new(DOWNLOADS_MAX, DOWNLOADS_PER_ADDRESS_MAX),
            uploads: Turns::new(UPLOADS_MAX, UPLOADS_PER_JOB_MAX),
            usage: Usage::new(options.results_bytes_max),
            options,
        })
    }

    /// The directory; `None` if the settings name none.
    pub fn dir(&self) -> Option<&LabDir> {
        self.dir.as_ref()
    }

    /// True if the disk of the directory has less than [`DISK_FREE_BYTES`] free.
    pub fn is_disk_full(&self) -> bool {
        self.dir.as_ref().is_some_and(|dir| dir.is_full(DISK_FREE_BYTES))
    }
}
