//! The worker's own reports: its load each second, and its cache keys when they change. Each has a thread of the
//! agent, so that a slow disk does not make the load old. A third thread finds the speed of a core, once. The agent
//! passes what the keeper reports of fetches and results to [`Measured::hear`]. Nothing here asks the server or the
//! keeper for anything.

use crate::caches::{CacheDir, Fetched, Keys, scan};
use crate::clock::boot_ns;
use crate::core_speed;
use crate::keep;
use crate::keeper::{KeeperFile, SESSIONS};
use crate::load::LoadReader;
use crate::network::{FetchRun, LinkLoad, LinkRates, LinkReading, Links};
use crate::protocol::{FromKeeper, HeldPhase, TaskRef};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};
use windlass_core::Resources;
use windlass_core::load::pressure::{DiskSpace, LoadReport};
use windlass_core::score::speed::Speed;

/// Interval between two reports of load where the server names none.
pub const LOAD_EVERY: Duration = Duration::from_secs(1);
/// Interval between two scans of the cache directories.
const SCAN_EVERY: Duration = Duration::from_secs(30);
/// The interval where tasks keep changing the caches. It is also the pause between two reports of new keys.
const SCAN_PAUSE: Duration = Duration::from_secs(5);

/// Pause after the machine was too busy to measure the speed of a core.
const MEASURE_AGAIN: Duration = Duration::from_secs(30);
/// How long no task must have run before [`MeasureCore::WhenIdle`] measures.
const IDLE_FOR: Duration = Duration::from_secs(2);

/// Attempts that are known to be network-bound at a time. What more there are say nothing of the network.
const NETWORK_BOUND_MAX: usize = 4_096;

/// Attempts that ended last, and whose output may be cut at once.
const ENDED_MAX: usize = 1_024;

/// How old the space of the state and session directories may be in a report, and that of the caches.
const SPACE_FRESH: Duration = Duration::from_secs(5);
const CACHE_SPACE_FRESH: Duration = Duration::from_secs(90);

/// When an agent measures the speed of a core, if no earlier agent of the same directory did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeasureCore {
    /// Never: an operator gave it.
    Never,
    /// At once, beside connecting: tasks come later.
    AtOnce,
    /// When no task has run for a moment. An agent in the server's process gets its first task at once, and that must
    /// not share its core.
    WhenIdle,
}

/// The measurements so far, and what is due to be reported.
#[derive(Default)]
pub struct Measured {
    state: Mutex<ScanState>,
    changed: Condvar,
    links: Links,
}

#[derive(Default)]
struct ScanState {
    load_every: Option<Duration>,
    disk: Speed,
    network: Speed,
    core_score: Option<f64>,
    /// Attempts whose first process runs.
    running: BTreeSet<TaskRef>,
    /// Attempts that ended last, in the order of their ends. No attempt runs again.
    ended_last: VecDeque<TaskRef>,
    /// Whether a keeper has said which attempts run.
    is_told: bool,
    /// Attempts that were started or sent ahead, and are marked as network-bound. An agent that was started under
    /// running tasks does not know which are.
    network_bound: BTreeSet<TaskRef>,
    /// The links' counters while some of these attempts run.
    fetch_run: Option<FetchRun>,
    /// When the last attempt ended.
    idle_since: Option<Instant>,
    link_load: LinkLoad,
    state_space: Seen,
    session_space: Seen,
    cache_space: Seen,
    fetched: Fetched,
    /// Keys of the inputs of tasks that are here.
    inputs: Keys,
    /// Running tasks that fetched a cache key.
    fetchers: BTreeSet<TaskRef>,
    /// Whether the server has no report of the caches on this connection.
    caches_unsaid: bool,
    /// Whether a key was added since the last report.
    has_news: bool,
    /// Whether the directories may have changed.
    must_scan: bool,
    ended: bool,
}

/// The space of a directory, and when it was seen. A disk that does not answer leaves it old, and then it is unknown.
#[derive(Clone, Copy, Default)]
struct Seen(Option<(Instant, DiskSpace)>);

impl Seen {
    fn now(space: Option<DiskSpace>) -> Seen {
        Seen(space.map(|space| (Instant::now(), space)))
    }

