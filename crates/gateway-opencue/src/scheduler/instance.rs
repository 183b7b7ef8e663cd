//! An instance of the scheduler: it waits for work, plans it, books it and launches it.

#![allow(missing_docs, reason = "what has no comment is what its name or its message says")]

use super::command::{self, LayerCommand, MemoryFactors, WaitingFrame};
use super::held;
use super::hosts::Hosts;
use super::lanes::{self, BookedBatch, LANES_MAX, Planned};
use super::launcher::{LAUNCHES_MAX, Launcher};
use super::metrics::{Metrics, PassCounts, PassLooks};
use super::permits;
use super::planning::{Placement, Planning, PlanningRules};
use super::recount::recount;
use super::recovery;
use super::snapshot::{self, Scope, Snapshot};
use super::why::{LayerReasons, Reasons};
use crate::booking::{BATCH_FRAMES_MAX, Booking, BookingError};
use crate::dial::{Dialed, Dialer};
use crate::rqd::Launch;
use crate::workers::Workers;
use deadpool_postgres::{Object, Pool, PoolError, Timeouts};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, mpsc};
use tokio_postgres::Client;
use windlass_cuebot::is_conflict;

/// A connection that the pool has now, or makes.
const AT_ONCE: Timeouts = Timeouts { wait: Some(Duration::ZERO), create: None, recycle: None };
/// The channel on which Cuebot notifies that a frame of a managed show ended.
const RELEASED: &str = "acct_release";
/// The time between sweeps for bookings of instances that ended.
const SWEEP_TIME: Duration = Duration::from_secs(10);
/// The time between recounts of figures that Cuebot leaves to the scheduler, while it notifies of them.
const RECOUNT_TIME: Duration = Duration::from_secs(1);
/// The time between recounts where Cuebot does not notify.
const RECOUNT_QUIET_TIME: Duration = Duration::from_secs(15);
/// The time before the database is tried again.
const RETRY_TIME: Duration = Duration::from_secs(1);
/// The time between passes. Changes in it are planned together.
const PASS_GAP: Duration = Duration::from_millis(10);

/// Settings of an instance.
#[derive(Clone, Debug)]
pub struct InstanceSettings {
    /// The shows, hosts and tags of the gateway.
    pub scope: Scope,
    /// The rules of planning.
    pub rules: PlanningRules,
    /// Factors of memory at which frames are ended.
    pub memory: MemoryFactors,
    /// The port on which RQD listens.
    pub rqd_port: u16,
    /// How long RQD may take for an answer. Less than the age at which other instances ask for a booking.
    pub call_time: Duration,
    /// True if frames are booked and not launched, for a measurement.
    pub is_dry: bool,
    /// True if the same process stands in for Cuebot.
    pub is_alone: bool,
    /// Passes without any work after which it ends; `None` is never.
    pub idle_passes_max: Option<u64>,
    /// Time after which it looks for work without a notification.
    pub look_time: Duration,
}

/// An error of a pass, or of the wait for work.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("no connection to the database: {0}; it is tried again")]
    Pool(#[from] PoolError),
    #[error("the database failed: {0:?}; the next pass plans again")]
    Database(#[from] tokio_postgres::Error),
    #[error(transparent)]
    Booking(#[from] BookingError),
}

/// Counts of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    pub layers: usize,
    pub placed: usize,
    pub booked: usize,
}

/// Frames of a layer that would be booked on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The names of job and layer.
    pub layer: String,
    pub host: String,
    pub frames: usize,
    /// Hundredths of a core that all of them get.
    pub cores: i64,
}

/// An instance of the scheduler.
pub struct Instance {
    pool: Pool,
    config: tokio_postgres::Config,
    dialer: Dialer,
    settings: InstanceSettings,
    /// Never contended. The lock lets a borrowed instance cross threads, which the planner's caches alone do not.
    planning: Mutex<Planning>,
    launcher: Launcher,
    metrics: Arc<Metrics>,
    number: u32,
    keys: RandomState,
    procs: u64,
    wake: Arc<Notify>,
    /// Cuebot notified that a frame of a managed show ended.
    released: Arc<AtomicBool>,
    /// Another process asked what is left out.
    asked: Arc<AtomicBool>,
    recounted: Option<Instant>,
    /// Procs of batches whose commit got no answer. None of them was launched.
    unsettled: Vec<String>,
}

