//! Messages between the shards of a farm, and the tasks that these move, as all stores keep them.
//!
//! A row for each job and shard has the tasks that are with that shard, or on the way there or back. Only the job's home
//! writes it: with the message that sends tasks, and when it hears the message that returns them. So the tasks that another
//! shard really has are these, less the ones in messages that were not heard ([`with_guest`]).

use crate::message::message_to_json;
use std::collections::BTreeMap;
use windlass_core::JobId;
use windlass_core::ids::ShardId;
use windlass_core::ranges::RangeSet;
use windlass_core::shards::Message;

/// Messages of one page of [`Store::mail`](crate::Store::mail).
pub const MAIL_ROWS_MAX: usize = 1_024;
/// Bytes of messages, as JSON, at which a page ends. The settings of a queue name up to a thousand users, so a thousand
/// messages may be large.
pub const MAIL_BYTES_MAX: usize = 4 << 20;

/// A message that was not heard yet.
#[derive(Clone, PartialEq, Debug)]
pub struct Mail {
    /// Who sent it.
    pub from: ShardId,
    /// Its number among the messages of that shard to the reading one.
    pub number: u64,
    /// What.
    pub message: Message,
}

/// The place of a message among all messages to one shard: they are in the order of their senders, and of their numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MailPlace {
    /// The sender.
    pub from: ShardId,
    /// The number.
    pub number: u64,
}

impl MailPlace {
    /// Before the first message: shards and messages are numbered from 1.
    pub(crate) const START: MailPlace = MailPlace { from: ShardId(0), number: 0 };
}

/// Messages in the order of their places.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MailPage {
    /// The messages.
    pub mail: Vec<Mail>,
    /// The place after which the next page begins; `None` if this was the last one.
    pub next: Option<MailPlace>,
}

/// Collects a page.
#[derive(Default)]
pub(crate) struct PageBuilder {
    mail: Vec<Mail>,
    bytes: usize,
}

impl PageBuilder {
    /// Adds a message of `bytes` bytes.
    pub fn add(&mut self, mail: Mail, bytes: usize) {
        self.mail.push(mail);
        self.bytes += bytes;
    }

    /// True if no further message belongs to this page.
    pub fn is_full(&self) -> bool {
        self.mail.len() >= MAIL_ROWS_MAX || self.bytes >= MAIL_BYTES_MAX
    }

    pub fn finish(self) -> MailPage {
        let last = self.mail.last().map(|mail| MailPlace { from: mail.from, number: mail.number });
        MailPage { next: last.filter(|_| self.is_full()), mail: self.mail }
    }
}

/// The tasks of a job that a shard has, where `away` are those that its home takes to be there or on their way.
/// `unheard` are all messages between the two that were not heard.
pub fn with_guest<'a>(
    job: JobId,
    mut away: RangeSet,
    unheard: impl IntoIterator<Item = &'a Message>,
) -> RangeSet {
    for message in unheard.into_iter().filter(|message| message.job() == Some(job)) {
        away.subtract(&message.moved());
    }
    away
}

/// The numbers of the last messages from a shard, by receiver, and of those to it that were heard, by sender.
pub(crate) type LastNumbers = (BTreeMap<ShardId, u64>, BTreeMap<ShardId, u64>);

/// The rows of the store in memory.
#[derive(Default)]
pub(crate) struct MailRows {
    /// By sender, receiver and number.
    unheard: BTreeMap<(ShardId, ShardId, u64), Message>,
    /// The last number that was heard, by sender and receiver.
    last: BTreeMap<(ShardId, ShardId), u64>,
    delegated: BTreeMap<(JobId, ShardId), RangeSet>,
}

impl MailRows {
    pub fn tell(&mut self, from: ShardId, to: ShardId, number: u64, message: &Message) -> bool {
        let key = (from, to, number);
        let is_new = self.last_heard(from, to) < number && !self.unheard.contains_key(&key);
        if is_new {
            self.unheard.insert(key, message.clone());
        }
        is_new
    }

    pub fn heard(&mut self, from: ShardId, to: ShardId, number: u64) -> bool {
        let was_there = self.unheard.remove(&(from, to, number)).is_some();
        if was_there {
            self.last.insert((from, to), number);
        }
        was_there
    }

    pub fn delegate(&mut self, job: JobId, shard: ShardId, tasks: &RangeSet) -> bool {
        match tasks.is_empty() {
            true => _ = self.delegated.remove(&(job, shard)),
            false => _ = self.delegated.insert((job, shard), tasks.clone()),
        }
        true
    }

    /// The messages to a shard, those of each sender in their order.
    pub fn to(&self, shard: ShardId) -> Vec<Mail> {
        let to = self.unheard.iter().filter(|((_, to, _), _)| *to == shard);
        to.map(|((from, _, number), message)| Mail { from: *from, number: *number, message: message.clone() })
            .collect()
    }

    /// A page of the messages to a shard.
    pub fn page(&self, shard: ShardId, after: MailPlace) -> MailPage {
        let mut page = PageBuilder::default();
        for mail in self.to(shard) {
            if page.is_full() {
                break;
            }
            if (MailPlace { from: mail.from, number: mail.number }) > after {
                let bytes = message_to_json(&mail.message).len();
                page.add(mail, bytes);
            }
        }
        page.finish()
    }

    fn last_heard(&self, from: ShardId, to: ShardId) -> u64 {
        self.last.get(&(from, to)).copied().unwrap_or(0)
    }

    /// The numbers of the last messages from a shard, and of those to it that were heard.
    pub fn last_numbers(&self, shard: ShardId) -> LastNumbers {
        let (mut sent, mut heard) = (BTreeMap::new(), BTreeMap::new());
        for ((from, to), number) in &self.last {
            if *from == shard {
                sent.insert(*to, *number);
            }
            if *to == shard {
                heard.insert(*from, *number);
            }
        }
        for (_, to, number) in self.unheard.keys().filter(|(from, ..)| *from == shard) {
            let last = sent.entry(*to).or_default();
            *last = (*last).max(*number);
        }
        (sent, heard)
    }

    pub fn delegated(&self, job: JobId) -> BTreeMap<ShardId, RangeSet> {
        let rows = self.delegated.range((job, ShardId(0))..=(job, ShardId(u32::MAX)));
        rows.map(|((_, shard), tasks)| (*shard, tasks.clone())).collect()
    }

    /// All tasks of a job that are not with its home.
    pub fn away(&self, job: JobId) -> RangeSet {
        let mut away = RangeSet::default();
        for tasks in self.delegated(job).into_values() {
            tasks.ranges().for_each(|range| away.insert_range(range));
        }
        away
    }

    pub fn guest(&self, job: JobId, home: ShardId, shard: ShardId) -> RangeSet {
        let away = self.delegated.get(&(job, shard)).cloned().unwrap_or_default();
        let between = self
            .unheard
            .iter()
            .filter(|((from, to, _), _)| (*from, *to) == (home, shard) || (*from, *to) == (shard, home));
        with_guest(job, away, between.map(|(_, message)| message))
    }
}
