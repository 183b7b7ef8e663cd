//! The memory of tasks whose control group does not count it, with shared pages counted once.
//!
//! The sum of resident sizes counts a page for each process that shares it: a process that fills memory and forks six
//! times seems to hold seven times as much. Proportional sizes are exact, but reading them costs time, and can be held
//! up by the processes that are read, which the keeper never waits for. So a process of its own reads them, for one task
//! at a time, and only where the sum could matter: it is above the task's peak, or above its limit. Until then what the
//! largest process holds is certain.
//!
//! - A task of one process needs no reading.
//! - A task is ended for its memory by an exact size, or by one process that is over the limit alone.
//! - Where proportional sizes cannot be read, or not in time, the sum counts.

use crate::keeper::env::KeeperEnv;
use crate::keeper::log::write_line;
use crate::memory::{proportional_bytes, resident_sizes};
use crate::process;
use crate::protocol::TaskRef;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a reading may take. Some 100 GiB are read in that time.
const READ_MAX: Duration = Duration::from_secs(3);
/// Shortest pause between two readings of the keeper, each of which forks it.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause before the next reading of one task: a number of times what the last one took, and no less than the duration.
/// So readings take a twentieth of a core for a peak, and a fifth near a limit.
const PEAK_PAUSE: (u32, Duration) = (19, Duration::from_secs(1));
const LIMIT_PAUSE: (u32, Duration) = (4, Duration::from_millis(50));
/// A peak is read again once the sum is above it by one part in this many.
const PEAK_PART: u64 = 64;
/// The answer of a reading that failed.
const UNREADABLE: u64 = u64::MAX;

/// What is known of one task's shared memory. A keeper that takes over begins with nothing.
#[derive(Default)]
pub(super) struct TaskSizes {
    /// The processes to read next, and whether they may be over the task's limit.
    wanted: Option<(Vec<i32>, bool)>,
    /// When the last reading ended, and how long it took.
    read: Option<(Instant, Duration)>,
    is_unreadable: bool,
    /// The largest sum before the first reading. It counts for a task that ends before that.
    unread_peak: u64,
}

impl TaskSizes {
    /// Looks at the resident sizes of a task's processes, and raises its peak by what is certain. Returns the bytes that
    /// it holds at least. `limit` is that which is held by these looks.
    pub(super) fn look(
        &mut self,
        (proc, pids): (&Path, Vec<i32>),
        limit: Option<u64>,
        peak: &mut u64,
        now: Instant,
    ) -> u64 {
        let sizes = resident_sizes(proc, &pids);
        let sum: u64 = sizes.iter().sum();
        let is_certain = sizes.len() <= 1 || self.is_unreadable;
        let certain = if is_certain { sum } else { sizes.into_iter().max().unwrap_or(0) };
        *peak = (*peak).max(certain);
        let is_over = limit.is_some_and(|limit| sum > limit);
        let (times, least) = if is_over { LIMIT_PAUSE } else { PEAK_PAUSE };
        let is_due = self.read.is_none_or(|(at, took)| at + (took * times).max(least) <= now);
        self.wanted = None;
        if !is_certain && is_due && (is_over || sum > *peak + *peak / PEAK_PART) {
            self.wanted = Some((pids, is_over));
        }
        if self.read.is_none() {
            self.unread_peak = self.unread_peak.max(sum);
        }
        certain
    }

    /// Takes in a reading, and returns the bytes that the task holds; `None` if it failed, and the sum counts from now.
    pub(super) fn take(&mut self, reading: &SizesRead, peak: &mut u64, now: Instant) -> Option<u64> {
        self.read = Some((now, reading.took));
        self.is_unreadable = reading.bytes.is_none();
        *peak = (*peak).max(reading.bytes.unwrap_or(0));
        reading.bytes
    }

    /// The peak of a task that has ended, with what was not read in time.
    pub(super) fn last_peak(&self, peak: u64) -> u64 {
        if self.read.is_some() { peak } else { peak.max(self.unread_peak) }
    }

    /// Whether a reading is due, and if it is, whether the task may be over its limit.
    pub(super) fn wanted(&self) -> Option<bool> {
        self.wanted.as_ref().map(|(_, near_limit)| *near_limit)
    }

    /// The processes of the reading that is due.
    pub(super) fn take_wanted(&mut self) -> Option<Vec<i32>> {
        self.wanted.take().map(|(pids, _)| pids)
    }
}

/// The reading that is under way, and when the next one may begin.
#[derive(Default)]
pub(super) struct SizeReader {
    under_way: Option<SizeQuestion>,
    next_at: Option<Instant>,
    /// The task that was read last; the next one is another, if there is one.
    pub(super) last: Option<TaskRef>,
}

struct SizeQuestion {
    task: TaskRef,
    /// The process that reads.
    pid: i32,
    answer: OwnedFd,
    began: Instant,
}

/// A reading that has ended.
pub(super) struct SizesRead {
    pub(super) task: TaskRef,
    /// `None` if it failed or took too long.
    bytes: Option<u64>,
    took: Duration,
}

