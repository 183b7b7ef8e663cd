//! Several servers of one farm, on one PostgreSQL database.
//!
//! One of them owns the farm: its engine decides. The others stand by. They let clients in, find out the caller, and pass
//! each request on to the owner as a signed row of the database ([`signature`]). The request is done once ([`once`]), and
//! a client need not know which server is the owner. Events come the other way ([`event_relay`]). When the owner is gone ([`watch`]),
//! another server claims the farm and starts an engine with what the database has.
//!
//! This module has the rows and the rights. The module `http` runs the requests that the rows bring.

mod event_relay;
mod once;
mod request_client;
pub(crate) mod request_rows;
pub(crate) mod signature;
mod sure;
mod watch;

pub(crate) use event_relay::send_events;
pub(crate) use once::{Effect, KeysUnderWay, Once, OnceRequests, Untold};
pub(crate) use request_client::{REQUEST_KIND, RequestClient, Unanswered};
pub(crate) use request_rows::RequestHead;
pub use signature::{NoServerKey, ServerKey};
pub(crate) use sure::SureUntil;
pub use sure::since_boot;
pub use watch::OwnerWatch;

/// The owner, as a server that stands by tells its clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownOwner {
    /// The name by which the servers of the farm know it.
    pub name: String,
    /// Where workers and clients reach it; `None` if it has not said.
    pub address: Option<String>,
}
