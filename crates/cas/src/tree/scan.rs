//! The inputs of a task: which files of this machine, under which names.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::mem::discriminant;
use std::path::{Component, Path, PathBuf, is_separator};

use ignore::WalkBuilder;

use super::directory::{EncodedTree, EntryKind, TreeEntry, UploadFrom};
use super::error::{SkipReason, Skips, TreeError};
use super::globs::{META, PathGlobs};
use super::names::{TreeBounds, check_link, check_path, depth_of, folded, joined, tree_order};
use super::stamp::{FileStamp, is_executable};
use crate::Digest;

/// Inputs of one submission, each a path or a pattern.
pub const INPUTS_MAX: usize = 1_000;
/// Names files to leave out, in the form of `.gitignore`, and comes before that and `.ignore`.
const IGNORE_FILE: &str = ".windlassignore";

/// One input: a file, a directory or a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeInput {
    /// The path on this machine, or a pattern if there is no such path.
    pub path: PathBuf,
    /// The path in the tree, `.` for the root. `None`: the path itself if it is relative and leads down, else its last
    /// name.
    pub name: Option<String>,
}

impl TreeInput {
    /// Reads `PATH[=NAME]`. The last `=` divides, so a path that has one is written with a name.
    pub fn parse(text: &str) -> TreeInput {
        match text.rsplit_once('=') {
            Some((path, name)) => TreeInput { path: path.into(), name: Some(name.to_owned()) },
            None => TreeInput { path: text.into(), name: None },
        }
    }

    /// The path in the tree of what stands at `path`, which is the input's or the part of it before the pattern.
    fn tree_path(&self, path: &Path) -> Result<String, TreeError> {
        if let Some(name) = &self.name {
            let trimmed = name.strip_suffix('/').unwrap_or(name);
            let is_root = trimmed == ".";
            return if is_root { Ok(String::new()) } else { checked(trimmed.to_owned()) };
        }
        let leads_down =
            path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let kept = if leads_down { Some(path) } else { path.file_name().map(Path::new) };
        let kept = unicode(kept.ok_or_else(|| TreeError::NoName(path.to_owned()))?)?;
        if kept.is_empty() { Ok(kept) } else { checked(kept) }
    }
}

/// How inputs are scanned.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Leaves out what `.gitignore` does in a repository of git, what `.ignore` and `.windlassignore` do anywhere, and
    /// `.git` itself. What an input names is never left out.
    pub ignore_files: bool,
    /// What the tree may have.
    pub bounds: TreeBounds,
}

/// What a tree will have. All lists are in the order of [`tree_order`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The files to hash.
    pub files: Vec<ScannedFile>,
    /// The symbolic links, all of which stay in the tree.
    pub links: Vec<ScannedLink>,
    /// The paths of all directories except the root.
    pub directories: Vec<String>,
    /// What was found and cannot be in a tree.
    pub skipped: Skips,
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedFile {
    /// The path in the tree.
    pub name: String,
    /// The path on this machine.
    pub path: PathBuf,
    /// What the file system said of it.
    pub stamp: FileStamp,
    /// Whether it may be executed.
    pub is_executable: bool,
}

/// A symbolic link that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedLink {
    /// The path in the tree.
    pub name: String,
    /// Where it leads, from the directory in which it stands.
    pub target: String,
}

/// Lists the inputs. Relative paths are below `base`, which is absolute.
pub fn scan(base: &Path, inputs: &[TreeInput], options: &ScanOptions) -> Result<Scan, TreeError> {
    if inputs.len() > INPUTS_MAX {
        return Err(TreeError::ManyInputs { is: inputs.len(), max: INPUTS_MAX });
    }
    let mut gathering = Gathering { options, found: BTreeMap::new(), bytes: 0, skipped: Skips::default() };
    for input in inputs {
        gathering.input(base, input)?;
    }
    gathering.finish()
}

