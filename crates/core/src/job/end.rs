//! How attempts end.

use crate::time::Time;

/// How an attempt ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The command exited by itself.
    Exited(i32),
    /// A signal that we did not send ended it.
    Signaled(i32),
    /// Killed at its time limit.
    TimeLimit,
    /// Killed at its memory limit; or its worker's memory was short, and the kernel killed one of its processes.
    OutOfMemory,
    /// Killed because the job was cancelled.
    Canceled,
    /// Given back before it started.
    Recalled,
    /// The command could not be started.
    NotStarted {
        /// Why, such as the operating system's reason.
        why: String,
        /// Whose fault that is. Not stored.
        fault: LaunchFault,
    },
    /// Its worker is gone and the end of its processes is confirmed.
    Lost,
    /// The command succeeded, and what was to be kept of its directory could not be kept.
    OutputsLost {
        /// Why, in the worker's words.
        why: String,
        /// Whose fault that is. Not stored.
        fault: LaunchFault,
    },
}

/// Whose fault it is that a command could not be started, or that its outputs could not be kept, as the report of such an
/// end says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaunchFault {
    /// The job's: it asked for a directory or a program that is missing, or for a kind of worker that cannot run it, or
    /// its outputs are more than may be kept. That says nothing of the worker.
    Job,
    /// The worker's. One on which nothing starts is left out after a few attempts, also if one user submitted all of them.
    /// Where outputs could not be kept, it may be another's, and the task is run again.
    Worker,
    /// Nobody says. It counts as a task that failed: the worker is left out where different jobs fail there that succeed
    /// elsewhere.
    Unknown,
}

impl End {
    /// The command could not be started, by the fault of its job.
    pub fn refused(why: impl Into<String>) -> End {
        End::NotStarted { why: why.into(), fault: LaunchFault::Job }
    }

    /// True of an end that is not the task's doing: it is run again, which spends no retry, and its queue is charged for
    /// nothing.
    pub fn is_loss(&self) -> bool {
        matches!(self, End::Lost | End::OutputsLost { fault: LaunchFault::Worker, .. })
    }

    /// The exit code that stands for this end, as a shell would say it.
    pub fn exit_code(&self) -> i32 {
        match self {
            End::Exited(code) => *code,
            End::Signaled(signal) => 128 + signal,
            End::TimeLimit => 124,
            End::OutOfMemory => 137,
            End::Canceled | End::Recalled => 130,
            End::NotStarted { why, .. } if is_not_executable(why) => 126,
            End::NotStarted { .. } => 127,
            End::Lost | End::OutputsLost { .. } => 1,
        }
    }
}

/// Whether the program was there and could not be executed: it is of another machine, or its user may not execute
/// it. The worker's words, which end with the number of the error, are all that the store keeps of a start that failed.
fn is_not_executable(why: &str) -> bool {
    const ENOEXEC: &str = "(os error 8)";
    const EACCES: &str = "(os error 13)";
    const EISDIR: &str = "(os error 21)";
    why.starts_with("cannot start '") && [ENOEXEC, EACCES, EISDIR].iter().any(|code| why.ends_with(code))
}

/// What a worker reports of an attempt that ended. Unknown is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskResult {
    /// How the attempt ended.
    pub end: End,
    /// When the process started.
    pub started: Option<Time>,
    /// When its end was seen.
    pub finished: Option<Time>,
    /// Processor time in milliseconds, user and system, of the whole process tree.
    pub cpu_ms: Option<u64>,
    /// For how long tokens of its jobserver were given, in milliseconds: two tokens for a second are 2000. `None` of a
    /// task without a jobserver. Its queue is charged for it when it ends, and no store keeps it.
    pub token_cpu_ms: Option<u64>,
    /// Most bytes of memory held at one time.
    pub peak_memory: Option<u64>,
    /// Most bytes that one of its processes held; `None` of a task without a jobserver. The next task like it is booked
    /// by that, and no store keeps it.
    pub process_memory: Option<u64>,
    /// Bytes read from and written to disks.
    pub disk_bytes: Option<u64>,
    /// Bytes written to standard output.
    pub out_bytes: u64,
    /// Bytes written to standard error.
    pub err_bytes: u64,
    /// Why it failed, in the task's own words; or what it held where memory was short.
    pub message: Option<String>,
}

impl TaskResult {
    /// An end of which nothing else is known.
    pub fn bare(end: End) -> Self {
        TaskResult {
            end,
            started: None,
            finished: None,
            cpu_ms: None,
            token_cpu_ms: None,
            peak_memory: None,
            process_memory: None,
            disk_bytes: None,
            out_bytes: 0,
            err_bytes: 0,
            message: None,
        }
    }

    /// True if its worker's memory was short and the kernel killed a process of it, below the task's own `limit` in
    /// bytes; `None` of a task without one.
    pub fn is_short_of_memory(&self, limit: Option<u64>) -> bool {
        let is_below = |limit: u64| self.peak_memory.is_some_and(|peak| peak < limit);
        self.end == End::OutOfMemory && limit.is_none_or(is_below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_cannot_be_executed_ends_as_in_a_shell() {
        let code = |why| End::refused(why).exit_code();
        assert_eq!(code("cannot start './notes': Permission denied (os error 13)"), 126);
        assert_eq!(code("cannot start './arm': Exec format error (os error 8)"), 126);
        assert_eq!(code("cannot start './films': Is a directory (os error 21)"), 126);
        assert_eq!(code("cannot start './none': No such file or directory (os error 2)"), 127);
        assert_eq!(code("cannot enter the working directory '/root': Permission denied (os error 13)"), 127);
    }
}
