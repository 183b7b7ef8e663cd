//! What calls share: the tables, the hosts, and transactions that run again when two of them waited for each other.

use crate::attempts::Attempts;
use crate::ended::EndedProcs;
use crate::hosts::HostCalls;
use crate::kept::KeptEnds;
use crate::networks::Network;
use crate::seldom::Seldom;
use crate::trouble::CallError;
use deadpool_postgres::{Pool, Transaction};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

pub(crate) type Work<'t, T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send + 't>>;

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where logs of frames lie. Below it are show, shot, `logs`, and a directory for each job.
    pub log_root: String,
    /// The greatest number of retries that a job may ask for.
    pub retries_max: i32,
}

impl Default for Settings {
    fn default() -> Settings {
        // OpenCue's own values, so that CueGUI finds logs where it looks, and frames retry as they did.
        Settings { log_root: "/shots".to_owned(), retries_max: 1 }
    }
}

/// Cuebot's server: it answers hosts and clients from the tables.
pub struct Cuebot {
    pub(crate) pool: Pool,
    /// The settings of the operator.
    pub settings: Settings,
    pub(crate) hosts: Arc<dyn HostCalls>,
    /// Procs whose hosts reported their ends lately.
    pub(crate) ended: EndedProcs,
    /// Ends that the tables did not take yet.
    pub(crate) kept: KeptEnds,
    /// The last time at which a report of a host could not be taken in, or the start.
    pub(crate) deaf_at: Mutex<Instant>,
    /// Networks of its callers; `None` is all.
    pub(crate) clients: Option<Vec<Network>>,
    /// Warnings of callers from other networks.
    pub(crate) outsiders: Seldom,
    /// Warnings of reports in the name of a worker.
    pub(crate) false_reports: Seldom,
    /// Warnings of hosts that run frames which they do not hold.
    pub(crate) stray_reports: Seldom,
    /// Warnings of ends that wait.
    pub(crate) kept_ends: Seldom,
}

impl Cuebot {
    /// Answers from the tables that `pool` leads to. `hosts` calls the farm's hosts.
    pub fn new(pool: Pool, settings: Settings, hosts: Arc<dyn HostCalls>) -> Cuebot {
        Cuebot {
            pool,
            settings,
            hosts,
            ended: EndedProcs::default(),
            kept: KeptEnds::default(),
            deaf_at: Mutex::new(Instant::now()),
            clients: None,
            outsiders: Seldom::default(),
            false_reports: Seldom::default(),
            stray_reports: Seldom::default(),
            kept_ends: Seldom::default(),
        }
    }

    /// The same, for callers from these networks alone.
    pub fn for_clients(self, clients: Option<Vec<Network>>) -> Cuebot {
        Cuebot { clients, ..self }
    }

    /// Runs `work` on what is given in a transaction, and commits it. It may run several times, and only the last one
    /// counts.
    pub(crate) async fn transact<D, T, F>(&self, given: D, work: F) -> Result<T, CallError>
    where
        F: for<'t> Fn(&'t Transaction<'_>, &'t D) -> Work<'t, T> + Send + Sync,
        D: Send + Sync,
        T: Send,
    {
        let mut attempts = Attempts::default();
        loop {
            match self.attempt(&given, &work).await {
                Err(error) if error.is_conflict() => {
                    if !attempts.again().await {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// One attempt. Its connection is free again before a pause begins.
    async fn attempt<D, T, F>(&self, given: &D, work: &F) -> Result<T, CallError>
    where
        F: for<'t> Fn(&'t Transaction<'_>, &'t D) -> Work<'t, T> + Send + Sync,
        D: Send + Sync,
        T: Send,
    {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let value = work(&transaction, given).await?;
        transaction.commit().await?;
        Ok(value)
    }
}
