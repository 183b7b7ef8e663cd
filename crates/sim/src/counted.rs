//! The promise about counts of the farm: no more tasks run at any instant than a limit, a cap on running tasks or the
//! quota of a queue allows. It is checked at each start, against the processes of all machines.
//!
//! A limit or a quota that is set lower takes nothing back. So it is held to its new value from when the store has no
//! more booked than that.
//!
//! A task that waits for jobs of its own lends its cpus, and these do not count for its queue. It takes them back whatever
//! its queue holds. So a task that has lent its cpus once does not count here, for what else starts may have been booked
//! before it took them back. `Engine::check` holds the books to the exact count.

use crate::machine::{AttemptKey, Machine};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::engine::Write;
use windlass_core::job::{JobSpec, StepSpec, TaskState};
use windlass_core::{JobId, TaskId};
use windlass_store::Memory;

/// The most that may be held, by name. What is absent has no bound.
#[derive(Default)]
struct Most(BTreeMap<String, u32>);

impl Most {
    /// It is set to this, which counts at once if it is more.
    fn set(&mut self, name: &str, to: Option<u32>) {
        match (to, self.0.get_mut(name)) {
            (Some(to), Some(most)) => *most = to.max(*most),
            (Some(_), None) => {}
            (None, _) => _ = self.0.remove(name),
        }
    }

    /// Lowers the bound to the value `to`, unless more than that is booked.
    fn settle(&mut self, name: &str, to: Option<u32>, held: u32) {
        if let Some(to) = to.filter(|to| held <= *to) {
            self.0.insert(name.to_owned(), to);
        }
    }
}

/// The counts of the farm, as the store has them.
#[derive(Default)]
pub(crate) struct Counted {
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    limits: Most,
    /// In hundredths of a core.
    quotas: Most,
    /// Tasks that have lent their cpus.
    lenders: BTreeSet<TaskId>,
}

impl Counted {
    /// A task waits for jobs of its own, and will be said to lend its cpus.
    pub fn lends(&mut self, task: TaskId) {
        self.lenders.insert(task);
    }

    /// A write becomes durable.
    pub fn note(&mut self, write: &Write) {
        match write {
            Write::Job { id, spec, .. } => _ = self.specs.insert(*id, spec.clone()),
            Write::Limit { name, limit } => {
                self.limits.set(name, limit.as_ref().and_then(|limit| limit.max));
            }
            Write::Queue(queue) => self.quotas.set(&queue.name, queue.burst_cpu.or(queue.quota_cpu)),
            Write::QueueGone(name) => self.quotas.set(name, None),
            _ => {}
        }
    }

    /// The scheduler knows all that the store has: settings that are lower than before count, where no more is booked.
    pub fn settle(&mut self, store: &Memory) {
        let ground = store.load().ground;
        let (mut limits, mut quotas) = (BTreeMap::<&String, u32>::new(), BTreeMap::<&String, u32>::new());
        for record in &ground.jobs {
            let rows = store.tasks(record.id, 0..u32::MAX).into_iter().map(|task| task.row);
            for row in rows.filter(|row| row.state == TaskState::Booked) {
                let step = step_of(&record.spec, row.index);
                step.limits.iter().for_each(|name| *limits.entry(name).or_default() += 1);
                // A task may be booked with more than it requested, since before the queue had a quota.
                let cpu = row.amounts.map_or(step.request.cpu, |(cpu, _)| cpu);
                *quotas.entry(&record.spec.queue).or_default() += cpu;
            }
        }
        for (name, limit) in &ground.limits {
            self.limits.settle(name, limit.max, limits.get(name).copied().unwrap_or(0));
        }
        for queue in &ground.queues {
            let held = quotas.get(&queue.name).copied().unwrap_or(0);
            self.quotas.settle(&queue.name, queue.burst_cpu.or(queue.quota_cpu), held);
        }
    }

    /// Checks what runs on all machines, after a task started.
    pub fn check(&self, machines: &[Machine], started: TaskId) -> Result<(), String> {
        let Some(spec) = self.specs.get(&started.job) else { return Ok(()) };
        let step = step_of(spec, started.index);
        let of_job = running(machines).map(|(key, _)| key.0).filter(|task| task.job == started.job);
        let of_job: Vec<TaskId> = of_job.collect();
        let of_step = of_job.iter().filter(|task| step_of(spec, task.index) == step).count();
        let caps = [("its step", step.max_running, of_step), ("its job", spec.max_running, of_job.len())];
        for (what, most, count) in caps {
            if most.is_some_and(|most| count > most as usize) {
                return Err(format!("{started} starts, and {count} tasks of {what} run: {most:?} may"));
            }
        }
        for name in &step.limits {
            let holds = |task: TaskId| {
                self.specs.get(&task.job).is_some_and(|spec| step_of(spec, task.index).limits.contains(name))
            };
            let rides = |key: &AttemptKey| machines.iter().any(|machine| machine.rides(*key));
            let held = running(machines).filter(|(key, _)| holds(key.0) && !rides(key)).count();
            let most = self.limits.0.get(name);
            if most.is_some_and(|most| held > *most as usize) {
                return Err(format!("{started} starts, and {held} tasks hold limit {name}: {most:?} may"));
            }
        }
        let of_queue =
            |task: TaskId| self.specs.get(&task.job).is_some_and(|other| other.queue == spec.queue);
        let counts = |task: TaskId| of_queue(task) && !self.lenders.contains(&task);
        let held: u32 = running(machines).filter(|(key, _)| counts(key.0)).map(|(_, cpu)| cpu).sum();
        match self.quotas.0.get(&spec.queue) {
            Some(most) if held > *most => {
                Err(format!("{started} starts, and queue {} holds {held} of {most}", spec.queue))
            }
            _ => Ok(()),
        }
    }
}

/// The attempts that run, each with its hundredths of a core.
fn running(machines: &[Machine]) -> impl Iterator<Item = (AttemptKey, u32)> {
    let keepers = machines.iter().flat_map(|machine| &machine.keeper);
    keepers.flat_map(|keeper| keeper.running()).map(|(key, request, _)| (key, request.cpu))
}

fn step_of(spec: &JobSpec, index: u32) -> &StepSpec {
    let mut end = 0;
    let step = spec.steps.iter().find(|step| {
        end += step.tasks;
        index < end
    });
    step.expect("a task is of a step of its job")
}
