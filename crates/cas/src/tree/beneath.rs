//! Opening what is in a directory that others write to: name by name, following no link. Whatever they change
//! meanwhile, nothing outside is opened.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Result;
use rustix::path::Arg;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A pipe in the place of a file must not wait for a writer.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Opens the directory of a tree, which is the caller's own. Only its last name must not be a link.
pub(super) fn open_root(path: &Path) -> Result<OwnedFd> {
    openat(CWD, path, DIRECTORY, Mode::empty())
}

/// Opens the directory with this name.
pub(super) fn open_directory(directory: impl AsFd, name: impl Arg) -> Result<OwnedFd> {
    openat(directory, name, DIRECTORY, Mode::empty())
}

/// Opens the directory at a path of the tree. The root's path is empty.
pub(super) fn open_directories(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd> {
    let mut directory = open_directory(root, ".")?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        directory = open_directory(&directory, name)?;
    }
    Ok(directory)
}

/// Opens the file at a path of the tree for reading. The caller looks whether it is a regular file.
pub(super) fn open_file(root: BorrowedFd<'_>, path: &str) -> Result<File> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let directory = open_directories(root, directory)?;
    Ok(File::from(openat(&directory, name, READ, Mode::empty())?))
}
