//! What the engine holds, as the API shows it. Queries run on the engine's thread, so each looks at a bounded part.

mod board;
mod settings;
mod worker_why;

pub use board::{decision, dispatched_job, pending_job};
pub use settings::{limit, queues};
pub use worker_why::worker_why;
