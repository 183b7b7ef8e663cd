//! What an engine knows of the other shards of its farm, and the messages between them.
//!
//! A job has a home: the shard that accepted it. Its home alone writes rows of the job, and decides what becomes ready
//! and when the job ends. It may delegate ready tasks to another shard ([`delegate`](super::delegate)). There the job is a
//! guest ([`guests`](super::guests)): these tasks, and no others, are ready, so they take their turn, run, fail and are lost
//! like all tasks of that shard. Then they return to their home with what became of them.
//!
//! - A task is ready in one shard at most. It leaves the sender's books with the batch that writes the message, and
//!   enters the receiver's books with the batch that deletes it.
//! - What is delegated is in a row of the job, which only the home writes. The guest's part is that row, less the tasks
//!   in messages that are still under way. So a store needs no second row.
//! - After a failed batch, numbers of messages and what they moved are as the store has them.

use super::{Engine, Event, Outbox, Write};
use crate::bounds;
use crate::ids::{ClassId, JobId, ShardId, TaskId};
use crate::job::{JobRecord, JobState};
use crate::ranges::RangeSet;
use crate::shards::{Mail, Message, Room};
use crate::time::{NS_PER_MS, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The other shards, and what is between them and this one.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Shards {
    own: ShardId,
    pub(super) peers: BTreeSet<ShardId>,
    pub(super) mail: Mail,
    /// Room that other shards told of, less what was sent there since.
    pub(super) rooms: BTreeMap<ShardId, Room>,
    /// Classes of which another shard has no worker, as far as is known, and until when that is believed.
    pub(super) unfit: BTreeMap<(ShardId, ClassId), Time>,
    /// Classes of gangs, whether workers of this shard are too few for them, and until when that is not looked at again.
    pub(super) stuck_gangs: BTreeMap<ClassId, (Time, bool)>,
    /// The room that this shard told of last; `None` if it is to be told again.
    pub(super) told: Option<Room>,
    pub(super) told_at: Time,
    /// The others were asked for their room.
    asked: bool,
    /// Tasks of jobs of this shard that are with others.
    pub(super) delegated: BTreeMap<JobId, BTreeMap<ShardId, Delegation>>,
    /// Jobs of other shards of which tasks are here.
    pub(super) guests: BTreeMap<JobId, Guest>,
    /// When tasks of guests return.
    pub(super) due: BTreeSet<(Time, JobId)>,
    /// When the shards' room and work are compared next.
    pub(super) next_look: Option<Time>,
    last_look: Time,
    jobs: Vec<Range<u64>>,
    workers: Vec<Range<u64>>,
}

/// Tasks of a job that are with another shard.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Delegation {
    pub(super) tasks: RangeSet,
    /// When the last of them were sent.
    pub(super) since: Time,
    /// Since when their steps had ready tasks, if this engine sent them.
    pub(super) ready_since: Option<Time>,
    /// When it was last asked to give back what has not started.
    pub(super) withdrawn: Option<Time>,
}

/// A job of another shard.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Guest {
    pub(super) home: ShardId,
    /// Tasks of which the end of an attempt is not durable, each with the number of the last such attempt.
    pub(super) unsettled: BTreeMap<u32, u32>,
    pub(super) due: Option<Time>,
    /// Since when some of its tasks wait and none has started.
    pub(super) idle_since: Option<Time>,
    /// How many of its ready tasks return although they could start here.
    pub(super) gives_back: u32,
    /// No worker of its home could run what was sent last.
    pub(super) stays: bool,
}

impl Shards {
    pub(super) fn new(own: ShardId, peers: BTreeSet<ShardId>, mail: Mail) -> Self {
        Shards { own, peers, mail, ..Shards::default() }
    }

    pub(super) fn own(&self) -> ShardId {
        self.own
    }

    /// True of the only shard of its farm.
    pub(super) fn is_alone(&self) -> bool {
        self.peers.is_empty()
    }

    /// True if nothing of this shard is elsewhere, and nothing of others here.
    pub(super) fn has_nothing_between(&self) -> bool {
        self.delegated.is_empty() && self.guests.is_empty()
    }

    /// The next time to look after what is between the shards.
    pub(super) fn next_due(&self) -> Option<Time> {
        [self.due.first().map(|(at, _)| *at), self.next_look].into_iter().flatten().min()
    }

