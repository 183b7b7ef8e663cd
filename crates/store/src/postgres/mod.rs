//! The store that several servers share: a PostgreSQL database. A pool of connections serves reads, and the writes that
//! are not the engine's. The owner of the farm commits its batches on a connection of its own, in `commit`. Migrations
//! are numbered and never edited, not even in a comment: a database stores the checksum of each migration's text.

mod address;
mod attempt;
mod binding;
mod columns;
mod commit;
mod foreign;
mod join;
mod listen;
mod mailbox;
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

pub use address::{weakness, without_secrets};
pub use tls::TlsDialer;
pub(crate) use trouble::Trouble;

use crate::error::StoreError;
use address::{Secrets, Target};
use commit::Owner;
use deadpool_postgres::{Connect, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};

mod embedded {
    refinery::embed_migrations!("src/postgres/migrations");
}

/// Connections of a server's pool, for reads and for writes that are not the engine's.
const POOL_MAX: usize = 8;
/// Connections of the pool for the list of servers and for the row of the owner. One task reads these all the time,
/// while other tasks write heartbeats and claims.
const LIST_POOL_MAX: usize = 2;
/// Connections of one server at most: the two pools', one for commits, one that renews the lease, one each that listens
/// for requests and for answers, and one that migrates at the start.
const CONNECTIONS_MAX: usize = POOL_MAX + LIST_POOL_MAX + 5;
/// How long a connection of the pool is waited for.
const POOL_WAIT: Duration = Duration::from_secs(30);
/// How long a server waits for another one that migrates the schema.
const MIGRATION_WAIT: &str = "120s";
/// The schema from which on a farm is never divided.
const ONE_ENGINE_SINCE: i32 = 10;
/// The advisory lock under which the schema is changed: the letters `windlass`.
const MIGRATION_LOCK: i64 = 0x7769_6e64_6c61_7373;
/// Statements find rows by key. Plans for large tables would be kept for small ones and the other way round, and a
/// table that has just grown has no statistics. A commit that was answered is on disk, whatever the database's default
/// is.
const SESSION: &str =
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off;
    SET plan_cache_mode = force_generic_plan; SET default_transaction_isolation = 'read committed';
    SET statement_timeout = 0; SET idle_in_transaction_session_timeout = '60s';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// An open PostgreSQL store. Clones share it.
#[derive(Clone)]
pub struct Postgres {
    database: Arc<Database>,
    /// Where this handle gets connections.
    pool: Pool,
    /// What this handle may commit; `None` for a handle that only reads.
    owner: Option<Arc<Owner>>,
}

struct Database {
    target: Target,
    /// The runtime that drives the connections. A caller of the store may have a runtime of its own, or be busy.
    runtime: Handle,
    pool: Pool,
    id: i64,
    /// Statements that commits have run.
    statements: AtomicU64,
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

    /// A connection of the pool.
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

impl Target {
    /// A connection of its own, with the session's settings. It ends when its task is aborted or the client dropped.
    async fn connect(&self, runtime: &Handle) -> Result<(Client, JoinHandle<()>), StoreError> {
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
    fn another_pool(&self, max: usize) -> Pool {
        // The first pool was built in the same way. Building connects to nothing.
        pool(&self.target, &self.runtime, max).unwrap_or_else(|_| self.pool.clone())
    }

    fn did_not_answer(&self) -> StoreError {
        let source = "it did not answer in time".into();
        StoreError::Unreachable { database: self.target.shown.clone(), source }
    }
}

fn pool(target: &Target, runtime: &Handle, max: usize) -> Result<Pool, StoreError> {
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

impl Drop for OwnConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Postgres {
    pub(crate) async fn own_connection(&self) -> Result<OwnConnection, StoreError> {
        let (client, driver) = self.database.target.connect(&self.database.runtime).await?;
        Ok(OwnConnection { client, driver })
    }
}

/// Brings the schema up to date. Servers that start together do it one after the other.
async fn migrate(client: &mut Client, shown: &str) -> Result<(), StoreError> {
    let runner = embedded::migrations::runner().set_abort_missing(false);
    let known = runner.get_migrations().iter().map(|m| m.version()).max().unwrap_or(0);
    let sql = |error| Trouble::Sql(error).while_it("prepared the schema");
    let lock = format!("SET lock_timeout = '{MIGRATION_WAIT}'; SELECT pg_advisory_lock({MIGRATION_LOCK})");
    client.batch_execute(&lock).await.map_err(sql)?;
    let table = "SELECT to_regclass('refinery_schema_history') IS NOT NULL";
    let exists: bool = client.query_one(table, &[]).await.map_err(sql)?.get(0);
    // PostgreSQL says a cause of its own only in the source.
    let failed = |error: refinery::Error| StoreError::Database {
        doing: "changed the schema",
        source: causes(&error).into(),
    };
    if exists {
        let newest = "SELECT coalesce(max(version), 0)::int FROM refinery_schema_history";
        let found: i32 = client.query_one(newest, &[]).await.map_err(sql)?.get(0);
        if known == found {
            return Ok(());
        }
        if found > known {
            return Err(StoreError::Newer { store: shown.to_owned(), found, known });
        }
        if found < ONE_ENGINE_SINCE {
            // The last schema with shards holds the facts from which the missing writes of their engines follow.
            let divided = embedded::migrations::runner().set_abort_missing(false);
            let divided = divided.set_target(refinery::Target::Version(ONE_ENGINE_SINCE - 1));
            divided.run_async(client).await.map_err(failed)?;
            join::join(client).await?;
        }
    }
    runner.run_async(client).await.map(|_| ()).map_err(failed)
}

fn causes(error: &dyn std::error::Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}

/// The random number that the database got when it was created.
async fn own_number(client: &Client) -> Result<i64, tokio_postgres::Error> {
    let make = "INSERT INTO meta VALUES ('store_id', (random() * 9223372036854775000)::bigint) ON CONFLICT DO NOTHING";
    client.execute(make, &[]).await?;
    Ok(client.query_one("SELECT value FROM meta WHERE key = 'store_id'", &[]).await?.get(0))
}

/// A parameter: the values of one column.
type Column<'a> = Box<dyn tokio_postgres::types::ToSql + Sync + Send + 'a>;

/// PostgreSQL's texts have no NUL.
fn text(from: &str) -> std::borrow::Cow<'_, str> {
    match from.contains('\0') {
        true => from.replace('\0', "\u{fffd}").into(),
        false => from.into(),
    }
}
