//! The return of tasks of guest jobs: which go home, and what became of them. When they go is [`guests`](super::guests)'
//! part.
//!
//! - A task that ended returns by itself.
//! - A gang returns whole, when none of its tasks is booked and all of its ends are durable: until then what becomes of
//!   one decides about the others.

use super::{Engine, Outbox};
use crate::bounds;
use crate::ids::JobId;
use crate::job::{Gang, Job, Step, TaskState, TriesMap};
use crate::ranges::RangeSet;
use crate::shards::{Message, TriedTasks};
use std::collections::BTreeSet;
use std::ops::Range;

impl Engine {
    /// Sends tasks of a guest job home: all that have ended, and those that are to be given back.
    pub(super) fn return_tasks(&mut self, id: JobId, out: &mut Outbox) {
        let fits = self.suits_guest(id);
        let Some(guest) = self.shards.guests.get_mut(&id) else { return };
        let (home, mut unsettled) = (guest.home, RangeSet::default());
        guest.due = None;
        let mut gives_back = std::mem::take(&mut guest.gives_back);
        guest.unsettled.keys().for_each(|index| _ = unsettled.insert(*index));
        let Some(job) = self.jobs.get(&id) else { return };
        if job.stop.is_some() || job.held {
            gives_back = u32::MAX;
        }
        let (gangs, has_more) = self.gangs_to_return(job, &unsettled, gives_back > 0);
        let in_gang: Vec<bool> = (0..job.steps.len()).map(|step| job.is_in_gang(step)).collect();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let (mut parts, mut mean_us) = (Vec::new(), Vec::new());
        for ((number, step), in_gang) in (0..).zip(&mut job.steps).zip(in_gang) {
            let before = parts.len();
            if in_gang {
                take_gangs(step, &gangs, &mut parts);
            } else {
                take_ended(step, &unsettled, &mut parts);
                take_ready(step, &unsettled, &mut gives_back, &mut parts);
            }
            if let Some(ms) = step.mean_ms.filter(|_| parts.len() > before) {
                mean_us.push((number, (ms * 1e3) as u64));
            }
        }
        let is_gone = job.steps.iter().all(|step| step.guest.is_empty());
        if has_more || parts.len() >= bounds::RETURN_PARTS_MAX {
            self.return_by(id, self.now);
        }
        if !parts.is_empty() {
            self.tell(home, Message::Return { job: id, tasks: parts, fits, mean_us }, out);
        }
        self.refresh_all(id);
        if is_gone {
            self.residency.note_change(id);
            self.forget(id);
        }
    }

    /// The tasks of all gangs that may return: those of which nothing is booked and nothing may start, or may be given back.
    /// True if one message has no room for all.
    fn gangs_to_return(&self, job: &Job, unsettled: &RangeSet, gives_back: bool) -> (RangeSet, bool) {
        let mut returning = RangeSet::default();
        if !job.has_gangs {
            return (returning, false);
        }
        let booked = self.attempts_of(job.id).map(|(task, _)| task.index);
        let busy: BTreeSet<Gang> =
            booked.chain(unsettled.iter()).filter_map(|index| job.gang_of(index)).collect();
        let mut known = BTreeSet::new();
        let mut tasks = 0;
        for index in job.steps.iter().flat_map(|step| step.guest.iter()) {
            let Some(gang) = job.gang_of(index).filter(|gang| !busy.contains(gang)) else { continue };
            if !known.insert(gang) || (job.startable(gang).is_some() && !gives_back) {
                continue;
            }
            for task in job.gang_tasks(gang).filter(|task| job.steps[task.step].guest.contains(task.index)) {
                returning.insert(task.index);
                tasks += 1;
            }
            if tasks >= bounds::RETURN_PARTS_MAX {
                return (returning, true);
            }
        }
        (returning, false)
    }
}

/// Takes out a step's tasks of gangs that return, and adds them to `parts`. What of a gang did not end is ready, or was when
/// another task of the gang failed.
fn take_gangs(step: &mut Step, gangs: &RangeSet, parts: &mut Vec<TriedTasks>) {
    let mut rest = step.guest.intersection(gangs);
    step.guest.subtract(&rest);
    step.ready.subtract(&rest);
    for state in [TaskState::Succeeded, TaskState::Failed, TaskState::Canceled] {
        let set = ended_set(step, state);
        let ended = set.intersection(&rest);
        set.subtract(&ended);
        rest.subtract(&ended);
        ended.ranges().for_each(|tasks| add_parts(&mut step.tries, tasks, state, parts));
    }
    rest.ranges().for_each(|tasks| add_parts(&mut step.tries, tasks, TaskState::Ready, parts));
}

/// The tasks of a step that ended so.
fn ended_set(step: &mut Step, state: TaskState) -> &mut RangeSet {
    match state {
        TaskState::Succeeded => &mut step.succeeded,
        TaskState::Failed => &mut step.failed,
        _ => &mut step.canceled,
    }
}

/// Takes out the tasks that have ended, but for the last ones, and adds them to `parts`.
fn take_ended(step: &mut Step, unsettled: &RangeSet, parts: &mut Vec<TriedTasks>) {
    let sets = [TaskState::Succeeded, TaskState::Failed, TaskState::Canceled];
    for state in sets {
        let mut ended = ended_set(step, state).clone();
        ended.subtract(unsettled);
        for tasks in ended.ranges() {
            if parts.len() >= bounds::RETURN_PARTS_MAX {
                return;
            }
            let gone = RangeSet::from_range(tasks.clone());
            ended_set(step, state).subtract(&gone);
            step.guest.subtract(&gone);
            add_parts(&mut step.tries, tasks, state, parts);
        }
    }
}

/// Takes out the last `left` of the tasks that are ready.
fn take_ready(step: &mut Step, unsettled: &RangeSet, left: &mut u32, parts: &mut Vec<TriedTasks>) {
    let mut ready = step.ready.clone();
    ready.subtract(unsettled);
    for tasks in ready.ranges().rev() {
        if *left == 0 || parts.len() >= bounds::RETURN_PARTS_MAX {
            return;
        }
        let tasks = tasks.end - tasks.len().min(*left as usize) as u32..tasks.end;
        *left -= tasks.len() as u32;
        let gone = RangeSet::from_range(tasks.clone());
        step.ready.subtract(&gone);
        step.guest.subtract(&gone);
        add_parts(&mut step.tries, tasks, TaskState::Ready, parts);
    }
}

/// Adds tasks, by ranges whose attempts came to the same.
fn add_parts(tries: &mut TriesMap, tasks: Range<u32>, state: TaskState, parts: &mut Vec<TriedTasks>) {
    let mut from = tasks.start;
    let tried = tries.take(tasks.clone());
    for (part, tries) in tried.into_iter().rev().filter(|_| state != TaskState::Succeeded) {
        if from < part.start {
            parts.push(TriedTasks { tasks: from..part.start, state, tries: Default::default() });
        }
        from = part.end;
        parts.push(TriedTasks { tasks: part, state, tries });
    }
    if from < tasks.end {
        parts.push(TriedTasks { tasks: from..tasks.end, state, tries: Default::default() });
    }
}
