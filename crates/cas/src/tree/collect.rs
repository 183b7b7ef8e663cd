//! What a task made: the outputs that its patterns name, in a directory in which its processes may have done anything.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, readlinkat, statat};
use rustix::io::Errno;

use super::beneath::{open_directory, open_file, open_root};
use super::directory::{EntryKind, TreeEntry, UploadFrom, encode, tree_message};
use super::error::{SkipReason, Skips, TreeError};
use super::globs::PathGlobs;
use super::hash::{HASH_THREADS_MAX, hash_file};
use super::names::{TreeBounds, check_link, check_path, depth_of, joined};
use super::parallel::in_parallel;
use super::stamp::is_executable;
use crate::Digest;

/// The outputs of a task.
#[derive(Debug)]
pub struct Collected {
    /// The files and links that patterns match, in the order of [`tree_order`](super::tree_order).
    pub outputs: Vec<TreeEntry>,
    /// The directories that patterns match, each with all that is in it.
    pub directories: Vec<CollectedDirectory>,
    /// What should be an output and cannot be one.
    pub skipped: Skips,
    /// The patterns that match nothing.
    pub unmatched: Vec<String>,
    /// Where the bytes of all blobs are, without the empty one. Paths are below the directory, for [`Collected::open`].
    pub uploads: BTreeMap<Digest, UploadFrom>,
    root: OwnedFd,
}

/// A directory that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedDirectory {
    /// The path below the task's directory, which is itself the empty path.
    pub path: String,
    /// The digest of its Tree message.
    pub tree: Digest,
    /// The digest of its Directory message, by which it can be a task's input.
    pub root: Digest,
}

/// Lists, hashes and encodes what patterns match below `directory`. Links are not followed, and those that lead out of
/// the directory, or out of the directory that is an output, are skipped. No process of the task should be left.
pub fn collect(directory: &Path, globs: &PathGlobs, bounds: &TreeBounds) -> Result<Collected, TreeError> {
    let failed =
        |error: Errno| TreeError::Io { doing: "list", path: directory.to_owned(), source: error.into() };
    let root = open_root(directory).map_err(failed)?;
    let mut search = OutputSearch {
        globs,
        bounds,
        is_matched: vec![false; globs.texts().count()],
        tops: Vec::new(),
        found: Vec::new(),
        skipped: Skips::default(),
        looked: 0,
        bytes: 0,
    };
    let inside = search.match_root();
    let names = names_in(root.as_fd(), bounds.entries_max).map_err(failed)?;
    search.directory(root.as_fd(), "", names, inside)?;
    let files = search.found.iter().filter(|found| matches!(found.kind, OutputKind::File));
    let files: Vec<&str> = files.map(|found| found.path.as_str()).collect();
    let hashed = in_parallel(files.len(), HASH_THREADS_MAX, &|at: usize| match hash_output(
        root.as_fd(),
        files[at],
    ) {
        Ok(hashed) => Ok(Ok(hashed)),
        Err(TreeError::Changed(_)) => Ok(Err(SkipReason::Changed)),
        Err(TreeError::Io { source, .. }) => Ok(Err(SkipReason::Unreadable(source.to_string()))),
        Err(error) => Err(error),
    })?;
    search.finish(hashed, root)
}

impl Collected {
    /// Opens a file that is to be uploaded, by its path below the directory. Links on the way are not followed.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        // All paths were UTF-8 when they were collected.
        let name = path.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(open_file(self.root.as_fd(), name)?)
    }
}

fn hash_output(root: BorrowedFd<'_>, path: &str) -> Result<(Digest, bool), TreeError> {
    let failed = |source: io::Error| TreeError::Io { doing: "read", path: path.into(), source };
    let mut file = open_file(root, path).map_err(|error| failed(error.into()))?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(TreeError::Changed(path.into()));
    }
    let (digest, _) = hash_file(&mut file, Path::new(path))?;
    Ok((digest, is_executable(&metadata)))
}

