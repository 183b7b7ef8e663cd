//! Rows about the farm as a whole, whichever shard they are of, and of events that shards tell.

use super::rows::number_at;
use super::trouble::Trouble;
use super::{Postgres, int};
use crate::farm::{FarmWorker, SHARD_EVENTS, ShardEvents};
use crate::spec::ranges_from_json;
use crate::{StoreError, codes};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tokio_postgres::Row;
use windlass_core::ids::ShardId;
use windlass_core::ranges::RangeSet;
use windlass_core::{JobId, WorkerId};

/// How long events of shards are kept.
const EVENTS_KEPT: &str = "1 minute";

/// The code of `WorkerState::Forgotten`, as in the constraint of the names of workers.
const IS_FORGOTTEN: &str = "state = 4";

impl Postgres {
    pub(crate) async fn farm_shards(&self) -> Result<BTreeSet<ShardId>, StoreError> {
        let rows = self.client().await?.query("SELECT id FROM farm_shards", &[]).await;
        Ok(rows.map_err(Trouble::from)?.iter().map(|row| shard_at(row, 0)).collect())
    }

    pub(crate) async fn farm_worker(&self, name: &str) -> Result<Option<FarmWorker>, StoreError> {
        let sql = format!(
            "SELECT id, name, shard, {IS_FORGOTTEN} FROM workers WHERE name = $1
            ORDER BY {IS_FORGOTTEN}, id DESC LIMIT 1"
        );
        let row = self.client().await?.query_opt(&sql, &[&name]).await.map_err(Trouble::from)?;
        Ok(row.as_ref().map(worker_of))
    }

    pub(crate) async fn farm_workers(&self, ids: Vec<WorkerId>) -> Result<Vec<FarmWorker>, StoreError> {
        let ids: Vec<i64> = ids.into_iter().map(|id| int(id.0)).collect();
        let sql = format!("SELECT id, name, shard, {IS_FORGOTTEN} FROM workers WHERE id = ANY($1::bigint[])");
        let rows = self.client().await?.query(&sql, &[&ids]).await.map_err(Trouble::from)?;
        Ok(rows.iter().map(worker_of).collect())
    }

    pub(crate) async fn booked_counts(
        &self,
        tasks: Vec<(JobId, Range<u32>)>,
    ) -> Result<BTreeMap<JobId, u32>, StoreError> {
        let jobs: Vec<i64> = tasks.iter().map(|(job, _)| int(job.0)).collect();
        let (first, behind) = bounds(tasks.iter().map(|(_, range)| range.clone()));
        let sql = format!(
            "SELECT t.job, count(*) FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS v(job, first, behind)
                JOIN tasks AS t ON t.job = v.job AND t.idx >= v.first AND t.idx < v.behind
            WHERE t.state = {} GROUP BY t.job",
            codes::BOOKED
        );
        let rows = self.client().await?.query(&sql, &[&jobs, &first, &behind]).await;
        let count = |row: &Row| (JobId(number_at(row, 0)), number_at(row, 1) as u32);
        Ok(rows.map_err(Trouble::from)?.iter().map(count).collect())
    }

    pub(crate) async fn booked_tasks(&self, job: JobId, tasks: &RangeSet) -> Result<RangeSet, StoreError> {
        let (first, behind) = bounds(tasks.ranges());
        let sql = format!(
            "SELECT t.idx FROM unnest($2::bigint[], $3::bigint[]) AS v(first, behind)
                JOIN tasks AS t ON t.job = $1 AND t.idx >= v.first AND t.idx < v.behind
            WHERE t.state = {}",
            codes::BOOKED
        );
        let rows = self.client().await?.query(&sql, &[&int(job.0), &first, &behind]).await;
        let mut booked = RangeSet::default();
        for row in rows.map_err(Trouble::from)? {
            booked.insert(number_at(&row, 0) as u32);
        }
        Ok(booked)
    }

    pub(crate) async fn delegated(&self, job: JobId) -> Result<BTreeMap<ShardId, RangeSet>, StoreError> {
        let sql = "SELECT shard, tasks FROM delegated WHERE job = $1";
        let rows = self.client().await?.query(sql, &[&int(job.0)]).await.map_err(Trouble::from)?;
        let mut found = BTreeMap::new();
        for row in &rows {
            let tasks = ranges_from_json(row.get(1)).map_err(Trouble::from)?;
            found.insert(shard_at(row, 0), tasks);
        }
        Ok(found)
    }

    pub(crate) async fn tell_shard_events(&self, row: &ShardEvents) -> Result<(), StoreError> {
        // The notification leaves with the row's commit, which need not wait for the disk: whoever misses a number reads
        // all again.
        let sql = format!(
            "WITH old AS (DELETE FROM shard_events
                    WHERE shard = $1 AND created < clock_timestamp() - interval '{EVENTS_KEPT}'),
                made AS (INSERT INTO shard_events (shard, number, events) VALUES ($1, $2, $3)
                    ON CONFLICT DO NOTHING RETURNING number)
            SELECT pg_notify($4, number::text), set_config('synchronous_commit', 'off', true) FROM made"
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

/// The first task of each range, and the first one behind it.
fn bounds(ranges: impl Iterator<Item = Range<u32>>) -> (Vec<i64>, Vec<i64>) {
    ranges.map(|range| (i64::from(range.start), i64::from(range.end))).unzip()
}

fn worker_of(row: &Row) -> FarmWorker {
    FarmWorker {
        id: WorkerId(number_at(row, 0)),
        name: row.get(1),
        shard: shard_at(row, 2),
        is_forgotten: row.get(3),
    }
}

fn shard_at(row: &Row, column: usize) -> ShardId {
    ShardId(row.get::<_, i32>(column) as u32)
}
