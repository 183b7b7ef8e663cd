//! Who decides for which part of a farm. Several servers may use one PostgreSQL database. Each part of the farm, a shard,
//! has one owner at a time, and an epoch that rises with each owner. A commit of an owner that was superseded changes
//! nothing. A store in memory or in a file has one server, which owns everything.

use crate::{Store, StoreError};
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_core::ids::ShardId;

/// One run of a server, by the number that the store gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub i64);

/// That a server owns a shard. There is one value for each claim, so that two handles cannot commit under one epoch.
#[derive(PartialEq, Eq, Debug)]
pub struct Ownership {
    /// The shard.
    pub shard: ShardId,
    /// Its owner.
    pub server: ServerId,
    /// Rises with each owner of the shard.
    pub epoch: u64,
    /// Commits that the shard's row has counted so far.
    pub(crate) batch: i64,
}

/// Which of a farm's shards a server is to have. It counts where the farm is divided, for all shards but the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerShare {
    /// Its part of the shards, in proportion to the weights of the other servers. 0 is none but its pins.
    pub weight: u32,
    /// Shards that it has before other servers, while it is alive and not drained.
    pub pins: BTreeSet<ShardId>,
}

impl Default for ServerShare {
    fn default() -> Self {
        ServerShare { weight: 1, pins: BTreeSet::new() }
    }
}

/// A server that uses the store.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerRow {
    /// Its number.
    pub id: ServerId,
    /// Its name.
    pub name: String,
    /// Where clients reach it.
    pub addresses: Vec<String>,
    /// Its release of Windlass.
    pub release: String,
    /// It takes no shard, and gives up those that it has.
    pub is_draining: bool,
    /// Which shards it is to have; `None` of an earlier release, which knows of no shares.
    pub share: Option<ServerShare>,
    /// Since when it runs, by the database's clock.
    pub age: Duration,
    /// How long ago it beat last, by the database's clock.
    pub silent: Duration,
}

/// A shard and its owner.
#[derive(Clone, PartialEq, Debug)]
pub struct ShardRow {
    /// The shard.
    pub id: ShardId,
    /// Its owner; `None` once that has released it.
    pub owner: Option<ServerId>,
    /// Rises with each owner.
    pub epoch: u64,
    /// Commits of all owners.
    pub batch: u64,
    /// How long the owner has had it.
    pub age: Option<Duration>,
    /// How long until another server may take it; 0 if it may now.
    pub left: Duration,
    /// When the owner renewed its lease last, in microseconds since the Unix epoch by the database's clock. Compared with
    /// another look's, it tells whether the owner renewed meanwhile.
    pub renewed_us: i64,
}

/// What the store's list says of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerState {
    /// The list has it.
    pub is_listed: bool,
    /// Somebody asked it to give up its shards.
    pub is_draining: bool,
}

impl Store {
    /// Enters a server into the store's list, with the default share and without a key.
    pub async fn register_server(
        &self,
        name: &str,
        addresses: &[String],
        release: &str,
    ) -> Result<ServerId, StoreError> {
        self.register_server_with(name, addresses, release, &ServerShare::default(), None).await
    }

    /// As [`Store::register_server`], with a share of the shards, and with the key by which the signatures of its requests
    /// are checked.
    pub async fn register_server_with(
        &self,
        name: &str,
        addresses: &[String],
        release: &str,
        share: &ServerShare,
        verify_key: Option<&[u8]>,
    ) -> Result<ServerId, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(ServerId(1)),
            Store::Postgres(postgres) => {
                postgres.register_server(name, addresses, release, share, verify_key).await
            }
        }
    }

    /// Notes that a server is alive, and deletes what servers that are long gone have left.
    pub async fn server_beat(&self, server: ServerId) -> Result<ServerState, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(ServerState { is_listed: true, is_draining: false }),
            Store::Postgres(postgres) => postgres.server_beat(server).await,
        }
    }

    /// Asks the servers of that name to give up their shards and to take none, or to take some again. Returns how many
    /// the list has.
    pub async fn drain_servers(&self, name: &str, drain: bool) -> Result<usize, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Err(StoreError::NotShared),
            Store::Postgres(postgres) => postgres.drain_servers(name, drain).await,
        }
    }

    /// Takes a server out of the list when it ends in order, releases its shards, and deletes its requests.
    pub async fn server_leaves(&self, server: ServerId) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.server_leaves(server).await,
        }
    }

    /// The servers of a shared store, by number. Empty for a store of one server.
    pub async fn servers(&self) -> Result<Vec<ServerRow>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Vec::new()),
            Store::Postgres(postgres) => postgres.servers().await,
        }
    }

    /// Takes a shard that has no owner, or one whose owner did not renew its lease in time. `None` if another server owns
    /// it. The lease runs on the database's clock, and each commit renews it, too.
    pub async fn claim(
        &self,
        shard: ShardId,
        server: ServerId,
        lease: Duration,
    ) -> Result<Option<Ownership>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Some(Ownership { shard, server, epoch: 1, batch: 0 })),
            Store::Postgres(postgres) => postgres.claim(shard, server, lease).await,
        }
    }

    /// A handle with connections of its own, for what must not wait while reads take all connections of the server: the
    /// list of servers and the owners of shards.
    pub fn with_own_connections(&self) -> Store {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => self.clone(),
            Store::Postgres(postgres) => Store::Postgres(postgres.with_own_connections()),
        }
    }

    /// A handle that commits as an owner, and by which an engine reads what the owner's shard has. The owner of another
    /// shard than the first has connections of its own.
    pub fn as_owner(&self, ownership: Ownership) -> Store {
        match self {
            Store::Memory(memory) => Store::Memory(memory.of_shard(ownership.shard)),
            Store::Sqlite(sqlite) => Store::Sqlite(sqlite.of_shard(ownership.shard)),
            Store::Postgres(postgres) => Store::Postgres(postgres.as_owner(ownership)),
        }
    }

    /// What this handle commits as; `None` for a store of one server, and for a handle that may not commit.
    pub fn ownership(&self) -> Option<&Ownership> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => None,
            Store::Postgres(postgres) => postgres.ownership(),
        }
    }

    /// Renews the lease of an owner's handle.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] if another server has the shard.
    pub async fn renew(&self) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.renew().await,
        }
    }

    /// Gives the shard of an owner's handle back, after the commit that runs, so that another server need not wait for
    /// the end of the lease. Nothing can be committed by this handle afterwards.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] if another server has the shard already.
    pub async fn release(&self) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.release().await,
        }
    }

    /// The shards of a shared store that ever had an owner. Empty for a store of one server.
    pub async fn shards(&self) -> Result<Vec<ShardRow>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Vec::new()),
            Store::Postgres(postgres) => postgres.shards().await,
        }
    }
}
