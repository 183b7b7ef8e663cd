//! Measures of a schedule: waits, slowdowns, fairness, utilisation. [`Figures::of`] computes them from any
//! [`Schedule`], of the engine or of a baseline, so that schedulers are compared by the same formulas.
//! `windlass sim run` prints them.

use super::workload::{Schedule, Work, Workload};
use std::time::Duration;
use windlass_core::Time;
use windlass_core::explain::start_error;
use windlass_core::load::share::{Claim, level};
use windlass_core::queues::WEIGHT_DEFAULT;
use windlass_core::time::NS_PER_MS;

/// Runs shorter than this count as this long in slowdowns. Otherwise a run of milliseconds would be a
/// thousand times slower for a wait of seconds (bounded slowdown; Feitelson).
const TAU_S: f64 = 10.0;
/// Samples of shares, over the time in which jobs are submitted.
const SAMPLES: u64 = 2_000;

/// Distribution of values, in seconds or as ratios.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// Number of values. If it is 0, so is everything else.
    pub count: usize,
    /// Arithmetic mean of the values.
    pub mean: f64,
    /// Median, by nearest rank.
    pub p50: f64,
    /// 90th percentile, by nearest rank.
    pub p90: f64,
    /// 99th percentile, by nearest rank.
    pub p99: f64,
    /// The largest of the values.
    pub max: f64,
}

/// A part of a whole, from 0 to 1; `None` if the whole is 0.
pub type Part = Option<f64>;

/// Measures of a schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Figures {
    /// Seconds from a job's submission to its start, over all jobs that started.
    pub wait_s: Spread,
    /// The same over the jobs of light users, who have few jobs.
    pub light_wait_s: Spread,
    /// Over users: the mean of `max(1, (wait + run) / max(run, 10 s))` of their jobs.
    pub slowdown: Spread,
    /// Jain's index of the reciprocals of these means: 1 if all users are slowed down alike, 1/n if only one is served.
    pub fairness: Part,
    /// Of the core time that users were entitled to, the part that they did not have. A user's entitlement is
    /// its weighted max-min share of what its jobs could use at each moment.
    pub short_of_share: Part,
    /// Of the core time from the first submission to the last, the part in which tasks ran.
    pub utilisation: Part,
    /// Hours from the first submission to the last end.
    pub makespan_h: f64,
    /// Jobs that fit some machine and never started.
    pub starved: usize,
    /// Jobs that fit no machine.
    pub unplaceable: usize,
    /// Tasks that were placed.
    pub placed: usize,
    /// How far expected starts were from the real ones: see [`start_error`].
    pub estimate_error: Spread,
    /// Tasks that were asked for their start, and for which the past gave no ground for an estimate.
    pub without_estimate: usize,
    /// Real time that the scheduler took for all decisions.
    pub took: Duration,
}

impl Figures {
    /// Measures a schedule. Users with at most `light_jobs` jobs are light.
    pub fn of(workload: &Workload, schedule: &Schedule, light_jobs: usize) -> Figures {
        let users = workload.users.len();
        let mut jobs_of = vec![0_usize; users];
        workload.jobs.iter().for_each(|job| jobs_of[job.user] += 1);
        let (mut waits, mut light, mut slowdowns) = (Vec::new(), Vec::new(), vec![(0.0, 0.0); users]);
        let (mut starved, mut unplaceable, mut last_end_ms) = (0, 0, 0);
        for job in &workload.jobs {
            let Some(start_ms) = job.start_ms(schedule) else {
                *(if job.fits { &mut starved } else { &mut unplaceable }) += 1;
                continue;
            };
            let (wait_s, run_s) = ((start_ms - job.submit_ms) as f64 / 1e3, job.run_ms as f64 / 1e3);
            waits.push(wait_s);
            light.extend((jobs_of[job.user] <= light_jobs).then_some(wait_s));
            let (sum, count) = &mut slowdowns[job.user];
            *sum += ((wait_s + run_s) / run_s.max(TAU_S)).max(1.0);
            *count += 1.0;
            last_end_ms = last_end_ms.max(start_ms + job.run_ms);
        }
        let slowdowns = slowdowns.into_iter().filter(|(_, count)| *count > 0.0).map(|(sum, n)| sum / n);
        let slowdowns: Vec<f64> = slowdowns.collect();
        Figures {
            fairness: jain(slowdowns.iter().map(|slowdown| 1.0 / slowdown)),
            wait_s: Spread::of(waits),
            light_wait_s: Spread::of(light),
            slowdown: Spread::of(slowdowns),
            short_of_share: short_of_share(workload, schedule),
            utilisation: utilisation(workload, schedule),
            makespan_h: last_end_ms as f64 / 3.6e6,
            starved,
            unplaceable,
            placed: schedule.starts_ms.iter().flatten().count(),
            estimate_error: Spread::of(estimate_errors(schedule)),
            without_estimate: schedule.estimates.iter().filter(|asked| asked.expected_ms.is_none()).count(),
            took: schedule.took,
        }
    }

