//! Jobservers: a named pipe for each task that asked for one, and the tokens in it.
//!
//! A jobserver task runs one process, and one more for each token that it takes out of its pipe. The server says how
//! many cpus all of these tasks share here, and with which weights. From then on the keeper moves the tokens by itself,
//! in [`Jobservers::tick`]: `division` says how many processes each may run, `memory` holds back what does not fit.
//!
//! **Given** are the tokens that a task has: those that lie in its pipe, and those that it took. The keeper counts what
//! it wrote and what it read, and the pipe tells what lies there; the difference is what the task uses. No client says
//! anything more, and any client can lie, so:
//!
//! - Given tokens and the processes that need none are together never more than all shares, except where a pool shrank:
//!   then nothing is given until enough came back.
//! - More bytes in a pipe than were given are foreign, and are taken out. They are never given on.
//! - A byte is taken out only if nobody took it: the keeper reads as a client does, and neither waits. A client that
//!   was told of a byte and does not find it looks again, or waits.
//! - Tokens of a killed client come back. A task that uses more than it has processes and threads that could use it, in
//!   each of [`LOOKS`] looks, has lost the difference. If the client lives after all, it has less than it took, and what
//!   it gives back later is foreign.
//! - A client that takes tokens and never gives them back hurts its own task alone: it has no more than its share.
//! - All of it is kept through an upgrade, and the pipe goes with its task.

mod division;
mod fifo;
mod form;
mod memory;

pub use memory::{MemoryReader, MemoryRoom};

use super::log::write_line;
use crate::kept;
use crate::protocol::{Body, FromKeeper, HeldBack, JobserverSpec, TaskRef, TaskShare};
use division::{Claim, Need, divide, fit_memory, withhold};
use fifo::{Fifo, TOKENS_MAX};
use form::{MAKE_WITH_PATH, flags, is_plain, takes_path};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The directory of the pipes in the worker's directory.
pub const JOBSERVERS: &str = "jobservers";

/// Interval between two ticks while tasks compete for tokens.
const TICK: Duration = Duration::from_millis(50);
/// The interval of a task that is alone: only lost tokens are looked for.
const TICK_ALONE: Duration = Duration::from_millis(300);
/// Interval between two readings of memory.
const MEMORY_EVERY: Duration = Duration::from_millis(250);
/// Interval between two looks at the processes of a task that lost nothing, and of one that seems to have.
const LOOK_EVERY: Duration = Duration::from_millis(300);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Looks that must all miss a process before its token is lost: half a second. Between two processes of a task, which
/// last some milliseconds each, a look can miss one.
const LOOKS: u32 = 6;
/// Interval between two reports of one task.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Bytes that a process is taken to need at least: a compiler that has just begun holds little.
const PROCESS_BYTES_MIN: u64 = 32 << 20;
/// The part of what a process was seen to need that is forgotten at each reading of memory: half in some 11 s. A step
/// that linked once compiles on.
const FORGET_PART: u64 = 64;
/// Cpus that are shared at most, whatever the server says.
const CPUS_MAX: u32 = 4_096;
/// Reads of foreign bytes in one tick: those of a full pipe. A client that writes without end does not hold up the keeper.
const DRAINS_MAX: u32 = 17;

/// What is known of running tasks besides their pipes.
pub trait TaskView {
    /// Bytes that the task's processes hold together; `None` if unknown.
    fn held_bytes(&mut self, task: TaskRef) -> Option<u64>;
    /// Processes and threads of the task that can use a token; `None` if unknown.
    fn workers(&mut self, task: TaskRef) -> Option<u32>;
    /// Memory for further processes.
    fn memory(&mut self) -> MemoryRoom;
}

/// All jobservers of this keeper.
#[derive(Default, Serialize, Deserialize)]
pub struct Jobservers {
    dir: PathBuf,
    #[serde(with = "kept::pairs")]
    tasks: BTreeMap<TaskRef, TaskTokens>,
    /// Hundredths of a core that all of them share; `None` until the server said it.
    cpu: Option<u32>,
    #[serde(with = "kept::pairs")]
    weights: BTreeMap<TaskRef, u32>,
    /// Whether no make here fails on the path of a pipe. Until that is known tasks inherit descriptors, which each takes.
    #[serde(default)]
    make_takes_path: bool,
    #[serde(skip)]
    memory: MemoryRoom,
    #[serde(skip)]
    memory_read: Option<Instant>,
    /// Whether something changed since the last tick.
    #[serde(skip)]
    is_due: bool,
    #[serde(skip)]
    next_tick: Option<Instant>,
}

