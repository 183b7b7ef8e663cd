//! The directory of a store: `blobs/ab/HASH-SIZE` for blobs that are files, `temp/` for uploads, `lock`.
//!
//! A file under `blobs` is whole: it is written in `temp` and renamed. Its name follows from its digest alone, and
//! nothing that a client says becomes a part of a path.

use crate::digest::Digest;
use crate::error::CasError;
use crate::faults::{Faults, Step};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Size up to which a blob is a row of the database. A file costs more than its bytes.
pub const SMALL_BYTES_MAX: u64 = 16 << 10;
/// Tasks read blobs through hard links, and none writes to one.
const BLOB_MODE: u32 = 0o444;
/// Only the user of the store enters its directory, so that rights on blobs are asked of the store.
const DIR_MODE: u32 = 0o700;

pub(crate) struct Files {
    dir: PathBuf,
    temp_dir: PathBuf,
    /// True if files and the directories that name them are synced before an upload is acknowledged.
    is_synced: bool,
    /// Names of temporary files are numbers of this process, which is the only one.
    temps: AtomicU64,
    faults: Faults,
    /// Held as long as the store is open, against a second process.
    _lock: File,
}

impl Files {
    /// Locks the directory, which is created if it is missing, and removes what uploads of an earlier process left.
    pub fn open(dir: &Path, is_synced: bool, faults: Faults) -> Result<Files, CasError> {
        let temp_dir = dir.join("temp");
        let blobs_dir = dir.join("blobs");
        for made in [dir, temp_dir.as_path(), blobs_dir.as_path()] {
            make_dir(made, &faults).map_err(|error| CasError::io(made, error))?;
        }
        let lock_path = dir.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|error| CasError::io(&lock_path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(CasError::InUse(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(CasError::io(&lock_path, error)),
        }
        for entry in fs::read_dir(&temp_dir).map_err(|error| CasError::io(&temp_dir, error))? {
            let path = entry.map_err(|error| CasError::io(&temp_dir, error))?.path();
            fs::remove_file(&path).map_err(|error| CasError::io(&path, error))?;
        }
        let temps = AtomicU64::new(0);
        Ok(Files { dir: dir.to_owned(), temp_dir, is_synced, temps, faults, _lock: lock })
    }

    /// Where the blob is, if it is a file.
    pub fn path(&self, digest: Digest) -> PathBuf {
        let hex = digest.hex();
        self.dir.join("blobs").join(&hex[..2]).join(format!("{hex}-{}", digest.size))
    }

    /// A new file for an upload. It is removed when it is dropped before [`Files::publish`].
    pub fn temp(&self) -> Result<TempFile, CasError> {
        let path = self.temp_dir.join(self.temps.fetch_add(1, Ordering::Relaxed).to_string());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = self.faults.at(Step::Create).and_then(|()| options.open(&path));
        let file = file.map_err(|error| CasError::io(&path, error))?;
        Ok(TempFile { file, path, is_published: false, faults: self.faults.clone() })
    }

    /// Makes the written file read-only, and its bytes durable if the store is synced.
    pub fn finish(&self, temp: &TempFile) -> Result<(), CasError> {
        let finish = || {
            temp.file.set_permissions(Permissions::from_mode(BLOB_MODE))?;
            if self.is_synced {
                self.faults.at(Step::Sync)?;
                temp.file.sync_all()?;
            }
            Ok(())
        };
        finish().map_err(|error| CasError::io(&temp.path, error))
    }

    /// Gives the file the blob's name.
    pub fn publish(&self, temp: &mut TempFile, digest: Digest) -> Result<(), CasError> {
        let path = self.path(digest);
        let rename = || self.faults.at(Step::Rename).and_then(|()| fs::rename(&temp.path, &path));
        let mut renamed = rename();
        if let (Err(error), Some(parent)) = (&renamed, path.parent())
            && error.kind() == io::ErrorKind::NotFound
        {
            // The first blob of these two digits.
            renamed = make_dir(parent, &self.faults).and_then(|()| rename());
        }
        renamed.map_err(|error| CasError::io(&path, error))?;
        temp.is_published = true;
        Ok(())
    }

    /// Makes the blob's name durable, if the store is synced.
    pub fn sync_name(&self, digest: Digest) -> Result<(), CasError> {
        let path = self.path(digest);
        let Some(parent) = path.parent().filter(|_| self.is_synced) else { return Ok(()) };
        // The parent may be new, too.
        let blobs_dir = self.dir.join("blobs");
        for dir in [parent, blobs_dir.as_path()] {
            let synced = self.faults.at(Step::SyncDir).and_then(|()| File::open(dir)?.sync_all());
            synced.map_err(|error| CasError::io(dir, error))?;
        }
        Ok(())
    }

    /// The blob's file; `None` if it is not there.
    pub fn open_blob(&self, digest: Digest) -> Result<Option<(File, PathBuf)>, CasError> {
        let path = self.path(digest);
        match File::open(&path) {
            Ok(file) => Ok(Some((file, path))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CasError::io(&path, error)),
        }
    }

    /// Removes the blob's file, if it is there.
    pub fn remove(&self, digest: Digest) -> Result<(), CasError> {
        self.remove_path(&self.path(digest))
    }

    /// Removes what stands under `blobs` and is not a blob's file.
    pub fn remove_path(&self, path: &Path) -> Result<(), CasError> {
        match self.faults.at(Step::Remove).and_then(|()| fs::remove_file(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CasError::io(path, error)),
            _ => Ok(()),
        }
    }

    /// Shows all files under `blobs`: the digest that the name says, `None` if it says none, and the path.
    pub fn each(
        &self,
        mut show: impl FnMut(Option<Digest>, &Path) -> Result<(), CasError>,
    ) -> Result<(), CasError> {
        let blobs = self.dir.join("blobs");
        for dir in entries(&blobs)? {
            if !dir.is_dir() {
                show(None, &dir)?;
                continue;
            }
            for path in entries(&dir)? {
                let named = path.file_name().and_then(|name| name.to_str()).and_then(named);
                // A name in the directory of other digits is not found by its digest.
                show(named.filter(|digest| self.path(*digest) == path), &path)?;
            }
        }
        Ok(())
    }
}

/// True if the blob is a file of its own.
pub(crate) fn is_file(digest: Digest) -> bool {
    digest.size > SMALL_BYTES_MAX
}

/// The digest of a name `HASH-SIZE`.
fn named(name: &str) -> Option<Digest> {
    let (hex, size) = name.split_once('-')?;
    Digest::parse(hex, size.parse().ok()?).ok()
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, CasError> {
    let list = || fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>();
    list().map_err(|error| CasError::io(dir, error))
}

fn make_dir(dir: &Path, faults: &Faults) -> io::Result<()> {
    faults.at(Step::MakeDir)?;
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
}

/// The file of an upload.
pub(crate) struct TempFile {
    file: File,
    path: PathBuf,
    is_published: bool,
    faults: Faults,
}

impl TempFile {
    /// Adds bytes at the end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CasError> {
        let written = self.faults.at(Step::Write).and_then(|()| self.file.write_all(bytes));
        written.map_err(|error| CasError::io(&self.path, error))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.is_published && self.faults.at(Step::Remove).is_ok() {
            // What stays is removed by the next process.
            _ = fs::remove_file(&self.path);
        }
    }
}
