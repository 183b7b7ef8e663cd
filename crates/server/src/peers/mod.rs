//! Several servers of one farm, on one PostgreSQL database.
//!
//! One of them owns the farm: its engine decides. The others stand by. They let clients in, check who asks, and pass what
//! is asked on to the owner as a signed row of the database ([`signature`]), and it is done once ([`once`]); a client need not
//! know who the owner is. Events come the other way.
//! When the owner is gone, one of the others claims the farm and starts an engine with what the database has.

mod desk;
mod forward;
mod log_parts;
mod once;
mod packed;
mod postbox;
mod relay;
mod signature;
mod sure;
mod watch;

pub(crate) use desk::serve_others;
pub(crate) use forward::to_owner;
pub(crate) use log_parts::{OnePart, PART_ATTEMPT_HEADER, PART_NEXT_HEADER};
pub(crate) use once::{ChangeRequest, Effect, Once, OnceRequests};
pub(crate) use postbox::Postbox;
pub(crate) use relay::send_events;
pub use signature::{NoServerKey, ServerKey};
pub(crate) use sure::SureUntil;
pub use sure::since_boot;
pub use watch::OwnerWatch;

use crate::handle::Handle;
use crate::http::{self, ServeOptions};
use crate::listen::Listener;
use std::sync::Arc;
use windlass_store::{ServerId, Store};

/// The owner, as told to those who ask a server that stands by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownOwner {
    /// Its name.
    pub name: String,
    /// Where workers and clients reach it; `None` if it has not said.
    pub address: Option<String>,
}

/// A server that stands by.
#[derive(Clone)]
pub struct StandBy {
    handle: Handle,
    postbox: Arc<Postbox>,
}

impl StandBy {
    /// For the server with this number, whose entry in the list has this key. It serves nobody yet.
    pub fn new(store: Store, server: ServerId, key: ServerKey) -> StandBy {
        let postbox = Arc::new(Postbox::new(store.clone(), server, key));
        StandBy { handle: Handle::without_engine(store), postbox }
    }

    /// Closing it ends [`StandBy::serve`].
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Sets who owns the farm now, as far as this server knows. Listeners for events are told to read all again, because
    /// the new owner does not know what they have heard.
    pub fn set_owner(&self, owner: Option<KnownOwner>) {
        if self.postbox.set_owner(owner) {
            self.handle.events().tell(windlass_api::ServerEvent::Lagged);
        }
    }

    /// Serves until the handle is closed, and answers the requests that are under way.
    pub async fn serve(self, listeners: Vec<Listener>, options: ServeOptions) {
        http::serve_standing_by(listeners, self.handle, options, self.postbox).await;
    }
}

impl std::fmt::Debug for StandBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StandBy")
    }
}
