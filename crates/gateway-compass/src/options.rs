//! The settings of the interface.

use std::path::PathBuf;

/// Bytes of one file that a job uploads, where the settings do not say.
const UPLOAD_BYTES_MAX: u64 = 1 << 30;
/// Bytes of all files that one job uploads, where the settings do not say.
const RESULTS_BYTES_MAX: u64 = 8 << 30;

/// The settings of the interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompassOptions {
    /// The directory that is served as `/srv` and stores results; `None` if the server has none.
    pub srv: Option<PathBuf>,
    /// The beginning of URLs that machines get; `None` is the address by which each machine reaches the server.
    pub url: Option<String>,
    /// True if machines may boot files that other users' jobs and submissions brought.
    pub shared_uploads: bool,
    /// True if a bare machine is identified by the address from which it booted, so that its scripts need no token.
    pub trust_addresses: bool,
    /// The largest upload of one file, in bytes.
    pub upload_bytes_max: u64,
    /// The largest sum of one job's uploads, in bytes.
    pub results_bytes_max: u64,
    /// The file with the key of secrets. It is created when it is first needed.
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
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum CompassError {
    #[error("cannot open the directory of files {}, srv of [compass]: {source}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("url of [compass] must begin with http:// or https:// and have no spaces, not '{0}'")]
    Url(String),
}
