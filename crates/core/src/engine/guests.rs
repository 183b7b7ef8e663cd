//! The guest's side of delegation: what a shard does with tasks of another shard's job, and when they return. See
//! [`shards`](super::shards).
//!
//! - A guest job is in its queue like any other job, by its name, user, priority and step. What it costs is charged here.
//! - Only ends that are durable return, so a refused or failed write of a task is never known at home.
//! - Ends return together, [`RETURN_NS`](bounds::RETURN_NS) after the first of them; at once where one failed or nothing of
//!   the job is left here.
//! - Tasks that have not started return where the job is stopped or held, where no worker here could run them, where none of
//!   them started for [`GUEST_IDLE_NS`](bounds::GUEST_IDLE_NS), and half of them whenever the home asks. Where they hold a
//!   limit, a quota or a cap at home, others of the job that run make no difference: what waits keeps others from starting.
//! - What no worker of its home could run stays, however long it waits: it earns a reservation here as all work does.

use super::shards::Guest;
use super::{Engine, Outbox, Write};
use crate::bounds;
use crate::ids::{JobId, ShardId, StepKey, TaskId};
use crate::job::{JobRecord, JobState, Step, Stop, TaskState};
use crate::plan::placement;
use crate::ranges::RangeSet;
use crate::shards::{Message, Room, TriedTasks};
use crate::time::Time;
use crate::worker::Worker;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine {
    /// Takes tasks in that another shard sent. `record` is what the store has of a job that is not here yet.
    pub(super) fn take_in(
        &mut self,
        from: ShardId,
        (id, record): (JobId, Option<JobRecord>),
        tasks: &RangeSet,
        tried: Vec<TriedTasks>,
        (ready_since, stays): (Time, bool),
    ) {
        if let Some(record) = record.filter(|_| !self.jobs.contains_key(&id)) {
            // What of it is here and how it went, the messages say.
            let JobRecord { spec, created, stop, held, .. } = record;
            self.insert_record(
                JobRecord { stop, held, ..JobRecord::new(id, spec, created, from) },
                BTreeSet::new(),
            );
        }
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.home == Some(from)) else { return };
        let mut taken = Vec::new();
        for (number, range) in job.all_by_step(tasks) {
            let step = &mut job.steps[number];
            if step.ready.is_empty() {
                step.ready_since = ready_since;
            }
            step.guest.insert_range(range.clone());
            step.ready.insert_range(range.clone());
            taken.push((step.class, range.len() as u32));
        }
        for TriedTasks { tasks, tries, .. } in tried {
            for (number, range) in job.by_step(tasks) {
                job.steps[number].tries.insert(range, tries);
            }
        }
        let is_held_back = job.stop.is_some() || job.held;
        for (class, tasks) in taken {
            let request = &self.plan.classes.get(class).request;
            if let Some(told) = &mut self.shards.told {
                told.take(tasks, request.cpu, request.memory);
            }
        }
        if let Some(guest) = self.shards.guests.get_mut(&id) {
            guest.stays = stays;
        }
        self.refresh_all(id);
        if is_held_back || !self.suits_guest(id) {
            self.give_back(id, u32::MAX);
        }
    }

    /// True if some worker here could run what of a guest job is ready.
    pub(super) fn suits_guest(&self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id) else { return false };
        let waiting = (0..job.steps.len()).filter(|step| !job.steps[*step].ready.is_empty());
        let mut classes = waiting.map(|step| self.plan.classes.get(job.steps[job.leader_of(step)].class));
        classes.all(|class| match class.is_gang() {
            true => self.too_few_at_a_time(class).is_none(),
            false => self.plan.workers.present().any(|worker| placement::eligible_when_idle(class, worker)),
        })
    }

    /// So many ready tasks of a guest job return now, though they could start here.
    fn give_back(&mut self, id: JobId, tasks: u32) {
        if let Some(guest) = self.shards.guests.get_mut(&id) {
            guest.gives_back = tasks;
        }
        self.return_by(id, self.now);
    }

    /// The home has room again: half of what has not started here may start there.
    pub(super) fn give_back_later(&mut self, id: JobId) {
        let ready: u32 =
            self.jobs.get(&id).map_or(0, |job| job.steps.iter().map(|step| step.ready.len()).sum());
        if ready > 0 {
            self.give_back(id, ready.div_ceil(2));
        }
    }

    pub(super) fn return_by(&mut self, id: JobId, at: Time) {
        let Some(guest) = self.shards.guests.get_mut(&id) else { return };
        if guest.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(due) = guest.due.replace(at) {
            self.shards.due.remove(&(due, id));
        }
        self.shards.due.insert((at, id));
    }

    /// A guest job's home says how the job is now.
    pub(super) fn follow(
        &mut self,
        id: JobId,
        stop: Option<Stop>,
        held: bool,
        priority: i32,
        out: &mut Outbox,
    ) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.home.is_some()) else { return };
        (job.stop, job.held) = (stop, held);
        Arc::make_mut(&mut job.spec).priority = priority;
        let kills = job.kills();
        self.refresh_all(id);
        if kills {
            self.kill_attempts(id, out);
        } else if stop.is_some() || held {
            self.recall_queued(id, out);
        }
        if stop.is_some() || held {
            self.give_back(id, u32::MAX);
        }
    }

    /// That an attempt of a task of a guest job ended is not durable yet. The task has ended, or is ready again.
    pub(super) fn unsettle_guest(&mut self, task: TaskId, attempt: u32, state: TaskState, out: &mut Outbox) {
        let key = self.key_of(task);
        if let Some(guest) = self.shards.guests.get_mut(&task.job) {
            guest.unsettled.insert(task.index, attempt);
        }
        if state == TaskState::Succeeded {
            self.had_licence(key, out);
        }
        self.refresh(key);
        self.refresh_capped(key);
    }

    /// Ends of guest jobs are durable: they may return.
    pub(super) fn settle_guests(&mut self, writes: &[Write]) {
        if self.shards.guests.is_empty() {
            return;
        }
        for write in writes {
            let (task, attempt, state) = match write {
                Write::End { task, attempt, state, .. } => (*task, *attempt, *state),
                Write::Again { task, attempt, .. } => (*task, *attempt, TaskState::Ready),
                _ => continue,
            };
            let Some(guest) = self.shards.guests.get_mut(&task.job) else { continue };
            // A later attempt may have been lost before it was sent.
            if guest.unsettled.get(&task.index).is_some_and(|last| *last > attempt) {
                continue;
            }
            guest.unsettled.remove(&task.index);
            let Some(job) = self.jobs.get(&task.job) else { continue };
            let is_idle = job.steps.iter().all(|step| step.active == 0 && step.ready.is_empty());
            let at_once = is_idle || state == TaskState::Failed || job.stop.is_some() || job.held;
            if at_once || state != TaskState::Ready {
                let later = if at_once { self.now } else { self.now.after(bounds::RETURN_NS) };
                self.return_by(task.job, later);
            }
        }
    }

    /// Notes how long guest jobs have had no task that starts, and gives back what waits for too long.
    pub(super) fn look_after_guests(&mut self) {
        let now = self.now;
        let ids: Vec<JobId> = self.shards.guests.keys().copied().collect();
        for id in ids {
            let is_idle = self.is_idle_guest(id);
            let Some(guest) = self.shards.guests.get_mut(&id) else { continue };
            let since = guest.idle_since.filter(|_| is_idle).unwrap_or(now);
            guest.idle_since = is_idle.then_some(since);
            if !is_idle || now < since.after(bounds::GUEST_IDLE_NS) {
                continue;
            }
            // Workers that could run it may have left.
            if !guest.stays || !self.suits_guest(id) {
                self.give_back(id, u32::MAX);
            } else if let Some(guest) = self.shards.guests.get_mut(&id) {
                guest.idle_since = Some(now);
            }
        }
    }

    /// True if tasks of a guest job wait and none of it runs. Others that run make no difference to tasks that are counted
    /// over the farm.
    fn is_idle_guest(&self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id) else { return false };
        let mut waiting = (0..).zip(&job.steps).filter(|(_, step)| !step.ready.is_empty());
        waiting.any(|(step, _)| job.active == 0 || self.counted_room(StepKey { job: id, step }).is_some())
    }

    /// A task is booked: those of its job that wait may be next.
    pub(super) fn note_guest_start(&mut self, id: JobId) {
        if let Some(guest) = self.shards.guests.get_mut(&id) {
            guest.idle_since = None;
        }
    }

    /// A job that another shard accepted is here.
    pub(super) fn adopt_guest(&mut self, id: JobId, home: ShardId, tasks: &RangeSet) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for (number, range) in job.all_by_step(tasks) {
            job.steps[number].guest.insert_range(range);
        }
        self.shards.guests.insert(id, Guest { home, ..Guest::default() });
        // What ended before a restart has not returned.
        if !tasks.is_empty() {
            self.return_by(id, self.now);
        }
    }

    /// A guest job is not here any more.
    pub(super) fn forget_guest(&mut self, id: JobId) {
        if let Some(due) = self.shards.guests.remove(&id).and_then(|guest| guest.due) {
            self.shards.due.remove(&(due, id));
        }
        self.shards.delegated.remove(&id);
    }

    /// Tells other shards of idle room, where that differs much from what they know.
    pub(super) fn tell_room(&mut self, out: &mut Outbox) {
        let version = self.plan.workers.version();
        let mut room = Room { version, ..Default::default() };
        // What is reserved is for the holder.
        let is_open =
            |worker: &&Worker| worker.takes_work() && self.plan.reservations().holder(worker.id).is_none();
        for worker in self.plan.workers.present().filter(is_open) {
            let (free, memory) = (worker.free(), worker.memory_room());
            room.cpu += u64::from(free.cpu);
            room.memory = room.memory.saturating_add(memory);
            room.largest.cpu = room.largest.cpu.max(free.cpu);
            room.largest.memory = room.largest.memory.max(memory);
        }
        self.take_what_waits(&mut room);
        let is_news = self.shards.told.as_ref().is_none_or(|told| room.is_news(told));
        if is_news {
            self.tell_all(&Message::Room(room.clone()), out);
            self.shards.told = Some(room);
        }
    }

    /// Takes what waits here of other shards' jobs off the room that is told: else as much would be sent again and again. What
    /// stays here may wait for a worker that others cannot use, and nothing is sent in its place.
    fn take_what_waits(&self, room: &mut Room) {
        let come_and_go = self.shards.guests.iter().filter(|(_, guest)| !guest.stays);
        for job in come_and_go.filter_map(|(id, _)| self.jobs.get(id)) {
            for step in job.steps.iter().filter(|step| !step.ready.is_empty()) {
                let request = &self.plan.classes.get(step.class).request;
                room.take(step.ready.len(), request.cpu, request.memory);
            }
        }
    }

    /// True of a record that says nothing of this shard: the job is another's, and none of its tasks are here.
    pub(super) fn is_others(&self, record: &JobRecord) -> bool {
        record.home != self.shards.own() && (record.guest.is_empty() || record.state != JobState::Active)
    }

    /// Steps of a guest job, for [`Engine::check`].
    pub(super) fn check_guests(&self) -> Result<(), String> {
        for (id, guest) in &self.shards.guests {
            let job = self.jobs.get(id).ok_or_else(|| format!("guest {id} is not here"))?;
            if job.home != Some(guest.home)
                || guest.due.is_some_and(|at| !self.shards.due.contains(&(at, *id)))
            {
                return Err(format!("guest {id} is not as it is counted: {guest:?}"));
            }
            for step in &job.steps {
                for set in [&step.ready, &step.succeeded, &step.failed, &step.canceled] {
                    if set.intersection(&step.guest) != *set {
                        return Err(format!("guest {id}: tasks {set:?} are not here: {:?}", step.guest));
                    }
                }
            }
        }
        for (at, id) in &self.shards.due {
            if self.shards.guests.get(id).is_none_or(|guest| guest.due != Some(*at)) {
                return Err(format!("guest {id} is due at {at:?} and knows nothing of it"));
            }
        }
        for job in self.jobs.values() {
            let is_guest = self.shards.guests.contains_key(&job.id);
            if is_guest != job.home.is_some() {
                return Err(format!("job {} of {:?} is counted wrong among guests", job.id, job.home));
            }
            let mut away = RangeSet::default();
            for delegation in self.shards.delegated.get(&job.id).into_iter().flat_map(|all| all.values()) {
                let twice = away.intersection(&delegation.tasks);
                if !twice.is_empty() || delegation.tasks.is_empty() {
                    return Err(format!("job {}: tasks {twice:?} are with two shards, or none", job.id));
                }
                delegation.tasks.ranges().for_each(|range| away.insert_range(range));
            }
            for step in &job.steps {
                let of_step = RangeSet::from_range(step.base..step.base + step_tasks(job, step));
                if away.intersection(&of_step) != step.delegated {
                    return Err(format!("job {}: {:?} are delegated, not {away:?}", job.id, step.delegated));
                }
            }
        }
        match self.shards.delegated.keys().find(|id| !self.jobs.contains_key(id)) {
            Some(id) => Err(format!("job {id} has tasks with other shards and is not here")),
            None => Ok(()),
        }
    }
}

fn step_tasks(job: &crate::job::Job, step: &Step) -> u32 {
    let number = usize::from(job.step_of(step.base));
    job.spec.steps[number].tasks
}
