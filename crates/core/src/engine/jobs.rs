//! The life of steps and jobs: what becomes ready, what ends, what that unlocks.

use super::{Attempt, Engine, Lent, Note, Outbox, Write};
use crate::ids::{JobId, StepKey, TaskId};
use crate::job::{DependencyKind, End, Job, JobState, Step, Stop, TaskRow, TaskState, Tries};
use crate::limits;
use crate::queues::Candidate;
use crate::ranges::RangeSet;
use crate::time::Time;
use std::collections::VecDeque;

impl Engine {
    /// Brings a step's place in its queue in line with whether it may start tasks.
    pub(super) fn refresh(&mut self, key: StepKey) {
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        let open = !job.held && job.stop.is_none() && job.ended.is_none() && job.after.is_empty();
        let (queue, priority) = (job.queue, job.spec.priority);
        let step = &mut job.steps[usize::from(key.step)];
        let open = open && !self.kin.get(&step.kin).is_some_and(|kin| kin.gated);
        let open = open && self.back_offs.in_force(key).is_none();
        let wanted = (open && !step.ready.is_empty()).then(|| Candidate::new(priority, step.ranked(), key));
        if wanted == step.enlisted {
            return;
        }
        if let Some(old) = step.enlisted.take() {
            self.queues.remove(queue, step.class, &old);
        }
        if let Some(new) = wanted {
            self.queues.insert(queue, step.class, new);
            self.dirty = true;
        }
        step.enlisted = wanted;
    }

    pub(super) fn refresh_all(&mut self, id: JobId) {
        let steps = self.jobs.get(&id).map_or(0, |job| job.steps.len());
        for step in 0..steps {
            self.refresh(StepKey { job: id, step: step as u16 });
        }
    }

