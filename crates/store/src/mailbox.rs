//! Requests from one server of a shared store to the owner of the farm, and notifications. A request is a row, so it
//! survives both servers, but not a crash of the database: it has what clients sent, and is kept out of the log. A
//! notification is only a hint: a server that was not connected has missed it, and is told so.

use crate::done::DoneRow;
use crate::{ServerId, Store, StoreError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The channel on which new requests are told.
pub const ASKED: &str = "windlass_asked";
/// The channel on which answers are told; the payload is the request's number.
pub const ANSWERED: &str = "windlass_answered";
/// The channel for new work.
pub const WORK: &str = "windlass_work";
/// The channel on which relayed events are told; the payload is the row's number.
pub const RELAYED: &str = "windlass_relayed";
/// The channel on which a server tells that it made or revoked a token.
pub const TOKENS: &str = "windlass_tokens";
/// The channel on which it is tried whether notifications arrive.
const CHECKED: &str = "windlass_checked";
/// Notices that wait for a listener. Where there are more, it is told that it missed some.
pub(crate) const NOTICES_MAX: usize = 1_024;

/// The number of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AskId(pub i64);

/// A request that was not answered yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Its number.
    pub id: AskId,
    /// The server that has it.
    pub by: ServerId,
    /// The name of that server.
    pub server: String,
    /// What kind, in the server's words.
    pub kind: String,
    /// The request.
    pub body: Vec<u8>,
    /// What that server's key made of it; `None` of a server of the release before, which has no key.
    pub signature: Option<Vec<u8>>,
    /// That server's key, by which the signature is checked.
    pub verify_key: Option<Vec<u8>>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The request's number.
    pub id: AskId,
    /// How it went, as the server counts.
    pub status: i32,
    /// The answer.
    pub body: Vec<u8>,
}

/// What became of requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answers {
    /// The answers, by number.
    pub answered: Vec<Answered>,
    /// Requests that are not there any more: a crash of the database took them, with the answer if there was one.
    pub lost: Vec<AskId>,
}

/// What a listener hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A server said something.
    Said {
        /// On which channel.
        channel: String,
        /// What.
        payload: String,
    },
    /// It listens, for the first time or again. Whatever was said before may have been missed.
    Listens,
}

/// Notices, as long as this is held.
pub struct Listener {
    pub(crate) notices: mpsc::Receiver<Notice>,
    /// Kept by a listener that never hears anything.
    pub(crate) silence: Option<mpsc::Sender<Notice>>,
    pub(crate) task: Option<JoinHandle<()>>,
}

impl Listener {
    /// The next notice. A store of one server has none, so that this waits for ever.
    pub async fn next(&mut self) -> Notice {
        match self.notices.recv().await {
            Some(notice) => notice,
            // The sender ends with the runtime alone.
            None => std::future::pending().await,
        }
    }

    fn silent() -> Listener {
        let (sender, notices) = mpsc::channel(1);
        Listener { notices, silence: Some(sender), task: None }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.silence = None;
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Store {
    /// Leaves a request for the owner of the farm, and tells of it on [`ASKED`]. `sign` makes the signature of its number and
    /// its body.
    pub async fn ask(
        &self,
        by: ServerId,
        kind: &str,
        body: Vec<u8>,
        sign: impl FnOnce(AskId, &[u8]) -> Vec<u8> + Send,
    ) -> Result<AskId, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Err(StoreError::NotShared),
            Store::Postgres(postgres) => postgres.ask(by, kind, body, sign).await,
        }
    }

