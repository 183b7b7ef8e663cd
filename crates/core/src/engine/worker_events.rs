//! What workers say: hello, what they hold, what started, what ended.

use super::event::{HeldPhase, Inventory, Report};
use super::{Attempt, Engine, Fact, Hello, Outbox, Refusal, Reply, WorkerCommand, Write};
use crate::bounds;
use crate::bounds::{CORES_USED_MAX, PEAK_BYTES_MAX};
use crate::ids::{AllocId, Epoch, RequestId, TaskId, WorkerId};
use crate::job::{End, TaskResult};
use crate::ledger::Lent;
use crate::queues::BadSetting;
use crate::resources::Resources;
use crate::time::{NS_PER_MS, Time};
use crate::worker::{Origin, Worker, WorkerRecord, WorkerState};
use std::collections::BTreeMap;

/// Batches that may hold what was decided before a hello: the one in flight, and the one that forms.
const BATCHES: u32 = 2;

impl Engine {
    pub(super) fn hello(&mut self, hello: Hello, out: &mut Outbox) {
        // A keeper that was known under another name holds what was booked under that name. Its number is
        // no secret, so only the same machine may say so, and only when nobody works under the other name.
        let renamed = || {
            self.plan.workers.iter().find(|w| {
                w.incarnation == hello.incarnation
                    && w.identity == hello.identity
                    && !w.connected
                    && Origin::of(&w.name) == Origin::of(&hello.name)
            })
        };
        let known = self.plan.workers.by_name(&hello.name).or_else(renamed).map(|w| w.id);
        if let (Some(worker), Err(_)) = (known, self.admit(&hello)) {
            out.notes.push(Fact::Worker { worker, name: hello.name, what: "claimed by another" });
            return;
        }
        let before = known.and_then(|id| self.plan.workers.get(id));
        let is_late = before.is_some_and(|w| w.incarnation == hello.incarnation && hello.sent < w.last_sent);
        // An earlier hello of the same connection that comes late is out of date.
        if is_late && !hello.new_link && before.is_some_and(|w| w.connected) {
            return;
        }
        if let Some(id) = known {
            self.plan.workers.rename(id, &hello.name);
        }
        let id = known.unwrap_or_else(|| self.add_worker(&hello.name));
        let (now, lease_ns) = (self.now, self.lease_ns.filter(|_| hello.fences));
        let news = self.plan.workers.is_news(&hello.attributes);
        self.plan.workers.describe(id, hello.capacity, hello.attributes);
        if news {
            // Steps may have asked for what nobody had.
            self.plan.workers.learn(self.plan.classes.iter().flat_map(|class| &class.needs));
        }
        let welcome = self.plan.workers.update(id, |w| {
            if w.incarnation != hello.incarnation {
                w.epoch.0 += 1;
                w.incarnation = hello.incarnation;
            }
            w.identity = hello.identity;
            w.last_sent = hello.sent;
            w.state = if w.draining { WorkerState::Draining } else { WorkerState::Up };
            w.connected = true;
            w.greeted = now;
            w.lease(now, lease_ns);
            // One that does not fence may not beat either: it is known to when it does.
            w.heard = (hello.fences || w.heard.is_some()).then_some(now);
            w.seq = w.seq.max(hello.inventory.seq);
            w.overdue_beats = 0;
            (w.epoch, if w.draining { "draining" } else { "up" })
        });
        let Some((epoch, state)) = welcome else { return };
        self.lose_attempts(id, out);
        let welcome_seq = self.send(id, WorkerCommand::Registered { epoch }, out);
        self.plan.workers.update(id, |w| w.welcome_seq = welcome_seq);
        self.greetings = BATCHES;
        self.write_worker(id, state, out);
        self.grant(id, hello.sent, out);
        // A connection begins with a hello: what went over an earlier one has arrived, or never will. A hello that comes
        // after a start on the same connection may have been said before that start arrived.
        let through = if hello.new_link && !is_late { u64::MAX } else { hello.inventory.seq };
        let unsure = self.inventory(id, &hello.inventory, through, out);
        self.say_again(id, &unsure, out);
        self.plan.request_round();
    }