    /// Works out the ready tasks of every step from what has ended and what runs.
    /// They are ready since then, or from now on.
    pub(super) fn recompute_ready(&mut self, id: JobId, since: Option<Time>) {
        let running: Vec<u32> = self.attempts_of(id).map(|(task, _)| task.index).collect();
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for number in 0..job.steps.len() {
            let mut ready = job.unlocked(number);
            let step = &mut job.steps[number];
            for ended in [&step.succeeded, &step.failed, &step.canceled] {
                ready.subtract(ended);
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
        self.refresh_all(id);
    }

    /// Takes in a task's row: an end, or an attempt that its worker has.
    pub(super) fn adopt_row(&mut self, id: JobId, row: TaskRow) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let number = job.step_of(row.index);
        let step = &mut job.steps[usize::from(number)];
        let (attempt, failures, losses) = (row.attempt, row.failures, row.losses);
        let tries = Tries { attempt, failures, losses, failed_on: None };
        match row.state {
            TaskState::Succeeded => _ = step.succeeded.insert(row.index),
            TaskState::Failed => _ = step.failed.insert(row.index),
            TaskState::Canceled => _ = step.canceled.insert(row.index),
            TaskState::Booked | TaskState::Running => {
                step.active += 1;
                self.adopt_attempt(id, number, &row);
                return;
            }
            TaskState::Waiting | TaskState::Ready | TaskState::Skipped => {}
        }
        if row.state != TaskState::Succeeded {
            step.tries.insert(row.index, tries);
        }
    }

    /// Takes in an attempt that its worker has. It holds nothing until the worker says that it runs; until
    /// that worker is heard from it gets no new work, so nothing is booked twice over meanwhile.
    fn adopt_attempt(&mut self, id: JobId, number: u16, row: &TaskRow) {
        let Some(job) = self.jobs.get(&id) else { return };
        let task = TaskId { job: id, index: row.index };
        self.workers.update(row.worker, |w| w.backlog.push_back(task));
        let mut request = job.spec.steps[usize::from(number)].request.clone();
        let (cpu, memory) = row.amounts.unwrap_or((request.cpu, request.memory));
        request.cpu = cpu;
        let expects = memory.saturating_sub(request.memory);
        let (queue, charged) = (job.queue, self.adopted_charge(row.worker, &request, expects));
        self.queues.hold(queue, request.cpu);
        let attempt = Attempt {
            number: row.attempt,
            worker: row.worker,
            epoch: row.epoch,
            booked: row.booked,
            started: None,
            failures: row.failures,
            losses: row.losses,
            request,
            expects,
            seq: 0,
            queued: true,
            killing: job.kills(),
            lent: Lent::No,
            charged,
        };
        let kin = job.steps[usize::from(number)].kin;
        self.attempts.insert(task, attempt);
        self.take_limits(StepKey { job: id, step: number }, row.worker, 1);
        self.kin_booked(kin, row.booked);
    }

    /// An attempt that its worker had is over. Decides what becomes of the task.
    pub(super) fn conclude(
        &mut self,
        task: TaskId,
        attempt: &Attempt,
        result: crate::job::TaskResult,
        out: &mut Outbox,
    ) {
        self.learn(task, attempt, &result, out);
        let key = self.key_of(task);
        let busy = self.busy_limit(key, &result.end);
        if busy.is_none() {
            self.judge_worker(task, attempt, &result.end);
        }
        let ran_ns = if busy.is_some() { None } else { ran_ns(attempt, &result, self.now) };
        self.settle_charge(task, attempt, ran_ns);
        let largest = result.end == End::OutOfMemory && self.is_largest(task, attempt);
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        let number = usize::from(key.step);
        let stopped = job.stop.is_some();
        let retries = job.spec.steps[number].retries;
        let step = &mut job.steps[number];
        step.active -= 1;
        self.queues.settle(job.queue, attempt.request.cpu);
        let (number_of_attempt, failures, losses) = (attempt.number, attempt.failures, attempt.losses);
        let failed =
            busy.is_none() && matches!(result.end, End::Exited(_) | End::Signaled(_) | End::NotStarted(_));
        let failed_on = failed.then_some(attempt.worker);
        let mut tries = Tries { attempt: number_of_attempt, failures, losses, failed_on };
        // With more memory than any worker has it would end no better.
        let state = match busy {
            Some(_) if stopped => TaskState::Canceled,
            Some(_) => TaskState::Ready,
            None => state_after(&result.end, &mut tries, if largest { 0 } else { retries }, stopped),
        };
        settle_task(step, task.index, state, tries, self.now);
        self.learn_length(key, &result);
        let Tries { failures, losses, .. } = tries;
        self.answer_reclaims(task, out);
        let note = Note::Ended { task, attempt: number_of_attempt, state, result: result.clone() };
        out.notes.push(note);
        out.writes.push(if state == TaskState::Ready {
            Write::Again { task, attempt: number_of_attempt, failures, losses, result }
        } else {
            Write::End { task, attempt: number_of_attempt, state, failures, losses, result }
        });
        if let Some(limit) = busy.filter(|_| !stopped) {
            self.begin_back_off(key, limit, attempt.booked, out);
        }
        match state {
            TaskState::Ready => self.refresh(key),
            TaskState::Succeeded => {
                self.had_licence(key, out);
                self.unlock(task, number);
            }
            _ => {}
        }
        if state == TaskState::Failed && !stopped && self.jobs[&task.job].spec.fail_fast != Default::default()
        {
            self.stop_job(task.job, Stop::FailFast, out);
        } else {
            self.settle_job(task.job, out);
        }
    }

    /// How long a task takes, only one says that did all of its work.
    fn learn_length(&mut self, key: StepKey, result: &crate::job::TaskResult) {
        let ran = result.started.zip(result.finished).filter(|_| result.end == End::Exited(0));
        let Some((started, finished)) = ran else { return };
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        let step = &mut job.steps[usize::from(key.step)];
        let ms = finished.since(started) as f64 / 1e6;
        let mean_ms = step.mean_ms.map_or(ms, |mean| mean + 0.2 * (ms - mean));
        step.mean_ms = Some(mean_ms);
        if mean_ms < limits::PREFETCH_MS {
            self.short.insert(key);
        } else {
            self.short.remove(&key);
        }
    }

    /// A task succeeded: steps that wait for it, or for its whole step, may have ready tasks now.
    fn unlock(&mut self, task: TaskId, number: usize) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
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
            self.refresh(StepKey { job: task.job, step: waiting as u16 });
        }
    }

    /// Ends a job of which nothing runs and nothing can start, and what comes after it.
    pub(super) fn settle_job(&mut self, id: JobId, out: &mut Outbox) {
        let mut open = VecDeque::from([id]);
        while let Some(id) = open.pop_front() {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if job.ended.is_some() || !job.is_settled() {
                continue;
            }
            let state = end_state(job);
            job.ended = Some(state);
            let (counts, key) = (job.counts(), job.spec.key.clone().map(|key| (job.spec.user.clone(), key)));
            out.writes.push(Write::JobEnd { job: id, state, at: self.now, counts });
            out.notes.push(Note::JobEnded { job: id, state, counts });
            out.ended.push(id);
            self.recent.push_back((id, state, key));
            if self.recent.len() > limits::RECENT_JOBS_MAX
                && let Some((old, _, Some(key))) = self.recent.pop_front()
                && self.keys.get(&key) == Some(&old)
            {
                self.keys.remove(&key);
            }
            for dependent in self.dependents.remove(&id).unwrap_or_default() {
                let Some(job) = self.jobs.get_mut(&dependent) else { continue };
                job.after.remove(&id);
                if state != JobState::Succeeded && job.stop.is_none() {
                    job.stop = Some(Stop::After(id));
                    out.writes.push(Write::JobStop { job: dependent, stop: Stop::After(id) });
                }
                self.refresh_all(dependent);
                self.stand(dependent, None);
                self.keep_in_line(dependent, out);
                open.push_back(dependent);
            }
        }
    }

    /// Drops a job from memory; the store has it.
    pub(super) fn forget(&mut self, id: JobId) {
        let tasks: Vec<TaskId> = self.attempts_of(id).map(|(task, _)| task).collect();
        for task in tasks {
            let attempt = self.drop_attempt(task);
            if let Some((job, attempt)) = self.jobs.get(&id).zip(attempt) {
                self.queues.settle(job.queue, attempt.request.cpu);
                self.forget_charge(task, &attempt);
            }
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.ended = job.ended.or(Some(JobState::Canceled));
        }
        self.refresh_all(id);
        self.back_offs.forget(id);
        self.step_out(id);
        let Some(job) = self.jobs.remove(&id) else { return };
        self.park.steps -= job.steps.len();
        for (number, step) in job.steps.iter().enumerate() {
            self.classes.release(step.class);
            let key = StepKey { job: id, step: number as u16 };
            self.leave_kin(step.kin, key);
            self.short.remove(&key);
        }
        for first in &job.after {
            if let Some(waiting) = self.dependents.get_mut(first) {
                waiting.remove(&id);
            }
        }
    }
}

