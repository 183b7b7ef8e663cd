//! Jobs that are not resident because others of their queue come first.

use super::explanation::{Explanation, Reason};
use super::task::reason as explain_task;
use crate::class::Class;
use crate::engine::Engine;
use crate::ids::{StepKey, TaskId};
use crate::job::{DependencyKind, JobSpec, Parked, QueuedStep, TaskState};
use crate::ledger::classes::class_of;
use crate::queues::Queue;

/// Explains a task of a parked job: `spec` and `parked` are what the store has of it, `ahead` how many
/// parked jobs of its queue the store has before it. `None` if the job has no such task.
pub fn parked_task(
    engine: &Engine,
    task: TaskId,
    spec: &JobSpec,
    parked: &Parked,
    ahead: u64,
) -> Option<Explanation> {
    let mut base = 0;
    let number = spec.steps.iter().position(|step| {
        base += step.tasks;
        task.index < base
    })?;
    let step = &spec.steps[number];
    if !step.depends.is_empty() {
        let first = step.depends.iter().map(|dependency| {
            let on = &spec.steps[usize::from(dependency.on)];
            let tasks = if dependency.kind == DependencyKind::Task { 1 } else { on.tasks };
            (on.name.clone(), tasks, 0)
        });
        return Some(Explanation::bare(TaskState::Waiting, Reason::Steps(first.collect())));
    }
    // Those with which it starts may wait for other steps.
    let leader = step.with.map_or(number, usize::from);
    let mates = std::iter::once(leader).chain(spec.followers(leader)).map(|mate| &spec.steps[mate]);
    let waiting: u32 =
        mates.filter(|mate| !mate.depends.is_empty()).map(|mate| mate.nodes.unwrap_or(1)).sum();
    if waiting > 0 {
        return Some(Explanation::bare(TaskState::Ready, Reason::Mates { waiting, lost: false }));
    }
    let ahead = ahead + unparked_before(engine, &spec.queue, parked);
    let has_users = engine.queues().id(&spec.queue).is_some_and(|id| engine.queues().has_users(id));
    let parked_behind = Reason::Parked { ahead, is_at_most: has_users };
    // The first resident job of its subqueue waits for the same workers.
    let Some(mut explanation) =
        explain_first(engine, spec, parked, &class_of(step, &spec.queue, engine.workers()))
    else {
        return Some(Explanation::bare(TaskState::Ready, parked_behind));
    };
    if explanation.reason.is_of_room() {
        explanation.reason = parked_behind;
    }
    (explanation.turn, explanation.judged, explanation.decided) = (None, Vec::new(), None);
    Some(explanation)
}

/// Explains the first ready task of a class in the subqueue of a parked job.
fn explain_first(engine: &Engine, spec: &JobSpec, parked: &Parked, class: &Class) -> Option<Explanation> {
    let subqueue = engine.subqueues().get((engine.queues().id(&spec.queue)?, parked.class))?;
    let workers = engine.workers();
    let mut jobs = subqueue.positions().filter_map(|position| engine.job(position.job));
    let task = jobs.find_map(|job| {
        let steps = job.spec.steps.iter().zip(&job.steps);
        let mut alike = steps.filter(|(spec, _)| class_of(spec, &job.spec.queue, workers) == *class);
        alike.find_map(|(_, step)| Some(TaskId { job: job.id, index: step.ready.first()? }))
    })?;
    explain_task(engine, task)
}

/// Steps in a queue that come before a parked job and that the store does not have parked.
fn unparked_before(engine: &Engine, queue: &str, parked: &Parked) -> u64 {
    let Some(queue) = engine.queues().id(queue) else { return 0 };
    let key = StepKey { job: parked.position.job, step: 0 };
    let own = QueuedStep::new(parked.position.priority.0, parked.position.ranked, key);
    let parts = engine.queues().parts(queue).map(|part| engine.queues().get(part));
    let before = parts
        .flat_map(Queue::steps_by_class)
        .filter(|(_, step)| **step < own && !engine.is_parked(step.job()));
    before.count() as u64
}
