//! Inputs that jobs need: pinned once, however many jobs need them, because a tree may have a million files.
//!
//! Properties:
//! - An input is pinned from the first job that needs it until none does.
//! - A user names only what that user has uploaded: the messages of directories are read when it is known that the user has
//!   them, and what they name is asked for in the same way.
//! - While an input is pinned nothing of it goes, so a user who had all of it once has it still.

use super::error::FilesTrouble;
use super::names::{InputKey, PINNED};
use crate::cas::SpaceBlobs;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_cas::tree::{TreeBounds, TreeContent, TreeReader};
use windlass_cas::{Cas, Digest, Space};

/// Users who are known to have all of an input. What others have is looked up again.
const HOLDERS_MAX: usize = 100;
/// Bytes of a file that is a cache key of its own.
pub(super) const KEY_BYTES_MIN: u64 = 16 << 20;

/// What an input is, in all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct InputFacts {
    pub files: u64,
    pub bytes: u64,
    /// Its files of [`KEY_BYTES_MIN`] and more.
    pub large: BTreeSet<Digest>,
}

/// Who asks for an input: a user, or the server for a job that it has taken.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    /// Whose uploads count; `None` if all that is there does.
    pub user: Option<&'a str>,
    /// What it is, for people.
    pub what: &'a str,
}

/// The inputs that jobs need.
#[derive(Default)]
pub(super) struct PinnedInputs(Mutex<BTreeMap<InputKey, NeededInput>>);

#[derive(Default)]
struct NeededInput {
    /// Jobs, and submissions under way, that need it.
    count: usize,
    pinned: Arc<Mutex<PinnedInput>>,
}

/// Locked while the input is looked through, so that submissions of the same one wait for each other and for no others.
#[derive(Default)]
struct PinnedInput {
    is_pinned: bool,
    facts: Option<InputFacts>,
    held_by: BTreeSet<String>,
}

impl PinnedInputs {
    /// Needs an input once more. It is pinned when this returns, unless the error says why not.
    pub fn need(
        &self,
        blobs: &SpaceBlobs,
        key: InputKey,
        asker: Asker<'_>,
    ) -> Result<InputFacts, FilesTrouble> {
        let pinned = {
            let mut all = self.0.lock();
            let needed = all.entry(key).or_default();
            needed.count += 1;
            needed.pinned.clone()
        };
        let taken = pinned.lock().take(blobs, key, asker);
        if taken.is_err() {
            self.release(&blobs.cas, key)?;
        }
        taken
    }

    /// Notes that a job of before needs an input, whose pins an earlier process has left.
    pub fn restore(&self, key: InputKey) {
        let mut all = self.0.lock();
        let needed = all.entry(key).or_default();
        needed.count += 1;
        needed.pinned.lock().is_pinned = true;
    }

    /// An input is needed once less. The last one unpins it.
    pub fn release(&self, cas: &Cas, key: InputKey) -> Result<(), FilesTrouble> {
        let mut all = self.0.lock();
        let Some(needed) = all.get_mut(&key) else { return Ok(()) };
        needed.count -= 1;
        if needed.count > 0 {
            return Ok(());
        }
        // No other call has the lock: one that does is of a job that needs the input.
        let is_pinned = needed.pinned.lock().is_pinned;
        all.remove(&key);
        // Others wait meanwhile, so that none of them pins what this unpins.
        if is_pinned { Ok(cas.unpin(&key.owner())?) } else { Ok(()) }
    }

    /// Unpins what no job needs: an earlier process ended between two steps.
    pub fn drop_others(&self, cas: &Cas) -> Result<(), FilesTrouble> {
        let all = self.0.lock();
        for kind in PINNED {
            for name in cas.owners(kind)? {
                let owner = format!("{kind}{name}");
                let is_needed = InputKey::parse(&owner).is_some_and(|key| all.contains_key(&key));
                if !is_needed {
                    cas.unpin(&owner)?;
                }
            }
        }
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl PinnedInput {
    fn take(
        &mut self,
        blobs: &SpaceBlobs,
        key: InputKey,
        asker: Asker<'_>,
    ) -> Result<InputFacts, FilesTrouble> {
        let is_held = asker.user.is_none_or(|user| self.held_by.contains(user));
        if let Some(facts) = self.facts.as_ref().filter(|_| self.is_pinned && is_held) {
            return Ok(facts.clone());
        }
        let (facts, all) = look(blobs, key, asker)?;
        if !self.is_pinned {
            let owner = key.owner();
            let missing = blobs.cas.pin(Space::Jobs, &owner, &all)?;
            if !missing.is_empty() {
                blobs.cas.unpin(&owner)?;
                return Err(FilesTrouble::NotUploaded { what: asker.what.to_owned(), missing });
            }
            self.is_pinned = true;
        }
        self.facts = Some(facts.clone());
        if let Some(user) = asker.user.filter(|_| self.held_by.len() < HOLDERS_MAX) {
            self.held_by.insert(user.to_owned());
        }
        Ok(facts)
    }
}

/// Looks through an input. All of it is there, and the user has it.
pub(super) fn look(
    blobs: &SpaceBlobs,
    key: InputKey,
    asker: Asker<'_>,
) -> Result<(InputFacts, Vec<Digest>), FilesTrouble> {
    let (facts, all) = match key {
        InputKey::Blob(digest) => {
            let large = if digest.size >= KEY_BYTES_MIN { BTreeSet::from([digest]) } else { BTreeSet::new() };
            (InputFacts { files: 1, bytes: digest.size, large }, vec![digest])
        }
        InputKey::Tree(root) => {
            let tree = read_tree(blobs, root, asker)?;
            let all = tree.blobs();
            let large =
                all.iter().filter(|blob| blob.size >= KEY_BYTES_MIN && tree.directory(**blob).is_none());
            let totals = tree.totals();
            let facts =
                InputFacts { files: totals.files, bytes: totals.bytes, large: large.copied().collect() };
            (facts, all.into_iter().collect())
        }
    };
    asker.check(blobs, &all)?;
    Ok((facts, all))
}

/// Reads the directories of a tree, one level after the other. Those that the user has not are missing.
pub(super) fn read_tree(
    blobs: &SpaceBlobs,
    root: Digest,
    asker: Asker<'_>,
) -> Result<TreeContent, FilesTrouble> {
    let tree = |source| FilesTrouble::Tree { what: asker.what.to_owned(), source };
    let mut reader = TreeReader::new(root, TreeBounds::default()).map_err(tree)?;
    loop {
        let wanted: Vec<Digest> = reader.wanted().collect();
        if wanted.is_empty() {
            return reader.finish().map_err(tree);
        }
        asker.check(blobs, &wanted)?;
        for digest in wanted {
            let message = blobs.read(digest)?.ok_or_else(|| asker.missing(vec![digest]))?.into_bytes()?;
            reader.add(&message).map_err(tree)?;
        }
    }
}

impl Asker<'_> {
    /// Refuses what is missing for who asks.
    fn check(self, blobs: &SpaceBlobs, digests: &[Digest]) -> Result<(), FilesTrouble> {
        let missing = match self.user {
            Some(user) => blobs.cas.missing_of(user, digests, blobs.now_ms),
            None => blobs.missing(digests),
        };
        if missing.is_empty() { Ok(()) } else { Err(self.missing(missing)) }
    }

    fn missing(self, missing: Vec<Digest>) -> FilesTrouble {
        FilesTrouble::NotUploaded { what: self.what.to_owned(), missing }
    }
}
