//! A tree as Directory messages: made in canonical form, and checked when they come from outside.

use std::collections::HashSet;
use std::path::PathBuf;

use prost::Message as _;

use super::error::{MessageFault, TreeError};
use super::names::{
    DEPTH_MAX, ENTRIES_MAX, LinkFault, NameFault, check_link, check_name, check_path, tree_order,
};
use crate::Digest;
use crate::proto::re;

/// Bytes of one Directory message, which has some 300,000 files then.
pub const DIRECTORY_BYTES_MAX: u64 = 32 << 20;

/// Begins the root in a Tree message: field 1, delimited by its length.
const ROOT_TAG: u8 = 0x0a;
/// Begins each other directory in a Tree message: field 2.
const CHILD_TAG: u8 = 0x12;

/// One entry of a tree, by its path from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Names divided by slashes. The directories on the way need no entries of their own.
    pub path: String,
    /// Whether it is a file, a directory or a link.
    pub kind: EntryKind,
}

/// What stands at a path of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory, which may have nothing in it.
    Directory,
    /// A regular file, by its contents.
    File {
        /// The digest of its contents.
        digest: Digest,
        /// Whether it may be executed, the only permission that trees have.
        is_executable: bool,
    },
    /// A symbolic link, which nothing follows.
    Link {
        /// Where it leads, from the directory in which it stands.
        target: String,
    },
}

/// Where the bytes of a blob are that the store may lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadFrom {
    /// An encoded Directory message, which no file holds.
    Message(Vec<u8>),
    /// A file. It may have changed since, which the store notices.
    File(PathBuf),
}

/// The messages of a tree, as they are uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedTree {
    /// The digest of the first message.
    pub root: Digest,
    /// Each different directory once, the root first and each before those that are in it.
    pub messages: Vec<(Digest, Vec<u8>)>,
}

/// Makes the messages of a tree. They depend only on what is in the tree, not on the order of `entries`.
pub fn encode(mut entries: Vec<TreeEntry>) -> Result<EncodedTree, TreeError> {
    if entries.len() as u64 > ENTRIES_MAX {
        return Err(TreeError::ManyEntries { max: ENTRIES_MAX });
    }
    entries.sort_by(|a, b| tree_order(&a.path, &b.path));
    let mut encoder = Encoder::default();
    for entry in entries {
        encoder.add(entry)?;
    }
    Ok(encoder.finish())
}

/// Makes messages of entries in order: the directories from the root to the last entry are open.
#[derive(Default)]
struct Encoder {
    root: re::Directory,
    open: Vec<(String, re::Directory)>,
    /// Each before those that have it.
    messages: Vec<(Digest, Vec<u8>)>,
    seen: HashSet<Digest>,
}

impl Encoder {
    fn add(&mut self, entry: TreeEntry) -> Result<(), TreeError> {
        let path = &entry.path;
        check_path(path).map_err(|why| TreeError::Name { name: path.clone(), why })?;
        let mut directories: Vec<&str> = path.split('/').collect();
        let name = if entry.kind == EntryKind::Directory { None } else { directories.pop() };
        let common = self.open.iter().zip(&directories).take_while(|((open, _), name)| open == *name).count();
        while self.open.len() > common {
            self.close();
        }
        for directory in &directories[common..] {
            self.check_free(directory, path)?;
            self.open.push(((*directory).to_owned(), re::Directory::default()));
        }
        let Some(name) = name else { return Ok(()) };
        self.check_free(name, path)?;
        let name = name.to_owned();
        match entry.kind {
            EntryKind::Directory => {}
            EntryKind::File { digest, is_executable } => self.last().files.push(re::FileNode {
                name,
                digest: Some(digest_message(digest)),
                is_executable,
                ..re::FileNode::default()
            }),
            EntryKind::Link { target } => {
                if let Err(why) = check_link(self.open.len(), &target) {
                    return Err(TreeError::Link { name: entry.path, target, why });
                }
                self.last().symlinks.push(re::SymlinkNode { name, target, ..re::SymlinkNode::default() });
            }
        }
        Ok(())
    }

    /// The directory that is open last.
    fn last(&mut self) -> &mut re::Directory {
        match self.open.last_mut() {
            Some((_, directory)) => directory,
            None => &mut self.root,
        }
    }

    /// Refuses a name that the last directory has. Names come in order, so it can only be the last of its kind.
    fn check_free(&mut self, name: &str, path: &str) -> Result<(), TreeError> {
        let directory = self.last();
        let is_taken = directory.files.last().is_some_and(|file| file.name == name)
            || directory.symlinks.last().is_some_and(|link| link.name == name)
            || directory.directories.last().is_some_and(|below| below.name == name);
        if is_taken { Err(TreeError::Twice(path.to_owned())) } else { Ok(()) }
    }

    fn close(&mut self) {
        if let Some((name, directory)) = self.open.pop() {
            let digest = self.put(&directory);
            let node = re::DirectoryNode { name, digest: Some(digest_message(digest)) };
            self.last().directories.push(node);
        }
    }

    fn put(&mut self, directory: &re::Directory) -> Digest {
        let bytes = directory.encode_to_vec();
        let digest = Digest::of(&bytes);
        if self.seen.insert(digest) {
            self.messages.push((digest, bytes));
        }
        digest
    }

