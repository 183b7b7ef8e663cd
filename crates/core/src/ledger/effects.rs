//! What other modules have to look at when the event or the round is over.

use crate::ids::{JobId, WorkerId};
use crate::job::Parked;

/// What changed since the engine looked last. Its vectors are emptied and kept.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Effects {
    /// Jobs that came from the store and that it has parked.
    pub(crate) loaded: Vec<(JobId, Parked)>,
    /// Jobs to which something happened, or for which others wait from now on, in this order.
    pub(crate) touched: Vec<JobId>,
    /// Workers whose epoch rose because they expired or were forgotten: work of outside clients on them is over, too.
    pub(crate) expired: Vec<WorkerId>,
}

impl Effects {
    /// Notes a job to which something happens, or for which another one waits.
    pub(crate) fn touch(&mut self, job: JobId) {
        // A round books the tasks of a job one after the other.
        if self.touched.last() != Some(&job) {
            self.touched.push(job);
        }
    }
}