    fn next_of(blocks: &mut Vec<Range<u64>>) -> Option<u64> {
        let block = blocks.first_mut()?;
        let number = block.start;
        block.start += 1;
        if block.is_empty() {
            blocks.remove(0);
        }
        Some(number)
    }

    /// A number for a new worker, if one is left.
    pub(super) fn next_worker(&mut self) -> Option<u64> {
        Shards::next_of(&mut self.workers)
    }

    pub(super) fn has_worker_number(&self) -> bool {
        !self.workers.is_empty()
    }
}

impl Engine {
    /// The number of the last message of that shard that took effect. The shell brings later ones.
    pub fn heard(&self, from: ShardId) -> u64 {
        self.shards.mail.heard(from)
    }

    /// The shard that it decides for.
    pub fn shard(&self) -> ShardId {
        self.shards.own
    }

    /// How many numbers are left for new jobs and for new workers. The only shard of a farm needs none.
    pub fn numbers_left(&self) -> (u64, u64) {
        let left = |blocks: &[Range<u64>]| blocks.iter().map(|block| block.end - block.start).sum();
        (left(&self.shards.jobs), left(&self.shards.workers))
    }

    /// Jobs of other shards that jobs of this one come after. The shell reads from the store what became of them, now and
    /// then, and says so with [`Event::EndedElsewhere`].
    pub fn awaited_elsewhere(&self) -> BTreeSet<JobId> {
        if self.shards.is_alone() {
            return BTreeSet::new();
        }
        let awaited = self.dependents.iter().filter(|(id, waiting)| {
            !waiting.is_empty() && self.jobs.get(id).is_none_or(|job| job.home.is_some())
        });
        awaited.map(|(id, _)| *id).collect()
    }

    /// Since when a task is with another shard, and with which.
    pub fn delegated_to(&self, task: TaskId) -> Option<(ShardId, Time)> {
        let mut shards = self.shards.delegated.get(&task.job)?.iter();
        shards
            .find(|(_, delegation)| delegation.tasks.contains(task.index))
            .map(|(shard, delegation)| (*shard, delegation.since))
    }

    /// Another shard came or went, or there are more numbers to give.
    pub(super) fn set_peers(&mut self, peers: BTreeSet<ShardId>) {
        self.shards.peers = peers;
        self.shards.peers.remove(&self.shards.own);
        self.shards.rooms.retain(|shard, _| self.shards.peers.contains(shard));
        (self.shards.told, self.shards.asked) = (None, false);
        self.plan.request_round();
    }

    pub(super) fn add_numbers(&mut self, jobs: Range<u64>, workers: Range<u64>) {
        self.shards.jobs.extend((!jobs.is_empty()).then_some(jobs));
        self.shards.workers.extend((!workers.is_empty()).then_some(workers));
    }

    /// The number of a new job. In a farm of several shards numbers come from blocks, so there may be none.
    pub(super) fn number_job(&mut self) -> Option<JobId> {
        if !self.shards.is_alone() {
            return Shards::next_of(&mut self.shards.jobs).map(JobId);
        }
        let id = JobId(self.next_job);
        self.next_job += 1;
        Some(id)
    }

    pub(super) fn tell(&mut self, to: ShardId, message: Message, out: &mut Outbox) {
        let number = self.shards.mail.next(to);
        out.writes.push(Write::Tell { to, number, message });
    }

    pub(super) fn tell_all(&mut self, message: &Message, out: &mut Outbox) {
        for to in self.shards.peers.clone() {
            self.tell(to, message.clone(), out);
        }
    }

    /// The job of which a message needs what the store has, because it is not here and did not come with the message.
    pub(super) fn job_to_read(&self, event: &Event) -> Option<JobId> {
        match event {
            Event::Told { from, number, message: Message::Delegate { job, .. }, record: None }
                if *number == self.heard(*from) + 1 && !self.jobs.contains_key(job) =>
            {
                Some(*job)
            }
            _ => None,
        }
    }