impl Scan {
    /// The entries of the tree, when the digests of [`Scan::files`] are known, in their order.
    pub fn entries(&self, digests: &[Digest]) -> Vec<TreeEntry> {
        let files = self.files.iter().zip(digests).map(|(file, digest)| TreeEntry {
            path: file.name.clone(),
            kind: EntryKind::File { digest: *digest, is_executable: file.is_executable },
        });
        let links = self.links.iter().map(|link| TreeEntry {
            path: link.name.clone(),
            kind: EntryKind::Link { target: link.target.clone() },
        });
        let directories = self.directories.iter();
        let directories =
            directories.map(|path| TreeEntry { path: path.clone(), kind: EntryKind::Directory });
        files.chain(links).chain(directories).collect()
    }

    /// Where the bytes of all blobs of the tree are: what the store lacks of them is to be uploaded. The empty blob is
    /// left out, because every store has it.
    pub fn uploads(&self, digests: &[Digest], tree: EncodedTree) -> BTreeMap<Digest, UploadFrom> {
        let mut uploads = BTreeMap::new();
        for (digest, message) in tree.messages {
            uploads.insert(digest, UploadFrom::Message(message));
        }
        for (file, digest) in self.files.iter().zip(digests) {
            uploads.entry(*digest).or_insert_with(|| UploadFrom::File(file.path.clone()));
        }
        uploads.remove(&Digest::EMPTY);
        uploads
    }
}

/// What was found of the inputs so far.
struct Gathering<'a> {
    options: &'a ScanOptions,
    /// By the path in the tree.
    found: BTreeMap<String, FoundInput>,
    bytes: u64,
    skipped: Skips,
}

struct FoundInput {
    /// Where it is. Of a directory that was not an input itself: something in it.
    path: PathBuf,
    kind: FoundKind,
}

enum FoundKind {
    Directory,
    File { stamp: FileStamp, is_executable: bool },
    Link { target: String },
}

impl FoundKind {
    fn file(metadata: &Metadata) -> FoundKind {
        FoundKind::File { stamp: FileStamp::of(metadata), is_executable: is_executable(metadata) }
    }
}

