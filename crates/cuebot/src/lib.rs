//! What Cuebot, OpenCue's server, does for hosts and clients, for farms that run without it.
//!
//! OpenCue's tables are the only truth. Each call is one transaction, or one query, and nothing is kept between
//! calls. The crate calls no host itself: what it asks of hosts goes through [`HostCalls`].

mod attempts;
mod calls;
mod cuebot;
mod depends;
mod ended;
pub mod frames;
#[rustfmt::skip]
pub mod generated;
mod hosts;
mod kept;
mod launch;
mod locks;
pub mod names;
mod networks;
mod procs;
mod report;
mod routes;
pub mod schema;
mod seldom;
mod server;
pub mod spec;
mod trouble;
mod upkeep;
pub mod verdict;

pub use attempts::Attempts;
pub use cuebot::{Cuebot, Settings};
pub use hosts::{Amounts, FrameRun, HostCalls, Victim};
pub use locks::lock_jobs;
pub use networks::{NETWORKS_MAX, Network};
pub use procs::RELEASE_PROCS;
pub use report::{Completion, HOST_SYSTEM_KIB};
pub use routes::{CALL_BYTES_MAX, LAUNCH_BYTES_MAX};
pub use server::served_paths;
pub use trouble::{CallError, is_conflict};
