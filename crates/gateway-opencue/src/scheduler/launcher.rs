//! Launches of booked frames, beside the passes. A frame whose launch did not succeed for certain is killed before
//! its booking is taken back, because a host that does not answer may have begun it.
//!
//! RQD kills a frame by its key, whatever proc it runs in. So calls about one frame on one host take turns, and a kill
//! is left out where another proc of that host holds the frame: that proc's launch may have gone before the kill.

mod host_calls;
mod turns;

use super::hosts::{Hosts, is_answer, is_refused};
use super::metrics::Metrics;
use crate::booking;
use crate::faults::Faults;
use crate::rqd::Launch;
use deadpool_postgres::Pool;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};
use tokio_postgres::types::ToSql;
use tonic::Status;
use turns::CallTurns;
use windlass_cuebot::FrameRun;

/// Launches that wait or are under way at most: passes wait for these before they book more.
pub const LAUNCHES_MAX: usize = 8_192;
/// Calls at a time.
const CALLS_MAX: usize = 256;
/// Calls at a time that end what hosts run and do not hold.
const STRAY_CALLS_MAX: usize = 64;
/// Attempts to kill, or to take a booking back, in the time that a call may take.
const ATTEMPTS_PER_CALL: u32 = 5;
/// Time-outs of a call in a row at which nothing listened at a host. What the host was told then cannot run there.
const REFUSED_CALLS: u32 = 2;
const WHY: &str = "its launch was not confirmed";

const HELD_BY_ANOTHER: &str = "SELECT EXISTS (SELECT FROM proc p JOIN host h USING (pk_host)
    WHERE p.pk_frame = $1 AND p.pk_proc <> $2 AND h.str_name = $3)";
const IS_BOOKED: &str = "SELECT EXISTS (SELECT FROM proc WHERE pk_proc = $1)";

/// The launcher of an instance. Clones share its state.
#[derive(Clone)]
pub struct Launcher {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool,
    hosts: Hosts,
    calls: Semaphore,
    stray_calls: Semaphore,
    turns: CallTurns,
    pending: AtomicUsize,
    settled: Notify,
    faults: Arc<Mutex<Faults>>,
    /// Procs that another part asked to take back.
    undoing: Mutex<BTreeSet<String>>,
    /// Strays by host: those of the next round, while a host is told to end others.
    strays: Mutex<BTreeMap<String, Vec<FrameRun>>>,
    /// Hosts that are asked what they run.
    asking: Mutex<BTreeSet<String>>,
    metrics: Arc<Metrics>,
}

impl Launcher {
    /// A launcher that takes bookings back in the database of `pool`.
    pub fn new(pool: Pool, hosts: Hosts, metrics: Arc<Metrics>) -> Launcher {
        let shared = Shared {
            pool,
            hosts,
            calls: Semaphore::new(CALLS_MAX),
            stray_calls: Semaphore::new(STRAY_CALLS_MAX),
            turns: CallTurns::default(),
            pending: AtomicUsize::new(0),
            settled: Notify::new(),
            faults: Arc::default(),
            undoing: Mutex::default(),
            strays: Mutex::default(),
            asking: Mutex::default(),
            metrics,
        };
        Launcher { shared: Arc::new(shared) }
    }

    /// The connections to the farm's hosts.
    pub fn hosts(&self) -> &Hosts {
        &self.shared.hosts
    }

    /// Number of launches that are not settled.
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

    /// The record of failed launches.
    pub fn faults(&self) -> MutexGuard<'_, Faults> {
        self.shared.faults.lock()
    }

    /// The same record, for another part that sees launches fail.
    pub(crate) fn shared_faults(&self) -> Arc<Mutex<Faults>> {
        self.shared.faults.clone()
    }

    /// Launches a frame, and returns at once.
    pub fn start(&self, launch: Launch) {
        let shared = self.shared.clone();
        self.spawn_counted(async move { shared.launch(launch).await });
    }

    /// Kills a frame that may run, and takes its booking back. Returns at once; false if that is under way already.
    pub fn undo(&self, host: String, run: FrameRun) -> bool {
        let shared = self.shared.clone();
        if !shared.undoing.lock().insert(run.proc_id.clone()) {
            return false;
        }
        self.spawn_counted(async move {
            shared.undo(&host, &run).await;
            shared.undoing.lock().remove(&run.proc_id);
        });
        true
    }

    /// Runs work that counts as pending until it is done.
    fn spawn_counted(&self, work: impl Future<Output = ()> + Send + 'static) {
        let shared = self.shared.clone();
        shared.pending.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            work.await;
            if shared.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                shared.settled.notify_waiters();
            }
        });
    }
}

