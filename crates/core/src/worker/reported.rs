//! What a worker says of its load and its caches, and what follows from that for new work.

use crate::cache_keys::CacheKeys;
use crate::load::formula::{LoadSettings, Saturated};
use crate::load::pressure::LoadReport;
use crate::time::{NS_PER_S, Time};

/// How long no task must have run for pressure on cpus to be that of other programs: three times the 10 seconds over
/// which it is averaged.
pub const REST_NS: u64 = 30 * NS_PER_S;

/// Memory as a worker reports it, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportedMemory {
    /// What could be had without swapping.
    pub available_bytes: u64,
    /// What the worker's tasks hold.
    pub task_bytes: u64,
}

impl ReportedMemory {
    /// `None` if the report lacks one of them.
    fn of(report: &LoadReport) -> Option<Self> {
        let (available_bytes, task_bytes) = report.memory_available.zip(report.memory_own)?;
        Some(ReportedMemory { available_bytes, task_bytes })
    }

    /// Bytes that new bookings may use, where bookings and headroom make `booked` bytes. What tasks have not used of that
    /// yet is taken from what could be had.
    pub fn room(self, booked: u64) -> u64 {
        self.available_bytes.saturating_sub(booked.saturating_sub(self.task_bytes))
    }
}

/// What a worker says of its load and its caches. Written for each report, and when a report is stale.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reported {
    load: Option<(Time, Box<LoadReport>)>,
    memory: Option<ReportedMemory>,
    core_score: Option<f64>,
    saturated: Saturated,
    quiet_since: Option<Time>,
    caches: Option<CacheKeys>,
    caches_version: u64,
    /// Pressure holds all workers of the farm, and this one gets one task at a time.
    pub last_resort: bool,
}

impl Reported {
    /// The last report of load; `None` if there was none, or it is stale.
    pub fn load(&self) -> Option<&LoadReport> {
        self.load.as_ref().map(|(_, report)| &**report)
    }

    /// That report, and when it came.
    pub fn dated_load(&self) -> Option<(Time, &LoadReport)> {
        self.load.as_ref().map(|(at, report)| (*at, &**report))
    }

    /// Memory that counts for room; `None` if the worker does not report it, or pressure does not count.
    pub fn memory(&self) -> Option<ReportedMemory> {
        self.memory
    }

    /// Speed of one core, as the last report that had one said. It outlives that report: a core is as fast as before.
    pub fn core_score(&self) -> Option<f64> {
        self.core_score
    }

    /// What the worker has too little of for new work, or for new network-bound work.
    pub fn saturated(&self) -> Saturated {
        self.saturated
    }

    /// The keys that its caches hold; `None` if it has not reported them.
    pub fn caches(&self) -> Option<&CacheKeys> {
        self.caches.as_ref()
    }

    /// A number that changes with [`Reported::caches`].
    pub fn caches_version(&self) -> u64 {
        self.caches_version
    }

    /// True if no task ran for [`REST_NS`] before the last report, so pressure on cpus is that of other programs. Only a
    /// worker that is idle may be asked.
    pub fn is_rested(&self) -> bool {
        let quiet = self.quiet_since.zip(self.dated_load());
        quiet.is_some_and(|(since, (reported, _))| reported.since(since) >= REST_NS)
    }

    /// The worker reports its caches.
    pub fn set_caches(&mut self, keys: CacheKeys) {
        self.caches = Some(keys);
        self.caches_version += 1;
    }

    /// A task or an outside client holds something: the worker's load is that of its tasks.
    pub fn end_quiet(&mut self) {
        self.quiet_since = None;
    }

    /// The worker reports its load; `None` if the last report is stale. What an executor of another system reports as
    /// available is all there is, whether pressure counts or not, and stays so when the report is stale. Outside clients
    /// booked up to `clients_cpu` hundredths of a core while it was measured: these are not used by other programs.
    pub fn set_load(
        &mut self,
        now: Time,
        mut report: Option<Box<LoadReport>>,
        (is_idle, is_trusted): (bool, bool),
        clients_cpu: u32,
        settings: &LoadSettings,
    ) {
        if let Some(foreign) = report.as_mut().and_then(|report| report.cpu_foreign.as_mut())
            && clients_cpu > 0
        {
            *foreign = (*foreign - f64::from(clients_cpu) / 100.0).max(0.0);
        }
        if let Some(report) = &report {
            self.core_score = report.core_score.filter(|score| *score > 0.0);
        }
        self.load = report.map(|report| (now, report));
        self.quiet_since = if is_idle { self.quiet_since.or(Some(now)) } else { None };
        let is_rested = is_idle && self.is_rested();
        self.saturated = self.saturated.update(self.load(), is_rested, settings);
        let counted = self.load().filter(|_| settings.pressure || is_trusted);
        self.memory = counted.and_then(ReportedMemory::of).or(self.memory.filter(|_| is_trusted));
    }
}
