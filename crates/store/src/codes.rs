//! Numbers that stand for states and ends in SQL. Both databases convert with them. They are part of the
//! schema, so a number never changes its meaning.

use windlass_core::job::{End, JobState, LaunchFault, Stop, TaskResult, TaskState};
use windlass_core::worker::WorkerState;
use windlass_core::{JobId, Time};

/// The integers of both databases are signed. The cast is undone by the same cast when the number is read.
pub fn int(n: u64) -> i64 {
    n as i64
}

/// A time in nanoseconds since the Unix epoch.
pub fn time(at: Time) -> i64 {
    int(at.0)
}

pub fn job_state(state: JobState) -> i64 {
    match state {
        JobState::Active => 0,
        JobState::Succeeded => 1,
        JobState::Failed => 2,
        JobState::Canceled => 3,
    }
}

/// `None` for a number that this version does not know.
pub fn job_state_from(code: i64) -> Option<JobState> {
    [JobState::Active, JobState::Succeeded, JobState::Failed, JobState::Canceled]
        .into_iter()
        .find(|state| job_state(*state) == code)
}

pub fn worker_state(state: WorkerState) -> i64 {
    match state {
        WorkerState::Up => 0,
        WorkerState::Draining => 1,
        WorkerState::Suspect => 2,
        WorkerState::Expired => 3,
        WorkerState::Forgotten => 4,
    }
}

/// `None` for a number that this version does not know.
pub fn worker_state_from(code: i64) -> Option<WorkerState> {
    [
        WorkerState::Up,
        WorkerState::Draining,
        WorkerState::Suspect,
        WorkerState::Expired,
        WorkerState::Forgotten,
    ]
    .into_iter()
    .find(|state| worker_state(*state) == code)
}

/// Negative for reasons without a job; else the number of the job that it came after.
pub fn stop(stop: Stop) -> i64 {
    match stop {
        Stop::Canceled => -1,
        Stop::FailFast => -2,
        Stop::After(job) => job.0 as i64,
    }
}

pub fn stop_from(code: i64) -> Stop {
    match code {
        -1 => Stop::Canceled,
        -2 => Stop::FailFast,
        job => Stop::After(JobId(job as u64)),
    }
}

/// `tasks.state` of a booked task.
pub const BOOKED: i64 = 1;
/// `tasks.state` of a task that is ready for another attempt.
pub const READY: i64 = 0;

/// `tasks.state` of a task that failed for good.
pub const FAILED: i64 = 3;

/// The number of a task's state. Only tasks that were booked have a row, so waiting tasks are never stored.
pub fn task_state(state: TaskState) -> i64 {
    match state {
        TaskState::Waiting | TaskState::Ready => READY,
        TaskState::Booked | TaskState::Running => BOOKED,
        TaskState::Succeeded => 2,
        TaskState::Failed => FAILED,
        TaskState::Canceled | TaskState::Skipped => 4,
    }
}

/// `None` for a number that this version does not know.
pub fn task_state_from(code: i64) -> Option<TaskState> {
    use TaskState::{Booked, Canceled, Failed, Ready, Succeeded};
    [Ready, Booked, Succeeded, Failed, Canceled].into_iter().find(|state| task_state(*state) == code)
}

/// An end as its number, its exit code or signal, and its reason.
pub fn end(end: &End) -> (i64, Option<i64>, Option<&str>) {
    match end {
        End::Exited(code) => (0, Some(i64::from(*code)), None),
        End::Signaled(signal) => (1, Some(i64::from(*signal)), None),
        End::TimeLimit => (2, None, None),
        End::OutOfMemory => (3, None, None),
        End::Canceled => (4, None, None),
        End::Recalled => (5, None, None),
        End::NotStarted { why, .. } => (6, None, Some(why)),
        End::Lost => (7, None, None),
        End::OutputsLost { why, .. } => (8, None, Some(why)),
    }
}

/// The start and the end, CPU time, peak of memory, bytes of output and of errors, and bytes on disk.
pub fn usage(result: &TaskResult) -> [Option<i64>; 7] {
    [
        result.started.map(time),
        result.finished.map(time),
        result.cpu_ms.map(int),
        result.peak_memory.map(int),
        Some(int(result.out_bytes)),
        Some(int(result.err_bytes)),
        result.disk_bytes.map(int),
    ]
}

/// The inverse of [`end`]; `None` for a number that this version does not know.
pub fn end_from(code: i64, number: Option<i64>, why: Option<String>) -> Option<End> {
    let number = number.and_then(|n| i32::try_from(n).ok());
    Some(match code {
        0 => End::Exited(number?),
        1 => End::Signaled(number?),
        2 => End::TimeLimit,
        3 => End::OutOfMemory,
        4 => End::Canceled,
        5 => End::Recalled,
        6 => End::NotStarted { why: why.unwrap_or_default(), fault: LaunchFault::Unknown },
        7 => End::Lost,
        8 => End::OutputsLost { why: why.unwrap_or_default(), fault: LaunchFault::Unknown },
        _ => return None,
    })
}
