//! What Cuebot, OpenCue's server, does for hosts and clients, for farms that run without it.
//!
//! OpenCue's tables are the only truth. Each call is one transaction, or one query; nothing is kept between calls.

mod calls;
mod database;
mod depends;
pub mod frames;
mod kill;
mod launch;
pub mod names;
mod procs;
mod report;
mod server;
pub mod spec;
mod trouble;
mod upkeep;
pub mod verdict;

pub use report::{Completion, complete};
pub(crate) use report::{HOST_SYSTEM_KIB, clear, share_host};
pub use server::{CALL_BYTES_MAX, Cuebot, LAUNCH_BYTES_MAX, Settings, served_paths};
pub use trouble::CallError;
pub use upkeep::LostFrame;
