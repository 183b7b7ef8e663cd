//! Old output, and the worker's questions about it. A server tells the workers that it reaches which jobs are deleted,
//! and they delete the output. A worker that was away finds the rest by its age and asks the server. It deletes
//! nothing by itself, because only the server knows which jobs are gone.
//!
//! - The worker asks nothing while its clock differs from the server's by an hour or more, or while the server's is
//!   unknown.
//! - An age only chooses the jobs of a question. A file that seems to be of 1970 stays if the server knows its job.

use crate::logs::LogDir;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use windlass_api::wire::OUTPUTS_MAX;

/// Interval between two questions on one stream.
pub const ASK_EVERY: Duration = Duration::from_secs(86_400);
/// A worker asks about the output of jobs that wrote nothing for this long.
const OLD: Duration = Duration::from_secs(60 * 86_400);
/// By how much the clocks of worker and server may differ.
const TRUSTED: Duration = Duration::from_secs(3_600);

/// The server's clock, as it was told when a stream began. It goes on with the time since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerClock {
    told: SystemTime,
    /// When the server told it, in nanoseconds since boot.
    told_at: u64,
}

impl ServerClock {
    /// The clock that a greeting told in nanoseconds since the Unix epoch, `boot_ns` after this machine's start.
    pub fn told(now_ns: u64, boot_ns: u64) -> ServerClock {
        ServerClock { told: UNIX_EPOCH + Duration::from_nanos(now_ns), told_at: boot_ns }
    }

    /// The worker's time `wall`, if the server's clock is near it.
    pub fn agrees(&self, wall: SystemTime, boot_ns: u64) -> Option<SystemTime> {
        let server = self.told + Duration::from_nanos(boot_ns.saturating_sub(self.told_at));
        let apart = server.duration_since(wall).unwrap_or_else(|e| e.duration());
        (apart < TRUSTED).then_some(wall)
    }
}

/// Which jobs the worker asks about next.
#[derive(Default)]
pub struct OldOutput {
    /// The last job of the question before. The next one begins behind it, so that jobs which the server goes on to know
    /// do not keep others from being asked about.
    asked_to: AtomicU64,
}

impl OldOutput {
    /// Jobs whose output is old `now`, for one question: at most [`OUTPUTS_MAX`], in the order of their numbers.
    pub fn next(&self, logs: &LogDir, now: SystemTime) -> io::Result<Vec<u64>> {
        let Some(before) = now.checked_sub(OLD) else { return Ok(Vec::new()) };
        let mut jobs = logs.unchanged_since(before, self.asked_to.load(Ordering::Relaxed))?;
        let is_whole = jobs.len() <= OUTPUTS_MAX;
        jobs.truncate(OUTPUTS_MAX);
        let last = jobs.last().copied().filter(|_| !is_whole).unwrap_or(0);
        self.asked_to.store(last, Ordering::Relaxed);
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::Stream;
    use crate::protocol::TaskRef;

    const DAY: Duration = Duration::from_secs(86_400);
    const S: u64 = 1_000_000_000;
    /// The server's clock when the stream begins.
    const NOW: Duration = Duration::from_secs(20_000 * 86_400);

    fn clock() -> ServerClock {
        ServerClock::told(NOW.as_nanos() as u64, 50 * S)
    }

    #[test]
    fn while_the_clocks_are_apart_nothing_is_asked() {
        let wall = UNIX_EPOCH + NOW;
        assert_eq!(clock().agrees(wall, 50 * S), Some(wall));
        for apart in [TRUSTED, 61 * DAY, 5_000 * DAY] {
            assert_eq!(clock().agrees(wall + apart, 50 * S), None, "ahead by {apart:?}");
            assert_eq!(clock().agrees(wall - apart, 50 * S), None, "behind by {apart:?}");
        }
        assert_eq!(clock().agrees(UNIX_EPOCH, 50 * S), None, "before NTP");
    }

    #[test]
    fn the_server_s_clock_goes_on_and_a_jump_of_the_worker_s_is_seen() {
        let day = DAY.as_nanos() as u64;
        let later = UNIX_EPOCH + NOW + 3 * DAY;
        assert_eq!(clock().agrees(later, 50 * S + 3 * day), Some(later));
        assert_eq!(clock().agrees(later + 61 * DAY, 50 * S + 3 * day), None);
    }

    fn write(logs: &LogDir, job: u64, changed: SystemTime) {
        let task = TaskRef { job, index: 0, attempt: 1 };
        let file = logs.create(task, Stream::Out).unwrap();
        file.set_modified(changed).unwrap();
        let dir = std::fs::File::open(logs.path(task, Stream::Out).parent().unwrap()).unwrap();
        dir.set_modified(changed).unwrap();
    }

    #[test]
    fn what_is_old_is_asked_about_and_stays_until_the_answer() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, now) = (LogDir::new(dir.path()), UNIX_EPOCH + NOW);
        assert_eq!(OldOutput::default().next(&logs, now).unwrap(), [0_u64; 0], "no output yet");
        write(&logs, 1, now - 61 * DAY);
        write(&logs, 2, now - 59 * DAY);
        write(&logs, 3, UNIX_EPOCH + DAY);
        write(&logs, 4, now + 61 * DAY);
        std::fs::create_dir(dir.path().join("logs/other")).unwrap();
        let old = OldOutput::default();
        for _ in 0..2 {
            assert_eq!(old.next(&logs, now).unwrap(), [1, 3]);
        }
        assert_eq!(std::fs::read_dir(logs.root()).unwrap().count(), 5, "nothing is deleted");
    }

    #[test]
    fn all_are_asked_about_in_turn() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, now) = (LogDir::new(dir.path()), UNIX_EPOCH + NOW);
        let most = OUTPUTS_MAX as u64;
        for job in 1..=most + 2 {
            write(&logs, job, now - 61 * DAY);
        }
        let old = OldOutput::default();
        assert_eq!(old.next(&logs, now).unwrap(), (1..=most).collect::<Vec<_>>());
        assert_eq!(old.next(&logs, now).unwrap(), [most + 1, most + 2]);
        assert_eq!(old.next(&logs, now).unwrap().len(), OUTPUTS_MAX, "from the beginning again");
    }
}
