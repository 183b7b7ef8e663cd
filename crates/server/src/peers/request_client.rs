//! The client of the owner, on a server that stands by: it writes the rows of requests, and reads answers and events.

use super::KnownOwner;
use super::event_relay::EventReader;
use super::request_rows::{self, BadRow, RequestHead};
use super::signature::ServerKey;
use crate::auth::Auth;
use crate::events::Events;
use axum::body::Bytes;
use axum::http::Response;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use windlass_store::{
    ANSWERED, Answered, AskId, Listener, Notice, RELAYED, ServerId, Store, StoreError, TOKENS,
};

/// The kind of a row that has a request of a client.
pub(crate) const REQUEST_KIND: &str = "http";
/// Requests that may wait for answers: of all, and of one user.
const WAITING_MAX: usize = 8_192;
const WAITING_OF_USER_MAX: usize = 1_024;
/// Numbers of answers that came before this server knew the number of its request.
const EARLY_MAX: usize = 4_096;
/// Answers that nobody reads any more and that are not deleted yet. More of them go with their age.
const READ_MAX: usize = 10_000;
/// How often answers and events are looked for, where a notice of them was lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Passes requests on to the server that owns the farm, and waits for their answers.
pub(crate) struct RequestClient {
    store: Store,
    server: ServerId,
    key: ServerKey,
    waiting: Mutex<Waiting>,
    owner: watch::Sender<Option<KnownOwner>>,
}

#[derive(Default)]
struct Waiting {
    /// A sender that is dropped says that the request is lost.
    asks: BTreeMap<AskId, oneshot::Sender<Answered>>,
    early: BTreeSet<AskId>,
    /// Requests whose answers were read, or that nobody waits for any more, with their keys.
    read: Vec<(AskId, Option<String>)>,
    /// Requests under way, by user.
    users: BTreeMap<String, usize>,
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("too many requests wait for the server that owns the farm")]
    Full,
    #[error("'{0}' has {WAITING_OF_USER_MAX} requests that wait for the server that owns the farm")]
    FullOfUser(String),
    #[error("the server that owns the farm has not answered for {} s", .0.as_secs())]
    Patience(Duration),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the answer of the server that owns the farm is broken: {0}")]
    Broken(#[from] BadRow),
}

impl RequestClient {
    pub fn new(store: Store, server: ServerId, key: ServerKey) -> RequestClient {
        RequestClient { store, server, key, waiting: Mutex::default(), owner: watch::Sender::new(None) }
    }

    pub fn server(&self) -> ServerId {
        self.server
    }

    /// How many entries its tables have.
    pub(crate) fn entries(&self) -> [(&'static str, usize); 3] {
        let waiting = self.waiting.lock();
        [
            ("requests_passed_on", waiting.asks.len()),
            ("users_with_requests_passed_on", waiting.users.len()),
            ("answers_to_delete", waiting.read.len()),
        ]
    }

    /// True if the owner is another than before.
    pub fn set_owner(&self, owner: Option<KnownOwner>) -> bool {
        self.owner.send_if_modified(|known| {
            let is_new = *known != owner;
            *known = owner;
            is_new
        })
    }

    pub fn owner(&self) -> Option<KnownOwner> {
        self.owner.borrow().clone()
    }

    /// Asks the server that owns the farm, now or within `patience`. Dropped, it takes the request back. A request that a
    /// crash of the database took is left there again under its key, so that it is done once.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        head: &RequestHead,
        body: &[u8],
        patience: Duration,
    ) -> Result<Response<Bytes>, Unanswered> {
        let _slot = AskSlot::take(self, &head.user)?;
        let until = Instant::now() + patience;
        loop {
            let row = request_rows::pack_request(head, body);
            match self.ask_once(head.key.as_ref(), row, until).await? {
                Fate::Answered(answer) => {
                    return Ok(request_rows::unpack_answer(answer.status, answer.body)?);
                }
                Fate::Lost => {}
                Fate::Late => return Err(Unanswered::Patience(patience)),
            }
        }
    }

