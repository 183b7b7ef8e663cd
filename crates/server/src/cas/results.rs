//! Results of actions, and values of keys, which are kept in the same way.
//!
//! A result is given only while all blobs that it names are there. Looking for them is a use of them, so that they stay
//! for a while: clients fetch them later.

use super::blobs::{BlobStore, SpaceBlobs};
use super::names::{BadName, InstanceName};
use super::trouble::CacheTrouble;
use prost::Message as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Semaphore;
use windlass_cas::Digest;
use windlass_cas::proto::re::{ActionResult, Digest as DigestMessage, Directory, OutputFile, Tree};

/// Bytes of a result, as it is encoded.
pub(super) const RESULT_BYTES_MAX: usize = (4 << 20) - 1;
/// Blobs that a result may name, those in trees included.
const NAMED_MAX: usize = 500_000;
/// Bytes of one tree, and of one directory, that a result names.
const TREE_BYTES_MAX: u64 = 16 << 20;
pub(super) const DIRECTORY_BYTES_MAX: u64 = 4 << 20;
/// Results with trees that are looked through at a time, and the memory that they take: messages of small strings take
/// twice as much in memory as encoded.
const TREES_MAX: usize = 2;
pub(super) const TREES_BYTES_MAX: usize = TREES_MAX * 3 * TREE_BYTES_MAX as usize;

/// The first byte of what the store keeps: a result follows, or there is none any more.
const IS_RESULT: u8 = 1;
const IS_GONE: u8 = 0;

/// Results, by the instance and the hash of the action. Clients of plain HTTP do not know the size of an action's digest.
#[derive(Clone)]
pub(super) struct ActionResults {
    store: BlobStore,
    trees: Arc<Semaphore>,
}

/// A digest of a message.
pub(super) fn digest_of(message: &DigestMessage) -> Result<Digest, BadName> {
    Ok(Digest::parse(&message.hash, message.size_bytes)?)
}

/// A digest that a message must have.
pub(super) fn digest_in(message: Option<&DigestMessage>) -> Result<Digest, BadName> {
    digest_of(message.ok_or(BadName::NoDigest)?)
}

pub(super) fn message_of(digest: Digest) -> DigestMessage {
    DigestMessage { hash: digest.hex(), size_bytes: digest.size as i64 }
}

fn key_of(hash: [u8; 32]) -> Digest {
    Digest { hash, size: 0 }
}

impl ActionResults {
    pub fn new(store: BlobStore) -> ActionResults {
        ActionResults { store, trees: Arc::new(Semaphore::new(TREES_MAX)) }
    }

    /// The result of an action, as it was written. `None` if there is none, or if a blob that it names is missing.
    pub async fn get(
        &self,
        instance: &InstanceName,
        action: [u8; 32],
    ) -> Result<Option<ActionResult>, CacheTrouble> {
        self.complete(instance.as_str().to_owned(), key_of(action)).await
    }

    /// Writes a result in the place of an earlier one.
    pub async fn set(
        &self,
        instance: &InstanceName,
        action: [u8; 32],
        result: &ActionResult,
    ) -> Result<(), CacheTrouble> {
        check(result)?;
        self.keep(instance.as_str().to_owned(), key_of(action), result).await
    }

    /// The blob that is the value of a key. `None` if there is none.
    pub async fn value(&self, instance: &InstanceName, key: &str) -> Result<Option<Digest>, CacheTrouble> {
        let found = self.complete(instance.of_keys(), Digest::of(key.as_bytes())).await?;
        let file = found.as_ref().and_then(|result| result.output_files.first());
        Ok(file.map(|file| digest_in(file.digest.as_ref())).transpose()?)
    }

    /// Makes a blob that is there the value of a key. Without one, the key has no value any more.
    pub async fn set_value(
        &self,
        instance: &InstanceName,
        key: &str,
        value: Option<Digest>,
    ) -> Result<(), CacheTrouble> {
        let name = Digest::of(key.as_bytes());
        let Some(digest) = value else {
            let instance = instance.of_keys();
            return self.store.with(move |blobs| blobs.set_action(&instance, name, &[IS_GONE])).await;
        };
        let file =
            OutputFile { path: key.to_owned(), digest: Some(message_of(digest)), ..OutputFile::default() };
        let result = ActionResult { output_files: vec![file], ..ActionResult::default() };
        self.keep(instance.of_keys(), name, &result).await
    }

    async fn keep(&self, instance: String, key: Digest, result: &ActionResult) -> Result<(), CacheTrouble> {
        if result.encoded_len() > RESULT_BYTES_MAX {
            return Err(CacheTrouble::TooLarge(RESULT_BYTES_MAX as u64));
        }
        let mut kept = vec![IS_RESULT];
        result.encode(&mut kept).expect("a vector grows");
        self.store.with(move |blobs| blobs.set_action(&instance, key, &kept)).await
    }

