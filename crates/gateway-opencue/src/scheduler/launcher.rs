//! Launches what is booked, beside the passes. A frame whose launch did not succeed for certain is killed before its
//! booking is taken back: nobody knows whether a host that does not answer has begun it.

use super::faults::Faults;
use super::hosts::{Hosts, is_answer, is_refused};
use super::metrics::Metrics;
use crate::booking;
use crate::rqd::RunFrame;
use deadpool_postgres::Pool;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};

/// Launches that wait or are under way at most: passes wait for these before they book more.
pub const LAUNCHES_MAX: usize = 8_192;
/// Calls at a time.
const CALLS_MAX: usize = 256;
/// Between attempts to kill, or to take a booking back.
const RETRY_TIME: Duration = Duration::from_secs(2);
/// If nothing has listened at a host for so long, what it was told cannot run there.
const REFUSED_TIME: Duration = Duration::from_secs(20);
const WHY: &str = "its launch was not confirmed";

/// A frame that the tables say is running, to be launched.
pub struct Launch {
    /// The host's key.
    pub host_id: String,
    /// The name that it is reached by.
    pub host: String,
    /// What it is to run.
    pub frame: RunFrame,
    /// Memory that it holds.
    pub mem_kib: i64,
    /// Memory of devices that it holds.
    pub gpu_mem_kib: i64,
}

/// Launches frames.
#[derive(Clone)]
pub struct Launcher {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool,
    hosts: Hosts,
    calls: Semaphore,
    pending: AtomicUsize,
    settled: Notify,
    faults: Mutex<Faults>,
    /// Procs that are taken back for somebody else.
    undoing: Mutex<BTreeSet<String>>,
    metrics: Arc<Metrics>,
}

impl Launcher {
    /// A launcher that takes bookings back in the database of `pool`.
    pub fn new(pool: Pool, hosts: Hosts, metrics: Arc<Metrics>) -> Launcher {
        let shared = Shared {
            pool,
            hosts,
            calls: Semaphore::new(CALLS_MAX),
            pending: AtomicUsize::new(0),
            settled: Notify::new(),
            faults: Mutex::default(),
            undoing: Mutex::default(),
            metrics,
        };
        Launcher { shared: Arc::new(shared) }
    }

    /// The hosts.
    pub fn hosts(&self) -> &Hosts {
        &self.shared.hosts
    }

    /// Launches that are not settled.
    pub fn pending(&self) -> usize {
        self.shared.pending.load(Ordering::Acquire)
    }

    /// Waits until no launch is under way.
    pub async fn settle(&self) {
        loop {
            let settled = self.shared.settled.notified();
            if self.pending() == 0 {
                return;
            }
            settled.await;
        }
    }

    /// What is known of failed launches.
    pub fn faults(&self) -> MutexGuard<'_, Faults> {
        self.shared.faults()
    }

    /// Launches a frame, beside whatever the caller does.
    pub fn start(&self, launch: Launch) {
        let shared = self.shared.clone();
        shared.pending.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            shared.launch(launch).await;
            if shared.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                shared.settled.notify_waiters();
            }
        });
    }

    /// Kills a frame that may run, and takes its booking back, beside whatever the caller does. False if that is under
    /// way already.
    pub fn undo(&self, host: String, frame: String, proc_id: String) -> bool {
        let shared = self.shared.clone();
        if !shared.undoing().insert(proc_id.clone()) {
            return false;
        }
        shared.pending.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            shared.undo(&host, &frame, &proc_id).await;
            shared.undoing().remove(&proc_id);
            if shared.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                shared.settled.notify_waiters();
            }
        });
        true
    }
}

impl Shared {
    async fn launch(&self, launch: Launch) {
        let (frame, proc_id) = (launch.frame.frame_id.clone(), launch.frame.resource_id.clone());
        let (layer, job) = (launch.frame.layer_id.clone(), launch.frame.job_name.clone());
        let launched = {
            let _permit = self.calls.acquire().await;
            self.hosts.launch(&launch).await
        };
        match launched {
            Ok(()) => self.metrics.launched(),
            Err(status) => {
                tracing::warn!(
                    host = launch.host,
                    frame,
                    code = ?status.code(),
                    why = status.message(),
                    "a launch failed; the frame is killed there and waits again"
                );
                self.metrics.launch_failed();
                if is_answer(&status) {
                    let began =
                        self.faults().refused(&launch.host_id, &layer, status.message(), Instant::now());
                    if let Some(reason) = began {
                        tracing::warn!(job, layer, reason, "a layer is left out for a while");
                    }
                } else {
                    self.faults().unanswered(&launch.host_id, Instant::now());
                }
                self.undo(&launch.host, &frame, &proc_id).await;
            }
        }
    }

    fn undoing(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.undoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn undo(&self, host: &str, frame: &str, proc_id: &str) {
        self.kill(host, frame, proc_id).await;
        loop {
            match self.release(proc_id).await {
                Ok(()) => return,
                Err(why) => {
                    tracing::warn!(proc_id, why, "a booking cannot be taken back yet");
                    tokio::time::sleep(RETRY_TIME).await;
                }
            }
        }
    }

    /// Returns when the host has answered, or has had no RQD for long.
    async fn kill(&self, host: &str, frame: &str, proc_id: &str) {
        let mut refused_since = None;
        loop {
            let killed = {
                let _permit = self.calls.acquire().await;
                self.hosts.kill(host, (frame, proc_id), WHY).await
            };
            match killed {
                Ok(()) => return,
                Err(status) if is_refused(&status) => {
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= REFUSED_TIME {
                        return;
                    }
                }
                Err(_) => refused_since = None,
            }
            tokio::time::sleep(RETRY_TIME).await;
        }
    }

    async fn release(&self, proc_id: &str) -> Result<(), String> {
        let mut client = self.pool.get().await.map_err(|error| error.to_string())?;
        let released = booking::release(&mut client, &[proc_id.to_owned()]).await;
        released.map(|_| ()).map_err(|error| error.to_string())
    }
}
