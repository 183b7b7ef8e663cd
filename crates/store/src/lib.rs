//! Storage of jobs, tasks, workers, queues, limits and tokens: one interface over a store in memory and one
//! in an SQLite file, as an enum instead of a trait object.
//!
//! A store never decides. It applies the engine's writes, each guarded by the row that it expects, returns
//! which of them it refused, and answers reads. The server's shell commits and reads; the simulator does the
//! same without a server. [`Store::commit`] returns when the batch is durable (for [`Memory`], when it is
//! applied). One suite, in `tests/conformance.rs`, holds for all stores.

mod gather;
mod memory;
mod spec;
mod sqlite;
mod view;

pub use memory::Memory;
pub use sqlite::{Sqlite, bench_raw_commits};
pub use view::{
    AttemptView, FOREIGN_NODE_NUMBERS, ForeignWrite, JobFilter, JobView, ParkedView, Snapshot, StoredTask,
    TokenRecord,
};

use sqlite::TokenWrite;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::engine::{Fetch, Outbox};
use windlass_core::job::JobRecord;
use windlass_core::residency::subqueues::{ParkedCount, ParkedDrift};
use windlass_core::{JobId, TaskId, Time};

/// Task profiles whose samples [`Store::load`] returns.
pub const HISTORY_MAX: usize = 10_000;

/// Bodies by job and by the step's index in it.
pub type StepBodies = Vec<((JobId, u16), Arc<[u8]>)>;

/// A store of jobs and everything that belongs to them. Clones share it.
#[derive(Clone)]
pub enum Store {
    /// In this process, and lost with it.
    Memory(Memory),
    /// In an SQLite file.
    Sqlite(Sqlite),
}

/// Why a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address is not of a known form.
    #[error("'{0}' is not a store; give sqlite:PATH or memory")]
    Address(String),
    /// The address names a PostgreSQL database.
    #[error(
        "'{0}' names a PostgreSQL database, which this version cannot use yet; give sqlite:PATH or memory"
    )]
    Postgres(String),
    /// Another process has the file open.
    #[error("{} is in use by another server; stop that one, or give this one another --state", .0.display())]
    InUse(PathBuf),
    /// A later version of Windlass wrote the file.
    #[error(
        "{} was written by a later version of Windlass (schema {found}, this version knows {known}); \
         upgrade, or use another --state", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of the file's schema.
        found: i32,
        /// The newest version that this program knows.
        known: i32,
    },
    /// The file is damaged, or not a database.
    #[error(
        "{} is damaged or no Windlass database: {why}; move it away to start with an empty one, or \
         bring it back from a backup", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The error of SQLite or of the migrations.
        why: String,
    },
    /// The disk is full.
    #[error("no space is left for {}; nothing accepted is lost, make room and it goes on", .0.display())]
    Full(PathBuf),
    /// The operating system refused access to the file.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Any other error of the database.
    #[error("the store failed while it {doing}")]
    Sql {
        /// What the store was doing, for the message.
        doing: &'static str,
        /// The cause.
        source: rusqlite::Error,
    },
    /// The writer's thread has ended.
    #[error("the store is closed")]
    Closed,
}

/// Copies a store's database as of one moment into a new file. A server may have the store open.
///
/// # Errors
/// If the address is not of a file, if `to` exists, or if either file cannot be used.
pub fn backup(address: &str, to: &Path) -> Result<(), StoreError> {
    match address.strip_prefix("sqlite:") {
        Some(path) => sqlite::backup(Path::new(path), to),
        None => Err(StoreError::Address(address.to_owned())),
    }
}

impl Store {
    /// Opens `memory` or `sqlite:PATH`. An older schema is migrated, after a copy of the file was made.
    pub fn open(address: &str) -> Result<Store, StoreError> {
        if address == "memory" {
            return Ok(Store::Memory(Memory::default()));
        }
        if let Some(path) = address.strip_prefix("sqlite:") {
            return Ok(Store::Sqlite(Sqlite::open(Path::new(path))?));
        }
        if address.starts_with("postgres:") || address.starts_with("postgresql:") {
            // The address may contain a password.
            let shown = address.split_once('@').map_or(address, |(_, host)| host);
            return Err(StoreError::Postgres(shown.to_owned()));
        }
        Err(StoreError::Address(address.to_owned()))
    }

    /// A random number of this store. Job numbers mean something only together with it.
    pub fn id(&self) -> i64 {
        match self {
            Store::Memory(memory) => memory.id(),
            Store::Sqlite(sqlite) => sqlite.id(),
        }
    }

