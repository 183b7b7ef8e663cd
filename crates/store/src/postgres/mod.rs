//! The store that several servers share: a PostgreSQL database. A pool of connections serves reads, and the writes that
//! are not the engine's. The owner of the farm commits its batches on a connection of its own, in `commit`. Migrations
//! are numbered and never edited, not even in a comment: a database stores the checksum of each migration's text.

mod address;
mod attempt;
mod binding;
mod column;
mod columns;
mod commit;
mod database;
mod foreign;
mod join;
mod listen;
mod mailbox;
mod migrate;
mod notices;
mod owed;
mod owner;
mod ownership;
mod parked;
mod plan;
mod read;
mod retain;
mod rows;
mod settings;
mod statements;
mod tls;
mod tokens;
mod trouble;
mod turns;
mod usage;
mod used;

pub use address::{weakness, without_secrets};
pub use tls::TlsDialer;
pub(crate) use trouble::Trouble;

use crate::error::StoreError;
use address::{Secrets, Target};
use column::text;
use database::{CONNECTIONS_MAX, Database, LIST_POOL_MAX, OwnConnection, POOL_MAX, POOL_WAIT, pool};
use deadpool_postgres::{Object, Pool, PoolError};
use migrate::{migrate, own_number};
use owner::Owner;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Handle;

/// An open PostgreSQL store. Clones share it.
#[derive(Clone)]
pub struct Postgres {
    database: Arc<Database>,
    /// Where this handle gets connections.
    pool: Pool,
    /// What this handle may commit; `None` for a handle that only reads.
    owner: Option<Arc<Owner>>,
}

impl Postgres {
    /// Connects, and migrates the schema under a lock that other servers wait for.
    pub async fn connect(address: &str) -> Result<Postgres, StoreError> {
        Self::connect_with(Target::parse(address, &Secrets::of_environment())?).await
    }

    async fn connect_with(target: Target) -> Result<Postgres, StoreError> {
        let runtime = Handle::current();
        let (mut client, connection) = target.connect(&runtime).await?;
        let migrated = migrate(&mut client, &target.shown).await;
        let id = match migrated {
            Ok(()) => own_number(&client).await.map_err(|e| Trouble::from(e).while_it("read its number")),
            Err(error) => Err(error),
        };
        connection.abort();
        let pool = pool(&target, &runtime, POOL_MAX)?;
        let database =
            Database { pool: pool.clone(), runtime, id: id?, statements: AtomicU64::new(0), target };
        Ok(Postgres { database: Arc::new(database), pool, owner: None })
    }

    pub(crate) fn with_own_connections(&self) -> Postgres {
        Postgres { pool: self.database.another_pool(LIST_POOL_MAX), ..self.clone() }
    }

    pub(crate) fn id(&self) -> i64 {
        self.database.id
    }

    /// Hosts and database, without user and password.
    pub(crate) fn shown(&self) -> &str {
        &self.database.target.shown
    }

    /// SQL statements that commits of all handles of this store have run, `BEGIN` and `COMMIT` among them.
    pub fn statements(&self) -> u64 {
        self.database.statements.load(Ordering::Relaxed)
    }

    pub(crate) async fn own_connection(&self) -> Result<OwnConnection, StoreError> {
        OwnConnection::new(&self.database).await
    }

    async fn client(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => trouble::connecting(error, self.shown(), CONNECTIONS_MAX),
            PoolError::Timeout(_) => StoreError::Busy {
                database: self.shown().to_owned(),
                connections: self.pool.status().max_size,
                seconds: POOL_WAIT.as_secs(),
            },
            _ => StoreError::Closed,
        })
    }
}
