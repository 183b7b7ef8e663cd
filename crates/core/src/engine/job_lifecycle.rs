//! The life of steps and jobs: what becomes ready, what ends, what that unlocks.

use super::{Attempt, Engine, Fact, Outbox, Write};
use crate::bounds;
use crate::ids::{JobId, StepKey, TaskId};
use crate::job::QueuedStep;
use crate::job::{
    ChunkEnd, DependencyKind, End, EndedTasks, Gang, Job, JobState, Step, StepSpec, Stop, TaskResult,
    TaskRow, TaskState, Tries,
};
use crate::ledger::Lent;
use crate::ranges::RangeSet;
use crate::resources::Resources;
use crate::score::dependents::ranked_since;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Range;

impl Engine {
    /// Brings a step's place in its queue in line with whether it may start tasks.
    pub(super) fn refresh(&mut self, key: StepKey) {
        let key = self.ledger.leader_of(key).unwrap_or(key);
        let wanted = self.wanted_place(key);
        if wanted.is_some() {
            self.fit_class_to_gang(key);
        }
        let Some(job) = self.ledger.jobs.get_mut(&key.job) else { return };
        let queue = job.queue;
        let step = &mut job.steps[usize::from(key.step)];
        if wanted == step.enlisted {
            return;
        }
        // The new place first: a queue without a step for a moment would count as idle, and come in again behind others.
        if let Some(new) = wanted {
            self.plan.enlist(queue, step.class, new);
        }
        if let Some(old) = std::mem::replace(&mut step.enlisted, wanted) {
            self.plan.withdraw(queue, step.class, &old);
        }
    }

    /// Where a step should stand in its queue; `None` if it may start nothing now.
    pub(super) fn wanted_place(&self, key: StepKey) -> Option<QueuedStep> {
        let job = self.ledger.jobs.get(&key.job)?;
        if job.held || job.stop.is_some() || job.ended.is_some() || !job.after.is_empty() {
            return None;
        }
        let may_start = |number: usize| {
            let key = StepKey { step: number as u16, ..key };
            self.profiles.throttled(job.steps[number].profile).is_none()
                && self.licences.back_off(key).is_none()
        };
        let number = usize::from(key.step);
        let open = job.cap_reached(number).is_none() && job.has_startable(number);
        let open = open && job.gang_steps(number).all(may_start);
        open.then(|| QueuedStep::new(job.spec.priority, ranked_since(&job.steps[number]), key))
    }

    /// One more or one less task of the step is booked or runs: caps on these may be reached, or no longer.
    pub(super) fn refresh_capped(&mut self, key: StepKey) {
        let Some(job) = self.ledger.jobs.get(&key.job) else { return };
        // Tasks that start together need more room below the cap than one.
        let is_crossed = |max: u32| job.has_gangs || job.active == max || job.active + 1 == max;
        if job.spec.max_running.is_some_and(is_crossed) {
            self.refresh_all(key.job);
        } else if job.spec.steps[usize::from(key.step)].max_running.is_some() {
            self.refresh(key);
        }
    }

    pub(super) fn refresh_all(&mut self, id: JobId) {
        let steps = self.ledger.jobs.get(&id).map_or(0, |job| job.steps.len());
        for step in 0..steps {
            self.refresh(StepKey { job: id, step: step as u16 });
        }
    }

    /// Works out the ready tasks of every step from what has ended and what runs.
    /// They are ready since then, or from now on.
    pub(super) fn recompute_ready(&mut self, id: JobId, since: Option<Time>) {
        let running: Vec<u32> = self.ledger.attempts_of(id).map(|(task, _)| task.index).collect();
        let now = self.now;
        let Some(job) = self.ledger.jobs.get_mut(&id) else { return };
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
        self.refresh_all(id);
    }