    /// Applies the writes of a batch in one transaction. Returns the indexes of the refused writes, whose
    /// guard failed. On an error nothing is applied.
    pub async fn commit(&self, batch: Arc<Outbox>) -> Result<Vec<usize>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.apply(&batch.writes)),
            Store::Sqlite(sqlite) => sqlite.commit(batch).await,
        }
    }

    /// What an engine starts from: workers, active jobs that are not parked, the counts of parked jobs, the number of
    /// the next job, the samples of the [`HISTORY_MAX`] task profiles that were used last, queues and limits.
    pub async fn load(&self) -> Result<Snapshot, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.load()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.load()).await,
        }
    }

    /// The records of those of `ids` that exist, with empty bodies.
    pub async fn records(&self, ids: BTreeSet<JobId>) -> Result<Vec<JobRecord>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.records(&ids)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.records(&ids)).await,
        }
    }

    /// Answers an engine's fetches, in their order: a page in the order of its subqueue, jobs by id. The
    /// answers show everything that was durable before the call.
    pub async fn fetch(&self, fetches: Vec<Fetch>) -> Result<Vec<Vec<JobRecord>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(fetches.iter().map(|fetch| memory.fetch(fetch)).collect()),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.fetch(&fetches)).await,
        }
    }

    /// The counts of parked jobs by queue and class, as the writes have moved them.
    pub async fn parked_counts(&self) -> Result<Vec<ParkedCount>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.parked_counts()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.parked_counts()).await,
        }
    }

    /// Compares these counts with the parked jobs and corrects them. Returns the counts that were wrong.
    pub async fn audit_parked(&self) -> Result<Vec<ParkedDrift>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.audit_parked()),
            Store::Sqlite(sqlite) => sqlite.audit_parked().await,
        }
    }

    /// A parked job, and how many parked jobs of its queue come before it. `None` if it is not parked.
    pub async fn parked(&self, id: JobId) -> Result<Option<ParkedView>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.parked(id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.parked(id)).await,
        }
    }

    /// One job, with empty bodies.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.job(id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.job(id)).await,
        }
    }

    /// The job that `user` submitted under the idempotency key `key`.
    pub async fn job_by_key(&self, user: String, key: String) -> Result<Option<JobId>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.job_by_key(&user, &key)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.job_by_key(&user, &key)).await,
        }
    }

    /// Number of a user's jobs, including ended ones, and the bytes of their specs and bodies.
    pub async fn user_totals(&self, user: String) -> Result<(u64, u64), StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.user_totals(&user)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.user_totals(&user)).await,
        }
    }

    /// A number that the server keeps under a name; `None` before [`Store::keep_number`].
    pub async fn number(&self, name: &'static str) -> Result<Option<u64>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.number(name)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.number(name)).await,
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
        }
    }

    /// Returns some of the pages that deletions left empty to the file system. True if there are more to return.
    pub async fn shrink(&self) -> Result<bool, StoreError> {
        match self {
            Store::Memory(_) => Ok(false),
            Store::Sqlite(sqlite) => sqlite.shrink().await,
        }
    }

    /// The store's file; `None` for a store in memory.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Store::Memory(_) => None,
            Store::Sqlite(sqlite) => Some(sqlite.path()),
        }
    }

    /// Up to `limit` jobs that pass the filter and have a lower id than `before`, newest first.
    pub async fn jobs(
        &self,
        filter: JobFilter,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<JobView>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.jobs(&filter, before, limit)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.jobs(&filter, before, limit)).await,
        }
    }

    /// The rows of those tasks in `range` that were ever booked, by index.
    pub async fn tasks(&self, job: JobId, range: Range<u32>) -> Result<Vec<StoredTask>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.tasks(job, range)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.tasks(job, range)).await,
        }
    }

    /// A task's earlier attempts and late results, oldest first.
    pub async fn history(&self, task: TaskId) -> Result<Vec<AttemptView>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.history(task)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.history(task)).await,
        }
    }

    /// The body of a step; `None` if there is no such step.
    pub async fn body(&self, job: JobId, step: u16) -> Result<Option<Arc<[u8]>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.body(job, step)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.body(job, step)).await,
        }
    }

    /// The bodies of steps, in one read. If they are more than 8 MiB together, it may return only those of the
    /// first steps.
    pub async fn bodies(&self, steps: Vec<(JobId, u16)>) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(steps.iter().map(|(job, step)| memory.body(*job, *step)).collect()),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.bodies(&steps)).await,
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
        }
    }

    /// Applies changes of the state of another system's jobs and hosts, all of them or none.
    pub async fn write_foreign(&self, writes: Vec<ForeignWrite>) -> Result<(), StoreError> {
        match self {
            Store::Memory(memory) => {
                memory.write_foreign(writes);
                Ok(())
            }
            Store::Sqlite(sqlite) => sqlite.write_foreign(writes).await,
        }
    }

    /// The document of another system's job. It is deleted with the job.
    pub async fn foreign_job(&self, id: JobId) -> Result<Option<String>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.foreign_job(id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.foreign_job(id)).await,
        }
    }

    /// The documents of those jobs that may still change, by id.
    pub async fn foreign_open(&self) -> Result<Vec<(JobId, String)>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.foreign_open()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.foreign_open()).await,
        }
    }

    /// The documents of another system's hosts, by name.
    pub async fn foreign_hosts(&self) -> Result<Vec<(String, String)>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.foreign_hosts()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.foreign_hosts()).await,
        }
    }

    /// The active jobs that are on hold, by id.
    pub async fn held_jobs(&self) -> Result<Vec<JobId>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.held_jobs()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.held_jobs()).await,
        }
    }

    /// Stores a new token; false if its id is taken.
    pub async fn create_token(&self, token: TokenRecord) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.create_token(token)),
            Store::Sqlite(sqlite) => sqlite.write_token(TokenWrite::Create(token)).await,
        }
    }

    /// All tokens by id, including expired and revoked ones.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.tokens()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.tokens()).await,
        }
    }

    /// One token; `None` if there is none with that id.
    pub async fn token(&self, id: String) -> Result<Option<TokenRecord>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.token(&id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.token(&id)).await,
        }
    }

    /// Revokes a token; false if there is none with that id, or if it is revoked already.
    pub async fn revoke_token(&self, id: String, at: Time) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.revoke_token(&id, at)),
            Store::Sqlite(sqlite) => sqlite.write_token(TokenWrite::Revoke(id, at)).await,
        }
    }

    /// Deletes, up to about `rows` rows, jobs that ended before `before`, oldest first, the samples of task
    /// profiles that were not used since, and tokens that ended before. Returns the deleted jobs, and whether
    /// there is more to delete.
    pub async fn retain(&self, before: Time, rows: usize) -> Result<(Vec<JobId>, bool), StoreError> {
        match self {
            Store::Memory(memory) => Ok((memory.retain(before), false)),
            Store::Sqlite(sqlite) => sqlite.retain(before, rows).await,
        }
    }
}
