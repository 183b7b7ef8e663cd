//! Places that clients hold: what they cost, and how they are given back.

use super::{ClientPlaces, HeldPlace, PlaceInUse};
use crate::ids::{AllocId, WorkerId};
use crate::plan::Planner;
use crate::queues::{Charge, cost, dominant_share};
use crate::time::NS_PER_MS;

impl ClientPlaces {
    /// A client gives its place back. Returns the worker that has more room now.
    pub(crate) fn free(&mut self, alloc: AllocId, plan: &mut Planner) -> Option<WorkerId> {
        let place = self.release(alloc)?;
        let ran_ms = plan.now().since(place.since) / NS_PER_MS;
        plan.queues.settle(place.queue, place.amounts.cpu);
        plan.queues.count_job(place.queue, -1);
        if self.charge == Charge::Time {
            let by = cost(place.share, ran_ms) as i64 - place.charged as i64;
            plan.queues.correct(place.queue, by, None);
        }
        plan.queues.learn(place.queue, ran_ms as f64);
        plan.workers.update(place.worker, |w| {
            w.booked.free_place(alloc);
        });
        Some(place.worker)
    }

    /// Places in use on a worker, as its gateway knows them. Those that the engine does not know, because it was restarted,
    /// are taken up and charged from now on. Others there may just have been given, so they stay.
    pub(crate) fn take_up(&mut self, worker: WorkerId, in_use: Vec<PlaceInUse>, plan: &mut Planner) {
        for PlaceInUse { alloc, queue, amounts } in in_use {
            let Some(capacity) = plan.workers.get(worker).map(|worker| &worker.record.capacity) else {
                return;
            };
            if self.get(alloc).is_some() {
                continue;
            }
            let share = dominant_share(&amounts, 0, capacity);
            let queue = plan.queues.intern(&queue);
            plan.queues.count_job(queue, 1);
            plan.queues.hold(queue, amounts.cpu);
            plan.workers.update(worker, |w| {
                w.booked.give_place(alloc, amounts.clone());
            });
            let place = HeldPlace { worker, queue, amounts, since: plan.now(), charged: 0, share };
            self.adopt(alloc, place);
        }
    }
}
