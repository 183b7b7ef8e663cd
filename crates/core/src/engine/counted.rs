//! What is counted over the farm while tasks are with other shards: limits, quotas of queues, caps on running tasks.
//!
//! - From the batch that delegates a task to the batch that takes it back, its home counts it as if it ran here: one of each
//!   limit of its step, what it asks of cpu in the quota of its queue, and one below the caps of its step and its job.
//! - So over the farm no more run than may, whatever the other shard does. That one counts what it runs, too, and never has
//!   more of it than was delegated.
//! - Nothing of this is stored: it follows from which tasks are delegated.
//! - A limit that is set lower than what is taken takes nothing back. Until it sinks nothing starts here, and nothing is
//!   delegated.

use super::Engine;
use crate::ids::{JobId, QueueId, StepKey};
use crate::job::{Job, Step, StepSpec};
use std::collections::BTreeMap;

impl Engine {
    /// How many more tasks of a step may be with other shards, or run here, by all that counts them over the farm; `None`
    /// of a step that nothing counts.
    pub(super) fn counted_room(&self, key: StepKey) -> Option<u32> {
        let job = self.jobs.get(&key.job)?;
        let (spec, step) = (&job.spec.steps[usize::from(key.step)], self.step(key)?);
        let of_step = spec.max_running.map(|max| max.saturating_sub(step.counted()));
        let of_job = job.spec.max_running.map(|max| max.saturating_sub(job.counted()));
        let of_limits = self.licences.room(&spec.limits);
        let of_quota = self.plan.queues.room_in_quota(job.queue);
        let of_quota = of_quota.map(|cpu| cpu.checked_div(spec.request.cpu).unwrap_or(u32::MAX));
        [of_step, of_job, of_limits, of_quota].into_iter().flatten().min()
    }

    /// So many tasks of a step are with other shards from now on, or no more (`by` is negative).
    pub(super) fn count_delegated(&mut self, key: StepKey, by: i32) {
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        job.delegated = job.delegated.saturating_add_signed(by);
        let spec = &job.spec.steps[usize::from(key.step)];
        self.licences.count(&spec.limits, by);
        self.plan.queues.count_delegated(job.queue, i64::from(by) * i64::from(spec.request.cpu));
    }

    /// A job is forgotten: none of its tasks counts any more.
    pub(super) fn uncount_delegated(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.delegated > 0) else { return };
        let away =
            (0..).zip(&job.steps).map(|(step, held)| (StepKey { job: id, step }, held.delegated.len()));
        let away: Vec<(StepKey, u32)> = away.filter(|(_, tasks)| *tasks > 0).collect();
        away.into_iter().for_each(|(key, tasks)| self.count_delegated(key, -(tasks as i32)));
    }

    /// The limits that delegated tasks hold, each as often as it is taken.
    pub(super) fn limits_delegated(&self) -> impl Iterator<Item = &String> {
        let steps = self.jobs.values().flat_map(steps_of);
        steps.flat_map(|(step, spec)| {
            spec.limits.iter().flat_map(|name| step.delegated.iter().map(move |_| name))
        })
    }

    /// What counts of delegated tasks is what is delegated.
    pub(super) fn check_counted(&self) -> Result<(), String> {
        let mut cpu: BTreeMap<QueueId, u64> = BTreeMap::new();
        for job in self.jobs.values() {
            let away: u32 = job.steps.iter().map(|step| step.delegated.len()).sum();
            if away != job.delegated {
                return Err(format!("job {}: {away} tasks are delegated, counted {}", job.id, job.delegated));
            }
            for (step, spec) in steps_of(job) {
                let asks = u64::from(step.delegated.len()) * u64::from(spec.request.cpu);
                *cpu.entry(self.plan.queues.whole(job.queue)).or_default() += asks;
            }
        }
        let wrong = |(id, counted): (QueueId, u64)| counted != cpu.get(&id).copied().unwrap_or(0);
        let mut queues = self.plan.queues.with_ids();
        match queues.find(|(id, queue)| wrong((*id, queue.delegated_cpu))) {
            Some((id, queue)) => Err(format!(
                "queue {}: {} are delegated, not {:?}",
                queue.name(),
                queue.delegated_cpu,
                cpu.get(&id)
            )),
            None => Ok(()),
        }
    }
}

fn steps_of(job: &Job) -> impl Iterator<Item = (&Step, &StepSpec)> {
    job.steps.iter().zip(&job.spec.steps)
}
