//! Jobs whose tasks come after those of another job, task by task: the followers of that job.
//!
//! - A task that succeeded is never run again, so the tasks that a follower may start only grow.
//! - A job with followers is resident while it is active, and so are its followers: its own tasks say what has succeeded.
//! - A job's end writes to its followers what of it succeeded, in the same batch. From then on they need nothing of it:
//!   its rows may be deleted. The tasks that did not succeed keep theirs from starting until they are retried.
//! - A retry of the job opens its active followers again. A follower that has ended looks at it when it is retried itself.

use super::enlist::{open_tasks, recompute_ready, refresh};
use super::{Books, Ledger, Lookups};
use crate::ids::{JobId, StepKey, TaskId};
use crate::job::{JobSpec, JobState};
use crate::outbox::{Outbox, Refusal, Write};
use crate::ranges::RangeSet;

/// A task succeeded: those of its job's followers that have its number may start as far as it goes.
pub(super) fn open_followers(books: &mut Books, task: TaskId) {
    let Some(followers) = books.ledger.followers.get(&task.job).cloned() else { return };
    let now = books.plan.now();
    for follower in followers {
        let is_booked = books.ledger.attempts.contains_key(&TaskId { job: follower, ..task });
        let Some(job) = books.ledger.jobs.get_mut(&follower) else { continue };
        let Some(first) = &mut job.first_tasks else { continue };
        first.succeeded.insert(task.index);
        let step = job.step_of(task.index);
        // It is booked already where a commit that was refused in part took back what let it start.
        if is_booked || !job.is_unlocked(usize::from(step), task.index) {
            continue;
        }
        open_tasks(job, usize::from(step), RangeSet::from_range(task.index..task.index + 1), now);
        refresh(books, StepKey { job: follower, step });
    }
}

/// A job has ended: no more of its tasks succeed. Returns its followers, which may have nothing left to wait for.
pub(super) fn close_followers(ledger: &mut Ledger, first: JobId, out: &mut Outbox) -> Vec<JobId> {
    let followers: Vec<JobId> = ledger.followers.get(&first).into_iter().flatten().copied().collect();
    for id in &followers {
        let Some(known) = ledger.jobs.get_mut(id).and_then(|job| job.first_tasks.as_mut()) else { continue };
        known.is_active = false;
        out.writes.push(Write::FirstSucceeded { job: *id, tasks: known.succeeded.clone() });
    }
    followers
}

/// A job is active again: its followers wait for its tasks.
pub(super) fn reopen_followers(books: &mut Books, first: JobId) {
    let followers: Vec<JobId> = books.ledger.followers.get(&first).into_iter().flatten().copied().collect();
    followers.into_iter().for_each(|id| look_at_first(books, id));
}

/// Brings what all followers know in line with the tasks that they come after, where the jobs of these are resident.
pub(crate) fn look_at_all(books: &mut Books) {
    let followers: Vec<JobId> = books.ledger.followers.values().flatten().copied().collect();
    followers.into_iter().for_each(|id| look_at_first(books, id));
}

/// The same for one job; nothing for a job that comes after no other one's tasks.
pub(super) fn look_at_first(books: &mut Books, id: JobId) {
    let ledger = &mut books.ledger;
    let Some(first) = ledger.jobs.get(&id).and_then(|job| job.spec.after_tasks) else { return };
    let (succeeded, is_active) = match ledger.jobs.get(&first) {
        Some(job) => (job.succeeded(), job.ended.is_none()),
        None => (RangeSet::default(), false),
    };
    let Some(known) = ledger.jobs.get_mut(&id).and_then(|job| job.first_tasks.as_mut()) else { return };
    known.is_active = is_active;
    let before = known.succeeded.len();
    succeeded.ranges().for_each(|range| known.succeeded.insert_range(range));
    let has_grown = known.succeeded.len() > before;
    if is_active {
        ledger.effects.touch(first);
    }
    if has_grown {
        recompute_ready(books, id, None);
    }
}

