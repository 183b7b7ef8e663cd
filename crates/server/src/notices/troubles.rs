//! Notices that were not delivered so far, for those who may read their jobs. They are kept in memory: a server that
//! starts tries what is owed again, and finds out by that.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use windlass_api::NoticeFailure;
use windlass_core::JobId;
use windlass_store::NewNotice;

/// Failures that are kept. Above it those of the oldest job go.
const TROUBLES_MAX: usize = 1_000;

/// The last failure of each address of a job.
#[derive(Default)]
pub(crate) struct NoticeTroubles(Mutex<BTreeMap<(JobId, String), NoticeFailure>>);

impl NoticeTroubles {
    /// A notice was not delivered this time.
    pub fn failed(&self, notice: &NewNotice, why: String) {
        let Some(job) = notice.job else { return };
        let mut all = self.0.lock();
        let trouble = all.entry((job, notice.to.clone())).or_default();
        trouble.why = why;
        trouble.tries = trouble.tries.saturating_add(1);
        while all.len() > TROUBLES_MAX {
            all.pop_first();
        }
    }

    /// A notice is not tried any more.
    pub fn given_up(&self, notice: &NewNotice) {
        let Some(job) = notice.job else { return };
        if let Some(trouble) = self.0.lock().get_mut(&(job, notice.to.clone())) {
            trouble.given_up = true;
        }
    }

    /// A notice was delivered.
    pub fn delivered(&self, notice: &NewNotice) {
        let Some(job) = notice.job else { return };
        self.0.lock().remove(&(job, notice.to.clone()));
    }

    /// What was not delivered of a job.
    pub fn of_job(&self, job: JobId) -> Vec<NoticeFailure> {
        let all = self.0.lock();
        let from = all.range((job, String::new())..);
        from.take_while(|((of, _), _)| *of == job).map(|(_, trouble)| trouble.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::Time;

    fn notice(job: u64, to: &str) -> NewNotice {
        NewNotice {
            job: Some(JobId(job)),
            user: "ann".to_owned(),
            to: to.to_owned(),
            body: String::new(),
            at: Time(0),
        }
    }

    #[test]
    fn a_failure_is_kept_until_its_notice_is_delivered() {
        let troubles = NoticeTroubles::default();
        let (first, second) = (notice(7, "https://a.example/x"), notice(7, "https://b.example/y"));
        troubles.failed(&first, "busy".to_owned());
        troubles.failed(&first, "gone".to_owned());
        troubles.failed(&second, "closed".to_owned());
        troubles.failed(&notice(8, "https://a.example/x"), "gone".to_owned());
        troubles.given_up(&second);
        let said = |job| {
            let all = troubles.of_job(JobId(job)).into_iter();
            all.map(|trouble| (trouble.why, trouble.tries, trouble.given_up)).collect::<Vec<_>>()
        };
        assert_eq!(said(7), [("gone".to_owned(), 2, false), ("closed".to_owned(), 1, true)]);
        troubles.delivered(&first);
        assert_eq!((said(7).len(), said(8).len(), said(6).len()), (1, 1, 0));
        for job in 9..2_000 {
            troubles.failed(&notice(job, "https://a.example/x"), "gone".to_owned());
        }
        assert_eq!((said(7).len(), said(1_999).len()), (0, 1), "those of the oldest jobs go");
    }
}
