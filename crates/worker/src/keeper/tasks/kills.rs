//! Whether a task failed because the kernel killed one of its processes for want of memory. The task's main process may
//! live on: make ends with code 2 when a linker was killed.
//!
//! - A group of the task's own counts the kills of its processes alone, so any failure counts.
//! - Where it has none, the kills in the worker's group while the task ran count. Other tasks share these. So the task
//!   must have been killed itself, or be a build, whose processes are killed in its place.

use crate::cgroup::{oom_kills_of, own_oom_file};
use crate::clock::unix_ns;
use crate::protocol::WireEnd;
use std::path::PathBuf;

/// `SIGKILL`, and the code by which a shell tells that it ended a program.
const KILL: i32 = 9;
const SHELL_KILLED: i32 = 128 + KILL;

/// Whether a task ended so because memory was short. `own` is whether its own group lost a process; `None` without such a
/// group, and then `in_workers_group` says it of the worker's.
pub(super) fn is_short_of_memory(
    end: &WireEnd,
    own: Option<bool>,
    is_build: bool,
    in_workers_group: impl FnOnce() -> bool,
) -> bool {
    let (has_failed, is_killed) = match end {
        WireEnd::Exited(code) => (*code != 0, *code == SHELL_KILLED),
        WireEnd::Signaled(signal) => (true, *signal == KILL),
        _ => (false, false),
    };
    has_failed && own.unwrap_or_else(|| (is_build || is_killed) && in_workers_group())
}

/// The kills in the worker's group. A keeper that takes over begins to count again.
#[derive(Default)]
pub(super) struct GroupKills {
    /// The file with the count, once it was looked for.
    file: Option<Option<PathBuf>>,
    count: Option<u64>,
    /// When the count was seen to rise last, in nanoseconds since the Unix epoch.
    rose_ns: Option<u64>,
}

impl GroupKills {
    /// Counts from now on. Costs nothing where it does so already.
    pub(super) fn begin(&mut self) {
        if self.count.is_none() {
            self.look();
        }
    }

    /// Sees how many there are now.
    pub(super) fn look(&mut self) {
        let file = self.file.get_or_insert_with(own_oom_file);
        let Some(count) = file.as_deref().and_then(oom_kills_of) else { return };
        if self.count.is_some_and(|before| count > before) {
            self.rose_ns = Some(unix_ns());
        }
        self.count = Some(count);
    }

    /// Whether there was one since then, in nanoseconds since the Unix epoch.
    pub(super) fn since(&mut self, then_ns: u64) -> bool {
        self.look();
        self.rose_ns.is_some_and(|rose_ns| rose_ns >= then_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_failure_is_for_memory_if_a_kill_was_counted() {
        use WireEnd::{Canceled, Exited, Signaled, TimeLimit};
        // The end, what its own group says, whether it is a build, what the worker's group says.
        let cases = [
            (Exited(2), Some(true), true, false, true),
            (Exited(2), Some(true), false, false, true),
            (Exited(2), Some(false), true, true, false),
            (Signaled(9), Some(false), false, true, false),
            (Exited(0), Some(true), true, true, false),
            (TimeLimit, Some(true), true, true, false),
            (Canceled, None, true, true, false),
            (Exited(2), None, true, true, true),
            (Exited(2), None, true, false, false),
            (Exited(1), None, false, true, false),
            (Exited(137), None, false, true, true),
            (Signaled(9), None, false, true, true),
            (Signaled(11), None, false, true, false),
            (Signaled(9), None, false, false, false),
            (Exited(0), None, true, true, false),
        ];
        for (end, own, is_build, workers, expected) in cases {
            let is = is_short_of_memory(&end, own, is_build, || workers);
            assert_eq!(is, expected, "{end:?} {own:?} {is_build} {workers}");
        }
    }

    #[test]
    fn a_kill_counts_from_when_it_was_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.oom_control");
        let kills = |count: u64| fs::write(&file, format!("oom_kill {count}\n")).unwrap();
        let mut seen = GroupKills { file: Some(Some(file.clone())), ..GroupKills::default() };
        seen.begin();
        assert!(!seen.since(0), "nothing counts there");
        kills(7);
        seen.begin();
        assert!(!seen.since(0), "those were before");
        kills(8);
        assert!(seen.since(0) && !seen.since(u64::MAX));
        assert!(seen.since(0), "it stays known");
    }
}