/// The tokens of one task.
#[derive(Serialize, Deserialize)]
struct TaskTokens {
    fifo: Fifo,
    epoch: u64,
    /// Whether the task has the path of the pipe; two descriptors if not.
    has_path: bool,
    /// Whether it brings flags of its own for cargo.
    keeps_cargo: bool,
    /// Processes that it may run at most, and that it was told.
    most: u32,
    told_most: u32,
    given: u32,
    share: u32,
    held_back: Option<HeldBack>,
    /// Time for which tokens were given, in token-milliseconds, up to `counted`.
    token_ms: u64,
    #[serde(with = "kept::moment")]
    counted: Instant,
    /// Bytes that are kept for its process that needs no token, by what processes of earlier tasks held.
    #[serde(default)]
    kept_bytes: u64,
    /// Bytes that one of its processes needs, as far as it was seen. It begins with what is kept.
    process_bytes: u64,
    /// The most that one of its processes held at a time, if all of them held as much.
    #[serde(default)]
    process_peak: u64,
    /// Processes that ran when memory was read last. What was free then is for others.
    used_then: u32,
    #[serde(skip)]
    missing: Missing,
    #[serde(skip)]
    reported: Option<(Instant, Usage)>,
}

/// Looks in which a task used more tokens than it had processes for.
#[derive(Default)]
struct Missing {
    looks: u32,
    /// The fewest that were missing in any of them.
    least: u32,
    next: Option<Instant>,
}

/// What is reported of a task. Both numbers include the process that needs no token.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Usage {
    share: u32,
    used: u32,
    wants: bool,
    held_back: Option<HeldBack>,
}

impl Jobservers {
    /// The pipes below a worker's directory.
    pub fn new(state: &Path) -> Self {
        Jobservers { dir: state.join(JOBSERVERS), ..Jobservers::default() }
    }

    /// Removes what an earlier keeper left.
    pub fn clear(&self) {
        _ = fs::remove_dir_all(&self.dir);
    }

    /// Goes on with what another program had. One that knew no jobservers had nothing.
    pub fn take_over(&mut self, saved: Jobservers) {
        if !saved.dir.as_os_str().is_empty() {
            *self = Jobservers { is_due: true, ..saved };
        }
    }

    /// Notes the release of GNU make on this worker; `None` where there is none.
    pub fn note_make(&mut self, version: Option<[u32; 2]>) {
        self.make_takes_path = version.is_none_or(|version| version >= MAKE_WITH_PATH);
    }

    /// Makes the jobserver of an attempt that is about to start. `cpus` is how many this worker has. A task that brings
    /// flags for make of its own keeps them, and has no jobserver.
    pub fn open(
        &mut self,
        (task, epoch): (TaskRef, u64),
        spec: JobserverSpec,
        body: &Body,
        cpus: u32,
        now: Instant,
    ) -> io::Result<()> {
        // Flags that name a jobserver came along from another task, and are of no use here.
        let keeps = |name: &str| body.env.get(name).is_some_and(|flags| !flags.contains("--jobserver"));
        if keeps("MAKEFLAGS") {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o711).create(&self.dir)?;
        let path = self.path(task);
        let fifo = Fifo::create(&path, body.run_as.as_ref())?;
        let is_readable = path.to_str().is_some_and(is_plain);
        let most = spec.processes_max.unwrap_or(TOKENS_MAX).clamp(1, TOKENS_MAX);
        self.tasks.insert(
            task,
            TaskTokens {
                fifo,
                epoch,
                has_path: is_readable && takes_path(spec.form, &body.command, self.make_takes_path),
                keeps_cargo: keeps("CARGO_MAKEFLAGS"),
                most,
                told_most: spec.processes_max.unwrap_or(cpus).clamp(2, TOKENS_MAX),
                given: 0,
                share: 1,
                held_back: None,
                token_ms: 0,
                counted: now,
                kept_bytes: spec.process_bytes.unwrap_or(0),
                process_bytes: spec.process_bytes.unwrap_or(0),
                process_peak: 0,
                used_then: 1,
                missing: Missing::default(),
                reported: None,
            },
        );
        // What is kept for it is not free from now on.
        (self.is_due, self.memory_read) = (true, None);
        Ok(())
    }

