//! Requests that another server has passed on are done once.
//!
//! The server that a client asked gives each request that changes something a key ([`RequestHead`]), which stays the same
//! wherever the request is left again. The engine does such a request once, and the row of what it did is in the same commit
//! ([`DoneRequest`]). The owner looks for that row before it begins. It finds it where the answer was lost: because the owner
//! before died, because the database lost the request, or because the outcome of the commit was unknown. Then the handler
//! asks the engine for nothing, and answers by the row.
//!
//! A request that was refused has done nothing, so it may run again.

use super::packed::RequestHead;
use super::signature::{self, ServerKey, UnprovenDone};
use crate::http::{ApiError, App};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use windlass_api::{IneligibleWorkers, Submitted, Unplaceable, Worker};
use windlass_core::engine::{self, Event, Outbox, Reply};
use windlass_core::{JobId, RequestId};
use windlass_store::{DoneRequest, ServerId, Store, StoreError};

/// What a request did, with what its answer cannot learn from the farm any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    /// What was asked for.
    Done,
    /// A job was accepted.
    Submitted(Submitted),
    /// This worker was forgotten.
    Forgotten(Box<Worker>),
}

impl Effect {
    /// What the engine did; its answer again if it did nothing.
    fn of(reply: Reply) -> Result<Effect, Reply> {
        match reply {
            Reply::Done => Ok(Effect::Done),
            Reply::Submitted { job, existing, unplaceable } => {
                let unplaceable = unplaceable.into_iter().map(unplaceable_step).collect();
                Ok(Effect::Submitted(Submitted { job: job.0, existing, unplaceable }))
            }
            other => Err(other),
        }
    }
}

fn unplaceable_step(step: engine::Unplaceable) -> Unplaceable {
    let reasons = step.reasons.iter().map(|(why, n)| IneligibleWorkers::from_core(why, *n, Vec::new()));
    Unplaceable { step: step.step, reasons: reasons.collect() }
}

/// What it takes to write the row of a request.
#[derive(Clone)]
pub(crate) struct Once {
    key: String,
    signer: ServerKey,
    /// The number of the store.
    store: i64,
    /// This server.
    by: ServerId,
    /// The worker that the request is to forget.
    worker: Option<Box<Worker>>,
}

/// Whether a request was done cannot be told.
#[derive(Debug, thiserror::Error)]
pub(super) enum Untold {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unproven(#[from] UnprovenDone),
    #[error("the row of what it did is not understood: {0}")]
    Broken(#[from] serde_json::Error),
}

impl Once {
    /// For a request that another server has passed on. `None` if it changes nothing, or if this server has no key.
    pub(super) fn of(app: &App, head: &RequestHead) -> Option<Once> {
        let (key, signer) = (head.key.clone()?, app.server_key()?.clone());
        let by = app.own_number().unwrap_or(ServerId(0));
        Some(Once { key, signer, store: app.handle.store().id(), by, worker: None })
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// What the request did; `None` if it was not done.
    pub(super) async fn done(&self, store: &Store) -> Result<Option<Effect>, Untold> {
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

    /// The rows of the requests that a batch does.
    pub fn rows(&self, batch: &Outbox) -> Vec<DoneRequest> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let answers = batch.answers.iter();
        let rows = answers.filter_map(|(request, reply)| {
            self.0.get(request)?.row(reply, batch.about.get(request).copied())
        });
        rows.collect()
    }
}

/// How a handler asks the engine for a change. Nearly all come from this server's own clients, and are asked for at once.
#[derive(Clone, Default)]
pub(crate) struct ChangeRequest {
    once: Option<Once>,
    /// It was done before.
    done: Option<Effect>,
}

impl ChangeRequest {
    pub(super) fn new(once: Once, done: Option<Effect>) -> ChangeRequest {
        ChangeRequest { once: Some(once), done }
    }

    /// Asks the engine for an event, unless it was done before: then `event` is not awaited, and nothing is checked again.
    /// The inner error is the engine's answer if it did nothing.
    pub async fn ask<E>(
        self,
        app: &App,
        event: impl Future<Output = Result<E, ApiError>>,
    ) -> Result<Result<Effect, Reply>, ApiError>
    where
        E: FnOnce(RequestId) -> Event + Send + 'static,
    {
        if let Some(done) = self.done {
            return Ok(Ok(done));
        }
        let reply = app.handle.request_once(self.once, event.await?).await?;
        Ok(Effect::of(reply))
    }

    /// As [`ChangeRequest::ask`], for an event that forgets a worker. The answer is the worker as it was before.
    pub async fn forget<E>(
        self,
        app: &App,
        event: impl Future<Output = Result<(E, Worker), ApiError>>,
    ) -> Result<Result<Worker, Reply>, ApiError>
    where
        E: FnOnce(RequestId) -> Event + Send + 'static,
    {
        if let Some(Effect::Forgotten(worker)) = self.done {
            return Ok(Ok(*worker));
        }
        let (event, worker) = event.await?;
        let once = self.once.map(|once| Once { worker: Some(Box::new(worker.clone())), ..once });
        match app.handle.request_once(once, event).await? {
            Reply::Done => Ok(Ok(worker)),
            other => Ok(Err(other)),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ChangeRequest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<ChangeRequest>().cloned().unwrap_or_default())
    }
}

/// The keys of the requests that are being done. Clones share them. A request that a crash of the database took comes again
/// under its key while it is being done, and must wait until it is known whether it was.
#[derive(Clone, Default)]
pub(super) struct KeysUnderWay(Arc<Mutex<BTreeSet<String>>>);

impl KeysUnderWay {
    /// `None` if a request of this key is being done.
    pub fn take(&self, key: &str) -> Option<KeyTurn> {
        let is_new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        is_new.then(|| KeyTurn { keys: self.clone(), key: key.to_owned() })
    }
}

/// Held while a request is being done.
pub(super) struct KeyTurn {
    keys: KeysUnderWay,
    key: String,
}

impl Drop for KeyTurn {
    fn drop(&mut self) {
        self.keys.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
