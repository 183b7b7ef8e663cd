//! The schema of a database, and the number that the database got with it.

use super::join;
use super::trouble::Trouble;
use crate::error::StoreError;
use tokio_postgres::Client;

mod embedded {
    refinery::embed_migrations!("src/postgres/migrations");
}

/// How long a server waits for another one that migrates the schema.
const MIGRATION_WAIT: &str = "120s";
/// The schema from which on a farm is never divided.
const ONE_ENGINE_SINCE: i32 = 10;
/// The advisory lock under which the schema is changed: the letters `windlass`.
const MIGRATION_LOCK: i64 = 0x7769_6e64_6c61_7373;

/// Brings the schema up to date. Servers that start together do it one after the other.
pub async fn migrate(client: &mut Client, shown: &str) -> Result<(), StoreError> {
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
pub async fn own_number(client: &Client) -> Result<i64, tokio_postgres::Error> {
    let make = "INSERT INTO meta VALUES ('store_id', (random() * 9223372036854775000)::bigint) ON CONFLICT DO NOTHING";
    client.execute(make, &[]).await?;
    Ok(client.query_one("SELECT value FROM meta WHERE key = 'store_id'", &[]).await?.get(0))
}
