//! What the servers of this process know of the shards of their farm: which there are, which of them have their engine
//! here, and who owns the others.

use super::KnownOwner;
use super::rendezvous;
use crate::handle::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::ids::ShardId;
use windlass_core::tags::Attributes;
use windlass_store::ServerShare;

/// The shards of a farm; cheap to clone, and all clones know the same. A farm that is not divided has none.
#[derive(Clone, Default)]
pub struct FarmShards {
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    shards: BTreeSet<ShardId>,
    own: BTreeMap<ShardId, Handle>,
    owners: BTreeMap<ShardId, KnownOwner>,
    workers_may_move: bool,
}

impl FarmShards {
    /// There are these shards, besides those that were there before.
    pub fn add_shards(&self, shards: BTreeSet<ShardId>) {
        self.lock().shards.extend(shards);
    }

    /// Sets who owns which shard, as far as this process knows.
    pub fn set_owners(&self, owners: BTreeMap<ShardId, KnownOwner>) {
        self.lock().owners = owners;
    }

    /// A shard has its engine in this process from now on.
    pub fn begin(&self, shard: ShardId, handle: Handle) {
        self.lock().own.insert(shard, handle);
    }

    /// A shard has its engine elsewhere from now on.
    pub fn end(&self, shard: ShardId) {
        let mut known = self.lock();
        known.own.remove(&shard);
        known.owners.remove(&shard);
    }

    /// Sets whether workers may go to the shard to which they belong: not while some server is of a release that does not
    /// find them after that.
    pub fn let_workers_move(&self, may_move: bool) {
        self.lock().workers_may_move = may_move;
    }

    /// Whether workers may go to the shard to which they belong.
    pub(crate) fn workers_may_move(&self) -> bool {
        self.lock().workers_may_move
    }

    /// True if there is more than one shard.
    pub fn is_divided(&self) -> bool {
        self.lock().shards.len() > 1
    }

    /// All shards.
    pub(crate) fn shards(&self) -> BTreeSet<ShardId> {
        self.lock().shards.clone()
    }

    /// The shard of a worker that has none yet.
    pub(crate) fn of_worker(&self, name: &str, attributes: &Attributes) -> ShardId {
        rendezvous::shard_of_worker(name, attributes, &self.lock().shards)
    }

    /// The servers to which the shards belong, but for the first. `servers` are those that may own some.
    pub fn spread(&self, servers: &BTreeMap<String, ServerShare>) -> BTreeMap<ShardId, String> {
        rendezvous::spread(&self.lock().shards, servers)
    }

    /// The way to a shard's engine, if it is in this process.
    pub(crate) fn handle(&self, shard: ShardId) -> Option<Handle> {
        self.lock().own.get(&shard).cloned()
    }

    /// The ways to all engines in this process, by shard.
    pub(crate) fn handles(&self) -> BTreeMap<ShardId, Handle> {
        self.lock().own.clone()
    }

    /// Who owns a shard, as far as this process knows.
    pub(crate) fn owner(&self, shard: ShardId) -> Option<KnownOwner> {
        self.lock().owners.get(&shard).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for FarmShards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FarmShards")
    }
}