    fn within(self, age: Duration) -> Option<DiskSpace> {
        self.0.filter(|(at, _)| at.elapsed() <= age).map(|(_, space)| space)
    }
}

/// Why the caches are reported again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RescanReason {
    /// The server has no report of them.
    Unsaid,
    /// A key was added.
    News,
    /// The next scan is due.
    Scan,
}

impl Measured {
    /// Takes in a message of the keeper.
    pub fn hear(&self, message: &FromKeeper) {
        self.hear_at(boot_ns(), message);
    }

    fn hear_at(&self, now_ns: u64, message: &FromKeeper) {
        let mut state = self.state.lock();
        state.follow(message);
        self.follow_fetches(&mut state, now_ns);
        match message {
            FromKeeper::Fetched { task, key, bytes, ms } => {
                state.network.add(now_ns, *bytes, ms.saturating_mul(1_000_000));
                state.fetch_run.iter_mut().for_each(FetchRun::told);
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

    /// Finds the speed of a core, again and again while the machine is too busy, until it is known or the end.
    pub fn find_core_score(&self, state: &Path, when: MeasureCore) {
        self.state.lock().core_score = core_speed::known(state);
        let mut not_before = Instant::now();
        while self.wait_to_measure(when, not_before) {
            self.state.lock().core_score = core_speed::measure_and_keep(state);
            not_before = Instant::now() + MEASURE_AGAIN;
        }
    }

    /// An attempt that is marked as network-bound is sent to the keeper.
    pub fn expect_fetches(&self, task: TaskRef) {
        let mut state = self.state.lock();
        if state.network_bound.len() < NETWORK_BOUND_MAX {
            state.network_bound.insert(task);
        }
    }

    /// Begins and ends the time in which network-bound attempts run.
    fn follow_fetches(&self, state: &mut ScanState, now_ns: u64) {
        let fetches = state.network_bound.iter().any(|task| state.running.contains(task));
        match (fetches, state.fetch_run.is_some()) {
            (true, false) => state.fetch_run = self.links.read(now_ns).map(FetchRun::new),
            (false, true) => {
                state.look_at_links(self.links.read(now_ns));
                if let Some(mut run) = state.fetch_run.take() {
                    run.count(&mut state.network);
                }
            }
            _ => {}
        }
    }

    /// The attempts that run, and may write output; `None` before a keeper has said which. The reports of starts and
    /// ends keep it up to date. An inventory alone does not: without a lease nothing asks for one, and attempts that it
    /// names may have ended since.
    pub fn running(&self) -> Option<BTreeSet<TaskRef>> {
        let state = self.state.lock();
        state.is_told.then(|| state.running.clone())
    }

    /// The attempts that ended last, and write no more output.
    pub fn ended_last(&self) -> BTreeSet<TaskRef> {
        self.state.lock().ended_last.iter().copied().collect()
    }

    /// Looks at the space of the worker's directory and of its sessions, which may be a file system of their own.
    /// Returns that of the directory; `None` if it is unknown.
    pub fn look_at_space(&self, state: &Path) -> Option<DiskSpace> {
        let of_state = keep::space(state).ok();
        // Until the first session there is no such directory.
        let of_sessions = keep::space(&state.join(SESSIONS)).ok().or(of_state);
        let mut known = self.state.lock();
        (known.state_space, known.session_space) = (Seen::now(of_state), Seen::now(of_sessions));
        of_state
    }

    /// Makes the caches due, because the server has just heard a hello.
    pub fn say_caches(&self) {
        self.state.lock().caches_unsaid = true;
        self.changed.notify_all();
    }

    /// Sets which inputs of tasks are here.
    pub fn set_inputs(&self, inputs: Keys) {
        let mut state = self.state.lock();
        (state.inputs, state.has_news) = (inputs, true);
        drop(state);
        self.changed.notify_all();
    }

    /// Sets the interval between two reports of load.
    pub fn set_load_every(&self, every: Duration) {
        self.state.lock().load_every = Some(every);
        self.changed.notify_all();
    }

    /// Asks the threads that measure to end.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Reports the load of a worker with that capacity and directory, periodically, until the agent ends.
    pub fn tell_load(&self, capacity: &Resources, state: &Path, mut tell: impl FnMut(LoadReport)) {
        let mut reader = LoadReader::new(capacity);
        let mut read = || {
            let groups = KeeperFile::read(state).map(|file| file.cgroups).unwrap_or_default();
            reader.read(boot_ns(), &groups)
        };
        // The first report is compared with this reading.
        read();
        let mut last = Instant::now();
        while self.wait_for_load(last) {
            last = Instant::now();
            tell(self.with_speeds(boot_ns(), read()));
        }
    }

    /// Reports the cache keys whenever they are due, until the agent ends.
    pub fn tell_caches(&self, dirs: &[CacheDir], mut tell: impl FnMut(BTreeMap<String, u64>)) {
        let (mut scanned, mut said) = (Keys::new(), None);
        let (mut last_scan, mut last_told) = (None, None);
        while let Some(due) = self.wait_for_caches(last_scan, last_told) {
            if due == RescanReason::Scan {
                self.state.lock().fetched.leave_to_scan(dirs);
                scanned = scan(dirs);
                let spaces = dirs.iter().filter_map(|dir| keep::space(&dir.dir).ok());
                self.state.lock().cache_space = Seen::now(spaces.min_by_key(|space| space.free_bytes));
                last_scan = Some(Instant::now());
            }
            let keys = {
                let state = self.state.lock();
                state.fetched.with(&state.inputs, &scanned)
            };
            if due == RescanReason::Unsaid || said.as_ref() != Some(&keys) {
                last_told = Some(Instant::now());
                tell(keys.clone());
                said = Some(keys);
            }
        }
    }

    fn with_speeds(&self, now_ns: u64, report: LoadReport) -> LoadReport {
        // A network driver that is stuck holds up this thread alone, and not the keeper's messages.
        let reading = self.links.read(now_ns);
        let mut state = self.state.lock();
        state.look_at_links(reading.clone());
        let rates = state.link_load.update(reading);
        LoadReport {
            disk_mb_s: state.disk.rate(now_ns).map(|bytes_s| bytes_s / 1e6),
            network_mbit_s: state.network.rate(now_ns).map(|bytes_s| bytes_s * 8.0 / 1e6),
            core_score: state.core_score,
            network_in_mbit_s: rates.map(|rates| rates.in_mbit_s),
            network_out_mbit_s: rates.map(|rates| rates.out_mbit_s),
            network_percent: rates.and_then(|rates: LinkRates| rates.percent),
            state_space: state.state_space.within(SPACE_FRESH),
            session_space: state.session_space.within(SPACE_FRESH),
            cache_space: state.cache_space.within(CACHE_SPACE_FRESH),
            ..report
        }
    }

    /// Waits for the next report of load; false at the end.
    fn wait_for_load(&self, last: Instant) -> bool {
        let mut state = self.state.lock();
        loop {
            let at = last + state.load_every.unwrap_or(LOAD_EVERY);
            match at.checked_duration_since(Instant::now()) {
                _ if state.ended => return false,
                None | Some(Duration::ZERO) => return true,
                Some(left) => _ = self.changed.wait_for(&mut state, left),
            }
        }
    }

    /// Waits until the speed of a core may be measured; false if it is known, and at the end.
    fn wait_to_measure(&self, when: MeasureCore, not_before: Instant) -> bool {
        let mut state = self.state.lock();
        let began = Instant::now();
        loop {
            if state.ended || state.core_score.is_some() {
                return false;
            }
            let idle = state.idle_since.unwrap_or(began) + IDLE_FOR;
            let at = if when == MeasureCore::WhenIdle { not_before.max(idle) } else { not_before };
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() && (when == MeasureCore::AtOnce || state.running.is_empty()) {
                return true;
            }
            // The end of the last task wakes it, too.
            self.changed.wait_for(&mut state, if left.is_zero() { MEASURE_AGAIN } else { left });
        }
    }

    /// Waits until the caches are due; `None` at the end.
    fn wait_for_caches(
        &self,
        last_scan: Option<Instant>,
        last_told: Option<Instant>,
    ) -> Option<RescanReason> {
        let mut state = self.state.lock();
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
            self.changed.wait_for(&mut state, left);
        }
    }
}

impl ScanState {
    /// Adds the bytes that the links have received until a reading, while network-bound attempts run.
    fn look_at_links(&mut self, reading: Option<LinkReading>) {
        if let Some(run) = &mut self.fetch_run
            && let Some(reading) = reading
        {
            run.look(reading, &mut self.network);
        }
    }

    /// Notes which attempts run.
    fn follow(&mut self, message: &FromKeeper) {
        let ran = !self.running.is_empty();
        match message {
            FromKeeper::Started { task, .. } => _ = self.running.insert(*task),
            FromKeeper::Finished { task, .. } => {
                self.running.remove(task);
                self.network_bound.remove(task);
                if self.ended_last.len() >= ENDED_MAX {
                    self.ended_last.pop_front();
                }
                self.ended_last.push_back(*task);
            }
            FromKeeper::State { held, .. } | FromKeeper::Beat { held, .. } => {
                if matches!(message, FromKeeper::State { .. }) {
                    // Another keeper has none of the attempts of the one before.
                    let known: BTreeSet<TaskRef> = held.iter().map(|held| held.task).collect();
                    self.network_bound.retain(|task| known.contains(task));
                    let fetched = self.fetchers.len();
                    self.fetchers.retain(|task| known.contains(task));
                    self.must_scan |= self.fetchers.len() < fetched;
                }
                // What a later release added may run, too.
                let running = held.iter().filter(|held| {
                    matches!(held.phase, HeldPhase::Running(_) | HeldPhase::Lent(_) | HeldPhase::Unknown)
                });
                self.running = running.map(|held| held.task).collect();
                self.is_told = true;
            }
            _ => {}
        }
        if ran && self.running.is_empty() {
            self.idle_since = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Held, WireEnd, WireResult};
    use std::fs;

    const SECOND_NS: u64 = 1_000_000_000;
    const MB: u64 = 1_000_000;

    /// Measurements of a machine with one link, which received nothing so far.
    fn machine() -> (tempfile::TempDir, Measured) {
        let dir = tempfile::tempdir().unwrap();
        let measured = Measured { links: Links::below(dir.path().to_owned()), ..Measured::default() };
        let device = dir.path().join("sys/class/net/eth0");
        fs::create_dir_all(device.join("device")).unwrap();
        fs::create_dir_all(device.join("statistics")).unwrap();
        fs::write(device.join("statistics/tx_bytes"), "0").unwrap();
        received(&dir, 0);
        (dir, measured)
    }

    fn received(dir: &tempfile::TempDir, bytes: u64) {
        fs::write(dir.path().join("sys/class/net/eth0/statistics/rx_bytes"), bytes.to_string()).unwrap();
    }

    fn task(index: u32) -> TaskRef {
        TaskRef { job: 1, index, attempt: 1 }
    }

    fn started(index: u32) -> FromKeeper {
        FromKeeper::Started { task: task(index), epoch: 1, at: 0 }
    }

    fn finished(index: u32) -> FromKeeper {
        let result = WireResult { end: WireEnd::Exited(0), ..WireResult::default() };
        FromKeeper::Finished { task: task(index), epoch: 1, result }
    }

    fn network_mbit_s(measured: &Measured, at_s: u64) -> Option<f64> {
        measured.with_speeds(at_s * SECOND_NS, LoadReport::default()).network_mbit_s
    }

    #[test]
    fn the_network_is_measured_while_network_bound_tasks_run_and_only_then() {
        let (dir, measured) = machine();
        measured.expect_fetches(task(1));
        measured.hear_at(SECOND_NS, &started(2));
        received(&dir, 500 * MB);
        assert_eq!(network_mbit_s(&measured, 2), None, "what runs is not network-bound");
        measured.hear_at(3 * SECOND_NS, &started(1));
        received(&dir, 600 * MB);
        assert_eq!(network_mbit_s(&measured, 4), None, "the fastest window is known at the end of the run");
        measured.hear_at(5 * SECOND_NS, &finished(1));
        assert_eq!(network_mbit_s(&measured, 5), Some(800.0));
        received(&dir, 9_000 * MB);
        measured.hear_at(6 * SECOND_NS, &finished(2));
        assert_eq!(network_mbit_s(&measured, 6), Some(800.0));
    }

    #[test]
    fn links_and_space_are_reported_and_unknown_where_they_are() {
        let (dir, measured) = machine();
        let report = |at_s| measured.with_speeds(at_s * SECOND_NS, LoadReport::default());
        assert_eq!((report(1).network_in_mbit_s, report(1).state_space), (None, None));
        received(&dir, 25 * MB);
        let second = report(2);
        assert_eq!((second.network_in_mbit_s, second.network_out_mbit_s), (Some(200.0), Some(0.0)));
        assert_eq!(second.network_percent, None, "the link does not tell its speed");
        measured.look_at_space(dir.path());
        let space = report(3).state_space.unwrap();
        assert!(space.total_bytes >= space.free_bytes && space.total_bytes > 0, "{space:?}");
        assert_eq!(report(4).session_space, report(4).state_space, "there are no sessions yet");
        measured.look_at_space(&dir.path().join("gone"));
        assert_eq!(report(5).state_space, None);
    }

    #[test]
    fn a_line_of_a_task_is_preferred_to_what_the_links_received() {
        let (dir, measured) = machine();
        measured.expect_fetches(task(1));
        measured.hear_at(SECOND_NS, &started(1));
        received(&dir, 100 * MB);
        let key = "c/a".to_owned();
        measured
            .hear_at(2 * SECOND_NS, &FromKeeper::Fetched { task: task(1), key, bytes: 50 * MB, ms: 1_000 });
        measured.hear_at(3 * SECOND_NS, &finished(1));
        assert_eq!(network_mbit_s(&measured, 3), Some(400.0));
    }

    /// The output of what runs is not cut, so an attempt that ended and is not acknowledged must not count as running.
    #[test]
    fn what_runs_is_known_from_starts_and_ends_whatever_inventory_came_between() {
        let (_dir, measured) = machine();
        let held = |index, phase| Held { task: task(index), phase };
        let state = |held: Vec<Held>| {
            let (seq, notes) = (0, Vec::new());
            FromKeeper::State {
                incarnation: 2,
                seq,
                held,
                notes,
                sent: 0,
                fences: false,
                program: None,
                files: false,
            }
        };
        let running = || measured.running().map(|running| running.into_iter().collect::<Vec<_>>());
        assert_eq!(running(), None, "any output may be that of a task that runs");
        // A server that was started under a task, which ends then.
        measured.hear_at(SECOND_NS, &state(vec![held(1, HeldPhase::Running(5)), held(2, HeldPhase::Queued)]));
        assert_eq!(running(), Some(vec![task(1)]));
        measured.hear_at(2 * SECOND_NS, &finished(1));
        assert_eq!(running(), Some(vec![]));
        assert_eq!(measured.ended_last(), BTreeSet::from([task(1)]));
        // A task that starts and ends between two inventories, which may be days apart.
        measured.hear_at(3 * SECOND_NS, &started(2));
        assert_eq!(running(), Some(vec![task(2)]));
        // A commit failed: the keeper is asked again while an attempt that ended is not acknowledged.
        let again = vec![held(1, HeldPhase::Ended), held(2, HeldPhase::Lent(5)), held(3, HeldPhase::Unknown)];
        measured.hear_at(4 * SECOND_NS, &state(again));
        assert_eq!(running(), Some(vec![task(2), task(3)]));
    }

    #[test]
    fn attempts_of_a_keeper_that_is_gone_are_forgotten() {
        let (dir, measured) = machine();
        measured.expect_fetches(task(1));
        measured.hear_at(SECOND_NS, &started(1));
        received(&dir, 100 * MB);
        let fetched = FromKeeper::Fetched { task: task(1), key: "c/a".to_owned(), bytes: MB, ms: 10 };
        measured.hear_at(SECOND_NS, &fetched);
        let (held, notes) = (Vec::new(), Vec::new());
        let state = FromKeeper::State {
            incarnation: 2,
            seq: 0,
            held,
            notes,
            sent: 0,
            fences: true,
            program: None,
            files: false,
        };
        measured.hear_at(2 * SECOND_NS, &state);
        let known = measured.state.lock();
        assert!(known.network_bound.is_empty() && known.running.is_empty() && known.fetch_run.is_none());
        assert!(known.fetchers.is_empty() && known.must_scan, "what they fetched is looked for");
    }
}
