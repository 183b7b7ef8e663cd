//! Jobs that come after other jobs, whole or task by task.

use super::Job;
use super::record::{JobRecord, JobState, TaskState};
use super::spec::{AfterEnd, JobSpec};
use crate::ids::JobId;
use crate::ranges::RangeSet;

impl JobSpec {
    /// True if an end of `first`, after which it comes, is such that it may start.
    pub fn may_follow(&self, first: JobId, end: JobState) -> bool {
        match (end, self.after_ends.get(&first).copied().unwrap_or_default()) {
            (JobState::Active, _) => false,
            (_, AfterEnd::Any) => true,
            (end, AfterEnd::Ok) => end == JobState::Succeeded,
            (end, AfterEnd::NotOk) => end != JobState::Succeeded,
        }
    }
}

impl Job {
    /// True if the task of this number may start as far as another job's tasks go.
    pub fn is_let_by_first(&self, index: u32) -> bool {
        self.first_tasks.as_ref().is_none_or(|first| first.succeeded.contains(index))
    }

    /// True if some of its tasks have not ended and wait for other tasks of another job, which may still succeed.
    pub(super) fn awaits_first(&self) -> bool {
        self.first_tasks.as_ref().is_some_and(|first| first.is_active) && self.lacks_first()
    }

    /// True if some of its tasks have not ended, and the tasks of another job after which they come have not succeeded.
    pub(super) fn lacks_first(&self) -> bool {
        let Some(first) = &self.first_tasks else { return false };
        let missing = self.spec.tasks().saturating_sub(first.succeeded.len());
        // Of those that wait for these, only cancelled ones have ended.
        if self.steps.iter().map(|step| step.canceled.len()).sum::<u32>() < missing {
            return true;
        }
        let mut kept = self.not_ended(&RangeSet::from_range(0..self.spec.tasks()));
        kept.subtract(&first.succeeded);
        !kept.is_empty()
    }

    /// All of its tasks that succeeded.
    pub fn succeeded(&self) -> RangeSet {
        let mut all = RangeSet::default();
        self.steps.iter().flat_map(|step| step.succeeded.ranges()).for_each(|range| all.insert_range(range));
        all
    }
}

impl JobRecord {
    /// All of its tasks that succeeded.
    pub fn succeeded(&self) -> RangeSet {
        let mut all = RangeSet::default();
        let ended = self.ended.iter().filter(|ended| ended.state == TaskState::Succeeded);
        ended.for_each(|ended| all.insert_range(ended.tasks.clone()));
        let rows = self.tasks.iter().filter(|row| row.state == TaskState::Succeeded);
        rows.for_each(|row| _ = all.insert(row.index));
        all
    }
}
