//! What users ask of a store: jobs, tasks, attempts and what they run.

use crate::view::{AttemptView, EndedJob, EndedTotals, JobFilter, JobView, JobsPart, StoredTask};
use crate::{Store, StoreError};
use std::ops::Range;
use std::sync::Arc;
use windlass_core::{JobId, TaskId};

/// Bodies by job and by the step's index in it.
pub type StepBodies = Vec<((JobId, u16), Arc<[u8]>)>;

impl Store {
    /// One job, with empty bodies.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.job(id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.job(id)).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.job(id).await?),
        }
    }

    /// The job that `user` submitted under the idempotency key `key`.
    pub async fn job_by_key(&self, user: String, key: String) -> Result<Option<JobId>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.job_by_key(&user, &key)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.job_by_key(&user, &key)).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.job_by_key(&user, &key).await?),
        }
    }

    /// Number of a user's jobs, including ended ones, and the bytes of their specs and bodies.
    pub async fn user_totals(&self, user: String) -> Result<(u64, u64), StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.user_totals(&user)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.user_totals(&user)).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.user_totals(&user).await?),
        }
    }

    /// Number of jobs by the state in which they ended. It is kept, not counted when asked.
    pub async fn ended_totals(&self) -> Result<EndedTotals, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.ended_totals()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.ended_totals()).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.ended_totals().await?),
        }
    }

    /// Up to `limit` jobs that pass the filter and have a lower id than `before`, newest first. A filter that few jobs
    /// pass ends after `rows_max` rows, of active jobs alone where it names only them.
    pub async fn jobs(
        &self,
        filter: JobFilter,
        before: Option<JobId>,
        limit: usize,
        rows_max: usize,
    ) -> Result<JobsPart, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.jobs(&filter, before, limit, rows_max)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.jobs(&filter, before, limit, rows_max)).await,
            Store::Postgres(postgres) => {
                Ok(postgres.reader().await?.jobs(&filter, before, limit, rows_max).await?)
            }
        }
    }

    /// The active jobs that are on hold, by id.
    pub async fn held_jobs(&self) -> Result<Vec<JobId>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.held_jobs()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.held_jobs()).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.held_jobs().await?),
        }
    }

    /// The rows of those tasks in `range` that were ever booked, by index.
    pub async fn tasks(&self, job: JobId, range: Range<u32>) -> Result<Vec<StoredTask>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.tasks(job, range)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.tasks(job, range)).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.tasks(job, range).await?),
        }
    }

    /// A task's earlier attempts and late results, oldest first.
    pub async fn history(&self, task: TaskId) -> Result<Vec<AttemptView>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.history(task)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.history(task)).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.history(task).await?),
        }
    }

    /// Attempts that ended, at most `attempts_max` and of one job half of them: of the `jobs_max` newest jobs that are
    /// active, and of the `jobs_max` that ended last.
    pub async fn last_ended(
        &self,
        jobs_max: usize,
        attempts_max: usize,
    ) -> Result<Vec<EndedJob>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.last_ended(jobs_max, attempts_max)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.last_ended(jobs_max, attempts_max)).await,
            Store::Postgres(postgres) => {
                Ok(postgres.reader().await?.last_ended(jobs_max, attempts_max).await?)
            }
        }
    }

    /// The body of a step; `None` if there is no such step.
    pub async fn body(&self, job: JobId, step: u16) -> Result<Option<Arc<[u8]>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.body(job, step)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.body(job, step)).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.body(job, step).await?),
        }
    }

    /// The bodies of steps, in one read. If they are more than 8 MiB together, it may return only those of the
    /// first steps.
    pub async fn bodies(&self, steps: Vec<(JobId, u16)>) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(steps.iter().map(|(job, step)| memory.body(*job, *step)).collect()),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.bodies(&steps)).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.bodies(&steps).await?),
        }
    }

    /// The bodies of these steps that have at most `bytes_max` bytes. Larger ones are not read.
    pub async fn small_bodies(
        &self,
        steps: Vec<(JobId, u16)>,
        bytes_max: usize,
    ) -> Result<StepBodies, StoreError> {
        match self {
            Store::Memory(memory) => {
                let small = |(job, step)| Some(((job, step), memory.body(job, step)?));
                Ok(steps.into_iter().filter_map(small).filter(|(_, body)| body.len() <= bytes_max).collect())
            }
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.small_bodies(&steps, bytes_max)).await,
            Store::Postgres(postgres) => Ok(postgres.reader().await?.small_bodies(&steps, bytes_max).await?),
        }
    }
}
