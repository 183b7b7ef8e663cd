//! How this program reaches a server, on every system.

pub mod connect;
pub mod credentials;
pub mod link;
pub mod signals;
