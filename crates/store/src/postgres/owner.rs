//! The handle's right to commit as the owner of the farm, with the state of its commits.

use super::attempt::Connection;
use super::database::{Database, OwnConnection};
use crate::error::StoreError;
use crate::ownership::Ownership;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// What a handle may commit as.
pub struct Owner {
    pub ownership: Ownership,
    pub writer: Mutex<Writer>,
    /// Set while the outcome of an earlier commit is unknown. Nothing is read for the engine before it is settled.
    pub unsure: AtomicBool,
    /// Where the lease is renewed. Reads that take all connections of the pool must not end the lease.
    pub renewal: Mutex<Option<OwnConnection>>,
}

/// The state of this owner's commits, one at a time.
#[derive(Default)]
pub struct Writer {
    pub connection: Option<Connection>,
    /// Commits of this epoch, as far as this owner knows.
    pub batch: i64,
}

/// Sets the flag unless it is told that the outcome is known. A commit may be dropped while it waits.
pub struct Doubt(pub Option<Arc<Owner>>);

impl Drop for Doubt {
    fn drop(&mut self) {
        if let Some(owner) = &self.0 {
            owner.unsure.store(true, Ordering::Release);
        }
    }
}

impl Owner {
    pub fn new(ownership: Ownership, batch: i64) -> Owner {
        let writer = Mutex::new(Writer { batch, ..Writer::default() });
        Owner { ownership, writer, unsure: AtomicBool::new(false), renewal: Mutex::default() }
    }

    /// Waits for the commit that runs, and ends the connections of this owner.
    pub async fn disconnect(&self) {
        self.writer.lock().await.connection = None;
        *self.renewal.lock().await = None;
    }
}

impl Writer {
    /// The connection for commits, made again if it was lost.
    pub async fn connection(
        &mut self,
        database: &Database,
        deadline: Instant,
    ) -> Result<&mut Connection, StoreError> {
        if self.connection.as_ref().is_none_or(|connection| connection.client.is_closed()) {
            self.connection = Some(Connection::new(database, deadline).await?);
        }
        Ok(self.connection.as_mut().expect("it was made above"))
    }
}
