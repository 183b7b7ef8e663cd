//! How long a running task takes, where earlier tasks like it took very different times.

use crate::engine::Engine;
use crate::ids::TaskId;
use crate::plan;
use crate::profiles::Profiles;
use crate::time::{NS_PER_MS, Time};
use std::collections::BTreeMap;

/// The lengths of a profile are spread where the long ones are at least this many times as long as the short ones, and
/// this many milliseconds longer.
const SPREAD_FACTOR: u64 = 2;
const SPREAD_MS: u64 = 1_000;
/// The short length has one in this number of samples below it, and the long one as many above it. Few samples have
/// none there.
const TAIL_PART: usize = 10;

/// The length that a forecast assumes of each task of a spread profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Length {
    Short,
    Mean,
    Long,
}

/// The expected ends of one forecast.
pub(super) struct Lengths<'a> {
    length: Length,
    /// What was known when the question was asked. The forecast teaches its own copy what it assumes.
    profiles: &'a Profiles,
    /// By profile, the milliseconds that earlier tasks took, shortest first; none of a profile that is not spread.
    spread: BTreeMap<u64, Vec<u64>>,
    rests_on_spread: bool,
}

impl<'a> Lengths<'a> {
    pub(super) fn new(length: Length, profiles: &'a Profiles) -> Lengths<'a> {
        Lengths { length, profiles, spread: BTreeMap::new(), rests_on_spread: false }
    }

    /// True if some end that was asked for would be another one with another [`Length`].
    pub(super) fn rests_on_spread(&self) -> bool {
        self.rests_on_spread
    }

    /// When a task that has started is expected to end; `None` if nothing tells.
    pub(super) fn ends_at(&mut self, engine: &Engine, task: TaskId) -> Option<Time> {
        self.spread_end(engine, task).or_else(|| plan::ends_at(engine, task))
    }

    /// The end of a task of which only a spread profile tells. Tasks that took less than it has run already do not
    /// count.
    fn spread_end(&mut self, engine: &Engine, task: TaskId) -> Option<Time> {
        let (attempt, job) = (engine.attempt(task)?, engine.job(task.job)?);
        let number = usize::from(job.step_of(task.index));
        let step = job.steps.get(number)?;
        // Its own step tells more. The length of a process of several tasks is another one than that of a task.
        if step.mean_ms.is_some() || attempt.last > task.index {
            return None;
        }
        let lengths_ms = || spread_only(self.profiles.lengths_ms(step.profile));
        let all_ms = self.spread.entry(step.profile).or_insert_with(lengths_ms);
        let began = attempt.started.unwrap_or(attempt.booked);
        let ran_ms = engine.planner().now().since(began) / NS_PER_MS;
        let longer_ms = &all_ms[all_ms.partition_point(|ms| *ms <= ran_ms)..];
        let (short_ms, long_ms) = tails(longer_ms)?;
        let expected_ms = match self.length {
            Length::Short => short_ms as f64,
            Length::Mean => longer_ms.iter().sum::<u64>() as f64 / longer_ms.len() as f64,
            Length::Long => long_ms as f64,
        };
        self.rests_on_spread |= short_ms < long_ms;
        let expected_ms = plan::within_limit(Some(expected_ms), job.spec.steps[number].time_limit_ms)?;
        Some(began.after((expected_ms * NS_PER_MS as f64) as u64))
    }
}

/// The lengths, if they are spread.
fn spread_only(lengths_ms: Vec<u64>) -> Vec<u64> {
    let is_spread = tails(&lengths_ms).is_some_and(|(short, long)| {
        long >= short.saturating_mul(SPREAD_FACTOR) && long - short >= SPREAD_MS
    });
    if is_spread { lengths_ms } else { Vec::new() }
}

/// A short and a long one of lengths in order; `None` if there are none.
fn tails(lengths_ms: &[u64]) -> Option<(u64, u64)> {
    let last = lengths_ms.len().checked_sub(1)?;
    Some((lengths_ms[last / TAIL_PART], lengths_ms[last - last / TAIL_PART]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_spread_that_differ_by_a_factor_and_by_a_second() {
        let is_spread = |lengths_ms: &[u64]| !spread_only(lengths_ms.to_vec()).is_empty();
        assert!(is_spread(&[4_000, 30_000]));
        assert!(!is_spread(&[]) && !is_spread(&[4_000]));
        assert!(!is_spread(&[20_000, 30_000]), "less than twice as long");
        assert!(!is_spread(&[10, 900]), "less than a second longer");
        let mut mostly: Vec<u64> = vec![10_000; 20];
        mostly.push(90_000);
        assert!(!is_spread(&mostly), "one of 21 says little");
        mostly.extend([90_000; 4]);
        assert!(is_spread(&mostly));
    }
}
