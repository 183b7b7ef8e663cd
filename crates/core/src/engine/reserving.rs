//! Reservations of this engine: who gets which worker, when it could start there, and when it is over.

use super::Engine;
use crate::bounds;
use crate::class::Class;
use crate::ids::{ClassId, TaskId, WorkerId};
use crate::plan::placement::{self, Reservation};
use crate::resources::Resources;
use crate::time::{NS_PER_MS, Time};
use crate::worker::{Licences, Worker};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Orders workers by when they are expected to have room, unknown last, then by what is free, then by name.
type FreeFirst<'a> = (bool, Option<Time>, Reverse<u32>, &'a str);

/// Classes that are remembered to have, or not to have, a worker that could run them.
const COULD_RUN_MAX: usize = 20_000;

/// Whether some worker that takes work could run a class.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum FeasibleWorker {
    /// This one could when it was looked at, at that count of the workers' changes.
    By(WorkerId, u64),
    /// None could: not before another worker takes work. How often one had then.
    Nobody(u64),
}

impl Engine {
    /// True if some worker that takes work could run the class, were it empty. Remembers who.
    fn could_run(&mut self, id: ClassId) -> bool {
        let Some(class) = self.classes.find(id) else { return false };
        let (opened, shifts) = (self.workers.opened(), self.workers.shifts());
        let could = |w: &&Worker| w.takes_work() && placement::eligible_when_idle(class, w);
        match self.could_run.get(&id) {
            Some(FeasibleWorker::By(_, at)) if *at == shifts => return true,
            Some(FeasibleWorker::By(worker, _)) if self.workers.get(*worker).as_ref().is_some_and(could) => {
                self.could_run.insert(id, FeasibleWorker::By(*worker, shifts));
                return true;
            }
            Some(FeasibleWorker::Nobody(before)) if *before == opened => return false,
            _ => {}
        }
        let found = if class.targets.is_empty() {
            self.workers.present().find(could)
        } else {
            class.targets.iter().filter_map(|name| self.workers.by_name(name)).find(could)
        };
        let found = found.map(|worker| worker.id);
        if self.could_run.len() >= COULD_RUN_MAX {
            self.could_run.clear();
        }
        let found = found.map(|worker| FeasibleWorker::By(worker, shifts));
        self.could_run.insert(id, found.unwrap_or(FeasibleWorker::Nobody(opened)));
        matches!(self.could_run.get(&id), Some(FeasibleWorker::By(..)))
    }

    /// Gives classes that were blocked for long a worker each, and drops reservations that nobody needs.
    pub(super) fn reserve(&mut self, placed: &BTreeSet<ClassId>) {
        // What no worker could run that takes work would wait for a reservation for ever, and keep others from one.
        let mut blocked: BTreeSet<ClassId> = self.reserves.watched().collect();
        blocked.retain(|class| self.full.contains(*class) || self.held.has_class(*class));
        let mut newcomers = self.reserves.newcomers(self.full.all(), self.held.by_class());
        blocked.retain(|class| self.could_run(*class));
        newcomers.retain(|class| self.could_run(*class));
        // A task that waits for jobs of its own does not end before these have run, perhaps here.
        let lending: BTreeSet<WorkerId> =
            self.reserves.holders().map(|(id, _)| id).filter(|id| self.is_lending(*id)).collect();
        let (workers, classes) = (&self.workers, &self.classes);
        let (mut freed, mut refused) = (Vec::new(), Vec::new());
        self.reserves.retain(|id, class| {
            let worker = workers.get(id).filter(|worker| worker.takes_work());
            let both = worker.zip(classes.find(class));
            let needed = blocked.contains(&class)
                && !lending.contains(&id)
                && both.is_some_and(|(worker, class)| placement::eligible_when_idle(class, worker));
            // The round that ends left the room free: a rule, a limit or a quota keeps the holder from it. Two
            // classes that each wait for the worker of the other would otherwise wait for ever.
            let unused = both.is_some_and(|(worker, class)| placement::fits_now(class, worker));
            if needed && unused {
                refused.push(class);
            }
            if !needed || unused {
                freed.push(id);
            }
            needed && !unused
        });
        refused.into_iter().for_each(|class| self.reserves.disappoint(class));
        for class in self.reserves.observe(self.now, &blocked, &newcomers, placed) {
            if self.reserves.is_full() {
                break;
            }
            match self.target(class) {
                Some(worker) => self.reserves.reserve(worker, class),
                None => self.reserves.disappoint(class),
            }
        }
        for id in freed {
            self.workers.gained(id);
            self.needs_round = true;
        }
    }

    fn is_lending(&self, id: WorkerId) -> bool {
        self.workers.get(id).is_some_and(|worker| self.lends(worker))
    }

    /// When the holders of reservations could start. What runs longer than was expected may end any moment:
    /// were it taken to run on, other work would be let in front for as long as anything is late, and what
    /// was let in front would be late in its turn.
    pub(super) fn update_reservation_starts(&mut self) {
        self.reserved = self
            .reserves
            .holders()
            .filter_map(|(id, class)| {
                let (worker, asks) = (self.workers.get(id)?, self.classes.find(class)?);
                let starts = self.starts_when(asks, worker, |task| self.due_at(task));
                let band = self.queues.band_of(class).unwrap_or(0);
                Some((id, Reservation { class, band, starts }))
            })
            .collect();
    }

