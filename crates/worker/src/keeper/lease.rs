//! How long the keeper may let tasks run without a word from the server.
//!
//! It counts on the clock that goes on while the machine sleeps: a machine that wakes up after its
//! lease ended ends its tasks before it does anything else.

use crate::clock::boot_ns;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The lease. Without a word of one it is for ever: a keeper beside its server needs none.
pub struct Lease {
    until: Option<u64>,
    fenced: bool,
    timer: OwnedFd,
}

impl Lease {
    /// For ever.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Lease { until: None, fenced: false, timer: timerfd_create(TimerfdClockId::Boottime, flags)? })
    }

    /// Until then; absent is for ever. An earlier end than before does not shorten it: grants may come
    /// out of order.
    pub fn set(&mut self, until: Option<u64>) {
        self.until = match (self.until, until) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (_, now) => now,
        };
        self.fenced = self.fenced && !self.holds();
        // What has ended was told: a timer that is past would be readable for ever.
        let at = self.until.filter(|_| !self.fenced).unwrap_or(0);
        let (tv_sec, tv_nsec) = ((at / 1_000_000_000) as i64, (at % 1_000_000_000) as i64);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval: zero, it_value: Timespec { tv_sec, tv_nsec } };
        if let Err(e) = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timer) {
            super::say(format_args!("cannot set the lease's timer: {e}"));
        }
    }

    /// Until when; absent is for ever.
    pub fn until(&self) -> Option<u64> {
        self.until
    }

    /// True while tasks may start.
    pub fn holds(&self) -> bool {
        self.until.is_none_or(|until| boot_ns() < until)
    }

    /// True once when it has ended: everything must end now.
    pub fn ran_out(&mut self) -> bool {
        let ran_out = !self.fenced && !self.holds();
        if ran_out {
            self.fenced = true;
            // Read, or it stays readable.
            _ = rustix::io::read(self.timer.as_fd(), &mut [0; 8]);
        }
        ran_out
    }

    /// Readable when it ends.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
