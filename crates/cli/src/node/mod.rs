//! Servers and workers that this program runs, and how clients reach a server.

pub mod cookie;
pub mod credentials;
pub mod link;
pub mod local;
pub mod nix_hook;
pub mod nix_machine;
pub mod paths;
pub mod remote;
pub mod serve;
pub mod signals;
pub mod watchdog;