impl Shared {
    async fn launch(&self, launch: Launch) {
        let run = launch.run();
        let (layer, job) = (launch.frame.layer_id.clone(), launch.frame.job_name.clone());
        let launched = {
            let _turn = self.turns.take(&launch.host, &run.frame).await;
            let _permit = self.calls.acquire().await;
            self.hosts.launch(&launch).await
        };
        match launched {
            Ok(()) => {
                tracing::debug!(host = launch.host, frame = run.frame, job, "a frame was launched");
                self.metrics.launched.inc();
            }
            Err(status) => {
                tracing::warn!(
                    host = launch.host,
                    frame = run.frame,
                    code = ?status.code(),
                    why = status.message(),
                    "a launch failed; the frame is killed there and waits again"
                );
                self.metrics.launch_failed();
                if is_answer(&status) {
                    let began =
                        self.faults.lock().refused(&launch.host_id, &layer, status.message(), Instant::now());
                    if let Some(reason) = began {
                        tracing::warn!(job, layer, reason, "a layer is left out for a while");
                    }
                } else {
                    self.faults.lock().unanswered(&launch.host_id, Instant::now());
                }
                self.undo(&launch.host, &run).await;
            }
        }
    }

    fn retry_time(&self) -> Duration {
        self.hosts.call_time() / ATTEMPTS_PER_CALL
    }

    async fn undo(&self, host: &str, run: &FrameRun) {
        self.kill(host, run).await;
        loop {
            match self.release(&run.proc_id).await {
                Ok(()) => return,
                Err(why) => {
                    tracing::warn!(proc_id = run.proc_id, why, "a booking cannot be taken back yet");
                    tokio::time::sleep(self.retry_time()).await;
                }
            }
        }
    }

    /// Returns when the host has answered, or has had no RQD for long, or when the booking is gone.
    async fn kill(&self, host: &str, run: &FrameRun) {
        let mut refused_since = None;
        loop {
            match self.kill_once(host, run, WHY, &self.calls).await {
                Ok(_) => return,
                Err(status) if is_refused(&status) => {
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.hosts.call_time() * REFUSED_CALLS {
                        return;
                    }
                }
                Err(_) => refused_since = None,
            }
            tokio::time::sleep(self.retry_time()).await;
            // The frame of a host that fell silent waits again already. If it runs there, the host's next report says
            // so.
            if self.ask(IS_BOOKED, &[&run.proc_id]).await.is_ok_and(|is_booked| !is_booked) {
                return;
            }
        }
    }

    /// Asks once. The turn is taken before the permit everywhere, so that these do not wait for each other in a circle.
    /// It is taken before the look at the tables, so that another proc's launch is seen there or comes after the kill.
    /// False where the host answers that it does not run the frame.
    async fn kill_once(
        &self,
        host: &str,
        run: &FrameRun,
        why: &str,
        calls: &Semaphore,
    ) -> Result<bool, Status> {
        let _turn = self.turns.take(host, &run.frame).await;
        let _permit = calls.acquire().await;
        let is_held = self.ask(HELD_BY_ANOTHER, &[&run.frame, &run.proc_id, &host]).await;
        if is_held.map_err(Status::unavailable)? {
            return Ok(true);
        }
        self.hosts.kill(host, run, why).await
    }

    /// The answer of a query that says yes or no.
    async fn ask(&self, query: &str, values: &[&(dyn ToSql + Sync)]) -> Result<bool, String> {
        let client = self.pool.get().await.map_err(|error| error.to_string())?;
        let answer = client.query_one(query, values).await.map_err(|error| error.to_string())?;
        Ok(answer.get(0))
    }

    async fn release(&self, proc_id: &str) -> Result<(), String> {
        let mut client = self.pool.get().await.map_err(|error| error.to_string())?;
        let released = booking::release(&mut client, &[proc_id.to_owned()]).await;
        released.map(|_| ()).map_err(|error| error.to_string())
    }
}
