//! Delays in the world of one seed: kinds of messages that take longer than others, bodies of steps that are read for
//! seconds before a start goes out, and commits that take longer than workers beat. Each happens in some seeds only.

use crate::clock::{MS, S};
use crate::events::SimEvent;
use crate::machine::MachineMessage;
use crate::rng::Rng;
use std::collections::BTreeMap;
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
            MachineMessage::Reclaimed(..)
            | MachineMessage::Load(_)
            | MachineMessage::Caches(_)
            | MachineMessage::Processes(..) => None,
        },
        SimEvent::ToMachine(_, _, _, order) => match order {
            WorkerCommand::Registered { .. } => Some(Kind::Welcome),
            WorkerCommand::Lease { .. } => Some(Kind::Lease),
            WorkerCommand::Start { .. } => Some(Kind::Start),
            WorkerCommand::Kill { .. } | WorkerCommand::Recall { .. } => Some(Kind::Kill),
            WorkerCommand::Ack { .. } => Some(Kind::Ack),
            WorkerCommand::Lend { .. }
            | WorkerCommand::Reclaim { .. }
            | WorkerCommand::ShareCpus { .. }
            | WorkerCommand::Resync => None,
        },
        _ => None,
    }
}

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
    pub fn of_body(&self, rng: &mut Rng) -> Option<u64> {
        (self.body_permille > 0 && rng.chance(self.body_permille)).then(|| rng.between(10 * MS, BODY_MAX))
    }
}
