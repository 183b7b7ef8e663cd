//! The life of steps and jobs: what becomes ready, what ends, what that unlocks.

use super::commands::{kill, kill_attempts, recall_queued};
use super::enlist::{open_tasks, refresh, refresh_all, refresh_capped};
use super::first_tasks::{close_followers, open_followers};
use super::holding::drop_attempt;
use super::learning::{is_largest, is_unasked, learn_all};
use super::licensing::{begin_back_off, busy_licence, had_licence};
use super::shortage::{is_run_again, told};
use super::{Attempt, Books, Ledger};
use crate::bounds;
use crate::ids::{JobId, StepKey, TaskId, WorkerId};
use crate::job::{
    DependencyKind, End, Gang, Job, JobState, Step, StepSpec, Stop, TaskResult, TaskState, Tries,
};
use crate::outbox::{Fact, Outbox, Reply, Write};
use crate::ranges::RangeSet;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Range;

/// Lets no further task of the job start, and kills what runs where the stop asks for that.
pub(super) fn stop_job(books: &mut Books, id: JobId, stop: Stop, out: &mut Outbox) {
    books.ledger.effects.touch(id);
    let Some(job) = books.ledger.jobs.get_mut(&id) else { return };
    // A cancel overrides an earlier stop, so that running tasks are killed too.
    if job.stop.is_none() || stop == Stop::Canceled {
        job.stop = Some(stop);
        out.writes.push(Write::JobStop { job: id, stop });
    }
    refresh_all(books, id);
    if books.ledger.jobs[&id].kills() {
        kill_attempts(books, id, out);
    } else {
        recall_queued(books, id, out);
    }
    settle_job(books, id, out);
}

/// An attempt that its worker had is over. Decides what becomes of the task.
pub(super) fn conclude(
    books: &mut Books,
    task: TaskId,
    attempt: &Attempt,
    result: TaskResult,
    out: &mut Outbox,
) {
    let key = books.ledger.key_of(task);
    let busy = busy_licence(&books.ledger, key, &result.end);
    learn_all(books, task, attempt, &result, busy.is_some(), out);
    let largest = result.end == End::OutOfMemory && is_largest(books, task, attempt);
    let Some(job) = books.ledger.jobs.get_mut(&task.job) else { return };
    let number = usize::from(key.step);
    let stopped = job.stop.is_some() || job.cancels.contains(task.index);
    let StepSpec { retries, is_external, .. } = job.spec.steps[number];
    let is_again = result.end.is_loss() || !largest && is_run_again(&job.spec.steps[number], &result.end);
    let step = &mut job.steps[number];
    step.leave(attempt.rides, attempt.chunk_end);
    job.active -= 1;
    books.plan.queues.settle(job.queue, attempt.counted_cpu());
    let Attempt { number: attempt_number, failures, losses, .. } = *attempt;
    let failed = busy.is_none() && is_of_its_worker(&result.end);
    // Only its client reports that an external task is lost on a worker that is not lost itself.
    let failed_on = (failed || is_external && result.end == End::Lost).then_some(attempt.worker);
    let mut tries = Tries { attempt: attempt_number, failures, losses, failed_on };
    let state = match busy {
        Some(_) if stopped => TaskState::Canceled,
        Some(_) => TaskState::Ready,
        // It counts as lost, which spends no retry.
        None if is_again => state_after(&End::Lost, false, &mut tries, retries, stopped),
        None => {
            // More memory is not to be had, so no retry.
            let retries = if largest { 0 } else { retries };
            state_after(&result.end, is_unasked(attempt, &result.end), &mut tries, retries, stopped)
        }
    };
    let gang = job.gang_of(task.index);
    let state = settle_in_gang(job, task.index, (gang, state), tries, books.plan.now());
    answer_reclaims(&mut books.ledger, task, out);
    let result = told(books, task, attempt, state, result);
    let result_end = result.end.clone();
    write_end(task, attempt, (state, tries), result, out);
    if let Some(limit) = busy.filter(|_| !stopped) {
        begin_back_off(books, key, &limit, attempt.booked, out);
    }
    match state {
        TaskState::Ready => refresh(books, key),
        TaskState::Succeeded => {
            had_licence(books, key, out);
            note_done(&mut books.ledger, key, out);
            unlock(books, task, number);
            open_followers(books, task);
        }
        _ => {}
    }
    if let Some(gang) = gang {
        end_mates(books, (task, attempt.worker), gang, (state, &result_end), out);
    }
    refresh_capped(books, key);
    if state == TaskState::Failed
        && books.ledger.jobs.get(&task.job).is_some_and(|job| job.stop.is_none() && job.has_failed_enough())
    {
        stop_job(books, task.job, Stop::FailFast, out);
    } else {
        settle_job(books, task.job, out);
    }
}

