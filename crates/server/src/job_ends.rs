//! Ends of jobs, for what keeps something of a job until it ends, or until it is forgotten.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::sync::Notify;
use windlass_core::JobId;

/// Deleted jobs that wait to be taken. Above that the listener has to look which of its jobs are still there.
const DELETED_MAX: usize = 100_000;

/// Which jobs are over. Of jobs that nobody watches it notes nothing.
#[derive(Default)]
pub(crate) struct JobEnds {
    book: Mutex<EndsBook>,
    bell: Notify,
}

#[derive(Default)]
struct EndsBook {
    /// Something listens for jobs that are deleted.
    is_heard: bool,
    watched: BTreeSet<JobId>,
    over: JobsOver,
}

/// What came since it was taken last.
#[derive(Default)]
pub(crate) struct JobsOver {
    /// Watched jobs whose ends are durable.
    pub ended: Vec<JobId>,
    /// Jobs that retention has deleted; `None` if they were too many to be noted.
    pub deleted: Option<Vec<JobId>>,
}

impl JobsOver {
    /// What is told when no job is over.
    pub fn none() -> JobsOver {
        JobsOver { ended: Vec::new(), deleted: Some(Vec::new()) }
    }

    pub fn is_none(&self) -> bool {
        self.ended.is_empty() && self.deleted.as_ref().is_some_and(Vec::is_empty)
    }

    /// Adds what came later.
    pub fn add(&mut self, later: JobsOver) {
        self.ended.extend(later.ended);
        self.deleted = match (self.deleted.take(), later.deleted) {
            (Some(before), Some(later)) => Some([before, later].concat()),
            _ => None,
        };
    }
}

impl JobEnds {
    /// From now on deleted jobs are noted.
    pub fn listen(&self) {
        let mut book = self.book.lock();
        if !book.is_heard {
            book.is_heard = true;
            book.over.deleted = Some(Vec::new());
        }
    }

    /// Notes the job's next end. One that came before is not noted: look for it afterwards.
    pub fn watch(&self, job: JobId) {
        self.book.lock().watched.insert(job);
    }

    /// These jobs have ended, durably.
    pub fn ended(&self, jobs: &[JobId]) {
        let mut book = self.book.lock();
        if book.watched.is_empty() {
            return;
        }
        let EndsBook { watched, over, .. } = &mut *book;
        let before = over.ended.len();
        over.ended.extend(jobs.iter().filter(|job| watched.remove(*job)));
        if over.ended.len() > before {
            self.bell.notify_one();
        }
    }

    /// These jobs are deleted.
    pub fn deleted(&self, jobs: &[JobId]) {
        let mut book = self.book.lock();
        if !book.is_heard {
            return;
        }
        if let Some(deleted) = &mut book.over.deleted {
            deleted.extend(jobs);
        }
        if book.over.deleted.as_ref().is_some_and(|deleted| deleted.len() > DELETED_MAX) {
            book.over.deleted = None;
        }
        self.bell.notify_one();
    }

    /// What is over since this was asked last.
    pub fn take(&self) -> JobsOver {
        let mut book = self.book.lock();
        std::mem::replace(&mut book.over, JobsOver::none())
    }

    /// Returns once something is over that was not taken.
    pub async fn rung(&self) {
        self.bell.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_watched_is_noted_and_once() {
        let ends = JobEnds::default();
        ends.ended(&[JobId(1)]);
        ends.deleted(&[JobId(1)]);
        ends.listen();
        ends.watch(JobId(2));
        ends.ended(&[JobId(1), JobId(2)]);
        ends.ended(&[JobId(2)]);
        ends.deleted(&[JobId(1), JobId(3)]);
        let over = ends.take();
        assert_eq!((over.ended, over.deleted), (vec![JobId(2)], Some(vec![JobId(1), JobId(3)])));
        assert!(ends.take().ended.is_empty());
        ends.deleted(&vec![JobId(9); DELETED_MAX + 1]);
        ends.deleted(&[JobId(4)]);
        assert_eq!(ends.take().deleted, None, "too many to be noted");
        ends.deleted(&[JobId(4)]);
        assert_eq!(ends.take().deleted, Some(vec![JobId(4)]));
    }
}
