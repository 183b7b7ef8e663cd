//! How the interface is set up.

use std::path::PathBuf;

/// Bytes of one file that a job uploads, where the settings do not say.
const UPLOAD_BYTES_MAX: u64 = 1 << 30;
/// Bytes of all files that one job uploads, where the settings do not say.
const RESULTS_BYTES_MAX: u64 = 8 << 30;

/// How the interface is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompassOptions {
    /// The directory that is served as `/srv`, and takes results; `None` serves and takes none.
    pub srv: Option<PathBuf>,
    /// The beginning of URLs that machines get; `None` is how each reaches the server.
    pub url: Option<String>,
    /// True where what users' jobs and submissions bring may be what others' machines boot.
    pub shared_uploads: bool,
    /// True where a bare machine is known by the address from which it booted, so that its scripts need show nothing.
    pub trust_addresses: bool,
    /// Bytes of one file that a job uploads.
    pub upload_bytes_max: u64,
    /// Bytes of all files that one job uploads.
    pub results_bytes_max: u64,
    /// The file with the key of secrets. It is made when it is first needed.
    pub key: PathBuf,
}

impl CompassOptions {
    /// The defaults, without a directory of files.
    pub fn new(key: PathBuf) -> CompassOptions {
        CompassOptions {
            srv: None,
            url: None,
            shared_uploads: false,
            trust_addresses: false,
            upload_bytes_max: UPLOAD_BYTES_MAX,
            results_bytes_max: RESULTS_BYTES_MAX,
            key,
        }
    }
}

/// Why the interface cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum CompassError {
    /// The directory of files cannot be opened.
    #[error("cannot open the directory of files {}, srv of [compass]: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The beginning of URLs is none.
    #[error("url of [compass] must begin with http:// or https:// and have no spaces, not '{0}'")]
    Url(String),
}
