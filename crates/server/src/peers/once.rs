//! Requests that another server has passed on are done once.
//!
//! The server that a client asked gives each request that changes something a key
//! ([`RequestHead`](super::request_rows::RequestHead)), which stays the same wherever the request is left again. The
//! engine does such a request once, and the row of what it did is in the same commit
//! ([`DoneRequest`]). The owner looks for that row before it begins. It finds it where the answer was lost: because the owner
//! before died, because the database lost the request, or because the outcome of the commit was unknown. Then the handler
//! asks the engine for nothing, and answers by the row.
//!
//! A request that was refused has done nothing, so it may run again.

use super::signature::{self, ServerKey, UnprovenDone};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_api::{Submitted, Unplaceable, Worker};
use windlass_core::engine::{Outbox, Reply};
use windlass_core::{JobId, RequestId};
use windlass_store::{DoneRequest, ServerId, Store, StoreError};

/// The effect of a request, with what its answer cannot learn from the farm any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    /// The change was made as asked.
    Done,
    Submitted(Submitted),
    Forgotten(Box<Worker>),
}

impl Effect {
    /// The effect that the engine's answer tells of; the answer again if it did nothing.
    pub fn of(reply: Reply) -> Result<Effect, Reply> {
        match reply {
            Reply::Done => Ok(Effect::Done),
            Reply::Submitted { job, existing, unplaceable } => {
                let unplaceable = unplaceable.iter().map(Unplaceable::from_core).collect();
                Ok(Effect::Submitted(Submitted { job: job.0, existing, unplaceable, queue_created: false }))
            }
            other => Err(other),
        }
    }
}

/// A request that is done once: its key, and what its row needs besides.
#[derive(Clone)]
pub(crate) struct Once {
    key: String,
    signer: ServerKey,
    store: i64,
    by: ServerId,
    worker: Option<Box<Worker>>,
}

/// Whether a request was done cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Untold {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unproven(#[from] UnprovenDone),
    #[error("the row of what it did is not understood: {0}")]
    Broken(#[from] serde_json::Error),
}

impl Once {
    /// For the request with this key, in the store with the number `store`. This server is `by`, and signs with `signer`.
    pub fn new(key: String, signer: ServerKey, store: i64, by: ServerId) -> Once {
        Once { key, signer, store, by, worker: None }
    }

    /// The same, for a request that forgets a worker. The row keeps the worker as it was before.
    pub fn forgetting(self, worker: Worker) -> Once {
        Once { worker: Some(Box::new(worker)), ..self }
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The effect of the request; `None` if it was not done.
    pub(crate) async fn done(&self, store: &Store) -> Result<Option<Effect>, Untold> {
        let Some(row) = store.done_request(&self.key).await? else { return Ok(None) };
        // This server's own key need not come from the database.
        let own = (row.by == self.by).then(|| self.signer.verify_key());
        let verify_key = own.or(row.verify_key.as_deref());
        signature::check_done(self.store, &self.key, &row, verify_key)?;
        Ok(Some(serde_json::from_slice(&row.answer)?))
    }

    /// The row, if the engine's answer says that the request is done.
    fn row(&self, reply: &Reply, job: Option<JobId>) -> Option<DoneRequest> {
        let effect = match (Effect::of(reply.clone()).ok()?, &self.worker) {
            (Effect::Done, Some(worker)) => Effect::Forgotten(worker.clone()),
            (effect, _) => effect,
        };
        let (key, by) = (self.key.clone(), self.by);
        let answer = serde_json::to_vec(&effect).expect("strings and numbers always serialize");
        let signature = self.signer.sign_done(self.store, by, &key, &answer);
        Some(DoneRequest { key, job, answer, by, signature })
    }
}

/// Requests with a key that the engine has not answered, by their number there.
#[derive(Default)]
pub(crate) struct OnceRequests(BTreeMap<RequestId, Box<Once>>);

impl OnceRequests {
    pub fn begin(&mut self, request: RequestId, once: Option<Box<Once>>) {
        self.0.extend(once.map(|once| (request, once)));
    }

    /// Called for each request that is answered.
    pub fn end(&mut self, request: RequestId) {
        self.0.remove(&request);
    }

    pub fn rows(&self, batch: &Outbox) -> Vec<DoneRequest> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let answers = batch.replies.iter();
        let rows = answers.filter_map(|(request, reply)| {
            self.0.get(request)?.row(reply, batch.about.get(request).copied())
        });
        rows.collect()
    }
}

/// The keys of the requests that are being done. Clones share them. A request that a crash of the database took comes again
/// under its key while it is being done, and must wait until it is known whether it was.
#[derive(Clone, Default)]
pub(crate) struct KeysUnderWay(Arc<Mutex<BTreeSet<String>>>);

impl KeysUnderWay {
    /// `None` if a request of this key is being done.
    pub fn take(&self, key: &str) -> Option<KeyTurn> {
        let is_new = self.0.lock().insert(key.to_owned());
        is_new.then(|| KeyTurn { keys: self.clone(), key: key.to_owned() })
    }
}

/// Held while a request is being done.
pub(crate) struct KeyTurn {
    keys: KeysUnderWay,
    key: String,
}

impl Drop for KeyTurn {
    fn drop(&mut self) {
        self.keys.0.lock().remove(&self.key);
    }
}