/// True of an end that may have to do with the worker, so that the next attempt is rather made on another one.
fn is_of_its_worker(end: &End) -> bool {
    matches!(end, End::Exited(_) | End::Signaled(_) | End::NotStarted { .. } | End::OutputsLost { .. })
}

/// Each time that [`bounds::NOTED_TASKS`] more tasks of a step succeeded, their ranges are written. A read of a job of
/// millions of tasks then need not look at the row of each.
fn note_done(ledger: &mut Ledger, key: StepKey, out: &mut Outbox) {
    let Some(job) = ledger.jobs.get_mut(&key.job) else { return };
    let step = &mut job.steps[usize::from(key.step)];
    if step.succeeded.len() - step.noted.min(step.succeeded.len()) < bounds::NOTED_TASKS {
        return;
    }
    step.noted = step.succeeded.len();
    let mut ranges: Vec<Range<u32>> = job.steps.iter().flat_map(|step| step.succeeded.ranges()).collect();
    if ranges.len() > bounds::NOTED_RANGES_MAX {
        // The longest say most.
        ranges.sort_by_key(|range| (Reverse(range.len()), range.start));
        ranges.truncate(bounds::NOTED_RANGES_MAX);
    }
    let mut tasks = RangeSet::default();
    ranges.into_iter().for_each(|range| tasks.insert_range(range));
    // The rows of these say what started together.
    tasks.subtract(&ledger.tasks_of_booked_gangs(key.job));
    out.writes.push(Write::SucceededRanges { job: key.job, tasks });
}

/// A task succeeded: steps that wait for it, or for its whole step, may have ready tasks now.
fn unlock(books: &mut Books, task: TaskId, number: usize) {
    let now = books.plan.now();
    let Some(job) = books.ledger.jobs.get_mut(&task.job) else { return };
    let whole = job.steps[number].succeeded.len() == job.spec.steps[number].tasks;
    let offset = task.index - job.steps[number].base;
    let spec = job.spec.clone();
    let mut changed = Vec::new();
    for (waiting, step_spec) in spec.steps.iter().enumerate() {
        // A step may wait for another in both ways: each is looked at.
        for dependency in step_spec.depends.iter().filter(|d| usize::from(d.on) == number) {
            match dependency.kind {
                DependencyKind::Task => {
                    let index = job.steps[waiting].base + offset;
                    if !job.is_unlocked(waiting, index) {
                        continue;
                    }
                    open_tasks(job, waiting, RangeSet::from_range(index..index + 1), now);
                }
                // None of these could start before, so none has an attempt.
                DependencyKind::Step if whole => {
                    let unlocked = job.unlocked(waiting);
                    open_tasks(job, waiting, unlocked, now);
                }
                DependencyKind::Step => continue,
            }
            changed.push(waiting);
        }
    }
    for waiting in changed {
        refresh(books, StepKey { job: task.job, step: waiting as u16 });
    }
}

/// Ends a job of which nothing runs and nothing can start, and then those that wait for it, or for its tasks, and cannot
/// run.
pub(crate) fn settle_job(books: &mut Books, id: JobId, out: &mut Outbox) {
    let mut open = VecDeque::from([id]);
    while let Some(id) = open.pop_front() {
        let Some(job) = books.ledger.jobs.get_mut(&id) else { continue };
        if job.ended.is_some() || !job.is_settled() {
            continue;
        }
        let state = job.end_state();
        job.ended = Some(state);
        let (counts, key) = (job.counts(), job.spec.key.clone().map(|key| (job.spec.user.clone(), key)));
        out.writes.push(Write::JobEnd { job: id, state, at: books.plan.now(), counts });
        out.facts.push(Fact::JobEnded { job: id, state, counts });
        out.ended.push(id);
        books.ledger.remember_end(id, state, key);
        for dependent in books.ledger.dependents.remove(&id).unwrap_or_default() {
            let Some(job) = books.ledger.jobs.get_mut(&dependent) else { continue };
            job.after.remove(&id);
            if !job.spec.may_follow(id, state) && job.stop.is_none() {
                job.stop = Some(Stop::After(id));
                out.writes.push(Write::JobStop { job: dependent, stop: Stop::After(id) });
            }
            refresh_all(books, dependent);
            books.ledger.effects.touch(dependent);
            open.push_back(dependent);
        }
        open.extend(close_followers(&mut books.ledger, id, out));
    }
}