impl Instance {
    /// An instance on the database that `pool` and `config` lead to. Notifications need a connection of their own.
    pub fn new(pool: Pool, config: tokio_postgres::Config, settings: InstanceSettings) -> Instance {
        Instance::with_dialer(pool, config, Dialer::plain(), settings, None)
    }

    /// The same, with connections of this dialer, and with Windlass workers among the hosts.
    pub fn with_dialer(
        pool: Pool,
        config: tokio_postgres::Config,
        dialer: Dialer,
        settings: InstanceSettings,
        workers: Option<Workers>,
    ) -> Instance {
        let metrics = Arc::new(Metrics::default());
        let hosts = Hosts::new(settings.rqd_port, settings.call_time, workers);
        let launcher = Launcher::new(pool.clone(), hosts, metrics.clone());
        let keys = RandomState::new();
        Instance {
            pool,
            config,
            dialer,
            planning: Mutex::new(Planning::new(settings.rules.clone())),
            settings,
            launcher,
            metrics,
            number: keys.hash_one("number") as u32,
            keys,
            procs: 0,
            wake: Arc::default(),
            released: Arc::default(),
            asked: Arc::default(),
            recounted: None,
            unsettled: Vec::new(),
        }
    }

    /// The counts of the instance.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// The launcher of the instance.
    pub fn launcher(&self) -> Launcher {
        self.launcher.clone()
    }

    /// Wakes the instance, because work waits.
    pub fn wake(&self) -> Arc<Notify> {
        self.wake.clone()
    }

    /// Schedules until the future is dropped, or until no pass of the number in the settings found work. A pass that
    /// fails is logged and tried again.
    pub async fn run(&mut self) {
        let mut idle_passes = 0;
        loop {
            let Err(error) = self.attend(&mut idle_passes).await else { return };
            self.metrics.pass_failed();
            tracing::error!("{error}");
            tokio::time::sleep(RETRY_TIME).await;
        }
    }

