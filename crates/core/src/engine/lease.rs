//! Leases: how long the tasks of a worker that is not heard from may run.
//!
//! A worker that fences ends its tasks itself when its lease runs out. The lease is granted by the
//! answer to a hello or a beat, never for longer than is durable but while the store fails or is slow, and counts from when
//! the worker sent that; the engine judges by its own clock and by what is durable, so it never takes a task for ended
//! before the worker has ended it.

use super::{Engine, Fact, Hello, Holder, Outbox, Refusal, Reply, WorkerCommand, Write};
use crate::bounds;
use crate::ids::{RequestId, WorkerId};
use crate::load::formula::Saturated;
use crate::time::Time;
use crate::worker::{Worker, WorkerState};

impl Engine {
    /// Whether a worker may introduce itself so. A name is one machine's at a time: another one gets it
    /// when nothing of the first can run any more.
    pub fn admit(&self, hello: &Hello) -> Result<(), Refusal> {
        let Some(known) = self.plan.workers.by_name(&hello.name) else {
            let (what, is, max) = ("workers", self.plan.workers.len() as u64, bounds::WORKERS_MAX as u64);
            return if is < max { Ok(()) } else { Err(Refusal::TooMany { what, is, max }) };
        };
        if known.incarnation == hello.incarnation {
            return Ok(());
        }
        let taken = |holder| Err(Refusal::NameTaken { name: hello.name.clone(), holder });
        let same_machine = known.identity == hello.identity || known.identity == 0;
        if known.connected && (hello.new_link || !same_machine) {
            return taken(Holder::Connected);
        }
        if same_machine || !known.has_attempts() {
            return Ok(());
        }
        match known.lease_until.map(|until| until.since(self.now)) {
            Some(0) => Ok(()),
            Some(left_ns) => taken(Holder::Leased { left_ns }),
            None => taken(Holder::Unleased),
        }
    }

    /// Looks after the workers that were silent for too long, and those whose lease has run out.
    pub(super) fn tick(&mut self, out: &mut Outbox) {
        self.finish_probes();
        self.end_back_offs();
        self.ledger.accrue(self.now, &mut self.plan.queues);
        self.plan.tick();
        while let Some(id) = self.plan.workers.due(self.now) {
            if self.plan.workers.refresh(id, self.now) {
                self.plan.request_round();
                continue;
            }
            let lease_until = self.plan.workers.get(id).and_then(|worker| worker.lease_until);
            if lease_until.is_some_and(|until| until <= self.now) {
                self.fence_off(id, WorkerState::Expired, out);
            } else {
                self.worker_lost(id, out);
            }
        }
    }

    /// The link to a worker is gone, or it is silent.
    pub(super) fn worker_lost(&mut self, id: WorkerId, out: &mut Outbox) {
        if self.plan.workers.get(id).is_some_and(|worker| worker.connected) {
            self.plan.workers.update(id, Worker::unlink);
            self.note_worker(id, "suspect", out);
        }
    }

    /// Lengthens a worker's lease where less than half of it is left, so that most beats write nothing.
    pub(super) fn renew(&mut self, id: WorkerId, out: &mut Outbox) {
        let Some(until) = self.plan.workers.get(id).and_then(|worker| worker.lease_until) else { return };
        let Some(lease_ns) = self.lease_ns.filter(|ns| until.since(self.now) < ns / 2) else { return };
        let until = self.now.after(lease_ns);
        self.plan.workers.renew(id, until);
        out.writes.push(Write::Lease { worker: id, until });
    }

    /// Renews the lease of a worker that is heard while the store cannot be written, or takes long. After a restart the stored lease may
    /// look expired too early. That is safe, because a restart renews every lease in full before it expires any.
    pub fn keep_lease(&mut self, now: Time, id: WorkerId, sent: u64, out: &mut Outbox) {
        self.now = self.now.max(now);
        let held = self.plan.workers.get(id).is_some_and(|worker| worker.lease_until.is_some());
        let Some(lease_ns) = self.lease_ns.filter(|_| held) else { return };
        self.plan.workers.renew(id, self.now.after(lease_ns));
        self.grant(id, sent, out);
    }

