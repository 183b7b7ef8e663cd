//! Jobs that ended lately: what became of them, for those that come after them, and their keys.

use crate::ids::JobId;
use crate::job::{JobState, SubmissionKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The last of them, up to a number.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct RecentOutcomes {
    max: usize,
    order: VecDeque<JobId>,
    ends: BTreeMap<JobId, (JobState, Option<SubmissionKey>)>,
}

impl RecentOutcomes {
    pub(crate) fn new(max: usize) -> Self {
        RecentOutcomes { max, ..RecentOutcomes::default() }
    }

    /// A job ended. Returns the one that is forgotten for it, with its key.
    pub(crate) fn push(
        &mut self,
        id: JobId,
        state: JobState,
        key: Option<SubmissionKey>,
    ) -> Option<(JobId, SubmissionKey)> {
        if self.ends.insert(id, (state, key)).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() <= self.max {
            return None;
        }
        let oldest = self.order.pop_front()?;
        let (_, key) = self.ends.remove(&oldest)?;
        Some((oldest, key?))
    }

    /// What became of a job, if it is remembered.
    pub(crate) fn get(&self, id: JobId) -> Option<JobState> {
        self.ends.get(&id).map(|(state, _)| *state)
    }

    /// These are not ended, or not there, any more.
    pub(crate) fn remove(&mut self, ids: &BTreeSet<JobId>) {
        if ids.iter().any(|id| self.ends.remove(id).is_some()) {
            ids.iter().for_each(|id| _ = self.ends.remove(id));
            self.order.retain(|id| !ids.contains(id));
        }
    }
}