/// How long an attempt ran; `None` of one that did not, and of one that was lost, which is not its queue's
/// doing.
fn ran_ns(attempt: &Attempt, result: &crate::job::TaskResult, now: Time) -> Option<u64> {
    if matches!(result.end, End::Lost | End::NotStarted(_) | End::Recalled) {
        return None;
    }
    let ran = result.started.zip(result.finished).map(|(started, finished)| finished.since(started));
    ran.or_else(|| Some(now.since(attempt.started?)))
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
        step.tries.insert(index, tries);
    }
}

/// What becomes of a task whose attempt ended so; counts a failure or a loss.
fn state_after(end: &End, tries: &mut Tries, retries: u32, stopped: bool) -> TaskState {
    match end {
        End::Exited(0) => TaskState::Succeeded,
        End::Canceled | End::Recalled | End::Lost if stopped => TaskState::Canceled,
        // A retry came after the kill.
        End::Canceled | End::Recalled => TaskState::Ready,
        End::Lost => {
            tries.losses += 1;
            if tries.losses <= limits::LOSSES_MAX { TaskState::Ready } else { TaskState::Failed }
        }
        _ => {
            tries.failures += 1;
            if tries.failures <= retries && !stopped { TaskState::Ready } else { TaskState::Failed }
        }
    }
}

fn end_state(job: &Job) -> JobState {
    let whole = |i: usize| job.steps[i].succeeded.len() == job.spec.steps[i].tasks;
    match job.stop {
        _ if (0..job.steps.len()).all(whole) => JobState::Succeeded,
        Some(Stop::Canceled) => JobState::Canceled,
        _ if job.steps.iter().all(|s| s.failed.is_empty()) && job.stop.is_none() => JobState::Canceled,
        _ => JobState::Failed,
    }
}

/// Adds tasks to a waiting step, but for those that were tried.
fn open_tasks(job: &mut Job, step: usize, mut tasks: RangeSet, now: Time) {
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