    /// A message arrives. Messages of a shard take effect in their order, each once. `record` is what the store has of its
    /// job.
    pub(super) fn told(
        &mut self,
        (from, number): (ShardId, u64),
        message: Message,
        record: Option<JobRecord>,
        out: &mut Outbox,
    ) {
        if !self.shards.mail.is_next(from, number, &message) {
            return;
        }
        self.shards.mail.hear(from, number);
        out.writes.push(Write::Heard { from, number, job: message.job() });
        match message {
            Message::AskRoom => self.shards.told = None,
            Message::Room(room) => {
                if self.shards.rooms.get(&from).is_none_or(|known| known.version != room.version) {
                    self.shards.unfit.retain(|(shard, _), _| *shard != from);
                }
                self.shards.rooms.insert(from, room);
                self.shards.next_look = Some(self.now);
            }
            Message::Delegate { job, tasks, tried, waited_ms, stays } => {
                let ready_since = Time(self.now.0.saturating_sub(waited_ms.saturating_mul(NS_PER_MS)));
                self.take_in(from, (job, record), &tasks, tried, (ready_since, stays));
            }
            Message::Return { job, tasks, fits, mean_us } => {
                self.take_back(from, job, tasks, fits, out);
                self.learn_means(job, &mean_us);
            }
            Message::Orders { job, stop, held, priority } => self.follow(job, stop, held, priority, out),
            Message::Withdraw { job } => self.give_back_later(job),
            Message::Queue(queue) => self.plan.queues.set(&queue),
            Message::Limit { name, limit } => self.put_limit_into_force(&name, limit.as_ref()),
        }
        self.plan.request_round();
        if let Some((number, message)) = self.shards.mail.take_waiting(from) {
            let event = Event::Told { from, number, message, record: None };
            self.act_with_jobs(event, super::Lookups::new(), out);
        }
    }

    /// The store says what became of jobs of other shards; `None` of one that is not there any more.
    pub(super) fn ended_elsewhere(&mut self, states: BTreeMap<JobId, Option<JobState>>, out: &mut Outbox) {
        for (id, state) in states {
            if state == Some(JobState::Active) || !self.awaited_elsewhere().contains(&id) {
                continue;
            }
            // It may have been deleted since it succeeded.
            let waiting = self.release_dependents(id, state.unwrap_or(JobState::Succeeded), out);
            waiting.into_iter().for_each(|job| self.settle_job(job, out));
        }
    }

    /// What no job here is: one of another shard, as far as this one knows.
    pub(super) fn is_elsewhere(&self, id: JobId) -> bool {
        let is_unknown = || self.jobs.get(&id).is_none_or(|job| job.home.is_some());
        !self.shards.is_alone() && is_unknown() && self.recent.get(id).is_none()
    }

    /// Looks after what is between the shards: after each round, and when something is due. `is_full` says that the round
    /// left nothing that could start here.
    pub(super) fn tend_shards(&mut self, is_full: bool, was_round: bool, out: &mut Outbox) {
        if self.shards.is_alone() && self.shards.has_nothing_between() {
            return;
        }
        if !std::mem::replace(&mut self.shards.asked, true) {
            self.tell_all(&Message::AskRoom, out);
        }
        while let Some((at, job)) = self.shards.due.first().copied().filter(|(at, _)| *at <= self.now) {
            self.shards.due.remove(&(at, job));
            self.return_tasks(job, out);
        }
        let earliest = self.shards.last_look.after(bounds::SHARD_LOOK_NS);
        if !was_round && self.shards.next_look.is_none_or(|at| self.now < at) {
            return;
        }
        if self.now < earliest {
            self.shards.next_look = Some(earliest);
            return;
        }
        self.shards.last_look = self.now;
        if !is_full {
            let surplus = self.surplus_cpu();
            if surplus > 0 {
                self.delegate_work(surplus, out);
            }
            self.shards.next_look = Some(self.now.after(bounds::SHARD_LOOK_NS));
            return;
        }
        self.look_after_guests();
        let has_sent = self.delegate_work(u64::MAX, out);
        self.withdraw_work(out);
        self.tell_room(out);
        let is_between = !self.shards.has_nothing_between();
        let pause_ns = if has_sent { bounds::SHARD_LOOK_NS } else { bounds::SHARD_IDLE_LOOK_NS };
        let later = self.now.after(pause_ns);
        self.shards.next_look = is_between.then_some(later);
    }

    /// Messages of batches that are not durable were not sent, and what they heard was not heard.
    pub(super) fn untell(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Tell { to, number, message } => {
                    self.shards.mail.unsend(*to, *number);
                    match message {
                        // What a message that was not sent took off another shard's room is there still.
                        Message::AskRoom | Message::Delegate { .. } => self.shards.asked = false,
                        Message::Room(_) => self.shards.told = None,
                        _ => {}
                    }
                }
                Write::Heard { from, number, .. } => self.shards.mail.unhear(*from, *number),
                _ => {}
            }
        }
    }
}
