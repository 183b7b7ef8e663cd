//! Places of outside clients: requests wait in queues like steps, are placed by rounds like tasks, and are given back.

use super::{Engine, Outbox, PlaceInUse, Reply};
use crate::bounds;
use crate::cache_keys::Reads;
use crate::class::Class;
use crate::hash::Fnv;
use crate::ids::{AllocId, QueueId, RequestId, StepKey, WorkerId};
use crate::job::QueuedStep;
use crate::places::{HeldPlace, NoPlace, PlaceRequest, Places, QueuedRequest};
use crate::plan::{Booking, StepFacts, placement};
use crate::queues::{Charge, RoundFilter, cost, dominant_share, first_cost};
use crate::time::NS_PER_MS;
use crate::worker::{Worker, WorkerState};
use std::collections::BTreeSet;

impl Engine {
    /// A client asks for a place. It is answered by a round, or when it has waited for as long as it may.
    pub(super) fn alloc(&mut self, request: RequestId, place: PlaceRequest, out: &mut Outbox) {
        let class = place.class(self.plan.workers.queue_in_class(&place.queue));
        if !self.could_have(&class) {
            out.volatile.push((request, Reply::NoPlace(NoPlace::NoWorkers)));
            return;
        }
        if self.places.waiting_count() >= bounds::PLACES_WAITING_MAX {
            out.volatile.push((request, Reply::NoPlace(NoPlace::TooMany)));
            return;
        }
        self.plan.workers.learn(place.needs.iter());
        let (queue, class) = (self.plan.queues.intern(&place.queue), self.plan.classes.intern(class));
        self.plan.queues.count_job(queue, 1);
        let queued = QueuedStep::new(0, self.now, self.places.next_key());
        let mut profile = Fnv::default();
        place.reads.keys().for_each(|key| profile.bytes(key.as_bytes()));
        self.places.wait(QueuedRequest {
            request,
            queue,
            class,
            queued,
            reads: Reads::of(&place.reads),
            amounts: place.amounts,
            hints: place.hints,
            avoids: place.avoids,
            since: self.now,
            until: self.now.after(place.wait_max_ms.saturating_mul(NS_PER_MS)),
            profile: profile.value(),
        });
        self.plan.enlist(queue, class, queued);
    }

    /// The first worker came that is for one of these queues alone, or the last one went: requests that wait there are
    /// of other classes from now on.
    pub(super) fn refresh_requests(&mut self, queues: &BTreeSet<String>) {
        let names = |queue: QueueId| self.plan.queues.get(self.plan.queues.whole(queue)).name();
        let waiting = self.places.waiting().filter(|(_, waiting)| queues.contains(names(waiting.queue)));
        let waiting: Vec<StepKey> = waiting.map(|(key, _)| key).collect();
        for key in waiting {
            let Some(request) = self.places.find_mut(key) else { continue };
            let queue = self.plan.queues.get(self.plan.queues.whole(request.queue)).name();
            let known = self.plan.classes.get(request.class);
            let class = Class { queue: self.plan.workers.queue_in_class(queue), ..known.clone() };
            if class == *known {
                continue;
            }
            let new = self.plan.classes.intern(class);
            let old = std::mem::replace(&mut request.class, new);
            self.plan.change_class(request.queue, (old, new), Some(&request.queued));
        }
    }

    /// True if some worker could have work of the class, were it empty. Requests of gateways name whose places they want,
    /// so few workers are looked at, however many others there are.
    fn could_have(&self, class: &Class) -> bool {
        let workers = &self.plan.workers;
        match class.needs.iter().find(|need| !need.any_of.is_empty()) {
            Some(need) => {
                let mut meet = workers.index().holders(need).filter_map(|id| workers.get(id));
                let could = |worker: &Worker| placement::eligible_when_idle(class, worker);
                meet.any(|worker| worker.state != WorkerState::Forgotten && could(worker))
            }
            None => workers.present().any(|worker| placement::eligible_when_idle(class, worker)),
        }
    }

    /// A client does not wait any more. Its request is answered all the same: the gateway waits for that.
    pub(super) fn withdraw_request(&mut self, request: RequestId, out: &mut Outbox) {
        if let Some(key) = self.places.key_of(request) {
            self.refuse_place(key, NoPlace::Withdrawn, out);
        }
    }

    /// A request waits no more, and gets no place.
    fn refuse_place(&mut self, key: StepKey, why: NoPlace, out: &mut Outbox) {
        let Some(waiting) = self.places.take(key) else { return };
        self.leave_queue(&waiting);
        self.plan.queues.count_job(waiting.queue, -1);
        out.volatile.push((waiting.request, Reply::NoPlace(why)));
    }

