//! What a task made: the outputs that its patterns name, in a directory in which its processes may have done anything.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, readlinkat, statat};
use rustix::io::Errno;

use super::beneath::{open_directory, open_file, open_root};
use super::directory::{EncodedTree, EntryKind, TreeEntry, UploadFrom, encode, tree_message};
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

/// The outputs of a task as one tree, which can be the input of another one.
#[derive(Debug)]
pub struct CollectedTree {
    /// The messages of the tree. Of a task without outputs it is that of an empty directory.
    pub tree: EncodedTree,
    /// Where the bytes of the files are, without the empty one: paths below the directory, for [`CollectedTree::open`].
    pub files: BTreeMap<Digest, PathBuf>,
    /// Files, directories and links of the tree.
    pub entries: u64,
    /// Files of the tree.
    pub file_count: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// What should be an output and cannot be one.
    pub skipped: Skips,
    /// The patterns that match nothing.
    pub unmatched: Vec<String>,
    root: OwnedFd,
    owner: Option<u32>,
}

/// Lists, hashes and encodes what patterns match below `directory`. Links are not followed, and those that lead out of
/// the directory, or out of the directory that is an output, are skipped. No process of the task should be left.
pub fn collect(directory: &Path, globs: &PathGlobs, bounds: &TreeBounds) -> Result<Collected, TreeError> {
    let (root, search) = search(directory, globs, bounds, OutputForm::Directories)?;
    let hashed = search.hash(root.as_fd(), None)?;
    search.finish(hashed, root)
}

/// As [`collect`], with all outputs in one tree at their paths. Where this process may read more than the task's user,
/// `owner` is the number of that user: a file of another one is left out if not everyone may read it. Otherwise a task
/// could make such a file an output by a hard link to it.
pub fn collect_tree(
    directory: &Path,
    globs: &PathGlobs,
    bounds: &TreeBounds,
    owner: Option<u32>,
) -> Result<CollectedTree, TreeError> {
    let (root, search) = search(directory, globs, bounds, OutputForm::OneTree)?;
    let hashed = search.hash(root.as_fd(), owner)?;
    search.finish_tree(hashed, root, owner)
}

/// Lists what patterns match. Gives the open directory, too.
fn search<'a>(
    directory: &Path,
    globs: &'a PathGlobs,
    bounds: &'a TreeBounds,
    form: OutputForm,
) -> Result<(OwnedFd, OutputSearch<'a>), TreeError> {
    let failed =
        |error: Errno| TreeError::Io { doing: "list", path: directory.to_owned(), source: error.into() };
    let root = open_root(directory).map_err(failed)?;
    let mut search = OutputSearch {
        globs,
        bounds,
        form,
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
    Ok((root, search))
}

impl Collected {
    /// Opens a file that is to be uploaded, by its path below the directory. Links on the way are not followed.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        open_collected(self.root.as_fd(), path, None)
    }
}

impl CollectedTree {
    /// Opens an output for reading, as [`Collected::open`].
    pub fn open(&self, path: &Path) -> io::Result<File> {
        open_collected(self.root.as_fd(), path, self.owner)
    }
}

fn open_collected(root: BorrowedFd<'_>, path: &Path, owner: Option<u32>) -> io::Result<File> {
    // All paths were UTF-8 when they were collected.
    let name = path.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let (file, _) = open_output(root, name, owner).map_err(|why| io::Error::other(why.to_string()))?;
    Ok(file)
}

/// Opens a regular file that may be an output.
fn open_output(root: BorrowedFd<'_>, path: &str, owner: Option<u32>) -> Result<(File, Metadata), SkipReason> {
    let unreadable = |error: io::Error| SkipReason::Unreadable(error.to_string());
    let file = open_file(root, path).map_err(|error| unreadable(error.into()))?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(SkipReason::Changed);
    }
    let is_readable = owner.is_none_or(|owner| metadata.uid() == owner) || metadata.mode() & 0o004 != 0;
    if is_readable { Ok((file, metadata)) } else { Err(SkipReason::Foreign) }
}

