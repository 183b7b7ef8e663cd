//! What must hold after each booking, checked at the cost of that booking.
//!
//! A round that breaks one of these has given the same room or the same share out twice. It stops the program before the
//! booking is committed: the next owner of the farm starts from what is durable.

use super::planner::Planner;
use crate::ids::{QueueId, WorkerId};
use crate::score::context::Amounts;

/// What was booked on a worker, and in a queue, before a booking.
#[derive(Clone, Copy)]
pub(super) struct BeforeBooking {
    worker: WorkerId,
    on_worker: Amounts,
    whole: QueueId,
    in_queue_cpu: u64,
}

impl BeforeBooking {
    /// Looks before a task of the queue is booked on the worker.
    pub(super) fn look(plan: &Planner, worker: WorkerId, queue: QueueId) -> Self {
        let whole = plan.queues.whole(queue);
        BeforeBooking {
            worker,
            on_worker: on_worker(plan, worker),
            whole,
            in_queue_cpu: plan.queues.get(whole).booked_cpu,
        }
    }

    /// No amount that the booking raised is beyond what the worker declares.
    ///
    /// # Panics
    ///
    /// If one is.
    pub(super) fn assert_within_worker(self, plan: &Planner) {
        let Some(worker) = plan.workers.get(self.worker) else { return };
        let (before, after, has) = (self.on_worker, on_worker(plan, self.worker), &worker.record.capacity);
        let is_within = after.cpu <= before.cpu.max(has.cpu)
            && after.memory <= before.memory.max(has.memory)
            && after.gpus <= before.gpus.max(has.gpus)
            && after.gpu_memory <= before.gpu_memory.max(has.gpu_memory);
        assert!(
            is_within,
            "worker {}: booked {after:?} of {has:?}, and {before:?} before",
            worker.record.name
        );
    }

    /// A task that was sent ahead holds nothing of the worker yet.
    ///
    /// # Panics
    ///
    /// If it does.
    pub(super) fn assert_nothing_held(self, plan: &Planner) {
        let (before, after) = (self.on_worker, on_worker(plan, self.worker));
        assert!(
            before == after,
            "{:?}: a task that waits there holds {after:?}, not {before:?}",
            self.worker
        );
    }

    /// The queue is within its quota, or within its burst where no other queue can use what is left, if the booking raised
    /// what it holds.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub(super) fn assert_within_quota(self, plan: &Planner, in_burst: bool) {
        let queue = plan.queues.get(self.whole);
        let cap = queue.record.burst_cpu.filter(|_| in_burst).or(queue.record.quota_cpu);
        let is_within =
            queue.booked_cpu <= self.in_queue_cpu || cap.is_none_or(|cap| queue.booked_cpu <= cap.into());
        assert!(is_within, "queue {}: holds {} of {cap:?}", queue.name(), queue.booked_cpu);
    }
}

fn on_worker(plan: &Planner, worker: WorkerId) -> Amounts {
    plan.workers.get(worker).map_or_else(Amounts::default, |worker| worker.booked.sum().into())
}