/// Drops a job from memory; the store has it.
pub(crate) fn forget(books: &mut Books, id: JobId) {
    let tasks: Vec<TaskId> = books.ledger.attempts_of(id).map(|(task, _)| task).collect();
    for task in tasks {
        let attempt = drop_attempt(books, task);
        if let Some((job, attempt)) = books.ledger.jobs.get(&id).zip(attempt) {
            books.plan.queues.settle(job.queue, attempt.counted_cpu());
            books.ledger.forget_charge(task, &attempt);
        }
    }
    if let Some(job) = books.ledger.jobs.get_mut(&id) {
        job.ended = job.ended.or(Some(JobState::Canceled));
    }
    refresh_all(books, id);
    books.ledger.licences.back_offs.forget(id);
    let Some(job) = books.ledger.jobs.remove(&id) else { return };
    books.ledger.steps -= job.steps.len();
    books.plan.queues.count_job(job.queue, -1);
    for (number, step) in job.steps.iter().enumerate() {
        let key = StepKey { job: id, step: number as u16 };
        books.profiles.leave(step.profile, key);
        books.plan.forget_step(key, step.class, step.reads.is_empty());
        books.ledger.short.remove(&key);
    }
    for first in &job.after {
        if let Some(waiting) = books.ledger.dependents.get_mut(first) {
            waiting.remove(&id);
            if waiting.is_empty() {
                books.ledger.dependents.remove(first);
            }
        }
    }
    if let Some(first) = job.spec.after_tasks {
        books.ledger.unfollow(id, first);
    }
}

/// Notes the end of an attempt, and writes what the task is now.
fn write_end(
    task: TaskId,
    attempt: &Attempt,
    (state, tries): (TaskState, Tries),
    result: TaskResult,
    out: &mut Outbox,
) {
    let (number, Tries { failures, losses, .. }) = (attempt.number, tries);
    out.facts.push(Fact::Ended {
        task,
        attempt: number,
        worker: attempt.worker,
        cpu: attempt.request.cpu,
        state,
        result: result.clone(),
    });
    out.writes.push(match state {
        TaskState::Ready => Write::Requeued { task, attempt: number, failures, losses, result },
        _ => Write::End { task, attempt: number, state, failures, losses, result },
    });
}

/// The same as [`settle_task`]; returns the state that the task has in its gang. If a member of the gang failed or was
/// cancelled, none of the others starts.
fn settle_in_gang(
    job: &mut Job,
    index: u32,
    (gang, state): (Option<Gang>, TaskState),
    tries: Tries,
    now: Time,
) -> TaskState {
    let is_over = gang.is_some_and(|gang| state == TaskState::Ready && job.is_broken(&gang));
    let state = if is_over { TaskState::Canceled } else { state };
    let number = usize::from(job.step_of(index));
    settle_task(&mut job.steps[number], index, state, tries, now);
    if let Some(gang) = gang.filter(|gang| job.is_broken(gang)) {
        job.close_gang(&gang);
    }
    state
}

/// Puts a task of a step, whose attempt ended, among those that are in this state.
fn settle_task(step: &mut Step, index: u32, state: TaskState, tries: Tries, now: Time) {
    match state {
        TaskState::Succeeded => _ = step.succeeded.insert(index),
        TaskState::Failed => _ = step.failed.insert(index),
        TaskState::Canceled => _ = step.canceled.insert(index),
        _ => {
            if step.ready.is_empty() {
                step.ready_since = now;
            }
            step.ready.insert(index);
        }
    }
    if state != TaskState::Succeeded {
        // A retry of one that failed for good may go anywhere: its user has mended something.
        let failed_on = tries.failed_on.filter(|_| state == TaskState::Ready);
        step.tries.insert(index..index + 1, Tries { failed_on, ..tries });
    }
}

