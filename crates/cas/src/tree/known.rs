//! Digests of files that were read before, in a file of the user's cache directory.
//!
//! A record's key is the hash of a file's path and stamp, so a file that changed has another key, and the old record
//! ages out. The file has a checksum, because a digest that is damaged but looks right would name other bytes.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::error::TreeError;
use super::stamp::FileStamp;
use crate::Digest;

/// Records that the file has after it was saved; those that were used last stay. A record has 80 bytes.
pub const KNOWN_MAX: usize = 1_000_000;
/// How long a record is kept that is not used: 30 days.
pub const KNOWN_KEPT_MS: u64 = 30 * 24 * 3_600_000;
/// How old a record's last use is before it is written again. Else each run would write the file.
const USE_TOLD_MS: u64 = 24 * 3_600_000;

/// Begins the file. A later format has another number.
const HEAD: &[u8; 16] = b"windlass known1\n";
const RECORD_BYTES: usize = 80;
const CHECKSUM_BYTES: usize = 32;

/// What was known of files before, and becomes known now.
#[derive(Debug)]
pub struct KnownDigests {
    file: PathBuf,
    records: HashMap<FileKey, KnownDigest>,
    is_changed: bool,
}

/// The SHA-256 of a file's path and stamp.
type FileKey = [u8; 32];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownDigest {
    digest: Digest,
    used_ms: u64,
}

impl KnownDigests {
    /// Reads the file. One that is missing, too long or damaged counts as empty: all it costs is to read files again.
    pub fn load(file: &Path) -> KnownDigests {
        let length_max = (HEAD.len() + KNOWN_MAX * RECORD_BYTES + CHECKSUM_BYTES) as u64;
        let is_short = fs::metadata(file).is_ok_and(|metadata| metadata.len() <= length_max);
        let bytes = if is_short { fs::read(file).unwrap_or_default() } else { Vec::new() };
        let records = parse(&bytes).unwrap_or_default();
        KnownDigests { file: file.to_owned(), records, is_changed: false }
    }

    /// The digest of the file at `path` if it was read when it had this stamp.
    pub(super) fn get(&mut self, path: &Path, stamp: &FileStamp, now_ms: u64) -> Option<Digest> {
        let record = self.records.get_mut(&key(path, stamp))?;
        if record.used_ms.saturating_add(USE_TOLD_MS) <= now_ms {
            record.used_ms = now_ms;
            self.is_changed = true;
        }
        Some(record.digest)
    }

    /// Remembers a digest, unless the file may change again without getting another stamp.
    pub(super) fn put(&mut self, path: &Path, stamp: &FileStamp, digest: Digest, now_ms: u64) {
        if stamp.is_settled(now_ms) {
            self.records.insert(key(path, stamp), KnownDigest { digest, used_ms: now_ms });
            self.is_changed = true;
        }
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// True if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Writes the file if something changed. Of two programs that save at once the later wins.
    pub fn save(&mut self, now_ms: u64) -> Result<(), TreeError> {
        if !self.is_changed {
            return Ok(());
        }
        self.forget(now_ms);
        let temporary = self.file.with_extension(format!("{}.tmp", std::process::id()));
        write(&temporary, &encoded(&self.records), &self.file).map_err(|source| {
            let _ = fs::remove_file(&temporary);
            TreeError::Io { doing: "write the digests of files to", path: self.file.clone(), source }
        })?;
        self.is_changed = false;
        Ok(())
    }

    fn forget(&mut self, now_ms: u64) {
        self.records.retain(|_, record| record.used_ms.saturating_add(KNOWN_KEPT_MS) > now_ms);
        if self.records.len() > KNOWN_MAX {
            let mut uses: Vec<u64> = self.records.values().map(|record| record.used_ms).collect();
            let first_kept = uses.len() - KNOWN_MAX;
            // Records of one run have one time, so all of them go if some must.
            let (_, oldest_kept, _) = uses.select_nth_unstable(first_kept - 1);
            let forgotten_ms = *oldest_kept;
            self.records.retain(|_, record| record.used_ms > forgotten_ms);
        }
    }
}

fn key(path: &Path, stamp: &FileStamp) -> FileKey {
    let mut hash = Sha256::new();
    hash.update(stamp.size.to_le_bytes());
    hash.update(stamp.mtime_ns.to_le_bytes());
    // The first byte tells an absent number from 0.
    hash.update([u8::from(stamp.ctime_ns.is_some())]);
    hash.update(stamp.ctime_ns.unwrap_or_default().to_le_bytes());
    hash.update([u8::from(stamp.inode.is_some())]);
    hash.update(stamp.inode.unwrap_or_default().to_le_bytes());
    hash.update(path.as_os_str().as_encoded_bytes());
    hash.finalize().into()
}

fn encoded(records: &HashMap<FileKey, KnownDigest>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD.len() + records.len() * RECORD_BYTES + CHECKSUM_BYTES);
    bytes.extend_from_slice(HEAD);
    for (key, record) in records {
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&record.digest.hash);
        bytes.extend_from_slice(&record.digest.size.to_le_bytes());
        bytes.extend_from_slice(&record.used_ms.to_le_bytes());
    }
    let checksum: [u8; CHECKSUM_BYTES] = Sha256::digest(&bytes).into();
    bytes.extend_from_slice(&checksum);
    bytes
}

