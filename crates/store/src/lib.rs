//! Storage of jobs, tasks, workers, queues, limits and tokens: one interface over a store in memory, one in an SQLite
//! file and one in a PostgreSQL database, as an enum instead of a trait object.
//!
//! A store never decides. It applies the engine's writes, each guarded by the row that it
//! expects, returns which of them it refused, and answers reads. The server's shell commits and reads; the simulator does
//! the same without a server. [`Store::commit`] returns when the batch is durable (for [`Memory`], when it is
//! applied). One suite, in `tests/conformance.rs`, holds for all stores.
//!
//! Several servers may share a PostgreSQL database. `ownership` says who of them decides, and `mailbox` how they ask each
//! other.

mod codes;
mod copy;
mod done;
mod error;
mod gather;
mod join;
mod journal;
mod mailbox;
mod memory;
mod neighbours;
mod ownership;
mod postgres;
mod spec;
mod sqlite;
mod tokens;
mod turns;
mod view;
mod views;

pub use copy::{CopiedTable, copy};
pub use done::{DoneRequest, DoneRow};
pub use error::{Cause, StoreError};
pub use mailbox::{
    ANSWERED, ASKED, Answered, Answers, AskId, Asked, Listener, Notice, RELAYED, TOKENS, WORK,
};
pub use memory::Memory;
pub use ownership::{OwnerRow, Ownership, ServerId, ServerRow, ServerState};
pub use postgres::{Postgres, TlsDialer};
pub use sqlite::Sqlite;
pub use view::{
    AttemptView, EndedJob, EndedTotals, FOREIGN_NODE_NUMBERS, ForeignWrite, JobFilter, JobView, JobsPart,
    ParkedView, SeriesRow, Snapshot, StoredTask, TokenRecord,
};
pub use views::StepBodies;

use std::path::Path;

/// Task profiles whose samples [`Store::load`] returns.
pub const HISTORY_MAX: usize = 10_000;

/// A store of jobs and everything that belongs to them. Clones share it.
#[derive(Clone)]
pub enum Store {
    /// In this process, and lost with it.
    Memory(Memory),
    /// In an SQLite file.
    Sqlite(Sqlite),
    /// In a PostgreSQL database, which several servers may share.
    Postgres(Postgres),
}

/// Copies a store's database as of one moment into a new file. A server may have the store open.
///
/// # Errors
/// If the address is not of a file, if `to` exists, or if either file cannot be used.
pub fn backup(address: &str, to: &Path) -> Result<(), StoreError> {
    match address.strip_prefix("sqlite:") {
        Some(path) => sqlite::backup(Path::new(path), to),
        None if is_postgres(address) => Err(StoreError::NoBackup),
        None => Err(StoreError::Address(shown_address(address))),
    }
}

/// An address without the user and password of a database. Of one that is not known only the scheme is left.
pub fn shown_address(address: &str) -> String {
    match address.split_once(':') {
        Some(_) if is_postgres(address) => postgres::without_secrets(address),
        Some((scheme, _)) if scheme != "sqlite" => format!("{scheme}:…"),
        _ => address.to_owned(),
    }
}

/// What the address of a database lets happen on the way to it, in words that complete a sentence. `None` if the connection
/// has TLS and the database's name is checked, if it does not leave this machine, or if the store is no database.
///
/// # Errors
/// If the address cannot be used.
pub fn weak_transport(address: &str) -> Result<Option<&'static str>, StoreError> {
    if is_postgres(address) { postgres::weakness(address) } else { Ok(None) }
}

fn is_postgres(address: &str) -> bool {
    address.starts_with("postgres://") || address.starts_with("postgresql://")
}

impl Store {
    /// Opens a store of this machine, `memory` or `sqlite:PATH`. An older schema is migrated, after a copy of the file was
    /// made. [`Store::connect`] opens all stores.
    pub fn open(address: &str) -> Result<Store, StoreError> {
        if address == "memory" {
            return Ok(Store::Memory(Memory::default()));
        }
        if let Some(path) = address.strip_prefix("sqlite:") {
            return Ok(Store::Sqlite(Sqlite::open(Path::new(path))?));
        }
        Err(StoreError::Address(shown_address(address)))
    }

    /// Opens any store: `memory`, `sqlite:PATH` or `postgres://HOST/DATABASE`. An older schema is migrated. A handle of a
    /// PostgreSQL store may commit once it owns the farm; see [`Store::claim`].
    pub async fn connect(address: &str) -> Result<Store, StoreError> {
        match is_postgres(address) {
            true => Ok(Store::Postgres(Postgres::connect(address).await?)),
            false => Store::open(address),
        }
    }

    /// A random number of this store. Job numbers mean something only together with it.
    pub fn id(&self) -> i64 {
        match self {
            Store::Memory(memory) => memory.id(),
            Store::Sqlite(sqlite) => sqlite.id(),
            Store::Postgres(postgres) => postgres.id(),
        }
    }

    /// The store's file; `None` for a store in memory or on a database's host.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Store::Memory(_) | Store::Postgres(_) => None,
            Store::Sqlite(sqlite) => Some(sqlite.path()),
        }
    }
}
