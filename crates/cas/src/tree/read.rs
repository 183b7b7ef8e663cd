//! Reading a tree that anyone may have made.
//!
//! 1. A message counts only under its own digest, so no tree has itself inside.
//! 2. Each different directory is read once. A tree of a few messages may name one directory 2^100 times, so what it
//!    has in all is added up, not walked.
//! 3. Afterwards all names, depths, totals and links are known to keep to the bounds.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::directory::{
    CheckedDirectory, DIRECTORY_BYTES_MAX, EntryKind, Fields, TreeEntry, check_directory,
};
use super::error::{MessageFault, TreeError};
use super::names::{
    DEPTH_MAX, ENTRIES_MAX, NameFault, PATH_BYTES_MAX, TreeBounds, check_link, joined, tree_order,
};
use crate::Digest;

/// Bytes of all different Directory messages of a tree.
pub const MESSAGES_BYTES_MAX: u64 = 256 << 20;
/// Bytes of all paths of a tree. It bounds the memory of a list of them.
pub const PATHS_BYTES_MAX: u64 = 256 << 20;

/// Reads a tree message by message, in any order in which they come. The caller gets those that are wanted next.
#[derive(Debug)]
pub struct TreeReader {
    root: Digest,
    bounds: TreeBounds,
    /// What is missing, with its depth at the first place where it is.
    wanted: BTreeMap<Digest, usize>,
    directories: HashMap<Digest, CheckedDirectory>,
    message_bytes: u64,
    entries: u64,
}

impl TreeReader {
    /// Begins with the root, which is wanted first.
    pub fn new(root: Digest, mut bounds: TreeBounds) -> Result<TreeReader, TreeError> {
        bounds.entries_max = bounds.entries_max.min(ENTRIES_MAX);
        let mut reader = TreeReader {
            root,
            bounds,
            wanted: BTreeMap::new(),
            directories: HashMap::new(),
            message_bytes: 0,
            entries: 0,
        };
        reader.want(root, 0)?;
        Ok(reader)
    }

    /// The messages to get next. The tree is whole when there are none.
    pub fn wanted(&self) -> impl Iterator<Item = Digest> {
        self.wanted.keys().copied()
    }

    /// Takes a message that was wanted.
    pub fn add(&mut self, message: &[u8]) -> Result<(), TreeError> {
        let digest = Digest::of(message);
        let depth = self.wanted.remove(&digest).ok_or(TreeError::Unasked(digest))?;
        let directory =
            check_directory(message).map_err(|why| TreeError::Message { directory: digest, why })?;
        let own = directory.files.len() + directory.directories.len() + directory.links.len();
        self.entries += own as u64;
        if self.entries > self.bounds.entries_max {
            return Err(TreeError::ManyEntries { max: self.bounds.entries_max });
        }
        for (_, below) in &directory.directories {
            self.want(*below, depth + 1)?;
        }
        self.directories.insert(digest, directory);
        Ok(())
    }

    fn want(&mut self, digest: Digest, depth: usize) -> Result<(), TreeError> {
        if self.directories.contains_key(&digest) || self.wanted.contains_key(&digest) {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            return Err(TreeError::Deep);
        }
        // Nobody needs to upload the empty blob, nor to fetch it.
        if digest == Digest::EMPTY {
            self.directories.insert(digest, CheckedDirectory::default());
            return Ok(());
        }
        if digest.size > DIRECTORY_BYTES_MAX {
            let why = MessageFault::Long { is: digest.size, max: DIRECTORY_BYTES_MAX };
            return Err(TreeError::Message { directory: digest, why });
        }
        self.message_bytes += digest.size;
        if self.message_bytes > MESSAGES_BYTES_MAX {
            return Err(TreeError::ManyMessages { max: MESSAGES_BYTES_MAX });
        }
        self.wanted.insert(digest, depth);
        Ok(())
    }

    /// The tree, if all its messages came and it keeps to the bounds.
    pub fn finish(self) -> Result<TreeContent, TreeError> {
        if let Some(digest) = self.wanted().next() {
            return Err(TreeError::Missing(digest));
        }
        let mut sums = Sums { directories: &self.directories, bounds: self.bounds, known: HashMap::new() };
        let totals = sums.of(self.root, 0)?;
        sums.check_links(self.root, 0, "")?;
        Ok(TreeContent { root: self.root, totals, directories: self.directories })
    }
}

