//! The interface of Compass CI: its clients submit jobs, its providers and bare machines run them.
//!
//! Hosts run no worker of Windlass. To the engine each is a worker, and the module `lab` plays the worker's side. A
//! start becomes a message to a provider, or the text by which a machine boots. Updates of hosts and jobs become
//! reports. A host that is silent stays unknown: its jobs run nowhere else before their end is known. How far a job is
//! gets durable before any client or host is told.

mod access;
mod answer;
mod app;
mod boot;
mod caller;
mod files;
mod fill;
pub mod format;
mod gateway;
mod http;
mod lab;
mod max_run;
mod number;
mod options;
mod packages;
mod parcel;
mod paths;
mod record;
mod sealed;
mod time;
mod view;
mod waits;

pub use gateway::CompassGateway;
pub use options::{CompassError, CompassOptions};
