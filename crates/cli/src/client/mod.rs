//! How this program reaches a server, on every system.

pub mod connect;
pub mod context;
pub mod credentials;
pub mod link;
pub mod own;
pub mod signals;
pub mod user;