    async fn complete(&self, instance: String, key: Digest) -> Result<Option<ActionResult>, CacheTrouble> {
        let read = self.store.with(move |blobs| {
            let kept = blobs.action(&instance, key)?;
            // What cannot be read was kept by another release.
            let result = kept.as_deref().and_then(|kept| match kept.split_first() {
                Some((&IS_RESULT, result)) => ActionResult::decode(result).ok(),
                _ => None,
            });
            Ok(result.filter(|result| has_files(blobs, result)))
        });
        let Some(result) = read.await? else { return Ok(None) };
        if result.output_directories.is_empty() {
            return Ok(Some(result));
        }
        // Nobody closes the semaphore.
        let turn = self.trees.clone().acquire_owned().await;
        self.store
            .with(move |blobs| {
                let _turn = turn;
                Ok(has_directories(blobs, &result)?.then_some(result))
            })
            .await
    }
}

/// Refuses a result with digests that are none.
fn check(result: &ActionResult) -> Result<(), BadName> {
    let files = result.output_files.iter().map(|file| digest_in(file.digest.as_ref()));
    let trees = result
        .output_directories
        .iter()
        .flat_map(|directory| [directory.tree_digest.as_ref(), directory.root_directory_digest.as_ref()]);
    let others = trees.chain([result.stdout_digest.as_ref(), result.stderr_digest.as_ref()]);
    files.chain(others.flatten().map(digest_of)).try_for_each(|digest| digest.map(|_| ()))
}

/// Whether the blobs are there that a result names itself.
fn has_files(blobs: &SpaceBlobs, result: &ActionResult) -> bool {
    let files = result.output_files.iter().map(|file| file.digest.as_ref());
    let output =
        [result.stdout_digest.as_ref(), result.stderr_digest.as_ref()].into_iter().filter(Option::is_some);
    let digests: Option<Vec<Digest>> = files.chain(output).map(|digest| digest_in(digest).ok()).collect();
    digests.is_some_and(|digests| blobs.missing(&digests).is_empty())
}

/// Whether the directories of a result are there, with all that is in them.
fn has_directories(blobs: &SpaceBlobs, result: &ActionResult) -> Result<bool, CacheTrouble> {
    let mut left = NAMED_MAX;
    for output in &result.output_directories {
        if let Some(tree) = &output.tree_digest
            && !has_tree(blobs, tree, &mut left)?
        {
            return Ok(false);
        }
        if let Some(root) = &output.root_directory_digest
            && !has_root(blobs, root, &mut left)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_tree(blobs: &SpaceBlobs, tree: &DigestMessage, left: &mut usize) -> Result<bool, CacheTrouble> {
    let Ok(digest) = digest_of(tree) else { return Ok(false) };
    let Some(bytes) = blobs.read_small(digest, TREE_BYTES_MAX)? else { return Ok(false) };
    let Ok(tree) = Tree::decode(&bytes[..]) else { return Ok(false) };
    let mut all = tree.root.iter().chain(&tree.children);
    Ok(all.all(|directory| has_files_of(blobs, directory, left)))
}

fn has_root(blobs: &SpaceBlobs, root: &DigestMessage, left: &mut usize) -> Result<bool, CacheTrouble> {
    let Ok(root) = digest_of(root) else { return Ok(false) };
    let (mut open, mut seen) = (vec![root], BTreeSet::from([root]));
    while let Some(digest) = open.pop() {
        let Some(directory) = read_directory(blobs, digest)? else { return Ok(false) };
        if !has_files_of(blobs, &directory, left) {
            return Ok(false);
        }
        for node in &directory.directories {
            let Ok(below) = digest_in(node.digest.as_ref()) else { return Ok(false) };
            if seen.insert(below) {
                open.push(below);
            }
        }
        if seen.len() > NAMED_MAX {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_files_of(blobs: &SpaceBlobs, directory: &Directory, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(directory.files.len()) else { return false };
    *left = rest;
    let digests: Option<Vec<Digest>> =
        directory.files.iter().map(|file| digest_in(file.digest.as_ref()).ok()).collect();
    digests.is_some_and(|digests| blobs.missing(&digests).is_empty())
}

/// A directory; `None` if it is missing, or not a directory.
pub(super) fn read_directory(blobs: &SpaceBlobs, digest: Digest) -> Result<Option<Directory>, CacheTrouble> {
    let bytes = blobs.read_small(digest, DIRECTORY_BYTES_MAX)?;
    Ok(bytes.and_then(|bytes| Directory::decode(&bytes[..]).ok()))
}
