//! The store of a server, and the lease under which it decides for a farm whose store other servers may use, too.

use anyhow::Context as _;
use std::time::Duration;
use tokio::task::JoinHandle;
use windlass_store::{ServerId, Store, StoreError, WHOLE_FARM};

/// How long a server may be silent before another one may take the farm.
const LEASE: Duration = Duration::from_secs(10);
/// How often the lease is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// How long a new server waits for the end of the lease of one that died.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// How often it asks meanwhile.
const CLAIM_EVERY: Duration = Duration::from_millis(250);

/// An open store that this process may commit to.
pub struct OwnStore {
    pub store: Store,
    /// This server's number, and the task that renews its lease; `None` for a store that no other server can use.
    lease: Option<(ServerId, JoinHandle<()>)>,
}

impl OwnStore {
    /// Opens a store. Of one that several servers can use, it claims the whole farm. `name` and `addresses` are what other
    /// servers are told.
    pub async fn open(address: &str, name: &str, addresses: &[String]) -> anyhow::Result<OwnStore> {
        let store = Store::connect(address).await?;
        if !matches!(store, Store::Postgres(_)) {
            return Ok(OwnStore { store, lease: None });
        }
        let server = store.register_server(name, addresses, env!("CARGO_PKG_VERSION")).await?;
        let owner = match claim(&store, server, address).await {
            Ok(owner) => owner,
            Err(error) => {
                _ = store.server_leaves(server).await;
                return Err(error);
            }
        };
        let renewal = tokio::spawn(renew(owner.clone(), server));
        Ok(OwnStore { store: owner, lease: Some((server, renewal)) })
    }

    /// Gives the farm back when the server has stopped, so that the next one need not wait.
    pub async fn close(self) {
        let Some((server, renewal)) = self.lease else { return };
        renewal.abort();
        if let Err(error) = self.store.release().await {
            tracing::warn!("the lease was not given back: {error}");
        }
        _ = self.store.server_leaves(server).await;
    }
}

async fn claim(store: &Store, server: ServerId, address: &str) -> anyhow::Result<Store> {
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    let mut is_told = false;
    loop {
        if let Some(ownership) = store.claim(WHOLE_FARM, server, LEASE).await? {
            return Ok(store.as_owner(ownership));
        }
        let by = owner_name(store).await.context("cannot read who owns the farm")?;
        if tokio::time::Instant::now() >= deadline {
            let database = windlass_store::shown_address(address);
            return Err(StoreError::Owned { database, by }.into());
        }
        if !is_told {
            tracing::info!("the server '{by}' owns the farm; waiting for the end of its lease");
            is_told = true;
        }
        tokio::time::sleep(CLAIM_EVERY).await;
    }
}

async fn owner_name(store: &Store) -> Result<String, StoreError> {
    let owner =
        store.shards().await?.into_iter().find(|shard| shard.id == WHOLE_FARM).and_then(|shard| shard.owner);
    let servers = store.servers().await?;
    let found = servers.into_iter().find(|server| Some(server.id) == owner);
    Ok(found.map_or_else(|| "unknown".to_owned(), |server| server.name))
}

/// Renews the lease. A server that was superseded must not go on: it would answer from what it believes.
async fn renew(owner: Store, server: ServerId) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        match owner.renew().await {
            Err(error @ StoreError::Superseded { .. }) => {
                tracing::error!("{error}; this server ends, and running tasks go on");
                std::process::exit(1);
            }
            // Commits say so, too, and go on when the database is back.
            Err(error) => tracing::warn!("the lease was not renewed: {error}"),
            Ok(()) => _ = owner.server_beat(server).await,
        }
    }
}
