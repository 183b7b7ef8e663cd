//! Where jobs are kept: one interface over several stores, no trait objects.
//!
//! A store never decides. It applies the engine's writes, each guarded by the row that it expects,
//! says which of them it refused, and answers questions. [`Store::commit`] returns when the batch is
//! durable (for [`Memory`], when it is applied). One suite in `tests/conformance.rs` holds for all.

mod gather;
mod memory;
mod spec;
mod sqlite;
mod view;

pub use memory::Memory;
pub use sqlite::{Sqlite, bench_raw_commits};
pub use view::{
    AttemptView, ForeignWrite, JobFilter, JobView, ParkedView, Snapshot, StoredTask, TokenRecord,
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

/// Signatures whose samples an engine starts with.
pub const HISTORY_MAX: usize = 10_000;

/// What the tasks of steps run, by job and the step's place in it.
pub type StepBodies = Vec<((JobId, u16), Arc<[u8]>)>;

/// A place for jobs.
#[derive(Clone)]
pub enum Store {
    /// In this process; gone with it.
    Memory(Memory),
    /// In an SQLite file.
    Sqlite(Sqlite),
}

/// Why a store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address names no store that we know.
    #[error("'{0}' is not a store; give sqlite:PATH or memory")]
    Address(String),
    /// PostgreSQL is asked for.
    #[error(
        "'{0}' names a PostgreSQL database, which this version cannot use yet; give sqlite:PATH or memory"
    )]
    Postgres(String),
    /// Another process has the file.
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
        /// Its schema.
        found: i32,
        /// Ours.
        known: i32,
    },
    /// The file is no database, or a damaged one.
    #[error(
        "{} is damaged or no Windlass database: {why}; move it away to start with an empty one, or \
         bring it back from a backup", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        why: String,
    },
    /// No room.
    #[error("no space is left for {}; nothing accepted is lost, make room and it goes on", .0.display())]
    Full(PathBuf),
    /// The operating system refused.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Anything else that the database says.
    #[error("the store failed while it {doing}")]
    Sql {
        /// At what.
        doing: &'static str,
        /// What it says.
        source: rusqlite::Error,
    },
    /// The writer thread is gone.
    #[error("the store is closed")]
    Closed,
}

/// Copies the database of a store, which a server may have open, into a new file, as it is at one moment.
pub fn backup(address: &str, to: &Path) -> Result<(), StoreError> {
    match address.strip_prefix("sqlite:") {
        Some(path) => sqlite::backup(Path::new(path), to),
        None => Err(StoreError::Address(address.to_owned())),
    }
}

impl Store {
    /// Opens `memory` or `sqlite:PATH`, bringing the schema up to date.
    pub fn open(address: &str) -> Result<Store, StoreError> {
        if address == "memory" {
            return Ok(Store::Memory(Memory::default()));
        }
        if let Some(path) = address.strip_prefix("sqlite:") {
            return Ok(Store::Sqlite(Sqlite::open(Path::new(path))?));
        }
        if address.starts_with("postgres:") || address.starts_with("postgresql:") {
            // Such an address carries a password.
            let shown = address.split_once('@').map_or(address, |(_, host)| host);
            return Err(StoreError::Postgres(shown.to_owned()));
        }
        Err(StoreError::Address(address.to_owned()))
    }

    /// A number of its own, as long as it lives: numbers of jobs mean something only with it.
    pub fn id(&self) -> i64 {
        match self {
            Store::Memory(memory) => memory.id(),
            Store::Sqlite(sqlite) => sqlite.id(),
        }
    }

