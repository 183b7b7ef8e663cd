//! The end of tasks: on request, with the lease, and with the keeper. `tasks` reports each one when its last process
//! is gone.

use super::kills::is_short_of_memory;
use super::{Running, Tasks, chunk};
use crate::cgroup::Slot;
use crate::keeper::env::{EMPTY_POLL, KeeperEnv};
use crate::keeper::link::Link;
use crate::keeper::session::{Notice, TaskSession};
use crate::process;
use crate::protocol::{TaskRef, WireEnd};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// From `SIGTERM` to `SIGKILL`.
const GRACE: Duration = Duration::from_secs(2);
/// Time for leaving sessions when the keeper ends.
const LAST_EXITS: Duration = Duration::from_secs(5);

impl Tasks {
    /// Kills all tasks at once, because the lease has run out and the server may book them elsewhere at any moment.
    pub fn fence(&mut self, link: &mut Link) {
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.parked {
                self.booked.sub(&waiting.request);
            }
            for task in chunk::tasks(waiting.task, &waiting.riders) {
                self.end_unstarted(task, waiting.epoch, (WireEnd::Recalled, false), link);
            }
            if let Some(place) = waiting.place {
                place.discard(link);
            }
        }
        self.fence_collecting(link);
        for running in self.running.values_mut() {
            // A task between two actions of its session must not begin the next one.
            if running.exit.is_none() || running.is_entering() {
                running.cause = Some(WireEnd::Fenced);
                running.kill_at = Some(Instant::now());
            }
        }
        self.sessions.fence();
    }

    /// How a task ended of which no process is left, and whether that was at its own memory limit.
    pub(super) fn end_of(&mut self, task: TaskRef, running: &mut Running) -> (WireEnd, bool) {
        let slot = running.started.slot.as_ref();
        let status = running.exit.map(|(exit, _)| exit.status);
        let end = match (running.cause.take(), status) {
            _ if slot.is_some_and(Slot::was_oom_killed) => WireEnd::OutOfMemory,
            (Some(cause), _) => cause,
            (None, Some(status)) if status < 0 => WireEnd::Signaled(-status),
            (None, Some(status)) => WireEnd::Exited(status),
            (None, None) => WireEnd::Unknown,
        };
        if end == WireEnd::OutOfMemory {
            return (end, true);
        }
        let (own, is_build) = (slot.and_then(Slot::lost_to_memory), self.keeper_env.jobservers.has(task));
        let (kills, started_ns) = (&mut self.group_kills, running.started_ns);
        match is_short_of_memory(&end, own, is_build, || kills.since(started_ns)) {
            true => (WireEnd::OutOfMemory, false),
            false => (end, false),
        }
    }

    /// Whether a task that was ended with the lease still has processes.
    pub fn has_fenced(&self) -> bool {
        self.running.values().any(|running| running.cause == Some(WireEnd::Fenced))
    }

    /// Kills all tasks and leaves all sessions, for the keeper's own end.
    pub fn kill_all(&mut self) {
        for _ in 0..1000 {
            let mut left = false;
            for (task, running) in &self.running {
                left |= !self.keeper_env.end_tree(*task, &running.started, running.exit.is_some());
            }
            while let Some(exit) = process::reap() {
                self.exited(exit);
            }
            if !left {
                break;
            }
            std::thread::sleep(EMPTY_POLL);
        }
        self.leave_sessions();
    }

    /// Leaves the environments of all sessions, for at most [`LAST_EXITS`].
    fn leave_sessions(&mut self) {
        self.sessions.end_all();
        let until = Instant::now() + LAST_EXITS;
        while !self.sessions.is_empty() && Instant::now() < until {
            self.sessions.settle(Instant::now(), &mut self.keeper_env);
            std::thread::sleep(EMPTY_POLL);
            while let Some(exit) = process::reap() {
                self.sessions.exited(exit);
            }
        }
        self.sessions.kill_all(&self.keeper_env);
    }
}

impl Running {
    /// Whether the task still enters environments of its session.
    fn is_entering(&self) -> bool {
        self.task_session.as_ref().is_some_and(|(task_session, _)| task_session.is_entering())
    }

    /// Asks the task to end, once; the kill follows.
    pub(super) fn ask_to_end(&mut self, cause: WireEnd, keeper_env: &mut KeeperEnv) {
        if self.cause.is_some() || (self.exit.is_some() && !self.is_entering()) {
            return;
        }
        self.cause = Some(cause);
        if self.exit.is_some() {
            // Between two actions: the next one does not begin.
            return;
        }
        let pid = self.started.pid;
        let task_session = self.task_session.as_ref().map(|(task_session, _)| task_session);
        let grace = match task_session.and_then(TaskSession::notice) {
            None => {
                process::signal_group(pid, Signal::TERM);
                GRACE
            }
            Some(Notice::None) => Duration::ZERO,
            Some(Notice::File(period, file)) => {
                // The file is in the session's directory, which its user owns.
                keeper_env.help(process::aside(task_session.and_then(TaskSession::run_as), || {
                    _ = process::write_file(&file);
                    process::signal(pid, Signal::TERM);
                }));
                period
            }
        };
        self.kill_at = Some(Instant::now() + grace);
    }
}
