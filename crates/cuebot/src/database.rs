//! Transactions that run again when two of them waited for each other.

use super::server::Cuebot;
use super::trouble::CallError;
use std::future::Future;
use std::pin::Pin;
use tokio_postgres::Transaction;

/// How often a transaction is tried. The triggers of OpenCue's schema lock the rows of counters in an order that
/// depends on the frame, so that completions of two layers of a job can wait for each other.
const ATTEMPTS_MAX: u32 = 8;

/// What happens in a transaction.
pub(crate) type Work<'t, T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send + 't>>;

impl Cuebot {
    /// Runs `work` in a transaction and commits it. It may run several times, and only the last one counts.
    pub(crate) async fn transact<T, F>(&self, work: F) -> Result<T, CallError>
    where
        F: for<'t> Fn(&'t Transaction<'_>) -> Work<'t, T> + Send + Sync,
        T: Send,
    {
        let mut attempt = 1;
        loop {
            let mut client = self.pool.get().await?;
            let transaction = client.transaction().await?;
            let done = match work(&transaction).await {
                Ok(value) => transaction.commit().await.map(|()| value).map_err(CallError::from),
                Err(error) => Err(error),
            };
            match done {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => attempt += 1,
                done => return done,
            }
        }
    }
}