/// The names in a directory in their order, at most one more than `max`.
fn names_in(at: BorrowedFd<'_>, max: u64) -> rustix::io::Result<Vec<(CString, FileType)>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(at)? {
        let entry = entry?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        names.push((entry.file_name().to_owned(), entry.file_type()));
        if names.len() as u64 > max {
            break;
        }
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}

/// What was found so far.
struct OutputSearch<'a> {
    globs: &'a PathGlobs,
    bounds: &'a TreeBounds,
    /// Which patterns matched something.
    is_matched: Vec<bool>,
    /// The paths of the directories that patterns match.
    tops: Vec<String>,
    found: Vec<FoundOutput>,
    skipped: Skips,
    /// The number of entries that were looked at, outputs or not.
    looked: u64,
    bytes: u64,
}

struct FoundOutput {
    path: String,
    /// The number of the directory of `tops` that it is in.
    inside: Option<usize>,
    kind: OutputKind,
}

enum OutputKind {
    File,
    Link(String),
    Directory,
}

impl OutputSearch<'_> {
    /// Whether the directory itself is an output, and then its number.
    fn match_root(&mut self) -> Option<usize> {
        for number in self.globs.of_the_directory() {
            self.is_matched[number] = true;
            self.tops = vec![String::new()];
        }
        (!self.tops.is_empty()).then_some(0)
    }

    /// Looks at all that is in a directory. It recurses as deep as paths may be.
    fn directory(
        &mut self,
        at: BorrowedFd<'_>,
        path: &str,
        names: Vec<(CString, FileType)>,
        inside: Option<usize>,
    ) -> Result<(), TreeError> {
        self.looked += names.len() as u64;
        if self.looked > self.bounds.entries_max {
            return Err(TreeError::ManyEntries { max: self.bounds.entries_max });
        }
        for (name, kind) in names {
            match name.to_str() {
                Ok(unicode) => self.entry(at, &name, joined(path, unicode), kind, inside)?,
                Err(_) => self.skipped.push(joined(path, &name.to_string_lossy()), SkipReason::NotUnicode),
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        at: BorrowedFd<'_>,
        name: &CStr,
        path: String,
        kind: FileType,
        inside: Option<usize>,
    ) -> Result<(), TreeError> {
        let matching = self.globs.matching(&path);
        for number in &matching {
            self.is_matched[*number] = true;
        }
        let is_output = inside.is_some() || !matching.is_empty();
        let may_be_directory = matches!(kind, FileType::Directory | FileType::Unknown);
        if !(is_output || may_be_directory && self.globs.may_reach(&path)) {
            return Ok(());
        }
        if let Err(why) = check_path(&path) {
            self.skipped.push(path, SkipReason::Name(why));
            return Ok(());
        }
        let stat = match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => return self.unreadable(path, is_output, error),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return self.below(at, name, path, inside, is_output),
            _ if !is_output => {}
            FileType::Symlink => return self.link(at, name, path, inside),
            FileType::RegularFile => {
                self.bytes = self.bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or_default());
                if self.bytes > self.bounds.bytes_max {
                    return Err(TreeError::ManyBytes { max: self.bounds.bytes_max });
                }
                self.found.push(FoundOutput { path, inside, kind: OutputKind::File });
            }
            _ => self.skipped.push(path, SkipReason::NotRegular),
        }
        Ok(())
    }

    fn below(
        &mut self,
        at: BorrowedFd<'_>,
        name: &CStr,
        path: String,
        inside: Option<usize>,
        is_output: bool,
    ) -> Result<(), TreeError> {
        let left = self.bounds.entries_max.saturating_sub(self.looked);
        let listed = open_directory(at, name).and_then(|opened| {
            let names = names_in(opened.as_fd(), left)?;
            Ok((opened, names))
        });
        let (opened, names) = match listed {
            Ok(listed) => listed,
            Err(error) => return self.unreadable(path, is_output, error),
        };
        let inside_below = match inside {
            Some(_) => inside,
            None if is_output => Some(self.tops.len()),
            None => None,
        };
        if inside.is_some() {
            self.found.push(FoundOutput { path: path.clone(), inside, kind: OutputKind::Directory });
        } else if is_output {
            self.tops.push(path.clone());
        }
        self.directory(opened.as_fd(), &path, names, inside_below)
    }

    fn link(
        &mut self,
        at: BorrowedFd<'_>,
        name: &CStr,
        path: String,
        inside: Option<usize>,
    ) -> Result<(), TreeError> {
        let target = match readlinkat(at, name, Vec::<u8>::new()) {
            Ok(target) => target.into_string(),
            Err(error) => return self.unreadable(path, true, error),
        };
        let depth = depth_of(&path) - 1 - inside.map_or(0, |top| depth_of(&self.tops[top]));
        match target.map(|target| (check_link(depth, &target), target)) {
            Ok((Ok(()), target)) => {
                self.found.push(FoundOutput { path, inside, kind: OutputKind::Link(target) });
            }
            Ok((Err(why), _)) => self.skipped.push(path, SkipReason::Link(why)),
            Err(_) => self.skipped.push(path, SkipReason::NotUnicode),
        }
        Ok(())
    }

    /// Tells of what should be an output. Elsewhere a task may keep what nobody can read.
    fn unreadable(&mut self, path: String, is_output: bool, error: Errno) -> Result<(), TreeError> {
        if is_output {
            self.skipped.push(path, SkipReason::Unreadable(io::Error::from(error).to_string()));
        }
        Ok(())
    }

    /// Puts together what was found. `hashed` is in the order of the files.
    fn finish(
        mut self,
        hashed: Vec<Result<(Digest, bool), SkipReason>>,
        root: OwnedFd,
    ) -> Result<Collected, TreeError> {
        let mut hashed = hashed.into_iter();
        let mut trees: Vec<Vec<TreeEntry>> = vec![Vec::new(); self.tops.len()];
        let (mut outputs, mut uploads) = (Vec::new(), BTreeMap::new());
        for FoundOutput { path, inside, kind } in self.found {
            let kind = match kind {
                OutputKind::Directory => EntryKind::Directory,
                OutputKind::Link(target) => EntryKind::Link { target },
                OutputKind::File => match hashed.next().expect("each file was hashed") {
                    Ok((digest, is_executable)) => {
                        uploads.insert(digest, UploadFrom::File(PathBuf::from(&path)));
                        EntryKind::File { digest, is_executable }
                    }
                    Err(why) => {
                        self.skipped.push(path, why);
                        continue;
                    }
                },
            };
            match inside {
                None => outputs.push(TreeEntry { path, kind }),
                Some(top) => {
                    let start = if self.tops[top].is_empty() { 0 } else { self.tops[top].len() + 1 };
                    trees[top].push(TreeEntry { path: path[start..].to_owned(), kind });
                }
            }
        }
        let mut directories = Vec::with_capacity(trees.len());
        for (path, entries) in self.tops.into_iter().zip(trees) {
            let tree = encode(entries)?;
            let message = tree_message(&tree);
            let digest = Digest::of(&message);
            directories.push(CollectedDirectory { path, tree: digest, root: tree.root });
            uploads.insert(digest, UploadFrom::Message(message));
            for (digest, message) in tree.messages {
                uploads.insert(digest, UploadFrom::Message(message));
            }
        }
        uploads.remove(&Digest::EMPTY);
        let texts = self.globs.texts().zip(self.is_matched);
        let unmatched = texts.filter(|(_, is_matched)| !is_matched).map(|(text, _)| text.to_owned());
        let unmatched = unmatched.collect();
        Ok(Collected { outputs, directories, skipped: self.skipped, unmatched, uploads, root })
    }
}
