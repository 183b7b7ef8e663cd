//! Changes that handlers ask the engine for. One that another server has passed on is done once.

use crate::api_error::ApiError;
use crate::http::App;
use crate::peers::{Effect, Once};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::convert::Infallible;
use windlass_api::Worker;
use windlass_core::RequestId;
use windlass_core::engine::{Event, Reply};

/// How a handler asks the engine for a change. Nearly all come from this server's own clients, and are asked for at once.
#[derive(Clone, Default)]
pub(crate) struct ChangeRequest {
    once: Option<Once>,
    /// It was done before.
    done: Option<Effect>,
}

impl ChangeRequest {
    pub(crate) fn new(once: Once, done: Option<Effect>) -> ChangeRequest {
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
        let once = self.once.map(|once| once.forgetting(worker.clone()));
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
