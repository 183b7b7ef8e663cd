//! Questions about this machine that may never be answered: a driver is stuck, or a user database or a file server is
//! gone. [`run_within`] asks a program, and ends it when its time is over. [`Late`] asks on another thread, and the
//! asker goes on without the answer. `detect` and `doctor` ask so, and the program's own checks.

use crate::process;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that a program may answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest interval between two looks whether a program has ended. Its end is seen at once where it closes its output.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Interval between two looks at a program that has closed its output.
const END_POLL: Duration = Duration::from_millis(2);

/// Why a program gave no answer.
#[allow(missing_docs, reason = "the texts of the errors show what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    #[error("it cannot be run")]
    Start(#[source] io::Error),
    #[error("its answer cannot be read")]
    Read(#[source] io::Error),
    #[error("it answers more than {ANSWER_BYTES_MAX} bytes")]
    Long,
    #[error("it has not answered within {} s", .0.as_secs())]
    Late(Duration),
    /// How it ended, and what it said until then.
    #[error("it ends with {0}")]
    Failed(ExitStatus, Vec<u8>),
}

/// An answer that may come late, or never. Clones share it.
#[derive(Clone, Debug)]
pub struct Late<T>(Arc<LateAnswer<T>>);

#[derive(Debug)]
struct LateAnswer<T> {
    answer: Mutex<Option<T>>,
    came: Condvar,
}

impl<T: Clone + Send + 'static> Late<T> {
    /// Asks on a thread of its own, which is left behind if the question never returns.
    pub fn ask(question: impl FnOnce() -> T + Send + 'static) -> Late<T> {
        let late = Late(Arc::new(LateAnswer { answer: Mutex::new(None), came: Condvar::new() }));
        let told = late.clone();
        let asked = thread::Builder::new().name("question".to_owned()).spawn(move || {
            let answer = question();
            *told.0.answer.lock() = Some(answer);
            told.0.came.notify_all();
        });
        if let Err(e) = asked {
            tracing::warn!("cannot start a thread that looks at this machine: {e}");
        }
        late
    }

    /// The answer, as soon as it is there; `None` if it takes longer than `wait`.
    pub fn within(&self, wait: Duration) -> Option<T> {
        let mut answer = self.0.answer.lock();
        self.0.came.wait_while_for(&mut answer, |answer| answer.is_none(), wait);
        answer.clone()
    }
}

/// Standard output of a program that succeeds within that time. A program that takes longer is killed with its process
/// group, and so is one whose asker ends. Its standard input and standard error lead nowhere.
///
/// # Errors
/// If it cannot be run, fails, says too much or takes too long.
pub fn run_within(command: &mut Command, within: Duration) -> Result<Vec<u8>, NoAnswer> {
    let until = Instant::now() + within;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let die_with_asker = || set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from);
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(die_with_asker) };
    let mut child = command.spawn().map_err(NoAnswer::Start)?;
    let answer = hear(&mut child, until, within);
    if answer.is_err() {
        abandon(child);
    }
    answer
}

/// What the program says until it has ended.
fn hear(child: &mut Child, until: Instant, within: Duration) -> Result<Vec<u8>, NoAnswer> {
    let mut stdout = child.stdout.take().expect("its output is piped");
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NoAnswer::Late(within));
        }
        // What it wrote before its end is there once its end is seen.
        let has_ended = child.try_wait().map_err(NoAnswer::Read)?.is_some();
        let wait = if has_ended { Duration::ZERO } else { left.min(LOOK_EVERY) };
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        if poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&wait)).is_ok_and(|ready| ready > 0) {
            match stdout.read(&mut buffer).map_err(NoAnswer::Read)? {
                0 => break,
                n => said.extend_from_slice(&buffer[..n]),
            }
            if said.len() > ANSWER_BYTES_MAX {
                return Err(NoAnswer::Long);
            }
        } else if has_ended {
            // A process that it left behind keeps the pipe open.
            break;
        }
    }
    loop {
        match child.try_wait().map_err(NoAnswer::Read)? {
            Some(status) if status.success() => return Ok(said),
            Some(status) => return Err(NoAnswer::Failed(status, said)),
            None if Instant::now() >= until => return Err(NoAnswer::Late(within)),
            None => thread::sleep(END_POLL),
        }
    }
}

/// Kills a program that gave no answer. One that is stuck in the kernel ends when the kernel lets go of it, and is
/// collected then.
fn abandon(mut child: Child) {
    if matches!(child.try_wait(), Ok(None)) {
        // It is not collected, so the number is still that of its group.
        process::signal_group(child.id() as i32, Signal::KILL);
        _ = thread::Builder::new().name("question".to_owned()).spawn(move || child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any machine needs, where a test waits for an answer that comes.
    const AMPLE: Duration = Duration::from_secs(60);

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_answer_that_comes_in_time_is_told_whole() {
        assert_eq!(run_within(&mut sh("echo a; echo b"), AMPLE).unwrap(), b"a\nb\n");
        let long = run_within(&mut sh("head -c 200000 /dev/zero"), AMPLE).unwrap();
        assert_eq!(long.len(), 200_000);
        let Err(NoAnswer::Failed(_, said)) = run_within(&mut sh("echo a; exit 3"), AMPLE) else { panic!() };
        assert_eq!(said, b"a\n");
        let absent = run_within(&mut Command::new("/nonexistent/program"), AMPLE);
        assert!(matches!(absent, Err(NoAnswer::Start(_))));
        assert!(matches!(run_within(&mut sh("cat /dev/zero"), AMPLE), Err(NoAnswer::Long)));
    }

    #[test]
    fn a_program_that_does_not_answer_holds_up_nothing_and_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        // The shell and its child are one group. The child keeps the pipe open.
        let at = path.display();
        let script = format!("sleep 600 & echo $! > {at}.new; mv {at}.new {at}; wait");
        let began = Instant::now();
        let late = loop {
            let late = run_within(&mut sh(&script), Duration::from_millis(300));
            if path.exists() {
                break late;
            }
        };
        assert!(matches!(late, Err(NoAnswer::Late(_))) && began.elapsed() < AMPLE);
        let sleep: i32 = std::fs::read_to_string(&path).unwrap().trim().parse().unwrap();
        let deadline = Instant::now() + AMPLE;
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{sleep}/stat")).unwrap_or_default();
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
        };
        while is_alive() {
            assert!(Instant::now() < deadline, "its group is not killed");
            thread::yield_now();
        }
    }

    #[test]
    fn a_process_that_the_program_leaves_behind_is_not_waited_for() {
        assert_eq!(run_within(&mut sh("sleep 30 & echo up"), AMPLE).unwrap(), b"up\n");
    }

    #[test]
    fn a_late_answer_is_told_when_it_comes() {
        let (answer, question) = std::sync::mpsc::channel();
        let late = Late::ask(move || question.recv().unwrap());
        assert_eq!(late.within(Duration::from_millis(1)), None::<u32>);
        answer.send(7).unwrap();
        assert_eq!([late.within(AMPLE), late.clone().within(Duration::ZERO)], [Some(7); 2]);
    }
}