    fn leave_queue(&mut self, waiting: &QueuedRequest) {
        self.plan.withdraw(waiting.queue, waiting.class, &waiting.queued);
        self.plan.forget_step(waiting.queued.step(), waiting.class, waiting.reads.is_empty());
    }

    /// After a full round: requests that have waited for as long as they may get no place.
    pub(super) fn expire_requests(&mut self, out: &mut Outbox) {
        while let Some(key) = self.places.next_expired(self.now) {
            self.refuse_place(key, NoPlace::Expired, out);
        }
    }

    /// A waiting request as the planner sees it.
    pub(super) fn facts_of_request(&self, key: StepKey) -> Option<StepFacts<'_>> {
        let waiting = self.places.find(key)?;
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
            mean_ms: self.plan.queues.mean_ms(waiting.queue),
            prediction: None,
            time_limit_ms: None,
        })
    }

    /// Gives a worker's room to the client that waits for it.
    pub(super) fn book_place(&mut self, booking: &Booking, filter: &mut RoundFilter, out: &mut Outbox) {
        let Some(waiting) = self.places.take(booking.queued_step.step()) else { return };
        let worker = booking.worker;
        let (charged, share) = self.first_charge_of(&waiting, worker);
        let place = HeldPlace {
            worker,
            queue: waiting.queue,
            amounts: waiting.amounts.clone(),
            since: self.now,
            charged,
            share,
        };
        self.plan.queues.charge(waiting.queue, charged, filter);
        self.plan.queues.hold(waiting.queue, place.amounts.cpu);
        let alloc = self.places.hold(place);
        self.plan.workers.update(worker, |w| {
            w.warmth.ran(waiting.profile);
            w.booked.add(&waiting.amounts);
            w.allocs.insert(alloc, waiting.amounts.clone());
        });
        self.leave_queue(&waiting);
        out.volatile.push((waiting.request, Reply::Placed { alloc, worker }));
    }

    /// What a place costs its queue at first, and its dominant share of the worker.
    fn first_charge_of(&self, waiting: &QueuedRequest, worker: WorkerId) -> (u64, u32) {
        let capacity = self.plan.workers.get(worker).map(|worker| &worker.capacity);
        let share = capacity.map_or(0, |capacity| dominant_share(&waiting.amounts, 0, capacity));
        match self.turn.charge {
            Charge::Task => (1, share),
            Charge::Time => (first_cost(share, self.plan.queues.mean_ms(waiting.queue)), share),
        }
    }

    /// A client gives its place back.
    pub(super) fn free_place(&mut self, alloc: AllocId) {
        let Some(place) = self.places.release(alloc) else { return };
        let ran_ms = self.now.since(place.since) / NS_PER_MS;
        self.plan.queues.settle(place.queue, place.amounts.cpu);
        self.plan.queues.count_job(place.queue, -1);
        if self.turn.charge == Charge::Time {
            let by = cost(place.share, ran_ms) as i64 - place.charged as i64;
            self.plan.queues.correct(place.queue, by, None);
        }
        self.plan.queues.learn(place.queue, ran_ms as f64);
        self.plan.workers.update(place.worker, |w| {
            if let Some(amounts) = w.allocs.remove(&alloc) {
                w.booked.sub(&amounts);
            }
        });
        self.promote(place.worker);
        self.plan.request_round();
    }

    /// Places in use on a worker, as its gateway knows them. Those that the engine does not know, because it was restarted,
    /// are taken up and charged from now on. Others there may just have been given, so they stay.
    pub(super) fn take_up_places(&mut self, worker: WorkerId, in_use: Vec<PlaceInUse>) {
        for PlaceInUse { alloc, queue, amounts } in in_use {
            let Some(capacity) = self.plan.workers.get(worker).map(|worker| &worker.capacity) else { return };
            if self.places.get(alloc).is_some() {
                continue;
            }
            let share = dominant_share(&amounts, 0, capacity);
            let queue = self.plan.queues.intern(&queue);
            self.plan.queues.count_job(queue, 1);
            self.plan.queues.hold(queue, amounts.cpu);
            self.plan.workers.update(worker, |w| {
                w.booked.add(&amounts);
                w.allocs.insert(alloc, amounts.clone());
            });
            self.places
                .adopt(alloc, HeldPlace { worker, queue, amounts, since: self.now, charged: 0, share });
        }
    }

    /// A worker is gone, and with it what clients held there.
    pub(super) fn drop_places(&mut self, worker: WorkerId) {
        for alloc in self.places.on(worker) {
            self.free_place(alloc);
        }
    }

    /// Places and requests, for gateways and boards.
    pub fn places(&self) -> &Places {
        &self.places
    }
}