/// A file's digest, and whether it may be executed.
type HashedOutput = Result<(Digest, bool), SkipReason>;

fn hash_output(root: BorrowedFd<'_>, path: &str, owner: Option<u32>) -> HashedOutput {
    let (mut file, metadata) = open_output(root, path, owner)?;
    match hash_file(&mut file, Path::new(path)) {
        Ok((digest, _)) => Ok((digest, is_executable(&metadata))),
        Err(TreeError::Io { source, .. }) => Err(SkipReason::Unreadable(source.to_string())),
        Err(_) => Err(SkipReason::Changed),
    }
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
    form: OutputForm,
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

/// What is made of directories that patterns match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputForm {
    /// Each is a tree of its own.
    Directories,
    /// All are in one tree.
    OneTree,
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
        let top = inside.filter(|_| self.form == OutputForm::Directories);
        let depth = depth_of(&path) - 1 - top.map_or(0, |top| depth_of(&self.tops[top]));
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

    /// The digests of the files that were found, in their order, and whether they may be executed.
    fn hash(&self, root: BorrowedFd<'_>, owner: Option<u32>) -> Result<Vec<HashedOutput>, TreeError> {
        let files = self.found.iter().filter(|found| matches!(found.kind, OutputKind::File));
        let files: Vec<&str> = files.map(|found| found.path.as_str()).collect();
        in_parallel(files.len(), HASH_THREADS_MAX, &|at: usize| Ok(hash_output(root, files[at], owner)))
    }

    /// Puts all that was found into one tree. `hashed` is in the order of the files.
    fn finish_tree(
        mut self,
        hashed: Vec<HashedOutput>,
        root: OwnedFd,
        owner: Option<u32>,
    ) -> Result<CollectedTree, TreeError> {
        let mut hashed = hashed.into_iter();
        let tops = self.tops.into_iter().filter(|path| !path.is_empty());
        let mut entries: Vec<TreeEntry> =
            tops.map(|path| TreeEntry { path, kind: EntryKind::Directory }).collect();
        let (mut files, mut file_count, mut bytes) = (BTreeMap::new(), 0, 0);
        for FoundOutput { path, kind, .. } in self.found {
            let kind = match kind {
                OutputKind::Directory => EntryKind::Directory,
                OutputKind::Link(target) => EntryKind::Link { target },
                OutputKind::File => match hashed.next().expect("each file was hashed") {
                    Ok((digest, is_executable)) => {
                        file_count += 1;
                        bytes += digest.size;
                        files.insert(digest, PathBuf::from(&path));
                        EntryKind::File { digest, is_executable }
                    }
                    Err(why) => {
                        self.skipped.push(path, why);
                        continue;
                    }
                },
            };
            entries.push(TreeEntry { path, kind });
        }
        files.remove(&Digest::EMPTY);
        let count = entries.len() as u64;
        let unmatched = unmatched(self.globs, &self.is_matched);
        let (tree, skipped) = (encode(entries)?, self.skipped);
        Ok(CollectedTree { tree, files, entries: count, file_count, bytes, skipped, unmatched, root, owner })
    }

    /// Puts together what was found. `hashed` is in the order of the files.
    fn finish(mut self, hashed: Vec<HashedOutput>, root: OwnedFd) -> Result<Collected, TreeError> {
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
        let unmatched = unmatched(self.globs, &self.is_matched);
        Ok(Collected { outputs, directories, skipped: self.skipped, unmatched, uploads, root })
    }
}

/// The patterns that matched nothing.
fn unmatched(globs: &PathGlobs, is_matched: &[bool]) -> Vec<String> {
    let texts = globs.texts().zip(is_matched);
    texts.filter(|(_, is_matched)| !**is_matched).map(|(text, _)| text.to_owned()).collect()
}
