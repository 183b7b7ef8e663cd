//! The cpus that a task lends while it waits for a job.

use super::App;
use crate::api_error::ApiError;
use windlass_core::engine::Event;
use windlass_core::{RequestId, TaskId};

/// The cpus that a waiting task lends. A task may wait for several jobs at once: it has its cpus again
/// when the last of these waits is over. The client that waits may go away at any moment, so they are asked back
/// at the latest when this is dropped.
pub(super) struct Loan {
    app: App,
    task: TaskId,
    is_open: bool,
}

impl Loan {
    pub(super) fn open(app: &App, task: TaskId) -> Loan {
        *app.shared.loans.lock().entry(task).or_default() += 1;
        Loan { app: app.clone(), task, is_open: true }
    }

    pub(super) async fn lend(&self) {
        self.app.handle.tell(Event::Lend { task: self.task }).await;
    }

    /// Returns when the task has its cpus again, or at once if it waits for others still.
    pub(super) async fn give_back(mut self) -> Result<(), ApiError> {
        let (task, is_last) = (self.task, self.close());
        if is_last
            && let Err(error) = self.app.handle.request(move |request| Event::Reclaim { request, task }).await
        {
            self.reclaim_later();
            return Err(error.into());
        }
        Ok(())
    }

    /// Asks the cpus back. Nobody waits for the answer.
    fn reclaim_later(&self) {
        self.app.handle.tell_later(Event::Reclaim { request: RequestId(0), task: self.task });
    }

    /// Counts this wait as over; true if it was the task's last.
    fn close(&mut self) -> bool {
        self.is_open = false;
        let mut loans = self.app.shared.loans.lock();
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
