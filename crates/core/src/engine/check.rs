//! Rebuilds every index from the ground state and compares: for tests and the simulator.

use super::Engine;
use crate::ids::{JobId, QueueId};
use crate::ledger::check;
use crate::queues;
use std::collections::BTreeMap;

impl Engine {
    /// `Ok` if the state is consistent, else what is not. Walks everything: not for production.
    pub fn check(&self) -> Result<(), String> {
        let (ledger, plan) = (&self.books.ledger, &self.books.plan);
        let limits = self
            .places
            .held()
            .flat_map(|(_, place)| place.limits.iter().map(move |name| (place.worker, name)));
        check::check(&self.books, limits)?;
        plan.check(|key| match self.places.find(key) {
            Some(waiting) => Some(waiting.queued),
            None => ledger.step(key)?.enlisted,
        })?;
        self.places.check(&plan.workers)?;
        check_queues(self)?;
        check_wishes(self)?;
        self.residency.check(ledger, &plan.queues)
    }

    /// `Ok` if nothing is left of jobs where there are none any more, else what is.
    pub fn check_empty(&self) -> Result<(), String> {
        let remembered =
            |job: &JobId| self.books.ledger.recent.get(*job).is_some() || self.residency.remembers(*job);
        let pinned: Vec<_> = self.books.ledger.keys.iter().filter(|(_, job)| !remembered(job)).collect();
        let keys = ("keys of jobs that nobody remembers", pinned.len());
        let mut left = self.entries_of_jobs().into_iter().chain([keys]);
        match left.find(|(_, count)| *count > 0) {
            Some((what, count)) => {
                Err(format!("all jobs have ended, and {count} {what} are left: {pinned:?}"))
            }
            None => Ok(()),
        }
    }

    /// The name of each table that has entries of what is under way alone, and how many these are. At rest each table has
    /// what it had before. Some are counted in a walk. What is remembered of the past is not told: that has bounds.
    pub fn entries(&self) -> Vec<(&'static str, usize)> {
        let mut all = self.entries_of_jobs().to_vec();
        all.extend([
            ("place_requests", self.places.waiting_count()),
            ("places", self.places.held().count()),
            ("lines_of_parked_jobs", self.subqueues().len()),
            ("workers_reserved", self.books.plan.reservations().holders().count()),
        ]);
        all
    }

    /// The same of the tables that are empty while there are no jobs.
    fn entries_of_jobs(&self) -> [(&'static str, usize); 17] {
        [
            ("jobs", self.books.ledger.jobs.len()),
            ("attempts", self.books.ledger.attempts.len()),
            ("dependents", self.books.ledger.dependents.len()),
            ("followers", self.books.ledger.followers.len()),
            ("reclaims", self.books.ledger.reclaims.len()),
            ("licences_taken", self.books.ledger.licences.taken().len()),
            ("steps_vetoed", self.books.plan.vetoed_steps().count()),
            ("classes", self.books.plan.classes.iter().count()),
            ("classes_waiting", self.books.plan.queues.class_count()),
            ("steps_short", self.books.ledger.short.len()),
            ("accruals", self.books.ledger.accruals.len()),
            ("cpu_shares_told", self.books.ledger.shares_told.len()),
            ("ends_learned_early", self.books.ledger.learned.len()),
            ("pairs_remembered", self.books.plan.remembered_pairs()),
            ("back_offs", self.books.ledger.licences.back_offs.len()),
            ("steps", self.books.ledger.steps),
            ("signatures_with_steps", self.books.profiles.with_steps()),
        ]
    }
}

/// Each queue, and each user's part of one, counts its builds that want more cpus, and what its places were charged.
fn check_wishes(engine: &Engine) -> Result<(), String> {
    let mut wanting: BTreeMap<QueueId, u32> = BTreeMap::new();
    let builds = engine.workers().iter().flat_map(|worker| worker.booked.jobservers().values());
    builds.filter(|build| build.wants_more()).for_each(|build| *wanting.entry(build.queue).or_default() += 1);
    queues::check_counts(engine.queues(), &wanting, &engine.places.advances())
}

/// Each queue, and each user's part of one, counts what its attempts and places hold, but for the cpus that are lent.
fn check_queues(engine: &Engine) -> Result<(), String> {
    let (ledger, queues) = (&engine.books.ledger, &engine.books.plan.queues);
    let mut held: BTreeMap<QueueId, (u32, u64)> = BTreeMap::new();
    let mut count = |part: QueueId, cpu: u32| {
        let whole = Some(queues.whole(part)).filter(|whole| *whole != part);
        for id in std::iter::once(part).chain(whole) {
            let (active, booked) = held.entry(id).or_default();
            *active += 1;
            *booked += u64::from(cpu);
        }
    };
    for (task, attempt) in &ledger.attempts {
        if let Some(job) = ledger.jobs.get(&task.job) {
            count(job.queue, attempt.counted_cpu());
        }
    }
    engine.places.held().for_each(|(_, place)| count(place.queue, place.amounts.cpu));
    for (id, queue) in queues.parts_with_ids() {
        let (is, counted) = (held.remove(&id).unwrap_or_default(), (queue.active, queue.booked_cpu));
        if is != counted {
            let (name, user) = (queue.name(), queue.user());
            return Err(format!("queue {name}, {user:?}: (tasks, cpu) are {is:?}, counted {counted:?}"));
        }
    }
    match held.keys().next() {
        Some(gone) => Err(format!("tasks of queue {}, which is not there", gone.0)),
        None => Ok(()),
    }
}
