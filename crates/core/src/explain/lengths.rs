//! How long a running task takes, where earlier tasks like it took very different times.
//!
//! - Tasks that still run count too, each as one that takes longer than it has run (Kaplan, Meier 1958). Of tasks that
//!   started together the short ones end first, so those that have ended are shorter than all.
//! - The tasks of a profile do not all take its mean: their lengths are spread as those of earlier ones, with the same
//!   mean. If they all took the mean, the first of many would end much too late.

use crate::engine::Engine;
use crate::ids::TaskId;
use crate::plan;
use crate::score::history::SAMPLES_MAX;
use crate::time::{NS_PER_MS, Time};
use std::collections::BTreeMap;

/// The lengths of a profile are spread where the long ones are at least this many times as long as the short ones, and
/// this many milliseconds longer.
const SPREAD_FACTOR: u64 = 2;
const SPREAD_MS: u64 = 1_000;
/// The short length has one in this number of samples below it, and the long one as many above it. Few samples have
/// none there.
const TAIL_PART: usize = 10;
/// The shares of tasks that take less than the short length, and than the long one.
const SHORT_SHARE: f64 = 0.1;
const LONG_SHARE: f64 = 0.9;
/// Parts into which the lengths of a profile are divided at most. A power of two.
const PARTS_MAX: u32 = 128;

/// The length that a forecast assumes of each task of a spread profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Length {
    Short,
    /// The mean of a part of the lengths; all parts together have the profile's mean.
    Mean,
    Long,
}

/// The expected ends of one forecast.
pub(super) struct Lengths<'a> {
    length: Length,
    /// As it was when the question was asked. The forecast teaches its own copy what it assumes.
    asked: &'a Engine,
    /// For how many milliseconds the tasks of each profile had run then, shortest first; `None` until it is needed.
    running_ms: Option<BTreeMap<u64, Vec<u64>>>,
    spread: BTreeMap<u64, SpreadLengths>,
    rests_on_spread: bool,
}

/// How long the tasks of a profile take.
struct SpreadLengths {
    /// Milliseconds that earlier tasks took, shortest first, each with the share of all tasks that take longer; none of
    /// a profile that is not spread.
    lengths: Vec<(u64, f64)>,
    /// Tasks that were given one of them.
    given: u32,
}

impl<'a> Lengths<'a> {
    pub(super) fn new(length: Length, asked: &'a Engine) -> Lengths<'a> {
        Lengths { length, asked, running_ms: None, spread: BTreeMap::new(), rests_on_spread: false }
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
        if !self.spread.contains_key(&step.profile) {
            let spread = self.spread_of(step.profile);
            self.spread.insert(step.profile, spread);
        }
        let spread = self.spread.get_mut(&step.profile)?;
        let began = attempt.started.unwrap_or(attempt.booked);
        let ran_ms = engine.planner().now().since(began) / NS_PER_MS;
        let longer = Longer::than(ran_ms, &spread.lengths)?;
        let (short_ms, long_ms) = (longer.length_at(SHORT_SHARE), longer.length_at(LONG_SHARE));
        let expected_ms = match self.length {
            Length::Short => short_ms as f64,
            Length::Mean => longer.mean_between(part_of(spread.given)),
            Length::Long => long_ms as f64,
        };
        spread.given = spread.given.saturating_add(1);
        self.rests_on_spread |= short_ms < long_ms;
        let expected_ms = plan::within_limit(Some(expected_ms), job.spec.steps[number].time_limit_ms)?;
        Some(began.after((expected_ms * NS_PER_MS as f64) as u64))
    }

    /// The lengths of a profile. Once samples of it were forgotten, those that run do not count: they would outnumber
    /// the few ended ones that are known, and all would seem longer than they are.
    fn spread_of(&mut self, profile: u64) -> SpreadLengths {
        let lengths_ms = spread_only(self.asked.profiles().lengths_ms(profile));
        if lengths_ms.is_empty() || lengths_ms.len() >= SAMPLES_MAX {
            return SpreadLengths { lengths: shares(&lengths_ms, &[]), given: 0 };
        }
        let asked = self.asked;
        let by_profile = self.running_ms.get_or_insert_with(|| running_ms(asked));
        let running_ms = by_profile.get(&profile).map_or(&[][..], Vec::as_slice);
        SpreadLengths { lengths: shares(&lengths_ms, running_ms), given: 0 }
    }
}

/// For how many milliseconds tasks have run, by profile, shortest first.
fn running_ms(engine: &Engine) -> BTreeMap<u64, Vec<u64>> {
    let now = engine.planner().now();
    let mut all: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (task, attempt) in engine.attempts() {
        let Some((job, began)) = engine.job(task.job).zip(attempt.started) else { continue };
        if attempt.rides || attempt.last > task.index {
            continue;
        }
        if let Some(step) = job.steps.get(usize::from(job.step_of(task.index))) {
            all.entry(step.profile).or_default().push(now.since(began) / NS_PER_MS);
        }
    }
    all.values_mut().for_each(|ran_ms| ran_ms.sort_unstable());
    all
}

/// The lengths of tasks that have ended, each with the share of all tasks that take longer. Others run, and take longer
/// than `running_ms`. Both are in order.
fn shares(ended_ms: &[u64], running_ms: &[u64]) -> Vec<(u64, f64)> {
    let mut longer = 1.0;
    let mut lengths = Vec::with_capacity(ended_ms.len());
    for (shorter, ms) in ended_ms.iter().enumerate() {
        let running = running_ms.len() - running_ms.partition_point(|ran_ms| ran_ms < ms);
        // At least this one itself lasted so long.
        let lasted = ended_ms.len() - shorter + running;
        longer *= 1.0 - 1.0 / lasted as f64;
        lengths.push((*ms, longer));
    }
    lengths
}

/// The lengths that a task may still have. Shares are of the tasks that take longer than it has run.
struct Longer<'a> {
    lengths: &'a [(u64, f64)],
    /// The share of all tasks that take longer than it has run; more than 0.
    share: f64,
    /// The length of those that take longer than all that have ended: twice as long, as tasks that are overdue.
    beyond_ms: u64,
}

