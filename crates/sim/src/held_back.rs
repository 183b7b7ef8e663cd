//! Orders that wait for a body: a start goes out once the body of its task was read, and others wait behind it.

use crate::events::SimEvent;
use crate::world::World;
use std::collections::VecDeque;
use windlass_core::TaskId;
use windlass_core::engine::WorkerCommand;

impl World {
    /// Sends an order, or keeps it back behind a start whose body is being read.
    pub(crate) fn send_order(&mut self, link: u64, number: usize, seq: u64, order: WorkerCommand) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let mut seq = seq;
        if let Some(waiting) = scheduler.held_back.get_mut(&link) {
            if !overtakes(&order, waiting) {
                waiting.push_back((seq, order));
                return;
            }
            // It says nothing of what came before it.
            seq = 0;
        }
        let is_start = matches!(order, WorkerCommand::Start { .. });
        if is_start && let Some(delay_ns) = self.delays.of_body(&mut self.rng) {
            self.keep_back(link, VecDeque::from([(seq, order)]), delay_ns);
            return;
        }
        self.transmit(SimEvent::ToMachine(link, number, seq, order));
    }

    fn keep_back(&mut self, link: u64, orders: VecDeque<(u64, WorkerCommand)>, delay_ns: u64) {
        let Some(scheduler) = &mut self.scheduler else { return };
        scheduler.held_back.insert(link, orders);
        self.tally.bodies_read += 1;
        let life = scheduler.life;
        self.after(delay_ns, SimEvent::BodyRead(life, link));
    }

    /// False of a start that was sent again since, or whose attempt is not booked any more: as in the server.
    fn is_current(&self, seq: u64, order: &WorkerCommand) -> bool {
        let WorkerCommand::Start { task, attempt, .. } = order else { return true };
        let booked = self.engine().and_then(|engine| engine.attempt(*task));
        booked.is_some_and(|booked| booked.number == *attempt && booked.seq <= seq)
    }

    /// The body for which the first order of a link waits was read.
    pub(crate) fn body_read(&mut self, life: u64, link: u64) {
        let Some(scheduler) = self.scheduler.as_mut().filter(|scheduler| scheduler.life == life) else {
            return;
        };
        let Some(number) = scheduler.machine_of(link) else { return };
        let Some(mut orders) = scheduler.held_back.remove(&link) else { return };
        let mut first = true;
        while let Some((seq, order)) = orders.pop_front() {
            if !self.is_current(seq, &order) {
                continue;
            }
            let is_start = matches!(order, WorkerCommand::Start { .. }) && !first;
            if is_start && let Some(delay_ns) = self.delays.of_body(&mut self.rng) {
                orders.push_front((seq, order));
                return self.keep_back(link, orders, delay_ns);
            }
            first = false;
            self.transmit(SimEvent::ToMachine(link, number, seq, order));
        }
    }
}

/// Whether an order may pass those that wait: what lets tasks go on, or ends one whose start does not wait.
fn overtakes(order: &WorkerCommand, waiting: &VecDeque<(u64, WorkerCommand)>) -> bool {
    match order {
        WorkerCommand::Lease { .. } | WorkerCommand::Resync => true,
        WorkerCommand::Kill { task, attempt } => {
            !waiting.iter().any(|(_, order)| starts(order, *task, *attempt))
        }
        _ => false,
    }
}

fn starts(order: &WorkerCommand, task: TaskId, attempt: u32) -> bool {
    match order {
        WorkerCommand::Start { task: head, attempt: first, riders, .. } => {
            (*head, *first) == (task, attempt)
                || (head.job == task.job && riders.contains(&(task.index, attempt)))
        }
        _ => false,
    }
}
