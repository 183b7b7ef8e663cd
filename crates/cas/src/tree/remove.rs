//! Removing what a task left: any number of files, at any depth, under any names. No link is followed.
//!
//! - A directory that is found in another one is moved to the top, and emptied there. So the depth of what a task made
//!   costs neither memory nor open files, and no path is too long.
//! - All is done by descriptors and single names. Whatever a process changes meanwhile, nothing outside is removed.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, chmod, fchmod, fstat, openat, renameat, unlinkat};
use rustix::io::{Errno, Result};

use super::beneath::{open_directory, open_root};

/// Entries of the top that are listed at a time.
const NAMES_A_PASS: usize = 1_024;
/// Begins the names of directories that were moved to the top.
const MOVED: &str = "moved-";
/// What this process needs to empty a directory that is its own user's.
const OWN_MODE: Mode = Mode::from_raw_mode(0o700);

/// Removes all that is in a directory which only this process's user enters, until `is_over`. Gives the number of
/// entries of the top that are gone, those that were moved there included. What cannot be removed stays, and the others
/// go nevertheless.
pub fn remove_below(top: &Path, is_over: &dyn Fn() -> bool) -> io::Result<u64> {
    let top = open_root(top)?;
    let mut removal = Removal { moved: first_free(&top)?, top, failed: None };
    let mut removed = 0;
    loop {
        let mut removed_now = 0;
        let names = some_names(&removal.top)?;
        for name in &names {
            if is_over() {
                return Ok(removed);
            }
            match removal.entry(name) {
                Ok(()) => removed_now += 1,
                Err(error) => removal.failed = removal.failed.or(Some(error)),
            }
        }
        removed += removed_now;
        match removal.failed {
            Some(error) if removed_now == 0 => return Err(error.into()),
            _ if names.is_empty() => return Ok(removed),
            _ => removal.failed = None,
        }
    }
}

struct Removal {
    top: OwnedFd,
    /// The number of the next directory that is moved to the top.
    moved: u64,
    /// The first failure since the top was listed.
    failed: Option<Errno>,
}

impl Removal {
    /// Removes an entry of the top. Directories inside of it are at the top afterwards.
    fn entry(&mut self, name: &CStr) -> Result<()> {
        match unlinkat(&self.top, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
        let directory = open_own(self.top.as_fd(), name)?;
        loop {
            let changed = self.empty(directory.as_fd())?;
            match unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // While entries go, a listing may pass over others.
                Err(Errno::NOTEMPTY | Errno::EXIST) if changed => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes what is in a directory, and moves the directories that are not empty to the top. True if anything went.
    fn empty(&mut self, directory: BorrowedFd<'_>) -> Result<bool> {
        let mut changed = false;
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let gone = match unlinkat(directory, name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => self.directory(directory, name),
                gone => gone,
            };
            match gone {
                Ok(()) | Err(Errno::NOENT) => changed = true,
                Err(error) => self.failed = self.failed.or(Some(error)),
            }
        }
        Ok(changed)
    }

    fn directory(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            gone => return gone,
        }
        let to = format!("{MOVED}{}", self.moved);
        self.moved += 1;
        match renameat(parent, name, &self.top, to.as_str()) {
            // A directory gets another parent only if its user may write to it.
            Err(Errno::ACCESS) => {
                open_own(parent, name)?;
                renameat(parent, name, &self.top, to.as_str())
            }
            moved => moved,
        }
    }
}

/// Opens a directory to empty it. One of this process's own user may lack the permissions for that.
fn open_own(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let opened = match open_directory(parent, name) {
        Err(Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let unreadable = openat(parent, name, flags, Mode::empty())?;
            // This leads to what is open, whatever stands under the name by now.
            chmod(format!("/proc/self/fd/{}", unreadable.as_raw_fd()).as_str(), OWN_MODE)?;
            open_directory(parent, name)?
        }
        opened => opened?,
    };
    if !Mode::from_raw_mode(fstat(&opened)?.st_mode).contains(OWN_MODE) {
        // Root needs no permission, and elsewhere the next call says why it fails.
        _ = fchmod(&opened, OWN_MODE);
    }
    Ok(opened)
}

/// Names of the top, at most [`NAMES_A_PASS`].
fn some_names(top: &OwnedFd) -> Result<Vec<std::ffi::CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(top)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == NAMES_A_PASS {
            break;
        }
    }
    Ok(names)
}

/// A number above those of all directories that an earlier process moved.
fn first_free(top: &OwnedFd) -> Result<u64> {
    let mut free = 0;
    for entry in Dir::read_from(top)? {
        let entry = entry?;
        let number = entry.file_name().to_str().ok().and_then(|name| name.strip_prefix(MOVED)?.parse().ok());
        if let Some(number) = number {
            free = free.max(u64::saturating_add(number, 1));
        }
    }
    Ok(free)
}
