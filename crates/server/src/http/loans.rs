//! The cpus that a task lends while it waits for a job. The engine of the shard in which the task runs lends them.

use super::App;
use super::error::ApiError;
use super::tasks::parse_id;
use crate::handle::Handle;
use crate::peers::{LOANS_PATH, OtherShards};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use std::time::Duration;
use windlass_core::engine::{Engine, Event};
use windlass_core::ids::ShardId;
use windlass_core::{RequestId, TaskId};

/// How long another shard may take to lend.
const LEND_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take until a task in another shard has its cpus again: other tasks may run on them until they end.
const RECLAIM_PATIENCE: Duration = Duration::from_secs(1_000);

/// The cpus that a waiting task lends. A task may wait for several jobs at once: it has its cpus again
/// when the last of these waits is over. Whoever waits may go away at any moment, so they are asked back
/// at the latest when this is dropped.
pub(super) struct Loan {
    app: App,
    task: TaskId,
    lender: Lender,
    is_open: bool,
}

/// The way to the engine that lends.
#[derive(Clone)]
enum Lender {
    Engine(Handle),
    Elsewhere(OtherShards, ShardId),
}

impl Loan {
    /// Counts a wait of a task. A task stays in its shard while it runs.
    pub(super) async fn open(app: &App, task: TaskId) -> Result<Loan, ApiError> {
        let lender = match app.others() {
            None => Lender::Engine(app.handle.clone()),
            Some(others) => {
                let look = move |engine: &Engine| engine.delegated_to(task).map(|(shard, _)| shard);
                match app.handle.query(look).await? {
                    None => Lender::Engine(app.handle.clone()),
                    Some(shard) => match app.shards().handle(shard) {
                        Some(handle) => Lender::Engine(handle),
                        None => Lender::Elsewhere(others, shard),
                    },
                }
            }
        };
        *app.loans().entry(task).or_default() += 1;
        Ok(Loan { app: app.clone(), task, lender, is_open: true })
    }

    /// Lends the cpus.
    pub(super) async fn lend(&self) {
        match &self.lender {
            Lender::Engine(handle) => handle.tell(Event::Lend { task: self.task }).await,
            Lender::Elsewhere(others, shard) => {
                let path = path(self.task, true);
                if let Err(error) = others.order(*shard, path, LEND_PATIENCE).await {
                    tracing::warn!("task {} keeps its cpus while it waits for a job: {error}", self.task);
                }
            }
        }
    }

    /// Returns when the task has its cpus again, or at once if it waits for others still.
    pub(super) async fn give_back(mut self) -> Result<(), ApiError> {
        if !self.close() {
            return Ok(());
        }
        let task = self.task;
        let given_back = match &self.lender {
            Lender::Engine(handle) => {
                let reclaim = move |request| Event::Reclaim { request, task };
                handle.request(reclaim).await.map(|_| ()).map_err(ApiError::from)
            }
            Lender::Elsewhere(others, shard) => {
                others.order(*shard, path(task, false), RECLAIM_PATIENCE).await
            }
        };
        if given_back.is_err() {
            self.reclaim_later();
        }
        given_back
    }

    /// Asks the cpus back. Nobody waits for the answer.
    fn reclaim_later(&self) {
        let task = self.task;
        match self.lender.clone() {
            Lender::Engine(handle) => handle.tell_later(Event::Reclaim { request: RequestId(0), task }),
            Lender::Elsewhere(others, shard) => {
                // None where the server is ending: whoever waits then asks the next owner.
                let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
                runtime.spawn(async move {
                    if let Err(error) = others.order(shard, path(task, false), RECLAIM_PATIENCE).await {
                        tracing::warn!("the cpus that task {task} lent were not asked back: {error}");
                    }
                });
            }
        }
    }

    /// Counts this wait as over; true if it was the task's last.
    fn close(&mut self) -> bool {
        self.is_open = false;
        let mut loans = self.app.loans();
        let left = loans.get_mut(&self.task).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            loans.remove(&self.task);
        }
        left == 0
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.is_open && self.close() {
            self.reclaim_later();
        }
    }
}

/// The path by which another shard is told.
fn path(task: TaskId, lends: bool) -> String {
    format!("{LOANS_PATH}?task={task}&lends={lends}")
}

/// What the owner of the first shard tells another one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoanOrder {
    task: String,
    /// False where the cpus are asked back.
    lends: bool,
}

/// Lends the cpus of a task of this shard, or answers when it has them again. No client can ask for it.
pub async fn of_shard(
    State(app): State<App>,
    query: Result<Query<LoanOrder>, QueryRejection>,
) -> Result<(), ApiError> {
    let Query(LoanOrder { task, lends }) = query?;
    let task = parse_id(&task)?;
    if lends {
        app.handle.tell(Event::Lend { task }).await;
    } else {
        app.handle.request(move |request| Event::Reclaim { request, task }).await?;
    }
    Ok(())
}
