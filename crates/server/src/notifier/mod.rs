//! The task that delivers notices. It reads what is owed from the store, sends it, and deletes the rows of what was
//! delivered. So each notice is delivered at least once: a server that starts, or takes over, goes on with what is owed.
//!
//! The engine never waits for it. It has connections of its own, and deletes rows seldom, many in one transaction.

mod backlog;
mod mail;
mod undelivered;
mod web;

use crate::handle::Handle;
use crate::notices::{FailureNotice, NoticeAddress, NoticeBody, host_and_port};
use backlog::Backlog;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use undelivered::Undelivered;
use web::Webhooks;
use windlass_core::job::TaskState;
use windlass_core::{JobId, TaskId, Time};
use windlass_store::{OwedNotice, Store};

/// Notices that are read from the store in one go.
const READ_MAX: usize = 1_000;
/// Rows that are deleted in one transaction.
const FORGET_MAX: usize = 1_000;
/// Between two such transactions, unless there are as many rows. Commits of the engine wait for each.
const FORGET_EVERY: Duration = Duration::from_millis(500);
/// How often the store is looked at where nothing says that there is more.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a notice is tried.
const GIVE_UP_AFTER_NS: u64 = 24 * 3_600 * 1_000_000_000;
/// Tasks of a job that are looked at for its first start.
const STARTS_LOOKED_MAX: u32 = 100;
/// The gate of all mails: they wait for one command.
const MAIL_HOST: &str = "mailto";

/// Delivers the notices that are owed, until the server ends.
pub async fn deliver_notices(handle: Handle) {
    let ends = handle.clone();
    let mut notifier = Notifier {
        handle,
        webhooks: Arc::new(Webhooks::new()),
        backlog: Backlog::default(),
        seen: 0,
        done: Vec::new(),
        forgot: Instant::now(),
        sends: JoinSet::new(),
    };
    tokio::select! {
        () = notifier.run() => {}
        () = ends.ends() => {}
    }
}

/// A send that has ended, and how.
type Ended = Result<(OwedNotice, Result<(), Undelivered>), JoinError>;

struct Notifier {
    handle: Handle,
    webhooks: Arc<Webhooks>,
    backlog: Backlog,
    /// The number of the last notice that was read.
    seen: u64,
    /// Notices whose rows are to be deleted.
    done: Vec<u64>,
    /// When rows were deleted last.
    forgot: Instant,
    sends: JoinSet<(OwedNotice, Result<(), Undelivered>)>,
}

impl Notifier {
    async fn run(&mut self) {
        let mut has_more = true;
        loop {
            if has_more {
                has_more = self.read().await;
            }
            self.give_up();
            let now = Instant::now();
            while let Some(owed) = self.backlog.next(now) {
                self.begin(owed);
            }
            self.forget(now).await;
            self.handle.parts().metrics.notices_owed.store(self.backlog.len() as u64, Ordering::Relaxed);
            if has_more {
                self.take_ended();
                continue;
            }
            let every = if self.done.is_empty() { LOOK_EVERY } else { FORGET_EVERY };
            let wakes = self.backlog.wakes().map_or(now + every, |at| at.min(now + every));
            tokio::select! {
                () = self.handle.parts().notices.rung() => has_more = true,
                Some(ended) = self.sends.join_next() => {
                    self.ended(ended);
                    self.take_ended();
                }
                () = sleep_until(wakes) => has_more = true,
            }
        }
    }

    /// Reads notices that it has not seen. True if there may be more.
    async fn read(&mut self) -> bool {
        let owed = match windlass_store::owed_notices(self.handle.store(), self.seen, READ_MAX).await {
            Ok(owed) => owed,
            Err(error) => {
                tracing::warn!("cannot read the notices that are owed: {error}");
                return false;
            }
        };
        let is_full = owed.len() == READ_MAX;
        for owed in owed {
            self.seen = owed.number;
            let host = match NoticeAddress::parse(&owed.notice.to) {
                Ok(NoticeAddress::Web(url)) => host_and_port(&url),
                Ok(NoticeAddress::Mail(_)) | Err(_) => MAIL_HOST.to_owned(),
            };
            let dropped = self.backlog.add(owed, &host);
            self.handle.parts().metrics.notices_dropped.inc_by(dropped.len() as u64);
            self.done.extend(dropped);
        }
        is_full
    }

