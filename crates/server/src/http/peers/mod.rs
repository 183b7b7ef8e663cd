//! Requests between the servers of one farm: a server that stands by passes them on ([`forward`]), and the owner runs
//! them ([`request_server`]).

mod change;
mod forward;
mod log_parts;
mod one_part;
mod request_server;
mod unanswered;

pub(crate) use change::ChangeRequest;
pub(crate) use forward::to_owner;
pub(crate) use one_part::{OnePart, PART_ATTEMPT_HEADER, PART_NEXT_HEADER};
pub(crate) use request_server::serve_others;

use super::{ServeOptions, serve_standing_by};
use crate::handle::Handle;
use crate::listen::Listener;
use crate::peers::{KnownOwner, RequestClient, ServerKey};
use std::sync::Arc;
use windlass_store::{ServerId, Store};

/// A server that stands by.
#[derive(Clone)]
pub struct StandBy {
    handle: Handle,
    request_client: Arc<RequestClient>,
}

impl StandBy {
    /// For the server with this number, whose entry in the list has this key. It serves nobody yet.
    pub fn new(store: Store, server: ServerId, key: ServerKey) -> StandBy {
        let request_client = Arc::new(RequestClient::new(store.clone(), server, key));
        StandBy { handle: Handle::without_engine(store), request_client }
    }

    /// Closing it ends [`StandBy::serve`].
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Sets who owns the farm now, as far as this server knows. Listeners for events are told to read all again, because
    /// the new owner does not know what they have heard.
    pub fn set_owner(&self, owner: Option<KnownOwner>) {
        if self.request_client.set_owner(owner) {
            self.handle.parts().events.tell(windlass_api::ServerEvent::Lagged);
        }
    }

    /// Serves until the handle is closed, and answers the requests that are under way.
    pub async fn serve(self, listeners: Vec<Listener>, options: ServeOptions) {
        serve_standing_by(listeners, self.handle, options, self.request_client).await;
    }
}