    /// Applies the writes of a batch in one transaction. Returns the numbers of those whose guard
    /// failed; on an error none is applied.
    pub async fn commit(&self, batch: Arc<Outbox>) -> Result<Vec<usize>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.apply(&batch.writes)),
            Store::Sqlite(sqlite) => sqlite.commit(batch).await,
        }
    }

    /// What an engine starts from: workers, active jobs that are not parked, how much is parked, the number of
    /// the next job, what is known of tasks
    /// by signature (of [`HISTORY_MAX`] signatures, those used last), queues and limits.
    pub async fn load(&self) -> Result<Snapshot, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.load()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.load()).await,
        }
    }

    /// The records of those of `ids` that exist, without the bodies of their steps.
    pub async fn records(&self, ids: BTreeSet<JobId>) -> Result<Vec<JobRecord>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.records(&ids)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.records(&ids)).await,
        }
    }

    /// What an engine asked for, in the order of the questions: a page in the order of its line, jobs by id.
    /// All that was durable before is shown.
    pub async fn fetch(&self, fetches: Vec<Fetch>) -> Result<Vec<Vec<JobRecord>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(fetches.iter().map(|fetch| memory.fetch(fetch)).collect()),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.fetch(&fetches)).await,
        }
    }

    /// How much is parked of each queue and class, as counted when jobs were parked and taken off.
    pub async fn parked_counts(&self) -> Result<Vec<ParkedCount>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.parked_counts()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.parked_counts()).await,
        }
    }

    /// Compares these counts with the parked jobs one by one. Returns those that were wrong; they are right
    /// now.
    pub async fn audit_parked(&self) -> Result<Vec<ParkedDrift>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.audit_parked()),
            Store::Sqlite(sqlite) => sqlite.audit_parked().await,
        }
    }

    /// A parked job and how many of its queue come before it; `None` if it is not parked.
    pub async fn parked(&self, id: JobId) -> Result<Option<ParkedView>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.parked(id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.parked(id)).await,
        }
    }

    /// One job, without the bodies of its steps.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.job(id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.job(id)).await,
        }
    }

    /// The job that `user` submitted under `key`.
    pub async fn job_by_key(&self, user: String, key: String) -> Result<Option<JobId>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.job_by_key(&user, &key)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.job_by_key(&user, &key)).await,
        }
    }

    /// How many jobs of a user there are, ended ones too, and how many bytes they and what they run take.
    pub async fn user_totals(&self, user: String) -> Result<(u64, u64), StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.user_totals(&user)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.user_totals(&user)).await,
        }
    }

    /// A number of the server's own under that name.
    pub async fn number(&self, name: &'static str) -> Result<Option<u64>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.number(name)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.number(name)).await,
        }
    }

    /// Keeps a number of the server's own.
    pub async fn keep_number(&self, name: &'static str, number: u64) -> Result<(), StoreError> {
        match self {
            Store::Memory(memory) => {
                memory.keep_number(name, number);
                Ok(())
            }
            Store::Sqlite(sqlite) => sqlite.keep_number(name, number).await,
        }
    }

    /// Gives a part of the room that deletions left back to the file system; true if there is more to give.
    pub async fn shrink(&self) -> Result<bool, StoreError> {
        match self {
            Store::Memory(_) => Ok(false),
            Store::Sqlite(sqlite) => sqlite.shrink().await,
        }
    }

    /// The store's file; a store in memory has none.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Store::Memory(_) => None,
            Store::Sqlite(sqlite) => Some(sqlite.path()),
        }
    }

    /// Up to `limit` jobs that pass the filter, newest first, older than `before` where given.
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

    /// The rows of those tasks of a job in `range` that were ever booked, by number.
    pub async fn tasks(&self, job: JobId, range: Range<u32>) -> Result<Vec<StoredTask>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.tasks(job, range)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.tasks(job, range)).await,
        }
    }

    /// Earlier attempts of a task and results that came too late, oldest first.
    pub async fn history(&self, task: TaskId) -> Result<Vec<AttemptView>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.history(task)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.history(task)).await,
        }
    }

    /// What the tasks of a step run.
    pub async fn body(&self, job: JobId, step: u16) -> Result<Option<Arc<[u8]>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.body(job, step)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.body(job, step)).await,
        }
    }

    /// What the tasks of steps run, in one read: of the first of them only, where all would be more than a few MiB.
    pub async fn bodies(&self, steps: Vec<(JobId, u16)>) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(steps.iter().map(|(job, step)| memory.body(*job, *step)).collect()),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.bodies(&steps)).await,
        }
    }

    /// What the tasks of these steps run, without the bodies of more than `bytes_max` bytes, which are not read.
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

    /// Keeps what another system says of its jobs and hosts, all of it or nothing.
    pub async fn write_foreign(&self, writes: Vec<ForeignWrite>) -> Result<(), StoreError> {
        match self {
            Store::Memory(memory) => {
                memory.write_foreign(writes);
                Ok(())
            }
            Store::Sqlite(sqlite) => sqlite.write_foreign(writes).await,
        }
    }

    /// What is kept of a job that another system brought. It goes with the job.
    pub async fn foreign_job(&self, id: JobId) -> Result<Option<String>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.foreign_job(id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.foreign_job(id)).await,
        }
    }

    /// Those of them of which something may still change, by id.
    pub async fn foreign_open(&self) -> Result<Vec<(JobId, String)>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.foreign_open()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.foreign_open()).await,
        }
    }

    /// The hosts that another system brought, by name.
    pub async fn foreign_hosts(&self) -> Result<Vec<(String, String)>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.foreign_hosts()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.foreign_hosts()).await,
        }
    }

    /// The active jobs that are held back, by id.
    pub async fn held_jobs(&self) -> Result<Vec<JobId>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.held_jobs()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.held_jobs()).await,
        }
    }

    /// Keeps a new token; false if there is one of that id.
    pub async fn create_token(&self, token: TokenRecord) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.create_token(token)),
            Store::Sqlite(sqlite) => sqlite.write_token(TokenWrite::Create(token)).await,
        }
    }

    /// All tokens by id, those that are not in force any more too.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.tokens()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.tokens()).await,
        }
    }

    /// One token.
    pub async fn token(&self, id: String) -> Result<Option<TokenRecord>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.token(&id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.token(&id)).await,
        }
    }

    /// Ends a token; false if there is none of that id that was not ended before.
    pub async fn revoke_token(&self, id: String, at: Time) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.revoke_token(&id, at)),
            Store::Sqlite(sqlite) => sqlite.write_token(TokenWrite::Revoke(id, at)).await,
        }
    }

    /// Deletes jobs that ended before `before`, oldest first, samples of tasks of which none ran since, and tokens that
    /// ended before it,
    /// but not more than about `rows` rows. Returns the jobs that are gone, and whether there is more to delete.
    pub async fn retain(&self, before: Time, rows: usize) -> Result<(Vec<JobId>, bool), StoreError> {
        match self {
            Store::Memory(memory) => Ok((memory.retain(before), false)),
            Store::Sqlite(sqlite) => sqlite.retain(before, rows).await,
        }
    }
}