    fn finish(mut self) -> EncodedTree {
        while !self.open.is_empty() {
            self.close();
        }
        let root = std::mem::take(&mut self.root);
        let root = self.put(&root);
        // Each directory was put before all that have it, also one that is in several places.
        self.messages.reverse();
        EncodedTree { root, messages: self.messages }
    }
}

/// The Tree message of a tree: its directories in one blob, each before those that are in it.
pub fn tree_message(tree: &EncodedTree) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, (_, message)) in tree.messages.iter().enumerate() {
        bytes.push(if at == 0 { ROOT_TAG } else { CHILD_TAG });
        prost::encode_length_delimiter(message.len(), &mut bytes).expect("a Vec takes all bytes");
        bytes.extend_from_slice(message);
    }
    bytes
}

/// A Directory message that keeps to the rules of canonical form. Its names are single segments, its links do not lead
/// above the tree by their form. Whether they lead outside depends on where the directory is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedDirectory {
    /// The files in order of their names.
    pub files: Vec<FileLeaf>,
    /// The directories in order of their names, with the digests of their messages.
    pub directories: Vec<(String, Digest)>,
    /// The links in order of their names, with their targets.
    pub links: Vec<(String, String)>,
}

/// A file of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLeaf {
    /// The name in its directory.
    pub name: String,
    /// The digest of its contents.
    pub digest: Digest,
    /// Whether it may be executed.
    pub is_executable: bool,
}

/// Reads a Directory message that anyone may have written. The first fault ends it, so a message takes memory in
/// proportion to its valid part.
pub fn check_directory(bytes: &[u8]) -> Result<CheckedDirectory, MessageFault> {
    if bytes.len() as u64 > DIRECTORY_BYTES_MAX {
        return Err(MessageFault::Long { is: bytes.len() as u64, max: DIRECTORY_BYTES_MAX });
    }
    let mut directory = CheckedDirectory::default();
    for field in Fields(bytes) {
        let (number, body) = field?;
        match number {
            1 => {
                let node = re::FileNode::decode(body).map_err(|_| MessageFault::Encoding)?;
                check_next(directory.files.last().map(|file| file.name.as_str()), &node.name)?;
                let digest = checked_digest(&node.name, node.digest.as_ref())?;
                let is_executable = node.is_executable;
                directory.files.push(FileLeaf { name: node.name, digest, is_executable });
            }
            2 => {
                let node = re::DirectoryNode::decode(body).map_err(|_| MessageFault::Encoding)?;
                check_next(directory.directories.last().map(|(name, _)| name.as_str()), &node.name)?;
                let digest = checked_digest(&node.name, node.digest.as_ref())?;
                directory.directories.push((node.name, digest));
            }
            3 => {
                let node = re::SymlinkNode::decode(body).map_err(|_| MessageFault::Encoding)?;
                check_next(directory.links.last().map(|(name, _)| name.as_str()), &node.name)?;
                let target_fault = |why: LinkFault| MessageFault::Link { name: node.name.clone(), why };
                check_link(DEPTH_MAX, &node.target).map_err(target_fault)?;
                directory.links.push((node.name, node.target));
            }
            // Properties of nodes, of which trees use none, and what later versions add.
            _ => {}
        }
    }
    check_unique(&directory)?;
    Ok(directory)
}

/// Checks a name, and that it comes after the one before it.
fn check_next(before: Option<&str>, name: &str) -> Result<(), MessageFault> {
    let fault = |why: NameFault| MessageFault::Name { name: name.to_owned(), why };
    check_name(name).map_err(fault)?;
    match before {
        Some(before) if before == name => Err(MessageFault::Twice(name.to_owned())),
        Some(before) if before > name => Err(MessageFault::Order(name.to_owned())),
        _ => Ok(()),
    }
}

/// Refuses a name that is, say, a file's and a directory's.
fn check_unique(directory: &CheckedDirectory) -> Result<(), MessageFault> {
    let files = directory.files.iter().map(|file| &file.name);
    let directories = directory.directories.iter().map(|(name, _)| name);
    let links = directory.links.iter().map(|(name, _)| name);
    let mut seen = HashSet::new();
    for name in files.chain(directories).chain(links) {
        if !seen.insert(name.as_str()) {
            return Err(MessageFault::Twice(name.clone()));
        }
    }
    Ok(())
}

/// The fields of a message, all of which must be delimited by their lengths.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(usize, &'a [u8]), MessageFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = std::mem::take(&mut self.0);
        if rest.is_empty() {
            return None;
        }
        let key = prost::decode_length_delimiter(&mut rest).ok().filter(|key| key & 7 == 2);
        let length = key.and_then(|_| prost::decode_length_delimiter(&mut rest).ok());
        let (Some(key), Some(length)) = (key, length.filter(|length| *length <= rest.len())) else {
            return Some(Err(MessageFault::Encoding));
        };
        let (body, after) = rest.split_at(length);
        self.0 = after;
        Some(Ok((key >> 3, body)))
    }
}

fn digest_message(digest: Digest) -> re::Digest {
    // No file system has a file of 2^63 bytes.
    re::Digest { hash: digest.hex(), size_bytes: i64::try_from(digest.size).unwrap_or(i64::MAX) }
}

fn checked_digest(name: &str, digest: Option<&re::Digest>) -> Result<Digest, MessageFault> {
    let read = digest.and_then(|digest| Digest::parse(&digest.hash, digest.size_bytes).ok());
    read.ok_or_else(|| MessageFault::Digest(name.to_owned()))
}
