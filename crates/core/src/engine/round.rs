//! One bounded scheduling round: bookings in turn until nothing fits, then a little work ahead for
//! workers whose tasks are short.

use super::{Attempt, BlockedWork, Engine, Fact, Lent, Outbox};
use crate::bounds;
use crate::ids::{ClassId, QueueId, StepKey, TaskId, WorkerId};
use crate::job::QueuedStep;
use crate::plan::placement::{self, MatchContext, PlacementOutcome, PlacementRequest, ScoredWorker};
use crate::queues::RoundFilter;
use crate::resources::Resources;
use crate::score::windows::{Metric, RECOMPUTE_NS};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// What a round found out.
#[derive(Default)]
struct Round {
    filter: RoundFilter,
    blocked: BlockedWork,
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
        self.refresh_farm_statistics(out);
        if !self.needs_round {
            return 0;
        }
        self.update_reservation_starts();
        self.workers.resort();
        self.readmit_for_gains();
        let mut round = self.begin_round();
        let mut booked = 0;
        while booked < budget {
            let Some((queue, queued_step, class)) = self.next_step(&mut round) else {
                if self.allow_burst(&mut round) {
                    continue;
                }
                break;
            };
            if let Some((queued_step, class, ranked)) =
                self.find_placement(queue, queued_step, class, &mut round)
            {
                let worker = ranked[0].worker;
                self.record_decision(&queued_step, class, ranked);
                self.book(queue, queued_step, worker, false, &mut round.filter, out);
                self.note_placement((queue, queued_step), class, worker, &mut round);
                booked += 1;
            }
        }
        self.queues.resume_exhausted(&mut round.filter);
        self.needs_round = booked == budget || round.unjudged;
        if booked < budget {
            if !self.full.is_empty() && !self.short.is_empty() {
                booked += self.prefetch(budget - booked, out);
                self.needs_round |= booked == budget;
            }
            self.end_round(round);
        }
        self.refill(out);
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
    fn next_step(&mut self, round: &mut Round) -> Option<(QueueId, QueuedStep, ClassId)> {
        self.forget_vanished(&mut round.filter);
        let (full, classes, blocked_classes) = (&self.full, &self.classes, &round.filter.blocked_classes);
        let both = blocked_classes.iter().filter(|class| full.contains(**class)).count();
        let some_open = self.queues.class_count() > full.len() + blocked_classes.len() - both;
        let workers = &self.workers;
        let gained = || round.gained.iter().filter_map(|id| workers.get(*id));
        if !some_open && !full.fitting(classes, gained()).any(|class| !blocked_classes.contains(&class)) {
            return None;
        }
        let fits = |class: ClassId| gained().any(|worker| placement::fits_now(classes.get(class), worker));
        self.queues.next(&mut round.filter, &|class| !full.contains(class) || fits(class))
    }

    /// Nothing waits of these classes any more.
    fn forget_vanished(&mut self, filter: &mut RoundFilter) {
        for class in self.queues.take_vanished() {
            self.full.remove(class);
            filter.blocked_classes.remove(&class);
        }
    }

    /// Nobody else can use what is left: queues that were stopped by their quota may go on to their burst.
    fn allow_burst(&mut self, round: &mut Round) -> bool {
        if round.alone || round.blocked.over_quota.is_empty() {
            return false;
        }
        round.alone = true;
        let bursting = |queue: QueueId| self.queues.get(queue).record.burst_cpu.is_some();
        let before = round.blocked.over_quota.len();
        round.blocked.over_quota.retain(|(queue, _), _| !bursting(*queue));
        round.filter.blocked_in_queue.retain(|(queue, _)| !bursting(*queue));
        self.queues.resume_exhausted(&mut round.filter);
        before > round.blocked.over_quota.len()
    }

    /// What a round needs to know of the farm is brought up to date every half minute.
    fn refresh_farm_statistics(&mut self, out: &mut Outbox) {
        if self.now.since(self.refreshed) >= RECOMPUTE_NS || self.refreshed == Time::default() {
            self.refreshed = self.now;
            self.instance.windows = self.windows.recompute(self.now);
            let speeds = self.workers.present().filter_map(|worker| worker.flags.core_score);
            let (sum, count) = speeds.fold((0.0, 0.0), |(sum, count), speed| (sum + speed, count + 1.0));
            self.instance.core_score = (count > 0.0).then(|| sum / count);
            self.save_histories(out);
            self.prune(out);
        }
        self.instance.idle_workers = self.workers.idle_count();
        self.instance.total_workers = self.workers.open_count();
    }

