//! What a worker says of its machine by itself: its load each second, and what its caches hold when that
//! changes. Each has a thread of its own, so that a slow disk does not make the load old.

use crate::agent::{Agent, FromAgent};
use crate::caches::{CacheDir, Fetched, Keys, scan};
use crate::clock::boot_ns;
use crate::keeper::KeeperFile;
use crate::load::LoadReader;
use crate::protocol::{FromKeeper, TaskRef};
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass_core::load::pressure::LoadReport;
use windlass_core::score::speed::Speed;

/// Between two reports of load where the server does not say.
pub const LOAD_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at the directories of caches.
const SCAN_EVERY: Duration = Duration::from_secs(30);
/// Between two of them, or of their reports, where tasks change the caches all the time.
const SCAN_PAUSE: Duration = Duration::from_secs(5);

/// What was measured so far, and what is to be said.
#[derive(Default)]
pub struct Measured {
    state: Mutex<ScanState>,
    changed: Condvar,
}

#[derive(Default)]
struct ScanState {
    load_every: Option<Duration>,
    disk: Speed,
    network: Speed,
    fetched: Fetched,
    /// Running tasks that brought something into a cache.
    fetchers: BTreeSet<TaskRef>,
    /// The server knows nothing of the caches.
    caches_unsaid: bool,
    /// Some key is new.
    has_news: bool,
    /// The directories may have changed.
    must_scan: bool,
    ended: bool,
}

/// Why the caches are to be said again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RescanReason {
    /// To a server that does not know them.
    Unsaid,
    /// A key was added.
    News,
    /// It is time to look.
    Scan,
}

impl Measured {
    /// Takes in what the keeper said of a task.
    pub fn hear(&self, message: &FromKeeper) {
        let now_ns = boot_ns();
        let mut state = self.lock();
        match message {
            FromKeeper::Fetched { task, key, bytes, ms } => {
                state.network.add(now_ns, *bytes, ms.saturating_mul(1_000_000));
                state.fetched.add(key.clone(), *bytes);
                state.fetchers.insert(*task);
                state.has_news = true;
            }
            FromKeeper::Finished { task, result, .. } => {
                let took_ns =
                    result.finished.zip(result.started).map(|(end, start)| end.saturating_sub(start));
                if let (Some(bytes), Some(took_ns)) = (result.disk_bytes, took_ns) {
                    state.disk.add(now_ns, bytes, took_ns);
                }
                if !state.fetchers.remove(task) {
                    return;
                }
                state.must_scan = true;
            }
            _ => return,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The server heard a hello: it knows nothing of the caches.
    pub fn say_caches(&self) {
        self.lock().caches_unsaid = true;
        self.changed.notify_all();
    }

    /// How often the server wants the load.
    pub fn set_load_every(&self, every: Duration) {
        self.lock().load_every = Some(every);
        self.changed.notify_all();
    }

    /// Nothing more is to be said.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Says the load again and again until the end.
    pub fn tell_load(&self, agent: &Agent, mut tell: impl FnMut(FromAgent)) {
        let mut reader = LoadReader::new(agent.capacity());
        let mut read = || {
            let groups = KeeperFile::read(agent.state()).map(|file| file.cgroups).unwrap_or_default();
            reader.read(boot_ns(), &groups)
        };
        // What the first report is compared with.
        read();
        let mut last = Instant::now();
        while self.wait_for_load(last) {
            last = Instant::now();
            tell(FromAgent::Load(Box::new(self.with_speeds(read()))));
        }
    }

    /// Says the caches when that is due until the end.
    pub fn tell_caches(&self, dirs: &[CacheDir], mut tell: impl FnMut(FromAgent)) {
        let (mut scanned, mut said) = (Keys::new(), None);
        let (mut last_scan, mut last_told) = (None, None);
        while let Some(due) = self.wait_for_caches(last_scan, last_told) {
            if due == RescanReason::Scan {
                self.lock().fetched.leave_to_scan(dirs);
                scanned = scan(dirs);
                last_scan = Some(Instant::now());
            }
            let keys = self.lock().fetched.with(&scanned);
            if due == RescanReason::Unsaid || said.as_ref() != Some(&keys) {
                last_told = Some(Instant::now());
                tell(FromAgent::Caches(keys.clone()));
                said = Some(keys);
            }
        }
    }

    fn with_speeds(&self, report: LoadReport) -> LoadReport {
        let now_ns = boot_ns();
        let state = self.lock();
        LoadReport {
            disk_mb_s: state.disk.rate(now_ns).map(|bytes_s| bytes_s / 1e6),
            network_mbit_s: state.network.rate(now_ns).map(|bytes_s| bytes_s * 8.0 / 1e6),
            ..report
        }
    }

    /// Until the next report; false at the end.
    fn wait_for_load(&self, last: Instant) -> bool {
        let mut state = self.lock();
        loop {
            let at = last + state.load_every.unwrap_or(LOAD_EVERY);
            match at.checked_duration_since(Instant::now()) {
                _ if state.ended => return false,
                None | Some(Duration::ZERO) => return true,
                Some(left) => state = self.wait(state, left),
            }
        }
    }

    /// Until something is to be said of the caches; `None` at the end.
    fn wait_for_caches(
        &self,
        last_scan: Option<Instant>,
        last_told: Option<Instant>,
    ) -> Option<RescanReason> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            let Some(scanned) = last_scan else {
                (state.must_scan, state.has_news) = (false, false);
                return Some(RescanReason::Scan);
            };
            if std::mem::take(&mut state.caches_unsaid) {
                return Some(RescanReason::Unsaid);
            }
            let scan_at = scanned + if state.must_scan { SCAN_PAUSE } else { SCAN_EVERY };
            let news_at = last_told.filter(|_| state.has_news).map(|told| told + SCAN_PAUSE);
            let now = Instant::now();
            if scan_at <= now {
                (state.must_scan, state.has_news) = (false, false);
                return Some(RescanReason::Scan);
            }
            if news_at.is_some_and(|at| at <= now) {
                state.has_news = false;
                return Some(RescanReason::News);
            }
            let left = news_at.map_or(scan_at, |at| at.min(scan_at)).saturating_duration_since(now);
            state = self.wait(state, left);
        }
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, ScanState>, most: Duration) -> MutexGuard<'a, ScanState> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, ScanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
