//! Places that clients hold: what they cost, and how they are given back.

use super::{ClientPlaces, HeldPlace, PlaceInUse, share_of};
use crate::ids::{AllocId, QueueId, WorkerId};
use crate::plan::Planner;
use crate::queues::{Charge, cost};
use crate::resources::Resources;
use crate::time::NS_PER_MS;
use std::collections::BTreeSet;

/// The limits of which a place on a worker takes one each, or gives it back.
pub(crate) type LimitsOn = (WorkerId, BTreeSet<String>);

impl ClientPlaces {
    /// A client gives its place back. Returns the worker that has more room now, and the limits that it gives back there.
    pub(crate) fn free(&mut self, alloc: AllocId, plan: &mut Planner) -> Option<LimitsOn> {
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
        Some((place.worker, place.limits))
    }

    /// Places in use on a worker, as its gateway knows them. Those that the engine does not know, because it was restarted,
    /// are taken up and charged from now on. Others there may just have been given, so they stay.
    pub(crate) fn take_up(&mut self, worker: WorkerId, in_use: Vec<PlaceInUse>, plan: &mut Planner) {
        for PlaceInUse { alloc, queue, amounts } in in_use {
            if self.get(alloc).is_none() && plan.workers.get(worker).is_some() {
                let queue = plan.queues.intern(&queue);
                self.count_running(alloc, (worker, queue), amounts, BTreeSet::new(), plan);
            }
        }
    }

    /// Books what runs already. It is charged from now on, as its time passes.
    pub(super) fn count_running(
        &mut self,
        alloc: AllocId,
        (worker, queue): (WorkerId, QueueId),
        amounts: Resources,
        limits: BTreeSet<String>,
        plan: &mut Planner,
    ) {
        let Some(known) = plan.workers.get(worker) else { return };
        let share = share_of(&amounts, &known.record.capacity);
        plan.queues.count_job(queue, 1);
        plan.queues.hold(queue, amounts.cpu);
        plan.workers.update(worker, |w| {
            w.booked.give_place(alloc, amounts.clone());
        });
        let place = HeldPlace { worker, queue, amounts, limits, since: plan.now(), charged: 0, share };
        self.held.insert(alloc, place);
    }

    /// A gateway says how many places of its system a worker gives from now on, as the named amount `name`. Places that
    /// clients hold stay, also where they are more. What the worker itself says of the amount holds again with its next
    /// hello.
    pub(crate) fn offer(&mut self, worker: WorkerId, name: String, count: u64, plan: &mut Planner) {
        let Some(known) = plan.workers.get(worker) else { return };
        let (mut capacity, attributes) = (known.record.capacity.clone(), known.record.attributes.clone());
        if capacity.custom.insert(name, count) != Some(count) {
            plan.workers.describe(worker, capacity, attributes);
            plan.request_round();
        }
    }
}