    /// The variables with which an attempt finds its jobserver; empty if it has none. cargo reads its own first, and
    /// hands it to build scripts, which may start make with it: so both have one form.
    pub fn variables(&self, task: TaskRef) -> Vec<(&'static str, String)> {
        let Some(tokens) = self.tasks.get(&task) else { return Vec::new() };
        let path = self.path(task);
        let flags = flags(tokens.told_most, path.to_str().filter(|_| tokens.has_path));
        let of_cargo = (!tokens.keeps_cargo).then(|| ("CARGO_MAKEFLAGS", flags.clone()));
        [("MAKEFLAGS", flags)].into_iter().chain(of_cargo).collect()
    }

    /// Whether an attempt has a jobserver.
    pub fn has(&self, task: TaskRef) -> bool {
        self.tasks.contains_key(&task)
    }

    /// The descriptors that a process of this attempt inherits; `None` if it has no jobserver, or the path of it.
    pub fn ends(&self, task: TaskRef) -> io::Result<Option<[fs::File; 2]>> {
        let inherits = self.tasks.get(&task).is_some_and(|tokens| !tokens.has_path);
        inherits.then(|| Fifo::ends(&self.path(task))).transpose()
    }

    /// The attempt is over, or did not start. Its tokens go to others.
    pub fn close(&mut self, task: TaskRef) {
        if self.tasks.remove(&task).is_some() {
            _ = fs::remove_file(self.path(task));
            self.is_due = true;
        }
    }

    /// Time for which an attempt was given tokens, in token-milliseconds; `None` if it has no jobserver.
    pub fn token_ms(&mut self, task: TaskRef, now: Instant) -> Option<u64> {
        let tokens = self.tasks.get_mut(&task)?;
        tokens.count(now);
        Some(tokens.token_ms)
    }

    /// Bytes that one process of an attempt held at least at one time; `None` if it has no jobserver.
    pub fn process_peak(&self, task: TaskRef) -> Option<u64> {
        self.tasks.get(&task).map(|tokens| tokens.process_peak)
    }

    /// Takes in what the server says of the cpus that are shared here.
    pub fn set_shares(&mut self, cpu: u32, shares: &[TaskShare]) {
        self.cpu = Some(cpu.min(CPUS_MAX * 100));
        self.weights = shares.iter().map(|share| (share.task, share.weight.max(1))).collect();
        self.is_due = true;
    }

    /// Reports all tasks again, to an agent that said hello.
    pub fn report_again(&mut self) {
        self.tasks.values_mut().for_each(|tokens| tokens.reported = None);
        self.is_due = true;
    }

