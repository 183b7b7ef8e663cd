//! Which jobs an event needs, and what happens to the event until they are resident; how jobs enter memory from the
//! store and leave it. [`Residency`](crate::residency::Residency) decides which jobs these are.

use super::{Engine, Event, Outbox};
use crate::ids::{JobId, StepKey};
use crate::job::{BacklogCounts, Job, JobRecord, JobState, Parked};
use crate::residency::subqueues::{SubqueueKey, Subqueues};
use crate::residency::{Lookups, Read};
use std::collections::{BTreeMap, BTreeSet};

impl Engine {
    /// Acts on an event when all jobs that it names are here, or known not to be parked; looks them up first
    /// otherwise.
    pub(super) fn act_with_jobs(&mut self, event: Event, lookups: Lookups, out: &mut Outbox) {
        let open = self.open_jobs(&event, &lookups);
        if open.iter().all(|id| self.ledger.jobs.contains_key(id)) {
            self.act(event, lookups, out);
        } else {
            // Those that are here as well: they may be evicted until the others come.
            self.residency.look_up(open, Box::new(event), lookups, out);
        }
    }

    /// The jobs that an event names and that may be active.
    fn open_jobs(&self, event: &Event, lookups: &Lookups) -> BTreeSet<JobId> {
        let mut open = BTreeSet::new();
        if self.subqueues().away().jobs > 0 {
            let is_open = |id: &JobId| self.ledger.outcome(*id).is_none_or(|state| state == JobState::Active);
            open.extend(self.named_by(event, lookups).into_iter().filter(is_open));
        }
        if let Event::Retry { job, .. } = event {
            // One that ended begins again from what the store has of it now.
            open.insert(*job);
        }
        open.retain(|id| !lookups.contains_key(id));
        open
    }

    /// Jobs that must be held when the event is acted on, if they are active.
    fn named_by(&self, event: &Event, lookups: &Lookups) -> Vec<JobId> {
        match event {
            Event::Cancel { job, .. } | Event::Hold { job, .. } | Event::Prioritize { job, .. } => vec![*job],
            Event::Retry { job, .. } => {
                let held = self.ledger.jobs.get(job).map(|job| &job.spec);
                let spec = held.or(lookups.get(job).and_then(|found| Some(&found.as_ref()?.spec)));
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

    /// What was asked for was read, or could not be.
    pub(super) fn fetched(&mut self, number: u64, records: Option<Vec<JobRecord>>, out: &mut Outbox) {
        let Some(records) = records else {
            self.residency.read_failed(number, self.now);
            return;
        };
        match self.residency.take_read(number) {
            Some(Read::Page(key, steps)) => self.page_read(key, steps, number, records),
            Some(Read::Jobs { jobs, event, lookups }) => {
                self.jobs_read(number, jobs, records, *event, lookups, out);
            }
            None => {}
        }
    }

    fn page_read(&mut self, key: SubqueueKey, asked: usize, number: u64, records: Vec<JobRecord>) {
        let page = self.residency.page_read((key, asked), number, records);
        for record in page.records {
            if !self.ledger.jobs.contains_key(&record.id) {
                self.insert_record(record, BTreeSet::new());
            }
        }
        self.residency.page_taken(key, page.is_last);
    }

    fn jobs_read(
        &mut self,
        number: u64,
        jobs: BTreeSet<JobId>,
        records: Vec<JobRecord>,
        event: Event,
        mut lookups: Lookups,
        out: &mut Outbox,
    ) {
        let mut found: BTreeMap<JobId, JobRecord> = records.into_iter().map(|r| (r.id, r)).collect();
        let mut loaded = Vec::new();
        lookups.retain(|job, _| !self.residency.is_stale(*job, number));
        for job in jobs {
            if self.ledger.jobs.contains_key(&job) || self.residency.is_stale(job, number) {
                continue;
            }
            match found.remove(&job) {
                Some(record) if record.parked.is_some() => {
                    self.insert_record(record, BTreeSet::new());
                    loaded.push(job);
                }
                record => _ = lookups.insert(job, record),
            }
        }
        self.act_with_jobs(event, lookups, out);
        loaded.into_iter().for_each(|job| self.evict_if_behind(job, out));
    }

    /// Parks what the cache has no room for, and asks for what subqueues lack.
    pub(super) fn refill(&mut self, out: &mut Outbox) {
        self.residency.unpark_absent(&self.plan.queues, out);
        while let Some(job) = self.residency.next_over_capacity() {
            self.evict(job, out);
        }
        self.residency.ask(self.now, &mut self.plan.queues, out);
    }

    /// Puts a job to which nothing has happened into its subqueue; `parked` is how the store has it parked, if it has.
    pub(super) fn join_subqueue(&mut self, id: JobId, parked: Option<Parked>) {
        let Some(job) = self.ledger.jobs.get(&id) else { return };
        let is_awaited = self.ledger.dependents.get(&id).is_some_and(|waiting| !waiting.is_empty());
        self.residency.join_subqueue(job, parked, is_awaited, &self.plan.queues);
    }

    /// Evicts a job that stands behind parked ones.
    pub(super) fn evict_if_behind(&mut self, id: JobId, out: &mut Outbox) {
        if self.residency.is_behind_parked(id) {
            self.evict(id, out);
        }
    }

    /// Forgets a job that may be evicted: the store has it.
    fn evict(&mut self, id: JobId, out: &mut Outbox) {
        let key =
            self.ledger.jobs.get(&id).and_then(|job| Some((job.spec.user.clone(), job.spec.key.clone()?)));
        if let Some((old, key)) = self.residency.evict(id, key, &self.plan.queues, out)
            && self.ledger.keys.get(&key) == Some(&old)
            && !self.ledger.jobs.contains_key(&old)
        {
            self.ledger.forget_key(old, &key);
        }
        self.forget(id);
    }

    /// The subqueues, and what of them is parked.
    pub fn subqueues(&self) -> &Subqueues {
        self.residency.subqueues()
    }

    /// The number of the next job that the engine accepts.
    pub fn next_job(&self) -> JobId {
        JobId(self.ledger.next_job)
    }

    /// Steps of all resident jobs.
    pub fn resident_steps(&self) -> usize {
        self.residency.steps()
    }

    /// True if the store has the job parked as well.
    pub(crate) fn is_parked(&self, job: JobId) -> bool {
        self.residency.is_parked(job)
    }

    /// The first step with ready tasks of the first resident job of each subqueue of which some is not resident.
    pub(crate) fn evicted_by_subqueue(&self) -> impl Iterator<Item = (Option<StepKey>, BacklogCounts)> + '_ {
        self.subqueues()
            .iter()
            .map(|(_, subqueue)| (subqueue, subqueue.away()))
            .filter(|(_, away)| away.ready > 0)
            .map(|(subqueue, away)| {
                let first = subqueue.positions().next().and_then(|place| self.ledger.first_ready(place.job));
                (first, away)
            })
    }

    pub(super) fn check_residency(&self) -> Result<(), String> {
        let steps: usize = self.ledger.jobs.values().map(|job| job.steps.len()).sum();
        let is_unawaited = |job: &&Job| self.ledger.dependents.get(&job.id).is_none_or(BTreeSet::is_empty);
        let unawaited = |id: JobId| self.ledger.jobs.get(&id).filter(is_unawaited);
        self.residency.check(steps, &self.plan.queues, unawaited)
    }
}