impl<'a> Longer<'a> {
    /// `None` if no task that has ended took longer.
    fn than(ran_ms: u64, all: &'a [(u64, f64)]) -> Option<Longer<'a>> {
        let shorter = all.partition_point(|(ms, _)| *ms <= ran_ms);
        let lengths = &all[shorter..];
        let (longest_ms, _) = lengths.last()?;
        let share = shorter.checked_sub(1).map_or(1.0, |last| all[last].1);
        Some(Longer { lengths, share, beyond_ms: longest_ms.saturating_mul(2) })
    }

    /// The length below which this share of the tasks ends.
    fn length_at(&self, share: f64) -> u64 {
        let longer = self.share * (1.0 - share);
        let found = self.lengths.iter().find(|(_, left)| *left <= longer);
        found.map_or(self.beyond_ms, |(ms, _)| *ms)
    }

    /// The mean length of the tasks between these shares, in whole milliseconds.
    fn mean_between(&self, (from, to): (f64, f64)) -> f64 {
        let (top, bottom) = (self.share * (1.0 - from), self.share * (1.0 - to));
        let (mut above, mut sum, mut weight) = (self.share, 0.0, 0.0);
        for (ms, below) in self.lengths.iter().copied().chain([(self.beyond_ms, 0.0)]) {
            let within = above.min(top) - below.max(bottom);
            if within > 0.0 {
                sum += ms as f64 * within;
                weight += within;
            }
            above = below;
        }
        libm::round(sum / weight)
    }
}

/// The shares between which the length of the task of this number is, in the order in which tasks of a profile are given
/// one: the first is between those of all tasks, two are in the lower and the upper half, four in the quarters, and so
/// on. So a few tasks have the profile's mean together, and many end one after the other.
fn part_of(number: u32) -> (f64, f64) {
    let number = if number < 2 * PARTS_MAX - 1 { number } else { PARTS_MAX - 1 + number % PARTS_MAX };
    let level = (number + 1).ilog2();
    let parts = 1_u32 << level;
    // The digits backwards: neighbours are far apart.
    let place = (number + 1 - parts).reverse_bits().checked_shr(32 - level).unwrap_or(0);
    (f64::from(place) / f64::from(parts), f64::from(place + 1) / f64::from(parts))
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

    #[test]
    fn tasks_that_run_make_the_known_lengths_rarer() {
        // Ten started together: four have ended, and six have run for 40 s.
        let ended_ms = [10_000, 20_000, 30_000, 40_000];
        let near = |is: f64, wanted: f64| (is - wanted).abs() < 1e-9;
        let with = shares(&ended_ms, &[40_000; 6]);
        assert!(with.iter().zip([0.9, 0.8, 0.7, 0.6]).all(|((_, is), wanted)| near(*is, wanted)), "{with:?}");
        let without = shares(&ended_ms, &[]);
        let wanted = [0.75, 0.5, 0.25, 0.0];
        assert!(without.iter().zip(wanted).all(|((_, is), wanted)| near(*is, wanted)), "{without:?}");
        let longer = Longer::than(0, &with).unwrap();
        assert_eq!((longer.length_at(SHORT_SHARE), longer.length_at(LONG_SHARE)), (10_000, 80_000));
        assert_eq!(longer.mean_between((0.0, 1.0)), 58_000.0, "six tenths take 80 s");
        assert_eq!(Longer::than(25_000, &without).unwrap().mean_between((0.0, 1.0)), 35_000.0);
        assert!(Longer::than(40_000, &with).is_none(), "none that has ended took longer");
    }

    #[test]
    fn the_parts_of_one_level_are_all_there_and_have_the_mean_of_all() {
        assert_eq!([part_of(0), part_of(1), part_of(2)], [(0.0, 1.0), (0.0, 0.5), (0.5, 1.0)]);
        assert_eq!([3, 4, 5, 6].map(|number| part_of(number).0), [0.0, 0.5, 0.25, 0.75]);
        let lengths = shares(&[1_000, 2_000, 4_000, 9_000, 30_000], &[500, 3_000, 20_000]);
        let longer = Longer::than(0, &lengths).unwrap();
        for numbers in [1..3, 3..7, 7..15, 127..255, 256..384, u32::MAX - 127..u32::MAX] {
            let mut parts: Vec<(f64, f64)> = numbers.clone().map(part_of).collect();
            parts.extend((numbers.end == u32::MAX).then(|| part_of(u32::MAX)));
            parts.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(parts[0].0 == 0.0 && parts.windows(2).all(|pair| pair[0].1 == pair[1].0), "{numbers:?}");
            let mean = parts.iter().map(|part| longer.mean_between(*part)).sum::<f64>() / parts.len() as f64;
            assert!((mean - longer.mean_between((0.0, 1.0))).abs() <= 1.0, "{numbers:?}: {mean}");
        }
    }
}
