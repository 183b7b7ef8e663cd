//! Rows about the farm as a whole, whichever shard they are of, and of events that shards tell.

use super::rows::number_at;
use super::trouble::Trouble;
use super::{Postgres, int};
use crate::StoreError;
use crate::farm::{FarmWorker, SHARD_EVENTS, ShardEvents};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Row;
use windlass_core::WorkerId;
use windlass_core::ids::ShardId;

/// How long events of shards are kept.
const EVENTS_KEPT: &str = "1 minute";

impl Postgres {
    pub(crate) async fn farm_shards(&self) -> Result<BTreeSet<ShardId>, StoreError> {
        let rows = self.client().await?.query("SELECT id FROM farm_shards", &[]).await;
        Ok(rows.map_err(Trouble::from)?.iter().map(|row| shard_at(row, 0)).collect())
    }

    pub(crate) async fn shard_of_worker(&self, name: &str) -> Result<Option<ShardId>, StoreError> {
        let sql = "SELECT shard FROM workers WHERE name = $1";
        let row = self.client().await?.query_opt(sql, &[&name]).await.map_err(Trouble::from)?;
        Ok(row.map(|row| shard_at(&row, 0)))
    }

    pub(crate) async fn farm_workers(&self, ids: Vec<WorkerId>) -> Result<Vec<FarmWorker>, StoreError> {
        let ids: Vec<i64> = ids.into_iter().map(|id| int(id.0)).collect();
        let sql = "SELECT id, name, shard FROM workers WHERE id = ANY($1::bigint[])";
        let rows = self.client().await?.query(sql, &[&ids]).await.map_err(Trouble::from)?;
        let worker = |row: &Row| FarmWorker {
            id: WorkerId(number_at(row, 0)),
            name: row.get(1),
            shard: shard_at(row, 2),
        };
        Ok(rows.iter().map(worker).collect())
    }

    pub(crate) async fn tell_shard_events(&self, row: &ShardEvents) -> Result<(), StoreError> {
        // The notification leaves with the row's commit.
        let sql = format!(
            "WITH old AS (DELETE FROM shard_events
                    WHERE shard = $1 AND created < clock_timestamp() - interval '{EVENTS_KEPT}'),
                made AS (INSERT INTO shard_events (shard, number, events) VALUES ($1, $2, $3)
                    ON CONFLICT DO NOTHING RETURNING number)
            SELECT pg_notify($4, number::text) FROM made"
        );
        let ShardEvents { shard, number, events } = row;
        let client = self.client().await?;
        let done = client.query(&sql, &[&(shard.0 as i32), number, events, &SHARD_EVENTS]).await;
        done.map(|_| ()).map_err(|e| Trouble::Sql(e).while_it("told other servers what happened"))
    }

    pub(crate) async fn shard_events(
        &self,
        after: &BTreeMap<ShardId, i64>,
        limit: usize,
    ) -> Result<Vec<ShardEvents>, StoreError> {
        let shards: Vec<i32> = after.keys().map(|shard| shard.0 as i32).collect();
        let numbers: Vec<i64> = after.values().copied().collect();
        let sql = "SELECT e.shard, e.number, e.events FROM shard_events AS e
                LEFT JOIN unnest($1::integer[], $2::bigint[]) AS a(shard, number) ON a.shard = e.shard
            WHERE e.number > coalesce(a.number, 0) ORDER BY e.shard, e.number LIMIT $3";
        let rows = self.client().await?.query(sql, &[&shards, &numbers, &(limit as i64)]).await;
        let events =
            |row: &Row| ShardEvents { shard: shard_at(row, 0), number: row.get(1), events: row.get(2) };
        Ok(rows.map_err(Trouble::from)?.iter().map(events).collect())
    }

    pub(crate) async fn last_shard_events(&self) -> Result<BTreeMap<ShardId, i64>, StoreError> {
        let sql = "SELECT shard, max(number) FROM shard_events GROUP BY shard";
        let rows = self.client().await?.query(sql, &[]).await.map_err(Trouble::from)?;
        Ok(rows.iter().map(|row| (shard_at(row, 0), row.get(1))).collect())
    }
}

fn shard_at(row: &Row, column: usize) -> ShardId {
    ShardId(row.get::<_, i32>(column) as u32)
}
