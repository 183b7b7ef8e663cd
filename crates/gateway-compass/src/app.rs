//! The state that all requests share: the server's interface for gateways, the files, and the channel to the
//! laboratory.

use crate::files::Files;
use crate::lab::{Ask, Lab};
use crate::max_run::MaxRuns;
use crate::waits::Waits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};
use windlass_core::JobId;
use windlass_server::{Front, Handle, Unavailable};
use windlass_store::StoreError;

/// Messages in the laboratory's inbox.
const ASKS_MAX: usize = 16_384;
/// Changes of jobs by which a slow listener may lag.
const CHANGES_MAX: usize = 4_096;
/// Sockets of providers and clients that are open at a time.
const SOCKETS_MAX: usize = 10_000;

/// The state of every request.
#[derive(Clone)]
pub(crate) struct App {
    pub handle: Handle,
    pub front: Front,
    pub compass: Compass,
    pub files: Arc<Files>,
}

/// The channel to the laboratory, and what its requests share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Compass {
    asks: mpsc::Sender<Ask>,
    pub changes: broadcast::Sender<JobId>,
    pub sockets: Arc<Semaphore>,
    last_id: Arc<AtomicU64>,
    pub waits: Waits,
    pub max_runs: Arc<MaxRuns>,
}

impl Compass {
    /// Reads jobs and hosts from the store, and starts the laboratory.
    pub async fn start(front: Front, files: Arc<Files>) -> Result<Compass, StoreError> {
        let (asks, inbox) = mpsc::channel(ASKS_MAX);
        let changes = broadcast::channel(CHANGES_MAX).0;
        let lab = Lab::load(front.handle().clone(), changes.clone(), files).await?;
        tokio::spawn(lab.run(inbox));
        let waits = Waits::start(front, changes.clone());
        let (sockets, last_id) = (Arc::new(Semaphore::new(SOCKETS_MAX)), Arc::default());
        Ok(Compass { asks, changes, sockets, last_id, waits, max_runs: Arc::default() })
    }

    /// Sends the laboratory a message. False once the laboratory has ended.
    pub async fn tell(&self, ask: Ask) -> bool {
        self.asks.send(ask).await.is_ok()
    }

    /// Sends the laboratory a message, and waits for its reply. The reply comes once the change is durable.
    pub async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Unavailable> {
        let (reply, wait) = oneshot::channel();
        self.tell(ask(reply)).await;
        wait.await.map_err(|_| Unavailable::new("the server is ending"))
    }

    /// Reads the laboratory's state.
    pub async fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Lab) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let look = |reply: oneshot::Sender<T>| {
            Ask::Look(Box::new(move |lab| {
                // The request may have been dropped meanwhile.
                _ = reply.send(question(lab));
            }))
        };
        self.ask(look).await
    }

    /// A number for a new socket or a machine that boots, unique while the server runs.
    pub fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
}
