//! One bounded scheduling round: bookings in turn until nothing fits, then a little work ahead for
//! workers whose tasks are short.

use super::{Attempt, Engine, Lent, Note, Outbox, Waits};
use crate::bounds;
use crate::ids::{ClassId, QueueId, StepKey, TaskId, WorkerId};
use crate::job::Candidate;
use crate::plan::placement::{self, Ask, Found, Ranked, Scene};
use crate::queues::Skip;
use crate::resources::Resources;
use crate::score::windows::{Metric, RECOMPUTE_NS};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// What a round found out.
#[derive(Default)]
struct Round {
    skip: Skip,
    waits: Waits,
    /// Workers that have more room than when the last full round ended.
    gained: Vec<WorkerId>,
    placed: BTreeSet<ClassId>,
    /// Steps of each queue and class that a rule was found to hold.
    misses: BTreeMap<(QueueId, ClassId), usize>,
    /// More of some queue and class may be held: the next round finds out.
    unjudged: bool,
    /// Classes that wait for a reservation and were not seen to be overtaken.
    watched: Vec<ClassId>,
    /// Workers that are reserved no more since a holder of theirs started there.
    freed: Vec<WorkerId>,
    /// Queues may go beyond their quotas, up to their burst: nobody else can use what is left.
    alone: bool,
}

impl Engine {
    /// Books up to `budget` tasks. Returns how many it booked. A class that fits nowhere is passed
    /// over for the whole round, and is not looked at again before some worker has more room: the cost
    /// follows classes and bookings, never the backlog.
    pub fn round(&mut self, now: Time, budget: usize, out: &mut Outbox) -> usize {
        self.now = self.now.max(now);
        self.queues.tell_time(self.now);
        self.look_around(out);
        if !self.dirty {
            return 0;
        }
        self.foresee_reserved();
        self.workers.resort();
        self.take_back_for_gains();
        let mut round = self.begin_round();
        let mut booked = 0;
        while booked < budget {
            let Some((queue, candidate, class)) = self.next_step(&mut round) else {
                if self.may_burst(&mut round) {
                    continue;
                }
                break;
            };
            if let Some((candidate, class, ranked)) = self.choose(queue, candidate, class, &mut round) {
                let worker = ranked[0].worker;
                self.decide(&candidate, class, ranked);
                self.book(queue, candidate, worker, false, &mut round.skip, out);
                self.placed((queue, candidate), class, worker, &mut round);
                booked += 1;
            }
        }
        self.queues.stand_again(&mut round.skip);
        self.dirty = booked == budget || round.unjudged;
        if booked < budget {
            if !self.full.is_empty() && !self.short.is_empty() {
                booked += self.prefetch(budget - booked, out);
                self.dirty |= booked == budget;
            }
            self.end_round(round);
        }
        self.replenish(out);
        booked
    }

    /// What did not fit when the last full round ended still does not, but where a worker gained room.
    fn begin_round(&mut self) -> Round {
        let gained = self.workers.gained_workers();
        if gained.is_none() {
            // Too many to look at: the index says what fits.
            self.full.clear();
        }
        let gained = gained.unwrap_or_default();
        Round { watched: self.reserves.unsuspecting(), gained, ..Round::default() }
    }

    /// The step whose turn it is, of those whose class may fit.
    fn next_step(&mut self, round: &mut Round) -> Option<(QueueId, Candidate, ClassId)> {
        self.forget_vanished(&mut round.skip);
        let (full, classes, closed) = (&self.full, &self.classes, &round.skip.closed);
        let both = closed.iter().filter(|class| full.contains(**class)).count();
        let some_open = self.queues.class_count() > full.len() + closed.len() - both;
        let workers = &self.workers;
        let gained = || round.gained.iter().filter_map(|id| workers.get(*id));
        if !some_open && !full.fitting(classes, gained()).any(|class| !closed.contains(&class)) {
            return None;
        }
        let fits = |class: ClassId| gained().any(|worker| placement::fits_now(classes.get(class), worker));
        self.queues.next(&mut round.skip, &|class| !full.contains(class) || fits(class))
    }

    /// Nothing waits of these classes any more.
    fn forget_vanished(&mut self, skip: &mut Skip) {
        for class in self.queues.take_vanished() {
            self.full.remove(class);
            skip.closed.remove(&class);
        }
    }

    /// Nobody else can use what is left: queues that were stopped by their quota may go on to their burst.
    fn may_burst(&mut self, round: &mut Round) -> bool {
        if round.alone || round.waits.in_queue.is_empty() {
            return false;
        }
        round.alone = true;
        let bursting = |queue: QueueId| self.queues.get(queue).record.burst_cpu.is_some();
        let before = round.waits.in_queue.len();
        round.waits.in_queue.retain(|(queue, _), _| !bursting(*queue));
        round.skip.in_queue.retain(|(queue, _)| !bursting(*queue));
        self.queues.stand_again(&mut round.skip);
        before > round.waits.in_queue.len()
    }

