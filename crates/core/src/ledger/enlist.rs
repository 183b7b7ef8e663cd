//! Which steps stand in their queues: those that may start a task now.

use super::Books;
use crate::class::Class;
use crate::ids::{JobId, StepKey};
use crate::job::{Job, QueuedStep};
use crate::ranges::RangeSet;
use crate::score::dependents::ranked_since;
use crate::time::Time;

/// Brings a step's place in its queue in line with whether it may start tasks.
pub(super) fn refresh(books: &mut Books, key: StepKey) {
    let key = books.ledger.leader_of(key).unwrap_or(key);
    let wanted = wanted_place(books, key);
    if wanted.is_some() {
        fit_class_to_gang(books, key);
    }
    let Some(job) = books.ledger.jobs.get_mut(&key.job) else { return };
    let queue = job.queue;
    let step = &mut job.steps[usize::from(key.step)];
    if wanted == step.enlisted {
        return;
    }
    // The new place first: a queue without a step for a moment would count as idle, and come in again behind others.
    if let Some(new) = wanted {
        books.plan.enlist(queue, step.class, new);
    }
    if let Some(old) = std::mem::replace(&mut step.enlisted, wanted) {
        books.plan.withdraw(queue, step.class, &old);
    }
}

/// Where a step should stand in its queue; `None` if it may start nothing now.
pub(super) fn wanted_place(books: &Books, key: StepKey) -> Option<QueuedStep> {
    let job = books.ledger.jobs.get(&key.job)?;
    if job.held || job.stop.is_some() || job.ended.is_some() || !job.after.is_empty() {
        return None;
    }
    let may_start = |number: usize| {
        let key = StepKey { step: number as u16, ..key };
        books.profiles.throttled(job.steps[number].profile).is_none()
            && books.ledger.licences.back_off(key).is_none()
    };
    let number = usize::from(key.step);
    let open = job.cap_reached(number).is_none() && job.has_startable(number);
    let open = open && job.gang_steps(number).all(may_start);
    open.then(|| QueuedStep::new(job.spec.priority, ranked_since(&job.steps[number]), key))
}

/// One more or one less task of the step is booked or runs: caps on these may be reached, or no longer.
pub(super) fn refresh_capped(books: &mut Books, key: StepKey) {
    let Some(job) = books.ledger.jobs.get(&key.job) else { return };
    // Tasks that start together need more room below the cap than one.
    let is_crossed = |max: u32| job.has_gangs || job.active == max || job.active + 1 == max;
    if job.spec.max_running.is_some_and(is_crossed) {
        refresh_all(books, key.job);
    } else if job.spec.steps[usize::from(key.step)].max_running.is_some() {
        refresh(books, key);
    }
}

/// Brings the places of all steps of a job in line with whether they may start tasks.
pub(super) fn refresh_all(books: &mut Books, id: JobId) {
    let steps = books.ledger.jobs.get(&id).map_or(0, |job| job.steps.len());
    for step in 0..steps {
        refresh(books, StepKey { job: id, step: step as u16 });
    }
}

/// Works out the ready tasks of every step from what has ended and what runs.
/// They are ready since then, or from now on.
pub(super) fn recompute_ready(books: &mut Books, id: JobId, since: Option<Time>) {
    let running: Vec<u32> = books.ledger.attempts_of(id).map(|(task, _)| task.index).collect();
    let now = books.plan.now();
    let Some(job) = books.ledger.jobs.get_mut(&id) else { return };
    for number in 0..job.steps.len() {
        let mut ready = job.unlocked(number);
        let step = &mut job.steps[number];
        for other in [&step.succeeded, &step.failed, &step.canceled] {
            ready.subtract(other);
        }
        let first = running.partition_point(|index| *index < step.base);
        let tasks = job.spec.steps[number].tasks;
        for index in running[first..].iter().take_while(|index| **index < step.base + tasks) {
            ready.remove(*index);
        }
        if step.ready.is_empty() && !ready.is_empty() {
            step.ready_since = since.unwrap_or(now.max(job.created));
        }
        step.ready = ready;
    }
    refresh_all(books, id);
}

/// Adds tasks to a waiting step, but for those that were tried.
pub(super) fn open_tasks(job: &mut Job, step: usize, mut tasks: RangeSet, now: Time) {
    let step = &mut job.steps[step];
    for known in [&step.succeeded, &step.failed, &step.canceled] {
        tasks.subtract(known);
    }
    if tasks.is_empty() {
        return;
    }
    if step.ready.is_empty() {
        step.ready_since = now;
    }
    for range in tasks.ranges() {
        step.ready.insert_range(range);
    }
}

/// Gives a step that leads gangs the class of its next one: what of that has succeeded needs no room.
fn fit_class_to_gang(books: &mut Books, leader: StepKey) {
    let Some(job) = books.ledger.jobs.get(&leader.job).filter(|job| job.has_gangs) else { return };
    let Some(nodes) = job.next_nodes(leader.step.into()) else { return };
    let class = books.plan.classes.get(job.steps[usize::from(leader.step)].class);
    if !class.has_nodes(&nodes) {
        let class = class.clone().with_nodes(&nodes);
        set_class(books, leader, class);
    }
}

/// A step is of this class from now on.
pub(super) fn set_class(books: &mut Books, key: StepKey, class: Class) {
    let Some(job) = books.ledger.jobs.get_mut(&key.job) else { return };
    let queue = job.queue;
    let step = &mut job.steps[usize::from(key.step)];
    if *books.plan.classes.get(step.class) == class {
        return;
    }
    let new = books.plan.classes.intern(class);
    let old = std::mem::replace(&mut step.class, new);
    books.plan.change_class(queue, (old, new), step.enlisted.as_ref());
}