    fn add_worker(&mut self, name: &str) -> WorkerId {
        let id = WorkerId(self.plan.workers.last_id().map_or(1, |last| last.0 + 1));
        self.plan.workers.insert(Worker::unheard(WorkerRecord {
            id,
            name: name.to_owned(),
            epoch: Epoch(0),
            identity: 0,
            incarnation: 0,
            state: WorkerState::Suspect,
            draining: false,
            note: None,
            lease_until: None,
            capacity: Resources::default(),
            attributes: BTreeMap::new(),
        }));
        id
    }

    pub(super) fn write_worker(&self, id: WorkerId, what: &'static str, out: &mut Outbox) {
        let Some(worker) = self.plan.workers.get(id) else { return };
        out.writes.push(Write::Worker(worker.record()));
        self.note_worker(id, what, out);
    }

    pub(super) fn drain(
        &mut self,
        request: RequestId,
        id: WorkerId,
        (draining, note): (bool, Option<String>),
        out: &mut Outbox,
    ) {
        if let Some(bytes) = note.as_ref().map(String::len).filter(|bytes| *bytes > bounds::NOTE_BYTES_MAX) {
            out.answers.push((request, Reply::Refused(BadSetting::Note(bytes).into())));
            return;
        }
        if self.plan.workers.get(id).is_none_or(|w| w.state == WorkerState::Forgotten) {
            out.answers.push((request, Reply::Refused(Refusal::NoWorker(id))));
            return;
        }
        out.before.extend(self.plan.workers.get(id).map(Worker::record));
        self.plan.workers.update(id, |w| {
            w.draining = draining;
            w.note = note.map(Into::into);
            w.state = match w.state {
                WorkerState::Expired => WorkerState::Expired,
                _ if draining => WorkerState::Draining,
                _ if w.connected => WorkerState::Up,
                _ => WorkerState::Suspect,
            };
        });
        self.write_worker(id, if draining { "draining" } else { "resumed" }, out);
        self.plan.request_round();
        out.answers.push((request, Reply::Done));
    }

    /// All that ran under the worker's earlier epochs is gone. Told by the epoch and not by the keeper's
    /// number: a commit that failed can leave attempts of an earlier epoch on a worker whose new keeper
    /// is known already.
    pub(super) fn lose_attempts(&mut self, id: WorkerId, out: &mut Outbox) {
        let Some(worker) = self.plan.workers.get(id) else { return };
        let tasks = worker.running.iter().chain(&worker.backlog).copied();
        let earlier = |task: &TaskId| self.ledger.attempts.get(task).is_some_and(|a| a.epoch != worker.epoch);
        let tasks: Vec<TaskId> = tasks.filter(earlier).collect();
        for task in tasks {
            if let Some(attempt) = self.drop_attempt(task) {
                // What was killed on request ended as asked.
                let end = if attempt.killing { End::Canceled } else { End::Lost };
                self.conclude(task, &attempt, TaskResult::bare(end), out);
            }
        }
    }

