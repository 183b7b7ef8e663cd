//! Jobs that come after other jobs.

use super::record::JobState;
use super::spec::{AfterEnd, JobSpec};
use crate::ids::JobId;

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
