//! One bounded scheduling round: bookings in turn until nothing fits, then a little work ahead for
//! workers whose tasks are short.

use super::{Attempt, Engine, Lent, Note, Outbox, Write};
use crate::ids::{ClassId, QueueId, StepKey, TaskId, WorkerId};
use crate::job::Tries;
use crate::limits;
use crate::matcher;
use crate::queues::Candidate;
use crate::time::Time;
use crate::worker::{Worker, WorkerState};
use std::collections::BTreeSet;

impl Engine {
    /// Books up to `budget` tasks. Returns how many it booked. A class that fits nowhere is passed
    /// over for the whole round, so the cost follows classes and bookings, never the backlog.
    pub fn round(&mut self, now: Time, budget: usize, out: &mut Outbox) -> usize {
        self.now = self.now.max(now);
        if !self.dirty {
            return 0;
        }
        let mut booked = 0;
        let mut blocked: BTreeSet<ClassId> = BTreeSet::new();
        while booked < budget {
            let Some((queue, candidate, class)) = self.queues.next(&blocked) else { break };
            match matcher::push(self.classes.get(class), &self.workers) {
                Some(worker) => {
                    self.book(queue, candidate, worker, false, out);
                    booked += 1;
                }
                None => _ = blocked.insert(class),
            }
        }
        if booked < budget && !blocked.is_empty() {
            booked += self.prefetch(budget - booked, out);
        }
        self.dirty = booked == budget;
        booked
    }

    /// Sends short tasks ahead to workers that are full, so that a slot does not wait for a round
    /// trip. A step is known to be short by its tasks that ended; the first ones are never sent ahead.
    fn prefetch(&mut self, budget: usize, out: &mut Outbox) -> usize {
        // A worker does not know of places of outside clients and would start what it was sent ahead
        // in their room.
        let open = |w: &&Worker| {
            w.state == WorkerState::Up && !w.running.is_empty() && w.allocs.is_empty() && !self.lends(w)
        };
        let ids: Vec<WorkerId> = self.workers.iter().filter(open).map(|w| w.id).collect();
        let mut booked = 0;
        for id in ids {
            let mut skip = BTreeSet::new();
            while booked < budget {
                let Some(worker) = self.workers.get(id) else { break };
                let slots = worker.running.len() as f64;
                if worker.backlog.len() >= limits::PREFETCH_MAX
                    || worker.backlog_ms >= limits::PREFETCH_MS * slots
                {
                    break;
                }
                let next = matcher::pull(worker, &self.queues, &self.classes, &mut skip, |class, worker| {
                    matcher::could_ever(class, worker)
                });
                let Some((queue, candidate, class)) = next else { break };
                let mean_ms = self.step(candidate.step()).and_then(|s| s.mean_ms);
                match mean_ms {
                    Some(ms) if ms < limits::PREFETCH_MS => {
                        self.book(queue, candidate, id, true, out);
                        booked += 1;
                    }
                    _ => _ = skip.insert(class),
                }
            }
        }
        booked
    }

    fn book(&mut self, queue: QueueId, candidate: Candidate, id: WorkerId, queued: bool, out: &mut Outbox) {
        let key: StepKey = candidate.step();
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        let spec = &job.spec.steps[usize::from(key.step)];
        let step = &mut job.steps[usize::from(key.step)];
        let Some(index) = step.ready.pop_first() else { return };
        let tries = step.tries.remove(&index).unwrap_or(Tries::default());
        step.active += 1;
        let request = spec.request.clone();
        let ms = step.mean_ms.unwrap_or(0.0);
        let waited_ns = self.now.since(step.ready_since);
        let drained = step.ready.is_empty();
        let task = TaskId { job: key.job, index };
        let epoch = self.workers.update(id, |w| {
            if queued {
                w.backlog.push_back(task);
                w.backlog_ms += ms;
            } else {
                w.booked.add(&request);
                w.running.insert(task);
            }
            w.epoch
        });
        let number = tries.attempt + 1;
        let mut attempt = Attempt {
            number,
            worker: id,
            epoch: epoch.unwrap_or_default(),
            booked: self.now,
            started: None,
            failures: tries.failures,
            losses: tries.losses,
            seq: 0,
            queued,
            killing: false,
            lent: Lent::No,
        };
        out.writes.push(Write::Book {
            task,
            attempt: number,
            worker: id,
            epoch: attempt.epoch,
            at: self.now,
            amounts: (request.cpu, request.memory),
        });
        out.notes.push(Note::Booked { task, worker: id, waited_ns });
        attempt.seq = self.workers.get(id).map_or(0, |w| w.seq + 1);
        self.attempts.insert(task, attempt);
        if let Some(order) = self.start_order(task) {
            self.send(id, order, out);
        }
        self.queues.charge(queue);
        if drained {
            self.refresh(key);
        }
    }
}
