//! Clients on sockets: which jobs they watch, whose logs they read, and which consoles they have open.

use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;
use windlass_core::JobId;

/// Messages that wait until a job has a provider: of one job, and the number of such jobs.
const PENDING_PER_JOB_MAX: usize = 16;
const PENDING_JOBS_MAX: usize = 1_000;
/// Unsent messages of one socket, and their bytes. A peer that does not read gets no more.
const WAITING_MAX: usize = 1_024;
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Jobs that one client may watch.
const WATCHED_MAX: usize = 10_000;

/// The sending side of a socket's queue. The socket ends when all clones are dropped.
#[derive(Clone)]
pub(crate) struct Session {
    pub id: u64,
    out: mpsc::Sender<String>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// The receiving side: the messages that wait to be sent on one socket.
pub(crate) struct UnsentMessages {
    ear: mpsc::Receiver<String>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Session {
    pub fn new(id: u64) -> (Session, UnsentMessages) {
        let (out, ear) = mpsc::channel(WAITING_MAX);
        let waiting_bytes = Arc::<AtomicUsize>::default();
        (Session { id, out, waiting_bytes: waiting_bytes.clone() }, UnsentMessages { ear, waiting_bytes })
    }

    /// Queues a message. False if the queue is full or the socket has ended.
    pub fn send(&self, text: String) -> bool {
        let bytes = text.len();
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        // A single message is queued whatever its size. Its size was bounded when it came in.
        let sent = (before == 0 || before + bytes <= WAITING_BYTES_MAX) && self.out.try_send(text).is_ok();
        if !sent {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent
    }
}

impl UnsentMessages {
    /// The next message; `None` once every [`Session`] of the socket is dropped.
    pub async fn next(&mut self) -> Option<String> {
        let text = self.ear.recv().await?;
        self.waiting_bytes.fetch_sub(text.len(), Ordering::Relaxed);
        Some(text)
    }
}

/// The connected clients, and the jobs that each watches.
#[derive(Default)]
pub(crate) struct Clients {
    pub(super) sessions: BTreeMap<u64, Session>,
    events: BTreeMap<JobId, BTreeSet<u64>>,
    logs: BTreeMap<JobId, BTreeSet<u64>>,
    pub(super) consoles: BTreeMap<JobId, u64>,
    /// Messages to providers, for jobs that have none yet, each with the session that sent it. They are dropped with
    /// their session, because a job that ends without a provider sends no other event.
    pending: BTreeMap<JobId, Vec<(u64, String)>>,
}

impl Clients {
    /// The number of connected clients.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// The jobs that at least one client watches.
    pub fn watched(&self) -> BTreeSet<JobId> {
        self.events.keys().chain(self.logs.keys()).chain(self.consoles.keys()).copied().collect()
    }

    pub(super) fn open(&mut self, session: Session) {
        self.sessions.insert(session.id, session);
    }

    pub(super) fn close(&mut self, session: u64) {
        self.sessions.remove(&session);
        for watched in [&mut self.events, &mut self.logs] {
            watched.retain(|_, by| {
                by.remove(&session);
                !by.is_empty()
            });
        }
        self.consoles.retain(|_, by| *by != session);
        self.pending.retain(|_, waiting| {
            waiting.retain(|(by, _)| *by != session);
            !waiting.is_empty()
        });
    }

    /// The sessions that watch a job's events, or its logs.
    fn watchers(&self, job: JobId, logs: bool) -> Vec<Session> {
        let by = if logs { self.logs.get(&job) } else { self.events.get(&job) };
        by.into_iter().flatten().filter_map(|id| self.sessions.get(id)).cloned().collect()
    }

    /// An effect that sends `text` to the clients that watch the job.
    pub(super) fn event(&self, job: JobId, text: &str) -> impl FnOnce() + Send + Sync + 'static {
        send_all(self.watchers(job, false), text.to_owned())
    }

    /// An effect that sends a provider's output to the client with the console open, or to those that read the log.
    pub(super) fn pass(
        &self,
        job: JobId,
        text: &str,
        console: bool,
    ) -> impl FnOnce() + Send + Sync + 'static {
        let to = if console {
            self.consoles.get(&job).and_then(|id| self.sessions.get(id)).cloned().into_iter().collect()
        } else {
            self.watchers(job, true)
        };
        send_all(to, text.to_owned())
    }