impl Gathering<'_> {
    fn input(&mut self, base: &Path, input: &TreeInput) -> Result<(), TreeError> {
        let path = base.join(&input.path);
        // A link that is an input itself means what it leads to.
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                let name = input.tree_path(&input.path)?;
                self.add(&name, &path, FoundKind::Directory)?;
                self.walk(&path, &name, None).map(|_| ())
            }
            Ok(metadata) if metadata.is_file() => match input.tree_path(&input.path)? {
                name if name.is_empty() => Err(TreeError::NoName(input.path.clone())),
                name => self.add(&name, &path, FoundKind::file(&metadata)),
            },
            Ok(_) => Err(TreeError::NotRegular(path)),
            Err(source) => match split_pattern(&input.path) {
                Some((directory, pattern)) => self.pattern(base, input, &directory, pattern),
                None => Err(unreadable(&path, source)),
            },
        }
    }

    fn pattern(
        &mut self,
        base: &Path,
        input: &TreeInput,
        directory: &Path,
        pattern: String,
    ) -> Result<(), TreeError> {
        let root = base.join(directory);
        let name = input.tree_path(directory)?;
        let globs = PathGlobs::parse(&[pattern])?;
        if !root.is_dir() || self.walk(&root, &name, Some(globs))? == 0 {
            return Err(TreeError::NoMatch(input.path.display().to_string()));
        }
        Ok(())
    }

    /// Adds what is below a directory, or only what patterns match and what is below that. Gives how many.
    fn walk(&mut self, root: &Path, name: &str, globs: Option<PathGlobs>) -> Result<usize, TreeError> {
        let uses_ignore_files = self.options.ignore_files;
        let mut builder = WalkBuilder::new(root);
        // Names that begin with a dot are names like others. What git ignores by the settings of one user alone does
        // not count, so that two users send the same tree.
        builder.standard_filters(uses_ignore_files).hidden(false).git_global(false);
        builder.sort_by_file_name(|a, b| a.cmp(b));
        if uses_ignore_files {
            builder.add_custom_ignore_filename(IGNORE_FILE);
        }
        let (top, reach) = (root.to_owned(), globs.clone());
        builder.filter_entry(move |entry| {
            let is_git = uses_ignore_files && entry.depth() > 0 && entry.file_name() == ".git";
            let is_wanted = |globs: &PathGlobs| {
                unicode_below(&top, entry.path()).is_none_or(|below| may_have(globs, &below))
            };
            !is_git && reach.as_ref().is_none_or(is_wanted)
        });
        let mut count = 0;
        for entry in builder.build() {
            let entry = match entry {
                Ok(entry) => entry,
                // A line of an ignore file that cannot be read. git passes over it, too.
                Err(error) if !error.is_io() => continue,
                Err(source) => return Err(TreeError::List { path: root.to_owned(), source }),
            };
            if entry.depth() == 0 {
                continue;
            }
            let Some(below) = unicode_below(root, entry.path()) else {
                // A pattern may not mean it.
                if globs.is_none() {
                    return Err(TreeError::NotUnicode(entry.path().to_owned()));
                }
                self.skipped.push(entry.path().to_string_lossy().into_owned(), SkipReason::NotUnicode);
                continue;
            };
            if globs.as_ref().is_none_or(|globs| takes(globs, &below)) {
                count += 1;
                self.entry(&joined(name, &below), entry.path(), entry.file_type())?;
            }
        }
        Ok(count)
    }

    fn entry(&mut self, name: &str, path: &Path, kind: Option<fs::FileType>) -> Result<(), TreeError> {
        match kind {
            Some(kind) if kind.is_dir() => self.add(name, path, FoundKind::Directory),
            Some(kind) if kind.is_symlink() => {
                let target = fs::read_link(path).map_err(|source| unreadable(path, source))?;
                let target = target.into_os_string().into_string();
                let target = target.map_err(|_| TreeError::NotUnicode(path.to_owned()))?;
                let target = if cfg!(windows) { target.replace('\\', "/") } else { target };
                self.add(name, path, FoundKind::Link { target })
            }
            Some(kind) if kind.is_file() => {
                let metadata = fs::symlink_metadata(path).map_err(|source| unreadable(path, source))?;
                self.add(name, path, FoundKind::file(&metadata))
            }
            _ => {
                self.skipped.push(name.to_owned(), SkipReason::NotRegular);
                Ok(())
            }
        }
    }

    /// Adds what stands at `path` as `name`. The same file may come by two inputs.
    fn add(&mut self, name: &str, path: &Path, kind: FoundKind) -> Result<(), TreeError> {
        if name.is_empty() {
            return Ok(());
        }
        check_path(name).map_err(|why| TreeError::Name { name: name.to_owned(), why })?;
        self.add_parents(name, path)?;
        if let Some(before) = self.found.get(name) {
            let is_directory = matches!(kind, FoundKind::Directory);
            let is_same =
                discriminant(&before.kind) == discriminant(&kind) && (is_directory || before.path == path);
            return if is_same { Ok(()) } else { Err(twice(name, before, path)) };
        }
        match &kind {
            FoundKind::Directory => {}
            FoundKind::File { stamp, .. } => self.bytes = self.bytes.saturating_add(stamp.size),
            FoundKind::Link { target } => {
                check_link(depth_of(name) - 1, target).map_err(|why| TreeError::Link {
                    name: name.to_owned(),
                    target: target.clone(),
                    why,
                })?;
            }
        }
        self.found.insert(name.to_owned(), FoundInput { path: path.to_owned(), kind });
        self.check_bounds()
    }

    /// Adds the directories on the way to `name`.
    fn add_parents(&mut self, name: &str, path: &Path) -> Result<(), TreeError> {
        let mut parent = name;
        while let Some((above, _)) = parent.rsplit_once('/') {
            parent = above;
            match self.found.get(parent) {
                // Those above it are there, too.
                Some(FoundInput { kind: FoundKind::Directory, .. }) => break,
                Some(before) => return Err(twice(parent, before, path)),
                None => {
                    let directory = FoundInput { path: path.to_owned(), kind: FoundKind::Directory };
                    self.found.insert(parent.to_owned(), directory);
                }
            }
        }
        Ok(())
    }

    fn check_bounds(&self) -> Result<(), TreeError> {
        let bounds = &self.options.bounds;
        if self.found.len() as u64 > bounds.entries_max {
            return Err(TreeError::ManyEntries { max: bounds.entries_max });
        }
        if self.bytes > bounds.bytes_max {
            return Err(TreeError::ManyBytes { max: bounds.bytes_max });
        }
        Ok(())
    }

    fn finish(self) -> Result<Scan, TreeError> {
        check_collisions(&self.found)?;
        let mut scan = Scan { skipped: self.skipped, ..Scan::default() };
        for (name, FoundInput { path, kind }) in self.found {
            match kind {
                FoundKind::Directory => scan.directories.push(name),
                FoundKind::Link { target } => scan.links.push(ScannedLink { name, target }),
                FoundKind::File { stamp, is_executable } => {
                    scan.files.push(ScannedFile { name, path, stamp, is_executable });
                }
            }
        }
        scan.directories.sort_by(|a, b| tree_order(a, b));
        scan.links.sort_by(|a, b| tree_order(&a.name, &b.name));
        scan.files.sort_by(|a, b| tree_order(&a.name, &b.name));
        Ok(scan)
    }
}

