//! Rows of servers and of the owner. All times are of the database's clock, so servers need not agree on theirs.
//!
//! The table of the owner's row is called `shards`, and its only row has the number 0. An earlier release had a row for
//! each shard of a divided farm, from 1 on. A server of that release which still runs finds its row gone, and so learns
//! that it was superseded.

use super::Postgres;
use super::owner::Owner;
use super::trouble::Trouble;
use crate::codes::int;
use crate::error::StoreError;
use crate::ownership::{OwnerRow, Ownership, ServerId, ServerRow, ServerState};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

/// How long the row of a server stays without a heartbeat if it does not own the farm.
const GONE_AFTER: &str = "1 day";
/// How long a request and its answer are kept if the asking server does not delete them. An older request is not
/// served.
pub const REQUESTS_KEPT: &str = "30 minutes";
/// How long the row of a done request is kept if the asking server does not delete it. It is longer than
/// [`REQUESTS_KEPT`] and the time for which a server asks again, so no request is done twice. The row of a server that
/// has left stays as long, because its key checks the signatures.
const DONE_KEPT: &str = "1 hour";
/// How long events for other servers' clients are kept.
const EVENTS_KEPT: &str = "1 minute";
/// Old requests that one heartbeat deletes, and also rows of done requests.
const FORGET_MAX: i64 = 1_000;