    /// Drops a job that is closed. The effect tells its watchers.
    pub(super) fn forget(&mut self, job: JobId) -> impl FnOnce() + Send + Sync + 'static {
        let all = self.watchers(job, false).into_iter().chain(self.watchers(job, true));
        let console = self.consoles.remove(&job).and_then(|id| self.sessions.get(&id)).cloned();
        let all: BTreeMap<u64, Session> = all.chain(console).map(|session| (session.id, session)).collect();
        self.events.remove(&job);
        self.logs.remove(&job);
        self.pending.remove(&job);
        let text = json!({"type": "job-close", "job_id": job.to_string()}).to_string();
        send_all(all.into_values().collect(), text)
    }

    /// Takes the messages that wait for the job's provider.
    pub(super) fn take_pending(&mut self, job: JobId) -> Vec<String> {
        let waiting = self.pending.remove(&job).unwrap_or_default();
        waiting.into_iter().map(|(_, text)| text).collect()
    }

    pub(super) fn watch(&mut self, session: u64, job: JobId, logs: bool) {
        let count =
            |all: &BTreeMap<JobId, BTreeSet<u64>>| all.values().filter(|by| by.contains(&session)).count();
        if count(&self.events) + count(&self.logs) >= WATCHED_MAX {
            return;
        }
        let watched = if logs { &mut self.logs } else { &mut self.events };
        watched.entry(job).or_default().insert(session);
    }

    pub(super) fn unwatch(&mut self, session: u64, job: JobId, logs: bool) {
        let watched = if logs { &mut self.logs } else { &mut self.events };
        if let Some(by) = watched.get_mut(&job) {
            by.remove(&session);
            if by.is_empty() {
                watched.remove(&job);
            }
        }
    }

    /// Keeps a message until the job has a provider. If messages wait for too many jobs, those of the oldest job are
    /// dropped: it may have ended.
    pub(super) fn wait_for_provider(&mut self, session: u64, job: JobId, text: String) {
        if self.pending.len() >= PENDING_JOBS_MAX && !self.pending.contains_key(&job) {
            self.pending.pop_first();
        }
        let waiting = self.pending.entry(job).or_default();
        if waiting.len() < PENDING_PER_JOB_MAX {
            waiting.push((session, text));
        }
    }
}

fn send_all(to: Vec<Session>, text: String) -> impl FnOnce() + Send + Sync + 'static {
    move || {
        for session in to {
            // A client that does not read misses the message.
            _ = session.send(text.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_watches_hears_until_the_end_and_no_longer() {
        let (mut clients, job) = (Clients::default(), JobId(3));
        let (session, UnsentMessages { mut ear, .. }) = Session::new(1);
        clients.open(session);
        clients.watch(1, job, false);
        clients.watch(1, job, true);
        clients.event(job, "a")();
        clients.pass(job, "b", false)();
        clients.pass(job, "c", true)();
        clients.unwatch(1, job, false);
        clients.event(job, "d")();
        clients.forget(job)();
        clients.pass(job, "e", false)();
        clients.close(1);
        let mut heard = Vec::new();
        while let Ok(text) = ear.try_recv() {
            heard.push(text);
        }
        assert_eq!(heard, ["a", "b", r#"{"job_id":"3","type":"job-close"}"#]);
        assert!(clients.watched().is_empty() && clients.count() == 0);
    }

    #[test]
    fn what_waits_for_a_provider_is_bounded() {
        let mut clients = Clients::default();
        for n in 0..2 * PENDING_JOBS_MAX as u64 {
            let session = n % 2;
            (0..2 * PENDING_PER_JOB_MAX).for_each(|_| {
                clients.wait_for_provider(session, JobId(n), String::new());
            });
        }
        assert_eq!(clients.pending.len(), PENDING_JOBS_MAX);
        let newest = JobId(2 * PENDING_JOBS_MAX as u64 - 1);
        assert!(clients.take_pending(JobId(0)).is_empty(), "the oldest made room");
        assert_eq!(clients.take_pending(newest).len(), PENDING_PER_JOB_MAX);
        clients.close(0);
        clients.close(1);
        assert!(clients.pending.is_empty(), "what a client said goes with it");
    }

    #[tokio::test]
    async fn what_waits_for_a_socket_is_bounded_by_bytes() {
        let (session, mut unsent) = Session::new(1);
        let half = "x".repeat(WAITING_BYTES_MAX / 2);
        assert!(session.send(half.clone()) && session.send(half.clone()));
        assert!(!session.send("one more".to_owned()));
        assert_eq!(unsent.next().await.map(|text| text.len()), Some(half.len()));
        assert!(session.send("one more".to_owned()));
        let (session, _unsent) = Session::new(2);
        assert!(session.send("x".repeat(WAITING_BYTES_MAX + 1)));
        assert!(!session.send("y".to_owned()));
    }
}
