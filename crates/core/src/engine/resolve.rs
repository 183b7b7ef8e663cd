//! Which jobs an event needs, and what happens to the event until they are resident. [`Residency`] reads them.

use super::{Engine, Event, Outbox};
use crate::ids::JobId;
use crate::job::{JobRecord, JobState};
use crate::ledger::{Ledger, Lookups};
use crate::residency::Residency;
use std::collections::BTreeSet;

impl Engine {
    /// Acts on an event when all jobs that it names are here, or known not to be parked; looks them up first
    /// otherwise.
    pub(super) fn act_with_jobs(&mut self, event: Event, lookups: Lookups, out: &mut Outbox) {
        let open = open_jobs(&self.books.ledger, &self.residency, &event, &lookups);
        if open.iter().all(|id| self.books.ledger.jobs.contains_key(id)) {
            self.act(event, lookups, out);
        } else {
            // Those that are here as well: they may be evicted until the others come.
            self.residency.look_up(open, Box::new(event), lookups, out);
        }
    }

    /// What was asked for was read, or could not be. An event that waited for it is acted on.
    pub(super) fn fetched(&mut self, number: u64, records: Option<Vec<JobRecord>>, out: &mut Outbox) {
        if let Some((event, lookups)) = self.residency.fetched(number, records, &mut self.books) {
            self.act_with_jobs(*event, lookups, out);
        }
    }
}

/// The jobs that an event names and that may be active.
fn open_jobs<E>(
    ledger: &Ledger,
    residency: &Residency<E>,
    event: &Event,
    lookups: &Lookups,
) -> BTreeSet<JobId> {
    let mut open = BTreeSet::new();
    if residency.subqueues().away().jobs > 0 {
        let is_open = |id: &JobId| ledger.outcome(*id).is_none_or(|state| state == JobState::Active);
        open.extend(named_by(ledger, event, lookups).into_iter().filter(is_open));
    }
    if let Event::Retry { job, .. } | Event::RetryTasks { job, .. } = event {
        // One that ended begins again from what the store has of it now.
        open.insert(*job);
    }
    // What became of the tasks after which others come, the store knows of a job that is not resident.
    let first = first_of(ledger, event, lookups);
    open.extend(first.filter(|first| !ledger.jobs.contains_key(first)));
    open.retain(|id| !lookups.contains_key(id));
    open
}

/// The job after whose tasks come those of the job that an event submits or retries.
fn first_of(ledger: &Ledger, event: &Event, lookups: &Lookups) -> Option<JobId> {
    match event {
        Event::Submit(submit) => submit.spec.after_tasks,
        Event::Retry { job, .. } | Event::RetryTasks { job, .. } => {
            // A job that is resident knows it.
            let found = lookups.get(job).filter(|_| !ledger.jobs.contains_key(job));
            found?.as_ref()?.spec.after_tasks
        }
        _ => None,
    }
}

/// Jobs that must be resident when the event is acted on, if they are active.
fn named_by(ledger: &Ledger, event: &Event, lookups: &Lookups) -> Vec<JobId> {
    match event {
        Event::Cancel { job, .. }
        | Event::CancelTasks { job, .. }
        | Event::Hold { job, .. }
        | Event::Prioritize { job, .. } => vec![*job],
        Event::Retry { job, .. } | Event::RetryTasks { job, .. } => {
            let resident = ledger.jobs.get(job).map(|job| &job.spec);
            let spec = resident.or(lookups.get(job).and_then(|found| Some(&found.as_ref()?.spec)));
            let after = spec.into_iter().flat_map(|spec| spec.after.iter().copied());
            std::iter::once(*job).chain(after).collect()
        }
        Event::Submit(submit) => {
            let active = |id: &&JobId| submit.outcomes.get(id) == Some(&JobState::Active);
            submit.spec.after.iter().filter(active).copied().collect()
        }
        _ => Vec::new(),
    }
}
