//! What the server keeps in a store beside the engine's rows: documents of another system's jobs and hosts, series of the
//! farm over time, and numbers.

use crate::view::{ForeignWrite, SeriesRow};
use crate::{Store, StoreError};
use std::ops::Range;
use windlass_core::JobId;

impl Store {
    /// Applies changes of the state of another system's jobs and hosts, all of them or none.
    pub async fn write_foreign(&self, writes: Vec<ForeignWrite>) -> Result<(), StoreError> {
        match self {
            Store::Memory(memory) => {
                memory.write_foreign(writes);
                Ok(())
            }
            Store::Sqlite(sqlite) => sqlite.write_foreign(writes).await,
            Store::Postgres(postgres) => postgres.write_foreign(writes).await,
        }
    }

    /// The document of another system's job. It is deleted with the job.
    pub async fn foreign_job(&self, id: JobId) -> Result<Option<String>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.foreign_job(id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.foreign_job(id)).await,
            Store::Postgres(postgres) => postgres.foreign_job(id).await,
        }
    }

    /// The documents of those jobs that may still change, by id.
    pub async fn foreign_open(&self) -> Result<Vec<(JobId, String)>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.foreign_open()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.foreign_open()).await,
            Store::Postgres(postgres) => postgres.foreign_open().await,
        }
    }

    /// The documents of another system's hosts, by name.
    pub async fn foreign_hosts(&self) -> Result<Vec<(String, String)>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.foreign_hosts()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.foreign_hosts()).await,
            Store::Postgres(postgres) => postgres.foreign_hosts().await,
        }
    }

    /// Keeps parts of series in the place of those of the same part and step. Of each part that is named, only the steps
    /// of the given range stay.
    pub async fn keep_series(
        &self,
        rows: Vec<SeriesRow>,
        kept: Vec<(u8, Range<u64>)>,
    ) -> Result<(), StoreError> {
        match self {
            Store::Memory(memory) => {
                memory.keep_series(rows, &kept);
                Ok(())
            }
            Store::Sqlite(sqlite) => sqlite.keep_series(rows, kept).await,
            Store::Postgres(postgres) => postgres.keep_series(rows, kept).await,
        }
    }

    /// All parts of series, by step and part.
    pub async fn series(&self) -> Result<Vec<SeriesRow>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.series()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.series()).await,
            Store::Postgres(postgres) => postgres.series().await,
        }
    }

    /// A number that the server keeps under a name; `None` before [`Store::keep_number`].
    pub async fn number(&self, name: &'static str) -> Result<Option<u64>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.number(name)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.number(name)).await,
            Store::Postgres(postgres) => postgres.number(name).await,
        }
    }

    /// Keeps a number for the server under a name.
    pub async fn keep_number(&self, name: &'static str, number: u64) -> Result<(), StoreError> {
        match self {
            Store::Memory(memory) => {
                memory.keep_number(name, number);
                Ok(())
            }
            Store::Sqlite(sqlite) => sqlite.keep_number(name, number).await,
            Store::Postgres(postgres) => postgres.keep_number(name, number).await,
        }
    }
}