    async fn ask_once(
        self: &Arc<Self>,
        key: Option<&String>,
        row: Vec<u8>,
        until: Instant,
    ) -> Result<Fate, StoreError> {
        let (store, by) = (self.store.id(), self.server);
        let sign = |id: AskId, row: &[u8]| self.key.sign(store, (id, by), REQUEST_KIND, row);
        let id = self.store.ask(by, REQUEST_KIND, row, sign).await?;
        let (sender, answered) = oneshot::channel();
        let is_early = {
            let mut waiting = self.waiting.lock();
            waiting.asks.insert(id, sender);
            waiting.early.remove(&id)
        };
        let _asking = Asking { request_client: self.clone(), id, key: key.cloned() };
        if is_early {
            // The next look finds it, if this one fails.
            _ = self.fetch(vec![id]).await;
        }
        Ok(match tokio::time::timeout_at(until, answered).await {
            Ok(Ok(answer)) => Fate::Answered(answer),
            Ok(Err(_)) => Fate::Lost,
            Err(_) => Fate::Late,
        })
    }

    /// Hears answers, events for this server's clients, and of tokens that other servers changed, for ever.
    pub async fn hear(self: Arc<Self>, events: Events, auth: Arc<Auth>) {
        let mut listener = self.store.listen(&[ANSWERED, RELAYED, TOKENS]);
        let mut event_reader = EventReader::new(self.store.clone(), events).await;
        let mut tick = tokio::time::interval(LOOK_EVERY);
        let mut is_away = false;
        loop {
            let heard = tokio::select! {
                notice = listener.next() => Heard::of(notice, &mut listener),
                _ = tick.tick() => Heard::ALL,
            };
            let answered = self.of_interest(&heard);
            let mut looked = if answered.is_empty() { Ok(()) } else { self.fetch(answered).await };
            if heard.tokens {
                auth.refresh_or_warn().await;
            }
            if heard.all_answers {
                looked = looked.and(self.drop_read().await);
            }
            if heard.events {
                looked = looked.and(event_reader.read().await);
            }
            if let Err(error) = &looked
                && !is_away
            {
                tracing::warn!("cannot read answers and events of other servers: {error}");
            }
            is_away = looked.is_err();
        }
    }

    /// Requests of this server that may have an answer now.
    fn of_interest(&self, heard: &Heard) -> Vec<AskId> {
        let mut waiting = self.waiting.lock();
        if heard.all_answers {
            return waiting.asks.keys().copied().collect();
        }
        let (known, early) = heard.answers.iter().partition(|id| waiting.asks.contains_key(id));
        waiting.early.extend::<Vec<AskId>>(early);
        while waiting.early.len() > EARLY_MAX {
            waiting.early.pop_first();
        }
        known
    }

    /// Deletes answers, which may have what only one client may read.
    async fn drop_read(&self) -> Result<(), StoreError> {
        let read = std::mem::take(&mut self.waiting.lock().read);
        if read.is_empty() {
            return Ok(());
        }
        let dropped = self.store.drop_answered(read.clone()).await;
        if dropped.is_err() {
            let mut waiting = self.waiting.lock();
            let room = READ_MAX.saturating_sub(waiting.read.len());
            waiting.read.extend(read.into_iter().take(room));
        }
        dropped
    }

    async fn fetch(&self, ids: Vec<AskId>) -> Result<(), StoreError> {
        let answers = self.store.answers(self.server, ids).await?;
        let mut waiting = self.waiting.lock();
        for answer in answers.answered {
            if let Some(sender) = waiting.asks.remove(&answer.id) {
                _ = sender.send(answer);
            }
        }
        for id in answers.lost {
            waiting.asks.remove(&id);
        }
        Ok(())
    }
}

