//! Short tasks are sent ahead to workers that are full, so that a slot does not wait for a round trip.

use super::attempt::record_booking;
use super::booking::Booking;
use super::checked::BeforeBooking;
use super::placement;
use super::planner::Planner;
use super::work::Work;
use crate::bounds;
use crate::ids::{ClassId, WorkerId};
use crate::queues::RoundFilter;
use crate::worker::Worker;

/// Sends up to `budget` tasks ahead, and returns how many. A step is known to be short by its tasks that ended, so
/// the first ones are never sent ahead. Looks at a bounded number of workers that take none, each round at others.
pub(super) fn prefetch<W: Work>(work: &mut W, budget: usize, out: &mut W::Out) -> usize {
    let mut filter = RoundFilter::default();
    let (mut booked, mut looks) = (0, work.plan().prefetch_looks_max);
    // The step whose turn it is waits for these workers. Work behind it must not be sent ahead of it, or it would
    // wait for ever behind a worker that is always full.
    let mut waiting: Vec<ClassId> = Vec::new();
    while booked < budget {
        let plan = work.plan_mut();
        plan.forget_vanished(&mut filter);
        // Else every queue would be asked for what is left of it: nothing.
        if filter.blocked_classes.len() >= plan.queues.class_count() {
            break;
        }
        let Some((queue, queued_step, class)) = plan.queues.next(&mut filter, &|_| true) else { break };
        let asks = work.plan().classes.get(class);
        if work.is_limit_reached(asks) {
            filter.blocked_classes.insert(class);
            continue;
        }
        if work.plan().queues.over_quota(queue, asks.cpu_at_a_time(), false).is_some() {
            filter.blocked_in_part.insert((queue, class));
            continue;
        }
        if !work.is_short(queued_step.step()) {
            waiting.push(class);
            filter.blocked_classes.insert(class);
            if waiting.len() >= bounds::PREFETCH_BEHIND_MAX {
                break;
            }
            continue;
        }
        let facts = work.facts(queued_step.step());
        let Some((avoids, network_bound)) = facts.map(|facts| (facts.avoids, facts.hints.network_bound))
        else {
            filter.blocked_classes.insert(class);
            continue;
        };
        let takes = |worker: &Worker| {
            avoids != Some(worker.record.id) && !(network_bound && worker.reported.saturated().network)
        };
        if let Some(worker) = work.plan_mut().worker_ahead(class, &takes, &waiting, &mut looks) {
            let booking = Booking { queue, queued_step, worker, is_ahead: true };
            record_booking(work, &booking, None, std::iter::empty());
            let before = BeforeBooking::look(work.plan(), worker, queue);
            work.book(&booking, &mut filter, out);
            before.assert_nothing_held(work.plan());
            before.assert_within_quota(work.plan(), false);
            booked += 1;
        } else if looks == 0 {
            break;
        } else {
            filter.blocked_classes.insert(class);
        }
    }
    work.plan_mut().queues.resume_exhausted(&mut filter);
    booked
}

impl Planner {
    /// A full worker that `takes` the step, has little enough to do next and could run the class, but none that the
    /// `waiting` classes wait for. Each worker that does not qualify takes one off `looks`.
    fn worker_ahead(
        &mut self,
        class: ClassId,
        takes: &dyn Fn(&Worker) -> bool,
        waiting: &[ClassId],
        looks: &mut usize,
    ) -> Option<WorkerId> {
        let asks = self.classes.get(class);
        let from = self.prefetch_from;
        for worker in self.workers.with_room_ahead(from) {
            let blocked = |class: &ClassId| {
                self.classes.find(*class).is_some_and(|waits| placement::eligible_when_idle(waits, worker))
            };
            let may = !self.reserved.contains_key(&worker.record.id)
                && takes(worker)
                && placement::eligible_when_idle(asks, worker)
                && worker.licences.first_full(&asks.limits).is_none()
                && !waiting.iter().any(blocked);
            if may {
                self.prefetch_from = worker.record.id;
                return Some(worker.record.id);
            }
            *looks = looks.saturating_sub(1);
            if *looks == 0 {
                self.prefetch_from = WorkerId(worker.record.id.0 + 1);
                return None;
            }
        }
        None
    }
}
