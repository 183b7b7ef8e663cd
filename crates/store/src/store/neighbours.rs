//! Rows that the server keeps beside the engine's: documents of another system's jobs and hosts, series of the
//! farm over time, and numbers.

use crate::error::StoreError;
use crate::store::Store;
use crate::view::{ForeignDocs, ForeignWrite, SeriesRow};
use std::ops::Range;
use windlass_core::JobId;

impl Store {
    /// Applies changes of the state of another system's jobs and hosts, all of them or none.
    pub async fn write_foreign(&self, writes: Vec<ForeignWrite>) -> Result<(), StoreError> {
        dispatch!(self, write write_foreign(writes))
    }

    /// The document of another system's job. It is deleted with the job.
    pub async fn foreign_job(&self, id: JobId) -> Result<Option<String>, StoreError> {
        dispatch!(self, read foreign_job(id))
    }

    /// The documents of another system's hosts, and of its jobs that may still change.
    pub async fn foreign_docs(&self) -> Result<ForeignDocs, StoreError> {
        dispatch!(self, read foreign_docs())
    }

    /// Stores parts of series, each in place of the row with its part and step. For each part in `kept`, the rows of
    /// steps outside the range are deleted.
    pub async fn keep_series(
        &self,
        rows: Vec<SeriesRow>,
        kept: Vec<(u8, Range<u64>)>,
    ) -> Result<(), StoreError> {
        dispatch!(self, write keep_series(rows, kept))
    }

    /// All parts of series, by step and part.
    pub async fn series(&self) -> Result<Vec<SeriesRow>, StoreError> {
        dispatch!(self, read series())
    }

    /// The number that the server keeps under a name; `None` before [`Store::keep_number`].
    pub async fn number(&self, name: &'static str) -> Result<Option<u64>, StoreError> {
        dispatch!(self, read number(name))
    }

    /// Keeps a number for the server under a name.
    pub async fn keep_number(&self, name: &'static str, number: u64) -> Result<(), StoreError> {
        dispatch!(self, write keep_number(name, number))
    }
}
