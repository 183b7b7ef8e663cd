//! Requests for places: they wait in queues like steps, and rounds place them like tasks.

use super::held::LimitsOn;
use super::memory::{MemoryBasis, PlaceMemory, share_of_room, size_of};
use super::{ClientPlaces, HeldPlace, NoPlace, PlaceRequest, QueuedRequest, share_of};
use crate::bounds;
use crate::cache_keys::Reads;
use crate::class::Class;
use crate::hash::Fnv;
use crate::ids::{QueueId, RequestId, StepKey, WorkerId};
use crate::job::QueuedStep;
use crate::load::formula::slot_cpu;
use crate::outbox::{Outbox, Reply};
use crate::plan::{Booking, Planner, StepFacts, placement};
use crate::profiles::Profiles;
use crate::queues::{Charge, Queues, RoundFilter, first_cost};
use crate::resources::Resources;
use crate::score::history::Signature;
use crate::time::NS_PER_MS;
use crate::worker::Worker;
use crate::workers::Workers;
use std::collections::BTreeSet;

impl ClientPlaces {
    /// A client asks for a place. It is answered by a round, or when it has waited for as long as it may. Where its work
    /// runs already, it has its place at once; returns the limits that this takes.
    pub(crate) fn request(
        &mut self,
        request: RequestId,
        mut place: PlaceRequest,
        profiles: &Profiles,
        plan: &mut Planner,
        out: &mut Outbox,
    ) -> Option<LimitsOn> {
        let mut class = place.class(plan.workers.queue_in_class(&place.queue));
        let first = that_could_have(&class, &plan.workers).next().map(|worker| worker.record.id);
        let Some(worker) = first else {
            out.volatile.push((request, Reply::NoPlace(NoPlace::NoWorkers)));
            return None;
        };
        let names_memory = place.shapes.is_empty() || place.amounts.memory > 0;
        let mut basis = MemoryBasis::Asked;
        if !names_memory {
            (class, basis) = sized(class, &place.shapes, profiles, &plan.workers);
            place.amounts.memory = class.request.memory;
        } else if place.runs && !place.shapes.is_empty() {
            // What it names is what it was booked with before.
            basis = size_of(&place.shapes, profiles, place.amounts.memory).1;
        }
        if self.waiting_count() >= bounds::PLACES_WAITING_MAX {
            out.volatile.push((request, Reply::NoPlace(NoPlace::TooMany)));
            return None;
        }
        let queue = part_for(&place, &mut plan.queues);
        if place.runs {
            let (alloc, limits) = (self.next_alloc(), place.limits);
            let memory = PlaceMemory::begin(basis, !place.shapes.is_empty(), plan.now());
            let at = (worker, queue);
            let held = HeldPlace::begin(at, place.amounts, limits.clone(), memory, plan.now());
            self.count_running(alloc, held, plan);
            out.volatile.push((request, Reply::Placed { alloc, worker }));
            return Some((worker, limits));
        }
        plan.workers.learn(place.needs.iter());
        let class = plan.classes.intern(class);
        plan.queues.count_job(queue, 1);
        let now = plan.now();
        let queued = QueuedStep::new(0, now, self.next_key());
        let mut profile = Fnv::default();
        place.reads.keys().for_each(|key| profile.bytes(key.as_bytes()));
        self.wait(QueuedRequest {
            request,
            queue,
            class,
            queued,
            reads: Reads::of(&place.reads),
            amounts: place.amounts,
            shapes: place.shapes,
            basis,
            is_slot: place.is_slot,
            hints: place.hints,
            avoids: place.avoids,
            since: now,
            until: now.after(place.wait_max_ms.saturating_mul(NS_PER_MS)),
            profile: profile.value(),
        });
        plan.enlist(queue, class, queued);
        None
    }

