//! The disk of the store: how much is free, and what is done as it fills.
//!
//! First submissions are refused, at a floor below which there is still room for what must go on: results, leases,
//! cancels. Where the disk fills all the same, a file that only takes room is given up for these.

use crate::unavailable::Unavailable;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use windlass_core::resources::Bytes;

/// Bytes that must be free for a submission, where the disk is large; on a small one, that part of it.
const FLOOR_BYTES: u64 = 256 << 20;
const FLOOR_PART: u64 = 20;
/// Bytes of the file that is given up, where the disk is large; on a small one, that part of it.
const BALLAST_BYTES: u64 = 64 << 20;
const BALLAST_PART: u64 = 64;
/// The file in the store's directory.
const BALLAST: &str = "ballast";

/// Bytes that are free on the disk of a directory, or of the nearest one above it that exists.
pub(crate) fn free_bytes_at(dir: &Path) -> io::Result<u64> {
    let found = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    Space::of(found).map(|space| space.free)
}

/// The disk on which a store is; of a store in memory there is none.
pub(crate) struct Disk {
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Space {
    free: u64,
    total: u64,
}

impl Space {
    fn of(dir: &Path) -> io::Result<Space> {
        let found = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }

    fn floor(self) -> u64 {
        FLOOR_BYTES.min(self.total / FLOOR_PART)
    }

    fn ballast(self) -> u64 {
        BALLAST_BYTES.min(self.total / BALLAST_PART)
    }
}

impl Disk {
    pub fn of_store(path: Option<&Path>) -> Disk {
        let dir = path.map(|path| path.parent().filter(|dir| !dir.as_os_str().is_empty()));
        let dir = dir.map(|dir| dir.unwrap_or(Path::new(".")).to_owned());
        Disk { dir }
    }

    /// Bytes that are free, where that is known.
    pub fn free_bytes(&self) -> Option<u64> {
        self.space().map(|space| space.free)
    }

    /// Refuses a submission where too little is free.
    pub fn may_submit(&self) -> Result<(), Unavailable> {
        match (self.space(), &self.dir) {
            (Some(space), Some(dir)) if space.free < space.floor() => Err(Unavailable::new(&format!(
                "no space is left for submissions: {} of {} are free, and below {} the rest is kept for what runs; \
                 nothing accepted is lost, make room and it goes on",
                Bytes(space.free),
                dir.display(),
                Bytes(space.floor())
            ))),
            _ => Ok(()),
        }
    }

    /// Gives up the file that takes room, once the disk is full.
    pub fn give_way(&self) {
        let Some(dir) = &self.dir else { return };
        if std::fs::remove_file(dir.join(BALLAST)).is_ok() {
            tracing::error!(
                "the disk of {} is full: {BALLAST} in it was deleted for what must go on",
                dir.display()
            );
        }
    }

    /// Makes that file where there is none and ample room.
    pub fn prepare(&self) {
        let (Some(dir), Some(space)) = (&self.dir, self.space()) else { return };
        let path = dir.join(BALLAST);
        let bytes = space.ballast();
        if path.exists() || space.free < space.floor() + 2 * bytes {
            return;
        }
        if let Err(error) = fill(&path, bytes) {
            _ = std::fs::remove_file(&path);
            tracing::warn!("cannot make {}: {error}", path.display());
        }
    }

    fn space(&self) -> Option<Space> {
        let dir = self.dir.as_ref()?;
        Space::of(dir).ok()
    }
}

/// Written, not only reserved: some file systems keep no room for what is not.
fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // What compresses would take no room.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(1 << 16);
    let mut left = bytes;
    while left > 0 {
        block.clear();
        while block.len() < 1 << 16 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend_from_slice(&state.to_le_bytes());
        }
        let some = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.write_all(&block[..some])?;
        left -= some as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_small_disk_is_kept_and_a_fixed_part_of_a_large_one() {
        let space = |total| Space { free: 0, total };
        assert_eq!((space(1 << 40).floor(), space(1 << 40).ballast()), (FLOOR_BYTES, BALLAST_BYTES));
        assert_eq!(space(1 << 30).floor(), (1 << 30) / FLOOR_PART);
        assert_eq!(space(64 << 20).ballast(), 1 << 20);
    }

    #[test]
    fn the_file_takes_its_room_until_it_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(BALLAST);
        fill(&path, 100_000).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 100_000);
        let disk = Disk::of_store(Some(&dir.path().join("windlass.db")));
        disk.give_way();
        disk.give_way();
        assert!(!path.exists() && disk.free_bytes().is_some());
        let none = Disk::of_store(None);
        none.prepare();
        assert!(none.free_bytes().is_none() && none.may_submit().is_ok());
    }
}
