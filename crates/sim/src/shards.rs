//! A world of several schedulers, one for each shard of a farm, over one store. Each has machines of its own. The world
//! attends to one of them at a time; what happens says to which. Messages between shards are rows of the store: a
//! scheduler is told that some came, late or not at all, and looks by itself once a second.

use crate::scheduler::Scheduler;
use crate::world::{Happening, MS, S, World};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{Event, Write};
use windlass_core::ids::{ShardId, WHOLE_FARM};
use windlass_core::job::{JobState, TaskState};
use windlass_core::{JobId, TaskId, WorkerId};
use windlass_store::Mail;

/// Shards of a world with several schedulers.
pub const SHARDS: u32 = 3;
/// Numbers of jobs and workers that a scheduler leases at a time. Few, so that it often leases more.
const NUMBERS: u64 = 8;
/// Queues that have quotas in a world with several schedulers. Their jobs have one home.
const QUOTA_QUEUES: [&str; 2] = ["b", "vip"];
/// In thousandths: commits with messages whose receivers are not told.
const HINT_LOST_PERMILLE: u32 = 200;

/// True of a queue that may have a quota in a world with several schedulers.
pub(crate) fn may_have_quota(queue: &str) -> bool {
    QUOTA_QUEUES.contains(&queue)
}

/// A shard to which the world does not attend.
#[derive(Default)]
pub struct Resting {
    scheduler: Option<Scheduler>,
    turns_before: BTreeMap<String, (u8, i128)>,
}

impl World {
    /// Divides the farm into several shards, before machines are added.
    pub fn divide(&mut self) {
        self.shards = (1..=SHARDS).map(ShardId).collect();
        self.store.set_shards(self.shards.iter().copied().collect());
        for shard in self.shards.clone() {
            self.after(S, Happening::Looks(shard));
        }
    }

    pub(crate) fn is_divided(&self) -> bool {
        self.shards.len() > 1
    }

    /// Attends to a shard: its scheduler, and the store as that one sees it.
    pub(crate) fn turn_to(&mut self, shard: ShardId) {
        if shard == self.shard {
            return;
        }
        let turns_before = std::mem::take(&mut self.turns_before);
        let resting = Resting { scheduler: self.scheduler.take(), turns_before };
        self.resting.insert(self.shard, resting);
        let Resting { scheduler, turns_before } = self.resting.remove(&shard).unwrap_or_default();
        (self.scheduler, self.turns_before, self.shard) = (scheduler, turns_before, shard);
        self.store = self.store.of_shard(shard);
    }

    /// Attends to the shard of whom this happens to.
    pub(crate) fn turn_to_whom(&mut self, happening: &Happening) {
        if !self.is_divided() {
            return;
        }
        match happening {
            Happening::ToScheduler(_, machine, _)
            | Happening::ToMachine(_, machine, ..)
            | Happening::Connects(machine)
            | Happening::Beats(machine)
            | Happening::Reports(machine)
            | Happening::KeeperStarts(machine)
            | Happening::Fences(machine)
            | Happening::TaskEnds(machine, ..) => self.turn_to(self.machines[*machine].shard),
            Happening::LossSeen(link) => {
                for shard in self.shards.clone() {
                    self.turn_to(shard);
                    if self.scheduler.as_ref().is_some_and(|scheduler| scheduler.has_link(*link)) {
                        return;
                    }
                }
            }
            Happening::Wakes(life)
            | Happening::Round(life)
            | Happening::Applies(life)
            | Happening::CommitEnds(life)
            | Happening::Thaws(life)
            | Happening::Reads(life, _)
            | Happening::BodyRead(life, _)
            | Happening::ReadEnds(life, _) => {
                if let Some(shard) = self.lives_of.get(life) {
                    self.turn_to(*shard);
                }
            }
            Happening::Mail(shard) | Happening::Looks(shard) => self.turn_to(*shard),
            Happening::SchedulerStarts | Happening::DiskHasRoom | Happening::Alarm(_) => {}
        }
    }

    /// Attends to the shard whose a request is.
    pub(crate) fn turn_to_owner(&mut self, event: &Event) {
        if !self.is_divided() {
            return;
        }
        let shard = match event {
            Event::Submit(submit) => {
                let limits = submit.spec.steps.iter().any(|step| !step.limits.is_empty());
                let key = submit.spec.key.as_ref().map_or(submit.request.0, |key| key.len() as u64);
                // As in the server: what is counted over the farm is counted by the first shard. A key that somebody chose
                // may come with any of their jobs, and two shards that hear of it at a time know nothing of each other.
                let is_chosen = submit.spec.key.is_some() && submit.spec.parent.is_none();
                let is_first = limits || may_have_quota(&submit.spec.queue) || is_chosen;
                if is_first { WHOLE_FARM } else { self.shards[key as usize % self.shards.len()] }
            }
            Event::Cancel { job, .. }
            | Event::Hold { job, .. }
            | Event::Prioritize { job, .. }
            | Event::Retry { job, .. } => self.home(*job),
            Event::Lend { task } | Event::Reclaim { task, .. } => self.shard_of_task(*task),
            Event::Drain { worker, .. } | Event::Forget { worker, .. } => {
                self.store.shard_of(*worker).unwrap_or(WHOLE_FARM)
            }
            Event::Alloc { .. }
            | Event::Unalloc { .. }
            | Event::Release { .. }
            | Event::SetQueue { .. }
            | Event::SetLimit { .. } => WHOLE_FARM,
            _ => return,
        };
        self.turn_to(shard);
        self.asked.extend(event.request().map(|request| (request, shard)));
    }