/// A job was read from the store, and with it the job after whose tasks its own come, if that is not resident.
pub(super) fn learn_of_first(ledger: &mut Ledger, id: JobId, lookups: &Lookups) {
    let Some(job) = ledger.jobs.get_mut(&id) else { return };
    let found = job.spec.after_tasks.and_then(|first| lookups.get(&first)?.as_ref());
    if let Some((record, known)) = found.zip(job.first_tasks.as_mut()) {
        record.succeeded().ranges().for_each(|range| known.succeeded.insert_range(range));
    }
}

/// What is written of a job that goes on or begins, where the job after whose tasks its own come has ended.
pub(super) fn first_succeeded(ledger: &Ledger, id: JobId) -> Option<Write> {
    let known = ledger.jobs.get(&id)?.first_tasks.as_ref().filter(|known| !known.is_active)?;
    Some(Write::FirstSucceeded { job: id, tasks: known.succeeded.clone() })
}

/// The tasks that succeeded of the job after whose tasks those of a submission come; none of a submission that comes
/// after no other job's tasks.
///
/// # Errors
/// There is no such job, or it has another number of tasks.
pub(super) fn check_first(ledger: &Ledger, spec: &JobSpec, lookups: &Lookups) -> Result<RangeSet, Refusal> {
    let Some(first) = spec.after_tasks else { return Ok(RangeSet::default()) };
    let resident = ledger.jobs.get(&first).map(|job| (job.succeeded(), job.spec.tasks()));
    let ended = || {
        let record = lookups.get(&first)?.as_ref().filter(|record| record.state != JobState::Active)?;
        Some((record.succeeded(), record.spec.tasks()))
    };
    let (succeeded, of_first) = resident.or_else(ended).ok_or(Refusal::NoJob(first))?;
    let is = spec.tasks();
    if is == of_first { Ok(succeeded) } else { Err(Refusal::BadAfterTasks { first, is, of_first }) }
}

impl Ledger {
    /// The followers of these jobs.
    pub(crate) fn followers_of<'a>(&self, jobs: impl IntoIterator<Item = &'a JobId>) -> Vec<JobId> {
        jobs.into_iter().filter_map(|id| self.followers.get(id)).flatten().copied().collect()
    }

    /// A follower of `first` is forgotten.
    pub(super) fn unfollow(&mut self, id: JobId, first: JobId) {
        if let Some(followers) = self.followers.get_mut(&first) {
            followers.remove(&id);
            if followers.is_empty() {
                self.followers.remove(&first);
            }
        }
    }

    /// Followers know of their first job what its tasks say while it is active.
    pub(super) fn check_followers(&self) -> Result<(), String> {
        for job in self.jobs.values() {
            let Some(first) = job.spec.after_tasks else {
                if job.first_tasks.is_some() {
                    return Err(format!("job {} knows tasks of another job and comes after none", job.id));
                }
                continue;
            };
            if !self.followers.get(&first).is_some_and(|followers| followers.contains(&job.id)) {
                return Err(format!("job {} is not among the followers of job {first}", job.id));
            }
            let active = self.jobs.get(&first).filter(|first| first.ended.is_none());
            let known = job.first_tasks.clone().unwrap_or_default();
            if known.is_active != active.is_some() {
                return Err(format!("job {}: knows wrongly whether job {first} is active", job.id));
            }
            if active.is_some_and(|first| first.succeeded() != known.succeeded) {
                return Err(format!("job {}: knows other tasks of job {first} as succeeded", job.id));
            }
        }
        match self.followers.iter().find(|(_, jobs)| jobs.iter().any(|id| !self.jobs.contains_key(id))) {
            Some((first, jobs)) => Err(format!("of {jobs:?}, which follow job {first}, one is gone")),
            None => Ok(()),
        }
    }
}
