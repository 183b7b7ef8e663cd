//! A step of a job that the engine has in memory.

use super::chunk::{ChunkEnd, ChunkLengths, Chunks};
use super::queued::QueuedStep;
use super::tries::{Tries, TriesMap};
use crate::bounds;
use crate::cache_keys::Reads;
use crate::ids::{ClassId, WorkerId};
use crate::ranges::RangeSet;
use crate::time::Time;

/// A step of an active job. The sets hold task numbers of the job, not of the step.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Step {
    /// The number of its first task.
    pub base: u32,
    /// What its tasks require of a worker.
    pub class: ClassId,
    /// Tasks that may start now.
    pub ready: RangeSet,
    /// Tasks whose last attempt succeeded.
    pub succeeded: RangeSet,
    /// Tasks that failed for good.
    pub failed: RangeSet,
    /// Tasks that were killed on request.
    pub canceled: RangeSet,
    /// The number of tasks that are booked or run.
    pub active: u32,
    /// Of these, how many another task's process runs.
    pub riding: u32,
    /// Since when `ready` holds something; orders steps of equal priority.
    pub ready_since: Time,
    /// How it stands in its queue, if it does.
    pub enlisted: Option<QueuedStep>,
    /// Tasks that were tried before, did not succeed, and have no attempt now.
    pub tries: TriesMap,
    /// How many of its tasks had succeeded when their ranges were written last.
    pub noted: u32,
    /// Mean run time of its tasks so far in milliseconds.
    pub mean_ms: Option<f64>,
    /// How long chunks of its tasks took; `None` for a step without chunks.
    pub chunk_lengths: Option<Box<ChunkLengths>>,
    /// What its tasks read from caches.
    pub reads: Reads,
    /// The number of its kind: steps whose tasks are taken for alike.
    pub profile: u64,
    /// How much waits for it, and the critical path there: see [`crate::score::dependents`].
    pub dependents: f64,
}

impl Step {
    /// The first ready task that did not fail on that worker the last time. Looks at a bounded number.
    pub fn pick(&self, worker: WorkerId) -> Option<u32> {
        let failed_there =
            |index: &u32| self.tries.get(*index).is_some_and(|tries| tries.failed_on == Some(worker));
        self.ready.iter().take(bounds::PICKS_MAX).find(|index| !failed_there(index))
    }

    /// The worker on which all of the first ready tasks failed the last time, if there is one. Looks at a bounded
    /// number.
    pub fn avoids(&self) -> Option<WorkerId> {
        if self.tries.is_empty() {
            return None;
        }
        let failed_on = |index: u32| self.tries.get(index).and_then(|tries| tries.failed_on);
        let mut first = self.ready.iter().take(bounds::PICKS_MAX);
        let worker = failed_on(first.next()?)?;
        first.all(|index| failed_on(index) == Some(worker)).then_some(worker)
    }

    /// One of its tasks is off the books. It may have ridden with another, or have led a chunk.
    pub fn leave(&mut self, rides: bool, expected: ChunkEnd) {
        self.active -= 1;
        self.riding -= u32::from(rides);
        if let Some(lengths) = &mut self.chunk_lengths {
            lengths.ended(expected);
        }
    }

    /// The tasks that ride with `head`, which is not ready any more, in a chunk of `size` tasks: those that follow it
    /// and did not fail before. One that did runs alone, so that it harms no others.
    pub fn riders(&self, head: u32, chunks: &Chunks, size: u32) -> Vec<u32> {
        let end = self.base.saturating_add(chunks.end(head - self.base));
        let size = size.min(bounds::CHUNK_TASKS_MAX);
        let unharmed = |tries: &Tries| tries.failures + tries.losses == 0;
        let free = |index: &u32| self.ready.contains(*index) && self.tries.get(*index).is_none_or(unharmed);
        (head + 1..end.min(head.saturating_add(size))).take_while(free).collect()
    }
}
