//! The gateway to an OpenCue farm: it books frames under the farm's caps and launches them, has Cuebot's calls served
//! where no Cuebot runs, and shows the farm on a board. OpenCue's own tables are the only truth.

pub mod board;
pub mod booking;
mod checkup;
mod dial;
mod faults;
mod finding;
pub mod rqd;
pub mod scheduler;
pub mod schema;
mod service;
mod workers;

pub use dial::Dialer;
pub use finding::{Finding, Severity};
pub use service::{Service, ServiceError, check_database};
pub use workers::{NoServer, Workers, WorkersSettings, check_workers};
