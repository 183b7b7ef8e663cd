//! Notices of jobs that end and of workers that are lost: who gets one, and what it says. They are owed with the batch that
//! is their reason, whose commit adds their rows. The module `notifier` delivers them.

mod address;
mod body;
mod rules;
mod signature;
mod troubles;

pub(crate) use address::{NoticeAddress, host_and_port, is_own_network};
pub(crate) use body::{FailureNotice, NoticeBody};
pub use rules::{NoticeRules, NotifyError};
pub(crate) use rules::{Sendmail, leads_inside};
pub(crate) use signature::sign;

use body::{JobNotice, WorkerNotice};
use std::collections::BTreeSet;
use tokio::sync::Notify;
use troubles::NoticeTroubles;
use windlass_api::JobState;
use windlass_core::engine::{Engine, Fact, Outbox, Write};
use windlass_core::job::{self, Counts, Job};
use windlass_core::{JobId, TaskId, Time};
use windlass_store::NewNotice;

/// What the engine says of a worker whose lease ran out.
const LOST: &str = "expired";

/// Who is told what, and the bell for the task that delivers.
#[derive(Default)]
pub(crate) struct NoticeBook {
    pub rules: NoticeRules,
    /// What was not delivered so far.
    pub troubles: NoticeTroubles,
    more: Notify,
}

impl NoticeBook {
    pub fn new(rules: NoticeRules) -> NoticeBook {
        NoticeBook { rules, ..NoticeBook::default() }
    }

    /// The notices that become owed with this batch. The engine still has the jobs that end in it.
    pub fn owed(&self, engine: &Engine, batch: &Outbox, now: Time) -> Vec<NewNotice> {
        let mut owed = Vec::new();
        for write in &batch.writes {
            let Write::JobEnd { job, state, at, counts } = write else { continue };
            // The engine forgets a job only once its end is durable.
            let Some(job) = engine.job(*job) else { continue };
            self.owe_job(job, (*state, *at, counts), &mut owed);
        }
        if self.rules.workers.is_empty() {
            return owed;
        }
        for fact in &batch.facts {
            let Fact::Worker { name, what: LOST, .. } = fact else { continue };
            let body = NoticeBody::WorkerLost(WorkerNotice { worker: name.clone(), lost_ms: now.as_ms() });
            let body = body.to_text();
            let to = self.rules.workers.iter();
            owed.extend(to.map(|to| NewNotice {
                job: None,
                user: String::new(),
                to: to.clone(),
                body: body.clone(),
                at: now,
            }));
        }
        owed
    }

    fn owe_job(
        &self,
        job: &Job,
        (state, at, counts): (job::JobState, Time, &Counts),
        owed: &mut Vec<NewNotice>,
    ) {
        let failed = state == job::JobState::Failed;
        let spec = &*job.spec;
        let named = spec.on_end.iter().filter(|told| failed || !told.only_failures).map(|told| &told.to);
        // An address gets one notice, also where several lists name it.
        let mut told: BTreeSet<&String> = BTreeSet::new();
        let mut to: Vec<(&str, &String)> = named.map(|to| (spec.user.as_str(), to)).collect();
        to.extend(self.rules.of_user(&spec.user, failed).map(|to| (spec.user.as_str(), to)));
        to.extend(self.rules.of_all(failed).map(|to| ("", to)));
        to.retain(|(_, to)| told.insert(*to));
        if to.is_empty() {
            return;
        }
        let body = self.body(job, (state, at, counts)).to_text();
        owed.extend(to.into_iter().map(|(user, to)| NewNotice {
            job: Some(job.id),
            user: user.to_owned(),
            to: to.clone(),
            body: body.clone(),
            at,
        }));
    }

    fn body(&self, job: &Job, (state, at, counts): (job::JobState, Time, &Counts)) -> NoticeBody {
        let spec = &*job.spec;
        let failed = job.steps.iter().filter_map(|step| step.failed.first()).min();
        NoticeBody::JobEnded(Box::new(JobNotice {
            job: job.id.0,
            name: spec.name.clone(),
            user: spec.user.clone(),
            queue: spec.queue.clone(),
            state: JobState::from_core(state, false, counts),
            counts: (*counts).into(),
            submitted_ms: job.created.as_ms(),
            started_ms: None,
            ended_ms: at.as_ms(),
            failure: failed.map(|index| FailureNotice::of(TaskId { job: job.id, index })),
            url: self.rules.board.as_ref().map(|board| link(board, job.id)),
        }))
    }

    /// Says that notices were added to the store.
    pub fn ring(&self) {
        self.more.notify_one();
    }

    /// Returns once notices were added since the last time.
    pub async fn rung(&self) {
        self.more.notified().await;
    }
}

fn link(board: &str, job: JobId) -> String {
    format!("{}/jobs/{job}", board.trim_end_matches('/'))
}

#[cfg(test)]
mod tests;
