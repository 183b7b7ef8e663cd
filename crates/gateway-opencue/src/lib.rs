//! OpenCue's own tables as the only truth: what its hosts report, what its clients call, bookings under its caps, and a
//! board that shows them.

pub mod board;
pub mod booking;
mod checkup;
pub mod cuebot;
mod dial;
#[rustfmt::skip]
pub mod generated;
mod networks;
pub mod rqd;
pub mod scheduler;
pub mod schema;
mod seldom;
mod service;
mod workers;

pub use checkup::{Finding, Severity};
pub use dial::Dialer;
pub use networks::{NETWORKS_MAX, Network};
pub use service::{Service, ServiceError, check_database};
pub use workers::{NoServer, Workers, check_workers};
