//! The scheduling core of Windlass: which task runs where, and why a task waits.
//!
//! Everything here is a pure function of the events that it is given. There is no clock, no I/O, no
//! thread and no unordered map: time is an argument, and the same events in the same order give the
//! same [`Outbox`](outbox::Outbox) byte for byte. The shell around it (crate `windlass-server`)
//! persists the writes of an outbox, and only then sends what the outbox says to send.
//!
//! Read `engine` first, then `ledger`, `plan` and `queues`.

pub mod bounds;
pub mod cache_keys;
pub mod class;
pub mod client_places;
pub mod engine;
pub mod explain;
pub mod hash;
pub mod ids;
pub mod job;
pub(crate) mod ledger;
pub mod licences;
pub mod load;
pub mod outbox;
pub mod plan;
pub mod profiles;
pub mod queues;
pub mod ranges;
pub mod residency;
pub mod resources;
pub mod scaling;
pub mod score;
pub mod tags;
pub mod time;
pub mod worker;
pub mod workers;

pub use engine::Engine;
pub use ids::{Epoch, JobId, RequestId, TaskId, WorkerId};
pub use resources::Resources;
pub use time::Time;
