//! What the servers of a farm that is divided into shards must know of it, and the events that its shards tell. A store in
//! memory or in a file has one server and one shard.

use crate::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use windlass_core::ids::ShardId;
use windlass_core::ranges::RangeSet;
use windlass_core::{JobId, WorkerId};

/// The channel on which messages between shards are told; the payload has the numbers of the receivers, with commas.
pub const MAIL: &str = "windlass_mail";
/// The channel on which events of shards are told.
pub const SHARD_EVENTS: &str = "windlass_shard_events";

/// A worker, whichever shard it is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FarmWorker {
    /// Its number.
    pub id: WorkerId,
    /// Its name.
    pub name: String,
    /// Its shard.
    pub shard: ShardId,
    /// It was forgotten: by an operator, or because it went to another shard.
    pub is_forgotten: bool,
}

/// Events of a shard, as its owner wrote them together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardEvents {
    /// Whose.
    pub shard: ShardId,
    /// Rises by one with each row of an owner, and by more with another owner.
    pub number: i64,
    /// The events.
    pub events: String,
}

impl Store {
    /// The shards of a farm that is divided. Empty for one that is not.
    pub async fn farm_shards(&self) -> Result<BTreeSet<ShardId>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(BTreeSet::new()),
            Store::Postgres(postgres) => postgres.farm_shards().await,
        }
    }

    /// The worker of that name. Of several, which have gone from shard to shard, the one that is not forgotten, or else the
    /// newest. `None` if no shard has one.
    pub async fn farm_worker(&self, name: &str) -> Result<Option<FarmWorker>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(None),
            Store::Postgres(postgres) => postgres.farm_worker(name).await,
        }
    }

    /// Those of these workers that the farm has.
    pub async fn farm_workers(&self, ids: Vec<WorkerId>) -> Result<Vec<FarmWorker>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Vec::new()),
            Store::Postgres(postgres) => postgres.farm_workers(ids).await,
        }
    }

    /// How many of these tasks are booked or run, by job; no job of which none is. A task that another shard has is among
    /// them from the batch that books it to the batch that ends it.
    pub async fn booked_counts(
        &self,
        tasks: Vec<(JobId, Range<u32>)>,
    ) -> Result<BTreeMap<JobId, u32>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(BTreeMap::new()),
            Store::Postgres(postgres) => postgres.booked_counts(tasks).await,
        }
    }

    /// Those of these tasks of a job that are booked or run.
    pub async fn booked_tasks(&self, job: JobId, tasks: &RangeSet) -> Result<RangeSet, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(RangeSet::default()),
            Store::Postgres(postgres) => postgres.booked_tasks(job, tasks).await,
        }
    }

    /// The tasks of a job that are with other shards than its home, or on their way there or back.
    pub async fn delegated(&self, job: JobId) -> Result<BTreeMap<ShardId, RangeSet>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(BTreeMap::new()),
            Store::Postgres(postgres) => postgres.delegated(job).await,
        }
    }

    /// Leaves events of a shard for the owner of the first one, and tells of it on [`SHARD_EVENTS`]. They are kept for a
    /// minute, and may be lost where the database itself ends: the next row's number shows that.
    pub async fn tell_shard_events(&self, row: ShardEvents) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.tell_shard_events(&row).await,
        }
    }

    /// Up to `limit` rows of events of all shards, those of each shard by number: those with higher numbers than `after` has
    /// for their shard.
    pub async fn shard_events(
        &self,
        after: &BTreeMap<ShardId, i64>,
        limit: usize,
    ) -> Result<Vec<ShardEvents>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Vec::new()),
            Store::Postgres(postgres) => postgres.shard_events(after, limit).await,
        }
    }

    /// The number of the last row of events of each shard that has some.
    pub async fn last_shard_events(&self) -> Result<BTreeMap<ShardId, i64>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(BTreeMap::new()),
            Store::Postgres(postgres) => postgres.last_shard_events().await,
        }
    }
}
