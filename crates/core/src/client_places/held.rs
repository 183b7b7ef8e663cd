//! Places that clients hold: what they cost, and how they are given back.

use super::memory::PlaceMemory;
use super::{ClientPlaces, HeldPlace, PlaceInUse, share_of};
use crate::ids::{AllocId, QueueId, WorkerId};
use crate::plan::Planner;
use crate::queues::{Advance, Charge, change_place, cost};
use crate::resources::Resources;
use crate::time::{NS_PER_MS, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The limits of which a place on a worker takes one each, or gives it back.
pub(crate) type LimitsOn = (WorkerId, BTreeSet<String>);

impl ClientPlaces {
    /// A client gives its place back. Returns the worker that has more room now, and the limits that it gives back there.
    pub(crate) fn free(&mut self, alloc: AllocId, plan: &mut Planner) -> Option<LimitsOn> {
        let place = self.release(alloc)?;
        let ran_ms = plan.now().since(place.since) / NS_PER_MS;
        change_place(&mut plan.queues, place.queue, &place.advance(self.charge), &Advance::default());
        plan.queues.settle(place.queue, place.amounts.cpu);
        plan.queues.count_job(place.queue, -1);
        if self.charge == Charge::Time {
            let by = place.cost_until(plan.now()) as i64 - place.charged as i64;
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
                let (at, memory) = ((worker, queue), PlaceMemory::default());
                let place = HeldPlace::begin(at, amounts, BTreeSet::new(), memory, plan.now());
                self.count_running(alloc, place, plan);
            }
        }
    }

    /// Books what runs already. It is charged from now on, as its time passes.
    pub(super) fn count_running(&mut self, alloc: AllocId, mut place: HeldPlace, plan: &mut Planner) {
        let Some(known) = plan.workers.get(place.worker) else { return };
        place.share = (share_of(&place.amounts, &known.record.capacity), plan.now());
        plan.queues.count_job(place.queue, 1);
        plan.queues.hold(place.queue, place.amounts.cpu);
        self.hold(alloc, place, None, plan);
    }

    /// A client holds a place from now on, for work that reads what the `profile` stands for.
    pub(super) fn hold(
        &mut self,
        alloc: AllocId,
        place: HeldPlace,
        profile: Option<u64>,
        plan: &mut Planner,
    ) {
        let memory = place.amounts.memory;
        let unused_bytes = place.memory.unused_bytes(memory);
        plan.workers.update(place.worker, |w| {
            profile.into_iter().for_each(|profile| w.warmth.ran(profile));
            w.booked.give_place(alloc, place.amounts.clone());
            w.booked.size_place(alloc, memory, unused_bytes);
        });
        change_place(&mut plan.queues, place.queue, &Advance::default(), &place.advance(self.charge));
        self.held.insert(alloc, place);
    }

    /// What places were charged through, by part of a queue.
    pub(crate) fn advances(&self) -> BTreeMap<QueueId, Advance> {
        let mut advances: BTreeMap<QueueId, Advance> = BTreeMap::new();
        for place in self.held.values() {
            advances.entry(place.queue).or_default().add(&place.advance(self.charge));
        }
        advances
    }

    /// A client says what the work in its place holds. Returns the worker if there is more room for others now.
    pub(crate) fn note_held(&mut self, alloc: AllocId, bytes: u64, plan: &mut Planner) -> Option<WorkerId> {
        let place = self.held.get_mut(&alloc)?;
        let worker = plan.workers.get(place.worker)?;
        let (room, free_bytes) = (worker.memory_room(), worker.free().memory);
        let booked = place.memory.holds(bytes, place.amounts.memory, free_bytes, plan.now());
        place.amounts.memory = booked;
        let share = share_of(&place.amounts, &worker.record.capacity);
        if share != place.share.0 {
            let before = place.advance(self.charge);
            (place.cost, place.share) = (place.cost_until(plan.now()), (share, plan.now()));
            change_place(&mut plan.queues, place.queue, &before, &place.advance(self.charge));
        }
        let (id, unused_bytes) = (place.worker, place.memory.unused_bytes(booked));
        plan.workers.update(id, |w| w.booked.size_place(alloc, booked, unused_bytes));
        plan.workers.get(id).filter(|worker| worker.memory_room() > room).map(|_| id)
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

impl HeldPlace {
    /// A place that a queue holds on a worker from now on, and was charged nothing for yet.
    pub(super) fn begin(
        (worker, queue): (WorkerId, QueueId),
        amounts: Resources,
        limits: BTreeSet<String>,
        memory: PlaceMemory,
        now: Time,
    ) -> HeldPlace {
        HeldPlace { worker, queue, amounts, limits, memory, since: now, charged: 0, share: (0, now), cost: 0 }
    }

    /// What it costs its queue until then.
    fn cost_until(&self, now: Time) -> u64 {
        let (share, since) = self.share;
        self.cost.saturating_add(cost(share, now.since(since) / NS_PER_MS))
    }

    /// What it was charged through: nothing where places cost one each.
    fn advance(&self, charge: Charge) -> Advance {
        if charge == Charge::Task {
            return Advance::default();
        }
        let (share, since) = self.share;
        let rate = i128::from(share.max(1));
        let ahead = i128::from(self.charged) - i128::from(self.cost);
        Advance { through: rate * i128::from(since.as_ms()) + ahead, rate, ..Advance::default() }
    }
}
