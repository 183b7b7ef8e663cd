//! Turns as columns of a row, for all stores with a database.

use crate::codes::{int, time};
use windlass_core::queues::{Charge, ClockOf, QueueTurn, TurnClock};

/// The band in the key of the clock of a queue's users.
const USERS: i64 = -1;
const WAITS: i64 = 1;
const PASSED: i64 = 2;
const EXPRESS: i64 = 4;
/// Bits of virtual time after the point.
const FRACTION_BITS: u32 = 56;

/// Virtual time as whole units and the part of one. Values beyond the range of a column are clamped.
fn split(virtual_time: i128) -> (i64, i64) {
    let whole = (virtual_time >> FRACTION_BITS).clamp(i64::MIN.into(), i64::MAX.into());
    (whole as i64, (virtual_time & ((1 << FRACTION_BITS) - 1)) as i64)
}

/// The virtual time of two columns.
pub fn join(whole: i64, fraction: i64) -> i128 {
    (i128::from(whole) << FRACTION_BITS) + i128::from(fraction)
}

fn flags(turn: &QueueTurn) -> i64 {
    let QueueTurn { waits, passed, express, .. } = *turn;
    i64::from(waits) * WAITS + i64::from(passed) * PASSED + i64::from(express) * EXPRESS
}

/// Whether a queue waits, was passed over, and may have its first task out of turn.
pub fn from_flags(flags: i64) -> (bool, bool, bool) {
    (flags & WAITS != 0, flags & PASSED != 0, flags & EXPRESS != 0)
}

/// The columns of a turn from `band` on.
pub fn numbers(turn: &QueueTurn) -> [i64; 11] {
    let (start, frac) = split(turn.start);
    [
        i64::from(turn.band),
        start,
        frac,
        i64::from(turn.rest),
        i64::from(turn.weight),
        int(turn.task),
        int(turn.since),
        flags(turn),
        int(turn.ahead),
        int(turn.rate),
        time(turn.at),
    ]
}

/// The columns of a clock from `time` on.
pub fn clock_numbers(clock: &TurnClock) -> [i64; 4] {
    let (whole, frac) = split(clock.virtual_time);
    [whole, frac, i64::from(clock.express_in), i64::from(clock.charge == Charge::Task)]
}

/// The key of a clock: its band, and for a clock of users their queue.
pub fn clock_key(of: &ClockOf) -> (i64, &str) {
    match of {
        ClockOf::Band(band) => (i64::from(*band), ""),
        ClockOf::Users(queue) => (USERS, queue),
    }
}

pub fn clock_of(band: i64, queue: &str) -> ClockOf {
    match band {
        USERS => ClockOf::Users(queue.to_owned()),
        band => ClockOf::Band(band.clamp(0, u8::MAX.into()) as u8),
    }
}

pub fn from_charge(number: i64) -> Charge {
    if number == 1 { Charge::Task } else { Charge::Time }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_fits_two_columns() {
        for time in [0, 1, -1, 1 << 56, -(1 << 56), (1 << 56) - 1, (1_i128 << 110) + 7, -(1_i128 << 110) - 7]
        {
            let (whole, fraction) = split(time);
            assert_eq!(join(whole, fraction), time);
            assert!((0..1 << 56).contains(&fraction));
        }
        assert_eq!(split(i128::MAX).0, i64::MAX);
    }
}
