//! Starting a process without waiting for it.
//!
//! Between fork and exec a process touches files that its user controls: its directory, the places in `PATH`, the
//! files of its session. Each access can take for ever, on a file server that is gone or because the user stops the
//! process. The process therefore reports through a pipe whether it became its program, and the keeper never waits.

use crate::launcher::Launcher;
use crate::mask::Mask;
use crate::process::{Command, JOBSERVER_FDS, Setup, SpawnError, Step, become_program, report_and_end};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// How long a process may take from fork to its program.
pub const LAUNCH_MAX: Duration = Duration::from_secs(10);
/// How long the keeper waits for a process to end before it looks at its report. A task that is shorter costs it one
/// wakeup instead of two. The start of a longer task is reported by this much later.
const REPORT_DELAY: Duration = Duration::from_millis(5);
/// Bytes that are read of a process's report.
const REPORT_BYTES_MAX: u64 = 4096;

/// A process that has not yet become its program, or not yet reported.
pub struct Launch {
    report: File,
    since: Instant,
    /// Its program and its working directory, for people.
    pub texts: (String, String),
}

/// How far a process is between fork and its program.
#[derive(Debug)]
pub enum LaunchState {
    /// It has not reported, and there is time.
    Under,
    /// The program runs, or the process was ended from outside.
    Done,
    /// It could not become its program, and is about to exit.
    Failed(SpawnError),
    /// It has not reported in time.
    Late,
}

impl Launch {
    /// Readable when the process has become its program, or failed to.
    pub fn report(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }

    /// From when on the keeper waits for the report of a process that has not ended.
    pub fn listen_from(&self) -> Instant {
        self.since + REPORT_DELAY
    }

    /// When something must be done about it: the report is listened for, or the process is late.
    pub fn next_deadline(&self, now: Instant) -> Instant {
        if now < self.listen_from() { self.listen_from() } else { self.due() }
    }

    /// When the process is late.
    pub fn due(&self) -> Instant {
        self.since + LAUNCH_MAX
    }

    /// Reads the report, without waiting.
    pub fn look(&mut self, now: Instant) -> LaunchState {
        let mut said = Vec::new();
        match (&self.report).take(REPORT_BYTES_MAX).read_to_end(&mut said) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && said.is_empty() => {
                if now < self.due() {
                    LaunchState::Under
                } else {
                    LaunchState::Late
                }
            }
            _ => match said[..] {
                [step, a, b, c, d, ..] => {
                    let step = Step::ALL.get(usize::from(step)).copied().unwrap_or(Step::Make);
                    LaunchState::Failed(SpawnError {
                        step,
                        source: io::Error::from_raw_os_error(i32::from_le_bytes([a, b, c, d])),
                    })
                }
                _ => LaunchState::Done,
            },
        }
    }
}

/// Starts the command in a session of its own, and does not wait for it. The launcher makes the process if it
/// can, else this process forks. `mask` is what the launcher's processes do not see.
pub fn spawn(
    command: &Command,
    setup: &Setup,
    launcher: Option<&Launcher>,
    mask: Option<&Mask>,
) -> Result<(i32, Launch), SpawnError> {
    let made = |source| SpawnError { step: Step::Make, source };
    let (report, say) = pipe().map_err(made)?;
    let launch =
        |report| Launch { report: File::from(report), since: Instant::now(), texts: command.texts() };
    if let Some(spawned) = launcher.and_then(|launcher| launcher.spawn(command, setup, say.as_fd())) {
        return spawned.map(|pid| (pid, launch(report)));
    }
    // SAFETY: this process has one thread, so its child may run any code.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => become_child(command, setup, mask, say.as_raw_fd()),
        pid if pid < 0 => Err(made(io::Error::last_os_error())),
        pid => Ok((pid, launch(report))),
    }
}

/// Turns a forked child into its program. If that fails, it reports the reason and exits.
fn become_child(command: &Command, setup: &Setup, mask: Option<&Mask>, report: RawFd) -> ! {
    // The task's own descriptors may take its number.
    let taken = setup.jobserver.is_some() && JOBSERVER_FDS.contains(&report);
    // SAFETY: this process inherited the descriptor and has not closed it.
    let report = match taken.then(|| fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(report) }, 64)) {
        Some(Ok(moved)) => moved.into_raw_fd(),
        Some(Err(error)) => report_and_end(report, (Step::Make, error)),
        None => report,
    };
    let failed = std::panic::catch_unwind(AssertUnwindSafe(|| match mask.map_or(Ok(()), Mask::enter) {
        Ok(()) => become_program(command, setup, &command.pointers()),
        Err(e) => (Step::Make, Errno::from_io_error(&e).unwrap_or(Errno::IO)),
    }));
    report_and_end(report, failed.unwrap_or((Step::Make, Errno::IO)))
}

/// A pipe that closes at exec and never blocks. What is written to it always fits.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
    Ok(rustix::pipe::pipe_with(flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::io::Write as _;

    #[test]
    fn a_task_inherits_the_ends_of_its_jobserver() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, said) = (dir.path().join("fifo"), dir.path().join("said"));
        mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let open = || File::options().read(true).write(true).open(&fifo).unwrap();
        let (mut keeper, to_read, to_write) = (open(), open(), open());
        let (null, out) = (File::open("/dev/null").unwrap(), File::create(&said).unwrap());
        let setup = Setup {
            null: null.as_raw_fd(),
            stdin: None,
            out: out.as_raw_fd(),
            err: out.as_raw_fd(),
            group: None,
            join: [None; 3],
            jobserver: Some([to_read.as_raw_fd(), to_write.as_raw_fd()]),
            data_limit: None,
            die_with: None,
        };
        let [read, write] = JOBSERVER_FDS;
        let script = format!("head -c 1 /dev/fd/{read}; printf back > /dev/fd/{write}");
        let argv = ["sh", "-c", &script].map(str::to_owned);
        let command = Command::new(&argv, [("PATH", "/bin:/usr/bin")].into_iter(), "/").unwrap();
        keeper.write_all(b"+").unwrap();
        let (pid, _launch) = spawn(&command, &setup, None, None).unwrap();
        let mut status = 0;
        // SAFETY: the status is valid storage.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!((status, std::fs::read_to_string(&said).unwrap().as_str()), (0, "+"));
        let mut back = [0; 4];
        keeper.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"back");
    }
}
