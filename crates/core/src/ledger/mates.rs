//! Tasks that start together, and tasks that share a process.

use super::{Attempt, Ledger, Lent};
use crate::bounds;
use crate::ids::{JobId, StepKey, TaskId, WorkerId};
use crate::job::{Gang, GangTask, Job, LeftToRun, TaskRow, TaskState};
use crate::plan::GangPart;
use crate::ranges::RangeSet;
use crate::time::Time;
use std::collections::BTreeSet;
use std::ops::Bound;

impl Ledger {
    /// The step that leads the gangs of another one; `None` of a step that stands in its queue itself.
    pub(crate) fn leader_of(&self, key: StepKey) -> Option<StepKey> {
        let step = self.jobs.get(&key.job)?.spec.steps.get(usize::from(key.step))?.with?;
        Some(StepKey { step, ..key })
    }

    /// The next tasks that the step's turn starts together, by step.
    pub(crate) fn next_gang(&self, leader: StepKey) -> Option<Vec<GangPart>> {
        let job = self.jobs.get(&leader.job)?;
        let tasks = job.next_gang(leader.step.into())?;
        let parts = job.gang_steps(leader.step.into()).map(|step| GangPart {
            step: StepKey { step: step as u16, ..leader },
            tasks: tasks.iter().filter(|task| task.step == step).map(|task| task.index).collect(),
        });
        Some(parts.filter(|part| !part.tasks.is_empty()).collect())
    }

    /// The tasks that ride with a booked one, whose `attempt` this is, each with its attempt's number. One start
    /// carries them all, so its number tells them from those of another process.
    pub(crate) fn riders_of(&self, head: TaskId, attempt: &Attempt) -> Vec<(u32, u32)> {
        let range =
            TaskId { index: head.index.saturating_add(1), ..head }..=TaskId { index: attempt.last, ..head };
        if attempt.rides || range.is_empty() {
            return Vec::new();
        }
        let with_it =
            |rider: &Attempt| rider.rides && rider.worker == attempt.worker && rider.seq == attempt.seq;
        let riders = self.attempts.range(range).filter(|(_, rider)| with_it(rider));
        riders.map(|(task, rider)| (task.index, rider.number)).collect()
    }

    /// The task with which this one rides, if that is booked.
    pub(crate) fn head_of(&self, task: TaskId, rider: &Attempt) -> Option<TaskId> {
        let mut before = self.attempts.range(TaskId { index: 0, ..task }..task).rev();
        let (id, head) = before.find(|(_, attempt)| !attempt.rides)?;
        let is_with_it = (head.worker, head.seq, head.booked) == (rider.worker, rider.seq, rider.booked);
        is_with_it.then_some(*id)
    }

    /// The process of a booked task is to be killed, and all tasks that it runs with it. Returns the task under which
    /// its worker knows the process, unless that is being killed already.
    pub(crate) fn mark_process_killed(&mut self, task: TaskId) -> Option<TaskId> {
        let attempt = self.attempts.get(&task)?;
        let head = if attempt.rides { self.head_of(task, attempt) } else { Some(task) };
        let (worker, booked) = (attempt.worker, attempt.booked);
        if let Some(attempt) = self.attempts.get_mut(&task).filter(|attempt| attempt.rides) {
            attempt.killing = true;
        }
        let head = head?;
        // An attempt that came from the store does not know which is the last of its chunk.
        let last = TaskId { index: head.index.saturating_add(bounds::CHUNK_TASKS_MAX), ..head };
        let behind = self.attempts.range_mut((Bound::Excluded(head), Bound::Included(last)));
        for (_, rider) in behind.take_while(|(_, attempt)| attempt.rides) {
            rider.killing |= (rider.worker, rider.booked) == (worker, booked);
        }
        let attempt = self.attempts.get_mut(&head)?;
        (!std::mem::replace(&mut attempt.killing, true)).then_some(head)
    }