    /// Tasks placed in each second of real time.
    pub fn decisions_per_s(&self) -> f64 {
        self.placed as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

impl Spread {
    /// The distribution of these values.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let Some(max) = values.last().copied() else { return Spread::default() };
        // Nearest rank: the smallest value such that this part of all values is at most as large.
        let rank = |part: f64| values[((part * values.len() as f64).ceil() as usize).max(1) - 1];
        Spread {
            count: values.len(),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            p50: rank(0.5),
            p90: rank(0.9),
            p99: rank(0.99),
            max,
        }
    }
}

/// The errors of the estimates of tasks that started.
fn estimate_errors(schedule: &Schedule) -> Vec<f64> {
    let at = |ms: u64| Time(ms.saturating_mul(NS_PER_MS));
    let errors = schedule.estimates.iter().filter_map(|estimate| {
        let (expected_ms, start_ms) = (estimate.expected_ms?, schedule.starts_ms[estimate.task]?);
        Some(start_error(at(estimate.asked_ms), at(expected_ms), at(start_ms)))
    });
    errors.collect()
}

/// `(sum x)^2 / (n * sum x^2)` (Jain, Chiu, Hawe 1984).
fn jain(values: impl Iterator<Item = f64>) -> Part {
    let (count, sum, squares) =
        values.fold((0.0, 0.0, 0.0), |(count, sum, squares), x| (count + 1.0, sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

fn utilisation(workload: &Workload, schedule: &Schedule) -> Part {
    let span_ms = workload.span_ms();
    let busy = |job: &Work| -> f64 {
        let ran = (0..).zip(job.starts_ms(schedule)).filter_map(|(task, start_ms)| {
            let start_ms = (*start_ms)?;
            let ran_ms = (start_ms + job.run_ms).min(span_ms).saturating_sub(start_ms);
            Some(ran_ms as f64 * f64::from(job.part_of(task).request.cpu))
        });
        ran.sum()
    };
    let there = span_ms as f64 * workload.farm.cpu() as f64;
    (there > 0.0).then(|| workload.jobs.iter().map(busy).sum::<f64>() / there)
}

/// A change at a time in milliseconds of what a user's tasks could use, and of what they have, in hundredths of a core.
type Change = (u64, usize, i64, i64);

fn short_of_share(workload: &Workload, schedule: &Schedule) -> Part {
    let mut changes: Vec<Change> = Vec::new();
    for job in workload.jobs.iter().filter(|job| job.fits) {
        let wants = job.parts.iter().map(|part| i64::from(part.request.cpu) * i64::from(part.tasks));
        changes.push((job.submit_ms, job.user, wants.sum(), 0));
        for (task, start_ms) in (0..).zip(job.starts_ms(schedule)) {
            let Some(start_ms) = start_ms else { continue };
            let cpu = i64::from(job.part_of(task).request.cpu);
            changes.push((*start_ms, job.user, 0, cpu));
            changes.push((start_ms + job.run_ms, job.user, -cpu, -cpu));
        }
    }
    changes.sort_unstable();
    let mut changes = changes.into_iter().peekable();
    let mut users = vec![(0_i64, 0_i64); workload.users.len()];
    let (mut entitled, mut short) = (0.0, 0.0);
    let step_ms = (workload.span_ms() / SAMPLES).max(1);
    for sample in 0..=workload.span_ms() / step_ms {
        while let Some((_, user, wants, holds)) = changes.next_if(|change| change.0 <= sample * step_ms) {
            users[user].0 += wants;
            users[user].1 += holds;
        }
        let claims = users
            .iter()
            .enumerate()
            .filter(|(_, (wants, _))| *wants > 0)
            .map(|(id, (wants, _))| Claim { id: id as u64, weight: WEIGHT_DEFAULT, demand: *wants as u64 });
        let claims: Vec<Claim> = claims.collect();
        let level = level(workload.farm.cpu(), &claims);
        for claim in &claims {
            let share = level.share(claim);
            let share = share.whole as f64 + share.part as f64 / share.of as f64;
            entitled += share;
            short += (share - users[claim.id as usize].1 as f64).max(0.0);
        }
    }
    (entitled > 0.0).then(|| short / entitled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_by_nearest_rank() {
        let spread = Spread::of((1..=100).rev().map(f64::from).collect());
        assert_eq!((spread.count, spread.mean, spread.max), (100, 50.5, 100.0));
        assert_eq!((spread.p50, spread.p90, spread.p99), (50.0, 90.0, 99.0));
        assert_eq!(Spread::of(vec![3.0]).p50, 3.0);
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }

    #[test]
    fn jains_index_is_one_where_all_have_the_same() {
        assert_eq!(jain([2.0, 2.0, 2.0].into_iter()), Some(1.0));
        assert_eq!(jain([1.0, 0.0, 0.0, 0.0].into_iter()), Some(0.25));
        assert_eq!(jain([].into_iter()), None);
    }
}
