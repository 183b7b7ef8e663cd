//! The methods that answer users: jobs, tasks, attempts, and the bodies of steps.

use crate::error::StoreError;
use crate::store::Store;
use crate::view::{AttemptView, EndedJob, EndedTotals, JobFilter, JobView, JobsPart, StoredTask};
use std::ops::Range;
use std::sync::Arc;
use windlass_core::{JobId, TaskId};

impl Store {
    /// One job, with empty bodies.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
        dispatch!(self, read job(id), reader)
    }

    /// The job that `user` submitted under the idempotency key `key`.
    pub async fn job_by_key(&self, user: String, key: String) -> Result<Option<JobId>, StoreError> {
        dispatch!(self, read job_by_key(&user, &key), reader)
    }

    /// Number of a user's jobs, including ended ones, and the bytes of their specs and bodies.
    pub async fn user_totals(&self, user: String) -> Result<(u64, u64), StoreError> {
        dispatch!(self, read user_totals(&user), reader)
    }

    /// Number of jobs by the state in which they ended. It is kept, not counted when asked.
    pub async fn ended_totals(&self) -> Result<EndedTotals, StoreError> {
        dispatch!(self, read ended_totals(), reader)
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
        dispatch!(self, read jobs(&filter, before, limit, rows_max), reader)
    }

    /// The active jobs that are on hold, by id.
    pub async fn held_jobs(&self) -> Result<Vec<JobId>, StoreError> {
        dispatch!(self, read held_jobs(), reader)
    }

    /// The rows of those tasks in `range` that were ever booked, by index.
    pub async fn tasks(&self, job: JobId, range: Range<u32>) -> Result<Vec<StoredTask>, StoreError> {
        dispatch!(self, read tasks(job, range), reader)
    }

    /// A task's earlier attempts and late results, oldest first.
    pub async fn history(&self, task: TaskId) -> Result<Vec<AttemptView>, StoreError> {
        dispatch!(self, read history(task), reader)
    }

    /// Attempts that ended, at most `attempts_max` and of one job half of them: of the `jobs_max` newest jobs that are
    /// active, and of the `jobs_max` that ended last.
    pub async fn last_ended(
        &self,
        jobs_max: usize,
        attempts_max: usize,
    ) -> Result<Vec<EndedJob>, StoreError> {
        dispatch!(self, read last_ended(jobs_max, attempts_max), reader)
    }

    /// The body of a step; `None` if there is no such step.
    pub async fn body(&self, job: JobId, step: u16) -> Result<Option<Arc<[u8]>>, StoreError> {
        dispatch!(self, read body(job, step), reader)
    }

    /// The bodies of steps, in one read. If they are more than 8 MiB together, it may return only those of the
    /// first steps.
    pub async fn bodies(&self, steps: Vec<(JobId, u16)>) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        dispatch!(self, read bodies(&steps), reader)
    }

    /// The bodies of these steps that have at most `bytes_max` bytes. Larger ones are not read.
    pub async fn small_bodies(
        &self,
        steps: Vec<(JobId, u16)>,
        bytes_max: usize,
    ) -> Result<crate::StepBodies, StoreError> {
        dispatch!(self, read small_bodies(&steps, bytes_max), reader)
    }
}

/// The rows of up to `limit` tasks of a job, in `range`, that failed for good, by index.
///
/// # Errors
/// The store cannot be read.
pub async fn failed_tasks(
    store: &Store,
    job: JobId,
    range: Range<u32>,
    limit: usize,
) -> Result<Vec<StoredTask>, StoreError> {
    dispatch!(store, read failed_tasks(job, range, limit), reader)
}
