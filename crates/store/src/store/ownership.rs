//! The list of servers, and the owner of the farm.

use super::Store;
use crate::error::StoreError;
use crate::ownership::{OwnerRow, Ownership, ServerId, ServerRow, ServerState};
use std::time::Duration;

impl Store {
    /// Enters a server into the store's list, with the key by which the signatures of its requests are checked.
    pub async fn register_server(
        &self,
        name: &str,
        addresses: &[String],
        release: &str,
        verify_key: Option<&[u8]>,
    ) -> Result<ServerId, StoreError> {
        dispatch!(self, shared register_server(name, addresses, release, verify_key), Ok(ServerId(1)))
    }

    /// Records that a server is alive, and deletes rows that servers left which are long gone.
    pub async fn server_beat(&self, server: ServerId) -> Result<ServerState, StoreError> {
        dispatch!(self, shared server_beat(server), Ok(ServerState { is_listed: true, is_draining: false }))
    }

    /// Asks the servers of that name to give up the farm and not to take it, or lets them take it again. Returns how
    /// many servers of that name the list has.
    pub async fn drain_servers(&self, name: &str, drain: bool) -> Result<usize, StoreError> {
        dispatch!(self, shared drain_servers(name, drain), Err(StoreError::NotShared))
    }

    /// Takes a server out of the list when it ends in order, releases the farm if it owns it, and deletes its requests.
    pub async fn server_leaves(&self, server: ServerId) -> Result<(), StoreError> {
        dispatch!(self, shared server_leaves(server), Ok(()))
    }

    /// The servers of a shared store, by number. Empty for a store of one server.
    pub async fn servers(&self) -> Result<Vec<ServerRow>, StoreError> {
        dispatch!(self, shared servers(), Ok(Vec::new()))
    }

    /// Takes the farm if it has no owner, or if the owner's lease has run out. `None` if another server owns it. The
    /// lease runs on the database's clock, and each commit renews it, too.
    pub async fn claim(&self, server: ServerId, lease: Duration) -> Result<Option<Ownership>, StoreError> {
        dispatch!(self, shared claim(server, lease), Ok(Some(Ownership { server, epoch: 1, batch: 0 })))
    }

    /// A handle with connections of its own, for the list of servers and the row of the owner. These must not wait
    /// while reads take all connections of the server.
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

    /// The ownership under which this handle commits; `None` for a store of one server, and for a handle that may not
    /// commit.
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
        dispatch!(self, shared renew(), Ok(()))
    }

    /// Releases the farm after the commit that runs, so that another server need not wait for the end of the lease.
    /// This handle, which must be the owner's, can commit nothing afterwards.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] if another server has the farm already.
    pub async fn release(&self) -> Result<(), StoreError> {
        dispatch!(self, shared release(), Ok(()))
    }

    /// The row of the farm's owner. `None` before the first claim, and for a store of one server.
    pub async fn owner(&self) -> Result<Option<OwnerRow>, StoreError> {
        dispatch!(self, shared owner_row(), Ok(None))
    }
}
