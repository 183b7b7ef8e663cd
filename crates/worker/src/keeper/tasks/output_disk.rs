//! The disk on which the output of all tasks is kept, as samples see it. `tasks` asks whether the next sample must come
//! soon, how much output of running tasks must go, and whether a task may have failed because the disk was full.

use crate::keep;
use crate::logs::LogDir;
use crate::protocol::WireEnd;
use std::time::{Duration, Instant};
use windlass_core::load::pressure::DiskSpace;

/// How old the space of a sample may be where a task failed.
const SPACE_FRESH: Duration = Duration::from_secs(1);

/// Said of a task that failed on a full disk.
const DISK_WAS_FULL: &str = "the disk of its worker was full, where its output is kept: free some space there, or give \
                             the worker's --state a larger disk";

/// The disk of all output, as the last sample saw it.
#[derive(Default)]
pub(super) struct OutputDisk(Option<(Instant, DiskSpace)>);

impl OutputDisk {
    /// Sees how much space the disk has now.
    pub(super) fn look(&mut self, logs: &LogDir, now: Instant) {
        self.0 = keep::space(logs.root()).ok().map(|space| (now, space));
    }

    /// Whether it is so full that the next sample should come soon.
    pub(super) fn is_filling(&self) -> bool {
        self.0.is_some_and(|(_, space)| keep::is_filling(space))
    }

    /// Bytes of the output of running tasks that have to go.
    pub(super) fn lacking_bytes(&self) -> u64 {
        self.0.map_or(0, |(_, space)| keep::lacking_bytes(space))
    }

    /// What a full disk has to do with the end of a task, for people; `None` if the task did not fail, or the disk was
    /// not full while it ran. The system does not tell the keeper which write failed.
    pub(super) fn blame(&self, end: &WireEnd, ran: Duration, logs: &LogDir) -> Option<String> {
        let has_failed =
            matches!(end, WireEnd::Exited(code) if *code != 0) || matches!(end, WireEnd::Signaled(_));
        let is_full = || {
            let fresh = SPACE_FRESH.min(ran);
            let sampled = self.0.filter(|(at, _)| at.elapsed() < fresh).map(|(_, space)| space);
            keep::space(logs.root()).ok().into_iter().chain(sampled).any(keep::is_full)
        };
        (has_failed && is_full()).then(|| DISK_WAS_FULL.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(free_bytes: u64) -> OutputDisk {
        OutputDisk(Some((Instant::now(), DiskSpace { free_bytes, total_bytes: 100 << 30 })))
    }

    #[test]
    fn output_of_running_tasks_goes_when_that_of_ended_ones_was_not_enough() {
        let mib = |n: u64| n << 20;
        assert_eq!([2_000, 800, 700].map(|n| seen(mib(n)).is_filling()), [false, false, true]);
        assert_eq!([1_000, 512, 200, 0].map(|n| seen(mib(n)).lacking_bytes()), [0, 0, mib(312), mib(512)]);
        assert_eq!((OutputDisk::default().is_filling(), OutputDisk::default().lacking_bytes()), (false, 0));
    }

    #[test]
    fn a_failure_on_a_full_disk_says_so_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::new(&dir.path().join("absent"));
        let hour = Duration::from_secs(3_600);
        let told = |disk: &OutputDisk, end| disk.blame(&end, hour, &logs).is_some();
        let full = seen(4096);
        assert!(told(&full, WireEnd::Exited(1)) && told(&full, WireEnd::Signaled(7)));
        assert!(!told(&full, WireEnd::Exited(0)) && !told(&full, WireEnd::Canceled));
        assert!(!told(&full, WireEnd::OutOfMemory) && !told(&seen(64 << 20), WireEnd::Exited(1)));
        let later = full.blame(&WireEnd::Exited(1), Duration::ZERO, &logs);
        assert_eq!(later, None, "the disk was full before the task began");
    }
}
