//! The board's door: its pages, sessions of people who look at it with a browser, and what keeps other sites' pages from
//! acting through that browser.
//!
//! - The pages hold no data and are given to everybody, but to no other site's page.
//! - A browser shows a session, which a person gets for a token or for a code that is good once. The session has the
//!   rights of that token, ends with it, and ends with the server. A script of the page cannot read it.
//! - A request with a session must come from the board's own page: by the rules of [`csrf`](crate::csrf).
//! - Another program shows the board of its own farm through a door with one token for all: [`token_door`].
//! - A server on a unix socket opens a port of this machine for the board while it is used: [`loopback`].

pub(crate) mod cookie;
pub(crate) mod loopback;
pub(crate) mod pages;
pub(crate) mod sessions;
mod token_door;

pub use token_door::{TOKEN_CHARS_MIN, TokenDoor, TokenDoorError};
