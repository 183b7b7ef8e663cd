//! What will happen in the world, and what the driver of the world is told.

use crate::machine::{AttemptKey, MachineMessage};
use windlass_core::RequestId;
use windlass_core::engine::{Event, Fact, Fetch, Reply, WorkerCommand};
use windlass_core::job::End;

/// An entry of the list: something that will happen.
#[derive(Clone, PartialEq, Debug)]
pub enum SimEvent {
    /// A message of a machine reaches the scheduler over this link.
    ToScheduler(u64, usize, MachineMessage),
    /// A command with this number reaches a machine over this link.
    ToMachine(u64, usize, u64, WorkerCommand),
    Connects(usize),
    /// A machine sends its inventory.
    Beats(usize),
    Reports(usize),
    KeeperStarts(usize),
    /// A keeper checks whether its lease has run out.
    Fences(usize),
    /// The scheduler notices that a link is gone.
    LossSeen(u64),
    /// An attempt under the keeper of this incarnation ends by itself.
    TaskEnds(usize, u64, AttemptKey, End),
    Wakes(u64),
    /// The scheduler of this life runs a round.
    Round(u64),
    /// The store applies the batch in flight, or fails to.
    Applies(u64),
    /// The scheduler learns the outcome of its commit.
    CommitEnds(u64),
    /// The store answers again after a failure.
    Thaws(u64),
    /// The store is read for the scheduler of this life.
    Reads(u64, Fetch),
    /// The scheduler of this life gets the answer to a read.
    ReadEnds(u64, Event),
    /// The scheduler of this life has the body for which the orders of a link wait.
    BodyRead(u64, u64),
    SchedulerStarts,
    DiskHasRoom,
    /// A reminder for the driver of the world.
    Alarm(Alarm),
}

/// A reminder that the driver of the world asked for.
#[derive(Clone, PartialEq, Debug)]
pub enum Alarm {
    /// The next random disturbance.
    Disturb,
    /// The next step of a task that submits a job of its own.
    Parent(AttemptKey),
    /// Undo what is left of the disturbances.
    Tidy,
    /// Check the waiting work.
    Inspect,
}

/// A message to the driver of the world.
#[derive(Clone, PartialEq, Debug)]
pub enum Observation {
    Reply(RequestId, Reply),
    /// A request failed, because the store took no writes.
    Unavailable(RequestId),
    Fact(Fact),
    /// An attempt's process started on a machine.
    Starts(usize, AttemptKey),
    Ends(usize, AttemptKey, End),
    Alarm(Alarm),
    /// The scheduler died, so open requests get no reply.
    SchedulerDied,
}