    /// A worker says what it holds. Where it is not known to be connected, a commit failed since its
    /// hello, and it was asked for another; that may have been lost, so it is asked again.
    pub(super) fn beat(&mut self, id: WorkerId, sent: u64, inventory: &Inventory, out: &mut Outbox) {
        match self.plan.workers.get(id).map(|worker| (worker.connected, worker.last_sent)) {
            // It comes late, and what it says is out of date.
            Some((true, last)) if sent < last => self.plan.workers.hear(id, self.now),
            Some((true, _)) => {
                let out_at_last_beat = self.plan.workers.beat(id, self.now, sent);
                self.renew(id, out);
                self.grant(id, sent, out);
                let unsure = self.inventory(id, inventory, inventory.seq, out);
                // A start that went out before the last beat should be there. It may still wait for its body or for a user
                // database, so it is said once more, and nothing else follows.
                let is_overdue =
                    |task: &TaskId| self.ledger.attempts.get(task).is_some_and(|a| a.seq <= out_at_last_beat);
                let overdue: Vec<TaskId> = unsure.iter().copied().filter(is_overdue).collect();
                if self.plan.workers.note_overdue(id, unsure.len(), overdue.len()) {
                    self.say_again(id, &overdue, out);
                }
            }
            Some((false, _)) => _ = self.send(id, WorkerCommand::Resync, out),
            None => {}
        }
    }

    /// Compares what a worker holds with what is booked on it. Of messages numbered up to `through` none
    /// is under way, so what such a message carried and the worker does not hold did not arrive. Returns the attempts
    /// that it does not hold and whose starts have later numbers: each of these may arrive, may be lost, or is not sent
    /// yet.
    fn inventory(
        &mut self,
        id: WorkerId,
        inventory: &Inventory,
        through: u64,
        out: &mut Outbox,
    ) -> Vec<TaskId> {
        let Some(worker) = self.plan.workers.get(id) else { return Vec::new() };
        let held: BTreeMap<TaskId, (u32, HeldPhase)> =
            inventory.held.iter().map(|h| (h.task, (h.attempt, h.phase))).collect();
        let booked: Vec<TaskId> = worker.running.iter().chain(&worker.backlog).copied().collect();
        let (mut missing, mut unsure) = (Vec::new(), Vec::new());
        for task in booked {
            let Some(attempt) = self.ledger.attempts.get(&task) else { continue };
            match held.get(&task) {
                Some((number, phase)) if *number == attempt.number => {
                    self.meet_held(task, *phase, out);
                }
                _ if attempt.seq <= through => missing.push(task),
                _ => unsure.push(task),
            }
        }
        for (task, (attempt, phase)) in held {
            let current =
                self.ledger.attempts.get(&task).is_some_and(|a| a.number == attempt && a.worker == id);
            let is_over = matches!(phase, HeldPhase::Ended | HeldPhase::Unknown);
            if !current && !is_over {
                self.send(id, WorkerCommand::Kill { task, attempt }, out);
            }
        }
        // What rode with a process that the worker does not have goes back before that process is started again.
        missing.sort_by_key(|task| self.ledger.attempts.get(task).is_none_or(|attempt| !attempt.rides));
        // Kills come first: a start may be what the worker breaks off at.
        for task in missing {
            self.miss(task, out);
        }
        self.promote(id);
        unsure
    }

    /// A worker did not say that it has these attempts, and their starts may still be under way. They may be lost as well:
    /// what waits to be sent when a hello comes is dropped. So each start is said once more, with those that ride with it.
    /// A worker that has an attempt passes over its second start. An attempt that is to end holds what it books until
    /// its worker is known not to have it.
    fn say_again(&mut self, id: WorkerId, unsure: &[TaskId], out: &mut Outbox) {
        let heads = unsure.iter().filter_map(|task| Some((*task, self.ledger.attempts.get(task)?)));
        let heads = heads.filter(|(_, attempt)| !attempt.rides);
        let (kills, starts): (Vec<_>, Vec<_>) =
            heads.map(|(task, attempt)| (task, attempt.number, attempt.killing)).partition(|head| head.2);
        for (task, attempt, _) in &kills {
            self.send(id, WorkerCommand::Kill { task: *task, attempt: *attempt }, out);
        }
        for (task, ..) in starts {
            self.send_start(task, out);
        }
        // One that does not beat says what it has in a hello alone.
        let is_silent = self.plan.workers.get(id).is_some_and(|worker| worker.heard.is_none());
        if is_silent && !kills.is_empty() {
            self.send(id, WorkerCommand::Resync, out);
        }
    }

