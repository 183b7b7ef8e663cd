//! Names in trees: which are allowed, in which order they stand, and how far links reach.
//!
//! A name comes from a user's disk or from a message that anyone may have written, and ends as an argument of a system
//! call on a worker. What these functions let through stays inside the directory in which the tree is made.

use std::cmp::Ordering;

use unicode_normalization::UnicodeNormalization;

/// Bytes of one name, the limit of Linux' file systems.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a path inside a tree. Linux takes 4,095 for a whole path, and the directory of the task needs some.
pub const PATH_BYTES_MAX: usize = 3_500;
/// Bytes of a link's target, the limit of Linux.
pub const LINK_BYTES_MAX: usize = 4_095;
/// Names in a path inside a tree. Reading and making a tree recurse this deep, with one open directory a level.
pub const DEPTH_MAX: usize = 100;
/// Files, directories and links of a tree, each counted wherever it stands.
pub const ENTRIES_MAX: u64 = 1_000_000;
/// Bytes of all files of a tree: 16 TiB.
pub const TREE_BYTES_MAX: u64 = 16 << 40;

/// What a tree may have. The defaults are the most that this version handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeBounds {
    /// Files, directories and links, at most [`ENTRIES_MAX`].
    pub entries_max: u64,
    /// Bytes of all files together, each counted wherever it stands.
    pub bytes_max: u64,
}

impl Default for TreeBounds {
    fn default() -> TreeBounds {
        TreeBounds { entries_max: ENTRIES_MAX, bytes_max: TREE_BYTES_MAX }
    }
}

/// Why a path cannot be one of a tree.
#[allow(missing_docs, reason = "the messages say what the variants are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    #[error("a name in it is empty")]
    Empty,
    #[error("it begins with '/'")]
    Absolute,
    #[error("'.' and '..' cannot be names")]
    Dots,
    #[error("a name cannot have '/' in it")]
    Slash,
    #[error("a name cannot have a NUL byte in it")]
    Nul,
    #[error("a name in it has more than {} bytes", NAME_BYTES_MAX)]
    Long,
    #[error("it has more than {} bytes", PATH_BYTES_MAX)]
    PathLong,
    #[error("it has more than {} names", DEPTH_MAX)]
    Deep,
}

/// Why a link cannot be one of a tree.
#[allow(missing_docs, reason = "the messages say what the variants are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    #[error("its target is empty")]
    Empty,
    #[error("its target is absolute, and a worker has other files there")]
    Absolute,
    #[error("its target is outside of the tree")]
    Outside,
    #[error("its target has '..' after a name, which may lead outside through another link")]
    DotsAfterName,
    #[error("its target has a NUL byte in it")]
    Nul,
    #[error("its target has more than {} bytes", LINK_BYTES_MAX)]
    Long,
}

/// Checks one name: a single segment that no file system takes for another directory.
pub fn check_name(name: &str) -> Result<(), NameFault> {
    if name.is_empty() {
        return Err(NameFault::Empty);
    }
    if name == "." || name == ".." {
        return Err(NameFault::Dots);
    }
    if name.contains('/') {
        return Err(NameFault::Slash);
    }
    if name.contains('\0') {
        return Err(NameFault::Nul);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameFault::Long);
    }
    Ok(())
}

/// Checks a path inside a tree: names divided by single slashes, without one at either end.
pub fn check_path(path: &str) -> Result<(), NameFault> {
    if path.starts_with('/') {
        return Err(NameFault::Absolute);
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(NameFault::PathLong);
    }
    if depth_of(path) > DEPTH_MAX {
        return Err(NameFault::Deep);
    }
    path.split('/').try_for_each(check_name)
}

/// Checks the target of a link that stands in a directory `depth` names below the root.
///
/// 1. Only the leading `..` of a target go up, and at most to the root. They go up from a directory of the tree,
///    because the kernel follows a link from the directory in which it really stands.
/// 2. What follows them goes down, perhaps through other links, of which the same holds.
///
/// So nothing that starts inside the tree ends outside. A `..` after a name would break 1: the name may be a link to a
/// place less deep than its own.
pub fn check_link(depth: usize, target: &str) -> Result<(), LinkFault> {
    if target.is_empty() {
        return Err(LinkFault::Empty);
    }
    if target.contains('\0') {
        return Err(LinkFault::Nul);
    }
    if target.len() > LINK_BYTES_MAX {
        return Err(LinkFault::Long);
    }
    if target.starts_with('/') {
        return Err(LinkFault::Absolute);
    }
    let (mut up, mut has_name) = (0, false);
    for segment in target.split('/') {
        match segment {
            "" | "." => {}
            ".." if has_name => return Err(LinkFault::DotsAfterName),
            ".." => up += 1,
            _ => has_name = true,
        }
    }
    if up > depth { Err(LinkFault::Outside) } else { Ok(()) }
}

/// The number of names in a path inside a tree. The root, whose path is empty, has none.
pub(super) fn depth_of(path: &str) -> usize {
    if path.is_empty() { 0 } else { path.split('/').count() }
}

/// The path of a name in a directory; the root's path is empty.
pub(super) fn joined(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// The order of paths in a tree: a directory comes before what it has, and that comes before the next name. Inside a
/// directory it is the order of the names' bytes.
pub fn tree_order(a: &str, b: &str) -> Ordering {
    // No name has a NUL byte, so a slash counts less than whatever continues a name.
    let weight = |byte: u8| if byte == b'/' { 0 } else { byte };
    a.bytes().map(weight).cmp(b.bytes().map(weight))
}

/// The form of a path in which two paths are equal that a file system may take for one: without case, and with accents
/// written in one way.
pub fn folded(path: &str) -> String {
    if path.is_ascii() {
        return path.to_ascii_lowercase();
    }
    path.nfd().flat_map(char::to_lowercase).nfc().collect()
}
