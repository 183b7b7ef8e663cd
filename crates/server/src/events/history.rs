//! The latest events, for clients whose connection broke: a new stream goes on where the old one was.
//!
//! Events are numbered. A number is never used twice, and whatever is not kept leaves a gap, by which a client learns
//! that it has missed something.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_api::ServerEvent;

/// Changes that are kept: each event is one, and so is each task in it.
const CHANGES_MAX: usize = 65_536;
/// How long events are kept after the last stream of a client was closed.
const RESUME_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct EventHistory {
    /// Number of the last event; 0 before the first.
    last: u64,
    /// The events up to the last one, without a gap.
    events: VecDeque<Arc<ServerEvent>>,
    /// Changes in these events.
    changes: usize,
    /// Streams of clients that are open.
    streams: usize,
    /// When the last one was closed.
    closed: Option<Instant>,
}

impl EventHistory {
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Notes that a client listens.
    pub fn open(&mut self) {
        self.streams += 1;
    }

    /// Notes that it listens no more. It may come back.
    pub fn close(&mut self, now: Instant) {
        self.streams -= 1;
        self.closed = Some(now);
    }

    /// True while a client listens, or may come back.
    pub fn is_wanted(&self, now: Instant) -> bool {
        self.streams > 0 || self.closed.is_some_and(|closed| now < closed + RESUME_MAX)
    }

    /// Numbers an event, and keeps it if a client could ask for it.
    pub fn add(&mut self, event: &Arc<ServerEvent>, now: Instant) {
        if !self.is_wanted(now) {
            return self.skip();
        }
        self.last += 1;
        self.changes += changes(event);
        self.events.push_back(event.clone());
        while self.changes > CHANGES_MAX
            && let Some(oldest) = self.events.pop_front()
        {
            self.changes -= changes(&oldest);
        }
    }

    /// Notes that something happened that is not kept.
    pub fn skip(&mut self) {
        self.last += 1;
        self.changes = 0;
        self.events = VecDeque::new();
    }

    /// The events after that number; `None` if some of them are gone, or never were.
    pub fn after(&self, number: u64) -> Option<VecDeque<Arc<ServerEvent>>> {
        let missed = usize::try_from(self.last.checked_sub(number)?).ok()?;
        let first = self.events.len().checked_sub(missed)?;
        Some(self.events.iter().skip(first).cloned().collect())
    }
}

fn changes(event: &ServerEvent) -> usize {
    match event {
        ServerEvent::Tasks(event) => 1 + event.tasks.len(),
        ServerEvent::Job(_) | ServerEvent::Worker(_) | ServerEvent::Lagged => 1,
    }
}
