//! When a job is expected to end: an estimate from what of it runs now, what is left, and how long its tasks took.

use crate::engine::Engine;
use crate::ids::{JobId, StepKey};
use crate::job::{Job, Step};
use crate::plan::{self, Work};
use crate::time::{NS_PER_MS, Time};

/// Running tasks of a job whose ends are looked at: those with the lowest indexes, which stand for all.
const ENDS_LOOKED_MAX: usize = 64;

/// What is left of a step.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct StepLeft {
    /// Tasks that have no attempt and have not ended.
    waiting: u32,
    /// Processes that run its tasks.
    running: u32,
    /// Mean run time of its tasks, or that which is predicted; `None` is unknown.
    mean_ms: Option<f64>,
    /// Running tasks whose ends were looked at, the sum of the times until they are expected, and the longest.
    looked: u32,
    sum_ms: f64,
    longest_ms: f64,
}

impl StepLeft {
    fn of(engine: &Engine, job: &Job, (number, step): (u16, &Step)) -> StepLeft {
        let key = StepKey { job: job.id, step: number };
        let predicted = || engine.facts(key).and_then(|facts| facts.prediction?.wall_ms);
        let ended = step.succeeded.len() + step.failed.len() + step.canceled.len();
        let rest = job.spec.steps[usize::from(number)].tasks.saturating_sub(ended + step.active);
        StepLeft {
            // Of a job that is stopped none starts.
            waiting: if job.stop.is_some() { 0 } else { rest },
            running: step.active - step.riding,
            mean_ms: step.mean_ms.or_else(predicted),
            ..StepLeft::default()
        }
    }

    fn look_at(&mut self, left_ms: f64) {
        self.looked += 1;
        self.sum_ms += left_ms;
        self.longest_ms = self.longest_ms.max(left_ms);
    }

    /// How long the step goes on with the processes that it has: one batch of them after the other, behind those that run.
    fn ms_beside_others(&self) -> Option<f64> {
        let running_ms = match self.looked {
            0 => self.mean_ms?,
            looked => self.sum_ms / f64::from(looked),
        };
        let longest_ms = if self.looked == 0 { running_ms } else { self.longest_ms };
        let waiting_ms = match self.waiting {
            0 => 0.0,
            waiting => f64::from(waiting.div_ceil(self.running)) * self.mean_ms?,
        };
        Some((running_ms + waiting_ms).max(longest_ms))
    }
}

/// When a job is expected to end if it goes on with as many tasks at a time as run now. `None` where nothing of it runs,
/// where it is held and tasks wait, and where nothing is known of how long some of what is left takes.
///
/// It looks at a bounded number of tasks, and at all steps of the job.
pub fn expected_job_end(engine: &Engine, id: JobId, now: Time) -> Option<Time> {
    let job = engine.job(id).filter(|job| job.ended.is_none() && job.active > 0)?;
    let mut steps: Vec<StepLeft> =
        (0..).zip(&job.steps).map(|numbered| StepLeft::of(engine, job, numbered)).collect();
    if job.held && steps.iter().any(|step| step.waiting > 0) {
        return None;
    }
    // A task that rides with another ends with it at the latest.
    let heads = engine.attempts_of(id).filter(|(_, attempt)| !attempt.rides);
    for (task, _) in heads.take(ENDS_LOOKED_MAX) {
        let at = plan::expected_end(&engine.running(task)?, now)?;
        steps[usize::from(job.step_of(task.index))].look_at(at.since(now) as f64 / NS_PER_MS as f64);
    }
    Some(now.after((left_ms(&steps)? * NS_PER_MS as f64) as u64))
}

/// Milliseconds until all is done: steps of which tasks run go on beside each other. The others wait for these, and then
/// have the room of all.
fn left_ms(steps: &[StepLeft]) -> Option<f64> {
    let all: u32 = steps.iter().map(|step| step.running).sum();
    let (mut beside_ms, mut behind_ms) = (0.0f64, 0.0);
    for step in steps {
        if step.running > 0 {
            beside_ms = beside_ms.max(step.ms_beside_others()?);
        } else if step.waiting > 0 {
            behind_ms += f64::from(step.waiting.div_ceil(all.max(1))) * step.mean_ms?;
        }
    }
    Some(beside_ms + behind_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step whose running tasks end after these times, and whose tasks take 10 s.
    fn step(waiting: u32, ends_ms: &[f64]) -> StepLeft {
        let running = ends_ms.len() as u32;
        let mut left = StepLeft { waiting, running, mean_ms: Some(10_000.0), ..StepLeft::default() };
        ends_ms.iter().for_each(|ms| left.look_at(*ms));
        left
    }

    #[test]
    fn what_runs_ends_with_its_longest_task() {
        assert_eq!(left_ms(&[step(0, &[4_000.0])]), Some(4_000.0));
        assert_eq!(left_ms(&[step(0, &[4_000.0, 9_000.0])]), Some(9_000.0));
        assert_eq!(left_ms(&[step(0, &[4_000.0]), step(0, &[]), step(0, &[7_000.0])]), Some(7_000.0));
    }

    #[test]
    fn what_waits_takes_the_places_of_what_runs() {
        assert_eq!(left_ms(&[step(8, &[5_000.0; 4])]), Some(25_000.0), "two more batches");
        assert_eq!(left_ms(&[step(1, &[5_000.0; 4])]), Some(15_000.0));
        assert_eq!(left_ms(&[step(1_000, &[2_000.0, 8_000.0])]), Some(5_005_000.0));
    }

    #[test]
    fn a_step_that_has_not_begun_comes_after_those_that_run() {
        assert_eq!(left_ms(&[step(0, &[3_000.0, 4_000.0]), step(5, &[])]), Some(34_000.0));
    }

    #[test]
    fn without_a_known_run_time_there_is_no_estimate() {
        let unknown = StepLeft { mean_ms: None, ..step(1, &[]) };
        assert_eq!(left_ms(&[step(1, &[4_000.0]), unknown]), None);
        // Where none of it waits, its own end is enough.
        let last = StepLeft { mean_ms: None, ..step(0, &[4_000.0]) };
        assert_eq!(left_ms(&[last]), Some(4_000.0));
        let not_looked_at = StepLeft { running: 2, mean_ms: None, ..StepLeft::default() };
        assert_eq!(left_ms(&[not_looked_at]), None);
    }
}