    /// Up to `limit` requests with higher numbers than `after` that were not answered, by number. Requests of servers that
    /// are gone are left out, because nobody waits for their answers. Of two servers that ask at the same time the higher
    /// number may appear first, so a caller also asks from the beginning now and then.
    pub async fn asked(&self, after: AskId, limit: usize) -> Result<Vec<Asked>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Vec::new()),
            Store::Postgres(postgres) => postgres.asked(after, limit).await,
        }
    }

    /// Answers a request, and tells of it on [`ANSWERED`]. The row forgets what was asked. False if it was answered before,
    /// or is not there any more.
    pub async fn answer(&self, id: AskId, status: i32, body: Vec<u8>) -> Result<bool, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Err(StoreError::NotShared),
            Store::Postgres(postgres) => postgres.answer(id, status, body).await,
        }
    }

    /// What became of these requests of a server. What it says of others' is that they are not there.
    pub async fn answers(&self, by: ServerId, ids: Vec<AskId>) -> Result<Answers, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Answers::default()),
            Store::Postgres(postgres) => postgres.answers(by, ids).await,
        }
    }

    /// Takes requests back that nobody waits for any more. One that is answered stays.
    pub async fn withdraw(&self, ids: Vec<AskId>) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.withdraw(ids).await,
        }
    }

    /// Deletes requests whose answers were read, each with the row of what it has done under this key. Requests that were
    /// not answered stay, and so do their rows.
    pub async fn drop_answered(&self, read: Vec<(AskId, Option<String>)>) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.drop_answered(read).await,
        }
    }

    /// The row of a request that was done; see [`Store::commit_with`]. By an owner's handle it is sure that no earlier commit
    /// of that owner will still do it.
    pub async fn done_request(&self, key: &str) -> Result<Option<DoneRow>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.done_request(key)),
            Store::Sqlite(_) => Ok(None),
            Store::Postgres(postgres) => postgres.done_request(key).await,
        }
    }

    /// Those of these requests that still wait for an answer.
    pub async fn still_asked(&self, ids: Vec<AskId>) -> Result<Vec<AskId>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Vec::new()),
            Store::Postgres(postgres) => postgres.still_asked(ids).await,
        }
    }

    /// Leaves events for the clients of other servers, and tells of them on [`RELAYED`].
    pub async fn relay_events(&self, events: String) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.relay_events(&events).await,
        }
    }

    /// Up to `limit` rows of events with higher numbers than `after`, by number.
    pub async fn relayed_events(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(Vec::new()),
            Store::Postgres(postgres) => postgres.relayed_events(after, limit).await,
        }
    }

    /// The number of the last row of events; 0 if there is none.
    pub async fn last_relayed_event(&self) -> Result<i64, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(0),
            Store::Postgres(postgres) => postgres.last_relayed_event().await,
        }
    }

    /// Says something to all servers that listen on a channel.
    pub async fn notify(&self, channel: &str, payload: &str) -> Result<(), StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(()),
            Store::Postgres(postgres) => postgres.notify(channel, payload).await,
        }
    }

    /// Listens on channels, on a connection of its own that is made again whenever it is lost.
    pub fn listen(&self, channels: &'static [&'static str]) -> Listener {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Listener::silent(),
            Store::Postgres(postgres) => postgres.listen(channels),
        }
    }

    /// Whether a notification comes back within `patience`. A pooler that shares connections between transactions swallows
    /// them. True for a store of one server, which needs none.
    pub async fn notices_arrive(&self, patience: Duration) -> Result<bool, StoreError> {
        let mut listener = match self {
            Store::Memory(_) | Store::Sqlite(_) => return Ok(true),
            Store::Postgres(_) => self.listen(&[CHECKED]),
        };
        let payload = format!("{:x}", self.id() ^ i64::from(std::process::id()));
        let heard = async {
            loop {
                match listener.next().await {
                    Notice::Listens => self.notify(CHECKED, &payload).await?,
                    Notice::Said { payload: said, .. } if said == payload => return Ok(()),
                    Notice::Said { .. } => {}
                }
            }
        };
        match tokio::time::timeout(patience, heard).await {
            Ok(heard) => heard.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// How far the database's clock is from this machine's, in milliseconds; positive if it is ahead. `None` for a store
    /// on this machine.
    pub async fn clock_ahead_ms(&self) -> Result<Option<i64>, StoreError> {
        match self {
            Store::Memory(_) | Store::Sqlite(_) => Ok(None),
            Store::Postgres(postgres) => postgres.clock_ahead_ms().await.map(Some),
        }
    }
}