    /// What a round needs to know of the farm is brought up to date every half minute.
    fn look_around(&mut self, out: &mut Outbox) {
        if self.now.since(self.looked) >= RECOMPUTE_NS || self.looked == Time::default() {
            self.looked = self.now;
            self.instance.windows = self.windows.recompute(self.now);
            let speeds = self.workers.present().filter_map(|worker| worker.marks.core_score);
            let (sum, count) = speeds.fold((0.0, 0.0), |(sum, count), speed| (sum + speed, count + 1.0));
            self.instance.core_score = (count > 0.0).then(|| sum / count);
            self.save_histories(out);
            self.prune(out);
        }
        self.instance.idle_workers = self.workers.idle_count();
        self.instance.total_workers = self.workers.open_count();
    }

    /// The choice among workers for the step whose turn it is, or among its queue's steps for the worker
    /// found; `None` if it cannot be placed, which `round` then knows.
    fn choose(
        &mut self,
        queue: QueueId,
        candidate: Candidate,
        class: ClassId,
        round: &mut Round,
    ) -> Option<(Candidate, ClassId, Vec<Ranked>)> {
        let key = candidate.step();
        let cpu = self.classes.get(class).request.cpu;
        if let Some(quota) = self.queues.get(queue).over_quota(cpu, round.alone) {
            round.skip.in_queue.insert((queue, class));
            round.waits.in_queue.insert((queue, class), quota);
            return None;
        }
        if self.limit_reached(self.classes.get(class)).is_some() {
            round.skip.closed.insert(class);
            round.waits.limited.insert(class);
            return None;
        }
        // What was full fits nobody but those that gained room.
        let among = self.full.contains(class).then_some(&*round.gained);
        match placement::push(&self.ask(key, queue)?, &self.scene(), among) {
            Found::Best(ranked) => Some(self.offer_rivals(queue, candidate, class, ranked, round)),
            Found::NoRoom => {
                round.skip.closed.insert(class);
                self.full.insert(class, self.classes.get(class));
                None
            }
            Found::Held(why, looks) => {
                self.set_aside(queue, class, candidate, (why, looks));
                let misses = round.misses.entry((queue, class)).or_default();
                *misses += 1;
                if *misses >= self.bounds.step_misses {
                    round.skip.in_queue.insert((queue, class));
                    round.unjudged = true;
                }
                None
            }
        }
    }

    /// Another step of the same queue and priority may suit the worker better.
    fn offer_rivals(
        &self,
        queue: QueueId,
        candidate: Candidate,
        class: ClassId,
        ranked: Vec<Ranked>,
        round: &Round,
    ) -> (Candidate, ClassId, Vec<Ranked>) {
        let scene = self.scene();
        let Some(worker) = self.workers.get(ranked[0].worker) else { return (candidate, class, ranked) };
        // There the order of jobs goes before that of hosts.
        if worker.marks.foreign {
            return (candidate, class, ranked);
        }
        let is_open =
            |class| !self.full.contains(class) || placement::fits_now(self.classes.get(class), worker);
        let rivals = self.queues.get(queue).rivals(queue, &candidate, &round.skip, &is_open);
        let rivals: Vec<_> = rivals.collect();
        if rivals.is_empty() {
            return (candidate, class, ranked);
        }
        let open = rivals.iter().filter(|(_, class)| {
            let class = self.classes.get(*class);
            self.limit_reached(class).is_none()
                && self.queues.get(queue).over_quota(class.request.cpu, round.alone).is_none()
        });
        // How one step is spread over workers is no reason to prefer another.
        let steps = std::iter::once(candidate.step()).chain(open.map(|(rival, _)| rival.step()));
        let asks = steps
            .filter_map(|step| Some(Ask { others_wait: false, locality: true, ..self.ask(step, queue)? }));
        match placement::pull(worker, asks, &scene) {
            Some((step, score)) if step != candidate.step() => {
                let load = ranked[0].load;
                let only = vec![Ranked { worker: worker.id, score, load }];
                match rivals.into_iter().find(|(rival, _)| rival.step() == step) {
                    Some((rival, class)) => (rival, class, only),
                    None => (candidate, class, ranked),
                }
            }
            _ => (candidate, class, ranked),
        }
    }

