//! One bounded scheduling round: bookings in turn until nothing fits, then a little work ahead for
//! workers whose tasks are short.

use super::{Attempt, Engine, Lent, Note, Outbox, Waits};
use crate::ids::{ClassId, QueueId, StepKey, TaskId, WorkerId};
use crate::limits;
use crate::matcher::{self, Ask, Found, Ranked, RuledOut, Scene};
use crate::queues::{Candidate, Skip};
use crate::resources::Resources;
use crate::score::windows::{Metric, RECOMPUTE_NS};
use crate::time::Time;
use crate::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};

/// What a round found out.
#[derive(Default)]
struct Round {
    skip: Skip,
    waits: Waits,
    /// Classes that did not fit before some worker had more room.
    regained: Vec<ClassId>,
    placed: BTreeSet<ClassId>,
    /// Steps of each class that were passed over for reasons of their own.
    misses: BTreeMap<ClassId, usize>,
    /// Classes that wait for a reservation and were not seen to be overtaken.
    watched: Vec<ClassId>,
    /// Queues may go beyond their quotas, up to their burst: nobody else can use what is left.
    alone: bool,
}

impl Engine {
    /// Books up to `budget` tasks. Returns how many it booked. A class that fits nowhere is passed
    /// over for the whole round, and is not looked at again before some worker has more room: the cost
    /// follows classes and bookings, never the backlog.
    pub fn round(&mut self, now: Time, budget: usize, out: &mut Outbox) -> usize {
        self.now = self.now.max(now);
        self.look_around(out);
        if !self.dirty {
            return 0;
        }
        self.foresee_reserved();
        self.workers.resort();
        let mut round = self.begin_round();
        let mut booked = 0;
        while booked < budget {
            let Some((queue, candidate, class)) = self.queues.next(&mut round.skip) else {
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
        if booked < budget {
            if !round.waits.full.is_empty() && !self.short.is_empty() {
                booked += self.prefetch(budget - booked, out);
                round.waits.full.retain(|class| self.queues.has_class(*class));
            }
            self.end_round(round);
        } else {
            // Full is still full; what else waits for is found out by the round that ends.
            self.waits.full.append(&mut round.waits.full);
        }
        self.dirty = booked == budget;
        self.replenish(out);
        booked
    }

    /// What did not fit when the last full round ended still does not, but where a worker gained room.
    fn begin_round(&mut self) -> Round {
        let mut round = Round { watched: self.reserves.unsuspecting(), ..Round::default() };
        let mut full = std::mem::take(&mut self.waits.full);
        let gained = self.workers.gained_workers();
        let mut waiting = 0;
        for class in self.queues.classes() {
            let was_full = full.contains(&class);
            let fits = |gained: &Vec<&Worker>| {
                let asks = self.classes.get(class);
                gained.iter().any(|worker| matcher::fits_now(asks, worker))
            };
            if was_full && gained.as_ref().is_some_and(|gained| !fits(gained)) {
                waiting += 1;
                continue;
            }
            round.skip.open.insert(class);
            if was_full {
                full.remove(&class);
                round.regained.push(class);
            }
        }
        if full.len() > waiting {
            full.retain(|class| self.queues.has_class(*class));
        }
        if gained.is_none() {
            // Too many to look at: the index says what fits.
            round.regained.clear();
        }
        round.waits.full = full;
        round
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
        }
        self.instance.idle_workers = self.workers.idle_count();
        self.instance.total_workers = self.workers.open_count();
    }

    /// The choice among workers for the step whose turn it is, or among its queue's steps for the worker
    /// found; `None` if it cannot be placed, which `round` then knows.
    fn choose(
        &self,
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
            round.skip.open.remove(&class);
            round.waits.limited.insert(class);
            return None;
        }
        let scene = self.scene();
        match self.steer(key, matcher::push(&self.ask(key, queue)?, &scene)) {
            Found::Best(ranked) => Some(self.offer_rivals(queue, candidate, class, ranked, round)),
            Found::NoRoom => {
                round.skip.open.remove(&class);
                round.waits.full.insert(class);
                None
            }
            Found::Held(_) => {
                round.waits.held.insert(key);
                let misses = round.misses.entry(class).or_default();
                *misses += 1;
                if *misses >= limits::STEP_MISSES_MAX {
                    round.skip.open.remove(&class);
                } else {
                    round.skip.steps.insert(key);
                }
                None
            }
        }
    }

