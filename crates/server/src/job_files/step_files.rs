//! What steps say of their files. Thousands of tasks of one step ask for it, and its body may be large.

use super::error::FilesTrouble;
use crate::handle::Handle;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use windlass_api::{StepBody, StepFiles};
use windlass_core::JobId;
use windlass_core::job::JobSpec;

/// Steps whose files are remembered: those that are started now, of all workers.
const STEPS_MAX: usize = 256;

type StepNumber = (JobId, u16);

/// The files of the steps that were asked for last.
#[derive(Default)]
pub(super) struct StepFilesCache(Mutex<VecDeque<(StepNumber, Option<Arc<StepFiles>>)>>);

impl StepFilesCache {
    /// What a step says of its files; `None` of one that has none.
    pub async fn of(
        &self,
        handle: &Handle,
        job: JobId,
        step: u16,
    ) -> Result<Option<Arc<StepFiles>>, FilesTrouble> {
        let known = self.0.lock().iter().find(|(number, _)| *number == (job, step)).cloned();
        if let Some((_, files)) = known {
            return Ok(files);
        }
        let raw = handle.store().body(job, step).await?;
        let body = raw.and_then(|raw| serde_json::from_slice::<StepBody>(&raw).ok());
        let files = body.and_then(|body| body.files).map(Arc::new);
        let mut steps = self.0.lock();
        if steps.len() >= STEPS_MAX {
            steps.pop_front();
        }
        steps.push_back(((job, step), files.clone()));
        Ok(files)
    }

    /// Forgets the steps of a job.
    pub fn forget(&self, job: JobId) {
        self.0.lock().retain(|((of, _), _)| *of != job);
    }
}

/// The step of a task, and the index of the step's first task.
pub(super) fn step_of(spec: &JobSpec, index: u32) -> Option<(u16, u32)> {
    let mut first = 0;
    for (number, step) in (0u16..).zip(&spec.steps) {
        if index < first + step.tasks {
            return Some((number, first));
        }
        first += step.tasks;
    }
    None
}

/// The index of the first task of a step.
pub(super) fn first_task(spec: &JobSpec, step: usize) -> u32 {
    spec.steps.iter().take(step).map(|step| step.tasks).sum()
}
