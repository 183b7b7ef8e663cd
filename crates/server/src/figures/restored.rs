//! Attempts that ended before an engine started, read from the store for figures about the past.

use super::ended::{ENDED_MAX, EndedAttempts};
use crate::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::engine::StoredState;
use windlass_core::ids::{ShardId, WHOLE_FARM};
use windlass_core::job::TaskResult;
use windlass_core::{Time, WorkerId};
use windlass_store::{EndedJob, Store, StoreError};

/// Jobs, active ones and those that ended last, whose attempts are read.
const ENDED_JOBS_MAX: usize = 500;

/// The workers of a shard, when its engine starts.
pub struct OwnWorkers {
    shard: ShardId,
    is_divided: bool,
    names: BTreeMap<WorkerId, String>,
    /// What ends from then on the engine notes by itself.
    start: Time,
}

impl OwnWorkers {
    /// Those that the store has of this shard now.
    pub fn of(shard: ShardId, ground: &StoredState) -> OwnWorkers {
        let names = ground.workers.iter().map(|worker| (worker.id, worker.name.clone())).collect();
        OwnWorkers { shard, is_divided: !ground.peers.is_empty(), names, start: Clock::new().now() }
    }

    /// Leaves the attempts that ended before the start on workers of this shard. Those on workers that the farm does not know
    /// any more are the first shard's.
    async fn keep_own(&self, store: &Store, jobs: &mut [EndedJob]) -> Result<(), StoreError> {
        if !self.is_divided {
            return Ok(());
        }
        let mut unknown = BTreeSet::new();
        for job in jobs.iter() {
            let tried = job.attempts.iter().map(|(_, attempt)| attempt.worker);
            let workers = job.tasks.iter().map(|task| task.row.worker).chain(tried);
            unknown.extend(workers.filter(|worker| !self.names.contains_key(worker)));
        }
        let others: BTreeSet<WorkerId> = match self.shard {
            WHOLE_FARM => {
                let found = store.farm_workers(unknown.into_iter().collect()).await?;
                found.into_iter().map(|worker| worker.id).collect()
            }
            _ => unknown,
        };
        let is_own = |worker: WorkerId, result: Option<&TaskResult>| {
            let ended = result.and_then(|result| result.finished);
            !others.contains(&worker) && ended.is_none_or(|at| at < self.start)
        };
        for job in jobs {
            job.tasks.retain(|task| is_own(task.row.worker, task.result.as_ref()));
            job.attempts.retain(|(_, attempt)| is_own(attempt.worker, Some(&attempt.result)));
        }
        Ok(())
    }
}

/// Reads what ended last. A shard that is taken over must not wait for it, so only the first one's is read when this returns.
pub async fn restore_ended(ended: &Arc<EndedAttempts>, store: &Store, own: OwnWorkers) {
    let is_first = own.shard == WHOLE_FARM;
    let restoring = restore(ended.clone(), store.clone(), own);
    match is_first {
        true => restoring.await,
        false => _ = tokio::spawn(restoring),
    }
}

/// What cannot be read is lacking in figures about the past, and nothing else.
async fn restore(ended: Arc<EndedAttempts>, store: Store, own: OwnWorkers) {
    let mut jobs = match store.last_ended(ENDED_JOBS_MAX, ENDED_MAX).await {
        Ok(jobs) => jobs,
        Err(error) => return tracing::warn!("the history of attempts begins again: {error}"),
    };
    match own.keep_own(&store, &mut jobs).await {
        Ok(()) => ended.restore(&jobs, |id| own.names.get(&id).cloned()),
        Err(error) => tracing::warn!("the history of attempts begins again: {error}"),
    }
}