    /// The worker holds the attempt that is booked on it.
    fn meet_held(&mut self, task: TaskId, phase: HeldPhase, out: &mut Outbox) {
        if let HeldPhase::Running(at) | HeldPhase::Lent(at) = phase {
            // What is lent is not stored: an engine that adopts the attempt learns it here.
            if let HeldPhase::Lent(_) = phase
                && let Some(attempt) = self.ledger.attempts.get_mut(&task)
                && attempt.queued
                && attempt.started.is_none()
                && attempt.lent == Lent::No
            {
                attempt.expects = 0;
                self.set_lent(task, Lent::Yes);
            }
            self.mark_started(task, at, out);
        }
        let Some(attempt) = self.ledger.attempts.get(&task) else { return };
        let (worker, number, killing, lent) = (attempt.worker, attempt.number, attempt.killing, attempt.lent);
        // The kill of its process is that of a task that rides with another.
        if killing && phase != HeldPhase::Ended && !attempt.rides {
            self.send(worker, WorkerCommand::Kill { task, attempt: number }, out);
        }
        match lent {
            Lent::Yes if !matches!(phase, HeldPhase::Running(_)) => {}
            Lent::No => {}
            Lent::Yes => _ = self.send(worker, WorkerCommand::Lend { task, attempt: number }, out),
            Lent::Reclaiming => _ = self.send(worker, WorkerCommand::Reclaim { task, attempt: number }, out),
        }
        // The recall at the lending may have been lost, or the attempt adopted since.
        if phase == HeldPhase::Queued
            && self.ledger.attempts.get(&task).is_some_and(Attempt::is_queued)
            && self.plan.workers.get(worker).is_some_and(|w| w.lending > 0)
        {
            self.recall(vec![(task, number, worker)], out);
        }
    }

    /// An attempt's worker does not hold it, and its start is not under way: it is started again, unless it
    /// is to end anyway.
    fn miss(&mut self, task: TaskId, out: &mut Outbox) {
        let Some(attempt) = self.ledger.attempts.get(&task) else { return };
        if attempt.killing {
            if let Some(attempt) = self.drop_attempt(task) {
                self.conclude(task, &attempt, TaskResult::bare(End::Canceled), out);
            }
            return;
        }
        if self.give_back_rider(task, out) {
            return;
        }
        self.ledger.shorten_chunk(task);
        self.send_start(task, out);
    }

    /// Tells its worker to start a booked task. The message's number is that of the attempt from now on, and that of those
    /// that ride with it.
    pub(super) fn send_start(&mut self, task: TaskId, out: &mut Outbox) {
        let Some(attempt) = self.ledger.attempts.get(&task) else { return };
        let (worker, riders) = (attempt.worker, self.ledger.riders_of(task, attempt));
        let Some(order) = self.start_order(task) else { return };
        let seq = self.send(worker, order, out);
        for index in std::iter::once(task.index).chain(riders.into_iter().map(|(index, _)| index)) {
            if let Some(attempt) = self.ledger.attempts.get_mut(&TaskId { index, ..task }) {
                attempt.seq = seq;
            }
        }
    }

    pub(super) fn start_order(&self, task: TaskId) -> Option<WorkerCommand> {
        let (job, attempt) = (self.ledger.jobs.get(&task.job)?, self.ledger.attempts.get(&task)?);
        let step = job.step_of(task.index);
        let spec = &job.spec.steps[usize::from(step)];
        Some(WorkerCommand::Start {
            task,
            step,
            attempt: attempt.number,
            request: attempt.request.clone(),
            // Where nobody asked for memory the amount is a guess, and nothing is killed for a guess.
            memory_limit: (spec.request.memory > 0).then_some(attempt.request.memory + attempt.expects),
            time_limit_ms: spec.time_limit_ms,
            gang: self.gang_place(task),
            riders: self.ledger.riders_of(task, attempt),
        })
    }