    /// The worker to reserve for a class: of those that would fit it when empty the one that is expected to
    /// have room first. Wide work is given up to half of its workers and no more than it has tasks; other work
    /// one, when nothing of it was placed for long. Where no end is known, nothing is given more than one.
    fn target(&self, class: ClassId) -> Option<WorkerId> {
        let asks = self.classes.find(class)?;
        let avoided = self.avoided_by_all(class);
        let (mut fitting, mut widest) = (0, Resources::default());
        let mut best: Option<(FreeFirst, WorkerId)> = None;
        for worker in self.workers.present().filter(|worker| placement::eligible_when_idle(asks, worker)) {
            fitting += 1;
            widest.cpu = widest.cpu.max(worker.capacity.cpu);
            widest.memory = widest.memory.max(worker.capacity.memory);
            let reserved = self.reserves.holder(worker.id).is_some();
            // Where there is room already, it is something else that the class waits for.
            let useless =
                !worker.takes_work() || avoided == Some(worker.id) || placement::fits_now(asks, worker);
            if useless || reserved || self.lends(worker) {
                continue;
            }
            let starts = self.starts_at(asks, worker);
            let rank = (starts.is_none(), starts, Reverse(worker.free().cpu), &*worker.name);
            if best.as_ref().is_none_or(|(first, _)| rank < *first) {
                best = Some((rank, worker.id));
            }
        }
        let wide = asks.request.cpu >= widest.cpu.div_ceil(2).max(1)
            || asks.request.memory >= widest.memory.div_ceil(2).max(1);
        let held = self.reserves.held_by(class);
        let may = wide || (held == 0 && self.reserves.is_starving(class));
        let tasks = self.queues.steps_of(class).filter_map(|key| Some(self.step(key)?.ready.len() as usize));
        // More workers than tasks would stand empty for nobody.
        let wanted = tasks
            .scan(0, |sum, n| {
                *sum += n;
                Some(*sum)
            })
            .any(|sum| sum > held);
        let ((unknown, ..), worker) = best.filter(|_| may && wanted && held < (fitting / 2).max(1))?;
        (!unknown || held == 0).then_some(worker)
    }

    /// The worker on which the first steps of a class that wait all failed, and to which they do not go back as long
    /// as another could run them.
    fn avoided_by_all(&self, class: ClassId) -> Option<WorkerId> {
        let steps = self.queues.steps_of(class).take(bounds::PICKS_MAX);
        let mut avoided = steps.map(|key| self.step(key).and_then(|step| step.avoids()));
        let first = avoided.next()??;
        let asks = self.classes.find(class)?;
        (avoided.all(|worker| worker == Some(first)) && self.match_context().has_other(asks, first))
            .then_some(first)
    }

    /// When enough of a worker will be free for the class as tasks there are expected to end; `None` where
    /// that hangs on one whose length is not known.
    pub(crate) fn starts_at(&self, class: &Class, worker: &Worker) -> Option<Time> {
        self.starts_when(class, worker, |task| self.ends_at(task))
    }

    fn starts_when(
        &self,
        class: &Class,
        worker: &Worker,
        ends: impl Fn(TaskId) -> Option<Time>,
    ) -> Option<Time> {
        let (mut free, mut licences) = (worker.free(), worker.licences.clone());
        let fits = |free: &Resources, licences: &Licences| {
            class.request.fits(free) && licences.first_full(&class.limits).is_none()
        };
        if fits(&free, &licences) {
            return Some(self.now);
        }
        let mut ends: Vec<(Option<Time>, TaskId)> =
            worker.running.iter().map(|task| (ends(*task), *task)).collect();
        // Unknown ends come last.
        ends.sort_by_key(|(at, task)| (at.is_none(), *at, *task));
        for (at, task) in ends {
            let at = at?;
            free.add(&self.request_of(task));
            for name in self.limits_of(task) {
                licences.give_back(name);
            }
            if fits(&free, &licences) {
                return Some(at);
            }
        }
        None
    }

    fn limits_of(&self, task: TaskId) -> impl Iterator<Item = &String> {
        let key = self.key_of(task);
        let job = self.jobs.get(&key.job);
        job.into_iter().flat_map(move |job| &job.spec.steps[usize::from(key.step)].limits)
    }

    /// When an attempt is expected to end. One that runs longer than was expected is taken to be in the
    /// middle.
    pub(crate) fn ends_at(&self, task: TaskId) -> Option<Time> {
        let due = self.due_at(task)?;
        let attempt = self.attempts.get(&task)?;
        let began = attempt.started.unwrap_or(attempt.booked);
        Some(if due > self.now { due } else { self.now.after(self.now.since(began)) })
    }

    /// When an attempt was expected to end, when it began.
    fn due_at(&self, task: TaskId) -> Option<Time> {
        let attempt = self.attempts.get(&task)?;
        let step = self.step(self.key_of(task))?;
        let ms = step.mean_ms.or_else(|| self.prediction(step.profile).and_then(|p| p.wall_ms))?;
        let began = attempt.started.unwrap_or(attempt.booked);
        Some(began.after((ms * NS_PER_MS as f64) as u64))
    }
}
