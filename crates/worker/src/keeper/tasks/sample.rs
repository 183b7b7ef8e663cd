//! Samples of running attempts: the memory that they hold, and the output that they write to their files by themselves.
//! A sample ends attempts that are over a memory limit which the kernel does not hold. It cuts output that is too long,
//! and output that is about to fill the disk, on which the results of all tasks depend.

use super::{Running, Tasks};
use crate::cgroup::Slot;
use crate::keeper::env::KeeperEnv;
use crate::keeper::log::write_line;
use crate::logs;
use crate::protocol::{TaskRef, WireEnd};
use std::cmp::Reverse;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

/// Bytes to which the output file of a running task is cut while the disk is full: its beginning, and half of the rest.
const CUT_TO_BYTES: u64 = 3 << 20;
/// A smaller file is not cut for that.
const CUT_BYTES_MIN: u64 = 4 << 20;

impl Tasks {
    /// Samples memory and output of all running attempts.
    pub(super) fn sample(&mut self, now: Instant) {
        self.group_kills.look();
        for (task, running) in &mut self.running {
            running.sample_memory(*task, &self.keeper_env, now);
        }
        self.disk.look(&self.keeper_env.logs, now);
        let max = self.keeper_env.log_bytes_max;
        for (task, running) in &mut self.running {
            let sizes = running.output_sizes();
            running.marks.look(&self.keeper_env.logs, *task, sizes, now);
            for (place, size) in sizes.into_iter().enumerate() {
                running.cut_output(place, size, max);
            }
        }
        let lacking = self.disk.lacking_bytes();
        if lacking > 0 {
            self.cut_largest_output(lacking);
        }
    }

    /// Takes in a reading of sizes that has ended, ends its task if that is over its limit, and begins the next one.
    pub(super) fn read_sizes(&mut self, now: Instant) {
        if let Some(reading) = self.size_reader.hear(&self.keeper_env, now)
            && let Some(running) = self.running.get_mut(&reading.task)
        {
            let bytes = running.sizes.take(&reading, &mut running.peak_bytes, now);
            running.hold_to_limit(bytes.unwrap_or(0), reading.task, &self.keeper_env);
        }
        if !self.size_reader.is_free(now) {
            return;
        }
        let last = self.size_reader.last.unwrap_or(TaskRef { job: 0, index: 0, attempt: 0 });
        let behind = self.running.range((Bound::Excluded(last), Bound::Unbounded));
        let in_turn = behind.chain(self.running.range(..=last));
        let mut wanting = in_turn.filter_map(|(task, running)| Some((*task, running.sizes.wanted()?)));
        // Tasks that may be over their limits come first.
        let next = wanting.clone().find(|(_, near_limit)| *near_limit).or_else(|| wanting.next());
        let Some((task, _)) = next else { return };
        if let Some(pids) = self.running.get_mut(&task).and_then(|running| running.sizes.take_wanted()) {
            self.size_reader.begin(task, pids, &mut self.keeper_env, now);
        }
    }

    /// Cuts the largest output files of running tasks until that many bytes are freed. Output of ended tasks is cut
    /// first, by the agent, which starts while twice as much is free.
    fn cut_largest_output(&mut self, mut lacking: u64) {
        let all = self.running.iter().flat_map(|(task, running)| {
            [0, 1].map(|place| (Reverse(running.allocated_bytes(place)), *task, place))
        });
        let mut all: Vec<(Reverse<u64>, TaskRef, usize)> = all.collect();
        all.sort_unstable();
        for (Reverse(bytes), task, place) in all {
            if lacking == 0 || bytes < CUT_BYTES_MIN {
                break;
            }
            let Some(running) = self.running.get_mut(&task) else { continue };
            let (size, is_first) = (running.output_sizes()[place], running.kept_from[place] == 0);
            running.cut_output(place, size, CUT_TO_BYTES);
            let freed = bytes.saturating_sub(running.allocated_bytes(place));
            lacking = lacking.saturating_sub(freed);
            if is_first && freed > 0 {
                let TaskRef { job, index, .. } = task;
                write_line(format_args!(
                    "task {job}.{index}: the disk is full, and its output loses its middle"
                ));
            }
        }
    }
}

impl Running {
    /// Raises the peak, and ends the task if it is over a limit that is held by samples.
    fn sample_memory(&mut self, task: TaskRef, keeper_env: &KeeperEnv, now: Instant) {
        let (slot, limit) = (self.started.slot.as_ref(), self.memory_limit.bytes(&self.request));
        let killed = slot.is_some_and(Slot::was_oom_killed);
        let bytes = if let Some(bytes) = slot.and_then(Slot::held_bytes) {
            self.peak_bytes = self.peak_bytes.max(bytes);
            bytes
        } else {
            let leader = self.exit.is_none().then_some(self.started.pid);
            let pids = keeper_env.pids(leader, task, slot);
            let watched = limit.filter(|_| self.started.watch_memory);
            self.sizes.look((Path::new("/proc"), pids), watched, &mut self.peak_bytes, now)
        };
        self.held_bytes = Some(bytes);
        if killed {
            self.end_for_memory(task, keeper_env);
        } else {
            self.hold_to_limit(bytes, task, keeper_env);
        }
    }

    /// Ends the task if it holds more than a limit that the kernel does not hold.
    pub(super) fn hold_to_limit(&mut self, bytes: u64, task: TaskRef, keeper_env: &KeeperEnv) {
        let limit = self.memory_limit.bytes(&self.request);
        if self.started.watch_memory && limit.is_some_and(|limit| bytes > limit) {
            self.end_for_memory(task, keeper_env);
        }
    }

    fn end_for_memory(&mut self, task: TaskRef, keeper_env: &KeeperEnv) {
        self.cause = Some(WireEnd::OutOfMemory);
        keeper_env.end_tree(task, &self.started, self.exit.is_some());
    }

    /// Peak memory of a task that has ended, perhaps at its limit. `largest` is what the largest of its processes held,
    /// in bytes.
    pub(super) fn last_peak(&self, is_at_limit: bool, largest: u64) -> u64 {
        let peak = self.sizes.last_peak(self.peak_bytes).max(largest);
        match self.memory_limit.bytes(&self.request) {
            // Memory grew to the limit between two samples.
            Some(limit) if is_at_limit => peak.max(limit),
            // Pages of files that others read first are theirs. A larger peak would loosen the limit of the next task.
            Some(limit) if !self.started.watch_memory => peak.min(limit),
            _ => peak,
        }
    }

    /// Lengths of standard output and standard error, with the holes in them.
    fn output_sizes(&self) -> [u64; 2] {
        [0, 1].map(|place| self.started.output[place].metadata().map_or(0, |m| m.len()))
    }

    /// Bytes that one of them takes on the disk.
    fn allocated_bytes(&self, place: usize) -> u64 {
        self.started.output[place].metadata().map_or(0, |m| m.blocks().saturating_mul(512))
    }

    /// Drops the middle of an output file that has more than `max` bytes.
    fn cut_output(&mut self, place: usize, size: u64, max: u64) {
        let file = &self.started.output[place];
        match logs::rotate(file, size, max, self.kept_from[place]) {
            Ok(from) => self.kept_from[place] = from,
            // Without holes in files the limit is held by starting the file again.
            Err(e) if e.kind() == std::io::ErrorKind::Unsupported => _ = file.set_len(0),
            // The next sample tries again.
            Err(_) => {}
        }
    }
}
