//! The command of a turn as a child of this process, in its place: the same process group, terminal, descriptors and
//! environment.
//!
//! - The child is in the group of this process, so the terminal and the shell treat both as one: keys reach both, and a
//!   pipeline stays one job.
//! - A signal that was sent to this process alone is passed on to the child.
//! - When the child stops, this process stops; when this one goes on, the child does.
//! - When this process is killed, the kernel kills the child.

use crate::node::turn::signals::{CallerSignals, HeardSignals, SignalNote};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

/// How long the child has to have been stopped before this process stops. A shell that lets a job go on wakes its
/// processes one after the other, and this one must not stop again because it was the first.
const STOPPED_MIN: Duration = Duration::from_millis(20);

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChildEnd {
    /// As wait(2) tells it.
    pub status: libc::c_int,
    /// The most memory of one process among the child and those of its descendants that it waited for, or of all of them at
    /// one moment, where that was measured.
    pub peak_bytes: u64,
}

impl ChildEnd {
    /// The signal that ended it.
    pub fn signal(self) -> Option<libc::c_int> {
        libc::WIFSIGNALED(self.status).then(|| libc::WTERMSIG(self.status))
    }

    /// Its exit code, or the one that a shell reports instead.
    pub fn code(self) -> i32 {
        self.signal().map_or_else(|| libc::WEXITSTATUS(self.status), |signal| 128 + signal)
    }

    /// Ends this process as the child ended. Returns the exit code if no signal ended the child.
    pub fn repeat(self) -> i32 {
        if let Some(signal) = self.signal() {
            let none: libc::c_ulong = 0;
            // SAFETY: this thread gives itself the signal, and writes no second core.
            unsafe {
                libc::prctl(libc::PR_SET_DUMPABLE, none, none, none, none);
                libc::signal(signal, libc::SIG_DFL);
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, signal);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
                libc::raise(signal);
            }
        }
        self.code()
    }
}

/// The command with its environment; a variable without a value is taken away.
pub fn command_of(words: &[OsString], variables: &[(&str, Option<String>)]) -> Command {
    let (program, arguments) = words.split_first().expect("the parser demands a command");
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Makes this process the command. Returns only if that fails.
pub fn become_command(mut command: Command) -> io::Error {
    let caller = CallerSignals::take();
    let put_back = move || {
        caller.put_back();
        Ok(())
    };
    // SAFETY: the function makes system calls alone.
    unsafe { command.pre_exec(put_back) };
    command.exec()
}

/// A command that runs.
pub struct TurnChild {
    pid: libc::pid_t,
}

/// What became of the child since the last look.
enum ChildState {
    Runs,
    Stopped,
    Ended(ChildEnd),
}

impl TurnChild {
    /// Starts the command. The kernel kills it when this thread ends, which has to be the process's first.
    #[allow(clippy::zombie_processes, reason = "it is waited for by its number, together with what it used")]
    pub fn start(mut command: Command, caller: CallerSignals) -> io::Result<TurnChild> {
        let this = getpid();
        let prepare = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before.
            if getppid() != Some(this) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            caller.put_back();
            Ok(())
        };
        // SAFETY: between fork and exec the function makes system calls alone.
        unsafe { command.pre_exec(prepare) };
        Ok(TurnChild { pid: command.spawn()?.id().cast_signed() })
    }

    /// Its number among the processes of the machine.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Waits for its end, and passes signals on meanwhile.
    pub async fn ended(&self, heard: &mut HeardSignals) -> io::Result<ChildEnd> {
        loop {
            match self.look()? {
                ChildState::Ended(end) => return Ok(end),
                ChildState::Stopped => self.stop_too().await,
                ChildState::Runs => {
                    let note = heard.next().await?;
                    if note.signal != libc::SIGCHLD {
                        self.pass_on(note);
                    }
                }
            }
        }
    }

    fn look(&self) -> io::Result<ChildState> {
        loop {
            let mut status = 0;
            // SAFETY: a usage of zeros is a valid one, and the call fills both in.
            let (found, usage) = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                let options = libc::WNOHANG | libc::WUNTRACED;
                (libc::wait4(self.pid, &raw mut status, options, &raw mut usage), usage)
            };
            match found {
                0 => return Ok(ChildState::Runs),
                -1 => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                _ if libc::WIFSTOPPED(status) => return Ok(ChildState::Stopped),
                _ => {
                    let peak_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
                    return Ok(ChildState::Ended(ChildEnd { status, peak_bytes }));
                }
            }
        }
    }

    fn pass_on(&self, note: SignalNote) {
        // SAFETY: the child has not been waited for, so its number is still its own.
        unsafe {
            // A key of the terminal reaches each process of the group.
            let has_it = note.is_from_kernel && libc::getpgid(self.pid) == libc::getpgrp();
            // A command that signals its parent means no signal for itself.
            if !has_it && note.sender != self.pid {
                libc::kill(self.pid, note.signal);
            }
        }
    }

    /// Stops this process, so that its shell sees a stopped job. It goes on when that is continued, and the note of
    /// SIGCONT is passed on to the child.
    async fn stop_too(&self) {
        tokio::time::sleep(STOPPED_MIN).await;
        if self.is_stopped() {
            // SAFETY: no memory is touched.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The program's name in parentheses may hold anything.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_the_code_of_a_shell() {
        let of = |status| ChildEnd { status, peak_bytes: 0 };
        assert_eq!((of(0).code(), of(0).signal()), (0, None));
        assert_eq!((of(3 << 8).code(), of(3 << 8).signal()), (3, None));
        assert_eq!((of(9).code(), of(9).signal()), (137, Some(9)));
        assert_eq!((of(6 | 0x80).code(), of(6 | 0x80).signal()), (134, Some(6)), "with a core");
        assert_eq!(of(5 << 8).repeat(), 5);
    }
}
