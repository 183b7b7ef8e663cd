//! Digests of many files, of which most did not change since the last time.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Seek as _};
use std::path::Path;

use super::error::TreeError;
use super::known::KnownDigests;
use super::parallel::in_parallel;
use super::scan::ScannedFile;
use super::stamp::FileStamp;
use crate::Digest;

/// Threads that read files. More wait for one disk.
pub const HASH_THREADS_MAX: usize = 16;
/// How often a file is read that changes meanwhile.
const READS_MAX: usize = 3;

/// The digests of files, in the order of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// One for each file. Its size is the file's when it was read.
    pub digests: Vec<Digest>,
    /// The number of files that were read. The digests of the others were known.
    pub read_files: usize,
    /// The bytes of the files that were read.
    pub read_bytes: u64,
}

/// The digests of files. `now_ms` is a time before they were scanned: files that changed about then or later are read
/// again the next time. `told` hears of each file how many bytes are done with it, from several threads.
pub fn hash_files(
    files: &[ScannedFile],
    known: &mut KnownDigests,
    now_ms: u64,
    told: &(dyn Fn(u64) + Sync),
) -> Result<Hashed, TreeError> {
    let mut digests: Vec<Option<Digest>> = Vec::with_capacity(files.len());
    for file in files {
        let digest = known.get(&file.path, &file.stamp, now_ms);
        if digest.is_some() {
            told(file.stamp.size);
        }
        digests.push(digest);
    }
    let mut unknown: Vec<usize> = (0..files.len()).filter(|at| digests[*at].is_none()).collect();
    // The largest comes first, so that no thread is left alone with it at the end.
    unknown.sort_by_key(|at| Reverse(files[*at].stamp.size));
    let read = in_parallel(unknown.len(), HASH_THREADS_MAX, &|number: usize| {
        let path = &files[unknown[number]].path;
        let mut file = File::open(path).map_err(|source| unreadable(path, source))?;
        let hashed = hash_file(&mut file, path)?;
        told(hashed.0.size);
        Ok(hashed)
    })?;
    let mut read_bytes = 0;
    for (at, (digest, stamp)) in unknown.iter().zip(&read) {
        known.put(&files[*at].path, stamp, *digest, now_ms);
        digests[*at] = Some(*digest);
        read_bytes += digest.size;
    }
    // All have one now: what was not known was read.
    Ok(Hashed { digests: digests.into_iter().flatten().collect(), read_files: read.len(), read_bytes })
}

/// The digest of an open file, and the stamp that it had before and after it was read.
pub(super) fn hash_file(file: &mut File, path: &Path) -> Result<(Digest, FileStamp), TreeError> {
    for _ in 0..READS_MAX {
        let before = stamp_of(file, path)?;
        file.rewind().map_err(|source| unreadable(path, source))?;
        let digest = Digest::of_reader(file).map_err(|source| unreadable(path, source))?;
        let after = stamp_of(file, path)?;
        if before == after && digest.size == after.size {
            return Ok((digest, after));
        }
    }
    Err(TreeError::Changed(path.to_owned()))
}

fn stamp_of(file: &File, path: &Path) -> Result<FileStamp, TreeError> {
    let metadata = file.metadata().map_err(|source| unreadable(path, source))?;
    Ok(FileStamp::of(&metadata))
}

fn unreadable(path: &Path, source: io::Error) -> TreeError {
    TreeError::Io { doing: "read", path: path.to_owned(), source }
}