    /// The choice among workers for the step whose turn it is, or among its queue's steps for the worker
    /// found; `None` if it cannot be placed; `round` notes the reason.
    fn find_placement(
        &mut self,
        queue: QueueId,
        queued_step: QueuedStep,
        class: ClassId,
        round: &mut Round,
    ) -> Option<(QueuedStep, ClassId, Vec<ScoredWorker>)> {
        let key = queued_step.step();
        let cpu = self.classes.get(class).request.cpu;
        if let Some(quota) = self.queues.get(queue).over_quota(cpu, round.alone) {
            round.filter.blocked_in_queue.insert((queue, class));
            round.blocked.over_quota.insert((queue, class), quota);
            return None;
        }
        if self.limit_reached(self.classes.get(class)).is_some() {
            round.filter.blocked_classes.insert(class);
            round.blocked.out_of_licences.insert(class);
            return None;
        }
        // What was full fits nobody but those that gained room.
        let among = self.full.contains(class).then_some(&*round.gained);
        match placement::place_task(&self.placement_request(key, queue)?, &self.match_context(), among) {
            PlacementOutcome::Best(ranked) => {
                Some(self.prefer_rival(queue, queued_step, class, ranked, round))
            }
            PlacementOutcome::NoRoom => {
                round.filter.blocked_classes.insert(class);
                self.full.insert(class, self.classes.get(class));
                None
            }
            PlacementOutcome::Vetoed(why, looks) => {
                self.set_aside(queue, class, queued_step, (why, looks));
                let misses = round.misses.entry((queue, class)).or_default();
                *misses += 1;
                if *misses >= self.bounds.step_misses {
                    round.filter.blocked_in_queue.insert((queue, class));
                    round.unjudged = true;
                }
                None
            }
        }
    }

    /// Another step of the same queue and priority may suit the worker better.
    fn prefer_rival(
        &self,
        queue: QueueId,
        queued_step: QueuedStep,
        class: ClassId,
        ranked: Vec<ScoredWorker>,
        round: &Round,
    ) -> (QueuedStep, ClassId, Vec<ScoredWorker>) {
        let context = self.match_context();
        let Some(worker) = self.workers.get(ranked[0].worker) else { return (queued_step, class, ranked) };
        // There the order of jobs goes before that of hosts.
        if worker.flags.foreign {
            return (queued_step, class, ranked);
        }
        let is_open =
            |class| !self.full.contains(class) || placement::fits_now(self.classes.get(class), worker);
        let rivals = self.queues.get(queue).rivals(queue, &queued_step, &round.filter, &is_open);
        let rivals: Vec<_> = rivals.collect();
        if rivals.is_empty() {
            return (queued_step, class, ranked);
        }
        let open = rivals.iter().filter(|(_, class)| {
            let class = self.classes.get(*class);
            self.limit_reached(class).is_none()
                && self.queues.get(queue).over_quota(class.request.cpu, round.alone).is_none()
        });
        // How one step is spread over workers is no reason to prefer another.
        let steps = std::iter::once(queued_step.step()).chain(open.map(|(rival, _)| rival.step()));
        let asks = steps.filter_map(|step| {
            Some(PlacementRequest {
                others_wait: false,
                locality: true,
                ..self.placement_request(step, queue)?
            })
        });
        match placement::pick_for_worker(worker, asks, &context) {
            Some((step, score)) if step != queued_step.step() => {
                let load = ranked[0].load;
                let only = vec![ScoredWorker { worker: worker.id, score, load }];
                match rivals.into_iter().find(|(rival, _)| rival.step() == step) {
                    Some((rival, class)) => (rival, class, only),
                    None => (queued_step, class, ranked),
                }
            }
            _ => (queued_step, class, ranked),
        }
    }