enum Fate {
    Answered(Answered),
    /// The database has it no more.
    Lost,
    /// There was no answer in time.
    Late,
}

/// One of the requests that a user may have under way.
struct AskSlot<'a> {
    request_client: &'a RequestClient,
    user: &'a str,
}

impl<'a> AskSlot<'a> {
    fn take(request_client: &'a RequestClient, user: &'a str) -> Result<AskSlot<'a>, Unanswered> {
        let mut waiting = request_client.waiting.lock();
        if waiting.users.values().sum::<usize>() >= WAITING_MAX {
            return Err(Unanswered::Full);
        }
        let own = waiting.users.entry(user.to_owned()).or_default();
        if *own >= WAITING_OF_USER_MAX {
            return Err(Unanswered::FullOfUser(user.to_owned()));
        }
        *own += 1;
        Ok(AskSlot { request_client, user })
    }
}

impl Drop for AskSlot<'_> {
    fn drop(&mut self) {
        let mut waiting = self.request_client.waiting.lock();
        if let Some(own) = waiting.users.get_mut(self.user) {
            *own -= 1;
            if *own == 0 {
                waiting.users.remove(self.user);
            }
        }
    }
}

/// A request under way. Dropped without an answer, it is taken back; an answer is deleted soon after.
struct Asking {
    request_client: Arc<RequestClient>,
    id: AskId,
    key: Option<String>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let is_open = {
            let mut waiting = self.request_client.waiting.lock();
            if waiting.read.len() < READ_MAX {
                waiting.read.push((self.id, self.key.take()));
            }
            waiting.asks.remove(&self.id).is_some()
        };
        if is_open && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (store, id) = (self.request_client.store.clone(), self.id);
            runtime.spawn(async move {
                if let Err(error) = store.withdraw(vec![id]).await {
                    tracing::warn!(
                        "a request that nobody waits for stays in the database for a while: {error}"
                    );
                }
            });
        }
    }
}

/// The contents of notices of the database.
struct Heard {
    answers: BTreeSet<AskId>,
    all_answers: bool,
    events: bool,
    tokens: bool,
}

impl Heard {
    /// What is looked for where a notice may be lost. Tokens are looked for elsewhere, now and then.
    const ALL: Heard = Heard { answers: BTreeSet::new(), all_answers: true, events: true, tokens: false };

    fn of(first: Notice, listener: &mut Listener) -> Heard {
        let mut heard = Heard { all_answers: false, events: false, ..Heard::ALL };
        let mut next = Some(first);
        while let Some(notice) = next {
            match notice {
                Notice::Listens => return Heard::ALL,
                Notice::Said { channel, .. } if channel == RELAYED => heard.events = true,
                Notice::Said { channel, .. } if channel == TOKENS => heard.tokens = true,
                Notice::Said { payload, .. } => match payload.parse() {
                    Ok(id) => _ = heard.answers.insert(AskId(id)),
                    Err(_) => heard.all_answers = true,
                },
            }
            next = listener.next().now_or_never();
        }
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_room_for_others() {
        let request_client =
            RequestClient::new(Store::open("memory").unwrap(), ServerId(1), ServerKey::new().unwrap());
        let turns: Vec<_> =
            (0..WAITING_OF_USER_MAX).map(|_| AskSlot::take(&request_client, "ann").unwrap()).collect();
        assert!(matches!(AskSlot::take(&request_client, "ann"), Err(Unanswered::FullOfUser(_))));
        let others: Vec<_> = (WAITING_OF_USER_MAX..WAITING_MAX)
            .map(|n| {
                AskSlot::take(&request_client, ["bob", "cyn", "dan", "eve", "fay", "gus", "hal"][n % 7])
                    .unwrap()
            })
            .collect();
        assert!(matches!(AskSlot::take(&request_client, "ida"), Err(Unanswered::Full)));
        drop((turns, others));
        assert!(request_client.waiting.lock().users.is_empty());
    }
}