    /// Takes out what was tried for too long.
    fn give_up(&mut self) {
        let before = Time(self.handle.now().0.saturating_sub(GIVE_UP_AFTER_NS));
        let given_up = self.backlog.expire(before);
        if !given_up.is_empty() {
            let count = given_up.len();
            tracing::warn!(count, "notices could not be delivered within a day, and are given up");
            self.handle.parts().metrics.notices_failed.inc_by(count as u64);
            given_up.iter().for_each(|owed| self.handle.parts().notices.troubles.given_up(&owed.notice));
            self.done.extend(given_up.iter().map(|owed| owed.number));
        }
    }

    fn begin(&mut self, owed: OwedNotice) {
        let (handle, webhooks) = (self.handle.clone(), self.webhooks.clone());
        self.sends.spawn(async move {
            let result = send(&handle, &webhooks, &owed).await;
            (owed, result)
        });
    }

    fn take_ended(&mut self) {
        while let Some(ended) = self.sends.try_join_next() {
            self.ended(ended);
        }
    }

    fn ended(&mut self, ended: Ended) {
        // A panic ends the process.
        let Ok((owed, result)) = ended else { return };
        let (metrics, troubles) = (&self.handle.parts().metrics, &self.handle.parts().notices.troubles);
        match result {
            Ok(()) => {
                metrics.notices_delivered.inc();
                troubles.delivered(&owed.notice);
                self.backlog.delivered(&owed);
                self.done.push(owed.number);
            }
            Err(why) => {
                metrics.notice_tries_failed.inc();
                troubles.failed(&owed.notice, why.to_string());
                if self.backlog.failed(&owed, Instant::now()) {
                    tracing::warn!("a notice was not delivered, and is tried again: {why}");
                }
            }
        }
    }

    /// Deletes the rows of what was delivered or given up. A server that is killed before sends these again.
    async fn forget(&mut self, now: Instant) {
        if self.done.is_empty() || (self.done.len() < FORGET_MAX && now < self.forgot + FORGET_EVERY) {
            return;
        }
        self.forgot = now;
        let some: Vec<u64> = self.done.iter().take(FORGET_MAX).copied().collect();
        let count = some.len();
        match windlass_store::forget_notices(self.handle.store(), some).await {
            Ok(()) => _ = self.done.drain(..count),
            Err(error) => tracing::warn!("cannot delete the rows of delivered notices: {error}"),
        }
    }
}

/// Sends a notice once.
async fn send(handle: &Handle, webhooks: &Webhooks, owed: &OwedNotice) -> Result<(), Undelivered> {
    let OwedNotice { number, notice } = owed;
    let rules = &handle.parts().notices.rules;
    let id = format!("{:x}-{number}", handle.store().id());
    let mut body = NoticeBody::from_text(&notice.body).ok_or(Undelivered::Unreadable)?;
    complete(handle.store(), &mut body).await;
    match NoticeAddress::parse(&notice.to) {
        Ok(NoticeAddress::Web(url)) => {
            webhooks.post(rules, (notice.to.as_str(), url), &id, body.to_send(&id)).await
        }
        Ok(NoticeAddress::Mail(to)) => match &rules.sendmail {
            Some(sendmail) => mail::send(sendmail, &to, &id, &body).await,
            None => Err(Undelivered::NoAddress),
        },
        Err(_) => Err(Undelivered::NoAddress),
    }
}

/// Adds what the store knows of the job's tasks. Where that cannot be read, the notice says less.
async fn complete(store: &Store, body: &mut NoticeBody) {
    let NoticeBody::JobEnded(job) = body else { return };
    if let Ok(first) = store.tasks(JobId(job.job), 0..STARTS_LOOKED_MAX).await {
        let starts = first.iter().filter_map(|task| task.result.as_ref()?.started);
        job.started_ms = starts.min().map(Time::as_ms);
    }
    if let Some(failure) = &mut job.failure {
        tell(store, failure).await;
    }
}

async fn tell(store: &Store, failure: &mut FailureNotice) {
    let Ok(TaskId { job, index }) = failure.task.parse::<TaskId>() else { return };
    let Ok(found) = store.tasks(job, index..index.saturating_add(1)).await else { return };
    // It may have been retried since.
    let failed = found.into_iter().find(|task| task.row.state == TaskState::Failed);
    if let Some(result) = failed.and_then(|task| task.result) {
        failure.tell(&result);
    }
}