    /// The first worker came that is for one of these queues alone, or the last one went: requests that wait there are
    /// of other classes from now on.
    pub(crate) fn refresh_classes(&mut self, queues: &BTreeSet<String>, plan: &mut Planner) {
        let name_of = |queue: QueueId| plan.queues.get(plan.queues.whole(queue)).name();
        let waiting = self.waiting().filter(|(_, waiting)| queues.contains(name_of(waiting.queue)));
        let waiting: Vec<StepKey> = waiting.map(|(key, _)| key).collect();
        for key in waiting {
            let Some(request) = self.waiting.get_mut(&key) else { continue };
            let queue = plan.queues.get(plan.queues.whole(request.queue)).name();
            let known = plan.classes.get(request.class);
            let class = Class { queue: plan.workers.queue_in_class(queue), ..known.clone() };
            change_class(request, class, plan);
        }
    }

    /// Work of these shapes is booked with other memory from now on: requests that wait are sized again.
    pub(crate) fn resize(&mut self, learned: &[Signature], profiles: &Profiles, plan: &mut Planner) {
        if learned.is_empty() {
            return;
        }
        for request in self.waiting.values_mut() {
            let is_meant = request.basis != MemoryBasis::Asked
                && request.shapes.iter().any(|shape| learned.contains(shape));
            if !is_meant {
                continue;
            }
            let mut asked = plan.classes.get(request.class).clone();
            (asked.request.memory, asked.guess) = (0, 0);
            let (class, basis) = sized(asked, &request.shapes, profiles, &plan.workers);
            (request.amounts.memory, request.basis) = (class.request.memory, basis);
            change_class(request, class, plan);
        }
    }

    /// A client does not wait any more. Its request is answered all the same: the gateway waits for that.
    pub(crate) fn withdraw(&mut self, request: RequestId, plan: &mut Planner, out: &mut Outbox) {
        if let Some(key) = self.key_of(request) {
            self.refuse(key, NoPlace::Withdrawn, plan, out);
        }
    }

    /// After a full round: requests that have waited for as long as they may get no place.
    pub(crate) fn expire(&mut self, plan: &mut Planner, out: &mut Outbox) {
        while let Some(key) = self.next_expired(plan.now()) {
            self.refuse(key, NoPlace::Expired, plan, out);
        }
    }

    /// A request waits no more, and gets no place.
    fn refuse(&mut self, key: StepKey, why: NoPlace, plan: &mut Planner, out: &mut Outbox) {
        let Some(waiting) = self.take(key) else { return };
        leave_queue(&waiting, plan);
        plan.queues.count_job(waiting.queue, -1);
        out.volatile.push((waiting.request, Reply::NoPlace(why)));
    }

    /// A waiting request as the planner sees it.
    pub(crate) fn facts<'a>(&'a self, key: StepKey, queues: &Queues) -> Option<StepFacts<'a>> {
        let waiting = self.find(key)?;
        Some(StepFacts {
            class: waiting.class,
            first_ready: None,
            ready: 1,
            ready_since: waiting.since,
            dependents: 0.0,
            profile: waiting.profile,
            reads: &waiting.reads,
            hints: &waiting.hints,
            avoids: waiting.avoids,
            mean_ms: queues.mean_ms(waiting.queue),
            prediction: None,
            time_limit_ms: None,
        })
    }

    /// Gives a worker's room to the client that waits for it. Returns the limits that this takes.
    pub(crate) fn book(
        &mut self,
        booking: &Booking,
        plan: &mut Planner,
        filter: &mut RoundFilter,
        out: &mut Outbox,
    ) -> Option<LimitsOn> {
        let waiting = self.take(booking.queued_step.step())?;
        let worker = booking.worker;
        let amounts = amounts_on(&waiting, worker, plan);
        let (charged, share) = self.first_charge_of(&waiting, &amounts, worker, plan);
        let limits = plan.classes.get(waiting.class).limits.clone();
        let now = plan.now();
        let memory = PlaceMemory::begin(waiting.basis, !waiting.shapes.is_empty(), now);
        let place = HeldPlace::begin((worker, waiting.queue), amounts, limits.clone(), memory, now);
        let place = HeldPlace { charged, share: (share, now), ..place };
        plan.queues.charge(waiting.queue, charged, filter);
        plan.queues.hold(waiting.queue, place.amounts.cpu);
        let alloc = self.next_alloc();
        self.hold(alloc, place, Some(waiting.profile), plan);
        leave_queue(&waiting, plan);
        out.volatile.push((waiting.request, Reply::Placed { alloc, worker }));
        Some((worker, limits))
    }

    /// What a place costs its queue at first, and its dominant share of the worker.
    fn first_charge_of(
        &self,
        waiting: &QueuedRequest,
        amounts: &Resources,
        worker: WorkerId,
        plan: &Planner,
    ) -> (u64, u32) {
        let capacity = plan.workers.get(worker).map(|worker| &worker.record.capacity);
        let share = capacity.map_or(0, |capacity| share_of(amounts, capacity));
        match self.charge {
            Charge::Task => (1, share),
            Charge::Time => (first_cost(share, plan.queues.mean_ms(waiting.queue)), share),
        }
    }
}