fn parse(bytes: &[u8]) -> Option<HashMap<FileKey, KnownDigest>> {
    let (covered, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    let is: [u8; CHECKSUM_BYTES] = Sha256::digest(covered).into();
    if is != *checksum {
        return None;
    }
    let (records, rest) = covered.strip_prefix(HEAD.as_slice())?.as_chunks::<RECORD_BYTES>();
    if rest.is_empty() { records.iter().map(|bytes| record(bytes)).collect() } else { None }
}

fn record(bytes: &[u8]) -> Option<(FileKey, KnownDigest)> {
    let (key, rest) = bytes.split_first_chunk::<32>()?;
    let (hash, rest) = rest.split_first_chunk::<32>()?;
    let (size, used_ms) = rest.split_first_chunk::<8>()?;
    let digest = Digest { hash: *hash, size: u64::from_le_bytes(*size) };
    Some((*key, KnownDigest { digest, used_ms: u64::from_le_bytes(used_ms.try_into().ok()?) }))
}

fn write(temporary: &Path, bytes: &[u8], file: &Path) -> io::Result<()> {
    let result = fs::write(temporary, bytes);
    if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        // The first use of the cache directory.
        if let Some(directory) = file.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(temporary, bytes)?;
    } else {
        result?;
    }
    fs::rename(temporary, file)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stamp(size: u64) -> FileStamp {
        FileStamp { size, mtime_ns: 5, ctime_ns: None, inode: None }
    }

    fn known(file: &Path, records: &[(u64, u64)]) -> KnownDigests {
        let mut known = KnownDigests::load(file);
        for (size, at_ms) in records {
            known.put(Path::new("/a"), &stamp(*size), Digest::of(&size.to_le_bytes()), *at_ms);
        }
        known
    }

    #[test]
    fn what_was_saved_is_known_and_what_is_damaged_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cache/known");
        known(&file, &[(1, 10_000), (2, 10_000)]).save(10_000).unwrap();
        let mut again = KnownDigests::load(&file);
        assert_eq!(again.len(), 2);
        assert_eq!(again.get(Path::new("/a"), &stamp(2), 10_000), Some(Digest::of(&2_u64.to_le_bytes())));
        assert_eq!(again.get(Path::new("/b"), &stamp(2), 10_000), None);
        assert_eq!(again.get(Path::new("/a"), &stamp(3), 10_000), None);
        let good = fs::read(&file).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(parse(&bad), None, "byte {at}");
        }
    }

    #[test]
    fn each_part_of_a_stamp_makes_another_key() {
        let one = FileStamp { size: 0, mtime_ns: 0, ctime_ns: None, inode: None };
        let others = [
            FileStamp { size: 1, ..one },
            FileStamp { mtime_ns: 1, ..one },
            FileStamp { ctime_ns: Some(0), ..one },
            FileStamp { inode: Some(0), ..one },
            FileStamp { ctime_ns: Some(1), ..one },
        ];
        let mut keys: Vec<FileKey> = others.iter().map(|stamp| key(Path::new("a"), stamp)).collect();
        keys.push(key(Path::new("a"), &one));
        keys.push(key(Path::new("b"), &one));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 7);
    }

    #[test]
    fn records_without_use_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("known");
        let later = 10_000 + KNOWN_KEPT_MS;
        let mut known = known(&file, &[(1, 10_000), (2, 10_000)]);
        assert!(known.get(Path::new("/a"), &stamp(2), 10_000 + USE_TOLD_MS).is_some());
        known.save(later).unwrap();
        assert_eq!(known.len(), 1);
        assert!(known.get(Path::new("/a"), &stamp(2), later).is_some());
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let directory = tempfile::tempdir().unwrap();
        let mut known = known(&directory.path().join("known"), &[(1, 9_000), (2, 9_001)]);
        let digest = Digest::of(b"x");
        for number in 0..KNOWN_MAX as u64 - 1 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            known.records.insert(key, KnownDigest { digest, used_ms: 10_000 });
        }
        assert_eq!(known.len(), KNOWN_MAX + 1);
        known.forget(10_000);
        assert_eq!(known.len(), KNOWN_MAX);
        assert!(known.get(Path::new("/a"), &stamp(1), 10_000).is_none());
        assert!(known.get(Path::new("/a"), &stamp(2), 10_000).is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut with_checksum = HEAD.to_vec();
            with_checksum.extend_from_slice(&bytes);
            let checksum: [u8; 32] = Sha256::digest(&with_checksum).into();
            with_checksum.extend_from_slice(&checksum);
            let is_whole = bytes.len() % RECORD_BYTES == 0;
            prop_assert_eq!(parse(&with_checksum).is_some(), is_whole);
            prop_assert!(parse(&bytes).is_none());
        }
    }
}
