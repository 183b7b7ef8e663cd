//! The numbers of messages: which one is next, and which ones are still to come.

use super::Message;
use crate::ids::ShardId;
use std::collections::BTreeMap;

/// Messages that wait for an earlier one. More are not kept: the shell brings them again.
const WAITING_MAX: usize = 1_024;

/// What a shard sent to others and heard of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Mail {
    sent: BTreeMap<ShardId, u64>,
    heard: BTreeMap<ShardId, u64>,
    waiting: BTreeMap<(ShardId, u64), Message>,
}

impl Mail {
    /// The numbers of the last messages to other shards and from them, as a store has them.
    pub fn new(sent: BTreeMap<ShardId, u64>, heard: BTreeMap<ShardId, u64>) -> Mail {
        Mail { sent, heard, waiting: BTreeMap::new() }
    }

    /// The number of the next message to a shard.
    pub fn next(&mut self, to: ShardId) -> u64 {
        let last = self.sent.entry(to).or_default();
        *last += 1;
        *last
    }

    /// The number of the last message of a shard that took effect.
    pub fn heard(&self, from: ShardId) -> u64 {
        self.heard.get(&from).copied().unwrap_or(0)
    }

    /// True of the message that is to take effect next. A later one is kept, an earlier one is dropped.
    pub fn is_next(&mut self, from: ShardId, number: u64, message: &Message) -> bool {
        let heard = self.heard(from);
        if number > heard + 1 && self.waiting.len() < WAITING_MAX {
            self.waiting.insert((from, number), message.clone());
        }
        number == heard + 1
    }

    /// A message takes effect.
    pub fn hear(&mut self, from: ShardId, number: u64) {
        self.heard.insert(from, number);
        self.waiting.remove(&(from, number));
    }

    /// The next message of a shard, if it came before its turn.
    pub fn take_waiting(&mut self, from: ShardId) -> Option<(u64, Message)> {
        let number = self.heard(from) + 1;
        self.waiting.remove(&(from, number)).map(|message| (number, message))
    }

    /// This message to a shard, and all later ones, are not durable.
    pub fn unsend(&mut self, to: ShardId, number: u64) {
        self.sent.entry(to).and_modify(|last| *last = (*last).min(number - 1));
    }

    /// That this message of a shard, and all later ones, took effect is not durable.
    pub fn unhear(&mut self, from: ShardId, number: u64) {
        self.heard.entry(from).and_modify(|last| *last = (*last).min(number - 1));
        self.waiting.clear();
    }
}