    /// When [`Jobservers::tick`] is due; `None` without jobservers.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        if self.is_due { Some(now) } else { self.next_tick }
    }

    /// The pipes of tasks that have more than their share. The keeper waits at them for what comes back.
    pub fn awaited(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tasks.values().filter(|tokens| tokens.excess() > 0).map(|tokens| tokens.fifo.returned())
    }

    /// Hundredths of a core to which each attempt is entitled of which the server said something.
    pub fn entitled(&self) -> BTreeMap<TaskRef, u32> {
        let all: u64 = self.weights.values().map(|weight| u64::from(*weight)).sum();
        let cpu = u64::from(self.shared_cpu());
        let part = |weight: u32| u32::try_from(cpu * u64::from(weight) / all.max(1)).unwrap_or(u32::MAX);
        let named = self.weights.iter().filter(|(task, _)| self.has(**task));
        named.map(|(task, weight)| (*task, part(*weight).max(1))).collect()
    }

    /// Hundredths of a core that all of them share; 0 until the server said it.
    pub fn shared_cpu(&self) -> u32 {
        self.cpu.unwrap_or(0)
    }

    /// Takes back what tasks have beyond their shares, and when a tick is due divides and gives. `worker_cpus` is how
    /// many cpus the worker has. Returns the reports that are due; `None` between two ticks.
    pub fn tick(
        &mut self,
        now: Instant,
        worker_cpus: u32,
        view: &mut impl TaskView,
    ) -> Option<Vec<FromKeeper>> {
        let has_taken = self.tasks.values_mut().any(|tokens| tokens.excess() > 0 && tokens.withdraw(now) > 0);
        if !has_taken && !self.is_due && self.next_tick.is_none_or(|at| now < at) {
            return None;
        }
        self.is_due = false;
        for (task, tokens) in &mut self.tasks {
            tokens.drain_foreign();
            tokens.find_lost(*task, now, view);
        }
        self.learn_memory(now, view);
        self.share(now);
        self.give(now);
        let all = self.tasks.iter_mut();
        let reports = all.filter_map(|(task, tokens)| tokens.report(*task, now, worker_cpus)).collect();
        let is_bound = self.tasks.values().any(|tokens| tokens.held_back.is_some());
        let pause = if self.tasks.len() > 1 || is_bound { TICK } else { TICK_ALONE };
        let look = self.tasks.values().filter_map(|tokens| tokens.missing.next).min();
        let next = look.map_or(now + pause, |look| look.min(now + pause));
        self.next_tick = (!self.tasks.is_empty()).then_some(next);
        Some(reports)
    }

    /// Reads memory, and learns what one process of each task needs.
    fn learn_memory(&mut self, now: Instant, view: &mut impl TaskView) {
        if self.memory_read.is_some_and(|at| now < at + MEMORY_EVERY) {
            return;
        }
        self.memory_read = Some(now);
        self.memory = view.memory();
        for (task, tokens) in &mut self.tasks {
            tokens.used_then = tokens.used();
            if let Some(held) = view.held_bytes(*task) {
                let known = tokens.process_bytes - tokens.process_bytes / FORGET_PART;
                let each = held / u64::from(tokens.used_then);
                tokens.process_bytes = known.max(each);
                tokens.process_peak = tokens.process_peak.max(each);
            }
        }
        // What runs may still grow to what such processes need.
        if let Some(free) = &mut self.memory.free_bytes {
            for (task, tokens) in &self.tasks {
                let will_hold = tokens.process_bytes.saturating_mul(tokens.used_then.into());
                let held = view.held_bytes(*task).unwrap_or(0);
                *free = free.saturating_sub(will_hold.max(tokens.kept_bytes).saturating_sub(held));
            }
        }
    }

    /// Decides how many processes each task may run.
    fn share(&mut self, now: Instant) {
        let cpus = self.cpu.unwrap_or(0).saturating_add(50) / 100;
        let MemoryRoom { free_bytes, lacking_bytes, is_pressed } = self.memory;
        let (mut claims, mut needs) = (Vec::new(), Vec::new());
        for (task, tokens) in &self.tasks {
            let (used, weight) = (tokens.used(), self.weights.get(task));
            // Until the server has named it, it has what every task has.
            let most = if weight.is_some() { tokens.most } else { 1 };
            let weight = weight.copied().unwrap_or(1);
            claims.push(Claim { weight, most, used, is_idle: tokens.fifo.idle() > 0 });
            let process_bytes = tokens.process_bytes.max(PROCESS_BYTES_MIN);
            needs.push(Need { used: tokens.used_then, process_bytes });
        }
        let wanted = divide(cpus, &claims);
        for (claim, need) in claims.iter_mut().zip(&needs) {
            let room = match free_bytes {
                _ if is_pressed => 0,
                Some(free) => u32::try_from(free / need.process_bytes).unwrap_or(u32::MAX),
                None => u32::MAX,
            };
            claim.most = claim.most.min(need.used.saturating_add(room));
        }
        let mut shares = divide(cpus, &claims);
        if let Some(free) = free_bytes {
            fit_memory(free, &needs, &mut shares);
        }
        withhold(lacking_bytes, &needs, &mut shares);
        for (tokens, (share, wanted)) in self.tasks.values_mut().zip(shares.into_iter().zip(wanted)) {
            tokens.share = share;
            tokens.withdraw(now);
            tokens.held_back = match (share < wanted && tokens.fifo.idle() == 0, is_pressed) {
                (false, _) => None,
                (true, true) => Some(HeldBack::Pressure),
                (true, false) => Some(HeldBack::Memory),
            };
        }
    }

    /// Gives tokens to the tasks that have less than their share, first to the one that lacks most, as far as others
    /// have not more than theirs.
    fn give(&mut self, now: Instant) {
        let all: u32 = self.tasks.values().map(|tokens| tokens.share).sum();
        let out: u32 = self.tasks.values().map(|tokens| tokens.given + 1).sum();
        let mut left = all.saturating_sub(out);
        let mut lacking: Vec<&mut TaskTokens> =
            self.tasks.values_mut().filter(|tokens| tokens.given + 1 < tokens.share).collect();
        lacking.sort_by_key(|tokens| std::cmp::Reverse(tokens.share - tokens.given));
        for tokens in lacking {
            tokens.count(now);
            let given = tokens.fifo.give(left.min(tokens.share - tokens.given - 1));
            tokens.given += given;
            left -= given;
        }
    }

    fn path(&self, task: TaskRef) -> PathBuf {
        self.dir.join(format!("{}.{}.{}", task.job, task.index, task.attempt))
    }
}

