//! Types of requests from one server of a shared store to the owner of the farm, and of notifications.
//!
//! A request is a row, so it survives both servers. It does not survive a crash of the database, because its table is
//! unlogged: a request holds what clients sent, which must not enter the log. A notification is a hint. A server that
//! was not connected has missed it, and gets [`Notice::Listens`] when it is connected again.

use crate::ownership::ServerId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The channel of new requests.
pub const ASKED: &str = "windlass_asked";
/// The channel of answers; the payload is the request's number.
pub const ANSWERED: &str = "windlass_answered";
/// The channel for new work.
pub const WORK: &str = "windlass_work";
/// The channel of relayed events; the payload is the row's number.
pub const RELAYED: &str = "windlass_relayed";
/// The channel on which a server announces a token that it created or revoked.
pub const TOKENS: &str = "windlass_tokens";
/// Notices that wait for a listener. Beyond it notices are dropped, and the listener gets [`Notice::Listens`].
pub(crate) const NOTICES_MAX: usize = 1_024;

/// The number of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AskId(pub i64);

/// A request that was not answered yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The number of the request.
    pub id: AskId,
    /// The server that has it.
    pub by: ServerId,
    /// The name of that server.
    pub server: String,
    /// Its kind, as named by the servers.
    pub kind: String,
    /// The body of the request.
    pub body: Vec<u8>,
    /// The signature by that server's key; `None` from a server of the previous release, which has no key.
    pub signature: Option<Vec<u8>>,
    /// That server's key, by which the signature is checked.
    pub verify_key: Option<Vec<u8>>,
}

/// The owner's answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The number of the request.
    pub id: AskId,
    /// The status of the answer, as defined by the servers.
    pub status: i32,
    /// The body of the answer.
    pub body: Vec<u8>,
}

/// The outcomes of requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answers {
    /// The answers, by number.
    pub answered: Vec<Answered>,
    /// Requests without a row: a crash of the database has lost them, and their answers.
    pub lost: Vec<AskId>,
}

/// What a [`Listener`] receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A notification of a server.
    Said {
        /// The name of its channel.
        channel: String,
        /// Its text; the channel's constant says what it means.
        payload: String,
    },
    /// The connection listens, for the first time or again. Earlier notifications may be lost.
    Listens,
}

/// A subscription to channels. It ends when this is dropped.
pub struct Listener {
    pub(crate) notices: mpsc::Receiver<Notice>,
    /// The sender of a listener that receives nothing, so that its channel stays open.
    pub(crate) silence: Option<mpsc::Sender<Notice>>,
    pub(crate) task: Option<JoinHandle<()>>,
}

impl Listener {
    /// The next notice. A store of one server has none, so there this waits forever.
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