    pub(super) fn started(&mut self, by: Report, at: Time, out: &mut Outbox) {
        self.plan.workers.hear(by.worker, self.now);
        if self.is_current(&by) {
            self.mark_started(by.task, at, out);
        }
    }

    pub(super) fn mark_started(&mut self, task: TaskId, at: Time, out: &mut Outbox) {
        let now = self.now;
        let Some(attempt) = self.ledger.attempts.get(&task) else { return };
        if attempt.started.is_none() {
            let number = attempt.number;
            // Its worker's clock may be off, or a lie.
            let at = at.clamp(attempt.booked.min(now), now);
            self.ledger.change_charge(task, &mut self.plan.queues, |attempt| attempt.started = Some(at));
            out.notes.push(Fact::Started { task, attempt: number, at });
            self.ledger.watch_charge(task);
        }
        let Some(attempt) = self.ledger.attempts.get(&task) else { return };
        if attempt.queued {
            // The worker is right about what it runs.
            let worker = attempt.worker;
            let backlog = self.plan.workers.update(worker, |w| w.backlog.iter().position(|t| *t == task));
            if let Some(Some(place)) = backlog {
                self.start_queued(worker, place);
                self.make_room(worker, task);
            }
        }
    }

    /// The worker is right that `task` holds what it holds. Where a message was lost or is late, our
    /// books may say that others hold it too: those did not start yet, or have ended already, so they
    /// hold nothing until we hear of them.
    pub(super) fn make_room(&mut self, id: WorkerId, task: TaskId) {
        while let Some(worker) = self.plan.workers.get(id)
            && !worker.booked.fits(&worker.capacity)
        {
            let others = worker.running.iter().filter(|other| **other != task).filter_map(|other| {
                let attempt = self.ledger.attempts.get(other)?;
                let holds = attempt.lent == Lent::No && !attempt.rides;
                holds.then_some((attempt.started.is_none(), attempt.seq, *other))
            });
            let Some((_, _, other)) = others.max() else { return };
            let Some(Attempt { request, expects, .. }) = self.ledger.attempts.get(&other).cloned() else {
                return;
            };
            let (key, ms) = (self.ledger.key_of(other), self.ledger.predicted_ms(other));
            self.plan.workers.update(id, |w| {
                w.let_go(other, key, &request, expects, request.cpu);
                w.backlog.push_front(other);
                w.backlog_ms += ms;
            });
            if let Some(attempt) = self.ledger.attempts.get_mut(&other) {
                attempt.queued = true;
            }
            self.plan.request_round();
        }
    }

    pub(super) fn finished(&mut self, by: Report, result: TaskResult, out: &mut Outbox) {
        let Report { worker, epoch, task, attempt } = by;
        self.plan.workers.hear(worker, self.now);
        if self.is_current(&by) {
            if let Some(attempt) = self.drop_attempt(task) {
                let result = believable(result, attempt.booked, self.now);
                self.conclude(task, &attempt, result, out);
                self.promote(worker);
            }
        } else if self.plan.workers.get(worker).is_none_or(|w| epoch < w.epoch) {
            let result = believable(result, Time::default(), self.now);
            out.writes.push(Write::Late { task, attempt, worker, epoch, result });
            out.notes.push(Fact::Late { task, attempt, worker });
        }
        // Under the worker's epoch of today an attempt that is not booked was reported before: only the
        // acknowledgement is missing. An epoch that is still to come is a lie.
        self.send(worker, WorkerCommand::Ack { task, attempt }, out);
    }

    pub(super) fn is_current(&self, by: &Report) -> bool {
        self.ledger
            .attempts
            .get(&by.task)
            .is_some_and(|a| a.number == by.attempt && a.worker == by.worker && a.epoch == by.epoch)
    }