    /// A task is not tried again where it failed, as long as another worker that could run it takes work:
    /// it waits for that.
    fn steer(&self, key: StepKey, found: Found) -> Found {
        let Found::Best(mut ranked) = found else { return found };
        let Some(step) = self.step(key).filter(|step| !step.tries.is_empty()) else {
            return Found::Best(ranked);
        };
        if let Some(fresh) = ranked.iter().position(|ranked| step.pick(ranked.worker).is_some()) {
            ranked.drain(..fresh);
            return Found::Best(ranked);
        }
        let class = self.classes.get(step.class);
        let other = |w: &Worker| ranked.iter().all(|ranked| ranked.worker != w.id) && w.takes_work();
        if self.workers.present().any(|w| other(w) && matcher::could_ever(class, w)) {
            Found::Held(RuledOut::Held { rule: "retry", reason: "the task failed there the last time" })
        } else {
            Found::Best(ranked)
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
        let rivals: Vec<_> = self.queues.get(queue).rivals(queue, &candidate, &round.skip).collect();
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
        match matcher::pull(worker, asks, &scene) {
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
            caches: &spec.hints.caches,
            kind: step.kin,
            predicted_ms: step.mean_ms.or_else(|| prediction.and_then(|p| p.wall_ms)),
            others_wait: self.queues.get(queue).has_choice() || self.queues.waiting() > 1,
            locality: !spec.hints.caches.is_empty() || spec.hints.prefer_local,
            prefers: &spec.hints.prefers,
        })
    }

    /// Sends short tasks ahead to workers that are full, so that a slot does not wait for a round
    /// trip. A step is known to be short by its tasks that ended; the first ones are never sent ahead.
    fn prefetch(&mut self, budget: usize, out: &mut Outbox) -> usize {
        // A worker does not know of places of outside clients and would start what it was sent ahead
        // in their room.
        let open = |w: &&Worker| {
            w.takes_work()
                && !w.running.is_empty()
                && w.allocs.is_empty()
                && !self.lends(w)
                // Another system's executor starts what it is sent.
                && !w.marks.foreign
                && !self.reserved.contains_key(&w.id)
        };
        let ids: Vec<WorkerId> = self.workers.iter().filter(open).map(|w| w.id).collect();
        let mut booked = 0;
        for id in ids {
            let mut skip = Skip::of(self.queues.classes());
            while booked < budget {
                let Some(worker) = self.workers.get(id) else { break };
                let slots = worker.running.len() as f64;
                if worker.backlog.len() >= limits::PREFETCH_MAX
                    || worker.backlog_ms >= limits::PREFETCH_MS * slots
                {
                    break;
                }
                let Some((queue, candidate, class)) = self.queues.next(&mut skip) else { break };
                let asks = self.classes.get(class);
                let mean_ms = self.step(candidate.step()).and_then(|s| s.mean_ms);
                let short = mean_ms.is_some_and(|ms| ms < limits::PREFETCH_MS);
                let may = matcher::could_ever(asks, worker)
                    && worker.licences.first_full(&asks.limits).is_none()
                    && self.limit_reached(asks).is_none()
                    && self.queues.get(queue).over_quota(asks.request.cpu, false).is_none();
                if !may {
                    skip.open.remove(&class);
                } else if short {
                    self.book(queue, candidate, id, true, &mut skip, out);
                    booked += 1;
                } else {
                    // Whose turn it is waits for this worker: what is behind it must not be sent ahead
                    // of it, or it would wait for ever behind a worker that is always full.
                    break;
                }
            }
            self.queues.stand_again(&mut skip);
        }
        booked
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
            self.workers.gained(worker);
        }
        if !round.regained.is_empty() {
            self.close_regained(round);
        }
        let Some(worker) = self.workers.get(worker) else { return };
        let (classes, queues, reserves) = (&self.classes, &self.queues, &mut self.reserves);
        round.watched.retain(|waiting| {
            let passed = *waiting != class
                && classes.find(*waiting).is_some_and(|waiting| matcher::could_ever(waiting, worker))
                && queues.overtakes(queue, &candidate, *waiting);
            if passed {
                reserves.overtaken(*waiting);
            }
            !passed
        });
    }

    /// What fitted only a worker that had gained room does not where that room is taken again.
    fn close_regained(&self, round: &mut Round) {
        let gained = self.workers.gained_workers().unwrap_or_default();
        let Round { regained, skip, waits, .. } = round;
        regained.retain(|class| {
            let asks = self.classes.find(*class);
            let fits = asks.is_some_and(|asks| gained.iter().any(|worker| matcher::fits_now(asks, worker)));
            if !fits && skip.open.remove(class) && self.queues.has_class(*class) {
                waits.full.insert(*class);
            }
            fits
        });
    }

    /// The round came to its end: what waits, and for what; who has earned a reservation.
    fn end_round(&mut self, round: Round) {
        self.workers.settle_gains();
        self.waits = round.waits;
        self.reserve(&round.misses, &round.placed);
        self.rounded = self.now;
    }

    fn record_wait(&mut self, waited_ns: u64, dependents: f64) {
        self.windows.record(self.now, Metric::WaitS, waited_ns as f64 / 1e9);
        self.windows.record(self.now, Metric::Dependents, dependents);
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
        let tries = step.tries.remove(&index).unwrap_or_default();
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
            lent: Lent::No,
            charged,
        };
        out.writes.push(attempt.as_booked(task));
        out.notes.push(Note::Booked { task, worker: id, waited_ns });
        self.record_wait(waited_ns, dependents);
        self.queues.charge(queue, self.cost_of(&attempt.charged), skip);
        self.queues.hold(queue, attempt.request.cpu);
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
