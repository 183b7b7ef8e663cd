//! The three stores behind one enum. Each file beside this one has the methods of one client: the engine, users, the
//! gateways, the administration of tokens, and other servers.

/// Calls the method of the store that is open: `dispatch!(self, read job(id), reader)`.
///
/// - `read` calls a method of the store in memory, of a reading connection of SQLite, and of the named reader of
///   PostgreSQL, or of its pool where none is named.
/// - `write` calls the method of each store itself.
/// - `shared` calls the method of PostgreSQL. A store of one server answers with the value after it.
macro_rules! dispatch {
    ($store:expr, read $method:ident($($arg:expr),*), $reader:ident) => {
        match $store {
            Store::Memory(memory) => Ok(memory.$method($($arg),*)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.$method($($arg),*)).await,
            Store::Postgres(postgres) => Ok(postgres.$reader().await?.$method($($arg),*).await?),
        }
    };
    ($store:expr, read $method:ident($($arg:expr),*)) => {
        match $store {
            Store::Memory(memory) => Ok(memory.$method($($arg),*)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.$method($($arg),*)).await,
            Store::Postgres(postgres) => postgres.$method($($arg),*).await,
        }
    };
    ($store:expr, write $method:ident($($arg:expr),*)) => {
        match $store {
            Store::Memory(memory) => Ok(memory.$method($($arg),*)),
            Store::Sqlite(sqlite) => sqlite.$method($($arg),*).await,
            Store::Postgres(postgres) => postgres.$method($($arg),*).await,
        }
    };
    ($store:expr, shared $method:ident($($arg:expr),*), $alone:expr) => {
        match $store {
            Store::Memory(_) | Store::Sqlite(_) => $alone,
            Store::Postgres(postgres) => postgres.$method($($arg),*).await,
        }
    };
}

mod checks;
mod journal;
mod neighbours;
mod notices;
mod ownership;
mod requests;
mod tokens;
mod usage;
mod views;

pub use checks::{clock_ahead_ms, notices_arrive};
pub use notices::{forget_notices, owed_notices};
pub use usage::{forget_usage, usage_since};
pub use views::failed_tasks;

use crate::error::StoreError;
use crate::memory::Memory;
use crate::postgres::{self, Postgres};
use crate::sqlite::{self, Sqlite};
use std::path::Path;

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

/// An address without the user and password of a database. Of an unknown kind of address only the scheme is shown.
pub fn shown_address(address: &str) -> String {
    match address.split_once(':') {
        Some(_) if is_postgres(address) => postgres::without_secrets(address),
        Some((scheme, _)) if scheme != "sqlite" => format!("{scheme}:…"),
        _ => address.to_owned(),
    }
}

/// The weakness of the connection to which the address of a database leads, in words that complete a sentence. `None`
/// if the connection has TLS and checks the database's name, if it stays on this machine, or if the store has no
/// connection.
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
    /// Opens a store of this machine, `memory` or `sqlite:PATH`. An older schema is migrated, after a copy of the file
    /// was made. [`Store::connect`] opens all stores.
    pub fn open(address: &str) -> Result<Store, StoreError> {
        if address == "memory" {
            return Ok(Store::Memory(Memory::default()));
        }
        if let Some(path) = address.strip_prefix("sqlite:") {
            return Ok(Store::Sqlite(Sqlite::open(Path::new(path))?));
        }
        Err(StoreError::Address(shown_address(address)))
    }

    /// Opens any store: `memory`, `sqlite:PATH` or `postgres://HOST/DATABASE`. An older schema is migrated. A handle of
    /// a PostgreSQL store may commit once it owns the farm; see [`Store::claim`].
    pub async fn connect(address: &str) -> Result<Store, StoreError> {
        match is_postgres(address) {
            true => Ok(Store::Postgres(Postgres::connect(address).await?)),
            false => Store::open(address),
        }
    }

    /// The random number of this store. Job numbers are unique only together with it.
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
