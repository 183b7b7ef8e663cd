//! By what a file is known to be unchanged without reading it.

use std::fs::Metadata;

/// How long before a look a file must have changed last for its stamp to be trusted. A file that changes again within
/// one tick of its file system's clock keeps its stamp. The coarsest clock in use, FAT's, has ticks of 2 s. git treats
/// its index in the same way and calls such a file racily clean.
pub const RACY_MS: u64 = 2_000;

/// What the file system says of a file's contents: as long as it is equal, they are. The exception is [`RACY_MS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// The file's length in bytes.
    pub size: u64,
    /// The last change of the contents in ns of Unix time, which programs may set.
    pub mtime_ns: i64,
    /// The last change of the file or its attributes, which programs cannot set. `None` where the system has none.
    pub ctime_ns: Option<i64>,
    /// The number of the inode. `None` where the system does not tell it.
    pub inode: Option<u64>,
}

impl FileStamp {
    /// The stamp of a file of which the system told `metadata`.
    #[cfg(unix)]
    pub fn of(metadata: &Metadata) -> FileStamp {
        use std::os::unix::fs::MetadataExt as _;
        let in_ns = |s: i64, rest_ns: i64| s.saturating_mul(1_000_000_000).saturating_add(rest_ns);
        FileStamp {
            size: metadata.len(),
            mtime_ns: in_ns(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: Some(in_ns(metadata.ctime(), metadata.ctime_nsec())),
            inode: Some(metadata.ino()),
        }
    }

    /// The stamp of a file of which the system told `metadata`.
    #[cfg(not(unix))]
    pub fn of(metadata: &Metadata) -> FileStamp {
        // A file without a time never counts as settled.
        let changed = metadata.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let mtime_ns = changed.map_or(i64::MAX, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
        FileStamp { size: metadata.len(), mtime_ns, ctime_ns: None, inode: None }
    }

    /// True if the file changed last so long before `now_ms` that a later change gives it another stamp. A time in the
    /// future, by a clock that was wrong, is not trusted.
    pub fn is_settled(&self, now_ms: u64) -> bool {
        let last_ns = self.ctime_ns.unwrap_or(self.mtime_ns).max(self.mtime_ns);
        let trusted_ns = u128::from(now_ms.saturating_sub(RACY_MS)) * 1_000_000;
        u128::try_from(last_ns).is_ok_and(|last| last < trusted_ns)
    }
}

/// True if a user may execute the file. Windows has no such mark, so nothing is executable there.
#[cfg(unix)]
pub(super) fn is_executable(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o111 != 0
}

/// True if a user may execute the file. Windows has no such mark, so nothing is executable there.
#[cfg(not(unix))]
pub(super) fn is_executable(_metadata: &Metadata) -> bool {
    false
}
