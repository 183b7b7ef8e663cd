//! The settings of the store of files, in which files of jobs are, and of the remote cache that it serves.

use super::setting::settings;
use std::path::PathBuf;

/// Bytes below which a store would evict what it takes in.
const CAS_BYTES_MIN: f64 = 67_108_864.0;

settings! {
    /// The store of files by their content: those of jobs, and [the remote cache](../cache.md) that build tools have in
    /// it.
    pub struct CasSettings {
        /// Whether build tools may use the server as their remote cache. Files of jobs are kept in either case.
        enabled: bool = true;
        /// The directory of the store. By default `cas` in the state directory. It is made at the first use.
        dir: Option<PathBuf> = None;
        /// Bytes that the store keeps; above them it evicts what was not used for longest. By default 10 GiB, or a tenth
        /// of what is free on its disk where that is less.
        bytes: Option<u64> = None, unit Bytes, within CAS_BYTES_MIN..=f64::INFINITY;
        /// Bytes that one user may upload in a day, to the cache and for jobs, outputs of the user's tasks included.
        /// Administrators and their jobs are excepted.
        upload_bytes_per_day: u64 = 100 << 30, unit Bytes;
        /// Whether all users write results to the cache, and not only administrators and tokens with `--cache write`.
        /// One false result spoils the builds of all who read it.
        users_write: bool = false;
        /// Whether a file of jobs that one user has uploaded is there for all: others then upload less, and can find out
        /// by a file's SHA-256 whether the server has it.
        users_share: bool = false;
    }
}