    /// A job came from the store: of its cancelled tasks those without an attempt are over, and the processes of the
    /// others are to be killed. Their workers are told when they say hello.
    pub(crate) fn adopt_cancels(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id).filter(|job| !job.cancels.is_empty()) else { return };
        let mut idle = job.not_ended(&job.cancels);
        let attempts = self.attempts_of(id).map(|(task, _)| task);
        let booked: Vec<TaskId> = attempts.filter(|task| job.cancels.contains(task.index)).collect();
        for task in &booked {
            idle.remove(task.index);
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.cancel_idle(&idle);
        }
        for task in booked {
            self.mark_process_killed(task);
        }
    }

    /// Some riders of a task were given back: its chunk ends with the last that is left.
    pub(crate) fn shorten_chunk(&mut self, head: TaskId) {
        let Some(attempt) = self.attempts.get(&head) else { return };
        let last = self.riders_of(head, attempt).last().map_or(head.index, |(index, _)| *index);
        if let Some(attempt) = self.attempts.get_mut(&head) {
            attempt.last = last;
        }
    }

    /// The attempt of a task of a gang is over. If the task has ended, its worker is remembered while others that
    /// started with it are booked, so that their ranks stay.
    pub(crate) fn keep_rank(&mut self, (task, worker): (TaskId, WorkerId), gang: Gang, state: TaskState) {
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        let is_booked = job.gang_parts(gang).any(|part| {
            let first = TaskId { index: part.start, ..task };
            self.attempts.range(first..TaskId { index: part.end, ..task }).next().is_some()
        });
        if !is_booked {
            let tasks: Vec<u32> = job.gang_tasks(gang).map(|mate| mate.index).collect();
            tasks.iter().for_each(|index| _ = job.ended_mates.remove(index));
        } else if state != TaskState::Ready {
            job.ended_mates.insert(task.index, worker);
        }
    }

    /// Takes in the workers of tasks that ended while others that started with them are booked.
    pub(crate) fn adopt_mates(&mut self, id: JobId, rows: Vec<TaskRow>) {
        for row in rows {
            let Some(job) = self.jobs.get_mut(&id) else { return };
            let Some(gang) = job.gang_of(row.index) else { continue };
            let started_with_it = |mate: GangTask| {
                let attempt = self.attempts.get(&TaskId { job: id, index: mate.index });
                // The engine's clock may stand still from one start of the gang to the next.
                attempt.is_some_and(|attempt| attempt.booked == row.booked && attempt.number == row.attempt)
            };
            if job.gang_tasks(gang).any(started_with_it) {
                job.ended_mates.insert(row.index, row.worker);
            }
        }
    }

    /// All tasks of a job's gangs of which some are booked.
    pub(crate) fn tasks_of_booked_gangs(&self, id: JobId) -> RangeSet {
        let mut tasks = RangeSet::default();
        let Some(job) = self.jobs.get(&id).filter(|job| job.has_gangs) else { return tasks };
        let gangs: BTreeSet<Gang> =
            self.attempts_of(id).filter_map(|(task, _)| job.gang_of(task.index)).collect();
        for gang in gangs {
            job.gang_parts(gang).for_each(|part| tasks.insert_range(part));
        }
        tasks
    }

    /// Tasks of split gangs: they run, and others of their gang are to start again, or others of their step in it have
    /// failed. If a role of the gang failed for good, what is to start again is not ready.
    pub(crate) fn in_split_gangs(&self, id: JobId) -> Vec<TaskId> {
        let Some(job) = self.jobs.get(&id).filter(|job| job.has_gangs) else { return Vec::new() };
        let is_split = |task: &TaskId| {
            let Some(gang) = job.gang_of(task.index) else { return false };
            let own = usize::from(job.step_of(task.index));
            job.gang_tasks(gang).any(|mate| {
                let step = &job.steps[mate.step];
                let has_failed = step.failed.contains(mate.index);
                let has_ended =
                    has_failed || step.succeeded.contains(mate.index) || step.canceled.contains(mate.index);
                let is_booked = self.attempts.contains_key(&TaskId { job: id, index: mate.index });
                (has_failed && mate.step == own) || !(has_ended || is_booked)
            })
        };
        self.attempts_of(id).map(|(task, _)| task).filter(is_split).collect()
    }

    /// A job came from the store: attempts of its split gangs end first. Their workers are told when they say hello.
    pub(crate) fn mark_split_gangs(&mut self, id: JobId) {
        for task in self.in_split_gangs(id) {
            if let Some(attempt) = self.attempts.get_mut(&task) {
                attempt.killing = true;
            }
        }
    }

    /// Notes when the chunk is expected to end.
    pub(crate) fn expect_end(&mut self, key: StepKey, head: u32, last: u32, now: Time) {
        let now_ms = now.as_ms() as f64;
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        let Some(lengths) = &mut job.steps[usize::from(key.step)].chunk_lengths else { return };
        let end = lengths.began(last - head + 1, now_ms);
        if let Some(attempt) = self.attempts.get_mut(&TaskId { job: key.job, index: head }) {
            attempt.chunk_end = end;
        }
    }

    /// The tasks that ride with one that was just booked, `room` of them at most.
    pub(crate) fn next_riders(&mut self, key: StepKey, head: u32, room: u32, now: Time) -> Vec<u32> {
        let Some(job) = self.jobs.get_mut(&key.job) else { return Vec::new() };
        let spec = &job.spec.steps[usize::from(key.step)];
        let Some(chunks) = &spec.chunks else { return Vec::new() };
        let tried = self
            .attempts
            .get(&TaskId { job: key.job, index: head })
            .is_some_and(|attempt| attempt.failures + attempt.losses > 0);
        if tried {
            return Vec::new();
        }
        let of_step = job.steps[usize::from(key.step)].active;
        let left = [(spec.max_running, of_step), (job.spec.max_running, job.active)];
        let left = left.into_iter().filter_map(|(max, active)| Some(max?.saturating_sub(active))).min();
        let step = &mut job.steps[usize::from(key.step)];
        // All processes but that of the head.
        let running = (step.active - step.riding).saturating_sub(1);
        let (now_ms, limit_ms) = (now.as_ms() as f64, spec.time_limit_ms);
        let to_run = LeftToRun { now_ms, ready: step.ready.len() + 1, running, limit_ms };
        let size = step.chunk_lengths.get_or_insert_default().next(chunks.size, &to_run);
        step.riders(head, chunks, size.min(left.unwrap_or(u32::MAX).min(room).saturating_add(1)))
    }

    /// A task ended by itself after `ms`. Those that rode with it report as long: together that is what their process
    /// took.
    pub(crate) fn learn_chunk(&mut self, task: TaskId, tasks: u32, ms: f64) {
        let number = self.key_of(task).step;
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        if let Some(lengths) = &mut job.steps[usize::from(number)].chunk_lengths {
            lengths.learn(tasks, ms * f64::from(tasks));
        }
    }

    /// A rider holds nothing of its worker, and has nothing to lend.
    pub(crate) fn check_chunks(&self, job: &Job) -> Result<(), String> {
        let riding = self.attempts_of(job.id).filter(|(_, attempt)| attempt.rides).count() as u32;
        if riding != job.steps.iter().map(|step| step.riding).sum::<u32>() {
            return Err(format!("job {}: {riding} tasks ride with others, counted otherwise", job.id));
        }
        for (task, attempt) in self.attempts_of(job.id) {
            let asks = &attempt.request;
            if attempt.rides && (asks.cpu, asks.memory, asks.gpus) != (0, 0, 0) {
                return Err(format!("{task} rides with another and holds {asks:?}"));
            }
            if attempt.rides && attempt.lent != Lent::No {
                return Err(format!("{task} rides with another and lends"));
            }
        }
        Ok(())
    }
}
