//! Requests from one server of a shared store to the owner of the farm, and notifications: their types. A request is a row, so it
//! survives both servers, but not a crash of the database: it has what clients sent, and is kept out of the log. A
//! notification is only a hint: a server that was not connected has missed it, and is told so.

use crate::ownership::ServerId;
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

    /// A listener of a store of one server, which hears nothing.
    pub(crate) fn silent() -> Listener {
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
