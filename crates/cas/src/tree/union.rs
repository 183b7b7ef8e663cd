//! Several trees in one.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};

use super::directory::{EntryKind, TreeEntry, encode};
use super::error::TreeError;
use super::names::TreeBounds;
use super::read::{TreeContent, read_tree};
use crate::Digest;

/// The tree that has all that these have. What stands at one path of several must be the same in each, or a directory.
pub fn union(trees: &[&TreeContent], bounds: TreeBounds) -> Result<TreeContent, TreeError> {
    let mut all: BTreeMap<String, (EntryKind, Digest)> = BTreeMap::new();
    for tree in trees {
        let root = tree.root();
        for TreeEntry { path, kind } in tree.entries() {
            match all.entry(path) {
                Entry::Vacant(place) => _ = place.insert((kind, root)),
                Entry::Occupied(there) if there.get().0 == kind => {}
                Entry::Occupied(there) => {
                    let roots = Box::new([there.get().1, root]);
                    return Err(TreeError::Conflict { path: there.key().clone(), roots });
                }
            }
        }
        if all.len() as u64 > bounds.entries_max {
            return Err(TreeError::ManyEntries { max: bounds.entries_max });
        }
    }
    tree_of(all.into_iter().map(|(path, (kind, _))| TreeEntry { path, kind }).collect(), bounds)
}

/// The tree with these entries.
pub fn tree_of(entries: Vec<TreeEntry>, bounds: TreeBounds) -> Result<TreeContent, TreeError> {
    let encoded = encode(entries)?;
    let messages: HashMap<Digest, Vec<u8>> = encoded.messages.into_iter().collect();
    read_tree(encoded.root, bounds, &mut |digest| Ok(messages.get(&digest).cloned()))
}
