//! What the engine holds, as the API shows it. Queries run on the engine's thread, so each looks at a bounded part.

mod board;
mod farm;
mod grid;
mod overview;
mod queues;
mod settings;
mod worker_why;

pub use board::{board_worker, decision, dispatched_job, pending_job};
pub use farm::{BetweenShards, join_overviews, join_scheduler};
pub use grid::{active_grid, ended_grid, parked_grid};
pub use overview::{overview, scheduler, with_rates, with_scheduler_rates};
pub use queues::QueueList;
pub use settings::limit;
pub use worker_why::worker_why;
