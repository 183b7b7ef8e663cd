//! What waits for a step: tasks downstream, weighted by how long the way through them is.

use super::weights;
use crate::job::{DependencyKind, Step, StepSpec};
use crate::time::{NS_PER_MS, Time};

/// What waits for one task of a step.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Dependents {
    /// Tasks that cannot start before it ended, directly or not.
    pub tasks: u64,
    /// The longest way from this step's start to the job's end through what waits for it, in parts of the
    /// job's critical path: 1 where that begins, above 0 everywhere.
    pub path: f64,
}

impl Dependents {
    /// The tasks that wait, counted in full where the critical path begins and in part elsewhere.
    pub fn weight(&self) -> f64 {
        self.tasks as f64 * self.path
    }
}

/// Where a step comes among steps of its queue and priority: since when it is ready, less a head start for what waits for
/// it, as much as the points for that are worth in waiting.
pub fn ranked_since(step: &Step) -> Time {
    let part = (step.dependents / (2.0 * weights::DEPENDENTS_MEAN)).clamp(0.0, 1.0);
    let deadlines = weights::DEPENDENTS / weights::WAIT_PER_DEADLINE * part;
    Time(step.ready_since.0.saturating_sub((deadlines * weights::DEADLINE_MS as f64) as u64 * NS_PER_MS))
}

/// What waits for each of a job's steps, in their order. `wall_ms` tells how long a task of a step is
/// predicted to take; a step of which that is not known takes the mean of the others.
pub fn dependents(steps: &[StepSpec], wall_ms: impl Fn(usize) -> Option<f64>) -> Vec<Dependents> {
    let order = dependents_first(steps);
    let ms = lengths(steps.len(), wall_ms);
    let words = steps.len().div_ceil(64);
    // Steps of which all tasks wait for one task, and those of which only the one that goes with it does.
    let (mut all, mut one) = (vec![vec![0_u64; words]; steps.len()], vec![vec![0_u64; words]; steps.len()]);
    let mut path: Vec<f64> = ms.clone();
    for later in order {
        for dependency in &steps[later].depends {
            let on = usize::from(dependency.on);
            let (reached, paired) = (all[later].clone(), one[later].clone());
            unite(&mut all[on], &reached);
            let further = if dependency.kind == DependencyKind::Task { &mut one[on] } else { &mut all[on] };
            unite(further, &paired);
            further[later / 64] |= 1 << (later % 64);
            path[on] = path[on].max(ms[on] + path[later]);
        }
    }
    let longest = path.iter().copied().fold(0.0, f64::max);
    let waits = |set: &[u64], other: usize| set[other / 64] >> (other % 64) & 1 == 1;
    let dependents = (0..steps.len()).map(|step| {
        let mut tasks = 0;
        for (other, spec) in steps.iter().enumerate() {
            if waits(&all[step], other) {
                tasks += u64::from(spec.tasks);
            } else if waits(&one[step], other) {
                tasks += 1;
            }
        }
        Dependents { tasks, path: path[step] / longest }
    });
    dependents.collect()
}

fn unite(into: &mut [u64], from: &[u64]) {
    for (to, from) in into.iter_mut().zip(from) {
        *to |= from;
    }
}

/// Positive lengths, one for each step.
fn lengths(steps: usize, wall_ms: impl Fn(usize) -> Option<f64>) -> Vec<f64> {
    let known: Vec<Option<f64>> =
        (0..steps).map(|step| wall_ms(step).filter(|ms| ms.is_finite() && *ms > 0.0)).collect();
    let count = known.iter().flatten().count();
    let mean = if count == 0 { 1.0 } else { known.iter().flatten().sum::<f64>() / count as f64 };
    known.into_iter().map(|ms| ms.unwrap_or(mean)).collect()
}

/// The steps, each before those that it depends on. Steps in a cycle, which no accepted job has, are left
/// out.
fn dependents_first(steps: &[StepSpec]) -> Vec<usize> {
    let mut open = vec![0_u32; steps.len()];
    for dependency in steps.iter().flat_map(|step| &step.depends) {
        open[usize::from(dependency.on)] += 1;
    }
    let mut order: Vec<usize> = (0..steps.len()).filter(|step| open[*step] == 0).collect();
    let mut next = 0;
    while let Some(step) = order.get(next).copied() {
        next += 1;
        for dependency in &steps[step].depends {
            let on = usize::from(dependency.on);
            open[on] -= 1;
            if open[on] == 0 {
                order.push(on);
            }
        }
    }
    order
}
