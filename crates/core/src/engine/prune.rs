//! What nobody has used for long is forgotten: queues that only a name made, and workers that are gone.

use super::{Engine, Outbox, Write};
use crate::bounds;
use crate::ids::WorkerId;
use crate::worker::WorkerState;

impl Engine {
    pub(super) fn prune(&mut self, out: &mut Outbox) {
        let residency = &self.residency;
        self.plan.prune_queues(|id| residency.names(id));
        // Its number is the last that was given: the next worker must not get it again.
        let last = self.plan.workers.last_id();
        let gone = self.plan.workers.iter().filter(|worker| {
            matches!(worker.state, WorkerState::Expired | WorkerState::Forgotten)
                && !worker.draining
                && !worker.has_attempts()
                && worker.allocs.is_empty()
                && Some(worker.id) != last
                && self.now.since(worker.greeted) >= bounds::WORKER_GONE_NS
        });
        let gone: Vec<WorkerId> = gone.map(|worker| worker.id).take(bounds::PRUNED_MAX).collect();
        for id in gone {
            self.plan.remove_worker(id);
            out.writes.push(Write::WorkerGone(id));
        }
    }

    /// These were not durable, and the store has them still.
    pub(super) fn prune_again(&mut self, writes: &[Write]) {
        self.unsaved_gone.extend(writes.iter().filter_map(|write| match write {
            Write::WorkerGone(id) => Some(*id),
            _ => None,
        }));
    }
}
