//! The data that the board's requests are answered from: tables of the farm, and what the scheduler knows.

use super::trouble::BoardTrouble;
use crate::scheduler::metrics::Metrics;
use crate::scheduler::snapshot::Scope;
use crate::scheduler::{Instance, Launcher, Reasons};
use deadpool_postgres::{Object, Pool};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Connections to the database at a time.
pub const CONNECTIONS_MAX: usize = 3;
/// How long a request waits for a connection, or for its turn.
pub(super) const WAIT_TIME: Duration = Duration::from_secs(5);
/// Settings of the board's sessions, whatever they were before: read-only, and 5 s for a statement.
const SESSION: &str = "SET default_transaction_read_only = on; SET statement_timeout = 5000";

/// The data that the board's requests are answered from.
pub struct Board {
    pub(super) pool: Pool,
    pub(super) scope: Scope,
    pub(super) metrics: Arc<Metrics>,
    pub(super) launcher: Launcher,
    pub(super) reasons: Reasons,
    /// A question why something waits plans the whole farm once. One is answered at a time.
    pub(super) explaining: Semaphore,
}

impl Board {
    /// The board of the farm that an instance schedules, with connections of its own.
    pub fn new(pool: Pool, instance: &Instance) -> Board {
        Board {
            pool,
            scope: instance.scope().clone(),
            metrics: instance.metrics(),
            launcher: instance.launcher(),
            reasons: instance.reasons(),
            explaining: Semaphore::new(1),
        }
    }

    /// A connection that only reads.
    pub(super) async fn client(&self) -> Result<Object, BoardTrouble> {
        let client = tokio::time::timeout(WAIT_TIME, self.pool.get()).await;
        let client = client.map_err(|_| BoardTrouble::Busy)??;
        client.batch_execute(SESSION).await?;
        Ok(client)
    }
}