    /// Tells a worker how long its lease lasts: until what is durable when this batch is. Never longer
    /// than a lease, though a clock that was set back between two engines can leave more: the next engine
    /// counts on that. A worker without a lease is told nothing.
    pub(super) fn grant(&mut self, id: WorkerId, sent: u64, out: &mut Outbox) {
        let Some(until) = self.plan.workers.get(id).and_then(|worker| worker.lease_until) else { return };
        let Some(lease_ns) = self.lease_ns else { return };
        let lasts_ns = until.since(self.now).min(lease_ns);
        self.send(id, WorkerCommand::Lease { sent, lasts_ns }, out);
    }

    /// Nobody answered beats while no engine was there: whoever has a lease has it for a whole one from
    /// now on.
    pub(super) fn lease_anew(&mut self) {
        let leased = self.plan.workers.iter().filter(|worker| worker.lease_until.is_some());
        let ids: Vec<WorkerId> = leased.map(|worker| worker.id).collect();
        let (now, lease_ns) = (self.now, self.lease_ns);
        for id in ids {
            self.plan.workers.update(id, |worker| worker.lease(now, lease_ns));
        }
    }

    /// Nobody knows when workers were there last: from now on they are not.
    pub(super) fn greet_all(&mut self) {
        let (now, ids) = (self.now, self.plan.workers.iter().map(|worker| worker.id).collect::<Vec<_>>());
        for id in ids {
            self.plan.workers.update(id, |worker| worker.greeted = now);
        }
    }

    /// Somebody answers for it that nothing runs on the worker any more. Where `force` says so, even while it
    /// is connected: what it still runs ends when it says hello again, or with its lease.
    pub(super) fn forget_worker(&mut self, request: RequestId, id: WorkerId, force: bool, out: &mut Outbox) {
        let known = self.plan.workers.get(id).filter(|worker| worker.state != WorkerState::Forgotten);
        let answer = match known {
            None => Reply::Refused(Refusal::NoWorker(id)),
            Some(worker) if worker.connected && !force => {
                Reply::Refused(Refusal::Connected(worker.name.to_string()))
            }
            Some(worker) => {
                out.before.push(worker.record());
                self.fence_off(id, WorkerState::Forgotten, out);
                Reply::Done
            }
        };
        out.answers.push((request, answer));
    }

    /// Nothing runs on the worker any more: what was booked on it is lost, and what it says of that
    /// later is late. The new epoch and the ends are in one batch.
    fn fence_off(&mut self, id: WorkerId, state: WorkerState, out: &mut Outbox) {
        self.plan.workers.update(id, |worker| {
            worker.epoch.0 += 1;
            worker.state = state;
            worker.draining &= state != WorkerState::Forgotten;
            worker.note = worker.note.take().filter(|_| worker.draining);
            worker.connected = false;
            worker.lease_until = None;
        });
        self.write_worker(id, if state == WorkerState::Expired { "expired" } else { "forgotten" }, out);
        self.lose_attempts(id, out);
        self.drop_places(id);
        self.plan.request_round();
    }

    /// Tells of workers that begin or cease to lack what new work needs.
    pub(super) fn note_pressure(&mut self, out: &mut Outbox) {
        for (worker, (before, held)) in self.plan.workers.take_pressed() {
            let what = match held {
                Saturated { state: Some(_), .. } => "short of free space in its state directory",
                Saturated { session: Some(_), .. } => "short of free space in its session directory",
                Saturated { memory: true, .. } => "held by memory pressure",
                Saturated { io: true, .. } => "held by io pressure",
                Saturated { cpu: true, .. } => "held by cpu pressure",
                Saturated { network: true, .. } => "held from network-bound work: its network is in use",
                Saturated { .. } if before.lacks_space() => "no longer short of free space",
                Saturated { .. } if before.is_pressed() => "no longer held by pressure",
                Saturated { .. } => "no longer held from network-bound work",
            };
            self.note_worker(worker, what, out);
        }
    }

    pub(super) fn note_worker(&self, id: WorkerId, what: &'static str, out: &mut Outbox) {
        let Some(worker) = self.plan.workers.get(id) else { return };
        out.notes.push(Fact::Worker { worker: id, name: worker.name.to_string(), what });
    }
}