    /// Takes in a task's row: an end, or an attempt that its worker has.
    pub(super) fn adopt_row(&mut self, id: JobId, row: TaskRow) {
        let Some(job) = self.ledger.jobs.get_mut(&id) else { return };
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
                job.active += 1;
                self.adopt_attempt(id, number, &row);
                return;
            }
            TaskState::Waiting | TaskState::Ready | TaskState::Skipped => {}
        }
        if row.state != TaskState::Succeeded {
            step.tries.insert(row.index..row.index + 1, tries);
        }
    }

    /// Takes in tasks that ended.
    pub(super) fn adopt_ended(&mut self, id: JobId, ended: EndedTasks) {
        let Some(job) = self.ledger.jobs.get_mut(&id) else { return };
        let EndedTasks { tasks, state, tries } = ended;
        for (number, part) in job.by_step(tasks) {
            let step = &mut job.steps[number];
            match state {
                TaskState::Succeeded => step.succeeded.insert_range(part.clone()),
                TaskState::Failed => step.failed.insert_range(part.clone()),
                _ => step.canceled.insert_range(part.clone()),
            }
            if state != TaskState::Succeeded {
                step.tries.insert(part.clone(), tries);
            }
            step.noted = step.succeeded.len();
        }
    }

    /// Takes in an attempt that its worker has. It holds nothing until the worker says that it runs; until
    /// that worker is heard from it gets no new work, so nothing is booked twice over meanwhile.
    fn adopt_attempt(&mut self, id: JobId, number: u16, row: &TaskRow) {
        let Some(job) = self.ledger.jobs.get(&id) else { return };
        let task = TaskId { job: id, index: row.index };
        self.plan.workers.update(row.worker, |w| w.backlog.push_back(task));
        let mut request = job.spec.steps[usize::from(number)].request.clone();
        let (cpu, memory) = row.amounts.unwrap_or((request.cpu, request.memory));
        // What rides holds nothing, and was booked so.
        let rides = job.spec.steps[usize::from(number)].chunks.is_some()
            && row.amounts == Some((0, 0))
            && request != Resources::default();
        let (queue, mut expects) = (job.queue, memory.saturating_sub(request.memory));
        let charged = match rides {
            true => self.adopted_charge(row.worker, &request, 0),
            false => {
                request.cpu = cpu;
                self.adopted_charge(row.worker, &request, expects)
            }
        };
        if rides {
            (request, expects) = (Resources::default(), 0);
        }
        self.plan.queues.hold(queue, request.cpu);
        // Any message that was sent to the worker so far may have been its start.
        let seq = self.plan.workers.get(row.worker).map_or(0, |worker| worker.seq);
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
            rides,
            last: row.index,
            chunk_end: ChunkEnd::default(),
            seq,
            queued: true,
            killing: job.kills(),
            recalled: false,
            lent: Lent::No,
            charged,
        };
        let profile = job.steps[usize::from(number)].profile;
        if let Some(job) = self.ledger.jobs.get_mut(&id).filter(|_| rides) {
            job.steps[usize::from(number)].riding += 1;
        }
        self.ledger.count_advance(id, &attempt, true, &mut self.plan.queues);
        self.ledger.attempts.insert(task, attempt);
        if !rides {
            self.take_limits(StepKey { job: id, step: number }, row.worker, 1);
        }
        self.profile_booked(profile, row.booked);
    }

    /// An attempt that its worker had is over. Decides what becomes of the task.
    pub(super) fn conclude(&mut self, task: TaskId, attempt: &Attempt, result: TaskResult, out: &mut Outbox) {
        let key = self.ledger.key_of(task);
        let busy = self.busy_limit(key, &result.end);
        self.learn_all(task, attempt, &result, busy.is_some(), out);
        let largest = result.end == End::OutOfMemory && self.is_largest(task, attempt);
        let Some(job) = self.ledger.jobs.get_mut(&task.job) else { return };
        let number = usize::from(key.step);
        let stopped = job.stop.is_some();
        let StepSpec { retries, is_external, .. } = job.spec.steps[number];
        let step = &mut job.steps[number];
        step.leave(attempt.rides, attempt.chunk_end);
        job.active -= 1;
        self.plan.queues.settle(job.queue, attempt.request.cpu);
        let Attempt { number: attempt_number, failures, losses, .. } = *attempt;
        let failed = busy.is_none()
            && matches!(result.end, End::Exited(_) | End::Signaled(_) | End::NotStarted { .. });
        // Only its client reports that an external task is lost on a worker that is not lost itself.
        let failed_on = (failed || is_external && result.end == End::Lost).then_some(attempt.worker);
        let mut tries = Tries { attempt: attempt_number, failures, losses, failed_on };
        // With more memory than any worker has it would end no better.
        let state = match busy {
            Some(_) if stopped => TaskState::Canceled,
            Some(_) => TaskState::Ready,
            None => {
                let retries = if largest { 0 } else { retries };
                state_after(&result.end, is_unasked(attempt, &result.end), &mut tries, retries, stopped)
            }
        };
        let gang = job.gang_of(task.index);
        let state = settle_in_gang(job, task.index, (gang, state), tries, self.now);
        self.answer_reclaims(task, out);
        let result_end = result.end.clone();
        write_end(task, attempt, (state, tries), result, out);
        if let Some(limit) = busy.filter(|_| !stopped) {
            self.begin_back_off(key, &limit, attempt.booked, out);
        }
        match state {
            TaskState::Ready => self.refresh(key),
            TaskState::Succeeded => {
                self.had_licence(key, out);
                self.note_done(key, out);
                self.unlock(task, number);
            }
            _ => {}
        }
        if let Some(gang) = gang {
            self.end_mates((task, attempt.worker), gang, (state, &result_end), out);
        }
        self.refresh_capped(key);
        if state == TaskState::Failed
            && !stopped
            && self.ledger.jobs[&task.job].spec.fail_fast != Default::default()
        {
            self.stop_job(task.job, Stop::FailFast, out);
        } else {
            self.settle_job(task.job, out);
        }
    }

    /// What an end teaches of its kind and its worker, and what it costs its queue. One that was not durable comes
    /// again: what it teaches was learned the first time. Where a licence was `busy`, it is nobody's doing.
    fn learn_all(
        &mut self,
        task: TaskId,
        attempt: &Attempt,
        result: &TaskResult,
        busy: bool,
        out: &mut Outbox,
    ) {
        let is_new = !self.ledger.learned.remove(&(task, attempt.number));
        if is_new {
            self.learn(task, attempt, result, out);
        }
        // One process says one thing of its worker, however many tasks it ran.
        if is_new && !busy && !attempt.rides {
            self.judge_worker(task, attempt, result);
        }
        let ran = ran(attempt, result, self.now).filter(|_| !busy);
        if let Some(ran) = ran.as_ref().filter(|_| is_new) {
            self.learn_length(self.ledger.key_of(task), ran, &result.end);
            // Of one that another engine booked it is not known what rode with it.
            if !attempt.rides && attempt.chunk_end != ChunkEnd::default() && result.end == End::Exited(0) {
                let ms = ran.end.since(ran.start) as f64 / 1e6;
                self.ledger.learn_chunk(task, attempt.last.saturating_sub(task.index) + 1, ms);
            }
        }
        self.ledger.settle_charge(task, attempt, ran.as_ref(), &mut self.plan.queues);
    }

    /// Updates the mean run times: the queue's from every attempt, the step's from tasks that exited with 0 only,
    /// for those did all of their work.
    fn learn_length(&mut self, key: StepKey, ran: &Range<Time>, end: &End) {
        let Some(job) = self.ledger.jobs.get_mut(&key.job) else { return };
        let ms = ran.end.since(ran.start) as f64 / 1e6;
        self.plan.queues.learn(job.queue, ms);
        if *end != End::Exited(0) {
            return;
        }
        let step = &mut job.steps[usize::from(key.step)];
        let mean_ms = step.mean_ms.map_or(ms, |mean| mean + 0.2 * (ms - mean));
        step.mean_ms = Some(mean_ms);
        let is_sent_ahead =
            job.spec.steps[usize::from(key.step)].chunks.is_none() && !job.is_in_gang(key.step.into());
        if mean_ms < bounds::PREFETCH_MS && is_sent_ahead {
            self.ledger.short.insert(key);
        } else {
            self.ledger.short.remove(&key);
        }
    }

    /// Each time that many more tasks of a step succeeded, their ranges are written: whoever reads a job of
    /// millions need not look at the row of each.
    fn note_done(&mut self, key: StepKey, out: &mut Outbox) {
        let Some(job) = self.ledger.jobs.get_mut(&key.job) else { return };
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
        tasks.subtract(&self.ledger.tasks_of_booked_gangs(key.job));
        out.writes.push(Write::Done { job: key.job, tasks });
    }

    /// A task succeeded: steps that wait for it, or for its whole step, may have ready tasks now.
    fn unlock(&mut self, task: TaskId, number: usize) {
        let now = self.now;
        let Some(job) = self.ledger.jobs.get_mut(&task.job) else { return };
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
            let Some(job) = self.ledger.jobs.get_mut(&id) else { continue };
            if job.ended.is_some() || !job.is_settled() {
                continue;
            }
            let state = job.end_state();
            job.ended = Some(state);
            let (counts, key) = (job.counts(), job.spec.key.clone().map(|key| (job.spec.user.clone(), key)));
            out.writes.push(Write::JobEnd { job: id, state, at: self.now, counts });
            out.notes.push(Fact::JobEnded { job: id, state, counts });
            out.ended.push(id);
            self.ledger.remember_end(id, state, key);
            for dependent in self.ledger.dependents.remove(&id).unwrap_or_default() {
                let Some(job) = self.ledger.jobs.get_mut(&dependent) else { continue };
                job.after.remove(&id);
                if state != JobState::Succeeded && job.stop.is_none() {
                    job.stop = Some(Stop::After(id));
                    out.writes.push(Write::JobStop { job: dependent, stop: Stop::After(id) });
                }
                self.refresh_all(dependent);
                self.join_subqueue(dependent, None);
                self.evict_if_behind(dependent, out);
                open.push_back(dependent);
            }
        }
    }

    /// Drops a job from memory; the store has it.
    pub(super) fn forget(&mut self, id: JobId) {
        let tasks: Vec<TaskId> = self.ledger.attempts_of(id).map(|(task, _)| task).collect();
        for task in tasks {
            let attempt = self.drop_attempt(task);
            if let Some((job, attempt)) = self.ledger.jobs.get(&id).zip(attempt) {
                self.plan.queues.settle(job.queue, attempt.request.cpu);
                self.ledger.forget_charge(task, &attempt);
            }
        }
        if let Some(job) = self.ledger.jobs.get_mut(&id) {
            job.ended = job.ended.or(Some(JobState::Canceled));
        }
        self.refresh_all(id);
        self.licences.forget(id);
        self.residency.leave_subqueue(id);
        let Some(job) = self.ledger.jobs.remove(&id) else { return };
        self.residency.remove_steps(job.steps.len());
        self.plan.queues.count_job(job.queue, -1);
        for (number, step) in job.steps.iter().enumerate() {
            let key = StepKey { job: id, step: number as u16 };
            self.profiles.leave(step.profile, key);
            self.plan.forget_step(key, step.class, step.reads.is_empty());
            self.ledger.short.remove(&key);
        }
        for first in &job.after {
            if let Some(waiting) = self.ledger.dependents.get_mut(first) {
                waiting.remove(&id);
                if waiting.is_empty() {
                    self.ledger.dependents.remove(first);
                }
            }
        }
    }
}