    /// Schedules while the connection for notifications lasts.
    async fn attend(&mut self, idle_passes: &mut u64) -> Result<(), PassError> {
        let (control, mut lost) = self.listen().await?;
        let mut swept: Option<Instant> = None;
        loop {
            if swept.is_none_or(|at| at.elapsed() >= SWEEP_TIME) {
                recovery::sweep(&control, &self.settings.scope, &self.launcher, &self.metrics).await?;
                swept = Some(Instant::now());
            }
            if self.asked.swap(false, Ordering::AcqRel) {
                let held = self.launcher.faults().held_layers(Instant::now());
                held::answer(&control, self.number, &held).await?;
            }
            let passed = self.pass().await?;
            *idle_passes = if passed.layers == 0 { *idle_passes + 1 } else { 0 };
            if self.settings.idle_passes_max.is_some_and(|max| *idle_passes > max) {
                return Ok(());
            }
            if passed.booked > 0 {
                continue;
            }
            tokio::time::sleep(PASS_GAP).await;
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(self.settings.look_time) => {}
                _ = &mut lost => return Err(PassError::Pool(PoolError::Closed)),
            }
        }
    }

    /// A connection that holds the instance's lock and wakes it. The receiver ends with the connection.
    async fn listen(&self) -> Result<(Client, tokio::sync::oneshot::Receiver<()>), PassError> {
        let Dialed { client, mut notices, .. } = self.dialer.dial(&self.config).await?;
        let (ended, lost) = tokio::sync::oneshot::channel();
        let (wake, released, asked) = (self.wake.clone(), self.released.clone(), self.asked.clone());
        tokio::spawn(async move {
            while let Some(notice) = notices.recv().await {
                match notice.channel() {
                    RELEASED => released.store(true, Ordering::Release),
                    held::ASK => asked.store(true, Ordering::Release),
                    _ => {}
                }
                wake.notify_one();
            }
            drop(ended);
        });
        client
            .batch_execute(
                "LISTEN acct_release; LISTEN acct_limit_change; LISTEN windlass_opencue; LISTEN windlass_opencue_ask",
            )
            .await?;
        client.execute("SELECT pg_advisory_lock($1, $2)", &[&recovery::LOCKS, &(self.number as i32)]).await?;
        Ok((client, lost))
    }

    /// Plans, books and launches once.
    ///
    /// # Errors
    ///
    /// The database failed. What was booked is launched. The next pass finds out what may have been booked.
    pub async fn pass(&mut self) -> Result<Passed, PassError> {
        if self.launcher.pending() >= LAUNCHES_MAX {
            return Ok(Passed { layers: 1, ..Passed::default() });
        }
        let began = Instant::now();
        let mut client = self.pool.get().await?;
        let passed = self.pass_with(&mut client, began).await;
        match passed {
            Ok(passed) => {
                client.execute("SELECT pg_advisory_unlock_all()", &[]).await?;
                Ok(passed)
            }
            Err(error) => {
                // Its locks end with it.
                drop(Object::take(client));
                Err(error)
            }
        }
    }

    /// Plans once and returns what a pass would book. Nothing is booked.
    pub async fn preview(&mut self) -> Result<Vec<Preview>, PassError> {
        let client = self.pool.get().await?;
        let snapshot = snapshot::read(&client, &self.settings.scope, false).await?;
        let placements = Planning::new(self.settings.rules.clone()).pass(&snapshot);
        let layers: Vec<&String> = placements.iter().map(|placement| &placement.layer).collect();
        let commands = command::commands(&client, &self.settings.scope, &layers).await?;
        let hosts: BTreeMap<&str, &str> =
            snapshot.hosts.iter().map(|h| (h.id.as_str(), h.name.as_str())).collect();
        let mut previews: BTreeMap<(String, &str), Preview> = BTreeMap::new();
        for placement in &placements {
            let Some(command) = commands.get(&placement.layer) else { continue };
            let host = hosts.get(placement.host.as_str()).copied().unwrap_or_default();
            let preview = previews.entry((command.title(), host)).or_insert_with(|| Preview {
                layer: command.title(),
                host: host.to_owned(),
                frames: 0,
                cores: 0,
            });
            preview.frames += 1;
            preview.cores += placement.amounts.cores;
        }
        Ok(previews.into_values().collect())
    }

    /// The reasons why layers of a job wait: of all, of those of the name `part`, or of those with a frame of that
    /// name. Layers that this instance or a running one leaves out are among them.
    pub async fn why(&self, job: &str, part: Option<&str>) -> Result<Vec<LayerReasons>, PassError> {
        let client = self.pool.get().await?;
        Ok(self.reasons().of(&client, job, part).await?)
    }

    /// A handle that explains waiting frames while this instance schedules.
    pub fn reasons(&self) -> Reasons {
        Reasons {
            dialer: self.dialer.clone(),
            config: self.config.clone(),
            scope: self.settings.scope.clone(),
            rules: self.settings.rules.clone(),
            launcher: self.launcher.clone(),
        }
    }

    /// The shows, hosts and tags of the instance.
    pub fn scope(&self) -> &Scope {
        &self.settings.scope
    }

    async fn pass_with(&mut self, client: &mut Object, began: Instant) -> Result<Passed, PassError> {
        self.settle_unsettled(client).await?;
        self.recount_due(client).await?;
        let Some(permitted) = permits::take(client, &self.settings.scope, self.settings.look_time).await?
        else {
            // The instance that plans knows whether there is work.
            tracing::debug!("another instance plans all shows");
            return Ok(Passed { layers: 1, ..Passed::default() });
        };
        let permitted_at = Instant::now();
        let scope = Scope { permitted: Some(permitted), ..self.settings.scope.clone() };
        let wants_procs = self.planning.get_mut().wants_procs();
        let mut snapshot = snapshot::read(client, &scope, wants_procs).await?;
        let read_s = permitted_at.elapsed().as_secs_f64();
        let (read_jobs, read_layers) = (jobs_of_shows(&snapshot), snapshot.layers.len());
        // A client may have taken the tag from a host.
        let hosts = self.launcher.hosts();
        snapshot.hosts.iter_mut().for_each(|host| host.is_worker |= hosts.is_worker(&host.name));
        {
            let (faults, now) = (self.launcher.faults(), Instant::now());
            snapshot.hosts.retain(|host| !faults.is_host_held(&host.id, now));
            snapshot.layers.retain(|layer| !faults.is_layer_held(&layer.id, now));
        }
        let placements = self.planning.get_mut().pass(&snapshot);
        let mut looks = PassLooks {
            jobs: read_jobs.values().sum(),
            planned_jobs: match snapshot.layers.len() == read_layers {
                true => read_jobs,
                false => jobs_of_shows(&snapshot),
            },
            read_s,
            busy_s: 0.0,
            hosts_of_layers: hosts_of_layers(&placements),
            plan: self.planning.get_mut().looks(),
        };
        let mut passed = Passed { layers: snapshot.layers.len(), placed: placements.len(), booked: 0 };
        if !placements.is_empty() {
            let hosts: BTreeMap<&str, &str> =
                snapshot.hosts.iter().map(|h| (h.id.as_str(), h.name.as_str())).collect();
            passed.booked = self.book(client, &scope, placements, &hosts).await?;
        }
        looks.busy_s = permitted_at.elapsed().as_secs_f64();
        let counts = PassCounts {
            hosts: snapshot.hosts.len() as u64,
            layers: passed.layers as u64,
            placed: passed.placed as u64,
            booked: passed.booked as u64,
            took_s: began.elapsed().as_secs_f64(),
        };
        tracing::debug!(
            hosts = counts.hosts,
            layers = counts.layers,
            placed = counts.placed,
            booked = counts.booked,
            read_ms = (read_s * 1e3) as u64,
            took_ms = (counts.took_s * 1e3) as u64,
            "a pass"
        );
        self.metrics.passed(counts, &looks);
        Ok(passed)
    }

    async fn recount_due(&mut self, client: &mut Object) -> Result<(), PassError> {
        // Where this process stands in for Cuebot, it subtracts what ends by itself.
        let is_told = !self.settings.is_alone && self.released.load(Ordering::Acquire);
        let pause = if is_told { RECOUNT_TIME } else { RECOUNT_QUIET_TIME };
        if self.recounted.is_some_and(|at| at.elapsed() < pause) {
            return Ok(());
        }
        self.released.store(false, Ordering::Release);
        let began = Instant::now();
        self.recounted = Some(began);
        let recounted = recount(client, &self.settings.scope).await;
        self.metrics.recounted(began.elapsed().as_secs_f64());
        match recounted {
            Ok(0) => Ok(()),
            Ok(rows) => {
                tracing::debug!(rows, "figures were brought to the sums of procs");
                Ok(())
            }
            // The next recount finds the same.
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Settles batches whose commit got no answer: those of their procs that are in the table were booked, and not
    /// launched.
    async fn settle_unsettled(&mut self, client: &mut Object) -> Result<(), PassError> {
        while !self.unsettled.is_empty() {
            let some = self.unsettled.len().min(BATCH_FRAMES_MAX);
            let released = crate::booking::release(client, &self.unsettled[..some]).await?;
            if !released.is_empty() {
                tracing::warn!(
                    frames = released.len(),
                    "bookings whose commit got no answer were taken back"
                );
            }
            self.unsettled.drain(..some);
        }
        Ok(())
    }

    async fn book(
        &mut self,
        client: &mut Object,
        scope: &Scope,
        placements: Vec<Placement>,
        hosts: &BTreeMap<&str, &str>,
    ) -> Result<usize, PassError> {
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        for placement in &placements {
            *counts.entry(placement.layer.clone()).or_default() += 1;
        }
        let mut frames = command::waiting_frames(client, &counts).await?;
        let commands = command::commands(client, scope, &counts.keys().collect::<Vec<_>>()).await?;
        // The first frames go first, which are taken from the end.
        frames.values_mut().for_each(|frames| frames.reverse());
        let mut planned = Vec::new();
        for placement in placements {
            let frame = frames.get_mut(&placement.layer).and_then(Vec::pop);
            let (Some(frame), Some(command)) = (frame, commands.get(&placement.layer)) else { continue };
            planned.push(self.planned(placement, frame, command));
        }
        self.book_planned(client, planned, hosts).await
    }

    fn planned(&mut self, placement: Placement, frame: WaitingFrame, command: &LayerCommand) -> Planned {
        let Placement { host, amounts, .. } = placement;
        let proc_id = self.proc_id();
        let start_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
        let run = command.run_frame(&frame, (&proc_id, amounts), self.settings.memory, start_ms);
        let waited = Duration::from_millis(u64::try_from(frame.waited_ms).unwrap_or(0));
        let now = Instant::now();
        let booking = Booking { proc_id, frame: frame.id, version: frame.version, host, amounts };
        let ready_since = now.checked_sub(waited).unwrap_or(now);
        Planned { booking, run, show: command.show().to_owned(), ready_since }
    }

    /// Books in several lanes, of which the first has the connection of the pass.
    async fn book_planned(
        &mut self,
        client: &mut Object,
        planned: Vec<Planned>,
        hosts: &BTreeMap<&str, &str>,
    ) -> Result<usize, PassError> {
        let mut lanes = lanes::divide(planned, LANES_MAX).into_iter();
        let Some(first) = lanes.next() else { return Ok(0) };
        let (mut first, mut others) = (first, Vec::new());
        for lane in lanes {
            // A pass with one connection never waits for another, because it holds the shows that it plans.
            match self.pool.timeout_get(&AT_ONCE).await {
                Ok(client) => others.push((client, lane)),
                Err(error) => {
                    tracing::debug!(?error, "no further connection to book over");
                    first.extend(lane);
                }
            }
        }
        let (outcomes, mut heard) = mpsc::unbounded_channel();
        let launcher = self.launcher.clone();
        let others = others.into_iter().map(|(mut client, lane)| {
            let (launcher, outcomes) = (&launcher, outcomes.clone());
            async move {
                let has_failed = lanes::book_lane(&mut client, lane, launcher, &outcomes).await;
                lanes::give_back(client, has_failed);
            }
        });
        let others = futures_util::future::join_all(others);
        let lanes = async {
            let first = lanes::book_lane(client, first, &launcher, &outcomes);
            _ = tokio::join!(first, others);
            drop(outcomes);
        };
        let settled = async {
            let mut booked = Ok(0);
            while let Some(batch) = heard.recv().await {
                match (self.settle_batch(batch, hosts), &mut booked) {
                    (Ok(frames), Ok(all)) => *all += frames,
                    (Err(error), Ok(_)) => booked = Err(error),
                    (_, Err(_)) => {}
                }
            }
            booked
        };
        Ok(tokio::join!(lanes, settled).1?)
    }

    /// Launches the booked frames of a batch.
    fn settle_batch(
        &mut self,
        batch: BookedBatch,
        hosts: &BTreeMap<&str, &str>,
    ) -> Result<usize, BookingError> {
        let BookedBatch { batch, booked } = batch;
        let booked = match booked {
            Ok(booked) => booked,
            Err(error) => {
                self.unsettled.extend(batch.into_iter().map(|planned| planned.booking.proc_id));
                return Err(error);
            }
        };
        for planned in batch.into_iter().filter(|planned| booked.contains(&planned.booking.frame)) {
            self.metrics.booked(&planned.show, planned.ready_since.elapsed().as_secs_f64());
            if self.settings.is_dry {
                continue;
            }
            let Booking { host: host_id, amounts, .. } = planned.booking;
            let host = hosts.get(host_id.as_str()).copied().unwrap_or_default().to_owned();
            self.launcher.start(Launch { host_id, host, frame: planned.run, amounts });
        }
        Ok(booked.len())
    }

    /// A key for a proc. It looks like OpenCue's own, and begins with the instance's number.
    fn proc_id(&mut self) -> String {
        self.procs += 1;
        let (a, b) = (self.keys.hash_one(self.procs), self.keys.hash_one((self.procs, "low")));
        let parts = (a >> 48, (a >> 32) & 0xfff, 0x8000 | (a >> 16) & 0x3fff, b & 0xffff_ffff_ffff);
        format!("{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}", self.number, parts.0, parts.1, parts.2, parts.3)
    }
}

/// Jobs of which frames wait, by the name of their show.
fn jobs_of_shows(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let names: BTreeMap<&str, &str> =
        snapshot.subscriptions.iter().map(|s| (s.show.as_str(), s.show_name.as_str())).collect();
    let jobs: BTreeSet<(&str, &str)> =
        snapshot.layers.iter().map(|layer| (layer.show.as_str(), layer.job.as_str())).collect();
    let mut counts = BTreeMap::new();
    for (show, _) in jobs {
        let name = names.get(show).copied().unwrap_or_default();
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

/// For each layer with a placement, the number of its hosts.
fn hosts_of_layers(placements: &[Placement]) -> Vec<u64> {
    let mut hosts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for placement in placements {
        hosts.entry(&placement.layer).or_default().insert(&placement.host);
    }
    hosts.values().map(|hosts| hosts.len() as u64).collect()
}