/// Refuses names that a worker's file system may take for one.
fn check_collisions(found: &BTreeMap<String, FoundInput>) -> Result<(), TreeError> {
    let mut names: Vec<(String, &String)> = found.keys().map(|name| (folded(name), name)).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        if pair[0].0 == pair[1].0 {
            return Err(TreeError::Collision { first: pair[0].1.clone(), second: pair[1].1.clone() });
        }
    }
    Ok(())
}

/// Divides a path before its first name that has a pattern. `None`: none has.
fn split_pattern(path: &Path) -> Option<(PathBuf, String)> {
    let text = path.to_str()?;
    let before = &text[..text.find(META)?];
    let start = before.rfind(is_separator).map_or(0, |slash| slash + 1);
    Some((PathBuf::from(&text[..start]), text[start..].to_owned()))
}

/// True if the path, or a directory on the way to it, matches.
fn takes(globs: &PathGlobs, below: &str) -> bool {
    let mut ends = below.match_indices('/').map(|(at, _)| at).chain([below.len()]);
    ends.any(|end| !globs.matching(&below[..end]).is_empty())
}

/// False if neither the path nor anything below it is taken.
fn may_have(globs: &PathGlobs, below: &str) -> bool {
    below.is_empty() || globs.may_reach(below) || takes(globs, below)
}

/// The path below `root` with slashes. `None` if it is not UTF-8.
fn unicode_below(root: &Path, path: &Path) -> Option<String> {
    unicode(path.strip_prefix(root).ok()?).ok()
}

/// The names of a relative path, divided by slashes.
fn unicode(path: &Path) -> Result<String, TreeError> {
    let mut names = Vec::new();
    for part in path.components() {
        if let Component::Normal(name) = part {
            names.push(name.to_str().ok_or_else(|| TreeError::NotUnicode(path.to_owned()))?);
        }
    }
    Ok(names.join("/"))
}

fn checked(name: String) -> Result<String, TreeError> {
    match check_path(&name) {
        Ok(()) => Ok(name),
        Err(why) => Err(TreeError::Name { name, why }),
    }
}

fn twice(name: &str, before: &FoundInput, path: &Path) -> TreeError {
    TreeError::Duplicate { name: name.to_owned(), first: before.path.clone(), second: path.to_owned() }
}

fn unreadable(path: &Path, source: io::Error) -> TreeError {
    TreeError::Io { doing: "read", path: path.to_owned(), source }
}
