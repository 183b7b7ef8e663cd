//! What Cuebot, OpenCue's server, does for clients, for farms that run without it.

pub mod frames;
pub mod names;
pub mod spec;