/// A tree that was read whole and checked.
#[derive(Clone, Debug)]
pub struct TreeContent {
    root: Digest,
    totals: TreeTotals,
    directories: HashMap<Digest, CheckedDirectory>,
}

/// What a tree has in all. What stands at several places is counted at each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeTotals {
    /// The number of regular files.
    pub files: u64,
    /// The number of directories, without the root.
    pub directories: u64,
    /// The number of symbolic links.
    pub links: u64,
    /// The bytes of all files.
    pub bytes: u64,
    /// The bytes of all paths.
    path_bytes: u64,
    /// The bytes of the longest path.
    longest_bytes: usize,
    /// The most names that a path has.
    height: usize,
}

impl TreeContent {
    /// The digest of the root's message, by which the tree is named.
    pub fn root(&self) -> Digest {
        self.root
    }

    /// What the tree has in all.
    pub fn totals(&self) -> TreeTotals {
        self.totals
    }

    /// A directory by the digest of its message. `None` if the tree does not have it.
    pub fn directory(&self, digest: Digest) -> Option<&CheckedDirectory> {
        self.directories.get(&digest)
    }

    /// All blobs of the tree, each once: the messages of its directories and the contents of its files.
    pub fn blobs(&self) -> BTreeSet<Digest> {
        let mut blobs = self.contents();
        blobs.extend(self.directories.keys());
        blobs
    }

    /// The contents of its files, each once.
    pub fn contents(&self) -> BTreeSet<Digest> {
        let files = self.directories.values().flat_map(|directory| &directory.files);
        files.map(|file| file.digest).collect()
    }

    /// All entries with their paths, in the order of [`tree_order`].
    pub fn entries(&self) -> Vec<TreeEntry> {
        let mut entries = Vec::new();
        self.list(self.root, "", &mut entries);
        entries.sort_by(|a, b| tree_order(&a.path, &b.path));
        entries
    }

    fn list(&self, digest: Digest, path: &str, entries: &mut Vec<TreeEntry>) {
        let Some(directory) = self.directory(digest) else { return };
        for file in &directory.files {
            let kind = EntryKind::File { digest: file.digest, is_executable: file.is_executable };
            entries.push(TreeEntry { path: joined(path, &file.name), kind });
        }
        for (name, target) in &directory.links {
            let kind = EntryKind::Link { target: target.clone() };
            entries.push(TreeEntry { path: joined(path, name), kind });
        }
        for (name, below) in &directory.directories {
            let path = joined(path, name);
            self.list(*below, &path, entries);
            entries.push(TreeEntry { path, kind: EntryKind::Directory });
        }
    }
}

/// Adds up what directories have, each different one once.
struct Sums<'a> {
    directories: &'a HashMap<Digest, CheckedDirectory>,
    bounds: TreeBounds,
    known: HashMap<Digest, TreeTotals>,
}

impl<'a> Sums<'a> {
    /// A directory of the tree. All are there, because none is wanted any more.
    fn directory(&self, digest: Digest) -> Result<&'a CheckedDirectory, TreeError> {
        self.directories.get(&digest).ok_or(TreeError::Missing(digest))
    }

    /// The totals below a directory that is `depth` names below the root. It recurses at most [`DEPTH_MAX`] times.
    fn of(&mut self, digest: Digest, depth: usize) -> Result<TreeTotals, TreeError> {
        if depth > DEPTH_MAX {
            return Err(TreeError::Deep);
        }
        if let Some(known) = self.known.get(&digest) {
            return if depth + known.height > DEPTH_MAX { Err(TreeError::Deep) } else { Ok(*known) };
        }
        let directory = self.directory(digest)?;
        let mut totals = TreeTotals::default();
        for file in &directory.files {
            totals.files += 1;
            totals.bytes = totals.bytes.saturating_add(file.digest.size);
            totals.add_name(&file.name, &TreeTotals::default());
        }
        for (name, _) in &directory.links {
            totals.links += 1;
            totals.add_name(name, &TreeTotals::default());
        }
        for (name, below) in &directory.directories {
            let below = self.of(*below, depth + 1)?;
            totals.directories += 1 + below.directories;
            totals.files += below.files;
            totals.links += below.links;
            totals.bytes = totals.bytes.saturating_add(below.bytes);
            totals.add_name(name, &below);
            // Checked here, so that no sum overflows.
            totals.check(&self.bounds)?;
        }
        totals.check(&self.bounds)?;
        if depth + totals.height > DEPTH_MAX {
            return Err(TreeError::Deep);
        }
        self.known.insert(digest, totals);
        Ok(totals)
    }

    /// Checks all links at all places. Directories without links are not entered.
    fn check_links(&self, digest: Digest, depth: usize, path: &str) -> Result<(), TreeError> {
        if self.known.get(&digest).is_none_or(|totals| totals.links == 0) {
            return Ok(());
        }
        let directory = self.directory(digest)?;
        for (name, target) in &directory.links {
            check_link(depth, target).map_err(|why| TreeError::Link {
                name: joined(path, name),
                target: target.clone(),
                why,
            })?;
        }
        for (name, below) in &directory.directories {
            self.check_links(*below, depth + 1, &joined(path, name))?;
        }
        Ok(())
    }
}