/// From when to when an attempt ran; `None` of one that did not, and of one that was lost, which is not its queue's
/// doing.
fn ran(attempt: &Attempt, result: &TaskResult, now: Time) -> Option<Range<Time>> {
    if matches!(result.end, End::Lost | End::NotStarted { .. } | End::Recalled) {
        return None;
    }
    let told = result.started.zip(result.finished).map(|(started, finished)| started..finished);
    told.or_else(|| Some(attempt.started?..now))
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
    out.notes.push(Fact::Ended {
        task,
        attempt: number,
        worker: attempt.worker,
        cpu: attempt.request.cpu,
        state,
        result: result.clone(),
    });
    out.writes.push(match state {
        TaskState::Ready => Write::Again { task, attempt: number, failures, losses, result },
        _ => Write::End { task, attempt: number, state, failures, losses, result },
    });
}

/// The same as [`settle_task`]; returns the state that the task has in its gang. Where others of that are lost, it does
/// not start without them, and nor do those that are ready.
fn settle_in_gang(
    job: &mut Job,
    index: u32,
    (gang, state): (Option<Gang>, TaskState),
    tries: Tries,
    now: Time,
) -> TaskState {
    let is_over = gang.is_some_and(|gang| state == TaskState::Ready && job.is_lost(&gang));
    let state = if is_over { TaskState::Canceled } else { state };
    let number = usize::from(job.step_of(index));
    settle_task(&mut job.steps[number], index, state, tries, now);
    if let Some(gang) = gang.filter(|gang| job.is_lost(gang)) {
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
        // A retry of one that failed for good may go anywhere: somebody mended something.
        let failed_on = tries.failed_on.filter(|_| state == TaskState::Ready);
        step.tries.insert(index..index + 1, Tries { failed_on, ..tries });
    }
}

/// True if a worker gave an attempt back, or killed it, and nobody had asked for that. One whose lease runs out does
/// so.
pub(super) fn is_unasked(attempt: &Attempt, end: &End) -> bool {
    match end {
        End::Canceled => !attempt.killing,
        End::Recalled => !attempt.recalled && !attempt.killing,
        _ => false,
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