impl SizeReader {
    /// When a reading that is due can begin; `None` while one is under way, whose end wakes the keeper.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.under_way.is_none().then(|| self.next_at.unwrap_or(now))
    }

    /// Whether a reading may begin.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.under_way.is_none() && self.next_at.is_none_or(|at| at <= now)
    }

    /// Begins a reading of a task's processes.
    pub(super) fn begin(&mut self, task: TaskRef, pids: Vec<i32>, keeper_env: &mut KeeperEnv, now: Instant) {
        (self.last, self.next_at) = (Some(task), Some(now + PAUSE));
        match ask(pids) {
            Ok((pid, answer)) => {
                keeper_env.help(Ok(pid));
                self.under_way = Some(SizeQuestion { task, pid, answer, began: now });
            }
            Err(e) => write_line(format_args!("cannot read what tasks hold: {e}")),
        }
    }

    /// The reading that has ended since the last call.
    pub(super) fn hear(&mut self, keeper_env: &KeeperEnv, now: Instant) -> Option<SizesRead> {
        let question = self.under_way.as_ref()?;
        let took = now.saturating_duration_since(question.began);
        let mut answer = [0; 8];
        let bytes = match rustix::io::read(&question.answer, &mut answer) {
            Ok(8) => Some(u64::from_le_bytes(answer)).filter(|bytes| *bytes != UNREADABLE),
            Err(Errno::AGAIN) if took < READ_MAX => return None,
            _ => None,
        };
        // Its number is its own until its end is noted.
        if keeper_env.helpers.contains_key(&question.pid) && bytes.is_none() {
            process::kill(question.pid);
        }
        let SizeQuestion { task, .. } = self.under_way.take()?;
        self.next_at = Some(now + took.max(PAUSE));
        Some(SizesRead { task, bytes, took })
    }
}

/// Makes a process that reads the proportional sizes of these processes. Returns its number, and where it answers.
fn ask(pids: Vec<i32>) -> io::Result<(i32, OwnedFd)> {
    let (answer, tell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let pid = process::aside(None, move || {
        // It has copies of the keeper's descriptors, which must not outlive the keeper.
        _ = set_parent_process_death_signal(Some(Signal::KILL));
        let bytes = proportional_bytes(Path::new("/proc"), &pids).unwrap_or(UNREADABLE);
        _ = rustix::io::write(&tell, &bytes.to_le_bytes());
    })?;
    Ok((pid, answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MIB: u64 = 1 << 20;

    /// A `/proc` of processes with these resident sizes in MiB.
    fn processes(sizes: &[u64]) -> (tempfile::TempDir, Vec<i32>) {
        let dir = tempfile::tempdir().unwrap();
        let page = rustix::param::page_size() as u64;
        let pids: Vec<i32> = (11..).take(sizes.len()).collect();
        for (pid, mib) in pids.iter().zip(sizes) {
            fs::create_dir(dir.path().join(pid.to_string())).unwrap();
            let statm = format!("9 {} 1 1 0 1 0\n", mib * MIB / page);
            fs::write(dir.path().join(format!("{pid}/statm")), statm).unwrap();
        }
        (dir, pids)
    }

    fn read(bytes: Option<u64>) -> SizesRead {
        SizesRead { task: TaskRef { job: 1, index: 0, attempt: 1 }, bytes, took: Duration::from_millis(100) }
    }

    #[test]
    fn forks_that_share_their_memory_are_read_before_they_are_judged() {
        let (dir, pids) = processes(&[200; 7]);
        let (mut sizes, mut peak, start) = (TaskSizes::default(), 0, Instant::now());
        let limit = Some(300 * MIB);
        let at = |ms| start + Duration::from_millis(ms);
        let look = |sizes: &mut TaskSizes, peak: &mut u64, limit, ms| {
            sizes.look((dir.path(), pids.clone()), limit, peak, at(ms))
        };
        assert_eq!(look(&mut sizes, &mut peak, limit, 0), 200 * MIB, "what one of them holds is certain");
        assert_eq!((sizes.wanted.take(), peak), (Some((pids.clone(), true)), 200 * MIB));
        assert_eq!(sizes.last_peak(peak), 1_400 * MIB, "of a task that ends now no more is known");
        assert_eq!(sizes.take(&read(Some(210 * MIB)), &mut peak, at(100)), Some(210 * MIB));
        assert_eq!((sizes.last_peak(peak), peak), (210 * MIB, 210 * MIB));
        // The next reading follows after four times what this one took, and for a peak alone after 19 times.
        let mut wants = |limit, ms| {
            look(&mut sizes, &mut peak, limit, ms);
            sizes.wanted().is_some()
        };
        assert_eq!(
            [wants(limit, 499), wants(None, 1_999), wants(limit, 500), wants(None, 2_000)],
            [false, false, true, true]
        );
    }

    #[test]
    fn what_cannot_be_read_counts_for_each_process() {
        let (dir, pids) = processes(&[200; 2]);
        let (mut sizes, mut peak, now) = (TaskSizes::default(), 0, Instant::now());
        sizes.look((dir.path(), pids.clone()), None, &mut peak, now);
        assert_eq!(sizes.take(&read(None), &mut peak, now), None);
        assert_eq!(sizes.look((dir.path(), pids), None, &mut peak, now), 400 * MIB);
        assert_eq!((peak, sizes.wanted().is_some()), (400 * MIB, false));
    }

    #[test]
    fn one_process_needs_no_reading() {
        let (dir, pids) = processes(&[200]);
        let (mut sizes, mut peak) = (TaskSizes::default(), 0);
        let held = sizes.look((dir.path(), pids), Some(100 * MIB), &mut peak, Instant::now());
        assert_eq!((held, peak, sizes.wanted().is_some()), (200 * MIB, 200 * MIB, false));
    }
}
