//! Attempts for which workers read inputs and write outputs.

use super::trouble::CacheTrouble;
use crate::auth::Caller;
use crate::handle::Handle;
use std::sync::Arc;
use windlass_core::engine::Engine;
use windlass_core::job::JobSpec;
use windlass_core::{Epoch, TaskId};

/// An attempt that was booked when this was asked.
#[derive(Clone, Debug)]
pub(crate) struct BookedAttempt {
    pub task: TaskId,
    /// Of its worker, when it was booked.
    pub epoch: Epoch,
    /// The job's, without what its tasks run.
    pub spec: Arc<JobSpec>,
}

impl BookedAttempt {
    /// The attempt, if it is booked, and booked on the worker for which the caller speaks. A token that speaks for no worker
    /// may say hello for any, and so it may ask here. Without a caller the agent of this process asks.
    pub async fn find(
        handle: &Handle,
        caller: Option<&Caller>,
        task: TaskId,
        attempt: u32,
    ) -> Result<BookedAttempt, CacheTrouble> {
        let worker = caller.and_then(|caller| caller.worker.clone());
        let look = move |engine: &Engine| {
            let booked = engine.attempt(task).filter(|booked| booked.number == attempt)?;
            let name = &engine.workers().get(booked.worker)?.record.name;
            if worker.is_some_and(|worker| worker != *name) {
                return None;
            }
            let spec = engine.job(task.job)?.spec.clone();
            Some(BookedAttempt { task, epoch: booked.epoch, spec })
        };
        let found = handle.query(look).await?;
        found.ok_or_else(|| CacheTrouble::NotBooked(format!("{task}.{attempt}")))
    }

    /// Reads the text `JOB.INDEX.ATTEMPT`.
    pub fn parse(text: &str) -> Option<(TaskId, u32)> {
        let (task, attempt) = text.rsplit_once('.')?;
        Some((task.parse().ok()?, attempt.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::JobId;

    #[test]
    fn an_attempt_is_named_by_three_numbers() {
        let task = TaskId { job: JobId(7), index: 3 };
        assert_eq!(BookedAttempt::parse("7.3.2"), Some((task, 2)));
        for text in ["", "7", "7.3", "7.3.", ".3.2", "7.3.x", "7.3.-1", "7.3.2.1"] {
            assert_eq!(BookedAttempt::parse(text), None, "{text}");
        }
    }
}
