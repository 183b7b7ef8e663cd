//! Delays in the world of one seed: kinds of messages that take longer than others, bodies of steps that are read for
//! seconds before a start goes out, and commits that take longer than workers beat. Each happens in some seeds only.

use crate::machine::MachineMessage;
use crate::rng::Rng;
use crate::scheduler::Scheduler;
use crate::world::{MS, S, SimEvent, World};
use std::collections::{BTreeMap, VecDeque};
use windlass_core::TaskId;
use windlass_core::engine::WorkerCommand;

/// Kinds of messages, each of which may be slow by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Hello,
    Beat,
    Started,
    Finished,
    Welcome,
    Lease,
    Start,
    Kill,
    Ack,
}

const KINDS: [Kind; 9] = [
    Kind::Hello,
    Kind::Beat,
    Kind::Started,
    Kind::Finished,
    Kind::Welcome,
    Kind::Lease,
    Kind::Start,
    Kind::Kill,
    Kind::Ack,
];

/// The kind of a message; `None` of one that is never slow by itself.
fn kind_of(message: &SimEvent) -> Option<Kind> {
    match message {
        SimEvent::ToScheduler(_, _, message) => match message {
            MachineMessage::Hello(_) => Some(Kind::Hello),
            MachineMessage::Beat(..) => Some(Kind::Beat),
            MachineMessage::Started(..) => Some(Kind::Started),
            MachineMessage::Finished(..) => Some(Kind::Finished),
            MachineMessage::Reclaimed(..) | MachineMessage::Load(_) | MachineMessage::Caches(_) => None,
        },
        SimEvent::ToMachine(_, _, _, order) => match order {
            WorkerCommand::Registered { .. } => Some(Kind::Welcome),
            WorkerCommand::Lease { .. } => Some(Kind::Lease),
            WorkerCommand::Start { .. } => Some(Kind::Start),
            WorkerCommand::Kill { .. } | WorkerCommand::Recall { .. } => Some(Kind::Kill),
            WorkerCommand::Ack { .. } => Some(Kind::Ack),
            WorkerCommand::Lend { .. } | WorkerCommand::Reclaim { .. } | WorkerCommand::Resync => None,
        },
        _ => None,
    }
}

/// The delays of one world.
#[derive(Default)]
pub(crate) struct Delays {
    /// The longest delay of a message of this kind, in nanoseconds.
    of_kind: BTreeMap<Kind, u64>,
    /// In thousandths: starts whose body is not here and has to be read.
    body_permille: u32,
    /// In thousandths: commits that are slow.
    commit_permille: u32,
}

/// Longest read of a body, in nanoseconds.
const BODY_MAX: u64 = 20 * S;
/// Longest commit that succeeds, in nanoseconds. It is longer than two beats.
const SLOW_COMMIT_MAX: u64 = 15 * S;

impl Delays {
    /// The delays of the world of a seed.
    pub fn random(rng: &mut Rng) -> Delays {
        let mut delays = Delays::default();
        if rng.chance(250) {
            for _ in 0..rng.between(1, 3) {
                let kind = KINDS[rng.below(KINDS.len() as u64) as usize];
                delays.of_kind.insert(kind, rng.between(100 * MS, 12 * S));
            }
        }
        if rng.chance(150) {
            delays.body_permille = [20, 300][rng.below(2) as usize];
        }
        if rng.chance(100) {
            delays.commit_permille = 30;
        }
        delays
    }

    /// By how much a message is slower than others, in nanoseconds.
    pub fn of(&self, message: &SimEvent, rng: &mut Rng) -> u64 {
        let most = kind_of(message).and_then(|kind| self.of_kind.get(&kind));
        most.map_or(0, |most| rng.between(0, *most))
    }

    /// How much longer a commit takes than others, in nanoseconds.
    pub fn of_commit(&self, rng: &mut Rng) -> u64 {
        if self.commit_permille > 0 && rng.chance(self.commit_permille) {
            return rng.between(S, SLOW_COMMIT_MAX);
        }
        0
    }

    /// How long the body of a start is read, in nanoseconds; `None` if it is here.
    fn of_body(&self, rng: &mut Rng) -> Option<u64> {
        (self.body_permille > 0 && rng.chance(self.body_permille)).then(|| rng.between(10 * MS, BODY_MAX))
    }
}

/// Orders that wait, by link: the first for the body of its task, the others for that one, because a worker passes over
/// what comes behind a later order.
pub(crate) type HeldBack = BTreeMap<u64, VecDeque<(u64, WorkerCommand)>>;

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
        booked.is_some_and(|booked| booked.number == *attempt && booked.seq() <= seq)
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

impl Scheduler {
    /// Drops the commands that wait for a link, as if they were lost on the way.
    pub(crate) fn forget_held_back(&mut self, link: u64) {
        self.held_back.remove(&link);
    }
}
