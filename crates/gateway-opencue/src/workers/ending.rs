//! What the end of a frame's task is to OpenCue.

use super::frame::REFUSED;
use windlass_api::{End, Task};
use windlass_cuebot::verdict::{EXIT_CLEARED, EXIT_HOST_DOWN, EXIT_MEMORY};

/// SIGKILL, with which a time limit ends a command at last.
const SIGNAL_KILL: i32 = 9;
/// What a shell adds to the number of the signal that ended a command.
const SHELL_SIGNAL: i32 = 128;
/// What RQD reports with a signal.
const EXIT_SIGNALED: i32 = 1;

/// What the end of a frame's task is to OpenCue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The command ran to its end, with the numbers that RQD reports.
    Ended { exit_status: i32, exit_signal: i32 },
    /// The command never ran, by the fault of the frame or its worker. The text says why.
    Refused(String),
    /// The frame waits again and spends no retry; the exit status that says why.
    Again(i32),
}

/// Translates the end of a task. Where the worker was lost, Windlass would run the task again there; instead the
/// frame waits for any host. The same holds for a cancelled task: either a client of OpenCue killed the frame, which
/// is in the tables already, or the gateway took it back.
pub(super) fn outcome(task: &Task) -> Outcome {
    let last = &task.attempt;
    if last.attempt > 1 {
        return Outcome::Again(EXIT_HOST_DOWN);
    }
    let code = last.exit_code.unwrap_or(EXIT_SIGNALED);
    match last.end {
        Some(End::Exited) if code == REFUSED && last.err_bytes > 0 => {
            Outcome::Refused(format!("its worker refused it; 'windlass logs {}' says why", task.id))
        }
        Some(End::Exited) => Outcome::Ended { exit_status: code, exit_signal: 0 },
        Some(End::Signal) => {
            Outcome::Ended { exit_status: EXIT_SIGNALED, exit_signal: (code - SHELL_SIGNAL).max(0) }
        }
        Some(End::TimeLimit) => Outcome::Ended { exit_status: EXIT_SIGNALED, exit_signal: SIGNAL_KILL },
        Some(End::Oom) => Outcome::Ended { exit_status: EXIT_MEMORY, exit_signal: 0 },
        Some(End::NotStarted) => Outcome::Refused(
            last.message.clone().unwrap_or_else(|| "its worker could not start it".to_owned()),
        ),
        Some(End::Lost | End::OutputsLost) => Outcome::Again(EXIT_HOST_DOWN),
        Some(End::Canceled | End::Recalled) | None => Outcome::Again(EXIT_CLEARED),
    }
}

/// Whole seconds that the command ran; 0 where that is not known.
pub(super) fn run_s(task: &Task) -> i32 {
    let (Some(began), Some(ended)) = (task.attempt.started_ms, task.attempt.finished_ms) else { return 0 };
    i32::try_from(ended.saturating_sub(began) / 1_000).unwrap_or(i32::MAX)
}

/// Most memory that it held, in KiB; 0 where that is not known, which the tables take for nothing new.
pub(super) fn max_rss_kib(task: &Task) -> i64 {
    task.attempt.peak_memory.map_or(0, |bytes| i64::try_from(bytes / 1_024).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::{Attempt, TaskState};

    fn task(attempt: Attempt) -> Task {
        Task {
            id: "7.0".to_owned(),
            job: 7,
            index: 0,
            step: "beauty".to_owned(),
            value: None,
            state: TaskState::Failed,
            progress: None,
            status: None,
            jobserver: None,
            expected_end_ms: None,
            attempt,
            failure: None,
            history: Vec::new(),
        }
    }

    fn first(end: End, exit_code: Option<i32>) -> Attempt {
        Attempt { attempt: 1, end: Some(end), exit_code, ..Attempt::default() }
    }

    #[test]
    fn each_end_is_what_rqd_would_report() {
        let ended = |exit_status, exit_signal| Outcome::Ended { exit_status, exit_signal };
        let refused = |why: &str| Outcome::Refused(why.to_owned());
        let said = Attempt { err_bytes: 40, ..first(End::Exited, Some(125)) };
        let absent =
            Attempt { message: Some("no such user".to_owned()), ..first(End::NotStarted, Some(127)) };
        let cases = [
            (first(End::Exited, Some(0)), ended(0, 0)),
            (first(End::Exited, Some(139)), ended(139, 0)),
            (first(End::Exited, Some(125)), ended(125, 0)),
            (said, refused("its worker refused it; 'windlass logs 7.0' says why")),
            (first(End::Signal, Some(139)), ended(1, 11)),
            (first(End::TimeLimit, Some(137)), ended(1, 9)),
            (first(End::Oom, Some(137)), ended(33, 0)),
            (absent, refused("no such user")),
            (first(End::Canceled, Some(143)), Outcome::Again(299)),
            (first(End::Recalled, None), Outcome::Again(299)),
            (first(End::Lost, None), Outcome::Again(399)),
            (first(End::OutputsLost, None), Outcome::Again(399)),
            (Attempt { attempt: 2, ..first(End::Exited, Some(0)) }, Outcome::Again(399)),
            (Attempt::default(), Outcome::Again(299)),
        ];
        for (attempt, expected) in cases {
            assert_eq!(outcome(&task(attempt.clone())), expected, "{attempt:?}");
        }
    }

    #[test]
    fn times_and_memory_are_in_the_units_of_the_tables() {
        let attempt = Attempt {
            started_ms: Some(1_000),
            finished_ms: Some(4_999),
            peak_memory: Some(5 << 20),
            ..first(End::Exited, Some(0))
        };
        assert_eq!((run_s(&task(attempt.clone())), max_rss_kib(&task(attempt))), (3, 5 << 10));
        assert_eq!((run_s(&task(Attempt::default())), max_rss_kib(&task(Attempt::default()))), (0, 0));
    }
}
