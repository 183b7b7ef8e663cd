//! The messages that the engine's thread takes up, one after the other.

use crate::link::WorkerMessage;
use crate::metrics::Entries;
use crate::peers::Once;
use crate::unavailable::Unavailable;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use windlass_core::RequestId;
use windlass_core::engine::{Engine, Event, Reply};

/// A message to the engine's thread.
pub(crate) enum Inbox {
    /// An event whose answer a client waits for. One of another server's clients has a key.
    Request(
        Box<dyn FnOnce(RequestId) -> Event + Send>,
        oneshot::Sender<Result<Reply, Unavailable>>,
        Option<Box<Once>>,
    ),
    /// An event that needs no answer, and the room that it takes until the engine takes it up.
    Event(Box<Event>, OwnedSemaphorePermit),
    Worker {
        link: u64,
        messages: Vec<WorkerMessage>,
    },
    /// A question about the engine's state.
    Query(Box<dyn FnOnce(&Engine) + Send>),
    /// How many entries the tables have.
    Entries(oneshot::Sender<Entries>),
    /// End when what is under way is committed.
    Stop(oneshot::Sender<()>),
}