/// What a request takes of a worker that has room for it: what it asks for, or a compile slot as far as that is free. Where
/// nothing is known of its memory, it takes a part of what is free.
fn amounts_on(waiting: &QueuedRequest, worker: WorkerId, plan: &Planner) -> Resources {
    let mut amounts = waiting.amounts.clone();
    let Some(worker) = plan.workers.get(worker) else { return amounts };
    if waiting.is_slot {
        let slot = slot_cpu(worker.record.capacity.cpu).min(worker.free().cpu);
        amounts.cpu = amounts.cpu.max(slot);
    }
    if waiting.basis == MemoryBasis::Unknown {
        amounts.memory = share_of_room(worker.memory_room(), amounts.cpu, worker.free().cpu);
    }
    amounts
}

/// A class that asks for no memory, with what is known of work of these shapes, as far as a worker that could have it has
/// that.
fn sized(
    mut class: Class,
    shapes: &[Signature],
    profiles: &Profiles,
    workers: &Workers,
) -> (Class, MemoryBasis) {
    let most = that_could_have(&class, workers).map(|worker| worker.record.capacity.memory).max();
    let (bytes, basis) = size_of(shapes, profiles, most.unwrap_or(u64::MAX));
    class.request.memory = bytes;
    class.guess = if basis == MemoryBasis::Unknown { 0 } else { bytes };
    (class, basis)
}

/// A request that waits is of another class from now on, if it is another one.
fn change_class(request: &mut QueuedRequest, class: Class, plan: &mut Planner) {
    if class != *plan.classes.get(request.class) {
        let new = plan.classes.intern(class);
        let old = std::mem::replace(&mut request.class, new);
        plan.change_class(request.queue, (old, new), Some(&request.queued));
    }
}

/// The part of its queue in which a request waits. A client that names ever more parts gets no more of them.
fn part_for(place: &PlaceRequest, queues: &mut Queues) -> QueueId {
    let whole = queues.intern(&place.queue);
    match &place.turn_of {
        Some(turn_of)
            if queues.parts(whole).take(bounds::PLACE_PARTS_MAX).count() < bounds::PLACE_PARTS_MAX =>
        {
            queues.intern_for(&place.queue, turn_of)
        }
        _ => whole,
    }
}

/// The workers that could have work of the class, were they empty. Requests of gateways name whose places they want, so few
/// workers are looked at, however many others there are.
fn that_could_have<'a>(class: &'a Class, workers: &'a Workers) -> Box<dyn Iterator<Item = &'a Worker> + 'a> {
    let could = move |worker: &&Worker| placement::eligible_when_idle(class, worker);
    match class.needs.iter().find(|need| !need.any_of.is_empty()) {
        Some(need) => {
            let meet = workers.index().holders(need).filter_map(move |id| workers.get(id));
            Box::new(meet.filter(|worker| worker.is_present()).filter(could))
        }
        None => Box::new(workers.present().filter(could)),
    }
}

fn leave_queue(waiting: &QueuedRequest, plan: &mut Planner) {
    plan.withdraw(waiting.queue, waiting.class, &waiting.queued);
    plan.forget_step(waiting.queued.step(), waiting.class, waiting.reads.is_empty());
}
