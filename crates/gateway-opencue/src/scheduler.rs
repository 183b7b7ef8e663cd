//! The scheduler of an OpenCue farm: a snapshot of the tables, a plan, bookings in guarded transactions, and launches.

pub mod amounts;
mod caps;
pub mod command;
pub mod config;
mod held;
mod hosts;
mod instance;
mod lanes;
mod launcher;
pub mod metrics;
mod order;
mod permits;
pub mod planning;
mod rate;
mod recount;
mod recovery;
pub mod snapshot;
mod stock_metrics;
mod why;
mod yields;

pub use instance::{Instance, InstanceSettings, PassError, Passed, Preview};
pub use launcher::Launcher;
pub use order::{JobOrder, Order};
pub use recovery::LOCKS as INSTANCE_LOCKS;
pub use why::{LayerReasons, Reasons};