    /// What the matcher chooses among, and by.
    pub(crate) fn scene(&self) -> Scene<'_> {
        let windows = &self.instance.windows;
        let mean = windows[Metric::MissingBytes].w1h.zip(windows[Metric::MissingKeys].w1h);
        Scene {
            now: self.now,
            workers: &self.workers,
            reserved: &self.reserved,
            policy: self.policy.0,
            instance: &self.instance,
            known: Some(&self.missing),
            key_bytes: mean.filter(|(_, keys)| *keys > 0.0).map(|(bytes, keys)| (bytes / keys) as u64),
        }
    }

    /// What a task of a step asks of workers.
    pub(crate) fn ask(&self, key: StepKey, queue: QueueId) -> Option<Ask<'_>> {
        let job = self.jobs.get(&key.job)?;
        let (step, spec) = (job.steps.get(usize::from(key.step))?, &job.spec.steps[usize::from(key.step)]);
        let class = self.classes.get(step.class);
        let has_arch = class.needs.iter().any(|need| need.key == "arch");
        let prediction = self.prediction(step.kin);
        let mut context =
            crate::score::context::JobContext::of(&spec.hints, has_arch, (&class.request).into());
        context.waited_ms = self.now.since(step.ready_since) / crate::time::NS_PER_MS;
        context.dependents = step.dependents;
        context.prediction = prediction.copied();
        // What was booked is as much of the prediction as any worker has.
        context.largest_memory = Some(class.request.memory);
        Some(Ask {
            step: key,
            class_id: step.class,
            class,
            band: self.queues.get(queue).band(),
            job: context,
            reads: &step.reads,
            kind: step.kin,
            avoids: step.avoids(),
            predicted_ms: step.mean_ms.or_else(|| prediction.and_then(|p| p.wall_ms)),
            others_wait: self.queues.get(queue).has_choice() || self.queues.waiting() > 1,
            locality: !step.reads.is_empty() || spec.hints.prefer_local,
            prefers: &spec.hints.prefers,
        })
    }

    /// Sends short tasks ahead to workers that are full, so that a slot does not wait for a round
    /// trip. A step is known to be short by its tasks that ended; the first ones are never sent ahead. Looks at a
    /// bounded number of workers that take none, each round at others.
    fn prefetch(&mut self, budget: usize, out: &mut Outbox) -> usize {
        let mut skip = Skip::default();
        let (mut booked, mut looks) = (0, self.bounds.prefetch_looks);
        // Whose turn it is waits for these workers: what is behind it must not be sent ahead of it, or it would
        // wait for ever behind a worker that is always full.
        let mut waiting: Vec<ClassId> = Vec::new();
        while booked < budget {
            self.forget_vanished(&mut skip);
            // Else every queue would be asked for what is left of it: nothing.
            if skip.closed.len() >= self.queues.class_count() {
                break;
            }
            let Some((queue, candidate, class)) = self.queues.next(&mut skip, &|_| true) else { break };
            let asks = self.classes.get(class);
            if self.limit_reached(asks).is_some() {
                skip.closed.insert(class);
            } else if self.queues.get(queue).over_quota(asks.request.cpu, false).is_some() {
                skip.in_queue.insert((queue, class));
            } else if !self.short.contains(&candidate.step()) {
                waiting.push(class);
                skip.closed.insert(class);
                if waiting.len() >= bounds::PREFETCH_BEHIND_MAX {
                    break;
                }
            } else if let Some(worker) = self.worker_ahead(candidate.step(), class, &waiting, &mut looks) {
                self.book(queue, candidate, worker, true, &mut skip, out);
                booked += 1;
            } else if looks == 0 {
                break;
            } else {
                skip.closed.insert(class);
            }
        }
        self.queues.stand_again(&mut skip);
        booked
    }

    /// A full worker that has little enough to do next and could run the class, but none that work waits for whose
    /// turn is before.
    fn worker_ahead(
        &mut self,
        step: StepKey,
        class: ClassId,
        waiting: &[ClassId],
        looks: &mut usize,
    ) -> Option<WorkerId> {
        let (asks, avoids) = (self.classes.get(class), self.step(step)?.avoids());
        let from = self.prefetch_from;
        for worker in self.workers.with_room_ahead(from) {
            let blocked = |class: &ClassId| {
                self.classes.find(*class).is_some_and(|waits| placement::could_ever(waits, worker))
            };
            let may = !self.reserved.contains_key(&worker.id)
                && avoids != Some(worker.id)
                && placement::could_ever(asks, worker)
                && worker.licences.first_full(&asks.limits).is_none()
                && !waiting.iter().any(blocked);
            if may {
                self.prefetch_from = worker.id;
                return Some(worker.id);
            }
            *looks = looks.saturating_sub(1);
            if *looks == 0 {
                self.prefetch_from = WorkerId(worker.id.0 + 1);
                return None;
            }
        }
        None
    }

    /// A task was placed: who waits for a worker like that and whose turn was before it was overtaken, and who
    /// had it reserved has it.
    fn placed(
        &mut self,
        (queue, candidate): (QueueId, Candidate),
        class: ClassId,
        worker: WorkerId,
        round: &mut Round,
    ) {
        round.placed.insert(class);
        if self.reserves.holder(worker) == Some(class) {
            self.reserves.release(worker);
            self.reserved.remove(&worker);
            round.freed.push(worker);
        }
        let Some(worker) = self.workers.get(worker) else { return };
        let (classes, queues, reserves) = (&self.classes, &self.queues, &mut self.reserves);
        round.watched.retain(|waiting| {
            let passed = *waiting != class
                && classes.find(*waiting).is_some_and(|waiting| placement::could_ever(waiting, worker))
                && queues.overtakes(queue, &candidate, *waiting);
            if passed {
                reserves.overtaken(*waiting);
            }
            !passed
        });
    }

    /// The round came to its end: what waits, and for what; who has earned a reservation.
    fn end_round(&mut self, round: Round) {
        // Something else kept these off a worker that has room: what comes next of them is tried.
        let gained = round.gained.iter().filter_map(|id| self.workers.get(*id));
        let fitting: Vec<ClassId> = self.full.fitting(&self.classes, gained).collect();
        fitting.into_iter().for_each(|class| self.full.remove(class));
        self.workers.settle_gains();
        self.waits = round.waits;
        // What the reservation kept off them was passed over in this round.
        self.dirty |= !round.freed.is_empty();
        round.freed.into_iter().for_each(|worker| self.workers.gained(worker));
        self.reserve(&round.placed);
    }

    fn record_wait(&mut self, waited_ns: u64, dependents: f64) {
        self.windows.record(self.now, Metric::WaitS, waited_ns as f64 / 1e9);
        self.windows.record(self.now, Metric::Dependents, dependents);
    }

    /// What a task that is booked has to fetch: the means that rules about caches compare with. Steps that read
    /// nothing say nothing of that.
    fn record_missing(&mut self, key: StepKey, queue: QueueId, worker: WorkerId) {
        if self.step(key).is_none_or(|step| step.reads.is_empty()) {
            return;
        }
        let missing = self.ask(key, queue).zip(self.workers.get(worker));
        let missing = missing.and_then(|(ask, worker)| self.scene().missing(&ask, worker));
        if let Some(missing) = missing {
            self.windows.record(self.now, Metric::MissingKeys, missing.keys.into());
            self.windows.record(self.now, Metric::MissingBytes, missing.bytes as f64);
        }
    }

    fn book(
        &mut self,
        queue: QueueId,
        candidate: Candidate,
        id: WorkerId,
        queued: bool,
        skip: &mut Skip,
        out: &mut Outbox,
    ) {
        let key: StepKey = candidate.step();
        self.touch(key.job, out);
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        let spec = &job.spec.steps[usize::from(key.step)];
        let step = &mut job.steps[usize::from(key.step)];
        let Some(index) = step.pick(id).or_else(|| step.ready.first()) else { return };
        step.ready.remove(index);
        let tries = step.tries.remove(index).unwrap_or_default();
        step.active += 1;
        let sized = &self.classes.get(step.class).request;
        let request = Resources { memory: spec.request.memory, ..sized.clone() };
        let expects = sized.memory.saturating_sub(request.memory);
        let (kin, ms) = (step.kin, step.mean_ms.unwrap_or(0.0));
        let waited_ns = self.now.since(step.ready_since);
        let (drained, dependents) = (step.ready.is_empty(), step.dependents);
        let task = TaskId { job: key.job, index };
        self.take_limits(key, id, 1);
        let epoch = self.workers.update(id, |w| {
            w.warmth.ran(kin);
            if queued {
                w.send_ahead(task, ms)
            } else {
                w.hold(task, key, &request, expects, request.cpu)
            }
            w.epoch
        });
        let charged = self.estimate(key, kin, queue, id, &request, expects);
        let attempt = Attempt {
            number: tries.attempt + 1,
            worker: id,
            epoch: epoch.unwrap_or_default(),
            booked: self.now,
            started: None,
            failures: tries.failures,
            losses: tries.losses,
            request,
            expects,
            seq: self.workers.get(id).map_or(0, |w| w.seq + 1),
            queued,
            killing: false,
            recalled: false,
            lent: Lent::No,
            charged,
        };
        out.writes.push(attempt.as_booked(task));
        out.notes.push(Note::Booked { task, worker: id, waited_ns });
        self.record_wait(waited_ns, dependents);
        self.record_missing(key, queue, id);
        self.queues.charge(queue, self.cost_of(&attempt.charged), skip);
        self.queues.hold(queue, attempt.request.cpu);
        self.count_advance(key.job, &attempt, true);
        self.attempts.insert(task, attempt);
        if let Some(order) = self.start_order(task) {
            self.send(id, order, out);
        }
        self.kin_booked(kin, self.now);
        if drained {
            self.refresh(key);
        }
    }
}