/// What becomes of a task whose attempt ended so; counts a failure or a loss. An attempt that its worker gave back
/// `unasked` is lost: one that keeps doing so must not have the task for ever.
fn state_after(end: &End, unasked: bool, tries: &mut Tries, retries: u32, stopped: bool) -> TaskState {
    match end {
        End::Exited(0) => TaskState::Succeeded,
        End::Canceled | End::Recalled | End::Lost if stopped => TaskState::Canceled,
        // A retry came after the kill.
        End::Canceled | End::Recalled if !unasked => TaskState::Ready,
        End::Canceled | End::Recalled | End::Lost => {
            tries.losses += 1;
            if tries.losses <= bounds::LOSSES_MAX { TaskState::Ready } else { TaskState::Failed }
        }
        _ => {
            tries.failures += 1;
            if tries.failures <= retries && !stopped { TaskState::Ready } else { TaskState::Failed }
        }
    }
}

/// An attempt of a gang is over. The others end too if the task is to run again, since all of them start together
/// then; if it never ran; and if it failed, those of its own step.
fn end_mates(
    books: &mut Books,
    (task, worker): (TaskId, WorkerId),
    gang: Gang,
    (state, end): (TaskState, &End),
    out: &mut Outbox,
) {
    books.ledger.keep_rank((task, worker), gang, state);
    let never_ran = matches!(end, End::NotStarted { .. } | End::Lost | End::Recalled);
    let all = state == TaskState::Ready || never_ran;
    if !all && state != TaskState::Failed {
        refresh(books, StepKey { job: task.job, step: gang.leader as u16 });
        return;
    }
    let Some(job) = books.ledger.jobs.get(&task.job) else { return };
    let own = usize::from(job.step_of(task.index));
    let mates = job.gang_tasks(gang).filter(|mate| all || mate.step == own);
    let mates: Vec<TaskId> = mates.map(|mate| TaskId { index: mate.index, ..task }).collect();
    for mate in mates {
        kill(books, mate, out);
    }
    // What was ready alone is not any more, or is once the others have ended.
    refresh(books, StepKey { job: task.job, step: gang.leader as u16 });
}

/// A task whose process its worker does not have goes back to its queue. Returns false for one that has a process
/// of its own.
pub(super) fn give_back_rider(books: &mut Books, task: TaskId, out: &mut Outbox) -> bool {
    let Some(rider) = books.ledger.attempts.get(&task).filter(|attempt| attempt.rides) else {
        return false;
    };
    // Its process ran where the first of its tasks has ended, and what became of this one is not known.
    let end = if books.ledger.head_of(task, rider).is_some() { End::Recalled } else { End::Lost };
    if let Some(attempt) = books.ledger.attempts.get_mut(&task) {
        attempt.recalled = true;
    }
    if let Some(attempt) = drop_attempt(books, task) {
        conclude(books, task, &attempt, TaskResult::bare(end), out);
    }
    true
}

/// Requests that wait for the task's cpus are answered: it has them, or has ended.
pub(super) fn answer_reclaims(ledger: &mut Ledger, task: TaskId, out: &mut Outbox) {
    for request in ledger.reclaims.remove(&task).unwrap_or_default() {
        out.replies.push((request, Reply::Done));
    }
}

/// All that ran under the worker's earlier epochs is gone. Told by the epoch and not by the keeper's
/// number: a commit that failed can leave attempts of an earlier epoch on a worker whose new keeper
/// is known already.
pub(crate) fn lose_attempts(books: &mut Books, id: WorkerId, out: &mut Outbox) {
    let Some(worker) = books.plan.workers.get(id) else { return };
    let tasks = worker.booked.running().iter().chain(worker.booked.backlog()).copied();
    let earlier =
        |task: &TaskId| books.ledger.attempts.get(task).is_some_and(|a| a.epoch != worker.record.epoch);
    let tasks: Vec<TaskId> = tasks.filter(earlier).collect();
    for task in tasks {
        if let Some(attempt) = drop_attempt(books, task) {
            // What was killed on request ended as asked.
            let end = if attempt.killing { End::Canceled } else { End::Lost };
            conclude(books, task, &attempt, TaskResult::bare(end), out);
        }
    }
}
