//! OpenCue: its farm scheduled from its own database, and what its clients submit.

pub mod booking;
pub mod cuebot;
#[rustfmt::skip]
pub mod generated;
pub mod rqd;
pub mod schema;
