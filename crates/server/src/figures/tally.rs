//! What happened since the server started, counted where it happens.

use super::distribution::Distribution;
use std::collections::VecDeque;
use std::time::Duration;
use windlass_api::figures::Quantiles;
use windlass_core::engine::Fact;
use windlass_core::job::{End, TaskState};

/// Counts and times since the server started.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub started: u64,
    pub succeeded: u64,
    /// Attempts that failed, those that are tried again too.
    pub failed: u64,
    /// Tasks that were placed on a worker.
    pub placed: u64,
    /// Rounds that placed something.
    pub rounds: u64,
    /// Batches that the store did not take.
    pub store_failures: u64,
    /// From ready to placed.
    pub waits: Distribution,
    /// Of a round that placed something.
    pub round_times: Distribution,
    /// Of a batch until it was durable.
    pub commit_times: Distribution,
}

impl Tally {
    pub fn count(&mut self, facts: &[Fact]) {
        for fact in facts {
            match fact {
                Fact::Started { .. } => self.started += 1,
                Fact::Booked { waited_ns, .. } => {
                    self.placed += 1;
                    self.waits.add(Duration::from_nanos(*waited_ns));
                }
                Fact::Ended { state, result, .. } => match (state, &result.end) {
                    (TaskState::Succeeded, _) => self.succeeded += 1,
                    (_, End::Canceled | End::Recalled) => {}
                    _ => self.failed += 1,
                },
                Fact::Job { .. } | Fact::JobEnded { .. } | Fact::Late { .. } | Fact::Worker { .. } => {}
            }
        }
    }

    /// The difference to an `earlier` tally.
    pub fn since(&self, earlier: &Tally) -> Tally {
        Tally {
            started: self.started.saturating_sub(earlier.started),
            succeeded: self.succeeded.saturating_sub(earlier.succeeded),
            failed: self.failed.saturating_sub(earlier.failed),
            placed: self.placed.saturating_sub(earlier.placed),
            rounds: self.rounds.saturating_sub(earlier.rounds),
            store_failures: self.store_failures.saturating_sub(earlier.store_failures),
            waits: self.waits.since(&earlier.waits),
            round_times: self.round_times.since(&earlier.round_times),
            commit_times: self.commit_times.since(&earlier.commit_times),
        }
    }
}

impl Distribution {
    /// The two quantiles that people are shown, in milliseconds.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles { p50: self.quantile_ms(0.5), p95: self.quantile_ms(0.95) }
    }
}

/// The tally as it was at times of the last minutes.
#[derive(Debug)]
pub struct RecentTallies {
    /// Oldest first; never empty.
    past: VecDeque<(u64, Tally)>,
}

/// The tally of a stretch of time that ends now.
#[derive(Debug)]
pub struct Stretch {
    /// How long it is, in seconds; above 0.
    pub seconds: f64,
    /// What happened within the stretch.
    pub tally: Tally,
}

/// How far back it is known what happened, in milliseconds, and how many tallies that takes at most.
const PAST_MS: u64 = 300_000;
const PAST_MAX: usize = 64;
/// A shorter stretch is taken to be this long, so that a first event does not look like a rate of thousands a second.
const SECONDS_MIN: f64 = 1.0;

impl RecentTallies {
    pub fn new(now_ms: u64) -> Self {
        RecentTallies { past: VecDeque::from([(now_ms, Tally::default())]) }
    }

    /// Remembers how much happened until now.
    pub fn push(&mut self, now_ms: u64, tally: Tally) {
        // A clock that was set back: what is remembered lies in its future.
        self.past.retain(|(at, _)| *at <= now_ms);
        while self.past.len() >= PAST_MAX
            || self.past.get(1).is_some_and(|(at, _)| now_ms.saturating_sub(*at) >= PAST_MS)
        {
            self.past.pop_front();
        }
        self.past.push_back((now_ms, tally));
    }

    /// What happened in the last `ms` until now, when the tally is `tally`; in less where less is known.
    pub fn last(&self, ms: u64, now_ms: u64, tally: &Tally) -> Stretch {
        let from = now_ms.saturating_sub(ms);
        let begin = self.past.iter().rev().find(|(at, _)| *at <= from).or(self.past.front());
        let Some((at, earlier)) = begin else {
            return Stretch { seconds: SECONDS_MIN, tally: Tally::default() };
        };
        let seconds = now_ms.saturating_sub(*at) as f64 / 1e3;
        Stretch { seconds: seconds.max(SECONDS_MIN), tally: tally.since(earlier) }
    }
}

impl Stretch {
    /// How many of them there are in a second.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    /// How many of them there are in a minute. What was looked at for less than a minute is not multiplied: one attempt
    /// in the first second is one in this minute.
    pub fn per_minute(&self, count: u64) -> f64 {
        count as f64 * 60.0 / self.seconds.max(60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::job::TaskResult;
    use windlass_core::{JobId, TaskId};

    fn placed(placed: u64) -> Tally {
        Tally { placed, ..Tally::default() }
    }

    #[test]
    fn a_minute_is_counted_from_what_was_known_a_minute_ago() {
        let mut recent = RecentTallies::new(0);
        let now = recent.last(60_000, 100, &placed(3));
        assert_eq!((now.tally.placed, now.per_second(3), now.per_minute(3)), (3, 3.0, 3.0));
        for ten in 1..=40 {
            recent.push(ten * 10_000, placed(ten * 100));
        }
        let minute = recent.last(60_000, 400_000, &placed(4_000));
        assert_eq!((minute.seconds, minute.tally.placed, minute.per_minute(600)), (60.0, 600, 600.0));
        let five = recent.last(300_000, 405_000, &placed(4_050));
        assert_eq!((five.seconds, five.tally.placed), (305.0, 3_050));
        // More is not known, and not kept.
        assert!(recent.last(3_600_000, 405_000, &placed(4_050)).seconds < 320.0);
        assert!(recent.past.len() < 34);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_rate_of_the_future() {
        let mut recent = RecentTallies::new(1_000_000);
        recent.push(1_010_000, placed(10));
        recent.push(500_000, placed(20));
        let now = recent.last(60_000, 510_000, &placed(25));
        assert_eq!((now.seconds, now.tally.placed), (10.0, 5));
    }

    #[test]
    fn what_was_called_off_is_no_failure() {
        let task = TaskId { job: JobId(1), index: 0 };
        let ended = |state, end| Fact::Ended {
            task,
            attempt: 1,
            worker: windlass_core::WorkerId(1),
            cpu: 100,
            state,
            result: TaskResult::bare(end),
        };
        let mut tally = Tally::default();
        tally.count(&[
            ended(TaskState::Succeeded, End::Exited(0)),
            ended(TaskState::Ready, End::Exited(1)),
            ended(TaskState::Failed, End::OutOfMemory),
            ended(TaskState::Canceled, End::Canceled),
            ended(TaskState::Ready, End::Recalled),
        ]);
        assert_eq!((tally.succeeded, tally.failed), (1, 2));
    }
}
