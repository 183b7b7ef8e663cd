//! The methods that the engine uses: commits of batches, the state at the start, and later reads of jobs.

use crate::error::StoreError;
use crate::notices::Beside;
use crate::store::Store;
use crate::view::{ParkedView, Snapshot};
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::engine::{Fetch, Outbox};
use windlass_core::job::JobRecord;
use windlass_core::residency::subqueues::{ParkedCount, ParkedDrift};
use windlass_core::{JobId, Time};

impl Store {
    /// Applies the writes of a batch in one transaction. Returns the indexes of the refused writes, whose
    /// guard failed. On an error nothing is applied.
    pub async fn commit(&self, batch: Arc<Outbox>) -> Result<Vec<usize>, StoreError> {
        self.commit_with(batch, Beside::default()).await
    }

    /// As [`Store::commit`], for a batch that does requests of other servers and owes notices. The same transaction
    /// inserts a row for each, which [`Store::done_request`] and [`owed_notices`](crate::owed_notices) read. Requests about jobs of
    /// refused writes get none, and notices of ends that were refused neither. What attempts took is added to the sums of
    /// [`usage_since`](crate::usage_since), except for ends that were refused. A batch without a write does nothing, so it
    /// inserts no row. A store in a file keeps no rows of requests, because it has no other servers.
    pub async fn commit_with(
        &self,
        batch: Arc<Outbox>,
        beside: impl Into<Beside>,
    ) -> Result<Vec<usize>, StoreError> {
        let beside = beside.into();
        match self {
            Store::Memory(memory) => Ok(memory.apply_with(&batch.writes, &beside)),
            Store::Sqlite(sqlite) => sqlite.commit(batch, beside).await,
            Store::Postgres(postgres) => postgres.commit(batch, beside).await,
        }
    }

    /// The state with which an engine starts: workers, active jobs that are not parked, the counts of parked jobs, the
    /// number of the next job, the samples of the [`HISTORY_MAX`](crate::HISTORY_MAX) task profiles that were used
    /// last, queues and limits.
    pub async fn load(&self) -> Result<Snapshot, StoreError> {
        dispatch!(self, read load(), settled_reader)
    }

    /// The records of those of `ids` that exist, with empty bodies.
    pub async fn records(&self, ids: BTreeSet<JobId>) -> Result<Vec<JobRecord>, StoreError> {
        dispatch!(self, read records(&ids), settled_reader)
    }

    /// Answers an engine's fetches, in their order: a page in the order of its subqueue, jobs by id. The
    /// answers show everything that was durable before the call.
    pub async fn fetch(&self, fetches: Vec<Fetch>) -> Result<Vec<Vec<JobRecord>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(fetches.iter().map(|fetch| memory.fetch(fetch)).collect()),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.fetch(&fetches)).await,
            Store::Postgres(postgres) => Ok(postgres.settled_reader().await?.fetch(&fetches).await?),
        }
    }

    /// The counts of parked jobs by queue and class, as maintained by the writes.
    pub async fn parked_counts(&self) -> Result<Vec<ParkedCount>, StoreError> {
        dispatch!(self, read parked_counts(), settled_reader)
    }

    /// Compares these counts with the parked jobs and corrects them. Returns the counts that were wrong.
    pub async fn audit_parked(&self) -> Result<Vec<ParkedDrift>, StoreError> {
        dispatch!(self, write audit_parked())
    }

    /// A parked job, and how many parked jobs of its queue come before it. `None` if it is not parked.
    pub async fn parked(&self, id: JobId) -> Result<Option<ParkedView>, StoreError> {
        dispatch!(self, read parked(id), reader)
    }

    /// Deletes, up to about `rows` rows, jobs that ended before `before`, oldest first, the samples of task
    /// profiles that were not used since, and tokens that ended before. Returns the deleted jobs, and whether
    /// more is left to delete.
    pub async fn retain(&self, before: Time, rows: usize) -> Result<(Vec<JobId>, bool), StoreError> {
        match self {
            Store::Memory(memory) => Ok((memory.retain(before), false)),
            Store::Sqlite(sqlite) => sqlite.retain(before, rows).await,
            Store::Postgres(postgres) => postgres.retain(before, rows).await,
        }
    }

    /// Returns some of the pages that deletions left empty to the file system. True if there are more to return.
    pub async fn shrink(&self) -> Result<bool, StoreError> {
        match self {
            Store::Memory(_) | Store::Postgres(_) => Ok(false),
            Store::Sqlite(sqlite) => sqlite.shrink().await,
        }
    }
}