impl TreeTotals {
    /// The number of files, directories and links.
    pub fn entries(&self) -> u64 {
        self.files + self.directories + self.links
    }

    /// Counts the paths of an entry with that name and of all `below` it.
    fn add_name(&mut self, name: &str, below: &TreeTotals) {
        let prefix_bytes = name.len() as u64 + 1;
        self.path_bytes += name.len() as u64 + below.path_bytes + prefix_bytes * below.entries();
        let longest = if below.height == 0 { name.len() } else { name.len() + 1 + below.longest_bytes };
        self.longest_bytes = self.longest_bytes.max(longest);
        self.height = self.height.max(1 + below.height);
    }

    fn check(&self, bounds: &TreeBounds) -> Result<(), TreeError> {
        if self.entries() > bounds.entries_max {
            return Err(TreeError::ManyEntries { max: bounds.entries_max });
        }
        if self.bytes > bounds.bytes_max {
            return Err(TreeError::ManyBytes { max: bounds.bytes_max });
        }
        if self.path_bytes > PATHS_BYTES_MAX {
            return Err(TreeError::ManyNames { max: PATHS_BYTES_MAX });
        }
        if self.longest_bytes > PATH_BYTES_MAX {
            let name = format!("a path of {} bytes", self.longest_bytes);
            return Err(TreeError::Name { name, why: NameFault::PathLong });
        }
        Ok(())
    }
}

/// Reads the tree of a root whose messages are at hand. `message` gives one by its digest, or `None` if it is missing.
pub fn read_tree(
    root: Digest,
    bounds: TreeBounds,
    message: &mut dyn FnMut(Digest) -> Result<Option<Vec<u8>>, TreeError>,
) -> Result<TreeContent, TreeError> {
    let mut reader = TreeReader::new(root, bounds)?;
    loop {
        let next = reader.wanted().next();
        let Some(digest) = next else { return reader.finish() };
        let bytes = message(digest)?.ok_or(TreeError::Missing(digest))?;
        reader.add(&bytes)?;
    }
}

/// Reads a Tree message, which has all directories of a tree. What its root does not lead to is left out.
pub fn read_tree_message(bytes: &[u8], bounds: TreeBounds) -> Result<TreeContent, TreeError> {
    if bytes.len() as u64 > MESSAGES_BYTES_MAX {
        return Err(TreeError::ManyMessages { max: MESSAGES_BYTES_MAX });
    }
    let mut root = None;
    let mut messages: HashMap<Digest, &[u8]> = HashMap::new();
    for field in Fields(bytes) {
        let (number, message) = field.map_err(TreeError::Tree)?;
        let digest = Digest::of(message);
        match number {
            1 if root.is_none() => root = Some(digest),
            2 => {}
            _ => return Err(TreeError::Tree(MessageFault::Encoding)),
        }
        messages.insert(digest, message);
        if messages.len() as u64 > bounds.entries_max.saturating_add(1) {
            return Err(TreeError::ManyEntries { max: bounds.entries_max });
        }
    }
    let root = root.ok_or(TreeError::Tree(MessageFault::NoRoot))?;
    read_tree(root, bounds, &mut |digest| Ok(messages.get(&digest).map(|message| message.to_vec())))
}
