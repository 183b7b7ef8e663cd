//! Trees that were read, so that the next task of the same inputs reads none.

use std::collections::VecDeque;
use std::sync::Arc;
use windlass_cas::Digest;
use windlass_cas::tree::TreeContent;

/// Trees that stay in memory, and entries of all of them: some 200 MB.
const TREES_MAX: usize = 64;
const ENTRIES_MAX: u64 = 2_000_000;

/// The tree of an attempt's inputs.
pub struct KnownTree {
    /// What its directory has.
    pub tree: TreeContent,
    /// The roots of the trees that it is the union of, each with the bytes of its files.
    pub parts: Vec<(Digest, u64)>,
}

/// Trees by the roots that they are the union of, the last used first.
#[derive(Default)]
pub struct KnownTrees(VecDeque<(Vec<Digest>, Arc<KnownTree>)>);

impl KnownTrees {
    /// The tree of these roots, if it is known.
    pub fn get(&mut self, roots: &[Digest]) -> Option<Arc<KnownTree>> {
        let at = self.0.iter().position(|(known, _)| known == roots)?;
        let found = self.0.remove(at)?;
        let tree = found.1.clone();
        self.0.push_front(found);
        Some(tree)
    }

    /// The tree of these roots, which does not count as a use of it.
    pub fn peek(&self, roots: &[Digest]) -> Option<&TreeContent> {
        self.0.iter().find(|(known, _)| known == roots).map(|(_, known)| &known.tree)
    }

    /// Keeps a tree, in the place of those that were used longest ago.
    pub fn put(&mut self, roots: Vec<Digest>, tree: Arc<KnownTree>) {
        self.0.retain(|(known, _)| *known != roots);
        self.0.push_front((roots, tree));
        while self.0.len() > 1 && (self.0.len() > TREES_MAX || self.entries() > ENTRIES_MAX) {
            self.0.pop_back();
        }
    }

    fn entries(&self) -> u64 {
        self.0.iter().map(|(_, known)| known.tree.totals().entries()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_cas::tree::{TreeBounds, union};

    #[test]
    fn so_many_trees_stay_and_the_last_used_ones() {
        let tree = union(&[], TreeBounds::default()).unwrap();
        let empty = Arc::new(KnownTree { tree, parts: Vec::new() });
        let key = |number: usize| vec![Digest::of(&number.to_le_bytes())];
        let mut known = KnownTrees::default();
        for number in 0..TREES_MAX {
            known.put(key(number), empty.clone());
        }
        assert!(known.get(&key(0)).is_some());
        known.put(key(TREES_MAX), empty.clone());
        known.put(key(TREES_MAX), empty);
        assert_eq!(known.0.len(), TREES_MAX);
        assert!(known.get(&key(0)).is_some() && known.get(&key(1)).is_none());
    }
}
