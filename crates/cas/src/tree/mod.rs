//! Trees of files: the inputs of a task from the user's machine to the task's directory, and its outputs back.
//!
//! A tree is named by the digest of its root, which is a Directory message of the Remote Execution API. That message
//! names files by the digests of their contents and directories by the digests of their messages, so two trees with
//! the same root are the same tree.
//!
//! The way of a tree: [`scan()`] lists files, [`hash_files`] gives their digests, [`encode`] makes the messages, and
//! what the store lacks is uploaded. A worker reads the messages by a [`TreeReader`], which believes nothing, and makes
//! the files with `materialise`. After the task, `collect` lists what it made, and `remove` removes the directory.
//! Those three need Linux.

mod directory;
mod error;
mod globs;
mod hash;
mod known;
mod names;
mod parallel;
mod read;
mod scan;
mod stamp;
mod union;

#[cfg(target_os = "linux")]
mod beneath;
#[cfg(target_os = "linux")]
mod collect;
#[cfg(target_os = "linux")]
mod materialise;
#[cfg(target_os = "linux")]
mod remove;

pub use directory::{
    CheckedDirectory, DIRECTORY_BYTES_MAX, EncodedTree, EntryKind, FileLeaf, TreeEntry, UploadFrom,
    check_directory, encode, tree_message,
};
pub use error::{MessageFault, SKIPPED_MAX, Skip, SkipReason, Skips, TreeError};
pub use globs::{GLOBS_MAX, PATTERN_BYTES_MAX, PathGlobs};
pub use hash::{HASH_THREADS_MAX, Hashed, hash_files};
pub use known::{KNOWN_KEPT_MS, KNOWN_MAX, KnownDigests};
pub use names::{
    DEPTH_MAX, ENTRIES_MAX, LINK_BYTES_MAX, LinkFault, NAME_BYTES_MAX, NameFault, PATH_BYTES_MAX,
    TREE_BYTES_MAX, TreeBounds, check_link, check_name, check_path, folded, tree_order,
};
pub use read::{
    MESSAGES_BYTES_MAX, PATHS_BYTES_MAX, TreeContent, TreeReader, TreeTotals, read_tree, read_tree_message,
};
pub use scan::{INPUTS_MAX, Scan, ScanOptions, ScannedFile, ScannedLink, TreeInput, scan};
pub use stamp::{FileStamp, RACY_MS};
pub use union::{tree_of, union};

#[cfg(target_os = "linux")]
pub use collect::{Collected, CollectedDirectory, CollectedTree, collect, collect_tree};
#[cfg(target_os = "linux")]
pub use materialise::{BlobSource, MaterialiseOptions, Materialised, TreeOwner, materialise};
#[cfg(target_os = "linux")]
pub use remove::remove_below;
