//! The connections of this server to a database: two pools, and connections beside them.

use super::address::Target;
use super::tls::TlsDialer;
use super::trouble;
use crate::error::StoreError;
use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, RecyclingMethod};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};

/// Connections of a server's pool, for reads and for writes that are not the engine's.
pub const POOL_MAX: usize = 8;
/// Connections of the pool for the list of servers and for the row of the owner. One task reads these all the time,
/// while other tasks write heartbeats and claims.
pub const LIST_POOL_MAX: usize = 2;
/// Connections of one server at most: the two pools', one for commits, one that renews the lease, one each that listens
/// for requests and for answers, and one that migrates at the start.
pub const CONNECTIONS_MAX: usize = POOL_MAX + LIST_POOL_MAX + 5;
/// How long a connection of the pool is waited for.
pub const POOL_WAIT: Duration = Duration::from_secs(30);
/// Statements find rows by key. Plans for large tables would be kept for small ones and the other way round, and a
/// table that has just grown has no statistics. A commit that was answered is on disk, whatever the database's default
/// is.
const SESSION: &str =
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off;
    SET plan_cache_mode = force_generic_plan; SET default_transaction_isolation = 'read committed';
    SET statement_timeout = 0; SET idle_in_transaction_session_timeout = '60s';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// What all handles of a store share.
pub struct Database {
    pub target: Target,
    /// The runtime that drives the connections. A caller of the store may have a runtime of its own, or be busy.
    pub runtime: Handle,
    pub pool: Pool,
    pub id: i64,
    pub statements: AtomicU64,
}

impl Target {
    /// A connection of its own, with the session's settings. It ends when its task is aborted or the client dropped.
    pub async fn connect(&self, runtime: &Handle) -> Result<(Client, JoinHandle<()>), StoreError> {
        let dialing = runtime.spawn(dial(self.config.clone(), self.tls.clone()));
        let dialled = dialing.await.map_err(|_| StoreError::Closed)?;
        dialled.map_err(|error| trouble::connecting(error, &self.shown, CONNECTIONS_MAX))
    }
}

/// Connects on the runtime that it is called on, which also drives the connection.
async fn dial(config: Config, tls: TlsDialer) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let (client, connection) = config.connect(tls).await?;
    // The error that ends a connection is also the error of the query that waits on it.
    let driver = tokio::spawn(async move { _ = connection.await });
    client.batch_execute(SESSION).await?;
    Ok((client, driver))
}

/// How the pool makes a connection.
struct PoolDialer {
    tls: TlsDialer,
    runtime: Handle,
}

impl Connect for PoolDialer {
    fn connect(
        &self,
        config: &Config,
    ) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        let dialing = self.runtime.spawn(dial(config.clone(), self.tls.clone()));
        async move {
            match dialing.await {
                Ok(dialled) => dialled,
                // The runtime ends, and with it everything that could wait for this.
                Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }
}

impl Database {
    /// A pool whose users do not wait for those of the server's pool.
    pub fn another_pool(&self, max: usize) -> Pool {
        // The first pool was built in the same way. Building connects to nothing.
        pool(&self.target, &self.runtime, max).unwrap_or_else(|_| self.pool.clone())
    }

    pub fn did_not_answer(&self) -> StoreError {
        let source = "it did not answer in time".into();
        StoreError::Unreachable { database: self.target.shown.clone(), source }
    }
}

/// A pool of at most `max` connections. Building it connects to nothing.
pub fn pool(target: &Target, runtime: &Handle, max: usize) -> Result<Pool, StoreError> {
    // Each connection is tried before it is used, so reads go on after the database was restarted.
    let config = ManagerConfig { recycling_method: RecyclingMethod::Verified };
    let dialer = PoolDialer { tls: target.tls.clone(), runtime: runtime.clone() };
    let manager = Manager::from_connect(target.config.clone(), dialer, config);
    let built = Pool::builder(manager)
        .max_size(max)
        .runtime(deadpool_postgres::Runtime::Tokio1)
        .wait_timeout(Some(POOL_WAIT))
        .create_timeout(Some(POOL_WAIT))
        .recycle_timeout(Some(POOL_WAIT))
        .build();
    built.map_err(|e| StoreError::Setting(e.to_string()))
}

/// A connection beside the pool. It ends with the value, and with it a transaction that was not committed.
pub(crate) struct OwnConnection {
    pub client: Client,
    driver: JoinHandle<()>,
}

impl OwnConnection {
    pub async fn new(database: &Database) -> Result<OwnConnection, StoreError> {
        let (client, driver) = database.target.connect(&database.runtime).await?;
        Ok(OwnConnection { client, driver })
    }
}

impl Drop for OwnConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