/// A farm is free without an owner, after the end of its owner's lease, and for the same server. Of two servers that
/// claim it at once only one succeeds: the other waits for the row and then evaluates the condition again.
const CLAIM: &str = "INSERT INTO shards AS s (id, owner, epoch, batch, refused, lease, since, beat)
    VALUES (0, $1, 1, 0, '{}', $2::bigint * interval '1 millisecond', clock_timestamp(), clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, epoch = s.epoch + 1, batch = s.batch + 1, refused = '{}',
        lease = excluded.lease, since = clock_timestamp(), beat = clock_timestamp()
    WHERE s.owner IS NULL OR s.owner = excluded.owner OR s.beat + s.lease < clock_timestamp()
    RETURNING epoch, batch";

const OWNER: &str = "SELECT owner, epoch, batch,
        (extract(epoch FROM clock_timestamp() - since) * 1000)::bigint,
        CASE WHEN owner IS NULL THEN 0
            ELSE (greatest(extract(epoch FROM beat + lease - clock_timestamp()), 0) * 1000)::bigint END,
        (extract(epoch FROM beat) * 1000000)::bigint
    FROM shards WHERE id = 0";

impl Postgres {
    pub(crate) async fn register_server(
        &self,
        name: &str,
        addresses: &[String],
        release: &str,
        verify_key: Option<&[u8]>,
    ) -> Result<ServerId, StoreError> {
        let sql = "INSERT INTO servers (name, addresses, release, verify_key)
            VALUES ($1, $2, $3, $4) RETURNING id";
        let values: [&(dyn ToSql + Sync); 4] = [&name, &addresses, &release, &verify_key];
        let row = self.client().await?.query_one(sql, &values).await;
        Ok(ServerId(row.map_err(|e| Trouble::Sql(e).while_it("registered this server"))?.get(0)))
    }

    pub(crate) async fn server_beat(&self, server: ServerId) -> Result<ServerState, StoreError> {
        let client = self.client().await?;
        let failed = |e| Trouble::Sql(e).while_it("noted that this server is alive");
        let beat = "UPDATE servers SET beat = clock_timestamp() WHERE id = $1 AND left_at IS NULL RETURNING draining";
        let row = client.query_opt(beat, &[&server.0]).await.map_err(failed)?;
        let servers = format!(
            "DELETE FROM servers WHERE (beat < clock_timestamp() - interval '{GONE_AFTER}'
                     OR left_at < clock_timestamp() - interval '{DONE_KEPT}')
                 AND NOT EXISTS (SELECT 1 FROM shards WHERE owner = servers.id)"
        );
        let requests = format!(
            "DELETE FROM requests WHERE id IN (SELECT id FROM requests
                 WHERE created < clock_timestamp() - interval '{REQUESTS_KEPT}' ORDER BY created LIMIT {FORGET_MAX}
                 FOR UPDATE SKIP LOCKED)"
        );
        let done = format!(
            "DELETE FROM done_requests WHERE key IN (SELECT key FROM done_requests
                 WHERE created < clock_timestamp() - interval '{DONE_KEPT}' ORDER BY created LIMIT {FORGET_MAX}
                 FOR UPDATE SKIP LOCKED)"
        );
        let events = format!(
            "DELETE FROM relayed_events WHERE created < clock_timestamp() - interval '{EVENTS_KEPT}'"
        );
        client.batch_execute(&format!("{servers}; {requests}; {done}; {events}")).await.map_err(failed)?;
        Ok(ServerState { is_listed: row.is_some(), is_draining: row.is_some_and(|row| row.get(0)) })
    }

    pub(crate) async fn drain_servers(&self, name: &str, drain: bool) -> Result<usize, StoreError> {
        let sql = "UPDATE servers SET draining = $2 WHERE name = $1 AND left_at IS NULL";
        let rows = self.client().await?.execute(sql, &[&name, &drain]).await;
        Ok(rows.map_err(|e| Trouble::Sql(e).while_it("drained a server"))? as usize)
    }

    pub(crate) async fn server_leaves(&self, server: ServerId) -> Result<(), StoreError> {
        let sql = "WITH free AS (UPDATE shards SET owner = NULL WHERE owner = $1),
                asked AS (DELETE FROM requests WHERE asked_by = $1)
            UPDATE servers SET left_at = clock_timestamp() WHERE id = $1";
        let done = self.client().await?.execute(sql, &[&server.0]).await;
        done.map(|_| ()).map_err(|e| Trouble::Sql(e).while_it("took this server out of the list"))
    }

    pub(crate) async fn servers(&self) -> Result<Vec<ServerRow>, StoreError> {
        let sql = "SELECT id, name, addresses, release, draining,
                (extract(epoch FROM clock_timestamp() - started) * 1000)::bigint,
                (extract(epoch FROM clock_timestamp() - beat) * 1000)::bigint
            FROM servers WHERE left_at IS NULL ORDER BY id";
        let rows = self.client().await?.query(sql, &[]).await.map_err(Trouble::from)?;
        let server = |row: &Row| ServerRow {
            id: ServerId(row.get(0)),
            name: row.get(1),
            addresses: row.get(2),
            release: row.get(3),
            is_draining: row.get(4),
            age: ms(row.get(5)),
            silent: ms(row.get(6)),
        };
        Ok(rows.iter().map(server).collect())
    }

    pub(crate) async fn claim(
        &self,
        server: ServerId,
        lease: Duration,
    ) -> Result<Option<Ownership>, StoreError> {
        let lease_ms = lease.as_millis() as i64;
        let row = self.client().await?.query_opt(CLAIM, &[&server.0, &lease_ms]).await;
        let row = row.map_err(|e| Trouble::Sql(e).while_it("claimed the farm"))?;
        Ok(row.map(|row| {
            let epoch: i64 = row.get(0);
            Ownership { server, epoch: epoch as u64, batch: row.get(1) }
        }))
    }

    pub(crate) fn as_owner(&self, ownership: Ownership) -> Postgres {
        let (batch, database) = (ownership.batch, self.database.clone());
        let pool = database.pool.clone();
        Postgres { database, pool, owner: Some(Arc::new(Owner::new(ownership, batch))) }
    }

    pub(crate) fn ownership(&self) -> Option<&Ownership> {
        self.owner.as_ref().map(|owner| &owner.ownership)
    }

    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        let owner = self.owner.as_ref().ok_or(StoreError::NotOwner)?;
        let mut kept = owner.renewal.lock().await;
        // Taken out, so that a try that fails or is dropped does not leave a broken connection.
        let connection = match kept.take() {
            Some(connection) => connection,
            None => self.own_connection().await?,
        };
        let sql = "UPDATE shards SET beat = clock_timestamp() WHERE id = 0 AND owner = $1 AND epoch = $2";
        let done = change_owned(&connection.client, &owner.ownership, sql).await;
        if matches!(done, Ok(()) | Err(StoreError::Superseded)) {
            *kept = Some(connection);
        }
        done
    }

    pub(crate) async fn release(&self) -> Result<(), StoreError> {
        if let Some(owner) = &self.owner {
            // A commit that runs is not cut off.
            owner.disconnect().await;
        }
        let ownership = self.ownership().ok_or(StoreError::NotOwner)?;
        let sql = "UPDATE shards SET owner = NULL WHERE id = 0 AND owner = $1 AND epoch = $2";
        let client = self.client().await?;
        change_owned(&client, ownership, sql).await
    }

    pub(crate) async fn owner_row(&self) -> Result<Option<OwnerRow>, StoreError> {
        let row = self.client().await?.query_opt(OWNER, &[]).await.map_err(Trouble::from)?;
        Ok(row.map(|row| OwnerRow {
            server: row.get::<_, Option<i64>>(0).map(ServerId),
            epoch: row.get::<_, i64>(1) as u64,
            batch: row.get::<_, i64>(2) as u64,
            age: row.get::<_, Option<i64>>(3).map(ms),
            left: ms(row.get(4)),
            renewed_us: row.get(5),
        }))
    }

    /// The name of the owner whose lease has not run out; `None` if the farm is free.
    pub(crate) async fn live_owner(&self) -> Result<Option<String>, StoreError> {
        let sql = "SELECT coalesce(servers.name, shards.owner::text) FROM shards
                LEFT JOIN servers ON servers.id = shards.owner
            WHERE shards.owner IS NOT NULL AND shards.beat + shards.lease >= clock_timestamp() LIMIT 1";
        let row = self.client().await?.query_opt(sql, &[]).await.map_err(Trouble::from)?;
        Ok(row.map(|row| row.get(0)))
    }
}

async fn change_owned(client: &Client, ownership: &Ownership, sql: &str) -> Result<(), StoreError> {
    let rows = client.execute(sql, &[&ownership.server.0, &int(ownership.epoch)]).await;
    match rows.map_err(|e| Trouble::Sql(e).while_it("renewed its lease"))? {
        0 => Err(StoreError::Superseded),
        _ => Ok(()),
    }
}

fn ms(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}
