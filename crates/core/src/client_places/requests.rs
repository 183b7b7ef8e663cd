//! Requests for places: they wait in queues like steps, and rounds place them like tasks.

use super::held::LimitsOn;
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
use crate::queues::{Charge, Queues, RoundFilter, first_cost};
use crate::resources::Resources;
use crate::time::NS_PER_MS;
use crate::worker::{Worker, WorkerState};
use crate::workers::Workers;
use std::collections::BTreeSet;

impl ClientPlaces {
    /// A client asks for a place. It is answered by a round, or when it has waited for as long as it may. Where its work
    /// runs already, it has its place at once; returns the limits that this takes.
    pub(crate) fn request(
        &mut self,
        request: RequestId,
        place: PlaceRequest,
        plan: &mut Planner,
        out: &mut Outbox,
    ) -> Option<LimitsOn> {
        let class = place.class(plan.workers.queue_in_class(&place.queue));
        let Some(worker) = first_that_could_have(&class, &plan.workers) else {
            out.volatile.push((request, Reply::NoPlace(NoPlace::NoWorkers)));
            return None;
        };
        if self.waiting_count() >= bounds::PLACES_WAITING_MAX {
            out.volatile.push((request, Reply::NoPlace(NoPlace::TooMany)));
            return None;
        }
        let queue = part_for(&place, &mut plan.queues);
        if place.runs {
            let (alloc, limits) = (self.next_alloc(), place.limits);
            self.count_running(alloc, (worker, queue), place.amounts, limits.clone(), plan);
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
            if class == *known {
                continue;
            }
            let new = plan.classes.intern(class);
            let old = std::mem::replace(&mut request.class, new);
            plan.change_class(request.queue, (old, new), Some(&request.queued));
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
        let place = HeldPlace {
            worker,
            queue: waiting.queue,
            amounts: amounts.clone(),
            limits: limits.clone(),
            since: plan.now(),
            charged,
            share,
        };
        plan.queues.charge(waiting.queue, charged, filter);
        plan.queues.hold(waiting.queue, place.amounts.cpu);
        let alloc = self.next_alloc();
        self.held.insert(alloc, place);
        plan.workers.update(worker, |w| {
            w.warmth.ran(waiting.profile);
            w.booked.give_place(alloc, amounts);
        });
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

/// What a request takes of a worker that has room for it: what it asks for, or a compile slot as far as that is free.
fn amounts_on(waiting: &QueuedRequest, worker: WorkerId, plan: &Planner) -> Resources {
    let mut amounts = waiting.amounts.clone();
    if waiting.is_slot
        && let Some(worker) = plan.workers.get(worker)
    {
        let slot = slot_cpu(worker.record.capacity.cpu).min(worker.free().cpu);
        amounts.cpu = amounts.cpu.max(slot);
    }
    amounts
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

/// A worker that could have work of the class, were it empty. Requests of gateways name whose places they want, so few
/// workers are looked at, however many others there are.
fn first_that_could_have(class: &Class, workers: &Workers) -> Option<WorkerId> {
    let could = |worker: &&Worker| placement::eligible_when_idle(class, worker);
    let first = match class.needs.iter().find(|need| !need.any_of.is_empty()) {
        Some(need) => {
            let mut meet = workers.index().holders(need).filter_map(|id| workers.get(id));
            meet.find(|worker| worker.record.state != WorkerState::Forgotten && could(worker))
        }
        None => workers.present().find(could),
    };
    first.map(|worker| worker.record.id)
}

fn leave_queue(waiting: &QueuedRequest, plan: &mut Planner) {
    plan.withdraw(waiting.queue, waiting.class, &waiting.queued);
    plan.forget_step(waiting.queued.step(), waiting.class, waiting.reads.is_empty());
}
