//! The engine's clock.
//!
//! Leases, turns and retention count on it, so it must not jump when an administrator sets the machine's clock. It goes
//! with the time since boot, which counts while the machine sleeps, and follows the wall clock slowly: never
//! back, and by so little that no lease ends before its worker's own measure of it.

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use windlass_core::Time;

/// To follow the wall clock it runs faster or slower than real time by at most 1/128. That is little beside the tenth
/// of a lease by which a worker ends its tasks early.
const FOLLOWS: u64 = 128;
/// By how much the clocks may differ before nothing is deleted for its age.
const TRUSTED: Duration = Duration::from_secs(3600);

/// The clock; all of the server share one.
pub struct Clock(Mutex<Follower>);

/// Where it was when it was read last, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Follower {
    shown: u64,
    boot: u64,
    wall: u64,
}

impl Clock {
    pub fn new() -> Self {
        let (boot, wall) = read();
        Clock(Mutex::new(Follower { shown: wall, boot, wall }))
    }

    pub fn now(&self) -> Time {
        let (boot, wall) = read();
        Time(self.0.lock().at(boot, wall))
    }

    /// Its time, if that is near the wall clock's; otherwise how far they are apart. Nobody knows then how old
    /// anything is.
    pub fn trusted(&self) -> Result<Time, Duration> {
        let now = self.now();
        let apart = self.0.lock().apart();
        if apart <= TRUSTED { Ok(now) } else { Err(apart) }
    }
}

impl Follower {
    fn at(&mut self, boot: u64, wall: u64) -> u64 {
        let passed = boot.saturating_sub(self.boot);
        let straight = self.shown + passed;
        let most = passed / FOLLOWS;
        self.shown = if wall >= straight {
            straight + (wall - straight).min(most)
        } else {
            straight - (straight - wall).min(most)
        };
        (self.boot, self.wall) = (self.boot.max(boot), wall);
        self.shown
    }

    fn apart(&self) -> Duration {
        Duration::from_nanos(self.wall.abs_diff(self.shown))
    }
}

/// Nanoseconds since boot, and since the Unix epoch.
fn read() -> (u64, u64) {
    let ns = |id| {
        let now = clock_gettime(id);
        u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + now.tv_nsec as u64
    };
    (ns(ClockId::Boottime), ns(ClockId::Realtime))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * S;
    const WALL: u64 = 20_000 * DAY;

    fn clock() -> Follower {
        Follower { shown: WALL, boot: 50 * S, wall: WALL }
    }

    #[test]
    fn it_goes_with_time_and_follows_small_corrections() {
        let mut clock = clock();
        assert_eq!(clock.at(60 * S, WALL + 10 * S), WALL + 10 * S);
        // The wall clock is set forward by half a second: that is caught up with in 64 s.
        assert_eq!(clock.at(124 * S, WALL + 74 * S + S / 2), WALL + 74 * S + S / 2);
        // And back by half a second.
        assert_eq!(clock.at(188 * S, WALL + 138 * S), WALL + 138 * S);
        assert_eq!(clock.apart(), Duration::ZERO);
    }

    #[test]
    fn a_machine_that_slept_is_on_time() {
        let mut clock = clock();
        assert_eq!(clock.at(650 * S, WALL + 600 * S), WALL + 600 * S);
    }

    #[test]
    fn whatever_is_set_it_never_jumps_or_goes_back() {
        let mut clock = clock();
        let (mut boot, mut before) = (50 * S, WALL);
        for wall in [WALL + 15 * DAY, WALL - DAY / 24, 0, u64::MAX, WALL] {
            for _ in 0..100 {
                boot += S;
                let now = clock.at(boot, wall);
                let went = now - before;
                assert!((S - S / FOLLOWS..=S + S / FOLLOWS).contains(&went), "{went} ns in a second");
                before = now;
            }
        }
    }

    #[test]
    fn while_the_clocks_are_apart_nothing_is_old() {
        let mut clock = clock();
        clock.at(51 * S, WALL + 15 * DAY);
        assert!(clock.apart() > TRUSTED);
        clock.at(52 * S, WALL + 2 * S);
        assert!(clock.apart() < TRUSTED);
        clock.at(53 * S, WALL - 3601 * S);
        assert!(clock.apart() > TRUSTED);
    }
}
