//! Rebuilds every index from the ground state and compares: for tests and the simulator.

use super::Engine;

use crate::class::Class;
use crate::ids::{JobId, StepKey, TaskId, WorkerId};
use crate::ledger::Lent;
use crate::plan::placement;
use crate::resources::Resources;
use crate::worker::{Licences, Worker, WorkerState};
use std::collections::{BTreeMap, BTreeSet};

impl Engine {
    /// `Ok` if the state is consistent, else what is not. Walks everything: not for production.
    pub fn check(&self) -> Result<(), String> {
        self.check_steps()?;
        self.check_workers()?;
        self.check_sizes()?;
        self.check_index()?;
        self.check_residency()
    }

    /// `Ok` if nothing is left of jobs where there are none any more, else what is.
    pub fn check_empty(&self) -> Result<(), String> {
        let remembered =
            |job: &JobId| self.ledger.recent.get(*job).is_some() || self.residency.remembers(*job);
        let pinned: Vec<_> = self.ledger.keys.iter().filter(|(_, job)| !remembered(job)).collect();
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
            ("workers_reserved", self.plan.reservations().holders().count()),
        ]);
        all
    }

    /// The same of the tables that are empty while there are no jobs.
    fn entries_of_jobs(&self) -> [(&'static str, usize); 15] {
        [
            ("jobs", self.ledger.jobs.len()),
            ("attempts", self.ledger.attempts.len()),
            ("dependents", self.ledger.dependents.len()),
            ("reclaims", self.ledger.reclaims.len()),
            ("licences_taken", self.licences.taken().len()),
            ("steps_vetoed", self.plan.vetoed_steps().count()),
            ("classes", self.plan.classes.iter().count()),
            ("classes_waiting", self.plan.queues.class_count()),
            ("steps_short", self.ledger.short.len()),
            ("accruals", self.ledger.accruals.len()),
            ("ends_learned_early", self.ledger.learned.len()),
            ("pairs_remembered", self.plan.remembered_pairs()),
            ("back_offs", self.licences.back_off_count()),
            ("steps", self.residency.steps()),
            ("signatures_with_steps", self.profiles.with_steps()),
        ]
    }

    fn check_steps(&self) -> Result<(), String> {
        for job in self.ledger.jobs.values() {
            let attempts: BTreeSet<u32> =
                self.ledger.attempts_of(job.id).map(|(task, _)| task.index).collect();
            let mut active = 0;
            for (number, step) in job.steps.iter().enumerate() {
                let key = StepKey { job: job.id, step: number as u16 };
                let range = step.base..step.base + job.spec.steps[number].tasks;
                let running = attempts.range(range.clone()).count() as u32;
                active += running;
                if running != step.active {
                    return Err(format!("{key:?}: {running} attempts, counted {}", step.active));
                }
                if job.spec.steps[number].max_running.is_some_and(|max| step.active > max) {
                    return Err(format!("{key:?}: {} tasks, more than may run at a time", step.active));
                }
                let mut seen = BTreeSet::new();
                for set in [&step.ready, &step.succeeded, &step.failed, &step.canceled] {
                    for index in set.iter() {
                        if !range.contains(&index) || attempts.contains(&index) || !seen.insert(index) {
                            return Err(format!("{key:?}: task {index} is in two states or none of its"));
                        }
                    }
                }
                if job.stop.is_none() && job.ended.is_none() {
                    let mut unlocked = job.unlocked(number);
                    for set in [&step.ready, &step.succeeded, &step.failed, &step.canceled] {
                        unlocked.subtract(set);
                    }
                    if let Some(lost) = unlocked.iter().find(|index| !attempts.contains(index)) {
                        return Err(format!("{key:?}: task {lost} could start and is not ready"));
                    }
                }
                let follows = job.spec.steps[number].with.is_some();
                if self.wanted_place(key).filter(|_| !follows) != step.enlisted {
                    return Err(format!("{key:?}: stands in its queue as {:?}", step.enlisted));
                }
            }
            if job.active != job.steps.iter().map(|step| step.active).sum::<u32>() {
                return Err(format!("job {}: counts {} active tasks", job.id, job.active));
            }
            if job.spec.max_running.is_some_and(|max| job.active > max) {
                return Err(format!("job {}: more tasks than may run at a time", job.id));
            }
            self.ledger.check_chunks(job)?;
            if job.has_gangs {
                self.check_gangs(job)?;
            }
            if job.ended.is_some() && active > 0 {
                return Err(format!("job {} ended with {active} attempts", job.id));
            }
            if job.ended.is_none() && job.is_settled() {
                return Err(format!("job {} has nothing to do and has not ended", job.id));
            }
        }
        Ok(())
    }

    fn check_workers(&self) -> Result<(), String> {
        let mut placed: BTreeMap<WorkerId, (BTreeSet<TaskId>, BTreeSet<TaskId>, Resources, u32)> =
            BTreeMap::new();
        let mut expected: BTreeMap<WorkerId, u64> = BTreeMap::new();
        for (task, attempt) in &self.ledger.attempts {
            if !self.ledger.jobs.contains_key(&task.job) {
                return Err(format!("{task}: an attempt without a job"));
            }
            let entry = placed.entry(attempt.worker).or_default();
            if attempt.queued {
                entry.1.insert(*task);
                continue;
            }
            entry.0.insert(*task);
            entry.2.add(&attempt.held());
            *expected.entry(attempt.worker).or_default() += attempt.expects;
            if attempt.lent == Lent::Reclaiming {
                entry.3 += self.ledger.request_of(*task).cpu;
            }
        }
        for worker in self.plan.workers.iter() {
            if worker.state == WorkerState::Up && !worker.connected {
                return Err(format!("worker {} gets work and is not connected", worker.name));
            }
            let gone = matches!(worker.state, WorkerState::Expired | WorkerState::Forgotten);
            if gone && (worker.connected || worker.has_attempts() || worker.lease_until.is_some()) {
                return Err(format!("worker {} is {:?} and not without all", worker.name, worker.state));
            }
            if worker.draining != (worker.state == WorkerState::Draining) && !gone {
                return Err(format!("worker {} is {:?} against what it was told", worker.name, worker.state));
            }
            let (running, backlog, held, reclaiming) = placed.remove(&worker.id).unwrap_or_default();
            let mut booked = held.clone();
            for amounts in worker.allocs.values() {
                booked.add(amounts);
            }
            if running != worker.running || backlog != worker.backlog.iter().copied().collect() {
                return Err(format!("worker {}: holds other tasks than are booked on it", worker.name));
            }
            if expected.get(&worker.id).copied().unwrap_or(0) != worker.expected {
                return Err(format!("worker {}: expects {} bytes", worker.name, worker.expected));
            }
            let lends = |task: &TaskId| self.ledger.attempts.get(task).is_some_and(|a| a.lent != Lent::No);
            let lending = worker.running.iter().chain(&worker.backlog).filter(|task| lends(task)).count();
            if lending != worker.lending as usize {
                return Err(format!(
                    "worker {}: {lending} tasks lend, counted {}",
                    worker.name, worker.lending
                ));
            }
            if booked != worker.booked {
                return Err(format!(
                    "worker {}: books {:?}, tasks hold {booked:?}",
                    worker.name, worker.booked
                ));
            }
            // Places of outside clients do not count here: the worker does not know of them when it
            // gives cpus back, so they may stand over its capacity until a task ends.
            let held = held.less(&Resources::new(reclaiming, 0));
            if !held.fits(&worker.capacity) {
                return Err(format!("worker {}: booked beyond its capacity", worker.name));
            }
        }
        match placed.keys().next() {
            Some(unknown) => Err(format!("attempts on worker {unknown}, which is not there")),
            None => Ok(()),
        }
    }

    /// Steps are of the classes that follow from what is learned and from the workers, and no task waits for what was
    /// learned where a worker could run what was asked for.
    fn check_sizes(&self) -> Result<(), String> {
        let could_run = |class: &Class| match class.is_gang() {
            true => self.too_few_at_a_time(class).is_none(),
            false => self.plan.workers.present().any(|worker| placement::eligible_when_idle(class, worker)),
        };
        for job in self.ledger.jobs.values() {
            for (number, step) in job.steps.iter().enumerate() {
                let (asked, sized) = self.asked_and_sized(job, number);
                let class = self.plan.classes.get(step.class);
                // What of a gang has succeeded does not count.
                let nodes: Vec<_> = job.gang_steps(number).map(|step| job.spec.steps[step].nodes).collect();
                if class.clone().with_nodes(&nodes) != sized {
                    return Err(format!("job {}, step {number}: is of {class:?}, not {sized:?}", job.id));
                }
                if sized != asked && could_run(&asked) && !could_run(&sized) {
                    return Err(format!("job {}, step {number}: waits for a guess: {sized:?}", job.id));
                }
            }
        }
        Ok(())
    }

    /// What workers hold of each limit is what is booked on them.
    fn check_licences(&self) -> Result<(), String> {
        let mut held: BTreeMap<WorkerId, Licences> = BTreeMap::new();
        let mut names: Vec<&String> = Vec::new();
        for (task, attempt) in self.ledger.attempts.iter().filter(|(_, attempt)| !attempt.rides) {
            let key = self.ledger.key_of(*task);
            let Some(job) = self.ledger.jobs.get(&key.job) else { continue };
            for name in &job.spec.steps[usize::from(key.step)].limits {
                let max = self.licences.max_per_worker(name);
                held.entry(attempt.worker).or_default().take(name, max, 1);
                names.push(name);
            }
        }
        self.licences.check(names.into_iter())?;
        let none = Licences::default();
        let wrong = |w: &&Worker| *held.get(&w.id).unwrap_or(&none) != w.licences;
        match self.plan.workers.iter().find(wrong) {
            Some(worker) => Err(format!("worker {}: counts {:?}", worker.name, worker.licences)),
            None => Ok(()),
        }
    }

    fn check_index(&self) -> Result<(), String> {
        self.ledger.check_charges(&self.plan.queues)?;
        self.plan.check(|key| match self.places.find(key) {
            Some(waiting) => Some(waiting.queued),
            None => self.ledger.step(key)?.enlisted,
        })?;
        self.places.check(&self.plan.workers)?;
        self.check_licences()?;
        self.profiles.check(|key| self.ledger.step(key).map_or(0, |step| step.active))?;
        for (id, queue) in self.plan.queues.with_ids() {
            let active = self.ledger.attempts.keys().filter(|task| {
                self.ledger.jobs.get(&task.job).is_some_and(|job| self.plan.queues.whole(job.queue) == id)
            });
            let places = self.places.held().filter(|(_, place)| self.plan.queues.whole(place.queue) == id);
            let active = (active.count() + places.count()) as u32;
            if active != queue.active {
                return Err(format!("queue {}: counts {} active, has {active}", queue.name(), queue.active));
            }
        }
        Ok(())
    }
}
