//! The messages between a worker and its server.

use crate::time::Time;

/// The link to a worker's agent. A hello opens it, and each message is counted on it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Link {
    /// The worker said hello, and the link holds.
    pub connected: bool,
    /// When it said hello last.
    pub greeted: Time,
    /// When it was last heard from; `None` of a worker that sends no beats, whose connection alone is watched.
    pub heard: Option<Time>,
    /// When it sent its last hello or beat, by its keeper's clock.
    pub last_sent: u64,
    /// The number of the last message to it.
    pub seq: u64,
    /// The number of the last welcome.
    pub welcome_seq: u64,
    /// The number of the last message that went out.
    out_seq: u64,
    /// The same when the worker beat last.
    beat_seq: u64,
    overdue_beats: u32,
}

impl Link {
    /// The worker says hello. `beats` is whether it will beat, and `seq` the last message that it knows.
    pub fn greet(&mut self, now: Time, sent: u64, beats: bool, seq: u64) {
        self.connected = true;
        self.greeted = now;
        self.last_sent = sent;
        // A worker without a lease may not beat either. Whether it does is known from its first beat.
        self.heard = (beats || self.heard.is_some()).then_some(now);
        self.seq = self.seq.max(seq);
        self.overdue_beats = 0;
    }

    /// The number of the next message.
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// A message goes out.
    pub fn note_out(&mut self, seq: u64) {
        self.out_seq = self.out_seq.max(seq);
    }

    /// The worker beat: the number of the last message that had gone out at the beat before.
    pub fn beat(&mut self, now: Time, sent: u64) -> u64 {
        (self.heard, self.last_sent) = (Some(now), sent);
        std::mem::replace(&mut self.beat_seq, self.out_seq)
    }

    /// The worker sent something. Only a beat makes a worker one that beats.
    pub fn hear(&mut self, now: Time) {
        self.heard = self.heard.map(|_| now);
    }

    /// A beat lacked this number of attempts, and `overdue` of them should be there. True if their starts are to be said
    /// once more. The pauses between that double until a beat lacks none: a start that waits somewhere on its way for
    /// long has few copies behind it.
    pub fn note_overdue(&mut self, lacked: usize, overdue: usize) -> bool {
        if lacked == 0 {
            self.overdue_beats = 0;
        }
        if overdue == 0 {
            return false;
        }
        self.overdue_beats = self.overdue_beats.saturating_add(1);
        self.overdue_beats.is_power_of_two()
    }
}
