//! What people ask of tasks of a job: cancel some, run some or all of them again.
//!
//! - A job remembers which of its tasks were cancelled by themselves, until these are retried. So a task that is being
//!   killed ends as cancelled, also under an engine that starts meanwhile.
//! - Tasks that start together are cancelled and retried together.
//! - A retry of some tasks of a job that was stopped leaves the others as they are: they count as cancelled from then
//!   on.

use super::commands::{end_split_gangs, kill_process};
use super::enlist::{recompute_ready, refresh_all};
use super::first_tasks::{first_succeeded, learn_of_first, look_at_first, reopen_followers};
use super::lifecycle::{forget, settle_job};
use super::records::insert_record;
use super::requests::{done, is_active};
use super::{Books, Ledger, Lookups};
use crate::bounds;
use crate::ids::{JobId, RequestId, TaskId};
use crate::job::{Job, JobState};
use crate::outbox::{Outbox, Refusal, Reply, Write};
use crate::ranges::RangeSet;
use std::collections::BTreeSet;

/// Lets none of these tasks of a job start any more, and kills those that run.
pub(crate) fn cancel_tasks(
    books: &mut Books,
    request: RequestId,
    id: JobId,
    tasks: &RangeSet,
    out: &mut Outbox,
) {
    if !is_active(&books.ledger, request, id, out) {
        return;
    }
    let Some(job) = books.ledger.jobs.get(&id) else { return };
    let (open, cancels) = match to_cancel(job, tasks) {
        Ok(found) => found,
        Err(refusal) => {
            out.replies.push((request, Reply::Refused(refusal)));
            return;
        }
    };
    if cancels == job.cancels {
        out.replies.push((request, Reply::Done));
        return;
    }
    let attempts = books.ledger.attempts_of(id).map(|(task, _)| task);
    let booked: Vec<TaskId> = attempts.filter(|task| open.contains(task.index)).collect();
    let mut idle = open;
    for task in &booked {
        idle.remove(task.index);
    }
    books.ledger.effects.touch(id);
    if let Some(job) = books.ledger.jobs.get_mut(&id) {
        job.cancel_idle(&idle);
        job.cancels = cancels.clone();
    }
    refresh_all(books, id);
    done(request, id, Write::TasksCanceled { job: id, tasks: cancels }, out);
    for task in booked {
        kill_process(books, task, out);
    }
    settle_job(books, id, out);
}

/// What a cancel of these tasks concerns: those that have not ended, and all cancelled tasks of the job from then on.
fn to_cancel(job: &Job, tasks: &RangeSet) -> Result<(RangeSet, RangeSet), Refusal> {
    let tasks = named(job, tasks)?;
    let open = job.not_ended(&tasks);
    if open.is_empty() && job.cancels.intersection(&tasks).is_empty() {
        return Err(Refusal::NothingToCancel(job.id));
    }
    let mut cancels = job.cancels.clone();
    open.ranges().for_each(|range| cancels.insert_range(range));
    check_ranges(&cancels)?;
    Ok((open, cancels))
}

/// Runs failed and cancelled tasks of a job again: all of them, or those of `tasks`. `lookups` has what the store has of
/// the job, and of that after whose tasks its own come, where they are not resident.
pub(crate) fn retry(
    books: &mut Books,
    request: RequestId,
    id: JobId,
    (tasks, mut lookups): (Option<RangeSet>, Lookups),
    out: &mut Outbox,
) {
    out.about.insert(request, id);
    let is_read = !books.ledger.jobs.contains_key(&id);
    if is_read {
        match lookups.remove(&id).flatten() {
            Some(record) => {
                insert_record(books, record, BTreeSet::new());
                learn_of_first(&mut books.ledger, id, &lookups);
            }
            None => {
                out.replies.push((request, Reply::Refused(Refusal::NoJob(id))));
                return;
            }
        }
    }
    let Some(job) = books.ledger.jobs.get(&id) else { return };
    match to_retry(&books.ledger, job, tasks.as_ref()) {
        Ok((tasks, cancels)) => run_again(books, request, id, (tasks, cancels), out),
        Err(refusal) => {
            // One that ended just now is forgotten when that is durable.
            if is_read && job.ended.is_some() {
                books.ledger.leave_key_to_store(id);
                forget(books, id);
            }
            out.replies.push((request, Reply::Refused(refusal)));
        }
    }
}