impl TaskTokens {
    /// Processes that the task runs, with the one that needs no token.
    fn used(&self) -> u32 {
        self.given.saturating_sub(self.fifo.idle()) + 1
    }

    /// Tokens beyond its share.
    fn excess(&self) -> u32 {
        (self.given + 1).saturating_sub(self.share)
    }

    /// Counts the time of the tokens that were given until now.
    fn count(&mut self, now: Instant) {
        let ms = now.saturating_duration_since(self.counted).as_millis() as u64;
        self.token_ms = self.token_ms.saturating_add(ms.saturating_mul(self.given.into()));
        // What is less than a millisecond counts next time.
        self.counted += Duration::from_millis(ms);
    }

    /// Takes tokens back that are more than its share and that nobody has taken. Returns how many.
    fn withdraw(&mut self, now: Instant) -> u32 {
        let taken = self.fifo.take(self.excess());
        if taken > 0 {
            self.count(now);
            self.given -= taken;
        }
        taken
    }

    /// Takes bytes out that no one gave it.
    fn drain_foreign(&mut self) {
        for _ in 0..DRAINS_MAX {
            let foreign = self.fifo.idle().saturating_sub(self.given);
            if self.fifo.take(foreign) == 0 {
                return;
            }
        }
    }

    /// Gives the tokens of killed clients again.
    fn find_lost(&mut self, task: TaskRef, now: Instant, view: &mut impl TaskView) {
        if self.missing.next.is_some_and(|at| now < at) {
            return;
        }
        let used = self.used();
        let workers = if used > 1 { view.workers(task) } else { None };
        // While the processes were counted some may have ended, and given their tokens back.
        let missing = workers.map_or(0, |workers| used.min(self.used()).saturating_sub(workers.max(1)));
        let looks = if missing == 0 { 0 } else { self.missing.looks + 1 };
        let least = if looks > 1 { missing.min(self.missing.least) } else { missing };
        let pause = if looks == 0 { LOOK_EVERY } else { LOOK_AGAIN };
        self.missing = Missing { looks, least, next: (used > 1).then_some(now + pause) };
        if looks >= LOOKS {
            let again = self.fifo.give(least.min(self.given.saturating_sub(self.fifo.idle())));
            self.missing = Missing { next: Some(now + pause), ..Missing::default() };
            let TaskRef { job, index, .. } = task;
            write_line(format_args!(
                "task {job}.{index}: {again} tokens of a killed process are given again"
            ));
        }
    }

    /// What is to be said of the task, if that changed and the last report is long enough ago.
    fn report(&mut self, task: TaskRef, now: Instant, worker_cpus: u32) -> Option<FromKeeper> {
        let (share, used) = (self.given + 1, self.used());
        let wants = used >= share && share < self.most.min(worker_cpus.max(1));
        let usage = Usage { share, used, wants, held_back: self.held_back };
        let is_due = match self.reported {
            None => true,
            Some((at, before)) => before != usage && now >= at + REPORT_EVERY,
        };
        if !is_due {
            return None;
        }
        self.reported = Some((now, usage));
        let Usage { share, used, wants, held_back } = usage;
        Some(FromKeeper::Cpus { task, epoch: self.epoch, share, used, wants, held_back })
    }
}

#[cfg(test)]
mod tests;