    /// Takes an attempt off the books: what it held is free.
    pub(super) fn drop_attempt(&mut self, task: TaskId) -> Option<Attempt> {
        let attempt = self.ledger.attempts.remove(&task)?;
        self.ledger.count_advance(task.job, &attempt, false, &mut self.plan.queues);
        let held = attempt.held();
        let (key, ms) = (self.ledger.key_of(task), self.ledger.predicted_ms(task));
        self.plan.workers.update(attempt.worker, |w| {
            w.lending -= u32::from(attempt.lent != Lent::No);
            if attempt.queued {
                w.backlog.retain(|t| *t != task);
                w.backlog_ms = if w.backlog.is_empty() { 0.0 } else { (w.backlog_ms - ms).max(0.0) };
            } else {
                w.let_go(task, key, &held, attempt.expects, attempt.request.cpu);
            }
        });
        if !attempt.rides {
            self.take_limits(key, attempt.worker, -1);
        }
        if let Some(profile) = self.ledger.step(key).map(|step| step.profile) {
            self.profile_left(profile);
        }
        self.plan.request_round();
        Some(attempt)
    }

    /// Lets the backlog start in its order, as far as there is room: the worker does the same.
    pub(super) fn promote(&mut self, id: WorkerId) {
        while let Some(worker) = self.plan.workers.get(id)
            && let Some(task) = worker.backlog.front()
            && worker.connected
            && self.ledger.request_of(*task).fits(&worker.free())
        {
            self.start_queued(id, 0);
        }
    }

    /// A client gives its place back: the worker may have room for a task that waits there.
    pub(super) fn free_place(&mut self, alloc: AllocId) {
        let Some(worker) = self.places.free(alloc, &mut self.plan, self.now) else { return };
        self.promote(worker);
        self.plan.request_round();
    }

    /// A worker is gone, and with it what clients held there.
    pub(super) fn drop_places(&mut self, worker: WorkerId) {
        for alloc in self.places.on(worker) {
            self.free_place(alloc);
        }
    }

    fn start_queued(&mut self, id: WorkerId, place: usize) {
        let Some(task) = self.plan.workers.get(id).and_then(|w| w.backlog.get(place).copied()) else {
            return;
        };
        let Some(attempt) = self.ledger.attempts.get_mut(&task) else { return };
        attempt.queued = false;
        let (held, expects, cpu) = (attempt.held(), attempt.expects, attempt.request.cpu);
        let (key, ms) = (self.ledger.key_of(task), self.ledger.predicted_ms(task));
        self.plan.workers.update(id, |w| {
            w.backlog.remove(place);
            w.backlog_ms = if w.backlog.is_empty() { 0.0 } else { (w.backlog_ms - ms).max(0.0) };
            w.hold(task, key, &held, expects, cpu);
        });
    }
}

/// A result as it can have been: what ran between the booking and now, for as long as its worker says that it
/// took. A clock that is off by as much moves it; what the worker says is otherwise stored as it is.
fn believable(mut result: TaskResult, booked: Time, now: Time) -> TaskResult {
    let booked = booked.min(now);
    if let Some((started, finished)) = result.started.zip(result.finished) {
        let ran_ns = finished.since(started).min(now.since(booked));
        let finished = finished.clamp(booked.after(ran_ns), now);
        (result.started, result.finished) = (Some(Time(finished.0 - ran_ns)), Some(finished));
    } else {
        result.started = result.started.map(|at| at.clamp(booked, now));
        result.finished = result.finished.map(|at| at.clamp(booked, now));
    }
    let ran_ms = result.started.map_or(0, |at| now.since(at)) / NS_PER_MS;
    let cpu_ms_max = (ran_ms + 1_000) * CORES_USED_MAX;
    result.cpu_ms = result.cpu_ms.map(|ms| ms.min(cpu_ms_max));
    result.peak_memory = result.peak_memory.map(|bytes| bytes.min(PEAK_BYTES_MAX));
    result
}
