//! Requests between the servers of a shared store, relayed events and notifications. A store of one server has none.

use super::Store;
use crate::done::DoneRow;
use crate::error::StoreError;
use crate::mailbox::{Answers, AskId, Asked, Listener};
use crate::ownership::ServerId;

impl Store {
    /// Inserts a request to the owner of the farm, and notifies [`ASKED`](crate::ASKED). `sign` returns the signature
    /// of its number and its body.
    pub async fn ask(
        &self,
        by: ServerId,
        kind: &str,
        body: Vec<u8>,
        sign: impl FnOnce(AskId, &[u8]) -> Vec<u8> + Send,
    ) -> Result<AskId, StoreError> {
        dispatch!(self, shared ask(by, kind, body, sign), Err(StoreError::NotShared))
    }

    /// Up to `limit` requests without an answer and with higher numbers than `after`, by number. Requests of servers
    /// that are gone are left out. Of two requests that are made at the same time, the one with the higher number may
    /// appear first, so a caller must also read from the beginning now and then.
    pub async fn asked(&self, after: AskId, limit: usize) -> Result<Vec<Asked>, StoreError> {
        dispatch!(self, shared asked(after, limit), Ok(Vec::new()))
    }

    /// Answers a request, and notifies [`ANSWERED`](crate::ANSWERED). The body of the request is deleted from its row.
    /// False if it was answered before, or has no row any more.
    pub async fn answer(&self, id: AskId, status: i32, body: Vec<u8>) -> Result<bool, StoreError> {
        dispatch!(self, shared answer(id, status, body), Err(StoreError::NotShared))
    }

    /// The outcomes of these requests of a server. Requests of other servers count as lost.
    pub async fn answers(&self, by: ServerId, ids: Vec<AskId>) -> Result<Answers, StoreError> {
        dispatch!(self, shared answers(by, ids), Ok(Answers::default()))
    }

    /// Deletes requests whose clients have gone. A request that was answered stays.
    pub async fn withdraw(&self, ids: Vec<AskId>) -> Result<(), StoreError> {
        dispatch!(self, shared withdraw(ids), Ok(()))
    }

    /// Deletes requests whose answers were read, each with the row of the done request that has this key. Requests
    /// without an answer stay, and so do the rows of done requests under their keys.
    pub async fn drop_answered(&self, read: Vec<(AskId, Option<String>)>) -> Result<(), StoreError> {
        dispatch!(self, shared drop_answered(read), Ok(()))
    }

    /// The row of a request that was done; see [`Store::commit_with`]. A read by the owner's handle
    /// waits until earlier commits of that owner are settled, so a missing row means that the request was not done.
    pub async fn done_request(&self, key: &str) -> Result<Option<DoneRow>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.done_request(key)),
            Store::Sqlite(_) => Ok(None),
            Store::Postgres(postgres) => postgres.done_request(key).await,
        }
    }

    /// The requests of `ids` without an answer.
    pub async fn still_asked(&self, ids: Vec<AskId>) -> Result<Vec<AskId>, StoreError> {
        dispatch!(self, shared still_asked(ids), Ok(Vec::new()))
    }

    /// Inserts events for the clients of other servers, and notifies [`RELAYED`](crate::RELAYED).
    pub async fn relay_events(&self, events: String) -> Result<(), StoreError> {
        dispatch!(self, shared relay_events(&events), Ok(()))
    }

    /// Up to `limit` rows of events with higher numbers than `after`, by number.
    pub async fn relayed_events(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>, StoreError> {
        dispatch!(self, shared relayed_events(after, limit), Ok(Vec::new()))
    }

    /// The number of the last row of events; 0 if there is none.
    pub async fn last_relayed_event(&self) -> Result<i64, StoreError> {
        dispatch!(self, shared last_relayed_event(), Ok(0))
    }

    /// Sends a notification to all servers that listen on a channel.
    pub async fn notify(&self, channel: &str, payload: &str) -> Result<(), StoreError> {
        dispatch!(self, shared notify(channel, payload), Ok(()))
    }

    /// Listens on channels, on a connection of its own. A lost connection is made again.
    pub fn listen(&self, channels: &'static [&'static str]) -> Listener {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Listener::silent(),
            Store::Postgres(postgres) => postgres.listen(channels),
        }
    }
}
