//! The fuse of a lease: a process outside of the keeper's namespace, its parent, that ends it with all tasks if it does not
//! end them itself when its lease is over. A keeper that is stopped cannot (SIGSTOP, a debugger), and the agent, which
//! watches over it, may be stopped as well. So may the fuse. It therefore does not wait itself: it sets a timer of the
//! kernel that kills the fuse, stopped or not, and the kernel kills the keeper when its parent ends.
//!
//! The keeper tells the end of its lease through a pipe whenever that changes, and once it has ended its tasks. Where the
//! kernel refuses namespaces there is no lease, and no fuse.

use crate::clock::boot_ns;
use crate::kept::KeptFile;
use crate::process;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

/// How long a keeper may take to end its tasks at the end of its lease before the fuse does, in nanoseconds. An agent that
/// lives acts before, and says so. With leases of 30 s and more it is less than the tenth that the server leaves for that.
const GRACE_NS: u64 = 3_000_000_000;

/// The keeper's end of its fuse.
#[derive(Serialize, Deserialize)]
pub struct Fuse(KeptFile);

/// A pipe from a keeper to its fuse. Neither end blocks the keeper.
pub fn fuse_pipe() -> io::Result<(OwnedFd, Fuse)> {
    let (renewals, says) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&says, OFlags::NONBLOCK)?;
    Ok((renewals, Fuse(KeptFile(File::from(says)))))
}

impl Fuse {
    /// Lets the keeper end with its parent. Its parent must wait for it meanwhile.
    pub fn tie(&self) -> io::Result<()> {
        Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
    }

    /// Tells the end of the lease, in nanoseconds since boot; `None` if there is nothing to end.
    pub fn set(&self, until: Option<u64>) {
        // If the fuse was stopped for thousands of renewals the pipe is full, and its timer runs.
        _ = rustix::io::write(self.0.0.as_fd(), &until.unwrap_or(0).to_le_bytes());
    }
}

/// Is the fuse of a child, the keeper, until that has ended.
pub fn watch(renewals: &OwnedFd, keeper: i32) -> ! {
    settle(renewals);
    let timer = make_timer();
    loop {
        let mut said = [0_u8; 8];
        match rustix::io::read(renewals, &mut said) {
            Ok(bytes) if bytes == said.len() => set_timer(timer, u64::from_le_bytes(said)),
            Err(Errno::INTR) => {}
            // The keeper has ended, or has become an earlier program, which has no fuse.
            _ => break,
        }
    }
    set_timer(timer, 0);
    // The end of this process would end a keeper that lives.
    process::wait_for(keeper);
    // SAFETY: ends this process without running any code of the keeper's.
    unsafe { libc::_exit(0) }
}

/// Makes the new process independent of the agent: of its terminal, directory, files and signals. What ends it, ends the
/// keeper.
fn settle(renewals: &OwnedFd) {
    _ = rustix::process::setsid();
    _ = std::env::set_current_dir("/");
    process::keep_only(renewals.as_fd());
    process::ignore_signals();
    // The name that tools show; it has at most 15 bytes.
    // SAFETY: the name ends with NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"windlass-fuse".as_ptr()) };
}

/// A timer whose end kills this process; `None` if the kernel has none.
fn make_timer() -> Option<c_int> {
    let mut timer: c_int = 0;
    // SAFETY: all zeros are a valid sigevent, the kernel reads it, and it writes the timer's number. Its clock stands still
    // while the machine sleeps: a keeper that wakes up then ends its tasks by itself.
    let made = unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, libc::SIGKILL);
        libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw const event, &raw mut timer)
    };
    (made == 0).then_some(timer)
}

/// Sets the timer for the end of a lease, in nanoseconds since boot; 0 stops it.
fn set_timer(timer: Option<c_int>, until: u64) {
    let Some(timer) = timer else { return };
    let left = if until == 0 { 0 } else { until.saturating_sub(boot_ns()).saturating_add(GRACE_NS) };
    // SAFETY: all zeros are a valid itimerspec, and the kernel reads it.
    unsafe {
        let mut value: libc::itimerspec = std::mem::zeroed();
        value.it_value.tv_sec = (left / 1_000_000_000) as libc::time_t;
        value.it_value.tv_nsec = (left % 1_000_000_000) as libc::c_long;
        libc::syscall(
            libc::SYS_timer_settime,
            timer,
            0,
            &raw const value,
            std::ptr::null::<libc::itimerspec>(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::kill;
    use std::io::Read as _;

    /// A fuse, and a keeper that only waits; the keeper's end of the pipe, that of the fuse, and one that ends with the keeper.
    fn fuse_with_keeper() -> (i32, i32, Fuse, OwnedFd, File) {
        let (renewals, fuse) = fuse_pipe().unwrap();
        let (lives, alive) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        // SAFETY: the children use nothing of other threads.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: as above.
                let keeper = unsafe { libc::fork() };
                if keeper == 0 {
                    _ = fuse.tie();
                    _ = rustix::io::write(&alive, &std::process::id().to_le_bytes());
                    loop {
                        // SAFETY: waits for a signal.
                        unsafe { libc::pause() };
                    }
                }
                drop(fuse);
                watch(&renewals, keeper)
            }
            watcher => {
                drop(alive);
                let mut lives = File::from(lives);
                let mut keeper = [0; 4];
                lives.read_exact(&mut keeper).unwrap();
                (watcher, i32::from_le_bytes(keeper), fuse, renewals, lives)
            }
        }
    }

    fn ended(pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: the status is valid storage.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }

    #[test]
    fn a_keeper_ends_with_its_lease_although_all_who_watch_are_stopped() {
        let (watcher, keeper, fuse, renewals, mut lives) = fuse_with_keeper();
        fuse.set(Some(boot_ns() + 100_000_000));
        // It has taken in the lease once nothing is left in the pipe and it sleeps again.
        let sleeps = || {
            let stat = std::fs::read_to_string(format!("/proc/{watcher}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
        };
        while rustix::io::ioctl_fionread(&renewals).unwrap() > 0 || !sleeps() {
            std::thread::yield_now();
        }
        for pid in [watcher, keeper] {
            process::signal(pid, Signal::STOP);
        }
        // Ends when the keeper does.
        assert_eq!(lives.read(&mut [0]).unwrap(), 0);
        assert_eq!(ended(watcher), libc::SIGKILL);
    }

    #[test]
    fn a_keeper_that_ended_its_tasks_or_renewed_its_lease_lives_and_its_fuse_ends_with_it() {
        let (watcher, keeper, fuse, _renewals, mut lives) = fuse_with_keeper();
        fuse.set(Some(boot_ns()));
        fuse.set(None);
        fuse.set(Some(boot_ns() + 3_600_000_000_000));
        fuse.set(Some(u64::MAX));
        kill(keeper);
        assert_eq!(lives.read(&mut [0]).unwrap(), 0);
        // The pipe's end, which an earlier program closes as well.
        drop(fuse);
        assert_eq!(ended(watcher), 0, "it was not killed");
    }
}