/// The tasks that a retry concerns, and all cancelled tasks of the job from then on.
fn to_retry(ledger: &Ledger, job: &Job, some: Option<&RangeSet>) -> Result<(RangeSet, RangeSet), Refusal> {
    let all = RangeSet::from_range(0..job.spec.tasks());
    let tasks = some.map_or_else(|| Ok(all.clone()), |some| named(job, some))?;
    let is_over = job.ended.map_or(job.stop.is_some(), |state| state != JobState::Succeeded);
    // What a stop kept from starting, or a failure before it, is retried as well.
    let unstarted = is_over && (some.is_none() || job.stop.is_some() && !job.not_ended(&tasks).is_empty());
    if !unstarted && job.unsuccessful(&tasks).is_empty() && job.cancels.intersection(&tasks).is_empty() {
        return Err(match some {
            Some(_) => Refusal::NoneToRetry(job.id),
            None => Refusal::NothingToRetry(job.id),
        });
    }
    let mut cancels = job.cancels.clone();
    if job.stop.is_some() {
        let mut rest = job.not_ended(&all);
        if !job.kills() {
            ledger.attempts_of(job.id).for_each(|(task, _)| _ = rest.remove(task.index));
        }
        rest.ranges().for_each(|range| cancels.insert_range(range));
    }
    cancels.subtract(&tasks);
    check_ranges(&cancels)?;
    Ok((tasks, cancels))
}

/// The job goes on: of `tasks`, those that failed or were cancelled are to run again. `cancels` are all of its tasks
/// that are cancelled from now on.
fn run_again(
    books: &mut Books,
    request: RequestId,
    id: JobId,
    (tasks, cancels): (RangeSet, RangeSet),
    out: &mut Outbox,
) {
    let attempts = books.ledger.attempts_of(id).map(|(task, _)| task);
    let booked: Vec<TaskId> = attempts.filter(|task| cancels.contains(task.index)).collect();
    let Some(job) = books.ledger.jobs.get_mut(&id) else { return };
    let has_other_cancels = cancels != job.cancels;
    job.stop = None;
    job.ended = None;
    job.cancels = cancels.clone();
    for (number, part) in tasks.ranges().flat_map(|range| job.by_step(range)).collect::<Vec<_>>() {
        let step = &mut job.steps[number];
        let again = RangeSet::from_range(part.clone());
        step.failed.subtract(&again);
        step.canceled.subtract(&again);
        // Those that wait count from zero as well, and the others keep their failures, as in their rows.
        step.tries.change(part, |tries| tries.failures = 0);
    }
    let mut idle = job.not_ended(&cancels);
    for task in &booked {
        idle.remove(task.index);
    }
    job.cancel_idle(&idle);
    // Jobs before it that failed do not stop it again; those that are active it waits for.
    let spec = job.spec.clone();
    let open = books.ledger.open_among(&spec.after);
    for first in &open {
        books.ledger.effects.touch(*first);
        books.ledger.dependents.entry(*first).or_default().insert(id);
    }
    if let Some(job) = books.ledger.jobs.get_mut(&id) {
        job.after = open;
    }
    out.ended.retain(|ended| *ended != id);
    books.ledger.recent.remove(&BTreeSet::from([id]));
    recompute_ready(books, id, None);
    look_at_first(books, id);
    reopen_followers(books, id);
    end_split_gangs(books, id, out);
    done(request, id, Write::JobRetry { job: id, tasks }, out);
    if has_other_cancels {
        out.writes.push(Write::TasksCanceled { job: id, tasks: cancels });
    }
    out.writes.extend(first_succeeded(&books.ledger, id));
    // What these tasks wait for may have failed and not be among them: then the job ends as it did.
    settle_job(books, id, out);
}

/// The tasks that a request names, and all with which they start. An error if the job does not have them.
fn named(job: &Job, tasks: &RangeSet) -> Result<RangeSet, Refusal> {
    let total = job.spec.tasks();
    if let Some(beyond) = tasks.ranges().next_back().filter(|range| range.end > total) {
        return Err(Refusal::NoSuchTask { job: job.id, index: beyond.start.max(total), total });
    }
    if tasks.is_empty() {
        return Err(Refusal::NothingNamed);
    }
    check_ranges(tasks)?;
    Ok(job.with_mates(tasks))
}

fn check_ranges(tasks: &RangeSet) -> Result<(), Refusal> {
    let (what, is, max) = ("ranges of tasks", tasks.ranges().count(), bounds::REQUESTED_RANGES_MAX);
    if is > max { Err(Refusal::TooMany { what, is: is as u64, max: max as u64 }) } else { Ok(()) }
}
