//! Which server decides. Several servers may use one PostgreSQL database, and one of them owns the farm at a time. An epoch
//! rises with each owner. A commit of an owner that was superseded changes nothing. A store in memory or in a file has one
//! server, which owns it.

use crate::{Store, StoreError};
use std::time::Duration;

/// One run of a server, by the number that the store gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub i64);

/// That a server owns the farm. There is one value for each claim, so that two handles cannot commit under one epoch.
#[derive(PartialEq, Eq, Debug)]
pub struct Ownership {
    /// The owner.
    pub server: ServerId,
    /// Rises with each owner.
    pub epoch: u64,
    /// Commits that the owner's row has counted so far.
    pub(crate) batch: i64,
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
    /// It does not take the farm, and gives it up if another server can take it.
    pub is_draining: bool,
    /// Since when it runs, by the database's clock.
    pub age: Duration,
    /// How long ago it beat last, by the database's clock.
    pub silent: Duration,
}

/// The row of the farm's owner.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnerRow {
    /// The owner; `None` once it has released the farm.
    pub server: Option<ServerId>,
    /// Rises with each owner.
    pub epoch: u64,
    /// Commits of all owners.
    pub batch: u64,
    /// How long the owner has had the farm; `None` before the first owner.
    pub age: Option<Duration>,
    /// How long until another server may take the farm; 0 if it may now.
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
    /// An administrator asked it to give up the farm.
    pub is_draining: bool,
}

impl Store {
    /// Enters a server into the store's list, with the key by which the signatures of its requests are checked.
    pub async fn register_server(
        &self,
        name: &str,
        addresses: &[String],
        release: &str,
        verify_key: Option<&[u8]>,
    ) -> Result<ServerId, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(ServerId(1)),
            Store::Postgres(postgres) => postgres.register_server(name, addresses, release, verify_key).await,
        }
    }

    /// Notes that a server is alive, and deletes what servers that are long gone have left.
    pub async fn server_beat(&self, server: ServerId) -> Result<ServerState, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(ServerState { is_listed: true, is_draining: false }),
            Store::Postgres(postgres) => postgres.server_beat(server).await,
        }
    }

    /// Asks the servers of that name to give up the farm and not to take it, or lets them take it again. Returns how many
    /// servers of that name the list has.
    pub async fn drain_servers(&self, name: &str, drain: bool) -> Result<usize, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Err(StoreError::NotShared),
            Store::Postgres(postgres) => postgres.drain_servers(name, drain).await,
        }
    }

    /// Takes a server out of the list when it ends in order, releases the farm if it owns it, and deletes its requests.
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

    /// Takes the farm if it has no owner, or one that did not renew its lease in time. `None` if another server owns it. The
    /// lease runs on the database's clock, and each commit renews it, too.
    pub async fn claim(&self, server: ServerId, lease: Duration) -> Result<Option<Ownership>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Some(Ownership { server, epoch: 1, batch: 0 })),
            Store::Postgres(postgres) => postgres.claim(server, lease).await,
        }
    }

    /// A handle with connections of its own, for what must not wait while reads take all connections of the server: the
    /// list of servers and the row of the owner.
    pub fn with_own_connections(&self) -> Store {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => self.clone(),
            Store::Postgres(postgres) => Store::Postgres(postgres.with_own_connections()),
        }
    }

    /// A handle that commits as the owner.
    pub fn as_owner(&self, ownership: Ownership) -> Store {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => self.clone(),
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
    /// [`StoreError::Superseded`] if another server has the farm.
    pub async fn renew(&self) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.renew().await,
        }
    }

    /// Gives the farm back by its owner's handle, after the commit that runs, so that another server need not wait for the
    /// end of the lease. Nothing can be committed by this handle afterwards.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] if another server has the farm already.
    pub async fn release(&self) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.release().await,
        }
    }

    /// The row of the farm's owner. `None` before the first claim, and for a store of one server.
    pub async fn owner(&self) -> Result<Option<OwnerRow>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(None),
            Store::Postgres(postgres) => postgres.owner_row().await,
        }
    }
}
