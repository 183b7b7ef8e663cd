//! Signals of a turn's own process while its command runs. A handler notes them in a pipe, and `child` passes them on.
//!
//! Handlers, and not a blocked mask: a server that is started meanwhile inherits a mask and no handlers. Signals that the
//! caller ignored are left alone, so that the command ignores them as well.

use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

/// Signals that are passed on to the command.
const PASSED: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];
/// Signals that Rust's start and this program set for themselves.
const CHANGED: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGCHLD];
/// Bytes of a note in the pipe: the signal, whether the kernel sent it, and its sender.
const NOTE_BYTES: usize = 8;

/// Those of [`CHANGED`] that the caller ignored, as bits.
static IGNORED: AtomicU32 = AtomicU32::new(0);
/// The writing end of the pipe, and the process whose signals are noted.
static WRITER: AtomicI32 = AtomicI32::new(-1);
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Called by the program's start before Rust's, which ignores SIGPIPE whatever the caller had set.
#[used]
// SAFETY: the section holds functions, which are called once, one after the other.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_ignored;

extern "C" fn note_ignored() {
    for (place, signal) in CHANGED.into_iter().enumerate() {
        if is_ignored(signal) {
            IGNORED.fetch_or(1 << place, Ordering::Relaxed);
        }
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: an action of zeros is a valid one, and the call only fills it in.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Signals as the caller of this program had them. It is put back in the child between fork and exec.
#[derive(Clone, Copy)]
pub struct CallerSignals {
    mask: libc::sigset_t,
}

impl CallerSignals {
    /// What holds now, which the caller set. From now on this thread hears of its children, whatever the caller blocked.
    pub fn take() -> CallerSignals {
        // SAFETY: a set of zeros is a valid one, and the calls fill both in.
        unsafe {
            let (mut children, mut mask) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&raw mut children);
            libc::sigaddset(&raw mut children, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const children, &raw mut mask);
            CallerSignals { mask }
        }
    }

    /// Puts them back. It only makes system calls.
    pub fn put_back(&self) {
        let ignored = IGNORED.load(Ordering::Relaxed);
        for (place, signal) in CHANGED.into_iter().enumerate() {
            if ignored & (1 << place) != 0 {
                // SAFETY: no handler is installed.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
        }
        // SAFETY: the mask is one that this system returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, null_mut()) };
    }
}

/// A signal that this process got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalNote {
    /// Its number in this system.
    pub signal: libc::c_int,
    /// True if the kernel sent it, as for a key of the terminal.
    pub is_from_kernel: bool,
    /// The process that sent it, if a process did.
    pub sender: libc::pid_t,
}

/// The signals of this process, from [`HeardSignals::begin`] until it is dropped.
pub struct HeardSignals {
    reader: Receiver,
    /// The handler writes to it.
    _writer: OwnedFd,
    caught: Vec<libc::c_int>,
}

impl HeardSignals {
    /// Notes signals from now on, those that the caller ignored excepted. One value at a time may exist.
    pub fn begin() -> io::Result<HeardSignals> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        OWNER.store(std::process::id().cast_signed(), Ordering::Relaxed);
        WRITER.store(writer.as_raw_fd(), Ordering::Relaxed);
        let mut heard =
            HeardSignals { reader: Receiver::from_owned_fd(reader)?, _writer: writer, caught: Vec::new() };
        for signal in PASSED.into_iter().chain([libc::SIGCHLD]) {
            if !is_ignored(signal) {
                catch(signal)?;
                heard.caught.push(signal);
            }
        }
        Ok(heard)
    }

    /// The next signal. Dropping the future loses none.
    pub async fn next(&mut self) -> io::Result<SignalNote> {
        // A note is written whole, and read whole.
        let mut note = [0; NOTE_BYTES];
        if self.reader.read(&mut note).await? < NOTE_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [signal, is_from_kernel, _, _, sender @ ..] = note;
        Ok(SignalNote {
            signal: signal.into(),
            is_from_kernel: is_from_kernel != 0,
            sender: libc::pid_t::from_ne_bytes(sender),
        })
    }
}

impl Drop for HeardSignals {
    fn drop(&mut self) {
        for signal in &self.caught {
            // SAFETY: it takes the handler away.
            unsafe { libc::signal(*signal, libc::SIG_DFL) };
        }
        WRITER.store(-1, Ordering::Relaxed);
    }
}

fn catch(signal: libc::c_int) -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = note_signal;
    // SAFETY: the handler only does what a handler may do, and an action of zeros is a valid one.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn note_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: each call may be made in a handler, the kernel fills `info` in, and errno is put back.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        if libc::getpid() == OWNER.load(Ordering::Relaxed) {
            let mut note = [0u8; NOTE_BYTES];
            note[0] = signal as u8;
            note[1] = u8::from((*info).si_code > 0);
            note[4..].copy_from_slice(&(*info).si_pid().to_ne_bytes());
            libc::write(WRITER.load(Ordering::Relaxed), note.as_ptr().cast(), NOTE_BYTES);
        } else {
            // The child before its exec: the signal was for the command that it becomes.
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        *errno = before;
    }
}
