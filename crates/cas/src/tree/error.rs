//! What goes wrong with trees, and what is left out of them.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use super::names::{DEPTH_MAX, LinkFault, NameFault};
use crate::Digest;

/// Entries that were left out and are named. Further ones are counted.
pub const SKIPPED_MAX: usize = 1_000;

/// Why a tree cannot be scanned, encoded, read, made or collected.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("cannot {doing} '{}'", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot list the files of '{}'", path.display())]
    List { path: PathBuf, source: ignore::Error },
    #[error("{is} inputs are too many: at most {max}; name a directory or use a pattern")]
    ManyInputs { is: usize, max: usize },
    #[error("'{}' has no name in the tree; give one by PATH=NAME", .0.display())]
    NoName(PathBuf),
    #[error("{0:?} is not valid UTF-8, and workers could not name it; rename it")]
    NotUnicode(PathBuf),
    #[error("'{name}' cannot be a path in a tree: {why}")]
    Name { name: String, why: NameFault },
    #[error(
        "the link '{name}' to '{target}' cannot be in a tree: {why}; leave it out, or name what it leads to"
    )]
    Link { name: String, target: String, why: LinkFault },
    #[error("'{}' is neither a file nor a directory; name a file or a directory", .0.display())]
    NotRegular(PathBuf),
    #[error("nothing matches '{0}'; ignore files may leave out what you mean")]
    NoMatch(String),
    #[error("'{pattern}' cannot be a pattern: {why}")]
    Pattern { pattern: String, why: String },
    #[error("{is} patterns are too many: at most {max}")]
    ManyPatterns { is: usize, max: usize },
    #[error(
        "'{}' and '{}' would both be '{name}'; name one of them otherwise by PATH=NAME",
        first.display(), second.display()
    )]
    Duplicate { name: String, first: PathBuf, second: PathBuf },
    #[error("'{0}' is twice in the tree, perhaps as a file and as a directory")]
    Twice(String),
    #[error(
        "'{first}' and '{second}' are one name on file systems that ignore case or accents; rename one of them"
    )]
    Collision { first: String, second: String },
    #[error(
        "'{path}' is in the trees {} and {}, and is not the same in both; let one step make it, or name it otherwise \
         in one of them", .roots[0], .roots[1]
    )]
    Conflict { path: String, roots: Box<[Digest; 2]> },
    #[error("'{}' changed while it was read; wait until nothing writes to it", .0.display())]
    Changed(PathBuf),
    #[error(
        "the tree has more than {max} files, directories and links; leave some out, or pack them into an archive"
    )]
    ManyEntries { max: u64 },
    #[error("the files of the tree have more than {max} bytes together")]
    ManyBytes { max: u64 },
    #[error("the paths of the tree have more than {max} bytes together; use shorter names")]
    ManyNames { max: u64 },
    #[error("the messages of the tree have more than {max} bytes together")]
    ManyMessages { max: u64 },
    #[error("the tree is more than {} directories deep", DEPTH_MAX)]
    Deep,
    #[error("the directory {directory} of the tree is damaged: {why}")]
    Message { directory: Digest, why: MessageFault },
    #[error("the message of the tree is damaged: {0}")]
    Tree(MessageFault),
    #[error("{0} is a directory that the tree does not need now")]
    Unasked(Digest),
    #[error("{0} is not in the store; upload it again")]
    Missing(Digest),
    #[error("cannot read {digest} from the store")]
    Store { digest: Digest, source: Box<dyn Error + Send + Sync> },
    #[error(
        "'{}' should have the bytes of {digest} and is not a file of that size; remove it from the cache",
        path.display()
    )]
    Blob { digest: Digest, path: PathBuf },
}

/// Why a Directory or Tree message is refused.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Debug, thiserror::Error)]
pub enum MessageFault {
    #[error("it is not encoded as one")]
    Encoding,
    #[error("it has no root")]
    NoRoot,
    #[error("it has {is} bytes, more than the limit of {max}")]
    Long { is: u64, max: u64 },
    #[error("the name '{name}' in it is not allowed: {why}")]
    Name { name: String, why: NameFault },
    #[error("the name '{0}' in it is not in order")]
    Order(String),
    #[error("the name '{0}' is in it twice")]
    Twice(String),
    #[error("'{0}' in it has no valid digest")]
    Digest(String),
    #[error("the link '{name}' in it is not allowed: {why}")]
    Link { name: String, why: LinkFault },
}

/// What was left out, each with its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skips {
    /// At most [`SKIPPED_MAX`] of them.
    pub named: Vec<Skip>,
    /// The number of those that are not named.
    pub more: usize,
}

/// One entry that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The path in the tree. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Why it is not in the tree.
    pub why: SkipReason,
}

/// Why an entry was left out.
#[allow(missing_docs, reason = "the messages say what the variants are")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    #[error("it is a socket, a pipe or a device")]
    NotRegular,
    #[error("its name or its target is not valid UTF-8")]
    NotUnicode,
    #[error("{0}")]
    Name(NameFault),
    #[error("{0}")]
    Link(LinkFault),
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("it changed while it was read, so a process still writes to it")]
    Changed,
    #[error("it belongs to another user than the task's, and not everyone may read it")]
    Foreign,
}

impl Skips {
    pub(super) fn push(&mut self, path: String, why: SkipReason) {
        if self.named.len() < SKIPPED_MAX {
            self.named.push(Skip { path, why });
        } else {
            self.more += 1;
        }
    }
}
