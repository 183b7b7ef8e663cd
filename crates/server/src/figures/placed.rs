//! Names of what was placed lately, kept for as long as the decisions are: the board shows them when the job has ended.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use windlass_core::TaskId;
use windlass_core::bounds::DECISIONS_MAX;
use windlass_core::engine::{Engine, Fact};
use windlass_core::job::Kind;

/// Whose a task is. Each name has at most 255 bytes, so a thousand of these take a megabyte at most.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedNames {
    pub job: String,
    pub step: String,
    pub user: String,
    pub queue: String,
    pub kind: Kind,
}

/// The names of the steps of the last tasks that were placed.
#[derive(Debug, Default)]
pub struct PlacedSteps(Mutex<PlacedRing>);

#[derive(Debug, Default)]
struct PlacedRing {
    /// By the first task of the step: its tasks, its names, and how many of `order` are of it.
    steps: BTreeMap<TaskId, (Range<u32>, Arc<PlacedNames>, usize)>,
    /// One for each run of placed tasks of the same step, oldest first. A decision is of one of the last of these, as
    /// there are no more of them.
    order: VecDeque<TaskId>,
}

impl PlacedSteps {
    /// Takes in what is durable. The engine must still hold the jobs that ended in this batch.
    pub fn take(&self, engine: &Engine, facts: &[Fact]) {
        let mut placed = facts.iter().filter_map(|fact| match fact {
            Fact::Booked { task, .. } => Some(*task),
            _ => None,
        });
        let Some(first) = placed.next() else { return };
        let mut ring = self.0.lock();
        std::iter::once(first).chain(placed).for_each(|task| ring.add(engine, task));
    }

    /// The names of a task that was placed lately. Until that is durable the engine has them.
    pub fn names(&self, engine: &Engine, task: TaskId) -> Option<Arc<PlacedNames>> {
        let ring = self.0.lock();
        let known = ring.find(task).map(|(_, names)| names);
        known.or_else(|| Some(Arc::new(names_of(engine, task)?.1)))
    }
}

impl PlacedRing {
    fn find(&self, task: TaskId) -> Option<(TaskId, Arc<PlacedNames>)> {
        let (first, (tasks, names, _)) = self.steps.range(..=task).next_back()?;
        (first.job == task.job && tasks.contains(&task.index)).then(|| (*first, names.clone()))
    }

    fn add(&mut self, engine: &Engine, task: TaskId) {
        let last = self.order.back().and_then(|first| Some((*first, self.steps.get(first)?)));
        if last.is_some_and(|(first, (tasks, ..))| first.job == task.job && tasks.contains(&task.index)) {
            return;
        }
        if let Some((first, _)) = self.find(task) {
            return self.push(first);
        }
        let Some((tasks, names)) = names_of(engine, task) else { return };
        let first = TaskId { job: task.job, index: tasks.start };
        self.steps.insert(first, (tasks, Arc::new(names), 0));
        self.push(first);
    }

    fn push(&mut self, first: TaskId) {
        self.order.push_back(first);
        if let Some((.., uses)) = self.steps.get_mut(&first) {
            *uses += 1;
        }
        if self.order.len() > DECISIONS_MAX
            && let Some(old) = self.order.pop_front()
            && let Some((.., uses)) = self.steps.get_mut(&old)
        {
            *uses -= 1;
            if *uses == 0 {
                self.steps.remove(&old);
            }
        }
    }
}

fn names_of(engine: &Engine, task: TaskId) -> Option<(Range<u32>, PlacedNames)> {
    let job = engine.job(task.job)?;
    let number = usize::from(job.step_of(task.index));
    let (step, spec) = (job.steps.get(number)?, job.spec.steps.get(number)?);
    let names = PlacedNames {
        job: job.spec.name.clone(),
        step: spec.name.clone(),
        user: job.spec.user.clone(),
        queue: job.spec.queue.clone(),
        kind: spec.hints.kind,
    };
    Some((step.base..step.base + spec.tasks, names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::JobId;

    fn ring(steps: &[(u64, Range<u32>)]) -> PlacedRing {
        let mut ring = PlacedRing::default();
        for (job, tasks) in steps {
            let names = PlacedNames {
                job: format!("job{job}"),
                step: format!("from{}", tasks.start),
                user: String::new(),
                queue: String::new(),
                kind: Kind::default(),
            };
            let first = TaskId { job: JobId(*job), index: tasks.start };
            ring.steps.insert(first, (tasks.clone(), Arc::new(names), 0));
        }
        ring
    }

    #[test]
    fn a_task_is_named_by_the_step_that_it_is_of() {
        let ring = ring(&[(1, 0..3), (1, 3..9), (2, 5..6)]);
        let name = |job, index| Some(ring.find(TaskId { job: JobId(job), index })?.1.step.clone());
        assert_eq!((name(1, 2), name(1, 3)), (Some("from0".to_owned()), Some("from3".to_owned())));
        assert_eq!((name(1, 9), name(2, 4), name(2, 5)), (None, None, Some("from5".to_owned())));
    }

    #[test]
    fn names_go_with_the_last_decision_that_could_be_of_them() {
        let mut ring = ring(&[(1, 0..1), (2, 0..1)]);
        let [one, two] = [1, 2].map(|job| TaskId { job: JobId(job), index: 0 });
        ring.push(one);
        for _ in 0..DECISIONS_MAX - 1 {
            ring.push(two);
        }
        assert!(ring.find(one).is_some());
        ring.push(two);
        assert!(ring.find(one).is_none() && ring.find(two).is_some());
        assert_eq!(ring.order.len(), DECISIONS_MAX);
    }
}
