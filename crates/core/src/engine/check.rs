//! Rebuilds every index from the ground state and compares: for tests and the simulator.

use super::Engine;
use crate::ids::JobId;
use crate::ledger::check;

impl Engine {
    /// `Ok` if the state is consistent, else what is not. Walks everything: not for production.
    pub fn check(&self) -> Result<(), String> {
        let (ledger, plan) = (&self.books.ledger, &self.books.plan);
        check::check(&self.books)?;
        plan.check(|key| match self.places.find(key) {
            Some(waiting) => Some(waiting.queued),
            None => ledger.step(key)?.enlisted,
        })?;
        self.places.check(&plan.workers)?;
        for (id, queue) in plan.queues.with_ids() {
            let is_of =
                |job: JobId| ledger.jobs.get(&job).is_some_and(|job| plan.queues.whole(job.queue) == id);
            let active = ledger.attempts.keys().filter(|task| is_of(task.job));
            let places = self.places.held().filter(|(_, place)| plan.queues.whole(place.queue) == id);
            let active = (active.count() + places.count()) as u32;
            if active != queue.active {
                return Err(format!("queue {}: counts {} active, has {active}", queue.name(), queue.active));
            }
        }
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
    fn entries_of_jobs(&self) -> [(&'static str, usize); 16] {
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
            ("ends_learned_early", self.books.ledger.learned.len()),
            ("pairs_remembered", self.books.plan.remembered_pairs()),
            ("back_offs", self.books.ledger.licences.back_offs.len()),
            ("steps", self.books.ledger.steps),
            ("signatures_with_steps", self.books.profiles.with_steps()),
        ]
    }
}
