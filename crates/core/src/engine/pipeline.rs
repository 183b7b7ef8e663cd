//! The commits of one engine: which batch forms, which one the store has, and what may go out when.
//!
//! One batch is with the store while the next forms. What a batch says goes out only when its writes are durable; a
//! reply that rests on no write goes out at once. When a commit fails, or rows of it are refused, the pipeline stalls:
//! nothing is committed until the jobs concerned were read again.
//!
//! The server and the simulator commit through it. It does no I/O: its owner carries batches
//! to a store and brings back what became of them.

use super::{Engine, Outbox, Reply};
use crate::ids::{JobId, RequestId};
use crate::job::JobRecord;
use crate::residency::subqueues::ParkedCount;
use crate::time::Time;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The batches of one engine: the one that forms, and the one that a store has.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pipeline {
    /// The batch that forms: events and rounds write into it.
    pub forming: Outbox,
    in_flight: Option<Arc<Outbox>>,
    /// The next batch to form, which is empty and has the memory of one that went out.
    emptied: Outbox,
    stalled: Option<BTreeSet<JobId>>,
}

/// What is to be done with a batch.
#[derive(Clone, PartialEq, Debug)]
pub enum NextBatch {
    /// It is in flight: its writes go to the store in one transaction.
    Commit(Arc<Outbox>),
    /// It writes nothing and may go out.
    Deliver(Box<Outbox>),
}

/// What may go out after a commit.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Committed {
    /// Sends, replies, facts and reads. The owner carries them out and then tells [`Engine::committed`].
    pub batch: Outbox,
    /// Requests that were not done, because a row was refused; each is told so.
    pub undone: Vec<RequestId>,
}

impl Pipeline {
    /// The replies that rest on no write, with their requests.
    pub fn take_volatile(&mut self) -> Vec<(RequestId, Reply)> {
        std::mem::take(&mut self.forming.volatile)
    }

    /// The next batch, if there is something to do and the store has no other. With what it writes go the turns that have
    /// changed; they are no reason for a commit of their own.
    pub fn next_batch(&mut self, engine: &mut Engine) -> Option<NextBatch> {
        if self.in_flight.is_some() || self.stalled.is_some() || self.forming.is_empty() {
            return None;
        }
        let next = std::mem::take(&mut self.emptied);
        let mut batch = std::mem::replace(&mut self.forming, next);
        if batch.writes.is_empty() {
            return Some(NextBatch::Deliver(Box::new(batch)));
        }
        engine.save_turns(&mut batch);
        let batch = Arc::new(batch);
        self.in_flight = Some(batch.clone());
        Some(NextBatch::Commit(batch))
    }

    /// The batch in flight is durable, but for the writes with these numbers, whose rows had changed. If there are such
    /// writes, the pipeline is stalled from now on.
    pub fn committed(&mut self, engine: &mut Engine, refused: &[usize]) -> Committed {
        let Some(batch) = self.in_flight.take() else { return Committed::default() };
        // A store has let go of it, unless it keeps it for a reason of its own.
        let batch = Arc::try_unwrap(batch).unwrap_or_else(|shared| Outbox::clone(&shared));
        let release = engine.release(batch, refused, &mut self.forming);
        self.stalled = release.again;
        Committed { batch: release.batch, undone: release.undone }
    }

    /// A batch went out. A later one forms in its memory.
    pub fn reuse(&mut self, batch: Outbox) {
        self.emptied = batch.emptied();
    }

    /// Takes the batch that forms for durable at once, and returns what goes out. For owners without a store: replays,
    /// benchmarks, tests.
    pub fn commit_at_once(&mut self, engine: &mut Engine) -> Outbox {
        let batch = match self.next_batch(engine) {
            None => return Outbox::default(),
            Some(NextBatch::Deliver(batch)) => *batch,
            Some(NextBatch::Commit(batch)) => {
                // The pipeline has the batch too, until it is committed.
                drop(batch);
                self.committed(engine, &[]).batch
            }
        };
        engine.committed(&batch);
        batch
    }

    /// Nothing of the batch in flight is durable, nor can what formed on top of it become so. The pipeline is stalled from
    /// now on. Returns the requests that were not done.
    pub fn failed(&mut self, engine: &mut Engine) -> Vec<RequestId> {
        let Some(batch) = self.in_flight.take() else { return Vec::new() };
        let forming = std::mem::take(&mut self.forming);
        self.stalled = Some(engine.failed([&*batch, &forming]));
        batch.replies.iter().chain(&forming.replies).map(|(request, _)| *request).collect()
    }

    /// While the pipeline is stalled: the jobs to read from the store and to give to [`Pipeline::reload`].
    pub fn stalled(&self) -> Option<&BTreeSet<JobId>> {
        self.stalled.as_ref()
    }

    /// The jobs were read again; see [`Engine::reload`]. The pipeline goes on.
    pub fn reload(
        &mut self,
        engine: &mut Engine,
        now: Time,
        records: Vec<JobRecord>,
        parked: Vec<ParkedCount>,
    ) {
        let Some(touched) = self.stalled.take() else { return };
        engine.reload(now, &touched, records, parked, &mut self.forming);
    }

    /// True if a store has a batch.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// True if all that the engine decided is durable and went out.
    pub fn is_idle(&self) -> bool {
        !self.is_in_flight() && self.stalled.is_none() && self.forming.is_empty()
    }
}
