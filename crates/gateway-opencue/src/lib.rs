//! OpenCue: its farm scheduled from its own database, and what its clients submit.

pub mod booking;
pub mod cuebot;
pub mod rqd;
pub mod schema;