    /// What the matcher chooses among, and by.
    pub(crate) fn match_context(&self) -> MatchContext<'_> {
        let windows = &self.instance.windows;
        let mean = windows[Metric::MissingBytes].w1h.zip(windows[Metric::MissingKeys].w1h);
        MatchContext {
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
    pub(crate) fn placement_request(&self, key: StepKey, queue: QueueId) -> Option<PlacementRequest<'_>> {
        let job = self.jobs.get(&key.job)?;
        let (step, spec) = (job.steps.get(usize::from(key.step))?, &job.spec.steps[usize::from(key.step)]);
        let class = self.classes.get(step.class);
        let has_arch = class.needs.iter().any(|need| need.key == "arch");
        let prediction = self.prediction(step.profile);
        let mut context =
            crate::score::context::JobContext::of(&spec.hints, has_arch, (&class.request).into());
        context.waited_ms = self.now.since(step.ready_since) / crate::time::NS_PER_MS;
        context.dependents = step.dependents;
        context.prediction = prediction.copied();
        // What was booked is as much of the prediction as any worker has.
        context.largest_memory = Some(class.request.memory);
        Some(PlacementRequest {
            step: key,
            class_id: step.class,
            class,
            band: self.queues.get(queue).band(),
            job: context,
            reads: &step.reads,
            kind: step.profile,
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
        let mut filter = RoundFilter::default();
        let (mut booked, mut looks) = (0, self.bounds.prefetch_looks);
        // Whose turn it is waits for these workers: what is behind it must not be sent ahead of it, or it would
        // wait for ever behind a worker that is always full.
        let mut waiting: Vec<ClassId> = Vec::new();
        while booked < budget {
            self.forget_vanished(&mut filter);
            // Else every queue would be asked for what is left of it: nothing.
            if filter.blocked_classes.len() >= self.queues.class_count() {
                break;
            }
            let Some((queue, queued_step, class)) = self.queues.next(&mut filter, &|_| true) else { break };
            let asks = self.classes.get(class);
            if self.limit_reached(asks).is_some() {
                filter.blocked_classes.insert(class);
            } else if self.queues.get(queue).over_quota(asks.request.cpu, false).is_some() {
                filter.blocked_in_queue.insert((queue, class));
            } else if !self.short.contains(&queued_step.step()) {
                waiting.push(class);
                filter.blocked_classes.insert(class);
                if waiting.len() >= bounds::PREFETCH_BEHIND_MAX {
                    break;
                }
            } else if let Some(worker) = self.worker_ahead(queued_step.step(), class, &waiting, &mut looks) {
                self.book(queue, queued_step, worker, true, &mut filter, out);
                booked += 1;
            } else if looks == 0 {
                break;
            } else {
                filter.blocked_classes.insert(class);
            }
        }
        self.queues.resume_exhausted(&mut filter);
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
                self.classes.find(*class).is_some_and(|waits| placement::eligible_when_idle(waits, worker))
            };
            let may = !self.reserved.contains_key(&worker.id)
                && avoids != Some(worker.id)
                && placement::eligible_when_idle(asks, worker)
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
    fn note_placement(
        &mut self,
        (queue, queued_step): (QueueId, QueuedStep),
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
                && classes
                    .find(*waiting)
                    .is_some_and(|waiting| placement::eligible_when_idle(waiting, worker))
                && queues.overtakes(queue, &queued_step, *waiting);
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
        self.blocked = round.blocked;
        // What the reservation kept off them was passed over in this round.
        self.needs_round |= !round.freed.is_empty();
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
        let missing = self.placement_request(key, queue).zip(self.workers.get(worker));
        let missing = missing.and_then(|(request, worker)| self.match_context().missing(&request, worker));
        if let Some(missing) = missing {
            self.windows.record(self.now, Metric::MissingKeys, missing.keys.into());
            self.windows.record(self.now, Metric::MissingBytes, missing.bytes as f64);
        }
    }

    fn book(
        &mut self,
        queue: QueueId,
        queued_step: QueuedStep,
        id: WorkerId,
        queued: bool,
        filter: &mut RoundFilter,
        out: &mut Outbox,
    ) {
        let key: StepKey = queued_step.step();
        self.pin(key.job, out);
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
        let (profile, ms) = (step.profile, step.mean_ms.unwrap_or(0.0));
        let waited_ns = self.now.since(step.ready_since);
        let (drained, dependents) = (step.ready.is_empty(), step.dependents);
        let task = TaskId { job: key.job, index };
        self.take_limits(key, id, 1);
        let epoch = self.workers.update(id, |w| {
            w.warmth.ran(profile);
            if queued {
                w.send_ahead(task, ms)
            } else {
                w.hold(task, key, &request, expects, request.cpu)
            }
            w.epoch
        });
        let charged = self.estimate(key, profile, queue, id, &request, expects);
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
        out.notes.push(Fact::Booked { task, worker: id, waited_ns });
        self.record_wait(waited_ns, dependents);
        self.record_missing(key, queue, id);
        self.queues.charge(queue, self.cost_of(&attempt.charged), filter);
        self.queues.hold(queue, attempt.request.cpu);
        self.count_advance(key.job, &attempt, true);
        self.attempts.insert(task, attempt);
        if let Some(order) = self.start_order(task) {
            self.send(id, order, out);
        }
        self.kin_booked(profile, self.now);
        if drained {
            self.refresh(key);
        }
    }
}
