//! Copies a farm from one store to another, from SQLite to PostgreSQL or back, with everything that a server needs to go
//! on: the number of the store too, so that workers keep their running tasks. The source is read as of one moment, the
//! target is written in one transaction, and batches of bounded size pass between them. No server may use either. Opening
//! the source brings its schema up to date.

mod parcels;
mod postgres;
mod sqlite;
mod tables;

use crate::error::StoreError;
use crate::postgres::Postgres;
use crate::store::Store;
use parcels::Parcel;
use tables::TABLES;
use tokio::sync::mpsc;

/// Batches that wait for the target.
const BATCHES_MAX: usize = 2;

/// What was copied of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopiedTable {
    /// The name of the table.
    pub table: &'static str,
    /// The number of its rows.
    pub rows: u64,
}

/// Copies the store `from` into the empty store `to`.
///
/// # Errors
/// If a server uses one of them as far as that can be known, if `to` is not empty, or if one of them fails. `to` is empty
/// then.
pub async fn copy(from: &str, to: &str) -> Result<Vec<CopiedTable>, StoreError> {
    if [from, to].contains(&"memory") {
        return Err(StoreError::NoCopy);
    }
    let (from, to) = (Store::connect(from).await?, Store::connect(to).await?);
    for store in [&from, &to] {
        if let Store::Postgres(postgres) = store {
            refuse_in_use(postgres).await?;
        }
    }
    let (sender, parcels) = mpsc::channel(BATCHES_MAX);
    let (read, written) = tokio::join!(read_all(&from, sender), write_all(&to, parcels));
    // A target that fails stops the source, and a source that fails the target.
    match (read, written) {
        (Ok(()), written) => written,
        (Err(StoreError::Closed), Err(error)) | (Err(error), _) => Err(error),
    }
}

async fn refuse_in_use(postgres: &Postgres) -> Result<(), StoreError> {
    match postgres.live_owner().await? {
        Some(by) => Err(StoreError::Owned { database: postgres.shown().to_owned(), by }),
        None => Ok(()),
    }
}

async fn read_all(from: &Store, sender: mpsc::Sender<Parcel>) -> Result<(), StoreError> {
    match from {
        Store::Memory(_) => Err(StoreError::NoCopy),
        Store::Postgres(from) => postgres::read_all(from, &sender).await,
        Store::Sqlite(from) => {
            let from = from.clone();
            let reading = tokio::task::spawn_blocking(move || sqlite::read_all(&from, &sender));
            reading.await.map_err(|_| StoreError::Closed)?
        }
    }
}

async fn write_all(to: &Store, parcels: mpsc::Receiver<Parcel>) -> Result<Vec<CopiedTable>, StoreError> {
    let counts = match to {
        Store::Memory(_) => return Err(StoreError::NoCopy),
        Store::Postgres(to) => postgres::write_all(to, parcels).await?,
        Store::Sqlite(to) => {
            let to = to.clone();
            let writing = tokio::task::spawn_blocking(move || sqlite::write_all(&to, parcels));
            writing.await.map_err(|_| StoreError::Closed)??
        }
    };
    Ok(TABLES.iter().zip(counts).map(|(table, rows)| CopiedTable { table: table.name, rows }).collect())
}
