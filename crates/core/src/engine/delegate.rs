//! The home's side of delegation: which ready tasks go to which shard, when they are asked back, and what becomes of them
//! when they return. See [`shards`](super::shards).
//!
//! - Only work that could not start here at the end of a full round is delegated, in the order of the queues' turns, and
//!   only to shards that told of room. While rounds are not full, because more waits than one may book, what waits beyond
//!   the room here is sent. What is sent is taken off that room until the shard tells of room again.
//! - A message moves as many tasks as start at once there, and for short tasks as many as keep that room busy for
//!   [`DELEGATED_MS`](bounds::DELEGATED_MS). So the number of messages follows time and room, not the backlog.
//! - A look takes a bounded number of steps into account, whatever waits.
//! - What is counted over the farm counts here while it is away ([`counted`](super::counted)). Of a step with a limit, a cap
//!   or a queue with a quota as many tasks go as may run, and no others: these would keep back what could run here.
//! - A gang goes whole, and returns whole.
//! - What no worker here could run goes to a shard that may have one, room or not, a few tasks at a time. It waits for a
//!   worker there, because here it would wait for ever.
//! - External tasks stay at home: their client speaks to this shard's server.

use super::shards::Delegation;
use super::{Engine, Outbox, Write};
use crate::bounds;
use crate::ids::{ClassId, JobId, ShardId, StepKey};
use crate::job::{DependencyKind, Gang, Job, Stop, TaskState};
use crate::places::Places;
use crate::ranges::RangeSet;
use crate::shards::{Message, TriedTasks};
use crate::time::{NS_PER_MS, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

impl Engine {
    /// Sends ready work to shards that have room for it. The work asks for at most `cpu_max` hundredths of a core. Returns
    /// true if it sent some, because more may be waiting.
    pub(super) fn delegate_work(&mut self, mut cpu_max: u64, out: &mut Outbox) -> bool {
        let now = self.now;
        self.shards.unfit.retain(|_, until| now < *until);
        self.shards.stuck_gangs.retain(|_, (until, _)| now < *until);
        let mut sent = 0;
        // The first steps of all queues, then the next ones: no queue's backlog keeps the others from room.
        loop {
            let before = sent;
            let waiting = self.plan.queues.in_turn().flat_map(|(_, queue)| queue.heads());
            let waiting = waiting.map(|(step, class)| (step.step(), class));
            let waiting: Vec<(StepKey, ClassId)> = waiting.take(bounds::DELEGATION_LOOKS_MAX).collect();
            for (key, class) in waiting {
                if sent >= bounds::DELEGATIONS_MAX || cpu_max == 0 {
                    return true;
                }
                let cpu = self.delegate_some((key, class), cpu_max, out);
                sent += usize::from(cpu.is_some());
                cpu_max = cpu_max.saturating_sub(cpu.unwrap_or(0));
            }
            if sent == before {
                return sent > 0;
            }
        }
    }

    /// Sends tasks of a step to a shard with room, or to one in which they may wait. Returns the hundredths of a core that
    /// the sent tasks ask for. Returns `None` if it sent none.
    fn delegate_some(
        &mut self,
        (key, class): (StepKey, ClassId),
        cpu_max: u64,
        out: &mut Outbox,
    ) -> Option<u64> {
        let with_room = self.shard_with_room(class);
        let is_stuck = self.is_stuck(class);
        if (with_room.is_none() && !is_stuck) || !self.is_delegable(key, class) {
            return None;
        }
        let (shard, slots) = with_room.or_else(|| self.shard_to_wait_in(key, class))?;
        let cpu = u64::from(self.plan.classes.get(class).cpu_at_a_time());
        let most =
            cpu_max.checked_div(cpu).map_or(u32::MAX, |starts| starts.clamp(1, u32::MAX.into()) as u32);
        let tasks = self.tasks_to_delegate(key, class, slots.min(most));
        // Another step may have taken the last of a limit just now.
        if tasks.is_empty() {
            return None;
        }
        let class = self.plan.classes.get(class);
        let starts = tasks.len().div_ceil(class.tasks_at_a_time());
        if let Some(room) = self.shards.rooms.get_mut(&shard) {
            room.take(starts.min(slots), class.cpu_at_a_time(), class.memory_at_a_time());
        }
        let stays = is_stuck && self.may_wait_there(key);
        self.delegate(key, shard, tasks, stays, out);
        Some(u64::from(starts) * cpu)
    }

    /// Hundredths of a core that ready work asks for beyond what is free here, as far as the first steps tell; 0 where no
    /// other shard has room.
    pub(super) fn surplus_cpu(&self) -> u64 {
        if self.shards.rooms.values().all(|room| room.cpu == 0) {
            return 0;
        }
        let working = self.plan.workers.present().filter(|worker| worker.takes_work());
        let free: u64 = working.map(|worker| u64::from(worker.free().cpu)).sum();
        let waiting = self.plan.queues.in_turn().flat_map(|(_, queue)| queue.in_order());
        let mut wanted: u64 = 0;
        for (queued, class) in waiting.take(bounds::DELEGATION_LOOKS_MAX) {
            let ready = self.step(queued.step()).map_or(0, |step| step.ready.len());
            wanted += u64::from(ready) * u64::from(self.plan.classes.get(class).request.cpu);
        }
        wanted.saturating_sub(free)
    }

    /// True if no workers here could run the class. A gang is compared with all workers, so what is found out holds for a while.
    fn is_stuck(&mut self, class: ClassId) -> bool {
        if let Some((_, is_stuck)) = self.shards.stuck_gangs.get(&class) {
            return *is_stuck;
        }
        let is_stuck = !self.plan.could_start(class);
        if self.plan.classes.get(class).is_gang() {
            let until = self.now.after(bounds::SHARD_IDLE_LOOK_NS);
            self.shards.stuck_gangs.insert(class, (until, is_stuck));
        }
        is_stuck
    }

    /// The shard with most room of those that have some for the class, and how often it may start there.
    fn shard_with_room(&self, class: ClassId) -> Option<(ShardId, u32)> {
        let asks = self.plan.classes.get(class);
        let fitting = self.shards.rooms.iter().filter(|(shard, room)| {
            room.starts(asks) > 0 && !self.shards.unfit.contains_key(&(**shard, class))
        });
        let most = fitting.max_by_key(|(shard, room)| (room.cpu, Reverse(**shard)));
        most.map(|(shard, room)| (*shard, room.starts(asks)))
    }

    /// A shard that may have a worker for what no worker here could run, and how many more tasks of the step may wait there.
    fn shard_to_wait_in(&self, key: StepKey, class: ClassId) -> Option<(ShardId, u32)> {
        let away = self.step(key)?.delegated.len();
        let left = bounds::DELEGATED_WAITING_MAX.checked_sub(away).filter(|left| *left > 0)?;
        let may =
            self.shards.rooms.iter().filter(|(shard, _)| !self.shards.unfit.contains_key(&(**shard, class)));
        let most = may.max_by_key(|(shard, room)| (room.cpu, Reverse(**shard)));
        most.map(|(shard, _)| (*shard, left))
    }

    /// True if work that cannot run here may wait in another shard however long it takes.
    fn may_wait_there(&self, key: StepKey) -> bool {
        let waited = self.step(key).map(|step| self.now.since(step.ready_since));
        self.counted_room(key).is_none() || waited.is_some_and(|ns| ns >= bounds::COUNTED_STAYS_NS)
    }

    /// True if tasks of a step may run in another shard now.
    fn is_delegable(&self, key: StepKey, class: ClassId) -> bool {
        let Some(job) = self.jobs.get(&key.job).filter(|_| !Places::is_key(key)) else { return false };
        let queue = &self.plan.queues.get(self.plan.queues.whole(job.queue)).record;
        let number = usize::from(key.step);
        let may_leave = |step: usize| {
            let spec = &job.spec.steps[step];
            // The other shard would size it by what it ran itself, and the quota is counted by what the step asks for.
            let has_unknown_cpu = queue.quota_cpu.is_some() && spec.hints.cpus_auto;
            !spec.is_external && !has_unknown_cpu
        };
        job.home.is_none()
            && queue.paused.is_none()
            && job.gang_steps(number).all(may_leave)
            && match job.is_in_gang(number) {
                true => self.gang_may_leave(job, key, class),
                false => self.counted_room(key) != Some(0),
            }
    }

    /// True if all that counts the tasks of a gang over the farm has room for the whole gang.
    fn gang_may_leave(&self, job: &Job, key: StepKey, class: ClassId) -> bool {
        let class = self.plan.classes.get(class);
        let quota = self.plan.queues.room_in_quota(job.queue);
        job.cap_reached(key.step.into()).is_none()
            && self.licences.reached(class).is_none()
            && quota.is_none_or(|cpu| class.cpu_at_a_time() <= cpu)
    }

    /// The first ready tasks of a step: one for each slot. If they are short or run in chunks, and nothing counts them over
    /// the farm, up to half of the others as well. Of a step that leads gangs, the next gang.
    fn tasks_to_delegate(&self, key: StepKey, class: ClassId, slots: u32) -> RangeSet {
        let (Some(job), Some(step)) = (self.jobs.get(&key.job), self.step(key)) else {
            return RangeSet::default();
        };
        if self.plan.classes.get(class).is_gang() {
            let mut gang = RangeSet::default();
            let tasks = job.next_gang(key.step.into()).unwrap_or_default();
            tasks.iter().for_each(|task| _ = gang.insert(task.index));
            return gang;
        }
        let counted = self.counted_room(key);
        let slots = slots.min(counted.unwrap_or(u32::MAX));
        let known = self.profiles.prediction(step.profile).and_then(|known| known.wall_ms);
        let known = step.mean_ms.or(known).map(|ms| bounds::DELEGATED_MS / ms.max(1.0));
        let is_chunked = job.spec.steps[usize::from(key.step)].chunks.is_some();
        let known = if is_chunked { Some(f64::INFINITY) } else { known };
        let ahead = known.filter(|_| counted.is_none()).unwrap_or(0.0);
        let rest = step.ready.len().saturating_sub(slots) / 2;
        let wanted = slots.saturating_add(rest.min((f64::from(slots) * ahead) as u32));
        let mut left = wanted.min(bounds::DELEGATED_TASKS_MAX);
        let mut tasks = RangeSet::default();
        for range in step.ready.ranges() {
            let part = range.start..range.end.min(range.start.saturating_add(left));
            left -= part.end - part.start;
            tasks.insert_range(part);
            if left == 0 || tasks.ranges().count() >= bounds::DELEGATED_RANGES_MAX {
                break;
            }
        }
        tasks
    }

    /// Sends tasks of a step, and of those that start with it. `stays` if no worker here could run them.
    fn delegate(&mut self, key: StepKey, shard: ShardId, tasks: RangeSet, stays: bool, out: &mut Outbox) {
        self.pin(key.job, out);
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        let (now, ready_since) = (self.now, job.steps[usize::from(key.step)].ready_since);
        let (mut tried, mut counts) = (Vec::new(), Vec::new());
        for (number, range) in job.all_by_step(&tasks) {
            let step = &mut job.steps[number];
            step.ready.subtract(&RangeSet::from_range(range.clone()));
            step.delegated.insert_range(range.clone());
            counts.push((StepKey { step: number as u16, ..key }, range.len() as i32));
            tried.extend(step.tries.take(range).into_iter().map(|(tasks, tries)| TriedTasks {
                tasks,
                state: TaskState::Ready,
                tries,
            }));
        }
        let delegation = self.shards.delegated.entry(key.job).or_default().entry(shard).or_default();
        tasks.ranges().for_each(|range| delegation.tasks.insert_range(range));
        (delegation.since, delegation.withdrawn) = (now, None);
        delegation.ready_since = Some(ready_since.min(delegation.ready_since.unwrap_or(ready_since)));
        out.writes.push(Write::Delegated { job: key.job, shard, tasks: delegation.tasks.clone() });
        let waited_ms = now.since(ready_since) / NS_PER_MS;
        counts.into_iter().for_each(|(step, count)| self.count_delegated(step, count));
        self.tell(shard, Message::Delegate { job: key.job, tasks, tried, waited_ms, stays }, out);
        self.refresh(key);
        self.refresh_capped(key);
    }

    /// Tasks return from another shard.
    pub(super) fn take_back(
        &mut self,
        from: ShardId,
        id: JobId,
        parts: Vec<TriedTasks>,
        fits: bool,
        out: &mut Outbox,
    ) {
        let Some(known) = self.shards.delegated.get_mut(&id).and_then(|shards| shards.get_mut(&from)) else {
            return;
        };
        // Of tasks that are not there nothing can return.
        let mut returned: Vec<TriedTasks> = Vec::new();
        for part in parts {
            let there = known.tasks.intersection(&RangeSet::from_range(part.tasks.clone()));
            returned.extend(there.ranges().map(|tasks| TriedTasks { tasks, ..part.clone() }));
            known.tasks.subtract(&there);
        }
        let (left, ready_since) = (known.tasks.clone(), known.ready_since.unwrap_or(self.now));
        if left.is_empty() {
            self.drop_delegation(id, from);
        }
        out.writes.push(Write::Delegated { job: id, shard: from, tasks: left });
        let (mut succeeded, mut has_failed) = (BTreeMap::<usize, RangeSet>::new(), false);
        let mut lost: Vec<Range<u32>> = Vec::new();
        for part in returned {
            has_failed |= part.state == TaskState::Failed;
            if matches!(part.state, TaskState::Failed | TaskState::Canceled) {
                lost.push(part.tasks.clone());
            }
            let unfit_at = (!fits).then_some(from);
            self.put_back(id, part, ready_since, unfit_at, &mut succeeded);
        }
        for (number, tasks) in succeeded {
            self.note_done(StepKey { job: id, step: number as u16 }, out);
            self.unlock_all(id, number, &tasks);
        }
        self.close_lost_gangs(id, lost);
        self.refresh_all(id);
        let fails_fast = |job: &Job| job.stop.is_none() && job.spec.fail_fast != Default::default();
        if has_failed && self.jobs.get(&id).is_some_and(fails_fast) {
            self.stop_job(id, Stop::FailFast, out);
        } else {
            self.settle_job(id, out);
        }
    }

    /// What is left of the gangs of tasks that failed does not start.
    fn close_lost_gangs(&mut self, id: JobId, failed: Vec<Range<u32>>) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.has_gangs) else { return };
        let gangs = failed.into_iter().flatten().filter_map(|index| job.gang_of(index));
        let gangs: BTreeSet<Gang> = gangs.collect();
        gangs.iter().for_each(|gang| job.close_gang(gang));
    }

    fn drop_delegation(&mut self, id: JobId, shard: ShardId) {
        if let Some(shards) = self.shards.delegated.get_mut(&id) {
            shards.remove(&shard);
            if shards.is_empty() {
                self.shards.delegated.remove(&id);
            }
        }
    }

    /// Puts returned tasks where they belong. Those that succeeded are added to `succeeded`, by step. The shard `unfit_at`
    /// has no worker for those that did not run.
    fn put_back(
        &mut self,
        id: JobId,
        part: TriedTasks,
        ready_since: Time,
        unfit_at: Option<ShardId>,
        succeeded: &mut BTreeMap<usize, RangeSet>,
    ) {
        let until = self.now.after(bounds::UNFIT_NS);
        let Some(job) = self.jobs.get(&id) else { return };
        for (number, tasks) in job.by_step(part.tasks) {
            self.count_delegated(StepKey { job: id, step: number as u16 }, -(tasks.len() as i32));
            let Some(job) = self.jobs.get_mut(&id) else { return };
            let class = job.steps[job.leader_of(number)].class;
            let step = &mut job.steps[number];
            step.delegated.subtract(&RangeSet::from_range(tasks.clone()));
            match part.state {
                TaskState::Succeeded => {
                    step.succeeded.insert_range(tasks.clone());
                    succeeded.entry(number).or_default().insert_range(tasks);
                    continue;
                }
                TaskState::Failed => step.failed.insert_range(tasks.clone()),
                TaskState::Canceled => step.canceled.insert_range(tasks.clone()),
                _ => {
                    if step.ready.is_empty() {
                        step.ready_since = ready_since;
                    }
                    step.ready.insert_range(tasks.clone());
                    self.shards.unfit.extend(unfit_at.map(|shard| ((shard, class), until)));
                }
            }
            if part.tries != Default::default() {
                step.tries.insert(tasks, part.tries);
            }
        }
    }

    /// Tasks of a step succeeded elsewhere: steps that wait for them, or for the whole step, may have ready tasks now.
    fn unlock_all(&mut self, id: JobId, number: usize, tasks: &RangeSet) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let spec = job.spec.clone();
        for (waiting, step) in spec.steps.iter().enumerate() {
            for dependency in step.depends.iter().filter(|d| usize::from(d.on) == number) {
                let mut opened = job.unlocked(waiting);
                if dependency.kind == DependencyKind::Task {
                    let by = i64::from(job.steps[waiting].base) - i64::from(job.steps[number].base);
                    opened = opened.intersection(&tasks.shifted(by));
                }
                opened.subtract(&job.steps[waiting].delegated);
                super::job_lifecycle::open_tasks(job, waiting, opened, now);
            }
        }
    }

    /// Tells the shards that have tasks of a job how it is now.
    pub(super) fn tell_orders(&mut self, id: JobId, out: &mut Outbox) {
        let Some(shards) = self.shards.delegated.get(&id) else { return };
        let shards: Vec<ShardId> = shards.keys().copied().collect();
        let Some(job) = self.jobs.get(&id) else { return };
        let orders = Message::Orders { job: id, stop: job.stop, held: job.held, priority: job.spec.priority };
        shards.into_iter().for_each(|shard| self.tell(shard, orders.clone(), out));
    }

    /// Asks for tasks that have not started elsewhere and could start here.
    pub(super) fn withdraw_work(&mut self, out: &mut Outbox) {
        let now = self.now;
        let is_due = |delegation: &Delegation| {
            let asked = delegation.withdrawn.unwrap_or(delegation.since);
            asked.after(bounds::WITHDRAW_NS) <= now
        };
        let due = self.shards.delegated.iter().flat_map(|(job, shards)| {
            shards.iter().filter(|(_, delegation)| is_due(delegation)).map(|(shard, _)| (*job, *shard))
        });
        let due: Vec<(JobId, ShardId)> = due.take(bounds::WITHDRAWALS_MAX).collect();
        for (id, shard) in due {
            let has_room = self.jobs.get(&id).is_some_and(|job| job.stop.is_none() && self.has_room_for(job));
            let delegation = self.shards.delegated.get_mut(&id).and_then(|shards| shards.get_mut(&shard));
            if let Some(delegation) = delegation {
                delegation.withdrawn = Some(now);
            }
            if has_room {
                self.tell(shard, Message::Withdraw { job: id }, out);
            }
        }
    }

    /// True if some delegated task of a job could start here now.
    fn has_room_for(&self, job: &Job) -> bool {
        // The turn of what starts with another step is that step's.
        let lead = job.steps.iter().zip(&job.spec.steps).filter(|(_, spec)| spec.with.is_none());
        let away = lead.filter(|(step, _)| !step.delegated.is_empty());
        let classes = away.map(|(step, _)| self.plan.classes.get(step.class));
        let mut classes = classes.filter(|class| class.request.cpu > 0 || class.request.memory > 0);
        classes.any(|class| self.plan.has_room_for(class))
    }

    /// How long tasks took elsewhere says how many are worth sending.
    pub(super) fn learn_means(&mut self, id: JobId, mean_us: &[(u16, u64)]) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for (number, us) in mean_us {
            if let Some(step) = job.steps.get_mut(usize::from(*number)).filter(|step| step.mean_ms.is_none())
            {
                step.mean_ms = Some(*us as f64 / 1e3);
            }
        }
    }

    /// Takes in what a record says of tasks that are with other shards.
    pub(super) fn adopt_delegated(&mut self, id: JobId, delegated: BTreeMap<ShardId, RangeSet>) {
        let now = self.now;
        for (shard, tasks) in delegated.into_iter().filter(|(_, tasks)| !tasks.is_empty()) {
            let Some(job) = self.jobs.get(&id) else { return };
            for (number, range) in job.all_by_step(&tasks) {
                self.count_delegated(StepKey { job: id, step: number as u16 }, range.len() as i32);
                let Some(job) = self.jobs.get_mut(&id) else { return };
                job.steps[number].delegated.insert_range(range);
            }
            let delegation = Delegation { tasks, since: now, ..Delegation::default() };
            self.shards.delegated.entry(id).or_default().insert(shard, delegation);
        }
    }
}
