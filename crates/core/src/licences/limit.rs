//! Limits, such as licences: how many tasks may hold one at a time, over the farm or on each worker, and what follows when
//! fewer were left than counted.

use crate::bounds::{BACK_OFF_MS, BUSY_EXITS_MAX};
use crate::queues::BadSetting;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Exit codes that can say that a licence was busy: what a process can end with, but for success.
pub const BUSY_EXITS: RangeInclusive<i32> = 1..=255;

/// A limit as an administrator set it, and as a store keeps it under its name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limit {
    /// How many tasks may hold one at a time over the farm; `None` is any number.
    pub max: Option<u32>,
    /// How many on one worker; `None` is any number.
    pub per_worker: Option<u32>,
    /// How a task says that there was none for it; `None`: it does not.
    pub busy: Option<Busy>,
}

/// What is done when a task found no licence though one was booked for it: others use them too, and are not
/// counted here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Busy {
    /// Exit codes that say so. Such an attempt does not count as a failure, and its task is ready again.
    pub exits: BTreeSet<i32>,
    /// Milliseconds for which its step starts nothing then; twice as long each time in a row, up to
    /// [`BACK_OFF_FACTOR_MAX`](crate::bounds::BACK_OFF_FACTOR_MAX) times that.
    pub back_off_ms: u64,
}

impl Limit {
    /// `max` over the farm, without other bounds.
    pub fn of(max: u32) -> Self {
        Limit { max: Some(max), ..Limit::default() }
    }

    /// True if an attempt that ended with this code says that there was no licence for it.
    pub fn is_busy(&self, exit: i32) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.exits.contains(&exit))
    }

    /// Refuses what no limit can be.
    pub fn check(&self) -> Result<(), BadSetting> {
        if self == &Limit::default() {
            return Err(BadSetting::LimitsNothing);
        }
        if self.per_worker == Some(0) {
            return Err(BadSetting::PerWorker);
        }
        let Some(Busy { exits, back_off_ms }) = &self.busy else { return Ok(()) };
        if let Some(exit) = exits.iter().find(|exit| !BUSY_EXITS.contains(exit)) {
            return Err(BadSetting::BusyExit(*exit));
        }
        match exits.len() {
            0 => Err(BadSetting::BackOffAlone),
            n if n > BUSY_EXITS_MAX => Err(BadSetting::BusyExits(n)),
            _ if !BACK_OFF_MS.contains(back_off_ms) => Err(BadSetting::BackOff(*back_off_ms)),
            _ => Ok(()),
        }
    }
}
