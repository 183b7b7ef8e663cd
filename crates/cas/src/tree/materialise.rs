//! Making the files of a tree for a task.
//!
//! A file that nobody executes is a hard link to the store's file where the caller allows it. An executable one is a
//! copy of its own: permissions belong to the inode, so all tasks share those of a linked file. Where the file system
//! shares blocks between files, a copy costs about as little as a link.
//!
//! The owner of a linked file stays that of the store, so the task cannot make it writable. The top directory is given
//! to the task's user last. Until then only this process enters it, and no name in it is another's work.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, fchown, ioctl_ficlone, linkat, mkdir,
    mkdirat, openat, statat, symlinkat,
};
use rustix::io::Errno;

use super::beneath::{open_directories, open_directory, open_root};
use super::directory::FileLeaf;
use super::error::TreeError;
use super::names::joined;
use super::parallel::in_parallel;
use super::read::TreeContent;
use crate::{Blob, Digest};

/// Files of one directory that a thread makes before it looks for others.
const FILES_PER_BATCH: usize = 256;
/// Only the task's user enters the top directory.
const TOP_MODE: Mode = Mode::from_raw_mode(0o700);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
const FILE_MODE: Mode = Mode::from_raw_mode(0o444);
const EXECUTABLE_MODE: Mode = Mode::from_raw_mode(0o555);
const CREATE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where the blobs of a tree are.
pub trait BlobSource: Sync {
    /// A blob; `None` if it is not there. Nobody writes to a file of it, whose mode is 0444.
    fn blob(&self, digest: Digest) -> Result<Option<Blob>, TreeError>;
}

/// The user to whom what is made belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeOwner {
    /// Number of the user.
    pub uid: u32,
    /// Number of the user's primary group.
    pub gid: u32,
}

/// How a tree is made.
#[derive(Clone, Copy, Debug)]
pub struct MaterialiseOptions {
    /// Whether files may be hard links to those of the store. That is safe only if the task runs as another user than
    /// the store's owner: the owner of a file may make it writable, and would then write into the store.
    pub may_hardlink: bool,
    /// To whom directories, links and copied files are given, for which this process must be root. `None` is this
    /// process's own user.
    pub owner: Option<TreeOwner>,
    /// Threads that make files. More than 8 wait for the locks of one file system.
    pub threads_max: usize,
}

/// How the files of a tree were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Materialised {
    /// Files that are hard links to the store's.
    pub hardlinked: u64,
    /// Files that share their blocks with the store's.
    pub reflinked: u64,
    /// Files whose bytes were copied, and empty ones.
    pub copied: u64,
    /// The bytes that were copied.
    pub copied_bytes: u64,
}

/// Makes the files, directories and links of a tree in the new directory `into`. After a failure the directory has a
/// part of them, and the caller removes it. `into` has mode 0700, the directories below it 0755, files 0444 or 0555,
/// whatever the mask is.
pub fn materialise(
    tree: &TreeContent,
    source: &dyn BlobSource,
    into: &Path,
    options: &MaterialiseOptions,
) -> Result<Materialised, TreeError> {
    let failed = |error: Errno| TreeError::Io { doing: "make", path: into.to_owned(), source: error.into() };
    mkdir(into, TOP_MODE).map_err(failed)?;
    let root = open_root(into).map_err(failed)?;
    fchmod(&root, TOP_MODE).map_err(failed)?;
    let owner = options.owner;
    let mut skeleton = Skeleton { tree, into, owner, batches: Vec::new() };
    skeleton.make(tree.root(), root.as_fd(), "")?;
    let batches = skeleton.batches;
    let may_hardlink = options.may_hardlink;
    let placer = Placer { source, into, root, may_hardlink, owner, may_reflink: AtomicBool::new(true) };
    let parts = in_parallel(batches.len(), options.threads_max, &|at: usize| placer.place(&batches[at]))?;
    give(&placer.root, owner).map_err(failed)?;
    let mut made = Materialised::default();
    for part in parts {
        made.hardlinked += part.hardlinked;
        made.reflinked += part.reflinked;
        made.copied += part.copied;
        made.copied_bytes += part.copied_bytes;
    }
    Ok(made)
}

/// Makes directories and links, and lists the files to make.
struct Skeleton<'a> {
    tree: &'a TreeContent,
    into: &'a Path,
    owner: Option<TreeOwner>,
    batches: Vec<FileBatch<'a>>,
}

struct FileBatch<'a> {
    /// The directory's path in the tree.
    path: String,
    files: &'a [FileLeaf],
}

impl Skeleton<'_> {
    fn make(&mut self, digest: Digest, at: BorrowedFd<'_>, path: &str) -> Result<(), TreeError> {
        let directory = self.tree.directory(digest).ok_or(TreeError::Missing(digest))?;
        for files in directory.files.chunks(FILES_PER_BATCH) {
            self.batches.push(FileBatch { path: path.to_owned(), files });
        }
        for (name, target) in &directory.links {
            let made = symlinkat(target.as_str(), at, name.as_str());
            made.and_then(|()| give_link(at, name, self.owner))
                .map_err(|error| self.failed(path, name, error))?;
        }
        for (name, below) in &directory.directories {
            let opened =
                new_directory(at, name, self.owner).map_err(|error| self.failed(path, name, error))?;
            self.make(*below, opened.as_fd(), &joined(path, name))?;
        }
        Ok(())
    }

    fn failed(&self, directory: &str, name: &str, error: Errno) -> TreeError {
        let path = self.into.join(directory).join(name);
        TreeError::Io { doing: "make", path, source: error.into() }
    }
}

