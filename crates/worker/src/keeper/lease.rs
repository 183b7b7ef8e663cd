//! The lease: the time until which the keeper may let tasks run without word from the server.
//!
//! Its clock goes on while the machine sleeps, so a machine that wakes up after the end of its lease ends its tasks
//! before it does anything else. The keeper's loop polls the timer, starts tasks only while the lease holds, and
//! fences once when it has run out. The agent sends each renewal; this module renews nothing.

use super::log::write_line;
use crate::clock::boot_ns;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The lease. It never ends until the agent sets an end, because the keeper of a server's own machine needs none.
pub struct Lease {
    until: Option<u64>,
    fenced: bool,
    timer: OwnedFd,
}

impl Lease {
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Lease { until: None, fenced: false, timer: timerfd_create(TimerfdClockId::Boottime, flags)? })
    }

    /// Sets the end, in nanoseconds since boot; `None` is never. An end before the current one is ignored,
    /// because renewals may arrive out of order.
    pub fn set(&mut self, until: Option<u64>) {
        self.until = match (self.until, until) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (_, now) => now,
        };
        self.fenced = self.fenced && !self.holds();
        // After fencing the timer is disarmed, because an expired timer would stay readable.
        let at = self.until.filter(|_| !self.fenced).unwrap_or(0);
        let (tv_sec, tv_nsec) = ((at / 1_000_000_000) as i64, (at % 1_000_000_000) as i64);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval: zero, it_value: Timespec { tv_sec, tv_nsec } };
        if let Err(e) = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timer) {
            write_line(format_args!("cannot set the lease's timer: {e}"));
        }
    }

    /// The end, in nanoseconds since boot; `None` is never.
    pub fn until(&self) -> Option<u64> {
        self.until
    }

    /// Whether tasks may start.
    pub fn holds(&self) -> bool {
        self.until.is_none_or(|until| boot_ns() < until)
    }

    /// How long ago the lease ran out, in milliseconds; 0 while it holds.
    pub fn over_ms(&self) -> u64 {
        self.until.map_or(0, |until| boot_ns().saturating_sub(until) / 1_000_000)
    }

    /// True once, when the lease has run out and all tasks must end.
    pub fn ran_out(&mut self) -> bool {
        let ran_out = !self.fenced && !self.holds();
        if ran_out {
            self.fenced = true;
            // An expired timer stays readable until it is read.
            _ = rustix::io::read(self.timer.as_fd(), &mut [0; 8]);
        }
        ran_out
    }

    /// Readable when the lease runs out.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
