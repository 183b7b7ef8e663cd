//! The files of a laboratory: what its machines boot, what submissions bring, and the results of jobs.

mod dir;
mod packages;
mod serve;
mod turns;
mod upload;

use crate::sealed::Seal;
use crate::{CompassError, CompassOptions};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use turns::Turns;
use windlass_core::JobId;

pub(crate) use dir::{FileError, InnerPath, LabDir};
pub(crate) use packages::PackageError;
pub(crate) use serve::{get_archive, get_file};
pub(crate) use upload::{put_file, put_result};

/// Downloads at a time, of all machines and of one address.
const DOWNLOADS_MAX: usize = 4_096;
const DOWNLOADS_PER_ADDRESS_MAX: usize = 64;
/// Uploads at a time, of all jobs and of one.
const UPLOADS_MAX: usize = 512;
const UPLOADS_PER_JOB_MAX: usize = 4;
/// Bytes that stay free on the disk of the directory: this, or a twentieth of it if that is less.
const DISK_FREE_BYTES: u64 = 1 << 30;

/// The files, and the key of secrets.
pub(crate) struct Files {
    options: CompassOptions,
    dir: Option<LabDir>,
    seal: Seal,
    downloads: Arc<Turns<IpAddr>>,
    uploads: Arc<Turns<JobId>>,
    /// What jobs have uploaded, as far as it is remembered.
    used: Mutex<BTreeMap<JobId, upload::Used>>,
}

impl Files {
    pub fn open(options: CompassOptions) -> Result<Files, CompassError> {
        let open = |path: &std::path::PathBuf| {
            LabDir::open(path).map_err(|source| CompassError::Directory { path: path.clone(), source })
        };
        Ok(Files {
            dir: options.srv.as_ref().map(open).transpose()?,
            seal: Seal::new(options.key.clone()),
            downloads: Arc::new(Turns::new(DOWNLOADS_MAX, DOWNLOADS_PER_ADDRESS_MAX)),
            uploads: Arc::new(Turns::new(UPLOADS_MAX, UPLOADS_PER_JOB_MAX)),
            used: Mutex::default(),
            options,
        })
    }

    /// The directory, if the server has one.
    pub fn dir(&self) -> Option<&LabDir> {
        self.dir.as_ref()
    }

    /// The beginning of URLs that machines get, if it is set.
    pub fn url(&self) -> Option<&str> {
        self.options.url.as_deref()
    }

    /// True where a bare machine is known by its address.
    pub fn trusts_addresses(&self) -> bool {
        self.options.trust_addresses
    }

    /// The key of secrets.
    pub fn seal(&self) -> &Seal {
        &self.seal
    }
}
