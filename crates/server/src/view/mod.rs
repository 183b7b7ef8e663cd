//! What the engine holds, as the API shows it. Queries run on the engine's thread, so each looks at a bounded part.

mod board;
mod grid;
mod jobserver_why;
mod overview;
mod scaling;
mod settings;
mod worker_why;

pub use board::{board_worker, decision, pending_job, sampled_decisions};
pub use grid::{active_grid, ended_grid, parked_grid};
pub use jobserver_why::{jobserver_processes, jobserver_why};
pub use overview::{ending_tokens, overview, scheduler, with_rates, with_scheduler_rates};
pub use scaling::{SeenScaling, scaling};
pub use settings::{HOLDERS_MAX, held_limit, limit, queues};
pub use worker_why::worker_why;