    /// The number that some worker may have.
    pub(crate) fn any_worker(&mut self) -> WorkerId {
        if !self.is_divided() {
            return WorkerId(self.rng.between(1, 5));
        }
        let shard = self.shards[self.rng.below(SHARDS.into()) as usize];
        self.turn_to(shard);
        let ids: Vec<WorkerId> =
            self.engine().map(|engine| engine.workers().iter().map(|w| w.id).collect()).unwrap_or_default();
        self.rng.pick(&ids).copied().unwrap_or(WorkerId(1))
    }

    /// The shard that accepted a job.
    fn home(&self, job: JobId) -> ShardId {
        self.store.home(job).unwrap_or(WHOLE_FARM)
    }

    /// Whether a job's home is another shard than the one to which the world attends.
    pub(crate) fn is_guest(&self, job: JobId) -> bool {
        self.is_divided() && self.home(job) != self.shard
    }

    /// Counts the start of a process, if its job's home is another shard.
    pub(crate) fn tally_guest_start(&mut self, task: TaskId) {
        if !self.is_guest(task.job) {
            return;
        }
        self.tally.guest_starts += 1;
        if let Some(by) = self.promises.counted.by(task) {
            self.tally.limited_guest_starts += u64::from(by.limit);
            self.tally.quota_guest_starts += u64::from(by.quota);
            self.tally.capped_guest_starts += u64::from(by.cap);
        }
    }

    /// The shard of the worker on which a task is booked, or else its home.
    fn shard_of_task(&self, task: TaskId) -> ShardId {
        let row = self.store.tasks(task.job, task.index..task.index + 1).pop().map(|task| task.row);
        let booked = row.filter(|row| row.state == TaskState::Booked);
        booked.and_then(|row| self.store.shard_of(row.worker)).unwrap_or_else(|| self.home(task.job))
    }

    /// Some messages became durable: their receivers are told of them, sometimes.
    pub(crate) fn hint(&mut self, writes: &[Write]) {
        let told = writes.iter().filter_map(|write| match write {
            Write::Tell { to, .. } => Some(*to),
            _ => None,
        });
        for shard in told.collect::<BTreeSet<ShardId>>() {
            if !self.rng.chance(HINT_LOST_PERMILLE) {
                let delay_ns = self.rng.between(MS, 100 * MS);
                self.after(delay_ns, Happening::Mail(shard));
            }
        }
    }

    /// Brings the scheduler all messages that it has not heard, half of them with what the store has of their jobs.
    pub(crate) fn bring_mail(&mut self) {
        if self.scheduler.as_ref().is_none_or(|scheduler| scheduler.is_frozen()) || self.disk_full {
            return;
        }
        for Mail { from, number, message } in self.store.mail() {
            if self.engine().is_some_and(|engine| engine.heard(from) < number) {
                self.tally.messages += 1;
                let jobs: BTreeSet<JobId> =
                    message.job().filter(|_| self.rng.chance(500)).into_iter().collect();
                let record = self.store.records(&jobs).pop().map(Box::new);
                self.tell(Event::Told { from, number, message, record });
            }
        }
    }

    /// What a scheduler does once a second besides: it reads its messages, leases numbers, and asks what became of jobs of
    /// other shards.
    pub(crate) fn look_around(&mut self, shard: ShardId) {
        self.after(S, Happening::Looks(shard));
        self.bring_mail();
        self.lease_numbers();
        let Some(awaited) = self.engine().map(|engine| engine.awaited_elsewhere()) else { return };
        let states: BTreeMap<JobId, Option<JobState>> =
            awaited.into_iter().map(|id| (id, self.store.job(id).map(|view| view.state))).collect();
        if !states.is_empty() {
            self.tell(Event::EndedElsewhere(states));
        }
    }

    pub(crate) fn lease_numbers(&mut self) {
        let Some((jobs, workers)) = self.engine().map(|engine| engine.numbers_left()) else { return };
        if self.is_divided() && (jobs < NUMBERS / 2 || workers < NUMBERS / 2) {
            let (jobs, workers) = self.store.lease_numbers(NUMBERS);
            self.tell(Event::Numbers { jobs, workers });
        }
    }
}