fn new_directory(at: BorrowedFd<'_>, name: &str, owner: Option<TreeOwner>) -> rustix::io::Result<OwnedFd> {
    mkdirat(at, name, DIRECTORY_MODE)?;
    let opened = open_directory(at, name)?;
    fchmod(&opened, DIRECTORY_MODE)?;
    give(&opened, owner)?;
    Ok(opened)
}

/// Gives what is open to its owner.
fn give(opened: impl AsFd, owner: Option<TreeOwner>) -> rustix::io::Result<()> {
    let Some(TreeOwner { uid, gid }) = owner else { return Ok(()) };
    fchown(opened, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

/// Gives a link to its owner, and not what it leads to.
fn give_link(at: BorrowedFd<'_>, name: &str, owner: Option<TreeOwner>) -> rustix::io::Result<()> {
    let Some(TreeOwner { uid, gid }) = owner else { return Ok(()) };
    chownat(at, name, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)
}

/// Makes the files, of which several threads take batches.
struct Placer<'a> {
    source: &'a dyn BlobSource,
    into: &'a Path,
    root: OwnedFd,
    may_hardlink: bool,
    owner: Option<TreeOwner>,
    /// Until the file system refused once.
    may_reflink: AtomicBool,
}

impl Placer<'_> {
    fn place(&self, batch: &FileBatch<'_>) -> Result<Materialised, TreeError> {
        let directory = self.into.join(&batch.path);
        let at = open_directories(self.root.as_fd(), &batch.path);
        let at = at.map_err(|error| TreeError::Io {
            doing: "open",
            path: directory.clone(),
            source: error.into(),
        })?;
        let mut made = Materialised::default();
        for file in batch.files {
            self.file(at.as_fd(), file, &directory, &mut made)?;
        }
        Ok(made)
    }

    fn file(
        &self,
        at: BorrowedFd<'_>,
        file: &FileLeaf,
        directory: &Path,
        made: &mut Materialised,
    ) -> Result<(), TreeError> {
        let failed = |source: io::Error| {
            let path = directory.join(&file.name);
            TreeError::Io { doing: "make", path, source }
        };
        if file.digest == Digest::EMPTY {
            self.create(at, file).map_err(failed)?;
            made.copied += 1;
            return Ok(());
        }
        let blob = self.source.blob(file.digest)?.ok_or(TreeError::Missing(file.digest))?;
        let (mut from, blob) = match blob {
            Blob::Bytes(bytes) => {
                let mut to = self.create(at, file).map_err(failed)?;
                to.write_all(&bytes).map_err(failed)?;
                made.copied += 1;
                made.copied_bytes += bytes.len() as u64;
                let is_whole = bytes.len() as u64 == file.digest.size;
                return if is_whole { Ok(()) } else { Err(TreeError::Missing(file.digest)) };
            }
            Blob::File { file, path, .. } => (file, path),
        };
        let wrong = || TreeError::Blob { digest: file.digest, path: blob.clone() };
        if !from.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == file.digest.size) {
            return Err(wrong());
        }
        if self.may_hardlink && !file.is_executable && hardlink(&blob, at, &file.name).map_err(failed)? {
            let stat = statat(at, file.name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|error| failed(error.into()))?;
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            let is_whole = u64::try_from(stat.st_size) == Ok(file.digest.size);
            made.hardlinked += 1;
            return if is_file && is_whole { Ok(()) } else { Err(wrong()) };
        }
        let mut to = self.create(at, file).map_err(failed)?;
        if self.may_reflink.load(Ordering::Relaxed) {
            if ioctl_ficlone(&to, &from).is_ok() {
                made.reflinked += 1;
                return Ok(());
            }
            self.may_reflink.store(false, Ordering::Relaxed);
        }
        let bytes = io::copy(&mut from, &mut to).map_err(failed)?;
        made.copied += 1;
        made.copied_bytes += bytes;
        if bytes == file.digest.size { Ok(()) } else { Err(wrong()) }
    }

    fn create(&self, at: BorrowedFd<'_>, file: &FileLeaf) -> io::Result<File> {
        let mode = if file.is_executable { EXECUTABLE_MODE } else { FILE_MODE };
        let made = openat(at, file.name.as_str(), CREATE, mode)?;
        fchmod(&made, mode)?;
        give(&made, self.owner)?;
        Ok(File::from(made))
    }
}

/// Makes a link to the store's file. False if a copy has to do: the file has all links that its file system allows, or
/// is on another one, or the kernel does not let this user link it, or it was evicted since it was opened.
fn hardlink(blob: &Path, at: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    match linkat(CWD, blob, at, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::MLINK | Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
