//! Jobs that the engine does not hold because others of their queue come first.

use super::{Change, Explanation, Reason};
use crate::engine::Engine;
use crate::ids::{QueueId, StepKey, TaskId};
use crate::job::{DependencyKind, JobSpec, TaskState};
use crate::limits;
use crate::matcher::{self, RuledOut};
use crate::queues::Candidate;
use crate::queues::parked::Parked;
use crate::worker::Worker;
use std::collections::BTreeMap;

impl Engine {
    /// Explains a task of a parked job: `spec` and `parked` are what the store has of it, `ahead` how many
    /// parked jobs of its queue the store has before it. `None` if the job has no such task.
    pub fn explain_parked(
        &self,
        task: TaskId,
        spec: &JobSpec,
        parked: &Parked,
        ahead: u64,
    ) -> Option<Explanation> {
        let mut base = 0;
        let step = spec.steps.iter().find(|step| {
            base += step.tasks;
            task.index < base
        })?;
        if !step.depends.is_empty() {
            let first = step.depends.iter().map(|dependency| {
                let on = &spec.steps[usize::from(dependency.on)];
                let tasks = if dependency.kind == DependencyKind::Task { 1 } else { on.tasks };
                (on.name.clone(), tasks, 0)
            });
            return Some(Explanation::bare(TaskState::Waiting, Reason::Steps(first.collect())));
        }
        let mut explanation = Explanation::bare(TaskState::Ready, Reason::NoWorkers);
        let class = crate::engine::class_of(step);
        let (mut workers, mut could) = (0, 0);
        let mut counts: BTreeMap<RuledOut, (usize, Vec<String>)> = BTreeMap::new();
        for worker in self.workers().present() {
            workers += 1;
            could += usize::from(matcher::could_ever(&class, worker));
            let unmet: Vec<RuledOut> = matcher::rule_out(&class, worker, true).collect();
            let Some(first) = unmet.first() else {
                explanation.open_workers += 1;
                continue;
            };
            let (count, examples) = counts.entry(first.clone()).or_default();
            *count += 1;
            if examples.len() < limits::EXAMPLES_MAX {
                examples.push(worker.name.to_string());
                explanation.changes.push(Change::Worker { worker: worker.name.to_string(), unmet });
            }
        }
        explanation.ruled_out = counts.into_iter().map(|(why, (n, examples))| (why, n, examples)).collect();
        explanation.ruled_out.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        explanation.reason = match (workers, could) {
            (0, _) => Reason::NoWorkers,
            (_, 0) => Reason::FitsNowhere,
            _ => {
                explanation.changes = vec![Change::Ahead(spec.queue.clone())];
                Reason::Parked { ahead: ahead + self.unparked_before(&spec.queue, parked) }
            }
        };
        explanation.changes.truncate(limits::EXAMPLES_MAX);
        Some(explanation)
    }

    /// Steps in a queue that come before a parked job and that the store does not have parked.
    fn unparked_before(&self, queue: &str, parked: &Parked) -> u64 {
        let Some(queue) = self.queues().id(queue).map(|id| self.queues().get(id)) else { return 0 };
        let key = StepKey { job: parked.place.job, step: 0 };
        let place = Candidate::new(parked.place.priority.0, parked.place.ranked, key);
        let before = queue.steps_by_class().filter(|(_, step)| **step < place && !self.is_parked(step.job()));
        before.count() as u64
    }

    /// Hundredths of a core that the parked tasks of a queue could use on some of these workers.
    pub(super) fn parked_demand(&self, queue: QueueId, workers: &[&Worker]) -> u64 {
        let lines = self.lines().of(queue).filter(|line| line.away().ready > 0);
        let demand = lines.filter_map(|line| {
            let first = self.first_ready(line.places().next()?.job)?;
            let class = self.class_of(first)?;
            let fits = workers.iter().any(|worker| matcher::could_ever(class, worker));
            fits.then(|| line.away().ready * u64::from(class.request.cpu))
        });
        demand.sum()
    }
}
