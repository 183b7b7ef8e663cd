//! The connection of this program to a server, on every system.

pub mod connect;
pub mod context;
pub mod credentials;
pub mod link;
pub mod own;
pub mod signals;
pub mod token_end;
pub mod user;
pub mod variables;
